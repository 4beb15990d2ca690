//! The tunnels of members, by name. A tunnel belongs to a session and ends with it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use atoll_api::ClusterName;
use atoll_protocol::ca::PublicKeyHash;
use atoll_protocol::v1::member_proxy_client::MemberProxyClient;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use super::limits::Traffic;
use super::sessions::SessionRows;
use crate::leader::LeaderTerm;

/// A member's connection for users' requests.
#[derive(Debug, Clone)]
pub(crate) struct Tunnel {
    pub(crate) client: MemberProxyClient<Channel>,
    /// The authority of its certificate; `None` if none was needed.
    pub(crate) authority: Option<PublicKeyHash>,
    /// The term of its session.
    pub(crate) term: LeaderTerm,
    /// Closes the connection, which ends all its streams.
    pub(crate) cut: CancellationToken,
}

/// All tunnels, and the limits of what goes through them.
#[derive(Debug, Default)]
pub(crate) struct Tunnels {
    open: Mutex<BTreeMap<ClusterName, (u64, Tunnel)>>,
    pub(crate) traffic: Arc<Traffic>,
    /// What history keeps of sessions in pods.
    pub(crate) rows: Arc<SessionRows>,
}

impl Tunnels {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ClusterName, (u64, Tunnel)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tunnel of a member.
    pub(crate) fn get(&self, member: &str) -> Option<Tunnel> {
        self.lock().get(member).map(|(_, tunnel)| tunnel.clone())
    }

    /// Adds a tunnel and closes the one that it replaces. Returns its number, for [`Tunnels::remove`].
    pub(crate) fn insert(&self, member: &ClusterName, tunnel: Tunnel) -> u64 {
        let mut open = self.lock();
        let id = open.get(member).map_or(0, |(id, _)| id + 1);
        if let Some((_, old)) = open.insert(member.clone(), (id, tunnel)) {
            old.cut.cancel();
        }
        id
    }

    /// Closes the tunnels with certificates of authorities that are not trusted.
    pub(crate) fn enforce(&self, trusts: impl Fn(PublicKeyHash) -> bool) {
        for (_, tunnel) in self.lock().values() {
            if tunnel.authority.is_some_and(|authority| !trusts(authority)) {
                tunnel.cut.cancel();
            }
        }
    }

    /// Closes a tunnel, unless another has replaced it.
    pub(crate) fn remove(&self, member: &ClusterName, id: u64) {
        let mut open = self.lock();
        if open.get(member).is_some_and(|(held, _)| *held == id)
            && let Some((_, tunnel)) = open.remove(member)
        {
            tunnel.cut.cancel();
        }
    }
}
