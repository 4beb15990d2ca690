//! `pods/NAME/portforward` of a simulated member: SPDY/3.1, also within a WebSocket, as kubectl sends it. Each connection of
//! the user is a pair of streams, one for errors and one for data.

use std::collections::BTreeMap;

use anyhow::{Context, anyhow};
use atoll_apimachinery::ApiError;
use atoll_apimachinery::response::Body;
use atoll_apiserver::PodRequest;
use atoll_http::upgrade::Upgrading;
use atoll_simulator::runtime::{SpdyConnection, SpdyEvent, StreamId, answer_http, check_port};
use bytes::BytesMut;
use futures::stream::BoxStream;
use futures::{SinkExt, StreamExt};
use http::Response;
use kube::Client;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::logs::changes;
use super::wire::{self, CLOSING, IDLE, Protocol};

/// Subprotocol of WebSockets whose messages are the bytes of a SPDY connection.
const WEB: [&str; 1] = ["SPDY/3.1+portforward.k8s.io"];
/// Protocol of the streams.
const SPDY: [&str; 1] = ["portforward.k8s.io"];
/// Bytes on the way between a WebSocket and the SPDY connection in it.
const BUFFER: usize = 64 << 10;

/// The pod's states; `None` when it is gone.
type Changes = BoxStream<'static, Option<Value>>;

/// Answers 101 and serves the pod's ports on the connection.
pub(super) fn answer(client: &Client, mut request: PodRequest) -> Result<Response<Body>, ApiError> {
    if !runs(&request.pod) {
        let phase = request.pod["status"]["phase"].as_str().unwrap_or("unknown");
        return Err(ApiError::bad_request(format!("the pod does not run: its phase is {phase}")));
    }
    let (protocol, connection, response) = wire::open(&mut request, &WEB, &SPDY)?;
    let changes = changes(client, &request.pod);
    let (closing, pod) = (request.closing, Value::clone(&request.pod));
    // Ends with the connection, with the pod, or with the listener.
    tokio::spawn(async move {
        let run = run(connection, protocol, pod, changes);
        if let Some(Err(error)) = closing.run_until_cancelled(run).await {
            tracing::debug!("a port-forward to a simulated pod ended: {error:#}");
        }
    });
    Ok(response)
}

fn runs(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running"
}

async fn run(
    connection: Upgrading,
    protocol: Protocol,
    pod: Value,
    changes: Changes,
) -> anyhow::Result<()> {
    let io = connection.io().await.context("the connection was not upgraded")?;
    match protocol {
        Protocol::Spdy(_) => serve(io, pod, changes).await,
        Protocol::Web(_) => {
            let (inner, outer) = tokio::io::duplex(BUFFER);
            let socket = wire::web_socket(io).await;
            let (served, carried) = tokio::join!(serve(inner, pod, changes), carry(socket, outer));
            served.and(carried)
        }
    }
}

