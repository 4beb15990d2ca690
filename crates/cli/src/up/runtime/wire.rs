//! The user's end of a session: its channels over WebSockets (a byte before each message names the channel) or SPDY/3.1 (a
//! stream for each).

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{anyhow, bail};
use atoll_apimachinery::ApiError;
use atoll_apimachinery::response::{Body, JSON, respond};
use atoll_apiserver::PodRequest;
use atoll_http::upgrade::{self, Upgrading};
use atoll_simulator::runtime::{SpdyConnection, SpdyEvent, StreamId};
use bytes::{BufMut, Bytes, BytesMut};
use futures::{SinkExt, StreamExt};
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, handshake::derive_accept_key};

/// Channels of a session.
pub(super) const STDIN: u8 = 0;
pub(super) const STDOUT: u8 = 1;
pub(super) const STDERR: u8 = 2;
pub(super) const ERROR: u8 = 3;
/// Of version 5 of the WebSocket protocol: the channel that follows was closed.
pub(super) const CLOSE: u8 = 255;
/// Header with the protocol of SPDY's streams.
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
/// Limit of a message in bytes.
const MESSAGE: usize = 1 << 20;
/// Bytes of output in one message.
const CHUNK: usize = 32 << 10;
/// How long the user's end may take to open its streams, as with a kubelet.
const OPENING: Duration = Duration::from_secs(30);
/// How long the user's end may take to close.
pub(super) const CLOSING: Duration = Duration::from_secs(2);
/// A session without input ends after this time.
pub(super) const IDLE: Duration = Duration::from_secs(60 * 60);

/// How the user's end talks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// WebSockets, with this subprotocol.
    Web(&'static str),
    /// SPDY/3.1, with this protocol of streams.
    Spdy(&'static str),
}

/// The connection of a request that asks for one of these protocols (the best first), and the answer 101.
pub(super) fn open(
    request: &mut PodRequest,
    web: &[&'static str],
    spdy: &[&'static str],
) -> Result<(Protocol, Upgrading, Response<Body>), ApiError> {
    let mut response = respond(StatusCode::SWITCHING_PROTOCOLS.as_u16(), JSON, Bytes::new());
    let answer = response.headers_mut();
    answer.clear();
    let protocol = handshake(&request.parts.headers, web, spdy, answer)?;
    let connection = upgrade::take(&mut request.parts.extensions)
        .ok_or_else(|| ApiError::bad_request("this connection cannot be upgraded: use HTTP/1.1"))?;
    Ok((protocol, connection, response))
}

fn handshake(
    headers: &HeaderMap,
    web: &[&'static str],
    spdy: &[&'static str],
    answer: &mut HeaderMap,
) -> Result<Protocol, ApiError> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let asked = text(UPGRADE);
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if asked.eq_ignore_ascii_case("SPDY/3.1") {
        let chosen = choose(headers, &STREAM_PROTOCOL, spdy)?;
        answer.insert(UPGRADE, HeaderValue::from_static("SPDY/3.1"));
        answer.insert(STREAM_PROTOCOL, HeaderValue::from_static(chosen));
        return Ok(Protocol::Spdy(chosen));
    }
    if !asked.eq_ignore_ascii_case("websocket") {
        let why = "sessions in pods need an upgrade to websocket or SPDY/3.1";
        return Err(ApiError::bad_request(why));
    }
    if text(SEC_WEBSOCKET_VERSION) != "13" || text(SEC_WEBSOCKET_KEY).is_empty() {
        return Err(ApiError::bad_request("the WebSocket handshake is not complete"));
    }
    let chosen = choose(headers, &SEC_WEBSOCKET_PROTOCOL, web)?;
    let key = derive_accept_key(text(SEC_WEBSOCKET_KEY).as_bytes());
    let key =
        HeaderValue::from_str(&key).map_err(|error| ApiError::bad_request(error.to_string()))?;
    answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
    answer.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(chosen));
    answer.insert(SEC_WEBSOCKET_ACCEPT, key);
    Ok(Protocol::Web(chosen))
}

/// The first of the known protocols that a header offers.
fn choose(
    headers: &HeaderMap,
    name: &HeaderName,
    known: &[&'static str],
) -> Result<&'static str, ApiError> {
    let lists = headers.get_all(name).iter().filter_map(|list| list.to_str().ok());
    let offered: Vec<&str> = lists.flat_map(|list| list.split(',')).map(str::trim).collect();
    let chosen = known.iter().find(|known| offered.contains(known)).copied();
    chosen.ok_or_else(|| {
        ApiError::bad_request(format!("offer one of the protocols {} in {name}", known.join(", ")))
    })
}

/// The server's end of a WebSocket.
pub(super) async fn web_socket<S: AsyncRead + AsyncWrite + Unpin>(io: S) -> WebSocketStream<S> {
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE))
        .max_frame_size(Some(MESSAGE))
        .max_write_buffer_size(4 * MESSAGE);
    WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await
}

/// What the user has sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input {
    Bytes(Bytes),
    End,
}

