//! The connection of a controller that does not lead to the leader, over mutual TLS.

use std::sync::Arc;
use std::time::Duration;

use atoll_api::Clock;
use atoll_protocol::ca::CertificateAuthority;
use atoll_protocol::tls::forward_config;
use atoll_protocol::tunnel::{self, FORWARD_STREAMS};
use atoll_protocol::v1::member_proxy_client::MemberProxyClient;
use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::Channel;

use super::message::ProxyError;

/// Limit of connecting to the leader. It is in the same cluster, and a client should soon hear that it has to try again.
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
        let mut state = self.state.lock().await;
        // Read while no other request connects: another controller may lead by now.
        let address = self.address.borrow().clone().ok_or(ProxyError::NotLeader)?;
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
        let io = atoll_protocol::transport::secured(tcp, tls).await.map_err(|e| chain(&e))?;
        let (near, far) = tokio::io::duplex(BUFFER);
        let closed = CancellationToken::new();
        let (ended, token) = (closed.clone(), cx.token.clone());
        let (mut now, mine) = (self.address.clone(), address.to_owned());
        cx.tasks.spawn(async move {
            tokio::select! {
                () = carry(io, far) => {}
                _ = now.wait_for(|now| now.as_ref() != Some(&mine)) => {}
                () = token.cancelled() => {}
            }
            ended.cancel();
        });
        let client = tunnel::client(near, FORWARD_STREAMS).await.map_err(|error| chain(&error))?;
        Ok(Open { address: address.to_owned(), client, closed })
    }
}

/// Moves bytes between two connections until either direction ends: the client does not come back once it has closed its
/// end, and the other end may never close its own when the network between them is gone.
async fn carry(
    one: impl AsyncRead + AsyncWrite + Unpin,
    other: impl AsyncRead + AsyncWrite + Unpin,
) {
    async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
        let mut buffer = BytesMut::with_capacity(BUFFER);
        while let Ok(1..) = from.read_buf(&mut buffer).await {
            if to.write_all(&buffer).await.is_err() || to.flush().await.is_err() {
                return;
            }
            buffer.clear();
        }
    }
    let (from_one, to_one) = tokio::io::split(one);
    let (from_other, to_other) = tokio::io::split(other);
    tokio::select! {
        () = copy(from_one, to_other) => {}
        () = copy(from_other, to_one) => {}
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_link_ends_with_its_client_although_the_leader_says_nothing() {
        let (mut leader, io) = tokio::io::duplex(64);
        let (mut client, far) = tokio::io::duplex(64);
        let carrying = tokio::spawn(carry(io, far));
        client.write_all(b"up").await.unwrap();
        leader.write_all(b"down").await.unwrap();
        let (mut up, mut down) = ([0; 2], [0; 4]);
        leader.read_exact(&mut up).await.unwrap();
        client.read_exact(&mut down).await.unwrap();
        assert_eq!((&up, &down), (b"up", b"down"));
        // HTTP/2 has given up. The leader's end stays open, and silent.
        drop(client);
        tokio::time::timeout(CONNECT, carrying).await.expect("the link ends").unwrap();
        drop(leader);
    }
}
