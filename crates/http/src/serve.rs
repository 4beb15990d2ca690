//! Accepts connections, performs TLS handshakes, and runs HTTP/1.1 and HTTP/2 on them, all within [`Settings`].

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, Version};
pub use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connections::{Connections, Limits, client_of};
use crate::tls::ALPN_HTTP2;

/// Pause after `accept` failed (out of file descriptors): it would fail again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Timeout of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Streams on one HTTP/2 connection: kubectl, an informer host or kube-apiserver opens one per watch.
const MAX_STREAMS: u32 = 1000;

/// Limits of a listener and its connections.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Open connections.
    pub connections: Limits,
    /// Timeout for the head of an HTTP/1.1 request, and for the next request on an idle connection.
    pub head: Duration,
    /// Longest lifetime of a connection; `None` for no limit.
    pub lifetime: Option<Duration>,
    /// Time for open requests to finish when the listener stops.
    pub stop: Duration,
}

/// The other end of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// Its certificate, if it presented one that the listener's TLS settings accept.
    pub certificate: Option<CertificateDer<'static>>,
}

/// The next connection. A failed accept is logged and repeated after a pause.
pub async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                // Small messages must not wait for each other; without it they are late, not lost.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "set TCP_NODELAY");
                }
                return (stream, address);
            }
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves until the token is cancelled, then waits for open requests, at most [`Settings::stop`], and closes what is
/// left. `service` is called once for each connection. With `tls` the clients choose HTTP/2 or HTTP/1.1; without it
/// there is only HTTP/1.1.
pub async fn serve<S, B>(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    settings: Settings,
    service: impl Fn(&Peer) -> S + Send + Sync + 'static,
    token: CancellationToken,
) where
    S: tower::Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send + 'static,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let open = Connections::new(settings.connections);
    let (graceful, tasks) = (GracefulShutdown::new(), TaskTracker::new());
    let stopped = CancellationToken::new();
    let server = Arc::new(Server { tls: tls.map(TlsAcceptor::from), settings, service });
    while let Some((stream, address)) = token.run_until_cancelled(accept(&listener)).await {
        let Some(place) = open.enter(client_of(address.ip()), Instant::now()) else {
            tracing::debug!(%address, "connection refused: too many are open");
            continue;
        };
        // Created before the task starts, so that the end of the listener cannot miss it.
        let watcher = graceful.watcher();
        let (server, token, stopped) = (server.clone(), token.clone(), stopped.clone());
        tasks.spawn(async move {
            let connection = server.connect(stream, address, watcher, &token);
            let kept = place.cut().run_until_cancelled(connection);
            match stopped.run_until_cancelled(kept).await {
                Some(Some(Ok(()))) | None => {}
                Some(Some(Err(error))) => tracing::debug!(%address, %error, "connection failed"),
                Some(None) => tracing::debug!(%address, "connection closed for a newer one"),
            }
        });
    }
    drop(listener);
    tasks.close();
    if tokio::time::timeout(settings.stop, graceful.shutdown()).await.is_err() {
        tracing::warn!("closing connections with open requests");
    }
    stopped.cancel();
    tasks.wait().await;
}

type BoxError = Box<dyn Error + Send + Sync>;

/// What all connections of a listener share.
struct Server<M> {
    tls: Option<TlsAcceptor>,
    settings: Settings,
    service: M,
}