/// The channels of a session.
pub(super) enum Wire<S> {
    Web(Box<WebSocketStream<S>>),
    Spdy(SpdyWire<S>),
}

/// A stream for each channel.
pub(super) struct SpdyWire<S> {
    connection: SpdyConnection<S>,
    streams: BTreeMap<u8, StreamId>,
    /// The input has ended; the user's end is told of it next.
    ended: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    /// Waits until the user's end has opened these channels.
    pub(super) async fn over_spdy(io: S, channels: &[u8]) -> anyhow::Result<Self> {
        let mut wire = SpdyWire {
            connection: SpdyConnection::new(io),
            streams: BTreeMap::new(),
            ended: false,
        };
        let opening = async {
            while !channels.iter().all(|channel| wire.streams.contains_key(channel)) {
                match wire.connection.next().await?.ok_or_else(|| anyhow!("the user left"))? {
                    SpdyEvent::Opened { stream, headers, .. } => wire.add(stream, &headers).await?,
                    _ => bail!("the user sent input before all streams were open"),
                }
            }
            Ok(())
        };
        let opened = tokio::time::timeout(OPENING, opening).await;
        opened.map_err(|_| anyhow!("the user did not open all streams in time"))??;
        Ok(Self::Spdy(wire))
    }

    /// Sends output.
    pub(super) async fn send(&mut self, channel: u8, bytes: &[u8]) -> anyhow::Result<()> {
        match self {
            Self::Web(socket) => {
                for chunk in bytes.chunks(CHUNK) {
                    socket.send(message(channel, chunk)).await?;
                }
            }
            Self::Spdy(wire) => {
                // A channel that the user did not ask for has no stream.
                if let Some(stream) = wire.streams.get(&channel) {
                    wire.connection.send(*stream, bytes, false).await?;
                }
            }
        }
        Ok(())
    }

    /// The next input; `None` when the user has left. The size of the window does not matter here. Nothing is lost if the
    /// future is dropped.
    pub(super) async fn receive(&mut self) -> anyhow::Result<Option<Input>> {
        match self {
            Self::Web(socket) => received(socket).await,
            Self::Spdy(wire) => wire.receive().await,
        }
    }

