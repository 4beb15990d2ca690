//! Serves HTTPS and identifies clients by their certificates.

use std::{io, sync::Arc, time::Duration};

use atoll_http::{
    connections::Limits,
    serve::{Incoming, Peer, Settings},
};
use http::Request;
use rustls_pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::{
    core::Core,
    http::{Closing, Service, auth::Identity},
    pki,
};

/// Limits of the listener.
const SETTINGS: Settings = Settings {
    // Every watch of a client without HTTP/2 is a connection. On loopback all clients have one address.
    connections: Limits { total: 4096, each: 4096, grace: Duration::from_secs(10) },
    head: Duration::from_secs(30),
    lifetime: None,
    // Watches end at once and other requests take milliseconds; the rest are clients that do not read.
    stop: Duration::from_secs(2),
};

pub(crate) async fn serve(
    core: Arc<Core>,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    token: CancellationToken,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    tracing::info!(%address, "API server listens");
    let (service, closing) = (Service::new(core), Closing(token.clone()));
    let service = move |peer: &Peer| {
        let (identity, closing) = (identify(peer.certificate.as_ref()), closing.clone());
        service.clone().map_request(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(identity.clone());
            request.extensions_mut().insert(closing.clone());
            request
        })
    };
    atoll_http::serve::serve(listener, Some(tls), SETTINGS, service, token).await;
    Ok(())
}

/// The subject of the verified client certificate.
fn identify(certificate: Option<&CertificateDer<'_>>) -> Identity {
    let Some(certificate) = certificate else { return Identity::anonymous() };
    match pki::subject(certificate) {
        Ok((user, groups)) if !user.is_empty() => Identity::user(user, groups),
        Ok(_) => Identity::anonymous(),
        Err(error) => {
            tracing::warn!(%error, "a client certificate cannot be read");
            Identity::anonymous()
        }
    }
}
