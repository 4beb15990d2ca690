//! Verbs that run a part of the federation as a process of its own.

pub(crate) mod agent;
mod aggregated;
pub(crate) mod controller;
mod health;
mod hosted;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Cancels the token at the first Ctrl-C or SIGTERM.
///
/// # Errors
/// When signals cannot be listened for.
pub(crate) fn end_on_signal(token: CancellationToken) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    // Owned by the process: it ends with the runtime.
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = token.cancelled() => {}
            _ = interrupt.recv() => tracing::info!("stopping: interrupted"),
            _ = terminate.recv() => tracing::info!("stopping: told to terminate"),
        }
        token.cancel();
    });
    Ok(())
}

/// Ends what runs beside a part that has ended.
async fn end(token: CancellationToken, beside: Option<tokio::task::JoinHandle<()>>) {
    token.cancel();
    if let Some(task) = beside
        && let Err(error) = task.await
    {
        tracing::error!(%error, "a task beside it failed");
    }
}
