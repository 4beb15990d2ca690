//! HTTP/2 settings of both ends, and a gRPC channel over any byte stream.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint, Server};

use crate::v1::agent_service_client::AgentServiceClient;

/// A PING is sent after this time without a frame ...
pub const PING_INTERVAL: Duration = Duration::from_secs(10);
/// ... and the connection is closed when it is not answered within this time.
pub const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Flow control window of a stream: the bytes in flight in one direction of a session.
pub const STREAM_WINDOW: u32 = 1 << 20;
/// Flow control window of a connection.
pub const CONNECTION_WINDOW: u32 = 4 << 20;
/// Largest message. A manifest is at most 1.5 MiB (etcd's limit); an inventory page of 5,000 keys about 2 MiB.
pub const MAX_MESSAGE: usize = 16 << 20;
/// Metadata of the status that rejects a session because of its epoch: the highest epoch seen of the member, in
/// decimal.
pub const EPOCH_FLOOR: &str = "atoll-epoch-floor";
/// Largest message of a call with one message each way (`Enroll`, `Renew`). A certificate request has at most 8 KiB.
pub const MAX_UNARY_MESSAGE: usize = 64 << 10;
/// Flow control window of a connection without a certificate: the bytes in flight of its one call.
const ENROLMENT_WINDOW: u32 = 64 << 10;
/// Largest header list on such a connection.
const ENROLMENT_HEADERS: u32 = 4 << 10;
/// Limit of keys in one page of an inventory.
pub const INVENTORY_PAGE: usize = 5_000;
/// Limit of bytes in one page of an inventory; agents split it there. A controller accepts [`MAX_FROM_AGENT`].
pub const INVENTORY_PAGE_BYTES: usize = 1 << 20;
/// Limit of `Status.status_json` in bytes: it goes into the status of an object in the hub, for several members.
pub const MAX_STATUS: usize = 64 << 10;
/// Largest message that the controller accepts from an agent: facts of a large member, or a page of an inventory. Small
/// messages can expand in memory, so this is less than [`MAX_MESSAGE`].
pub const MAX_FROM_AGENT: usize = 8 << 20;
/// Limit of `RuleText.spec_json` in bytes: three scripts of 64 KiB, escaped as JSON.
pub const MAX_RULE_TEXT: usize = 512 << 10;
/// Limit of all texts of rules in bytes: they stay in the agent's memory.
pub const MAX_RULE_TEXTS: usize = 4 << 20;
/// Limit of customizations that concern agents.
pub const MAX_CUSTOMIZATIONS: usize = 500;
/// Largest accepted header list; Atoll's has a few hundred bytes.
const MAX_HEADERS: u32 = 16 << 10;
/// Concurrent streams on one connection: a session and a renewal, with room to spare.
const MAX_STREAMS: u32 = 16;
/// Limit of a TCP connect and of a handshake together.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// SNI name. The certificate is not checked against it (see [`crate::tls`]); a proxy may route by it.
const SERVER_NAME: &str = "controller.atoll.dev";

/// Why no channel was opened.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The handshake failed: the peer is not the controller, or rejects our certificate.
    #[error("TLS handshake with the controller")]
    Handshake(#[source] io::Error),
    /// The handshake took longer than [`CONNECT_TIMEOUT`].
    #[error("TLS handshake with the controller took longer than {} s", CONNECT_TIMEOUT.as_secs())]
    Timeout,
    /// The HTTP/2 handshake failed.
    #[error("start HTTP/2 with the controller")]
    Http2(#[source] tonic::transport::Error),
}

/// A tonic server with the settings of this module.
#[must_use]
pub fn server() -> Server {
    Server::builder()
        .http2_keepalive_interval(Some(PING_INTERVAL))
        .http2_keepalive_timeout(Some(PING_TIMEOUT))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(MAX_STREAMS)
        .http2_max_header_list_size(MAX_HEADERS)
}

/// The same for connections without a certificate, which are untrusted: one call at a time, and no more memory than an
/// enrolment needs.
#[must_use]
pub fn enrolment_server() -> Server {
    Server::builder()
        .http2_keepalive_interval(Some(PING_INTERVAL))
        .http2_keepalive_timeout(Some(PING_TIMEOUT))
        .initial_stream_window_size(ENROLMENT_WINDOW)
        .initial_connection_window_size(ENROLMENT_WINDOW)
        .max_concurrent_streams(1)
        .http2_max_header_list_size(ENROLMENT_HEADERS)
}

/// A channel over this stream: TLS, then HTTP/2. It lives as long as the stream and never reconnects, so its owner sees
/// every loss.
///
/// # Errors
/// When the handshake fails or takes too long. A certificate that the *controller* rejects shows only at the first
/// call: in TLS 1.3 a client completes before the server has verified it.
pub async fn channel<IO>(io: IO, tls: Arc<ClientConfig>) -> Result<Channel, ChannelError>
where
    IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    plain_channel(secured(io, tls).await?).await
}

/// TLS with the controller.
///
/// # Errors
/// When the handshake fails or takes too long.
pub async fn secured<IO>(io: IO, tls: Arc<ClientConfig>) -> Result<TlsStream<IO>, ChannelError>
where
    IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let name = ServerName::try_from(SERVER_NAME).expect("a constant DNS name is valid");
    tokio::time::timeout(CONNECT_TIMEOUT, TlsConnector::from(tls).connect(name, io))
        .await
        .map_err(|_| ChannelError::Timeout)?
        .map_err(ChannelError::Handshake)
}

/// A channel without TLS over a stream that is already private (both ends in one process).
///
/// # Errors
/// When the HTTP/2 handshake fails.
pub async fn plain_channel<IO>(io: IO) -> Result<Channel, ChannelError>
where
    IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    over(io, (STREAM_WINDOW, CONNECTION_WINDOW)).await
}

/// HTTP/2 over a stream, with these windows of a stream and of the connection.
pub(crate) async fn over<IO>(io: IO, windows: (u32, u32)) -> Result<Channel, ChannelError>
where
    IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut once = Some(io);
    let connector = tower::service_fn(move |_| {
        let io = once.take().map(TokioIo::new);
        async move { io.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)) }
    });
    Endpoint::from_static("http://controller.atoll.dev")
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(windows.0)
        .initial_connection_window_size(windows.1)
        .connect_with_connector(connector)
        .await
        .map_err(ChannelError::Http2)
}

/// Whether the other end sent this status. If not, the client made it up for a broken connection, and its code says
/// little: for the same refused certificate it is `Unknown`, `Unavailable` or `Cancelled`, depending on what the client
/// was doing when the connection ended.
#[must_use]
pub fn answered(status: &tonic::Status) -> bool {
    // tonic attaches the error of the connection to the statuses that it makes, and none to those it received.
    std::error::Error::source(status).is_none()
}

/// A client on the channel that accepts messages up to [`MAX_MESSAGE`].
#[must_use]
pub fn client(channel: Channel) -> AgentServiceClient<Channel> {
    AgentServiceClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(MAX_MESSAGE)
}
