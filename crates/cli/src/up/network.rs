//! The network between a simulated member's agent and the controller; `atoll sim cut` cuts it.
//!
//! A cut is a partition, not a reset: open connections go silent, new ones fail, and bytes in flight arrive when the
//! network is back, as with TCP.

use std::io;
use std::time::Duration;

use atoll_agent::Connector;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Connect timeout, whether the network works or not.
const CONNECT: Duration = Duration::from_secs(5);
/// Bytes in flight in one direction of one connection.
const WINDOW: usize = 256 * 1024;

/// One agent's network.
#[derive(Debug)]
pub(crate) struct Network {
    up: watch::Sender<bool>,
    tasks: TaskTracker,
    token: CancellationToken,
}

impl Network {
    /// A working network, until the token is cancelled.
    pub(crate) fn new(token: CancellationToken) -> Self {
        Self { up: watch::Sender::new(true), tasks: TaskTracker::new(), token }
    }

    /// Cuts (`false`) or restores the network.
    pub(crate) fn set(&self, up: bool) {
        self.up.send_replace(up);
    }

    /// The agent's connector.
    pub(crate) fn connector(&self) -> Connector {
        let (up, tasks, token) = (self.up.subscribe(), self.tasks.clone(), self.token.clone());
        Connector::from_fn(move |address| {
            let (mut up, tasks, token) = (up.clone(), tasks.clone(), token.clone());
            async move {
                let connected = tokio::time::timeout(CONNECT, async {
                    up.wait_for(|up| *up).await.map_err(io::Error::other)?;
                    TcpStream::connect(address).await
                });
                let stream = connected.await??;
                stream.set_nodelay(true)?;
                let (near, far) = tokio::io::duplex(WINDOW);
                tasks.spawn(async move {
                    tokio::select! {
                        biased;
                        () = token.cancelled() => {}
                        // Either end may close at any time; the agent sees that on its end.
                        _ = carry(far, stream, up) => {}
                    }
                });
                Ok(near)
            }
        })
    }

    /// Waits until every connection is closed. The network's token must be cancelled before.
    pub(crate) async fn closed(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Copies bytes both ways while the network is up.
async fn carry(near: DuplexStream, far: TcpStream, up: watch::Receiver<bool>) -> io::Result<()> {
    let (near_read, near_write) = tokio::io::split(near);
    let (far_read, far_write) = far.into_split();
    tokio::try_join!(one_way(near_read, far_write, up.clone()), one_way(far_read, near_write, up))?;
    Ok(())
}

async fn one_way(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut up: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        up.wait_for(|up| *up).await.map_err(io::Error::other)?;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
    }
}
