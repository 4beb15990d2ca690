//! Turns members' connections for users' requests into tunnels.

use std::sync::Arc;
use std::time::Duration;

use atoll_protocol::tunnel;
use tokio::sync::mpsc;
use tonic::Status;

use super::listener::Connection;
use super::service::Service;
use crate::member::context::Context;
use crate::proxy::tunnels::Tunnel;

/// Limit of the HTTP/2 handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Takes connections until the context's token is cancelled.
pub(super) async fn run(
    cx: Arc<Context>,
    service: Arc<Service>,
    mut connections: mpsc::Receiver<Connection>,
) {
    while let Some(Some(connection)) = cx.token.run_until_cancelled(connections.recv()).await {
        let (cx, service) = (cx.clone(), service.clone());
        cx.tasks.clone().spawn(async move {
            if let Err(status) = hold(&cx, &service, connection).await {
                tracing::info!(%status, "tunnel refused");
            }
        });
    }
}

/// Holds a tunnel until its session or its connection ends.
async fn hold(cx: &Context, service: &Service, connection: Connection) -> Result<(), Status> {
    let (member, peer, link) = service.authorise(Some(connection.link()))?;
    let session = member.lock().session.clone();
    let session =
        session.ok_or_else(|| Status::failed_precondition("open a session before a tunnel"))?;
    let handshake =
        tokio::time::timeout(HANDSHAKE, tunnel::client(connection, tunnel::MAX_STREAMS)).await;
    let client = handshake
        .map_err(|_| Status::deadline_exceeded("no HTTP/2 within 10 s"))?
        .map_err(|error| Status::unavailable(error.to_string()))?;
    let cut = link.cut.clone();
    let tunnel = Tunnel { client, authority: peer.authority, term: session.term, cut: cut.clone() };
    let id = cx.sessions.tunnels.insert(&member.name, tunnel);
    // A rotation may have ended since the check: later ends see it among the others.
    if let Some(authorities) = cx.authority.borrow().clone() {
        cx.sessions.tunnels.enforce(|authority| authorities.trusts(authority));
    }
    tracing::debug!(cluster = member.name.as_str(), "tunnel open");
    tokio::select! {
        () = session.token.cancelled() => {}
        () = cut.cancelled() => {}
    }
    cx.sessions.tunnels.remove(&member.name, id);
    cut.cancel();
    Ok(())
}
