//! History as an aggregated API: what `atoll up` mounts on its own hub, served to a real kube-apiserver.
//!
//! ```text
//!  kubectl ─▶ kube-apiserver ══TLS, proxy's certificate, X-Remote-User══▶ this ─▶ history
//!                    ▲                                                      │
//!                    └── SubjectAccessReview: may this user? ───────────────┘
//! ```
//!
//! Only the front proxy can name the user. It authenticates with a certificate of the authority that the hub's ConfigMap
//! contains. The hub authorizes each request. Every replica serves, because history is read-only.

mod gate;
mod proxy;
mod registration;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use atoll_api::{Clock, HISTORY_GROUP, PROXY_GROUP, REVIEW_GROUP};
use atoll_apimachinery::raw::RawApi;
use atoll_apimachinery::read_only::ReadOnlyApi;
use atoll_history::Store;
use atoll_http::connections::Limits;
use atoll_http::serve::Settings;
use atoll_protocol::authorities::Authorities;
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::gate::FrontProxyGate;
use self::proxy::FrontProxy;
use crate::decisions::Decisions;

/// Limits of the listener.
const SETTINGS: Settings = Settings {
    // Replicas of kube-apiserver, which may open one connection per watch; other clients reach only the health paths.
    connections: Limits { total: 4096, each: 1024, grace: Duration::from_secs(10) },
    head: Duration::from_secs(30),
    lifetime: None,
    // Watches end at once and other requests take milliseconds; the rest are clients that do not read.
    stop: Duration::from_secs(2),
};

/// The parts of the server.
pub(super) struct Parts {
    /// The hub.
    pub(super) client: Client,
    /// Wall time.
    pub(super) clock: Clock,
    /// The history to serve.
    pub(super) history: Arc<dyn Store>,
    /// The members that users reach, and the approval of plans.
    pub(super) raw: Vec<Arc<dyn RawApi>>,
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
    mut authorities: watch::Receiver<Option<Arc<Authorities>>>,
    token: CancellationToken,
) -> anyhow::Result<()> {
    let Parts { client, clock, history, raw, listener, names } = parts;
    // The first leader creates the authority; before that there is no certificate to serve.
    let first = async { authorities.wait_for(Option::is_some).await.ok()?.clone() };
    // Also `None` when the controller has ended.
    let Some(Some(first)) = token.run_until_cancelled(first).await else { return Ok(()) };
    let proxy = Arc::new(FrontProxy::default());
    let certificate = tls::issue(first.signing(), &names, &clock)
        .context("issue the certificate of --api-address")?;
    let config =
        tls::config(certificate.clone(), proxy.clone()).context("set up TLS for --api-address")?;
    let gate = Arc::new(FrontProxyGate::new(client.clone(), proxy.clone()));
    let now = clock.clone();
    let api =
        ReadOnlyApi::with_raw(Decisions::all(&history), raw, gate, Arc::new(move || now.now()));
    let follow = proxy::follow(client.clone(), proxy, token.clone());
    let register = [HISTORY_GROUP, PROXY_GROUP, REVIEW_GROUP]
        .map(|group| registration::keep(client.clone(), group, authorities.clone(), token.clone()));
    let register = futures::future::join_all(register);
    let renew = tls::renew(certificate, authorities.clone(), &names, &clock, token.clone());
    let serve = atoll_apimachinery::serve::serve(listener, config, SETTINGS, api, token.clone());
    let (served, (), _, ()) = tokio::join!(serve, follow, register, renew);
    served.context("serve the aggregated API")
}

#[cfg(test)]
mod tests;
