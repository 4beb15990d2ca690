//! Probes of a component that runs as its own process.
//!
//! `/livez` reports only that this process runs its tasks: an agent without a controller, or a controller without its
//! hub, gains nothing from a restart.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::process;

/// Answers on `--health-listen` until the token is cancelled.
///
/// # Errors
/// When the address cannot be bound.
pub async fn serve(
    address: SocketAddr,
    token: CancellationToken,
) -> anyhow::Result<JoinHandle<()>> {
    let listener = process::listen("--health-listen", address).await?;
    let routes = Router::new().route("/livez", get(async || "ok"));
    Ok(tokio::spawn(async move {
        let ends = token.cancelled_owned();
        if let Err(error) = axum::serve(listener, routes).with_graceful_shutdown(ends).await {
            tracing::error!(%error, "the probes' server");
        }
    }))
}
