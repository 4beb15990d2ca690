//! History as an aggregated API: what `atoll up` mounts on its own hub, served to a real kube-apiserver.
//!
//! ```text
//!  kubectl ─▶ kube-apiserver ══TLS, proxy's certificate, X-Remote-User══▶ this ─▶ history
//!                    ▲                                                      │
//!                    └── SubjectAccessReview: may this user? ───────────────┘
//! ```
//!
//! Who calls is said by the front proxy alone, which proves itself by a certificate of the authority that the hub names
//! in its ConfigMap; what they may is said by the hub for each request. Every replica serves: history is read only.

mod gate;
mod proxy;
mod registration;
mod tls;

use std::sync::Arc;

use anyhow::Context;
use atoll_api::Clock;
use atoll_apiserver::{Options, Server};
use atoll_history::Store;
use atoll_protocol::ca::CertificateAuthority;
use kube::Client;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::gate::FrontProxyGate;
use self::proxy::FrontProxy;
use crate::up::decisions::Decisions;

/// The parts of the server.
pub(super) struct Parts {
    /// The hub.
    pub(super) client: Client,
    /// Wall time.
    pub(super) clock: Clock,
    /// The history to serve.
    pub(super) history: Arc<dyn Store>,
    /// The listening socket.
    pub(super) listener: TcpListener,
    /// The DNS names that the hub connects to: the Service's.
    pub(super) names: Vec<String>,
}

/// Serves until the token is cancelled.
///
/// # Errors
/// When TLS cannot be set up, or the listener fails.
pub(super) async fn serve(
    parts: Parts,
    authority: impl Future<Output = Arc<CertificateAuthority>>,
    token: CancellationToken,
) -> anyhow::Result<()> {
    let Parts { client, clock, history, listener, names } = parts;
    // The first leader creates the authority; before that there is no certificate to serve.
    let Some(authority) = token.run_until_cancelled(authority).await else { return Ok(()) };
    let proxy = Arc::new(FrontProxy::default());
    let certificate =
        tls::issue(&authority, &names, &clock).context("issue the certificate of --api-address")?;
    let config =
        tls::config(certificate.clone(), proxy.clone()).context("set up TLS for --api-address")?;
    let gate = Arc::new(FrontProxyGate::new(client.clone(), proxy.clone()));
    let server = Server::open(Options::extension(gate)).context("open the aggregated API")?;
    Decisions::all(&history).into_iter().for_each(|kind| server.mount(kind));
    let follow = proxy::follow(client.clone(), proxy, token.clone());
    let register =
        registration::keep(client, authority.certificate_pem().to_owned(), token.clone());
    let renew = tls::renew(certificate, &authority, &names, &clock, token.clone());
    let serve = server.serve(listener, config, token.clone());
    let (served, (), (), ()) = tokio::join!(serve, follow, register, renew);
    served.context("serve the aggregated API")
}

#[cfg(test)]
mod tests;
