//! Terminates TLS and passes connections, with the peer's identity, to the gRPC servers: one for members, one with
//! small limits for peers without a certificate.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Poller, Poll, ready};
use std::time::Duration;

use atoll_http::connections::{Connections, Limits, Place, client_of};
use atoll_http::serve::accept;
use atoll_protocol::authorities::Authorities;
use atoll_protocol::ca::{CertificateFacts, MEMBER_BACKDATE, PublicKeyHash};
use atoll_protocol::identity::{ClusterUid, SpiffeId, TrustDomain};
use atoll_protocol::tls::{self, Purpose};
use jiff::Timestamp;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::TaskTracker;
use tonic::transport::server::Connected;

use crate::member::metrics::{Metrics, RefusedLabels};

/// Limit of connections in the handshake, by address. Each costs a file descriptor, about 20 KiB, and a millisecond of
/// CPU once it sends data. One address may have half of them: thousands of members may be behind one NAT, and all
/// reconnect at once after a restart.
const HANDSHAKES: Limits = Limits { total: 4_096, each: 2_048, grace: Duration::from_secs(1) };
/// Longest handshake: two round trips, and some time for a slow machine.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit of connections without a certificate, by address: enrolling members. Each may use the server's small
/// windows.
const ANONYMOUS: Limits = Limits { total: 256, each: 64, grace: Duration::from_secs(5) };
/// Longest duration of a connection without a certificate: one enrolment, with three slow replies of the hub.
const ANONYMOUS_LIFE: Duration = Duration::from_secs(30);
/// Limit of connections per certificate's member: a session and a renewal of each of two agents, and dead ones not
/// detected yet. Each may use the windows of a session. The number of members limits the total.
const OF_A_MEMBER: Limits = Limits { total: usize::MAX, each: 8, grace: Duration::from_secs(1) };
/// Limit of connections of other controllers, by address. Each has one; their certificates are issued by the authority,
/// so this only bounds a fault.
const OF_A_CONTROLLER: Limits = Limits { total: 64, each: 16, grace: Duration::from_secs(1) };
/// Connections after the handshake that the server has not accepted yet.
pub(super) const BACKLOG: usize = 64;

/// A byte stream.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// Source of connections.
#[derive(Debug)]
pub enum Incoming {
    /// A socket.
    Tcp(TcpListener),
    /// In-process streams; the end of the channel only ends the arrivals.
    Streams(mpsc::Receiver<Arrival>),
}

/// An in-process connection.
pub struct Arrival {
    /// The byte stream.
    pub io: Box<dyn Io>,
    /// The peer's identity if it needs no proof; `None` = the stream carries TLS, which proves it.
    pub identity: Option<ClusterUid>,
}

impl std::fmt::Debug for Arrival {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arrival").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// A member as identified by its certificate.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) uid: ClusterUid,
    pub(super) trust_domain: TrustDomain,
    /// Hash of its key; `None` if no certificate was needed.
    pub(super) key: Option<PublicKeyHash>,
    /// The authority that signed its certificate; `None` if no certificate was needed.
    pub(super) authority: Option<PublicKeyHash>,
    /// When its certificate was issued.
    pub(super) issued: Timestamp,
    pub(super) not_after: Timestamp,
}

/// Facts about a call's connection.
#[derive(Debug, Clone)]
pub(super) struct Link {
    /// `None` = no certificate, or not a member's.
    pub(super) peer: Option<Arc<Peer>>,
    /// The client's address; `None` within this process.
    pub(super) address: Option<IpAddr>,
    /// Closes the connection.
    pub(super) cut: CancellationToken,
}

/// A connection's share of a limit, held while it is open.
enum ConnectionSlot {
    Nothing,
    Anonymous(Place<IpAddr>),
    Member(Place<ClusterUid>),
    Controller(Place<IpAddr>),
}

/// A connection after the handshake.
pub(super) struct Connection {
    io: Box<dyn Io>,
    link: Link,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Completes when its slot went to another connection.
    displaced: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// Time limit of the connection.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Frees its slot on drop.
    _held: ConnectionSlot,
}

