//! The connection of a member's tunnel: the agent dials, then the leader is HTTP/2's client and the agent its server.
//! One gRPC stream is one request of a user (`proto/atoll/agent/v1/tunnel.proto`).

use std::convert::Infallible;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::body::Body;
use tonic::transport::Channel;

use crate::transport::{self, ChannelError, PING_INTERVAL, PING_TIMEOUT};
use crate::v1::member_proxy_client::MemberProxyClient;
use crate::v1::member_proxy_server::{MemberProxy, MemberProxyServer};

/// Limit of concurrent requests of one member.
pub const MAX_STREAMS: u32 = 256;
/// Bytes in flight in one direction of a request. A user who does not read holds back these and no more.
pub const STREAM_WINDOW: u32 = 256 << 10;
/// Bytes in flight of all requests of a member. They cover the windows of all streams: otherwise a few users who do not
/// read would stop the others.
const CONNECTION_WINDOW: u32 = MAX_STREAMS * STREAM_WINDOW;
/// Largest message: a chunk of a body, or a head.
pub const MAX_MESSAGE: usize = 512 << 10;
/// Largest chunk of a body in one message, so that streams take turns.
pub const CHUNK: usize = 64 << 10;
/// Largest list of HTTP/2 headers; those of the users' requests are in messages.
const MAX_HEADERS: u32 = 16 << 10;

/// The leader's end: a client of the agent.
///
/// # Errors
/// When the HTTP/2 handshake fails.
pub async fn client<IO>(io: IO) -> Result<MemberProxyClient<Channel>, ChannelError>
where
    IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let channel = transport::over(io, (STREAM_WINDOW, CONNECTION_WINDOW)).await?;
    Ok(MemberProxyClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(MAX_MESSAGE))
}

/// The agent's end: serves requests until the connection ends. To drop the future ends them all.
///
/// # Errors
/// When the connection fails.
pub async fn serve<IO>(io: IO, service: impl MemberProxy) -> Result<(), hyper::Error>
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
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADERS)
        .serve_connection(TokioIo::new(io), TowerToHyperService::new(service))
        .await
}
