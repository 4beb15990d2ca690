//! Ends TLS and hands connections, with who is on the other end, to the gRPC servers: one for members, one with small
//! limits for those without a certificate.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Poller, Poll, ready};
use std::time::Duration;

use atoll_protocol::ca::{CertificateFacts, MEMBER_BACKDATE, PublicKeyHash};
use atoll_protocol::identity::{ClusterUid, SpiffeId, TrustDomain};
use atoll_protocol::tls;
use jiff::Timestamp;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::TaskTracker;
use tonic::transport::server::Connected;

use super::metrics::{Metrics, Refused};
use crate::connections::{Connections, Limits, Place, client_of};

/// Connections that have not finished the handshake, by address. Each costs a file descriptor, about 20 KiB, and a
/// millisecond of CPU once it says something. An address may have half of them: thousands of members may be behind one NAT,
/// and all come back at once after a restart.
const HANDSHAKES: Limits = Limits { total: 4_096, each: 2_048, grace: Duration::from_secs(1) };
/// Longest handshake: two round trips, and some time for a slow machine.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections without a certificate, by address: members that enrol. Each may hold [`super::server`]'s small windows.
const STRANGERS: Limits = Limits { total: 256, each: 64, grace: Duration::from_secs(5) };
/// Longest life of a connection without a certificate: one enrolment, with a hub that answers slowly three times.
const STRANGER_LIFE: Duration = Duration::from_secs(30);
/// Connections of one certificate's member: a session and a renewal of each of two agents, and those that are dead and
/// not noticed yet. Each may hold the windows of a session. The number of members limits them in all.
const OF_A_MEMBER: Limits = Limits { total: usize::MAX, each: 8, grace: Duration::from_secs(1) };
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
    /// Of its key; `None` where no certificate was needed.
    pub(super) key: Option<PublicKeyHash>,
    /// When its certificate was issued.
    pub(super) issued: Timestamp,
    pub(super) not_after: Timestamp,
}

/// What a call knows of its connection.
#[derive(Debug, Clone)]
pub(super) struct Link {
    /// `None` = no certificate, or not a member's.
    pub(super) peer: Option<Arc<Peer>>,
    /// The client behind the other end's address; `None` within this process.
    pub(super) address: Option<IpAddr>,
    /// Cuts the connection.
    pub(super) cut: CancellationToken,
}

/// What a connection takes of a limit, for as long as it is open.
enum Held {
    Nothing,
    Stranger(Place<IpAddr>),
    Member(Place<ClusterUid>),
}

/// A connection that is through the handshake.
pub(super) struct Connection {
    io: Box<dyn Io>,
    link: Link,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Cut when its place went to another connection.
    displaced: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// When it ends at the latest.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Frees its place.
    _held: Held,
}

impl Connection {
    fn new(io: Box<dyn Io>, link: Link, held: Held) -> Self {
        let displaced = match &held {
            Held::Nothing => None,
            Held::Stranger(place) => Some(place.cut()),
            Held::Member(place) => Some(place.cut()),
        };
        let displaced = displaced.map(|cut| Box::pin(cut.clone().cancelled_owned()));
        let stranger = matches!(held, Held::Stranger(_));
        let deadline = stranger.then(|| Box::pin(tokio::time::sleep(STRANGER_LIFE)));
        let cut = Box::pin(link.cut.clone().cancelled_owned());
        Self { io, link, cut, displaced, deadline, _held: held }
    }

