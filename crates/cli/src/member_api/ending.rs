//! How an answer that breaks off says why, where its protocol has a place for it: watches have events of type ERROR, WebSockets
//! have close frames, and sessions over them a channel for their result. Other answers only break off.

use std::time::Duration;

use atoll_controller::members::{Chunks, ProxyError};
use bytes::{BufMut, Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use serde_json::{Value, json};

/// Close codes: the server restarts, and try again later.
const RESTARTS: u16 = 1012;
const LATER: u16 = 1013;
/// Time between the last event and the error: a server drops what it has not sent yet when a body fails.
const FLUSH: Duration = Duration::from_millis(200);
/// Limit of a close frame's reason in bytes.
const REASON: usize = 123;
/// Channel of a session's result.
const RESULT: u8 = 3;
/// First bytes of frames that are complete: binary messages and the end.
const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;

/// A watch in JSON. If it breaks off between two events, one more event has the error.
pub(super) fn of_watch(
    body: Chunks<ProxyError>,
    status: impl Fn(&ProxyError) -> Value + Send + 'static,
) -> impl Stream<Item = Result<Bytes, ProxyError>> + Send {
    let mut between = true;
    let chunks = body.map(move |chunk| match chunk {
        Ok(bytes) => {
            between = bytes.last().map_or(between, |last| *last == b'\n');
            vec![Ok(bytes)]
        }
        Err(error) if between => {
            let event = format!("{}\n", json!({"type": "ERROR", "object": status(&error)}));
            // The answer is not complete: the error follows.
            vec![Ok(event.into()), Err(error)]
        }
        Err(error) => vec![Err(error)],
    });
    chunks.map(stream::iter).flatten().then(async |chunk| {
        if chunk.is_err() {
            tokio::time::sleep(FLUSH).await;
        }
        chunk
    })
}

/// A WebSocket with this subprotocol. If it breaks off between two frames, the last ones have the error.
pub(super) fn of_web_socket<F>(
    body: Chunks<ProxyError>,
    protocol: &str,
    status: F,
) -> impl Stream<Item = Result<Bytes, ProxyError>> + Send + use<F>
where
    F: Fn(&ProxyError) -> Value + Send + 'static,
{
    let has_channels = protocol.ends_with(".channel.k8s.io");
    let mut frames = Frames::default();
    body.map(move |chunk| match chunk {
        Ok(bytes) => {
            frames.pass(&bytes);
            Ok(bytes)
        }
        // Nothing follows an error.
        Err(error) if frames.is_between() => {
            Ok(last_frames(&error, has_channels && !frames.in_message, &status))
        }
        Err(error) => Err(error),
    })
}

/// The result of a session, if it has a channel for it, and the end.
fn last_frames(
    error: &ProxyError,
    with_result: bool,
    status: &impl Fn(&ProxyError) -> Value,
) -> Bytes {
    let mut frames = BytesMut::new();
    if with_result {
        let status = status(error).to_string();
        put_head(&mut frames, BINARY, 1 + status.len());
        frames.put_u8(RESULT);
        frames.put_slice(status.as_bytes());
    }
    let mut reason = error.to_string();
    while reason.len() > REASON {
        reason.pop();
    }
    let code = if *error == ProxyError::LeaderChanged { RESTARTS } else { LATER };
    put_head(&mut frames, CLOSE, 2 + reason.len());
    frames.put_u16(code);
    frames.put_slice(reason.as_bytes());
    frames.freeze()
}

fn put_head(to: &mut BytesMut, kind: u8, size: usize) {
    to.put_u8(kind);
    match u16::try_from(size) {
        Ok(size @ 0..126) => to.put_u8(size as u8),
        Ok(size) => {
            to.put_u8(126);
            to.put_u16(size);
        }
        Err(_) => {
            to.put_u8(127);
            to.put_u64(size as u64);
        }
    }
}

/// The place in the frames that a member's server sends.
#[derive(Default)]
struct Frames {
    /// The head of the next frame, as far as it has arrived: at most ten bytes.
    head: Vec<u8>,
    /// Bytes of the frame that are to come.
    left: u64,
    /// Parts of a message are to come.
    in_message: bool,
    /// The server has closed.
    ended: bool,
}

impl Frames {
    fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.ended {
            if self.left > 0 {
                let passed =
                    usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
                self.left -= passed as u64;
                bytes = &bytes[passed..];
                continue;
            }
            self.head.push(bytes[0]);
            bytes = &bytes[1..];
            let Some(size) = size_after(&self.head) else { continue };
            let (last, kind) = (self.head[0] & 0x80 != 0, self.head[0] & 0x0f);
            match kind {
                8 => self.ended = true,
                // Other control frames may be within a message.
                9.. => {}
                _ => self.in_message = !last,
            }
            self.left = size;
            self.head.clear();
        }
    }

    fn is_between(&self) -> bool {
        self.left == 0 && self.head.is_empty() && !self.ended
    }
}

