//! Ends TLS and hands connections, with who is on the other end, to the gRPC server.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Poller, Poll, ready};
use std::time::Duration;

use atoll_protocol::ca::CertificateFacts;
use atoll_protocol::identity::{ClusterUid, SpiffeId, TrustDomain};
use atoll_protocol::tls;
use atoll_protocol::transport::CONNECT_TIMEOUT;
use jiff::Timestamp;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::TaskTracker;
use tonic::transport::server::Connected;

/// Handshakes under way at once. Each costs about a millisecond of CPU; more would only make all of them late.
const HANDSHAKES: usize = 256;
/// Pause after `accept` failed (out of file descriptors): it would fail again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections that are through the handshake and not taken by the server yet.
pub(super) const BACKLOG: usize = 64;

/// A stream of bytes.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// Where connections come from.
#[derive(Debug)]
pub enum Incoming {
    /// A socket.
    Tcp(TcpListener),
    /// Somewhere else in this process; the end of the channel ends nothing but the arrivals.
    Streams(mpsc::Receiver<Arrival>),
}

/// A connection from somewhere in this process.
pub struct Arrival {
    /// The bytes.
    pub io: Box<dyn Io>,
    /// Who is at the other end, where that needs no proof; `None` = TLS is spoken over the stream and proves it.
    pub identity: Option<ClusterUid>,
}

impl std::fmt::Debug for Arrival {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arrival").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// A member, as its certificate says.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) uid: ClusterUid,
    pub(super) trust_domain: TrustDomain,
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
}

/// What a call knows of its connection.
#[derive(Debug, Clone)]
pub(super) struct Link {
    /// `None` = no certificate, or not a member's.
    pub(super) peer: Option<Arc<Peer>>,
    /// Cuts the connection.
    pub(super) cut: CancellationToken,
}

/// A connection that is through the handshake.
pub(super) struct Connection {
    io: Box<dyn Io>,
    link: Link,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Connection {
    fn new(io: Box<dyn Io>, peer: Option<Peer>, parent: &CancellationToken) -> Self {
        let cut = parent.child_token();
        Self {
            io,
            cut: Box::pin(cut.clone().cancelled_owned()),
            link: Link { peer: peer.map(Arc::new), cut },
        }
    }

    fn poll_cut(&mut self, cx: &mut Poller<'_>) -> io::Result<()> {
        match self.cut.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = Link;

    fn connect_info(&self) -> Link {
        self.link.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Poller<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_cut(cx)?;
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Poller<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Poller<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Poller<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
        Poll::Ready(Ok(()))
    }
}

/// Takes connections until `token` ends it and hands on those that are through the handshake.
pub(super) async fn accept(
    incoming: Incoming,
    tls: Arc<ServerConfig>,
    trust_domain: TrustDomain,
    connections: mpsc::Sender<Connection>,
    token: CancellationToken,
) {
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
    let tasks = TaskTracker::new();
    let mut incoming = incoming;
    loop {
        // Who does not get a permit waits in the socket's own queue.
        let next = async {
            let permit = handshakes.clone().acquire_owned().await.ok()?;
            Some((arrival(&mut incoming).await?, permit))
        };
        let next = tokio::select! {
            biased;
            () = token.cancelled() => None,
            next = next => next,
        };
        let Some((arrival, permit)) = next else { break };
        let (tls, connections, parent) = (tls.clone(), connections.clone(), token.clone());
        let trust_domain = trust_domain.clone();
        tasks.spawn(async move {
            let connection = tokio::select! {
                biased;
                () = parent.cancelled() => return,
                connection = establish(arrival, tls, trust_domain, &parent) => connection,
            };
            drop(permit);
            match connection {
                // An error means that the server has ended, and so does the connection.
                Ok(connection) => drop(connections.send(connection).await),
                Err(error) => tracing::debug!(%error, "handshake failed"),
            }
        });
    }
    tasks.close();
    tasks.wait().await;
}

/// The next connection; `None` when there will be none.
async fn arrival(incoming: &mut Incoming) -> Option<Arrival> {
    match incoming {
        Incoming::Streams(streams) => streams.recv().await,
        Incoming::Tcp(listener) => loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    // Small messages must not wait for one another; without it they are late, not lost.
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%error, "TCP_NODELAY");
                    }
                    return Some(Arrival { io: Box::new(stream), identity: None });
                }
                Err(error) => {
                    tracing::warn!(%error, "accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        },
    }
}

async fn establish(
    arrival: Arrival,
    tls: Arc<ServerConfig>,
    trust_domain: TrustDomain,
    parent: &CancellationToken,
) -> io::Result<Connection> {
    if let Some(uid) = arrival.identity {
        let (not_before, not_after) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
        let peer = Peer { uid, trust_domain, not_before, not_after };
        return Ok(Connection::new(arrival.io, Some(peer), parent));
    }
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, TlsAcceptor::from(tls).accept(arrival.io))
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let facts = tls::peer(stream.get_ref().1).map_err(io::Error::other)?;
    let peer = facts.map(member).transpose()?;
    Ok(Connection::new(Box::new(stream), peer, parent))
}

fn member(facts: CertificateFacts) -> io::Result<Peer> {
    match facts.id {
        SpiffeId::Cluster(trust_domain, uid) => {
            Ok(Peer { uid, trust_domain, not_before: facts.not_before, not_after: facts.not_after })
        }
        other => Err(io::Error::other(format!("{other} is no member"))),
    }
}
