//! Runs the gRPC server: waits for the authority, ends TLS, serves, and renews its own certificate.

use std::sync::Arc;
use std::time::Duration;

use atoll_protocol::ca::{CONTROLLER_LIFE, CaError, CertificateAuthority};
use atoll_protocol::identity::TrustDomain;
use atoll_protocol::tls::{self, ServerCertificate, TlsError};
use atoll_protocol::transport::{self, MAX_FROM_AGENT, MAX_MESSAGE};
use atoll_protocol::v1::agent_service_server::AgentServiceServer;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::authority;
use super::context::Context;
use super::listener::{self, BACKLOG, Incoming};
use super::service::Service;

/// The controller's own certificate is made anew when half of its life is over.
const RENEW_AFTER: Duration = Duration::from_secs((CONTROLLER_LIFE.as_secs() / 2).unsigned_abs());

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
enum ServerError {
    #[error("make the controller's certificate")]
    Certificate(#[from] CaError),
    #[error("set up TLS")]
    Tls(#[from] TlsError),
}

/// Serves until the context's token ends it.
pub(super) async fn run(cx: Arc<Context>, incoming: Incoming, trust_domain: TrustDomain) {
    let authority = tokio::select! {
        biased;
        () = cx.token.cancelled() => return,
        authority = authority::obtain(&cx, &trust_domain) => authority,
    };
    if *authority.trust_domain() != trust_domain {
        tracing::warn!(
            stored = %authority.trust_domain(), asked = %trust_domain,
            "the stored certificate authority's trust domain stays in force"
        );
    }
    if let Err(error) = serve(&cx, incoming, authority).await {
        tracing::error!(error = &error as &dyn std::error::Error, "agents cannot be served");
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
    let (connections, accepted) = mpsc::channel(BACKLOG);
    let domain = authority.trust_domain().clone();
    cx.tasks.spawn(listener::accept(incoming, config, domain, connections, cx.token.clone()));
    cx.tasks.spawn(renew(cx.clone(), authority, certificate));
    let service = AgentServiceServer::new(Service { cx: cx.clone() })
        .max_decoding_message_size(MAX_FROM_AGENT)
        .max_encoding_message_size(MAX_MESSAGE);
    let accepted = ReceiverStream::new(accepted).map(Ok::<_, std::io::Error>);
    let served = transport::server()
        .add_service(service)
        .serve_with_incoming_shutdown(accepted, cx.token.clone().cancelled_owned())
        .await;
    if let Err(error) = served {
        tracing::error!(error = &error as &dyn std::error::Error, "gRPC server");
    }
    Ok(())
}

/// Keeps the controller's certificate fresh. Connections that are up keep the one that they saw.
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
            tracing::error!(error = &error as &dyn std::error::Error, "certificate not renewed");
        }
    }
}