/// The bytes after a frame's head, and its mask; `None` while the head is not complete.
fn size_after(head: &[u8]) -> Option<u64> {
    let (first, rest) = head.split_first_chunk::<2>()?;
    let (size, used) = match first[1] & 0x7f {
        126 => (u64::from(u16::from_be_bytes(*rest.first_chunk()?)), 4),
        127 => (u64::from_be_bytes(*rest.first_chunk()?), 10),
        size => (u64::from(size), 2),
    };
    let mask = if first[1] & 0x80 == 0 { 0 } else { 4 };
    (head.len() == used).then_some(size.saturating_add(mask))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(chunks: &[&[u8]], end: ProxyError) -> Chunks<ProxyError> {
        let chunks: Vec<_> = chunks.iter().map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
        stream::iter(chunks).chain(stream::iter([Err(end)])).boxed()
    }

    fn status(error: &ProxyError) -> Value {
        json!({"message": error.to_string()})
    }

    fn lost() -> ProxyError {
        ProxyError::Lost { member: "m1".to_owned(), why: "ü".repeat(100) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_breaks_off_between_events_has_an_event_with_the_error() {
        let run = async |chunks: &[&[u8]]| {
            let all: Vec<_> =
                of_watch(body(chunks, ProxyError::LeaderChanged), status).collect().await;
            let (end, sent) = all.split_last().unwrap();
            assert_eq!(end, &Err(ProxyError::LeaderChanged), "it is not complete");
            let sent: Vec<_> = sent.iter().map(|chunk| chunk.clone().unwrap()).collect();
            String::from_utf8(sent.concat()).unwrap()
        };
        let event =
            format!("{}\n", json!({"type": "ERROR", "object": status(&ProxyError::LeaderChanged)}));
        assert!(event.contains("run the command again"), "{event}");
        assert_eq!(run(&[b"{}\n{", b"}\n"]).await, format!("{{}}\n{{}}\n{event}"));
        assert_eq!(run(&[]).await, event);
        assert_eq!(run(&[b"{}\n{"]).await, "{}\n{", "an event is not cut by another");
    }

    #[tokio::test]
    async fn a_session_that_breaks_off_between_frames_ends_with_its_result() {
        let run = async |protocol: &str, chunks: &[&[u8]], end: ProxyError| {
            let all: Vec<_> = of_web_socket(body(chunks, end), protocol, status).collect().await;
            let passed: usize = chunks.iter().map(|chunk| chunk.len()).sum();
            let all: Result<Vec<Bytes>, ProxyError> = all.into_iter().collect();
            all.map(|all| all.concat()[passed..].to_vec())
        };
        let long = [&[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0][..], &[7; 65_536]].concat();
        let middle = [&[0x82, 126, 1, 0][..], &[7; 256]].concat();
        let whole: [&[u8]; 5] = [&[0x82, 2, 1, 7, 0x89], &[0], &middle, &long[..100], &long[100..]];
        let changed = ProxyError::LeaderChanged.to_string();
        let result = status(&ProxyError::LeaderChanged).to_string();
        let close = [&[0x88, 2 + changed.len() as u8, 3, 0xf4][..], changed.as_bytes()].concat();
        let head = [0x82, 1 + result.len() as u8, RESULT];
        let expected = [&head[..], result.as_bytes(), &close].concat();
        for protocol in ["v5.channel.k8s.io", "v4.channel.k8s.io"] {
            assert_eq!(run(protocol, &whole, ProxyError::LeaderChanged).await.unwrap(), expected);
        }
        // A tunnel has no channel, and a message that is not complete takes no other.
        let tunnel = "SPDY/3.1+portforward.k8s.io";
        assert_eq!(run(tunnel, &whole, ProxyError::LeaderChanged).await.unwrap(), close);
        let part: [&[u8]; 1] = [&[0x02, 1, 7]];
        assert_eq!(
            run("v5.channel.k8s.io", &part, ProxyError::LeaderChanged).await.unwrap(),
            close
        );
        // A long reason is cut between characters.
        let later = run(tunnel, &[], lost()).await.unwrap();
        assert_eq!((later[1], &later[2..4]), (later.len() as u8 - 2, &[3, 0xf5][..]));
        assert!(std::str::from_utf8(&later[4..]).is_ok() && later.len() <= 2 + 2 + REASON);
        // Within a frame nothing can be said, and after the server's own end nothing is.
        let cut: [&[&[u8]]; 4] = [&[&[0x82]], &[&[0x82, 126, 0]], &[&[0x82, 2, 1]], &[&[0x88, 0]]];
        for chunks in cut {
            assert_eq!(run("v5.channel.k8s.io", chunks, lost()).await, Err(lost()), "{chunks:?}");
        }
    }
}
