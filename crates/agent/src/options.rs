//! Start options of an agent.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use atoll_access::identity::Passed;
use atoll_api::{Clock, ReservedNamespaces, RunsOn};
use atoll_protocol::ca::PublicKeyHash;
use atoll_protocol::identity::ClusterUid;
use atoll_protocol::token::BootstrapToken;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::lease::LeaseTimes;
use atoll_api::Backoff;

/// Limit of a TCP connect, so that one dead address does not delay the others.
const TCP_LIMIT: Duration = Duration::from_secs(5);

/// Input of [`crate::run`].
#[derive(Clone)]
pub struct AgentOptions {
    /// Client of the member, best made with [`crate::member_client`]: kube's own retries must be off.
    pub client: kube::Client,
    /// Controller addresses, `host:port`, tried in turn.
    pub addresses: Vec<String>,
    /// How to connect to them.
    pub connector: Connector,
    /// Where key and certificate are stored.
    pub identity: IdentityStore,
    /// How to get an identity. A token other than the one that the stored identity came from replaces that identity:
    /// this is how `atoll rejoin` works. `None`: use the stored identity.
    pub join: Option<Join>,
    /// Namespace on the member for the agent's own objects (Lease, inventory index, identity).
    pub namespace: String,
    /// Namespaces to which the agent applies nothing, whatever the controller orders. They always include the agent's
    /// own.
    pub reserved: ReservedNamespaces,
    /// Name of this agent, for example the Pod's. Two running agents must not share a name: an agent takes over a Lease
    /// held under its own name at once, and waits for another's to expire.
    pub instance: String,
    /// Whether users of the hub reach the member's API server through the agent, and which of their groups and other
    /// identities cross. `None`: not at all. The agent's user needs the right to impersonate.
    pub proxy: Option<Passed>,
    /// Where users' rules run.
    pub runs_on: RunsOn,
    /// Wall clock.
    pub clock: Clock,
    /// Seed of all jitter. Agents that lose the same controller need different seeds.
    pub seed: u64,
    /// Intervals and time limits.
    pub timings: Timings,
}

/// A bootstrap token and how to verify the controller before sending it.
#[derive(Debug, Clone)]
pub struct Join {
    /// `id.secret`.
    pub token: BootstrapToken,
    /// Hash of the hub CA's public key.
    pub ca_hash: PublicKeyHash,
}

/// Where the agent's key and certificate are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityStore {
    /// A Secret of this name in the agent's namespace on the member.
    Secret(String),
    /// A local folder; created if missing.
    Folder(PathBuf),
    /// Not stored: controller and agent run in one process, the connector's streams lead to this Cluster's session in
    /// it, and they carry no TLS. For simulated worlds.
    InProcess(ClusterUid),
}

/// Intervals that a fast or simulated federation overrides.
#[derive(Debug, Clone, Copy)]
pub struct Timings {
    /// Times of the Lease.
    pub lease: LeaseTimes,
    /// Waits between attempts to open a session, with full jitter: 0.5 s to 8 s.
    pub reconnect: Backoff,
    /// Age at which a certificate is renewed: a day.
    pub renew_after: Duration,
    /// Interval of the member API's health check: 5 s.
    pub health: Duration,
    /// How long the first inventory waits for kinds that cannot be listed: 10 s. Objects found later are sent later.
    pub inventory_wait: Duration,
    /// How long statuses of one object are collected before the newest is sent: 100 ms.
    pub status_window: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            lease: LeaseTimes::default(),
            reconnect: Backoff { first: Duration::from_millis(500), most: Duration::from_secs(8) },
            renew_after: Duration::from_secs(24 * 60 * 60),
            health: Duration::from_secs(5),
            inventory_wait: Duration::from_secs(10),
            status_window: Duration::from_millis(100),
        }
    }
}

/// A stream of bytes to the controller.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

type Dial = dyn Fn(String) -> BoxFuture<'static, std::io::Result<Box<dyn Stream>>> + Send + Sync;

/// Opens byte streams to an address.
#[derive(Clone)]
pub struct Connector(Arc<Dial>);

impl Connector {
    /// TCP with Nagle's algorithm off.
    #[must_use]
    pub fn tcp() -> Self {
        Self::from_fn(|address| async move {
            let connect = tokio::net::TcpStream::connect(address);
            let stream = tokio::time::timeout(TCP_LIMIT, connect).await??;
            stream.set_nodelay(true)?;
            Ok(stream)
        })
    }

    /// Streams from the given function, for example one end of an in-memory duplex.
    pub fn from_fn<F, S>(dial: impl Fn(String) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = std::io::Result<S>> + Send + 'static,
        S: Stream + 'static,
    {
        Self(Arc::new(move |address| {
            let dialled = dial(address);
            Box::pin(async move { Ok(Box::new(dialled.await?) as Box<dyn Stream>) })
        }))
    }

    pub(crate) async fn connect(&self, address: &str) -> std::io::Result<Box<dyn Stream>> {
        (self.0)(address.to_owned()).await
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}