impl Connection {
    fn new(io: Box<dyn Io>, link: Link, held: ConnectionSlot) -> Self {
        let displaced = match &held {
            ConnectionSlot::Nothing => None,
            ConnectionSlot::Anonymous(place) | ConnectionSlot::Controller(place) => {
                Some(place.cut())
            }
            ConnectionSlot::Member(place) => Some(place.cut()),
        };
        let displaced = displaced.map(|cut| Box::pin(cut.clone().cancelled_owned()));
        let anonymous = matches!(held, ConnectionSlot::Anonymous(_));
        let deadline = anonymous.then(|| Box::pin(tokio::time::sleep(ANONYMOUS_LIFE)));
        let cut = Box::pin(link.cut.clone().cancelled_owned());
        Self { io, link, cut, displaced, deadline, _held: held }
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    /// Fails when the connection must close. Writes check it too: a peer that does not read stops the server from
    /// reading.
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

/// Who is trusted at a handshake.
pub(super) struct Trust {
    pub(super) tls: Arc<ServerConfig>,
    pub(super) authorities: Arc<Authorities>,
}

/// Accepts connections and passes on those that complete the handshake.
pub(super) struct Listener {
    pub(super) trust: watch::Receiver<Arc<Trust>>,
    /// Those with a member's certificate.
    pub(super) members: mpsc::Sender<Connection>,
    /// Those of members for users' requests.
    pub(super) tunnels: mpsc::Sender<Connection>,
    /// Those of other controllers, for their users' requests.
    pub(super) forwards: mpsc::Sender<Connection>,
    /// Those without one.
    pub(super) anonymous: mpsc::Sender<Connection>,
    pub(super) metrics: Metrics,
    pub(super) token: CancellationToken,
}

/// A connection after its handshake.
struct Established {
    io: Box<dyn Io>,
    caller: Caller,
    purpose: Purpose,
}

/// The identity of a connection's other end.
enum Caller {
    /// It has no certificate.
    Nobody,
    Member(Peer),
    Controller,
}

/// Shared by a listener and its connections.
struct Entrance {
    listener: Listener,
    handshakes: Connections<IpAddr>,
    anonymous: Connections<IpAddr>,
    of_members: Connections<ClusterUid>,
    of_controllers: Connections<IpAddr>,
}

impl Listener {
    /// Accepts connections until cancelled.
    pub(super) async fn run(self, mut incoming: Incoming) {
        let tasks = TaskTracker::new();
        let token = self.token.clone();
        let entrance = Arc::new(Entrance {
            listener: self,
            handshakes: Connections::new(HANDSHAKES),
            anonymous: Connections::new(ANONYMOUS),
            of_members: Connections::new(OF_A_MEMBER),
            of_controllers: Connections::new(OF_A_CONTROLLER),
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
    /// Performs one connection's handshake and passes it on.
    async fn enter(&self, arrival: Arrival, address: Option<IpAddr>, place: Option<Place<IpAddr>>) {
        let cut = place.as_ref().map(|place| place.cut().clone()).unwrap_or_default();
        let Some(established) = cut.run_until_cancelled(self.establish(arrival)).await else {
            return self.refused("handshakes");
        };
        drop(place);
        let Established { io, caller, purpose } = match established {
            Ok(established) => established,
            Err(error) => return tracing::debug!(%error, ?address, "handshake failed"),
        };
        let now = Instant::now();
        let connections = match (&caller, purpose) {
            (Caller::Member(_), Purpose::Calls) => &self.listener.members,
            (Caller::Member(_), Purpose::Tunnel) => &self.listener.tunnels,
            (Caller::Nobody, Purpose::Calls) => &self.listener.anonymous,
            // It may name any user: nobody else may.
            (Caller::Controller, Purpose::Forward) => &self.listener.forwards,
            _ => return self.refused("connections"),
        };
        let held = match (&caller, address) {
            // In-process connections are not limited.
            (_, None) => Some(ConnectionSlot::Nothing),
            (Caller::Member(peer), Some(_)) => {
                self.of_members.enter(peer.uid.clone(), now).map(ConnectionSlot::Member)
            }
            (Caller::Nobody, Some(client)) => {
                self.anonymous.enter(client, now).map(ConnectionSlot::Anonymous)
            }
            (Caller::Controller, Some(client)) => {
                self.of_controllers.enter(client, now).map(ConnectionSlot::Controller)
            }
        };
        let Some(held) = held else { return self.refused("connections") };
        let peer = match caller {
            Caller::Member(peer) => Some(peer),
            Caller::Nobody | Caller::Controller => None,
        };
        let cut = self.listener.token.child_token();
        let link = Link { peer: peer.map(Arc::new), address, cut };
        // An error means that the server has ended; drop the connection.
        drop(connections.send(Connection::new(io, link, held)).await);
    }

    async fn establish(&self, arrival: Arrival) -> io::Result<Established> {
        let trust = self.listener.trust.borrow().clone();
        if let Some(uid) = arrival.identity {
            let (issued, not_after) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
            let trust_domain = trust.authorities.signing().trust_domain().clone();
            let (key, authority) = (None, None);
            let peer = Peer { uid, trust_domain, key, authority, issued, not_after };
            let caller = Caller::Member(peer);
            return Ok(Established { io: arrival.io, caller, purpose: Purpose::Calls });
        }
        let handshake = TlsAcceptor::from(trust.tls.clone()).accept(arrival.io);
        let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake)
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        let facts = tls::peer(stream.get_ref().1).map_err(io::Error::other)?;
        let authorities = trust.authorities.all().map(|authority| &**authority);
        let authority = tls::issuer(stream.get_ref().1, authorities);
        let ours = trust.authorities.signing().trust_domain();
        let caller = facts.map_or(Ok(Caller::Nobody), |facts| caller(facts, authority, ours))?;
        let purpose = tls::purpose(stream.get_ref().1);
        Ok(Established { io: Box::new(stream), caller, purpose })
    }

    fn refused(&self, reason: &'static str) {
        self.listener.metrics.refused.get_or_create(&RefusedLabels { reason }).inc();
    }
}

/// The next connection, and the client's address if it came over a network; `None` when there will be none.
async fn arrival(incoming: &mut Incoming) -> Option<(Arrival, Option<IpAddr>)> {
    match incoming {
        Incoming::Streams(streams) => Some((streams.recv().await?, None)),
        Incoming::Tcp(listener) => {
            let (stream, address) = accept(listener).await;
            let arrival = Arrival { io: Box::new(stream), identity: None };
            Some((arrival, Some(client_of(address.ip()))))
        }
    }
}

fn caller(
    facts: CertificateFacts,
    authority: Option<PublicKeyHash>,
    ours: &TrustDomain,
) -> io::Result<Caller> {
    match facts.id {
        SpiffeId::Cluster(trust_domain, uid) => {
            let issued = facts.not_before.saturating_add(MEMBER_BACKDATE);
            Ok(Caller::Member(Peer {
                uid,
                trust_domain,
                key: Some(facts.public_key),
                authority,
                issued: issued.unwrap_or(facts.not_before),
                not_after: facts.not_after,
            }))
        }
        SpiffeId::Controller(domain) if domain == *ours => Ok(Caller::Controller),
        other => Err(io::Error::other(format!("{other} may not connect"))),
    }
}