    /// Reports the result of the session, and closes the connection.
    pub(super) async fn end(&mut self, status: &Value) -> anyhow::Result<()> {
        let status = status.to_string();
        match self {
            Self::Web(socket) => {
                socket.send(message(ERROR, status.as_bytes())).await?;
                // kubectl takes any other code for a failure.
                let frame = CloseFrame { code: CloseCode::Normal, reason: "".into() };
                (**socket).close(Some(frame)).await?;
                let closed = async { while let Some(Ok(_)) = socket.next().await {} };
                // The user's end may be gone already.
                let _ = tokio::time::timeout(CLOSING, closed).await;
            }
            Self::Spdy(wire) => {
                for (channel, text) in [(STDOUT, ""), (STDERR, ""), (ERROR, status.as_str())] {
                    if let Some(stream) = wire.streams.get(&channel) {
                        wire.connection.send(*stream, text.as_bytes(), true).await?;
                    }
                }
                let closed = async { while let Ok(Some(_)) = wire.connection.next().await {} };
                let _ = tokio::time::timeout(CLOSING, closed).await;
                // The user's end may be gone already.
                let _ = wire.connection.close().await;
            }
        }
        Ok(())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> SpdyWire<S> {
    async fn add(
        &mut self,
        stream: StreamId,
        headers: &BTreeMap<String, String>,
    ) -> anyhow::Result<()> {
        let channel = match headers.get("streamtype").map(String::as_str) {
            Some("stdin") => STDIN,
            Some("stdout") => STDOUT,
            Some("stderr") => STDERR,
            Some("error") => ERROR,
            // What is sent on it is left out.
            Some("resize") => return Ok(()),
            _ => return Ok(self.connection.reset(stream).await?),
        };
        match self.streams.contains_key(&channel) {
            true => self.connection.reset(stream).await?,
            false => drop(self.streams.insert(channel, stream)),
        }
        Ok(())
    }

    async fn receive(&mut self) -> anyhow::Result<Option<Input>> {
        loop {
            if std::mem::take(&mut self.ended) {
                return Ok(Some(Input::End));
            }
            let Some(event) = self.connection.next().await? else { return Ok(None) };
            let stdin = self.streams.get(&STDIN).copied();
            match event {
                SpdyEvent::Opened { stream, headers, .. } => self.add(stream, &headers).await?,
                SpdyEvent::Data { stream, bytes, ended } if Some(stream) == stdin => {
                    self.ended = ended;
                    if !bytes.is_empty() {
                        return Ok(Some(Input::Bytes(bytes)));
                    }
                }
                SpdyEvent::Data { .. } => {}
                SpdyEvent::Reset(stream) if Some(stream) == stdin => self.ended = true,
                // Nobody reads the output any more.
                SpdyEvent::Reset(stream) if self.streams.values().any(|one| *one == stream) => {
                    return Ok(None);
                }
                SpdyEvent::Reset(_) => {}
            }
        }
    }
}

fn message(channel: u8, bytes: &[u8]) -> Message {
    let mut message = BytesMut::with_capacity(bytes.len() + 1);
    message.put_u8(channel);
    message.extend_from_slice(bytes);
    Message::Binary(message.freeze())
}

async fn received<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut WebSocketStream<S>,
) -> anyhow::Result<Option<Input>> {
    loop {
        let bytes = match socket.next().await {
            None | Some(Ok(Message::Close(_))) => return Ok(None),
            Some(Ok(Message::Binary(bytes))) => bytes,
            Some(Ok(Message::Text(text))) => Bytes::from(text),
            Some(Ok(_)) => continue,
            Some(Err(error)) => return Err(error.into()),
        };
        match bytes.first() {
            Some(&STDIN) if bytes.len() > 1 => return Ok(Some(Input::Bytes(bytes.slice(1..)))),
            Some(&CLOSE) if bytes.get(1) == Some(&STDIN) => return Ok(Some(Input::End)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_common_protocol_is_chosen() {
        const WEB: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
        let mut headers = HeaderMap::new();
        let chosen = |headers: &HeaderMap| {
            let mut answer = HeaderMap::new();
            let chosen = handshake(headers, &WEB, &["v4.channel.k8s.io"], &mut answer);
            chosen.map(|chosen| (chosen, answer)).map_err(|error| error.to_string())
        };
        assert!(chosen(&headers).unwrap_err().contains("websocket or SPDY/3.1"));
        headers.insert(UPGRADE, HeaderValue::from_static("SPDY/3.1"));
        assert!(chosen(&headers).unwrap_err().contains("x-stream-protocol-version"));
        for offered in ["v5.channel.k8s.io", "v4.channel.k8s.io"] {
            headers.append(STREAM_PROTOCOL, HeaderValue::from_static(offered));
        }
        let (protocol, answer) = chosen(&headers).unwrap();
        assert_eq!(protocol, Protocol::Spdy("v4.channel.k8s.io"));
        assert_eq!(
            (&answer[UPGRADE], &answer[STREAM_PROTOCOL]),
            (&"SPDY/3.1".parse().unwrap(), &"v4.channel.k8s.io".parse().unwrap())
        );
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        assert!(chosen(&headers).unwrap_err().contains("not complete"));
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        // The example of RFC 6455.
        let key = HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==");
        headers.insert(SEC_WEBSOCKET_KEY, key);
        assert!(chosen(&headers).unwrap_err().contains("v5.channel.k8s.io"));
        let offered = "v4.channel.k8s.io, v5.channel.k8s.io";
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(offered));
        let (protocol, answer) = chosen(&headers).unwrap();
        assert_eq!(protocol, Protocol::Web(WEB[0]));
        assert_eq!(answer[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
