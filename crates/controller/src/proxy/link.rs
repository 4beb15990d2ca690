//! The connection of a controller that does not lead to the leader, over mutual TLS.

use std::sync::Arc;
use std::time::Duration;

use atoll_api::Clock;
use atoll_protocol::ca::CertificateAuthority;
use atoll_protocol::tls::forward_config;
use atoll_protocol::tunnel::{self, FORWARD_STREAMS};
use atoll_protocol::v1::member_proxy_client::MemberProxyClient;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::TcpStream;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::Channel;

use super::message::ProxyError;

/// Limit of connecting to the leader. It is near: a client should hear soon that it has to try again.
const CONNECT: Duration = Duration::from_secs(3);
/// After a failed attempt, further requests fail at once for this long.
const PAUSE: Duration = Duration::from_secs(1);
/// Bytes that are copied at once in one direction.
const BUFFER: usize = 64 << 10;

/// What a connection needs of the controller.
pub(super) struct Dialer<'a> {
    /// `None` before it was read from the hub.
    pub(super) authority: Option<Arc<CertificateAuthority>>,
    pub(super) clock: &'a Clock,
    pub(super) tasks: &'a TaskTracker,
    /// Ends the connection.
    pub(super) token: &'a CancellationToken,
}

/// The connection to the controller that leads.
pub(crate) struct LeaderLink {
    /// Where it is reached.
    address: watch::Receiver<Option<String>>,
    state: Mutex<LinkState>,
}

#[derive(Default)]
struct LinkState {
    open: Option<Open>,
    /// The last attempt that failed.
    failed: Option<(String, Instant)>,
}

struct Open {
    address: String,
    client: MemberProxyClient<Channel>,
    /// Cancelled when the connection has ended.
    closed: CancellationToken,
}

impl LeaderLink {
    /// A link to the controller at this address. When the address changes, the connection and all its streams end.
    pub(crate) fn new(address: watch::Receiver<Option<String>>) -> Self {
        Self { address, state: Mutex::default() }
    }

    pub(super) async fn client(
        &self,
        cx: &Dialer<'_>,
    ) -> Result<MemberProxyClient<Channel>, ProxyError> {
        let address = self.address.borrow().clone().ok_or(ProxyError::NotLeader)?;
        let mut state = self.state.lock().await;
        let is_open = |open: &&Open| open.address == address && !open.closed.is_cancelled();
        if let Some(open) = state.open.as_ref().filter(is_open) {
            return Ok(open.client.clone());
        }
        let now = Instant::now();
        if state.failed.as_ref().is_some_and(|(at, when)| *at == address && now < *when + PAUSE) {
            return Err(ProxyError::NotLeader);
        }
        state.open = None;
        let connected = tokio::time::timeout(CONNECT, self.connect(cx, &address)).await;
        let why = match connected {
            Ok(Ok(open)) => {
                let client = open.client.clone();
                state.open = Some(open);
                return Ok(client);
            }
            Ok(Err(why)) => why,
            Err(_) => "no connection in time".to_owned(),
        };
        tracing::warn!(address, why, "the leader could not be reached for requests to members");
        state.failed = Some((address, Instant::now()));
        Err(ProxyError::NotLeader)
    }

    async fn connect(&self, cx: &Dialer<'_>, address: &str) -> Result<Open, String> {
        let authority = cx.authority.as_ref().ok_or("there is no authority yet")?;
        let tls = forward_config(authority, cx.clock.clone()).map_err(|error| chain(&error))?;
        let tcp = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        tcp.set_nodelay(true).map_err(|error| error.to_string())?;
        let mut io = atoll_protocol::transport::secured(tcp, tls).await.map_err(|e| chain(&e))?;
        let (near, mut far) = tokio::io::duplex(BUFFER);
        let closed = CancellationToken::new();
        let (ended, token) = (closed.clone(), cx.token.clone());
        let (mut now, mine) = (self.address.clone(), address.to_owned());
        cx.tasks.spawn(async move {
            tokio::select! {
                _ = copy_bidirectional_with_sizes(&mut io, &mut far, BUFFER, BUFFER) => {}
                _ = now.wait_for(|now| now.as_ref() != Some(&mine)) => {}
                () = token.cancelled() => {}
            }
            ended.cancel();
        });
        let client = tunnel::client(near, FORWARD_STREAMS).await.map_err(|error| chain(&error))?;
        Ok(Open { address: address.to_owned(), client, closed })
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