/// Moves bytes between the messages of a WebSocket and a connection, until one of them ends.
async fn carry<S: AsyncRead + AsyncWrite + Unpin>(
    socket: WebSocketStream<S>,
    io: DuplexStream,
) -> anyhow::Result<()> {
    let (mut sink, mut messages) = socket.split();
    let (mut read, mut write) = tokio::io::split(io);
    let up = async {
        while let Some(message) = messages.next().await {
            match message? {
                Message::Binary(bytes) => write.write_all(&bytes).await?,
                Message::Close(_) => break,
                _ => {}
            }
        }
        write.shutdown().await?;
        anyhow::Ok(())
    };
    let down = async {
        let mut buffer = BytesMut::with_capacity(BUFFER);
        while read.read_buf(&mut buffer).await? > 0 {
            sink.send(Message::Binary(buffer.split().freeze())).await?;
            buffer.reserve(BUFFER);
        }
        sink.close().await?;
        anyhow::Ok(())
    };
    tokio::pin!(up, down);
    tokio::select! {
        // What is still on the way to the user follows the end of its messages.
        ended = &mut up => ended.and(timeout(CLOSING, down).await?),
        ended = &mut down => ended.and(timeout(CLOSING, up).await?),
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    io: S,
    mut pod: Value,
    mut changes: Changes,
) -> anyhow::Result<()> {
    let mut forwards = Forwards {
        connection: SpdyConnection::new(io),
        errors: BTreeMap::new(),
        requests: BTreeMap::new(),
    };
    loop {
        tokio::select! {
            event = timeout(IDLE, forwards.connection.next()) => {
                let event = event.map_err(|_| anyhow!("no connection for {} s", IDLE.as_secs()))?;
                match event? {
                    Some(event) => forwards.take(&pod, event).await?,
                    None => break,
                }
            }
            change = changes.next() => match change.flatten() {
                Some(newer) if runs(&newer) => pod = newer,
                // The client says that it lost the connection to the pod.
                _ => break,
            },
        }
    }
    Ok(forwards.connection.close().await?)
}

/// The connections of a user. The number of streams bounds both tables.
struct Forwards<S> {
    connection: SpdyConnection<S>,
    /// Streams for errors whose stream for data was not opened yet, by the number of the connection.
    errors: BTreeMap<String, StreamId>,
    /// By their streams for data.
    requests: BTreeMap<StreamId, Request>,
}

/// A connection whose request is not complete.
struct Request {
    port: u16,
    error: StreamId,
    text: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Forwards<S> {
    async fn take(&mut self, pod: &Value, event: SpdyEvent) -> anyhow::Result<()> {
        match event {
            SpdyEvent::Opened { stream, headers, .. } => self.opened(pod, stream, headers).await,
            SpdyEvent::Data { stream, bytes, ended } => {
                let Some(request) = self.requests.get_mut(&stream) else { return Ok(()) };
                request.text.extend_from_slice(&bytes);
                match answer_http(pod, request.port, &request.text) {
                    Some(answer) => self.end(stream, &answer).await,
                    // A client that ends here has sent no request.
                    None if ended => self.end(stream, b"").await,
                    None => Ok(()),
                }
            }
            SpdyEvent::Reset(stream) => {
                self.errors.retain(|_, error| *error != stream);
                match self.requests.contains_key(&stream) {
                    true => self.end(stream, b"").await,
                    false => Ok(()),
                }
            }
        }
    }

    async fn opened(
        &mut self,
        pod: &Value,
        stream: StreamId,
        mut headers: BTreeMap<String, String>,
    ) -> anyhow::Result<()> {
        let number = headers.remove("requestid").unwrap_or_default();
        match headers.get("streamtype").map(String::as_str) {
            Some("error") if !self.errors.contains_key(&number) => {
                self.errors.insert(number, stream);
                return Ok(());
            }
            Some("data") => {}
            _ => return Ok(self.connection.reset(stream).await?),
        }
        let Some(error) = self.errors.remove(&number) else {
            return Ok(self.connection.reset(stream).await?);
        };
        let port = headers.get("port").and_then(|port| port.parse::<u16>().ok());
        let port = port.ok_or_else(|| "the stream names no port".to_owned());
        match port.and_then(|port| check_port(pod, port).map(|()| port)) {
            Ok(port) => {
                self.requests.insert(stream, Request { port, error, text: Vec::new() });
            }
            Err(why) => {
                self.connection.send(error, why.as_bytes(), true).await?;
                self.connection.send(stream, b"", true).await?;
            }
        }
        Ok(())
    }

    /// Sends the last bytes of a connection.
    async fn end(&mut self, stream: StreamId, bytes: &[u8]) -> anyhow::Result<()> {
        let Some(Request { error, .. }) = self.requests.remove(&stream) else { return Ok(()) };
        self.connection.send(stream, bytes, true).await?;
        Ok(self.connection.send(error, b"", true).await?)
    }
}
