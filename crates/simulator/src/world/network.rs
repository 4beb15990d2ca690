//! The network between an agent and the controller, in memory.
//!
//! A cut is a partition, not a reset: open connections go silent, new ones do not come about, and what was on its way
//! arrives when the network is back, as with TCP.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use atoll_agent::Connector;
use atoll_controller::members::Arrival;
use atoll_protocol::identity::ClusterUid;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Longest wait for a connection while the network is cut.
const CONNECT: Duration = Duration::from_secs(5);
/// Bytes that may be under way in one direction of one half of a connection.
const WINDOW: usize = 256 * 1024;
/// Bytes that are carried at once.
const CHUNK: usize = 16 * 1024;

/// Where agents find the controller of the day.
#[derive(Clone, Default)]
pub(super) struct Door(Arc<Mutex<Option<mpsc::Sender<Arrival>>>>);

impl Door {
    pub(super) fn lead_to(&self, controller: Option<mpsc::Sender<Arrival>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = controller;
    }

    async fn enter(&self, arrival: Arrival) -> io::Result<()> {
        let controller = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        controller.ok_or_else(refused)?.send(arrival).await.map_err(|_| refused())
    }
}

/// A connector of one agent, whose connections end with `token`. With an `identity` no TLS is spoken.
pub(super) fn connector(
    door: Door,
    up: watch::Receiver<bool>,
    identity: Option<ClusterUid>,
    tasks: TaskTracker,
    token: CancellationToken,
) -> Connector {
    Connector::from_fn(move |_| {
        let (door, mut up, identity) = (door.clone(), up.clone(), identity.clone());
        let (tasks, token) = (tasks.clone(), token.clone());
        async move {
            let (near, carried_near) = tokio::io::duplex(WINDOW);
            let (far, carried_far) = tokio::io::duplex(WINDOW);
            let connected = tokio::time::timeout(CONNECT, async {
                up.wait_for(|up| *up).await.map_err(io::Error::other)?;
                door.enter(Arrival { io: Box::new(far), identity }).await
            });
            connected.await??;
            tasks.spawn(async move {
                // Either end may close at any time; the other sees that on its own.
                let _ = token.run_until_cancelled(carry(carried_near, carried_far, up)).await;
            });
            Ok(near)
        }
    })
}

/// Carries bytes both ways while the network is up.
async fn carry(near: DuplexStream, far: DuplexStream, up: watch::Receiver<bool>) -> io::Result<()> {
    let (near_read, near_write) = tokio::io::split(near);
    let (far_read, far_write) = tokio::io::split(far);
    tokio::try_join!(one_way(near_read, far_write, up.clone()), one_way(far_read, near_write, up))?;
    Ok(())
}

async fn one_way(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut up: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = from.read(&mut buffer).await?;
        up.wait_for(|up| *up).await.map_err(io::Error::other)?;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
    }
}
