//! Connections of clients that change from HTTP to another protocol.

use std::io;

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt};
use http::{Extensions, Request};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// Bytes read at once.
const CHUNK: usize = 64 << 10;

/// A connection that will be free once the answer 101 is sent.
pub struct Upgrading(OnUpgrade);

/// The connection of a request that asks for another protocol; `None` where it cannot change (HTTP/2).
pub fn take(extensions: &mut Extensions) -> Option<Upgrading> {
    extensions.get::<OnUpgrade>()?;
    let mut request = Request::new(());
    *request.extensions_mut() = std::mem::take(extensions);
    let upgrading = Upgrading(hyper::upgrade::on(&mut request));
    *extensions = std::mem::take(request.extensions_mut());
    Some(upgrading)
}

impl Upgrading {
    /// The connection, once the answer 101 is sent.
    ///
    /// # Errors
    /// When it fails before.
    pub async fn io(self) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        Ok(TokioIo::new(self.0.await.map_err(io::Error::other)?))
    }

    /// Moves bytes both ways: what the client sends into `input`, and `output` to the client. Ends when `output` ends. An
    /// error of `output` cuts the connection, so that the client does not mistake it for an orderly end.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn join<E>(
        self,
        input: mpsc::Sender<io::Result<Bytes>>,
        mut output: impl Stream<Item = Result<Bytes, E>> + Send + Unpin,
    ) -> io::Result<()> {
        let (mut read, mut write) = tokio::io::split(self.io().await?);
        let up = async move {
            loop {
                let mut buffer = BytesMut::with_capacity(CHUNK);
                match read.read_buf(&mut buffer).await {
                    // To drop the sender closes this half.
                    Ok(0) => break,
                    Ok(_) if input.send(Ok(buffer.freeze())).await.is_err() => break,
                    Ok(_) => {}
                    Err(error) => return Err(error),
                }
            }
            drop(input);
            // The other half may go on.
            std::future::pending::<()>().await;
            Ok(())
        };
        let down = async {
            while let Some(chunk) = output.next().await {
                let chunk = chunk.map_err(|_| io::Error::from(io::ErrorKind::ConnectionAborted))?;
                write.write_all(&chunk).await?;
            }
            write.shutdown().await
        };
        tokio::select! {
            failed = up => failed,
            ended = down => ended,
        }
    }
}
