//! HTTPS: accepts connections, authenticates clients, passes requests to the service.

use std::{io, sync::Arc, time::Duration};

use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use rustls_pki_types::CertificateDer;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

use crate::{
    core::Core,
    http::{Closing, Service, auth::Identity},
    pki,
};

/// Timeout of a client's TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for open requests to finish when the server stops. Watches end at once and other requests take milliseconds, so
/// the rest are clients that do not read.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after a failed accept (out of file descriptors), to avoid a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Maximum open connections. Every watch of a client without HTTP/2 is one, so there are many.
const MAX_CONNECTIONS: usize = 4096;
/// Streams on one HTTP/2 connection: a kubectl or informer host opens one per watch.
const MAX_STREAMS: u32 = 1000;

pub(crate) async fn serve(
    core: Arc<Core>,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    token: CancellationToken,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    tracing::info!(%address, "API server listens");
    let acceptor = TlsAcceptor::from(tls);
    let service = Service::new(core.clone());
    let graceful = GracefulShutdown::new();
    let connections = TaskTracker::new();
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let next = async {
            // Beyond the limit, connections wait in the listener's backlog.
            let place = places.clone().acquire_owned().await;
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            biased;
            () = token.cancelled() => break,
            next = next => next,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let connection = connect(stream, acceptor.clone(), service.clone(), graceful.watcher());
        let token = token.clone();
        connections.spawn(async move {
            let _place = place;
            // Shutdown does not wait for handshakes in progress; `graceful` waits for requests.
            if let Err(error) = connection(token).await {
                tracing::debug!(%error, "connection ended");
            }
        });
    }
    drop(listener);
    connections.close();
    let end = tokio::time::timeout(STOP_TIMEOUT, graceful.shutdown()).await;
    if end.is_err() {
        tracing::warn!("stopped with requests still open");
    }
    Ok(())
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The task of one connection, as a closure, so that the watcher of graceful shutdown is taken before the task starts.
fn connect(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    service: Service,
    watcher: hyper_util::server::graceful::Watcher,
) -> impl FnOnce(CancellationToken) -> futures::future::BoxFuture<'static, Result<(), BoxError>> {
    move |token| {
        Box::pin(async move {
            // Watch frames are small and must not wait for more.
            stream.set_nodelay(true)?;
            let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream));
            let stream = tokio::select! {
                biased;
                () = token.cancelled() => return Ok(()),
                done = handshake => done??,
            };
            let closing = Closing(token);
            let identity = identify(stream.get_ref().1.peer_certificates());
            let service =
                service.map_request(move |mut request: http::Request<hyper::body::Incoming>| {
                    request.extensions_mut().insert(identity.clone());
                    request.extensions_mut().insert(closing.clone());
                    request
                });
            let mut builder = auto::Builder::new(TokioExecutor::new());
            builder.http1().timer(TokioTimer::new());
            builder.http2().timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS);
            let connection = builder
                .serve_connection_with_upgrades(
                    TokioIo::new(stream),
                    TowerToHyperService::new(service),
                )
                .into_owned();
            watcher.watch(connection).await
        })
    }
}

/// The subject of the verified client certificate.
fn identify(certificates: Option<&[CertificateDer<'static>]>) -> Identity {
    let Some(certificate) = certificates.and_then(<[_]>::first) else {
        return Identity::anonymous();
    };
    match pki::subject(certificate) {
        Ok((user, groups)) if !user.is_empty() => Identity::user(user, groups),
        Ok(_) => Identity::anonymous(),
        Err(error) => {
            tracing::warn!(%error, "client certificate cannot be read");
            Identity::anonymous()
        }
    }
}
