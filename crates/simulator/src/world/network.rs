//! The network between an agent and the controllers, in memory.
//!
//! A cut is a partition, not a reset: open connections go silent, new ones fail, and bytes in flight arrive when the
//! network is back, as with TCP. Resets are a separate fault.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
/// Bytes in flight in one direction of one half of a connection.
const WINDOW: usize = 256 * 1024;
/// Bytes carried at once.
const CHUNK: usize = 16 * 1024;

/// A controller behind the door.
struct Entry {
    number: u32,
    arrivals: mpsc::Sender<Arrival>,
    alive: CancellationToken,
}

#[derive(Default)]
struct Hall {
    entries: Vec<Entry>,
    turn: usize,
}

/// The controllers' common address, which connects agents to each of them in turn.
#[derive(Clone, Default)]
pub(super) struct Door(Arc<Mutex<Hall>>);

impl Door {
    fn hall(&self) -> MutexGuard<'_, Hall> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts agents for a controller until `alive` is cancelled, which breaks their connections.
    pub(super) fn open(
        &self,
        number: u32,
        arrivals: mpsc::Sender<Arrival>,
        alive: CancellationToken,
    ) {
        let mut hall = self.hall();
        hall.entries.push(Entry { number, arrivals, alive });
        hall.entries.sort_by_key(|entry| entry.number);
    }

    pub(super) fn close(&self, number: u32) {
        self.hall().entries.retain(|entry| entry.number != number);
    }

    async fn enter(&self, arrival: Arrival) -> io::Result<CancellationToken> {
        let chosen = {
            let mut hall = self.hall();
            hall.turn += 1;
            let count = hall.entries.len();
            let at = if count == 0 { 0 } else { hall.turn % count };
            hall.entries.get(at).map(|entry| (entry.arrivals.clone(), entry.alive.clone()))
        };
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let (arrivals, alive) = chosen.ok_or_else(refused)?;
        arrivals.send(arrival).await.map_err(|_| refused())?;
        Ok(alive)
    }
}

/// State of one agent's network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Road {
    /// Bytes from the agent arrive.
    pub(super) there: bool,
    /// Bytes from the controller arrive.
    pub(super) back: bool,
    /// Bytes carried at once, and the pause after each.
    pub(super) pace: Option<(usize, Duration)>,
}

/// One agent's network with its faults.
#[derive(Clone)]
pub(super) struct Link {
    road: Arc<watch::Sender<Road>>,
    /// Bytes to the agent until its connection breaks.
    breaks_after: Arc<Mutex<Option<usize>>>,
}

impl Default for Link {
    fn default() -> Self {
        let road = Road { there: true, back: true, pace: None };
        Self { road: Arc::new(watch::Sender::new(road)), breaks_after: Arc::default() }
    }
}

impl Link {
    pub(super) fn change(&self, change: impl FnOnce(&mut Road)) {
        self.road.send_modify(change);
    }

    /// Opens or cuts both directions.
    pub(super) fn up(&self, up: bool) {
        self.change(|road| (road.there, road.back) = (up, up));
    }

    /// Breaks the agent's connection after this many bytes to it; never with `None`.
    pub(super) fn break_after(&self, bytes: Option<usize>) {
        *self.breaks_after.lock().unwrap_or_else(PoisonError::into_inner) = bytes;
    }

    /// How many of these bytes still arrive before the connection breaks, if it breaks.
    fn spend(&self, bytes: usize) -> Option<usize> {
        let mut left = self.breaks_after.lock().unwrap_or_else(PoisonError::into_inner);
        match *left {
            Some(few) if few < bytes => {
                *left = None;
                Some(few)
            }
            Some(enough) => {
                *left = Some(enough - bytes);
                None
            }
            None => None,
        }
    }
}

/// A connector of one agent, whose connections end with `token`. With an `identity`, TLS is skipped.
pub(super) fn connector(
    door: Door,
    link: Link,
    identity: Option<ClusterUid>,
    tasks: TaskTracker,
    token: CancellationToken,
) -> Connector {
    Connector::from_fn(move |_| {
        let (door, link, identity) = (door.clone(), link.clone(), identity.clone());
        let (tasks, token) = (tasks.clone(), token.clone());
        async move {
            let (near, carried_near) = tokio::io::duplex(WINDOW);
            let (far, carried_far) = tokio::io::duplex(WINDOW);
            let connected = tokio::time::timeout(CONNECT, async {
                let mut road = link.road.subscribe();
                road.wait_for(|road| road.there && road.back).await.map_err(io::Error::other)?;
                door.enter(Arrival { io: Box::new(far), identity }).await
            });
            let alive = connected.await??;
            tasks.spawn(async move {
                // Either end may close at any time; the other sees that on its own.
                let carried = alive.run_until_cancelled(carry(carried_near, carried_far, link));
                let _ = token.run_until_cancelled(carried).await;
            });
            Ok(near)
        }
    })
}

/// Copies bytes both ways while the network is up.
async fn carry(near: DuplexStream, far: DuplexStream, link: Link) -> io::Result<()> {
    let (near_read, near_write) = tokio::io::split(near);
    let (far_read, far_write) = tokio::io::split(far);
    tokio::try_join!(
        one_way(near_read, far_write, &link, false),
        one_way(far_read, near_write, &link, true)
    )?;
    Ok(())
}

async fn one_way(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    link: &Link,
    back: bool,
) -> io::Result<()> {
    let mut road = link.road.subscribe();
    let mut buffer = vec![0; CHUNK];
    loop {
        let pace = road.borrow().pace;
        let most = pace.map_or(CHUNK, |(bytes, _)| bytes.clamp(1, CHUNK));
        let read = from.read(&mut buffer[..most]).await?;
        if let Some((_, wait)) = pace {
            tokio::time::sleep(wait).await;
        }
        let open = |road: &Road| if back { road.back } else { road.there };
        road.wait_for(open).await.map_err(io::Error::other)?;
        if read == 0 {
            return to.shutdown().await;
        }
        if back && let Some(few) = link.spend(read) {
            to.write_all(&buffer[..few]).await?;
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        to.write_all(&buffer[..read]).await?;
    }
}
