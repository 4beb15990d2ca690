//! Runs the gRPC server: waits for the authority, terminates TLS, serves, and renews its own certificate.

use std::sync::Arc;
use std::time::Duration;

use atoll_protocol::ca::{CONTROLLER_LIFE, CaError, CertificateAuthority};
use atoll_protocol::identity::TrustDomain;
use atoll_protocol::tls::{self, ServerCertificate, TlsError};
use atoll_protocol::transport;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;

use super::forwarded;
use super::gate::Gate;
use super::listener::{BACKLOG, Connection, Incoming, Listener};
use super::service::Service;
use super::tunnel;
use crate::enrolment::authority;
use crate::member::context::Context;

/// The controller's own certificate is replaced after half of its lifetime.
const RENEW_AFTER: Duration = Duration::from_secs((CONTROLLER_LIFE.as_secs() / 2).unsigned_abs());

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
enum ServerError {
    #[error("the controller's certificate could not be created")]
    Certificate(#[from] CaError),
    #[error("TLS could not be set up")]
    Tls(#[from] TlsError),
}

/// Serves until the context's token is cancelled.
pub(crate) async fn run(cx: Arc<Context>, incoming: Incoming, trust_domain: TrustDomain) {
    let authority = tokio::select! {
        biased;
        () = cx.token.cancelled() => return,
        authority = authority::obtain(&cx, &trust_domain) => authority,
    };
    if *authority.trust_domain() != trust_domain {
        tracing::warn!(
            stored = %authority.trust_domain(), requested = %trust_domain,
            "the stored certificate authority's trust domain stays in force"
        );
    }
    if let Err(error) = serve(&cx, incoming, authority).await {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "the server for agents could not be started"
        );
    }
}

async fn serve(
    cx: &Arc<Context>,
    incoming: Incoming,
    authority: Arc<CertificateAuthority>,
) -> Result<(), ServerError> {
    let (issued, key) = authority.issue_controller(cx.clock.now())?;
    let certificate = ServerCertificate::new(issued.chain, key)?;
    let config =
        tls::server_config(authority.certificate(), certificate.clone(), cx.clock.clone())?;
    let (members, of_members) = mpsc::channel(BACKLOG);
    let (anonymous, of_anonymous) = mpsc::channel(BACKLOG);
    let (tunnels, of_tunnels) = mpsc::channel(BACKLOG);
    let (forwards, of_controllers) = mpsc::channel(BACKLOG);
    let listener = Listener {
        tls: config,
        trust_domain: authority.trust_domain().clone(),
        members,
        anonymous,
        tunnels,
        forwards,
        metrics: cx.metrics.clone(),
        token: cx.token.clone(),
    };
    cx.tasks.spawn(listener.run(incoming));
    cx.tasks.spawn(renew(cx.clone(), authority, certificate));
    let service = Arc::new(Service::new(cx.clone()));
    cx.tasks.spawn(tunnel::run(cx.clone(), service.clone(), of_tunnels));
    cx.tasks.spawn(forwarded::run(cx.clone(), of_controllers));
    let gate = Gate::new(service);
    tokio::join!(
        answer(cx, transport::server(), gate.clone(), of_members),
        answer(cx, transport::enrolment_server(), gate, of_anonymous),
    );
    Ok(())
}

/// Serves calls on these connections until the context's token is cancelled.
async fn answer(
    cx: &Context,
    mut server: Server,
    gate: Gate,
    connections: mpsc::Receiver<Connection>,
) {
    let connections = ReceiverStream::new(connections).map(Ok::<_, std::io::Error>);
    let ends = cx.token.clone().cancelled_owned();
    let served = server.add_service(gate).serve_with_incoming_shutdown(connections, ends).await;
    if let Err(error) = served {
        tracing::error!(error = &error as &dyn std::error::Error, "the gRPC server failed");
    }
}

/// Renews the controller's certificate. Open connections keep the one from their handshake.
async fn renew(
    cx: Arc<Context>,
    authority: Arc<CertificateAuthority>,
    certificate: Arc<ServerCertificate>,
) {
    loop {
        tokio::select! {
            biased;
            () = cx.token.cancelled() => return,
            () = tokio::time::sleep(RENEW_AFTER) => (),
        }
        let renewed = authority
            .issue_controller(cx.clock.now())
            .map_err(ServerError::from)
            .and_then(|(issued, key)| Ok(certificate.replace(issued.chain, key)?));
        if let Err(error) = renewed {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the controller's certificate was not renewed"
            );
        }
    }
}
