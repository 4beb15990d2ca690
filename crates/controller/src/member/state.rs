//! One member: its Cluster, its session, what it should hold and its health.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use atoll_api::{Cluster, ClusterName, conditions, marks};
use atoll_render::Key;
use atoll_traces::TraceContext;
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::Instant;
use tonic::Status;

use super::mailbox::Mailbox;
use super::types::MemberFacts;
use crate::enrolment::departure_progress::Departure;
use crate::enrolment::identity::{Certificate, ClusterIdError, Identity};
use crate::enrolment::revocation;
use crate::health::heartbeats::HeartbeatTracker;
use crate::health::taints;
use crate::health::terms::Refusal;
use crate::leader::LeaderTerm;
use crate::lifecycle::emptying::Emptying;
use crate::sessions::bounds::Reservation;
use crate::sessions::desired::DesiredSet;
use crate::sessions::handle::SessionHandle;

/// One member.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: ClusterName,
    /// Orders of the event loop that are not in the state yet.
    pub(crate) mailbox: Mailbox,
    /// Traces that the agent continues.
    pub(crate) traced: Traced,
    state: Mutex<MemberState>,
    /// Notified when there may be something to send, or a withdrawal may be confirmed.
    pub(crate) wake: Notify,
}

/// State of a member, behind a lock that is never held across an await.
#[derive(Debug)]
pub(crate) struct MemberState {
    /// The newest version; `None` before the hub's watch delivered it.
    pub(crate) cluster: Option<Arc<Cluster>>,
    pub(crate) identity: Identity,
    pub(crate) epoch: Epoch,
    /// Why its last Hello was refused.
    pub(crate) refusal: Option<Refusal>,
    /// The term that a user accepted, until ours is above it.
    pub(crate) accepted_term: Option<LeaderTerm>,
    pub(crate) desired: DesiredSet,
    pub(crate) heartbeats: HeartbeatTracker,
    pub(crate) facts: Option<StoredFacts>,
    pub(crate) session: Option<SessionHandle>,
    /// Whether controller and agent agreed on an inventory in this leadership.
    pub(crate) agreed: bool,
    /// Progress of emptying it.
    pub(crate) emptying: Emptying,
    /// Progress of its departure from the federation.
    pub(crate) departure: Option<Departure>,
    /// When its status was last written, by this controller, or by an earlier one if that is known.
    pub(crate) last_write: Instant,
}

/// The epoch of a member's agent: a counter in its Lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Epoch {
    /// The highest accepted one.
    pub(crate) highest: u64,
    /// A new enrolment restarted the epoch, and the Cluster does not show that yet.
    pub(crate) restarted: bool,
}

/// Facts about a member, and the memory reserved for them.
#[derive(Debug)]
pub(crate) struct StoredFacts {
    pub(crate) facts: Arc<MemberFacts>,
    /// Released when newer facts replace these.
    pub(crate) _memory: Reservation,
}

/// Limit of objects of a member with a trace: those of decisions that an agent without a connection has yet to get.
const MOST_TRACED: usize = 1_000;

/// Traces that an agent continues, by the object that is sent next.
#[derive(Debug, Default)]
pub(crate) struct Traced(Mutex<BTreeMap<Key, TraceContext>>);

impl Traced {
    pub(crate) fn put(&self, object: &Key, context: TraceContext) {
        let mut traced = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if traced.len() < MOST_TRACED || traced.contains_key(object) {
            traced.insert(object.clone(), context);
        }
    }

    /// The trace of an object that is being sent.
    pub(crate) fn take(&self, object: &Key) -> Option<TraceContext> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(object)
    }
}

impl Member {
    pub(crate) fn new(name: ClusterName, now: Instant) -> Self {
        let state = MemberState {
            cluster: None,
            identity: Identity::default(),
            epoch: Epoch::default(),
            refusal: None,
            accepted_term: None,
            desired: DesiredSet::default(),
            heartbeats: HeartbeatTracker::new(now, false),
            facts: None,
            session: None,
            agreed: false,
            emptying: Emptying::default(),
            departure: None,
            last_write: now,
        };
        let (mailbox, traced) = (Mailbox::default(), Traced::default());
        Self { name, mailbox, traced, state: Mutex::new(state), wake: Notify::new() }
    }

