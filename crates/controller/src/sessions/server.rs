//! Runs the gRPC server: waits for the authority, terminates TLS, serves, and renews its own certificate.

use std::sync::Arc;
use std::time::Duration;

use atoll_protocol::authorities::Authorities;
use atoll_protocol::ca::{CONTROLLER_LIFE, CaError};
use atoll_protocol::identity::TrustDomain;
use atoll_protocol::tls::{self, ChainAndKey, ServerCertificate, TlsError};
use atoll_protocol::transport;
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;

use super::forwarded;
use super::gate::Gate;
use super::listener::{BACKLOG, Connection, Incoming, Listener, Trust};
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
    if *authority.signing().trust_domain() != trust_domain {
        tracing::warn!(
            stored = %authority.signing().trust_domain(), requested = %trust_domain,
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
    authorities: Arc<Authorities>,
) -> Result<(), ServerError> {
    let certificate = ServerCertificate::of_each(certificates(cx, &authorities)?)?;
    let (trust, trusted) = watch::channel(trust(cx, authorities, &certificate)?);
    let (members, of_members) = mpsc::channel(BACKLOG);
    let (anonymous, of_anonymous) = mpsc::channel(BACKLOG);
    let (tunnels, of_tunnels) = mpsc::channel(BACKLOG);
    let (forwards, of_controllers) = mpsc::channel(BACKLOG);
    let listener = Listener {
        trust: trusted,
        members,
        anonymous,
        tunnels,
        forwards,
        metrics: cx.metrics.clone(),
        token: cx.token.clone(),
    };
    cx.tasks.spawn(listener.run(incoming));
    // Subscribed before anything can publish newer ones than those of `trust`.
    let mut newer = cx.authority.subscribe();
    newer.mark_changed();
    cx.tasks.spawn(authority::follow(cx.clone()));
    cx.tasks.spawn(renew(cx.clone(), newer, certificate, trust));
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

/// A certificate of each authority, that of the oldest first.
fn certificates(cx: &Context, authorities: &Authorities) -> Result<Vec<ChainAndKey>, CaError> {
    let issue = |authority: &Arc<_>| {
        let authority: &atoll_protocol::ca::CertificateAuthority = authority;
        authority.issue_controller(cx.clock.now()).map(|(issued, key)| (issued.chain, key))
    };
    authorities.all().map(issue).collect()
}

fn trust(
    cx: &Context,
    authorities: Arc<Authorities>,
    certificate: &Arc<ServerCertificate>,
) -> Result<Arc<Trust>, TlsError> {
    let roots: Vec<_> = authorities.all().map(|authority| authority.certificate()).collect();
    let tls = tls::server_config(&roots, certificate.clone(), cx.clock.clone())?;
    Ok(Arc::new(Trust { tls, authorities }))
}

/// Renews the controller's certificates, also when the authorities change. Open connections keep the certificate and the
/// trust of their handshake.
async fn renew(
    cx: Arc<Context>,
    mut authorities: watch::Receiver<Option<Arc<Authorities>>>,
    certificate: Arc<ServerCertificate>,
    published: watch::Sender<Arc<Trust>>,
) {
    loop {
        tokio::select! {
            biased;
            () = cx.token.cancelled() => return,
            // The sender is in the context.
            Ok(()) = authorities.changed() => (),
            () = tokio::time::sleep(RENEW_AFTER) => (),
        }
        let Some(known) = authorities.borrow_and_update().clone() else { continue };
        let renewed = certificates(&cx, &known)
            .map_err(ServerError::from)
            .and_then(|fresh| Ok(certificate.replace(fresh)?))
            .and_then(|()| Ok(trust(&cx, known, &certificate)?));
        match renewed {
            Ok(trust) => drop(published.send_replace(trust)),
            Err(error) => tracing::error!(
                error = &error as &dyn std::error::Error,
                "the controller's certificate was not renewed"
            ),
        }
    }
}
