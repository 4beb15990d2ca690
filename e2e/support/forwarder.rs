//! One address in front of several servers, with network faults in between.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// What happens to the traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    /// Forwarded.
    Calm,
    /// Forwarded with this delay.
    Late(Duration),
    /// Held without closing; forwarded afterwards.
    Silent,
    /// The servers' half of every connection is closed, the clients' stays open: clients can send but receive nothing
    /// more.
    HalfClosed,
    /// All connections are dropped, new ones included.
    Dropping,
}

/// Forwards connections to the servers in turn, as a Kubernetes Service would.
pub(crate) struct Forwarder {
    pub(crate) address: SocketAddr,
    mood: watch::Sender<Mood>,
    _ends: DropGuard,
}

impl Forwarder {
    /// Listens on its own port.
    pub(crate) async fn start(servers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mood, moods) = watch::channel(Mood::Calm);
        let ends = CancellationToken::new();
        let turn = Arc::new(AtomicUsize::new(0));
        let token = ends.clone();
        tokio::spawn(async move {
            while let Some(Ok((client, _))) = token.run_until_cancelled(listener.accept()).await {
                let (servers, turn) = (servers.clone(), turn.clone());
                let (moods, token) = (moods.clone(), token.clone());
                tokio::spawn(async move {
                    // Whatever ends a connection, both ends see it by themselves.
                    let _ =
                        token.run_until_cancelled(connection(client, servers, &turn, moods)).await;
                });
            }
        });
        Self { address, mood, _ends: ends.drop_guard() }
    }

    pub(crate) fn set(&self, mood: Mood) {
        self.mood.send_replace(mood);
    }
}

async fn connection(
    client: TcpStream,
    servers: Vec<String>,
    turn: &AtomicUsize,
    moods: watch::Receiver<Mood>,
) -> io::Result<()> {
    let mut server = None;
    for _ in 0..servers.len() {
        let at = turn.fetch_add(1, Ordering::Relaxed) % servers.len();
        if let Ok(stream) = TcpStream::connect(&servers[at]).await {
            server = Some(stream);
            break;
        }
    }
    let server = server.ok_or(io::ErrorKind::ConnectionRefused)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (client_reads, client_writes) = client.into_split();
    let (server_reads, server_writes) = server.into_split();
    let mut dropped = moods.clone();
    tokio::select! {
        biased;
        () = until(&mut dropped, Mood::Dropping) => Ok(()),
        both = async {
            tokio::try_join!(
                carry(client_reads, server_writes, moods.clone(), false),
                carry(server_reads, client_writes, moods, true)
            )
        } => both.map(drop),
    }
}

/// Waits for this mood; never returns once the forwarder is gone.
async fn until(moods: &mut watch::Receiver<Mood>, wanted: Mood) {
    if moods.wait_for(|mood| *mood == wanted).await.is_err() {
        std::future::pending().await
    }
}

async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut moods: watch::Receiver<Mood>,
    to_client: bool,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = if to_client {
            let mut closed = moods.clone();
            tokio::select! {
                biased;
                () = until(&mut closed, Mood::HalfClosed) => {
                    to.shutdown().await?;
                    // Discards the server's remaining output; the other half stays open.
                    while from.read(&mut buffer).await? > 0 {}
                    return Ok(());
                }
                read = from.read(&mut buffer) => read?,
            }
        } else {
            from.read(&mut buffer).await?
        };
        let mood = *moods.wait_for(|mood| *mood != Mood::Silent).await.map_err(io::Error::other)?;
        if let Mood::Late(by) = mood {
            tokio::time::sleep(by).await;
        }
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
    }
}
