//! Frames of SPDY/3.1: an eight-byte head, and what it says follows.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{SpdyError, StreamId, headers};

/// Bytes of a head.
const HEAD: usize = 8;
/// First byte and second byte of a control frame: its bit, and the version.
const CONTROL: u16 = 0x8003;
/// Kinds of control frames.
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;
/// Flag: the sender sends no more on this stream.
const FIN: u8 = 1;
/// Reasons to end a stream.
pub(super) const REFUSED_STREAM: u32 = 3;
pub(super) const CANCEL: u32 = 5;
/// Largest data frame in bytes. Clients send what they read at once.
const MOST_DATA: usize = 1 << 20;
/// Largest control frame in bytes: its headers are a few words.
const MOST_CONTROL: usize = 16 << 10;

/// A frame of a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Opens {
        stream: StreamId,
        block: Bytes,
        ended: bool,
    },
    /// Headers that mean nothing here.
    Headers(Bytes),
    Data {
        stream: StreamId,
        bytes: Bytes,
        ended: bool,
    },
    Resets(StreamId),
    Ping(u32),
    GoAway,
    /// Settings, windows, and kinds that are not known.
    Ignored,
}

/// Takes the next frame, if it is complete.
///
/// # Errors
/// When it breaks the protocol.
pub(super) fn take(received: &mut BytesMut) -> Result<Option<Frame>, SpdyError> {
    let Some(mut head) = received.get(..HEAD) else { return Ok(None) };
    let (first, second) = (head.get_u32(), head.get_u32());
    let (flags, size) = ((second >> 24) as u8, (second & 0x00ff_ffff) as usize);
    let is_control = first >> 31 == 1;
    if size > if is_control { MOST_CONTROL } else { MOST_DATA } {
        return Err(SpdyError::FrameSize(size));
    }
    if received.len() < HEAD + size {
        return Ok(None);
    }
    received.advance(HEAD);
    let mut body = received.split_to(size).freeze();
    let ended = flags & FIN != 0;
    if !is_control {
        return Ok(Some(Frame::Data { stream: first, bytes: body, ended }));
    }
    if (first >> 16) as u16 != CONTROL {
        return Err(SpdyError::Frame("control"));
    }
    let mut number = |name| match body.remaining() >= 4 {
        true => Ok(body.get_u32()),
        false => Err(SpdyError::Frame(name)),
    };
    let stream = |number: u32| number & 0x7fff_ffff;
    Ok(Some(match first as u16 {
        SYN_STREAM => {
            let opened = stream(number("SYN_STREAM")?);
            // The stream that it belongs to.
            number("SYN_STREAM")?;
            if body.remaining() < 2 {
                return Err(SpdyError::Frame("SYN_STREAM"));
            }
            // Its priority.
            body.advance(2);
            Frame::Opens { stream: opened, block: body, ended }
        }
        SYN_REPLY => {
            number("SYN_REPLY")?;
            Frame::Headers(body)
        }
        HEADERS => {
            number("HEADERS")?;
            Frame::Headers(body)
        }
        RST_STREAM => Frame::Resets(stream(number("RST_STREAM")?)),
        PING => Frame::Ping(number("PING")?),
        GOAWAY => Frame::GoAway,
        _ => Frame::Ignored,
    }))
}

fn put_control(to: &mut BytesMut, kind: u16, body: &[&[u8]]) {
    let size: usize = body.iter().map(|part| part.len()).sum();
    to.put_u16(CONTROL);
    to.put_u16(kind);
    // No flags. All bodies of this end are a few bytes.
    to.put_u32(size as u32);
    for part in body {
        to.put_slice(part);
    }
}

/// Accepts a stream, without headers. The first reply begins the compressed text of all.
pub(super) fn put_reply(to: &mut BytesMut, stream: StreamId, first: bool) {
    put_control(to, SYN_REPLY, &[&stream.to_be_bytes(), &headers::none(first)]);
}

pub(super) fn put_reset(to: &mut BytesMut, stream: StreamId, why: u32) {
    put_control(to, RST_STREAM, &[&stream.to_be_bytes(), &why.to_be_bytes()]);
}

pub(super) fn put_ping(to: &mut BytesMut, id: u32) {
    put_control(to, PING, &[&id.to_be_bytes()]);
}

pub(super) fn put_go_away(to: &mut BytesMut, newest: StreamId) {
    // 0: nothing is wrong.
    put_control(to, GOAWAY, &[&newest.to_be_bytes(), &0_u32.to_be_bytes()]);
}

/// At most [`super::CHUNK`] bytes.
pub(super) fn put_data(to: &mut BytesMut, stream: StreamId, bytes: &[u8], last: bool) {
    to.put_u32(stream);
    to.put_u32((u32::from(if last { FIN } else { 0 }) << 24) | bytes.len() as u32);
    to.put_slice(bytes);
}
