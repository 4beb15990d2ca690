//! The connection of a member's tunnel: the agent dials, then the leader is HTTP/2's client and the agent its server. And
//! that of a controller to the leader, for the requests of its users.
//! One gRPC stream is one request of a user (`proto/atoll/agent/v1/tunnel.proto`).

use std::convert::Infallible;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::body::Body;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::transport::{self, ChannelError, PING_INTERVAL, PING_TIMEOUT};
use crate::v1::member_proxy_client::MemberProxyClient;
use crate::v1::member_proxy_server::{MemberProxy, MemberProxyServer};
use crate::v1::tunnel_request::Message;
use crate::v1::{ProxyRequest, TunnelRequest};

/// Limit of concurrent requests of one member.
pub const MAX_STREAMS: u32 = 256;
/// Limit of concurrent requests that a controller passes on to the leader: as many as it accepts of its users.
pub const FORWARD_STREAMS: u32 = 2_048;
/// Bytes in flight in one direction of a request. A user who does not read holds back these and no more.
pub const STREAM_WINDOW: u32 = 256 << 10;
/// Largest message: a chunk of a body, or a head.
pub const MAX_MESSAGE: usize = 512 << 10;
/// Largest chunk of a body in one message, so that streams take turns.
pub const CHUNK: usize = 64 << 10;
/// Limit of the wait for the head of a request, which is sent with its stream.
const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// Largest list of HTTP/2 headers; those of the users' requests are in messages.
const MAX_HEADERS: u32 = 16 << 10;

/// Bytes in flight of all requests of a connection. They cover the windows of all streams: otherwise a few users who do
/// not read would stop the others.
const fn connection_window(streams: u32) -> u32 {
    streams * STREAM_WINDOW
}

/// The client's end, for this many concurrent requests: the leader is a client of the agent, another controller one of
/// the leader.
///
/// # Errors
/// When the HTTP/2 handshake fails.
pub async fn client<IO>(io: IO, streams: u32) -> Result<MemberProxyClient<Channel>, ChannelError>
where
    IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let channel = transport::over(io, (STREAM_WINDOW, connection_window(streams))).await?;
    Ok(MemberProxyClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(MAX_MESSAGE))
}

/// The server's end, for this many concurrent requests: serves them until the connection ends. To drop the future ends
/// them all.
///
/// # Errors
/// When the connection fails.
pub async fn serve<IO>(io: IO, service: impl MemberProxy, streams: u32) -> Result<(), hyper::Error>
where
    IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = MemberProxyServer::new(service)
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(MAX_MESSAGE);
    let service = tower::service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let mut service = service.clone();
        async move {
            let answer = tower::Service::call(&mut service, request.map(Body::new)).await;
            answer as Result<http::Response<Body>, Infallible>
        }
    });
    http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(connection_window(streams))
        .max_concurrent_streams(streams)
        .max_header_list_size(MAX_HEADERS)
        .serve_connection(TokioIo::new(io), TowerToHyperService::new(service))
        .await
}

/// Reads the head of a request, with which its stream begins.
///
/// # Errors
/// When it does not arrive in time, or another message arrives.
pub async fn head(stream: &mut Streaming<TunnelRequest>) -> Result<ProxyRequest, Status> {
    let first = tokio::time::timeout(HEAD_LIMIT, stream.message()).await;
    let late = || format!("no head within {} s", HEAD_LIMIT.as_secs());
    match first.map_err(|_| Status::deadline_exceeded(late()))?? {
        Some(TunnelRequest { message: Some(Message::Head(head)) }) => Ok(head),
        _ => Err(Status::invalid_argument("the first message must be the head")),
    }
}
