//! The server's end of a SPDY/3.1 connection, as Kubernetes uses it for sessions in pods: the client opens streams with
//! headers, and both ends send bytes on them.
//!
//! No window limits what is sent, as in the library that clients use for it: they never extend the window of a stream, so a
//! server that kept to it would stop after 64 KiB. The connection's own flow control is the limit.

mod frame;
mod headers;

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use self::frame::Frame;
use self::headers::HeaderReader;

/// Streams that a client may have open. `kubectl port-forward` has two for each connection.
const STREAMS: usize = 256;
/// Bytes of one frame that is sent.
const CHUNK: usize = 32 << 10;
/// Bytes that are read at once.
const READ: usize = 64 << 10;

/// The number of a stream.
pub type StreamId = u32;

/// Why a connection cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SpdyError {
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Io(#[from] std::io::Error),
    /// A frame is larger than its kind may be.
    #[error("a frame has {0} bytes")]
    FrameSize(usize),
    /// A frame breaks the protocol.
    #[error("a {0} frame is not valid")]
    Frame(&'static str),
    /// The headers of a stream cannot be read.
    #[error("the headers of a stream are not valid: {0}")]
    Headers(&'static str),
    /// The client numbers its streams wrongly.
    #[error("stream {0} is not the next one of a client")]
    Stream(StreamId),
}

/// What the client did.
#[derive(Debug, PartialEq, Eq)]
pub enum SpdyEvent {
    /// It opened a stream.
    Opened {
        /// The stream.
        stream: StreamId,
        /// Names are in lower case.
        headers: BTreeMap<String, String>,
        /// It will send nothing on it.
        ended: bool,
    },
    /// It sent bytes.
    Data {
        /// The stream.
        stream: StreamId,
        /// The bytes; possibly none.
        bytes: Bytes,
        /// These are the last.
        ended: bool,
    },
    /// It gave up a stream.
    Reset(StreamId),
}

/// An open stream.
#[derive(Debug, Default)]
struct Open {
    ended_here: bool,
    ended_there: bool,
}

/// A connection.
pub struct SpdyConnection<S> {
    io: S,
    received: BytesMut,
    /// Not sent yet.
    pending: BytesMut,
    headers: HeaderReader,
    /// Whether a reply with headers was sent.
    replied: bool,
    open: BTreeMap<StreamId, Open>,
    newest: StreamId,
    /// The client opens no more streams.
    leaving: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> SpdyConnection<S> {
    /// The server's end of a connection that has changed its protocol.
    pub fn new(io: S) -> Self {
        Self {
            io,
            received: BytesMut::new(),
            pending: BytesMut::new(),
            headers: HeaderReader::default(),
            replied: false,
            open: BTreeMap::new(),
            newest: 0,
            leaving: false,
        }
    }

    /// What the client does next; `None` when it has closed the connection. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// When the connection fails, or the client breaks the protocol.
    pub async fn next(&mut self) -> Result<Option<SpdyEvent>, SpdyError> {
        loop {
            self.flush().await?;
            if self.leaving && self.open.is_empty() {
                return Ok(None);
            }
            if let Some(frame) = frame::take(&mut self.received)? {
                if let Some(event) = self.received_frame(frame)? {
                    return Ok(Some(event));
                }
                continue;
            }
            self.received.reserve(READ);
            if self.io.read_buf(&mut self.received).await? == 0 {
                return Ok(None);
            }
        }
    }

    fn received_frame(&mut self, frame: Frame) -> Result<Option<SpdyEvent>, SpdyError> {
        match frame {
            Frame::Opens { stream, block, ended } => {
                // Read in any case: blocks are compressed together.
                let headers = self.headers.read(&block)?;
                if stream % 2 == 0 || stream <= self.newest {
                    return Err(SpdyError::Stream(stream));
                }
                self.newest = stream;
                if self.open.len() >= STREAMS {
                    frame::put_reset(&mut self.pending, stream, frame::REFUSED_STREAM);
                    return Ok(None);
                }
                self.open.insert(stream, Open { ended_here: false, ended_there: ended });
                frame::put_reply(&mut self.pending, stream, !self.replied);
                self.replied = true;
                Ok(Some(SpdyEvent::Opened { stream, headers, ended }))
            }
            Frame::Headers(block) => {
                self.headers.read(&block)?;
                Ok(None)
            }
            Frame::Data { stream, bytes, ended } => {
                // It may have been sent before the client knew of the stream's end.
                let Some(open) = self.open.get_mut(&stream).filter(|open| !open.ended_there) else {
                    return Ok(None);
                };
                open.ended_there = ended;
                self.forget_ended(stream);
                Ok(Some(SpdyEvent::Data { stream, bytes, ended }))
            }
            Frame::Resets(stream) => {
                Ok(self.open.remove(&stream).map(|_| SpdyEvent::Reset(stream)))
            }
            Frame::Ping(id) => {
                // Even numbers answer pings of this end, which sends none.
                if id % 2 == 1 {
                    frame::put_ping(&mut self.pending, id);
                }
                Ok(None)
            }
            Frame::GoAway => {
                self.leaving = true;
                Ok(None)
            }
            Frame::Ignored => Ok(None),
        }
    }

    fn forget_ended(&mut self, stream: StreamId) {
        if self.open.get(&stream).is_some_and(|open| open.ended_here && open.ended_there) {
            self.open.remove(&stream);
        }
    }

    /// Sends bytes, and the end of a stream if they are the last. A stream that the client gave up takes none.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn send(
        &mut self,
        stream: StreamId,
        bytes: &[u8],
        last: bool,
    ) -> Result<(), SpdyError> {
        let Some(open) = self.open.get_mut(&stream).filter(|open| !open.ended_here) else {
            return Ok(());
        };
        open.ended_here = last;
        self.forget_ended(stream);
        let mut chunks = bytes.chunks(CHUNK).peekable();
        if chunks.peek().is_none() && last {
            frame::put_data(&mut self.pending, stream, &[], true);
        }
        while let Some(chunk) = chunks.next() {
            frame::put_data(&mut self.pending, stream, chunk, last && chunks.peek().is_none());
            self.flush().await?;
        }
        self.flush().await
    }

    /// Ends a stream in both directions.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn reset(&mut self, stream: StreamId) -> Result<(), SpdyError> {
        if self.open.remove(&stream).is_some() {
            frame::put_reset(&mut self.pending, stream, frame::CANCEL);
        }
        self.flush().await
    }

    /// Says that no more streams are taken, and closes this direction.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn close(&mut self) -> Result<(), SpdyError> {
        frame::put_go_away(&mut self.pending, self.newest);
        self.flush().await?;
        Ok(self.io.shutdown().await?)
    }

    async fn flush(&mut self) -> Result<(), SpdyError> {
        while !self.pending.is_empty() {
            if self.io.write_buf(&mut self.pending).await? == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::WriteZero).into());
            }
        }
        Ok(self.io.flush().await?)
    }
}

#[cfg(test)]
mod tests;