    /// Whether it goes on. Also asked by writes: an end that reads nothing keeps the server from reading.
    fn poll_cut(&mut self, cx: &mut Poller<'_>) -> io::Result<()> {
        let ended = self.cut.as_mut().poll(cx).is_ready()
            || self.displaced.as_mut().is_some_and(|cut| cut.as_mut().poll(cx).is_ready())
            || self.deadline.as_mut().is_some_and(|end| end.as_mut().poll(cx).is_ready());
        if ended { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
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
        self.poll_cut(cx)?;
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Poller<'_>) -> Poll<io::Result<()>> {
        self.poll_cut(cx)?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Poller<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
        Poll::Ready(Ok(()))
    }
}

/// Takes connections and hands on those that are through the handshake.
pub(super) struct Listener {
    pub(super) tls: Arc<ServerConfig>,
    pub(super) trust_domain: TrustDomain,
    /// Those with a member's certificate.
    pub(super) members: mpsc::Sender<Connection>,
    /// Those without one.
    pub(super) strangers: mpsc::Sender<Connection>,
    pub(super) metrics: Metrics,
    pub(super) token: CancellationToken,
}

/// What a listener and its connections share.
struct Entrance {
    listener: Listener,
    handshakes: Connections<IpAddr>,
    strangers: Connections<IpAddr>,
    of_members: Connections<ClusterUid>,
}

impl Listener {
    /// Takes connections until the token ends it.
    pub(super) async fn run(self, mut incoming: Incoming) {
        let tasks = TaskTracker::new();
        let token = self.token.clone();
        let entrance = Arc::new(Entrance {
            listener: self,
            handshakes: Connections::new(HANDSHAKES),
            strangers: Connections::new(STRANGERS),
            of_members: Connections::new(OF_A_MEMBER),
        });
        while let Some(Some((arrival, address))) =
            token.run_until_cancelled(arrival(&mut incoming)).await
        {
            let place =
                match address.map(|client| entrance.handshakes.enter(client, Instant::now())) {
                    Some(None) => {
                        entrance.refused("handshakes");
                        continue;
                    }
                    place => place.flatten(),
                };
            let (entrance, token) = (entrance.clone(), token.clone());
            tasks.spawn(async move {
                token.run_until_cancelled(entrance.enter(arrival, address, place)).await;
            });
        }
        tasks.close();
        tasks.wait().await;
    }
}

impl Entrance {
    /// Brings one connection through the handshake and hands it on.
    async fn enter(&self, arrival: Arrival, address: Option<IpAddr>, place: Option<Place<IpAddr>>) {
        let cut = place.as_ref().map(|place| place.cut().clone()).unwrap_or_default();
        let Some(established) = cut.run_until_cancelled(self.establish(arrival)).await else {
            return self.refused("handshakes");
        };
        drop(place);
        let (io, peer) = match established {
            Ok(established) => established,
            Err(error) => return tracing::debug!(%error, ?address, "handshake failed"),
        };
        let now = Instant::now();
        let held = match (&peer, address) {
            // Within this process nothing is limited.
            (_, None) => Some(Held::Nothing),
            (Some(peer), Some(_)) => self.of_members.enter(peer.uid.clone(), now).map(Held::Member),
            (None, Some(client)) => self.strangers.enter(client, now).map(Held::Stranger),
        };
        let Some(held) = held else { return self.refused("connections") };
        let connections =
            if peer.is_some() { &self.listener.members } else { &self.listener.strangers };
        let cut = self.listener.token.child_token();
        let link = Link { peer: peer.map(Arc::new), address, cut };
        // An error means that the server has ended, and so does the connection.
        drop(connections.send(Connection::new(io, link, held)).await);
    }

    async fn establish(&self, arrival: Arrival) -> io::Result<(Box<dyn Io>, Option<Peer>)> {
        let Listener { tls, trust_domain, .. } = &self.listener;
        if let Some(uid) = arrival.identity {
            let (issued, not_after) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
            let trust_domain = trust_domain.clone();
            let peer = Peer { uid, trust_domain, key: None, issued, not_after };
            return Ok((arrival.io, Some(peer)));
        }
        let handshake = TlsAcceptor::from(tls.clone()).accept(arrival.io);
        let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake)
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        let facts = tls::peer(stream.get_ref().1).map_err(io::Error::other)?;
        let peer = facts.map(member).transpose()?;
        Ok((Box::new(stream), peer))
    }

    fn refused(&self, reason: &'static str) {
        self.listener.metrics.refused.get_or_create(&Refused { reason }).inc();
    }
}

/// The next connection, and the client behind its address where it came over a network; `None` when there will be none.
async fn arrival(incoming: &mut Incoming) -> Option<(Arrival, Option<IpAddr>)> {
    match incoming {
        Incoming::Streams(streams) => Some((streams.recv().await?, None)),
        Incoming::Tcp(listener) => loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    // Small messages must not wait for one another; without it they are late, not lost.
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%error, "TCP_NODELAY");
                    }
                    let arrival = Arrival { io: Box::new(stream), identity: None };
                    return Some((arrival, Some(client_of(address.ip()))));
                }
                Err(error) => {
                    tracing::warn!(%error, "accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        },
    }
}

fn member(facts: CertificateFacts) -> io::Result<Peer> {
    match facts.id {
        SpiffeId::Cluster(trust_domain, uid) => {
            let issued = facts.not_before.saturating_add(MEMBER_BACKDATE);
            Ok(Peer {
                uid,
                trust_domain,
                key: Some(facts.public_key),
                issued: issued.unwrap_or(facts.not_before),
                not_after: facts.not_after,
            })
        }
        other => Err(io::Error::other(format!("{other} is no member"))),
    }
}
