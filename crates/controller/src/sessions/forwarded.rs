//! Serves the connections of other controllers, which pass requests of users on to this one while it leads.

use std::sync::Arc;

use atoll_protocol::tunnel::{self, FORWARD_STREAMS};
use tokio::sync::mpsc;

use super::listener::Connection;
use crate::member::context::Context;
use crate::proxy::forwarded::Forwarded;

/// Serves connections until the context's token is cancelled.
pub(super) async fn run(cx: Arc<Context>, mut connections: mpsc::Receiver<Connection>) {
    while let Some(Some(connection)) = cx.token.run_until_cancelled(connections.recv()).await {
        let (token, service) = (cx.token.clone(), Forwarded(cx.clone()));
        cx.tasks.spawn(async move {
            let serving = tunnel::serve(connection, service, FORWARD_STREAMS);
            if let Some(Err(error)) = token.run_until_cancelled(serving).await {
                tracing::debug!(%error, "the connection of another controller ended");
            }
        });
    }
}
