//! What an agent is started with.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use atoll_api::{Clock, ReservedNamespaces};
use atoll_protocol::ca::PublicKeyHash;
use atoll_protocol::identity::ClusterUid;
use atoll_protocol::token::BootstrapToken;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::backoff::Backoff;
use crate::lease::LeaseTimes;

/// Limit of a TCP connect, so that one dead address of several does not hold the others up.
const TCP_LIMIT: Duration = Duration::from_secs(5);

/// What [`crate::run`] needs.
#[derive(Clone)]
pub struct AgentOptions {
    /// The member, best made with [`crate::member_client`]: kube's own retries must be off.
    pub client: kube::Client,
    /// Where the controller may be, `host:port`, tried in turn.
    pub addresses: Vec<String>,
    /// How to get there.
    pub connector: Connector,
    /// Where key and certificate are kept.
    pub identity: IdentityStore,
    /// How to get an identity. A token that the kept identity did not come from is used although there is an identity:
    /// that is how `atoll rejoin` works. `None`: there is an identity already.
    pub join: Option<Join>,
    /// Namespace on the member for the agent's own objects (Lease, inventory index, identity).
    pub namespace: String,
    /// Namespaces into which nothing is applied, whatever the controller says. The agent's own is always among them.
    pub reserved: ReservedNamespaces,
    /// Name of this agent, for example the Pod's. No two run under one name at a time: an agent takes the Lease of its
    /// own name at once, and waits for another's to expire.
    pub instance: String,
    /// Wall clock.
    pub clock: Clock,
    /// Seed of all jitter. Agents that lose one controller together need different ones.
    pub seed: u64,
    /// Times.
    pub timings: Timings,
}

/// A bootstrap token and what to expect of the controller before it is shown.
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
    /// A folder of this machine; it is made where it does not exist.
    Folder(PathBuf),
    /// Nowhere: controller and agent are in one process, the connector's streams lead to this Cluster's place in it, and no
    /// TLS is spoken over them. For simulated worlds.
    InProcess(ClusterUid),
}

/// Times that a fast or a simulated federation sets otherwise.
#[derive(Debug, Clone, Copy)]
pub struct Timings {
    /// Of the Lease.
    pub lease: LeaseTimes,
    /// Waits between tries to get a session, with full jitter: 0.5 s to 8 s.
    pub reconnect: Backoff,
    /// Age at which a certificate is renewed: a day.
    pub renew_after: Duration,
    /// Time between two looks at the member API's health: 5 s.
    pub health: Duration,
    /// How long the first inventory waits for kinds that cannot be listed: 10 s. What is missing then is sent later.
    pub inventory_wait: Duration,
    /// How long statuses of one object are gathered before the newest is sent: 100 ms.
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

/// How a stream of bytes to an address comes about.
#[derive(Clone)]
pub struct Connector(Arc<Dial>);

impl Connector {
    /// TCP without delay.
    #[must_use]
    pub fn tcp() -> Self {
        Self::from_fn(|address| async move {
            let connect = tokio::net::TcpStream::connect(address);
            let stream = tokio::time::timeout(TCP_LIMIT, connect).await??;
            stream.set_nodelay(true)?;
            Ok(stream)
        })
    }

    /// Whatever the function makes, for example one end of a duplex in memory.
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