impl<M> Server<M> {
    /// Runs one connection until either end closes it.
    async fn connect<S, B>(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        watcher: Watcher,
        token: &CancellationToken,
    ) -> Result<(), BoxError>
    where
        M: Fn(&Peer) -> S,
        S: tower::Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
        S: Clone + Send + 'static,
        S::Future: Send + 'static,
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        let Some(acceptor) = &self.tls else {
            let service = (self.service)(&Peer { address, certificate: None });
            return self.run(stream, Version::HTTP_11, service, watcher).await;
        };
        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream));
        // The listener's end does not wait for handshakes.
        let Some(done) = token.run_until_cancelled(handshake).await else { return Ok(()) };
        let stream = done.map_err(|_| "the TLS handshake takes too long")??;
        let (_, session) = stream.get_ref();
        let http2 = session.alpn_protocol() == Some(ALPN_HTTP2);
        let version = if http2 { Version::HTTP_2 } else { Version::HTTP_11 };
        let certificate = session.peer_certificates().and_then(<[_]>::first).cloned();
        let service = (self.service)(&Peer { address, certificate });
        self.run(stream, version, service, watcher).await
    }

    async fn run<I, S, B>(
        &self,
        io: I,
        version: Version,
        service: S,
        watcher: Watcher,
    ) -> Result<(), BoxError>
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        S: tower::Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
        S: Clone + Send + 'static,
        S::Future: Send + 'static,
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        let (io, service) = (TokioIo::new(io), TowerToHyperService::new(service));
        let end = async {
            match self.settings.lifetime {
                Some(lifetime) => tokio::time::sleep(lifetime).await,
                None => std::future::pending().await,
            }
        };
        let served = async {
            if version == Version::HTTP_2 {
                let mut http = http2::Builder::new(TokioExecutor::new());
                http.timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS);
                let served = watcher.watch(http.serve_connection(io, service)).await;
                served.map_err(BoxError::from)
            } else {
                let mut http = auto::Builder::new(TokioExecutor::new()).http1_only();
                http.http1().timer(TokioTimer::new()).header_read_timeout(self.settings.head);
                // An upgraded connection leaves the server: the service that upgraded it owns it.
                watcher.watch(http.serve_connection_with_upgrades(io, service)).await
            }
        };
        tokio::select! {
            served = served => served,
            () = end => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::Full;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Notify;
    use tokio::task::JoinHandle;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);
    const SETTINGS: Settings = Settings {
        connections: Limits { total: 4, each: 2, grace: Duration::ZERO },
        head: LIMIT,
        lifetime: None,
        stop: Duration::from_millis(50),
    };

    struct Serving {
        address: SocketAddr,
        /// Lets one request to `/slow` finish.
        release: Arc<Notify>,
        /// Signals that a request to `/slow` has begun.
        begun: Arc<Notify>,
        token: CancellationToken,
        task: JoinHandle<()>,
    }

    async fn start(settings: Settings) -> Serving {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (release, begun) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (released, begins) = (release.clone(), begun.clone());
        let service = move |_: &Peer| {
            let (released, begins) = (released.clone(), begins.clone());
            tower::service_fn(move |request: Request<Incoming>| {
                let (released, begins) = (released.clone(), begins.clone());
                async move {
                    if request.uri().path() == "/slow" {
                        begins.notify_one();
                        released.notified().await;
                    }
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"answer"))))
                }
            })
        };
        let token = CancellationToken::new();
        let task = tokio::spawn(serve(listener, None, settings, service, token.clone()));
        Serving { address, release, begun, token, task }
    }

    /// Sends a request and keeps the connection.
    async fn ask(address: SocketAddr, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// What the server sends until it closes the connection.
    async fn rest(mut stream: TcpStream) -> String {
        let mut text = String::new();
        tokio::time::timeout(LIMIT, stream.read_to_string(&mut text)).await.unwrap().unwrap();
        text
    }

    #[tokio::test]
    async fn a_client_at_its_limit_loses_its_oldest_connection() {
        let serving = start(SETTINGS).await;
        let mut kept = Vec::new();
        for _ in 0..3 {
            let mut stream = ask(serving.address, "/").await;
            let mut first = [0; 4];
            stream.read_exact(&mut first).await.unwrap();
            kept.push(stream);
        }
        let oldest = kept.remove(0);
        assert!(rest(oldest).await.ends_with("answer"), "it got its answer before it was closed");
        serving.token.cancel();
        tokio::time::timeout(LIMIT, serving.task).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn the_end_of_the_listener_lets_open_requests_finish() {
        let serving = start(Settings { stop: LIMIT, ..SETTINGS }).await;
        let mut idle = ask(serving.address, "/").await;
        let mut first = [0; 4];
        idle.read_exact(&mut first).await.unwrap();
        let slow = ask(serving.address, "/slow").await;
        serving.begun.notified().await;
        serving.token.cancel();
        assert!(rest(idle).await.ends_with("answer"), "an idle connection ends at once");
        serving.release.notify_one();
        assert!(rest(slow).await.ends_with("answer"));
        tokio::time::timeout(LIMIT, serving.task).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_request_that_does_not_finish_is_closed_after_the_stop_timeout() {
        let serving = start(SETTINGS).await;
        let slow = ask(serving.address, "/slow").await;
        serving.begun.notified().await;
        serving.token.cancel();
        tokio::time::timeout(LIMIT, serving.task).await.unwrap().unwrap();
        assert_eq!(rest(slow).await, "");
    }

    #[tokio::test]
    async fn a_connection_without_a_request_is_closed_after_the_head_timeout() {
        let serving = start(Settings { head: Duration::from_millis(50), ..SETTINGS }).await;
        let mut silent = TcpStream::connect(serving.address).await.unwrap();
        silent.write_all(b"GET / HT").await.unwrap();
        assert!(!rest(silent).await.contains("200"));
    }
}
