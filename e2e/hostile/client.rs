//! Clients for hostile tests at every layer: TCP, TLS, HTTP/2, gRPC, and a member's session.
//!
//! They accept any server certificate, so that only the controller refuses.
#![allow(dead_code, reason = "each topic uses its part of this")]

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use atoll_protocol::member::MemberIdentity;
use atoll_protocol::transport::{self, ChannelError};
use atoll_protocol::v1;
use atoll_protocol::v1::agent_message::Message as Say;
use atoll_protocol::v1::agent_service_client::AgentServiceClient;
use atoll_protocol::v1::controller_message::Message as Hear;
use atoll_stub_agent::{self as stub, Store};
use bytes::Bytes;
use h2::client::SendRequest;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme, SupportedProtocolVersion};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::Status;
use tonic::transport::Channel;

use super::target::StolenMember;
use crate::support::wait::LIMIT;

/// Far below the controller's limit for silence, 15 s.
const BEAT: Duration = Duration::from_secs(2);

/// TCP from this loopback address: the controller sees another host.
pub(crate) async fn tcp_from(source: [u8; 4], address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((source, 0)))?;
    socket.connect(address).await
}

/// TLS 1.3 over TCP with this certificate. In TLS 1.3 a client finishes before the server has checked its certificate:
/// a refusal appears at the first read.
pub(crate) async fn tls(
    address: SocketAddr,
    identity: Option<&MemberIdentity>,
) -> io::Result<TlsStream<TcpStream>> {
    tls_with(address, config(identity, &TLS13)).await
}

/// A handshake without a certificate by a client that speaks only this version of TLS.
pub(crate) async fn tls_version(
    address: SocketAddr,
    version: &'static SupportedProtocolVersion,
) -> io::Result<TlsStream<TcpStream>> {
    tls_with(address, config(None, version)).await
}

async fn tls_with(
    address: SocketAddr,
    config: Arc<ClientConfig>,
) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let name = ServerName::try_from("controller.atoll.dev").unwrap();
    TlsConnector::from(config).connect(name, stream).await
}

/// HTTP/2 frames of the test's own making: `ready().await`, `send_request`, `send_data`.
pub(crate) async fn http2(
    address: SocketAddr,
    identity: Option<&MemberIdentity>,
) -> io::Result<SendRequest<Bytes>> {
    let stream = tls(address, identity).await?;
    let (requests, connection) = h2::client::handshake(stream).await.map_err(io::Error::other)?;
    // It ends with the connection; errors appear at the request.
    tokio::spawn(connection);
    Ok(requests)
}

/// The headers of a gRPC call of `method`: `Enroll`, `Renew` or `Session`.
pub(crate) fn call(method: &str) -> http::Request<()> {
    http::Request::post(format!(
        "https://controller.atoll.dev/atoll.agent.v1.AgentService/{method}"
    ))
    .header("content-type", "application/grpc")
    .header("te", "trailers")
    .body(())
    .unwrap()
}

/// The prefix of a gRPC message with its length.
pub(crate) fn prefix(length: u32) -> Bytes {
    let mut prefix = vec![0];
    prefix.extend(length.to_be_bytes());
    prefix.into()
}

/// The generated gRPC client.
pub(crate) async fn grpc(
    address: SocketAddr,
    identity: Option<&MemberIdentity>,
) -> Result<AgentServiceClient<Channel>, ChannelError> {
    let stream = TcpStream::connect(address).await.map_err(ChannelError::Handshake)?;
    Ok(transport::client(transport::channel(stream, config(identity, &TLS13)).await?))
}

/// A Hello of an honest agent without any objects.
pub(crate) fn hello(member: &StolenMember) -> v1::Hello {
    let honest = Store::default().hello(&member.identity.cluster_uid().to_string(), "", 1);
    v1::Hello { member_uid: member.member_uid.clone(), ..honest }
}

/// A member's session.
pub(crate) struct Session(stub::Session);

impl Session {
    /// Opens a session with this certificate, and sends Hello and then heartbeats, so that the session outlives long
    /// waits of a test. The answer is not read yet.
    pub(crate) async fn open(
        address: SocketAddr,
        identity: &MemberIdentity,
        hello: v1::Hello,
    ) -> Result<Self, Status> {
        let client = grpc(address, Some(identity)).await;
        let client = client.map_err(|error| Status::from_error(error.into()))?;
        let session = stub::Session::open(client, hello).await?;
        session.keep_alive(BEAT);
        Ok(Self(session))
    }

    /// Sends a message; returns whether the session still accepts any.
    pub(crate) async fn say(&self, message: Say) -> bool {
        self.0.send(message).await
    }

    /// A handle that sends further messages.
    pub(crate) fn outgoing(&self) -> mpsc::Sender<v1::AgentMessage> {
        self.0.outgoing.clone()
    }

    /// The controller's next message, or how the session ended.
    pub(crate) async fn next(&mut self) -> Result<Hear, Status> {
        timeout(LIMIT, self.0.next()).await.expect("a message or an end in time")
    }

    /// How the session ends, skipping all messages before that.
    pub(crate) async fn end(&mut self) -> Status {
        loop {
            if let Err(status) = self.next().await {
                return status;
            }
        }
    }
}

fn config(
    identity: Option<&MemberIdentity>,
    version: &'static SupportedProtocolVersion,
) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer));
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let leaf = identity.chain().iter().take(1).cloned().collect();
            builder.with_client_auth_cert(leaf, identity.key().unwrap()).unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

/// Accepts any server certificate.
#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        // A server that gets here speaks TLS 1.2: the tests expect that none does.
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let provider = rustls::crypto::ring::default_provider();
        provider.signature_verification_algorithms.supported_schemes()
    }
}
