//! From the member's answer to messages of the tunnel.

use atoll_protocol::tunnel::CHUNK;
use atoll_protocol::v1::tunnel_request::Message as Sent;
use atoll_protocol::v1::tunnel_response::Message;
use atoll_protocol::v1::{ProxyAnswer, ProxyHeader, TunnelRequest, TunnelResponse};
use bytes::{Bytes, BytesMut};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use http::Response;
use http_body_util::BodyExt;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::task::JoinSet;
use tonic::{Status, Streaming};

use super::super::enrol::chain;

type Messages = BoxStream<'static, Result<TunnelResponse, Status>>;

/// Head and body of an answer.
pub(super) fn plain(answer: Response<Body>) -> Messages {
    let head = head(&answer);
    let chunks = answer.into_body().into_data_stream().map_err(|error| {
        Status::data_loss(format!("the member's answer is incomplete: {}", chain(&error)))
    });
    let chunks = chunks.map_ok(|bytes| stream::iter(pieces(bytes)).map(Ok)).try_flatten();
    stream::iter([Ok(head)]).chain(chunks.map_ok(body)).boxed()
}

/// Head of an answer, then raw bytes both ways until both ends have closed, or one has failed.
pub(super) fn upgraded(
    answer: &Response<Body>,
    io: Upgraded,
    inbound: Streaming<TunnelRequest>,
) -> Messages {
    let (read, write) = tokio::io::split(TokioIo::new(io));
    // Ends with the stream of answers, which owns it.
    let mut writing = JoinSet::new();
    writing.spawn(pump(inbound, write));
    let state = (read, writing);
    let chunks = stream::try_unfold(state, |(mut read, writing)| async move {
        Ok(chunk(&mut read).await?.map(|bytes| (body(bytes), (read, writing))))
    });
    stream::iter([Ok(head(answer))]).chain(chunks).boxed()
}

/// The next bytes of the member; `None` at their end.
async fn chunk(read: &mut ReadHalf<TokioIo<Upgraded>>) -> Result<Option<Bytes>, Status> {
    let mut buffer = BytesMut::with_capacity(CHUNK);
    match read.read_buf(&mut buffer).await {
        Ok(0) => Ok(None),
        Ok(_) => Ok(Some(buffer.freeze())),
        Err(error) => Err(Status::data_loss(format!("the member's connection failed: {error}"))),
    }
}

/// Writes what the user sends, until the user has closed.
async fn pump(mut inbound: Streaming<TunnelRequest>, mut write: WriteHalf<TokioIo<Upgraded>>) {
    while let Ok(Some(TunnelRequest { message: Some(Sent::Body(bytes)) })) = inbound.message().await
    {
        if let Err(error) = write.write_all(&bytes).await {
            tracing::debug!(%error, "the member closed an upgraded connection");
            return;
        }
    }
    if let Err(error) = write.shutdown().await {
        tracing::debug!(%error, "close an upgraded connection");
    }
}

fn head(answer: &Response<Body>) -> TunnelResponse {
    let headers = answer.headers().iter().map(|(name, value)| ProxyHeader {
        name: name.as_str().to_owned(),
        value: Bytes::copy_from_slice(value.as_bytes()),
    });
    let status = u32::from(answer.status().as_u16());
    let head = ProxyAnswer { status, headers: headers.collect() };
    TunnelResponse { message: Some(Message::Head(head)) }
}

fn body(bytes: Bytes) -> TunnelResponse {
    TunnelResponse { message: Some(Message::Body(bytes)) }
}

/// A chunk in messages of limited size.
fn pieces(mut bytes: Bytes) -> Vec<Bytes> {
    let mut pieces = Vec::with_capacity(bytes.len().div_ceil(CHUNK));
    while !bytes.is_empty() {
        pieces.push(bytes.split_to(bytes.len().min(CHUNK)));
    }
    pieces
}
