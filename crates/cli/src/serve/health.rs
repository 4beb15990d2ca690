//! Probes of a part that runs as a process of its own.
//!
//! `/livez` says that the process carries its tasks out, and nothing about others: an agent without a controller, or a
//! controller without its hub, gains nothing by a restart.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Answers on `--health-listen` until the token ends it.
///
/// # Errors
/// When the address cannot be had.
pub(super) async fn serve(
    address: SocketAddr,
    token: CancellationToken,
) -> anyhow::Result<JoinHandle<()>> {
    let listener = super::listen("--health-listen", address).await?;
    let routes = Router::new().route("/livez", get(async || "ok"));
    Ok(tokio::spawn(async move {
        let ends = token.cancelled_owned();
        if let Err(error) = axum::serve(listener, routes).with_graceful_shutdown(ends).await {
            tracing::error!(%error, "the probes' server");
        }
    }))
}
