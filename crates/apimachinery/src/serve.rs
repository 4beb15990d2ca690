//! Serves an API over HTTPS: identifies clients by their certificates and ends watches when the listener stops.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use atoll_http::serve::{Incoming, Peer, Settings};
use http::{Request, Response};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::identity::{self, Identity};
use crate::request::Closing;
use crate::response::Body;

/// Serves until the token is cancelled. Requests have the client's [`Identity`] and a [`Closing`] in their extensions.
///
/// # Errors
/// When the listener's address cannot be read. Errors of connections are logged.
pub async fn serve<S>(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    settings: Settings,
    service: S,
    token: CancellationToken,
) -> io::Result<()>
where
    S: tower::Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
{
    let address = listener.local_addr()?;
    tracing::info!(%address, "API server listens");
    let closing = Closing(token.clone());
    let service = move |peer: &Peer| {
        let (identity, closing) = (identify(peer), closing.clone());
        service.clone().map_request(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(identity.clone());
            request.extensions_mut().insert(closing.clone());
            request
        })
    };
    atoll_http::serve::serve(listener, Some(tls), settings, service, token).await;
    Ok(())
}

/// The subject of the verified client certificate.
fn identify(peer: &Peer) -> Identity {
    let Some(certificate) = &peer.certificate else { return Identity::anonymous() };
    match identity::subject(certificate) {
        Ok((user, groups)) if !user.is_empty() => Identity::user(user, groups),
        Ok(_) => Identity::anonymous(),
        Err(error) => {
            tracing::warn!(error, "a client certificate cannot be read");
            Identity::anonymous()
        }
    }
}