    /// The member's state, with all orders of the event loop applied.
    pub(crate) fn lock(&self) -> MutexGuard<'_, MemberState> {
        self.updated(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`Member::lock`], unless another task holds the lock.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, MemberState>> {
        match self.state.try_lock() {
            Ok(state) => Some(self.updated(state)),
            Err(TryLockError::Poisoned(state)) => Some(self.updated(state.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn updated<'a>(
        &'a self,
        mut state: MutexGuard<'a, MemberState>,
    ) -> MutexGuard<'a, MemberState> {
        let MemberState { desired, emptying, .. } = &mut *state;
        self.mailbox.take().apply(desired, emptying);
        state
    }
}

impl MemberState {
    pub(crate) fn uid(&self) -> Option<&str> {
        self.cluster.as_ref()?.metadata.uid.as_deref()
    }

    /// Whether the Cluster has our finalizer, or is being deleted anyway.
    pub(crate) fn is_held(&self) -> bool {
        let metadata = self.cluster.as_ref().map(|cluster| &cluster.metadata);
        metadata.is_some_and(|metadata| {
            let mut finalizers = metadata.finalizers.iter().flatten();
            metadata.deletion_timestamp.is_some()
                || finalizers.any(|held| held == marks::CLUSTER_FINALIZER)
        })
    }

    /// Stores a newer version of the Cluster; returns whether it was newer.
    pub(crate) fn take(&mut self, cluster: &Arc<Cluster>, now: (Instant, Timestamp)) -> bool {
        if let Some(old) = &self.cluster
            && old.metadata.uid == cluster.metadata.uid
            && is_older(cluster, old)
        {
            return false;
        }
        let first = self.uid() != cluster.metadata.uid.as_deref();
        let status = cluster.status.as_ref();
        let session = status.and_then(|status| status.session.as_ref());
        if first {
            if let Some(session) = &self.session {
                session.end(Status::permission_denied(
                    "the Cluster was replaced by another one with its name",
                ));
            }
            let cluster_id = status.and_then(|status| status.cluster_id.clone());
            self.identity = Identity { cluster_id, ..Identity::default() };
            self.epoch = Epoch::default();
            self.refusal = None;
            self.accepted_term = None;
            self.facts = None;
            self.agreed = false;
            self.departure = None;
            self.emptying = Emptying::default();
            self.desired.cancel_departure();
            self.heartbeats = HeartbeatTracker::new(now.0, self.identity.cluster_id.is_some());
            if taints::managed(cluster).next().is_some() && self.identity.cluster_id.is_some() {
                self.heartbeats.was_lost(now.0, lost_for(cluster, now.1));
            }
        }
        let id = status.and_then(|status| status.cluster_id.as_ref());
        let stored = self.cluster.as_ref().and_then(|old| old.status.as_ref()?.cluster_id.clone());
        if !first && stored.is_some() && id.is_some() && stored.as_ref() != id {
            // The leader let a rebuilt member take over the Cluster.
            self.identity.cluster_id = id.cloned();
        }
        if let Some(id) = id.filter(|_| self.identity.cluster_id.is_none()) {
            // While this controller followed, its agent connected to another one.
            self.identity.cluster_id = Some(id.clone());
            self.heartbeats.connected_elsewhere(now.0);
        }
        if !self.epoch.restarted {
            let epoch = session.map_or(0, |session| u64::try_from(session.epoch).unwrap_or(0));
            self.epoch.highest = self.epoch.highest.max(epoch);
        }
        self.identity.revocation =
            revocation::seen(self.identity.revocation.as_ref(), cluster, now.1);
        self.cluster = Some(cluster.clone());
        true
    }

    /// A new certificate was enrolled: its agent starts its own epochs, whatever earlier ones claimed.
    pub(crate) fn enrolled(&mut self, cluster_id: &str, certificate: Certificate) {
        self.epoch = Epoch { highest: 0, restarted: true };
        self.identity.certified(certificate);
        self.identity.enrolled_id = Some(cluster_id.to_owned());
        self.refusal = None;
    }

    /// Another Cluster in the hub has this member's kube-system uid, so it does not belong to this one.
    pub(crate) fn drop_cluster_id(&mut self, error: &ClusterIdError) {
        self.identity.cluster_id = None;
        if let Some(session) = &self.session {
            session.end(Status::failed_precondition(error.to_string()));
        }
    }

    /// Whether the Cluster in the hub has this kube-system uid.
    pub(crate) fn is_cluster_id_stored(&self, id: &str) -> bool {
        let status = self.cluster.as_ref().and_then(|cluster| cluster.status.as_ref());
        status.and_then(|status| status.cluster_id.as_deref()) == Some(id)
    }

    /// Stores the server's reply to one of our writes.
    pub(crate) fn written(&mut self, cluster: Arc<Cluster>, now: Instant) {
        self.last_write = now;
        let session = cluster.status.as_ref().and_then(|status| status.session.as_ref());
        if session.is_none_or(|session| u64::try_from(session.epoch) == Ok(self.epoch.highest)) {
            self.epoch.restarted = false;
        }
        if self
            .cluster
            .as_ref()
            .is_some_and(|old| old.metadata.uid == cluster.metadata.uid && !is_older(&cluster, old))
        {
            self.cluster = Some(cluster);
        }
    }
}

/// Whether `a` is an older version of the same object than `b`. Resource versions compare as numbers (guaranteed since
/// Kubernetes 1.35, always true for etcd's); others count as newer.
fn is_older(a: &Cluster, b: &Cluster) -> bool {
    let version =
        |cluster: &Cluster| cluster.metadata.resource_version.as_ref()?.parse::<u64>().ok();
    matches!((version(a), version(b)), (Some(a), Some(b)) if a < b)
}

/// How long a Cluster has reported its member as lost.
fn lost_for(cluster: &Cluster, now: Timestamp) -> std::time::Duration {
    let ready = cluster
        .status
        .as_ref()
        .and_then(|status| conditions::find(&status.conditions, conditions::READY))
        .filter(|ready| ready.status != "True");
    let taints = taints::managed(cluster).filter_map(|taint| taint.time_added.as_ref());
    ready
        .map(|ready| &ready.last_transition_time)
        .into_iter()
        .chain(taints)
        .map(|since| now.duration_since(since.0))
        .max()
        .and_then(|span| span.try_into().ok())
        .unwrap_or_default()
}
