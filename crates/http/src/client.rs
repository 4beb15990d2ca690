//! Calls to HTTPS servers that users name: TLS with authorities of their own, no redirects, answers of bounded size.
//! Time limits are the caller's. Plain HTTP only where the caller asks for it.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::tls::{TlsError, provider};

const JSON: &str = "application/json";
/// Time limit of a TCP connection: below the limit of any call, so that the error names the cause.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an idle connection is kept for the next call.
const IDLE: Duration = Duration::from_secs(60);
/// Idle connections to one server.
const IDLE_CONNECTIONS: usize = 4;
/// Characters of an error page that are kept.
const SHOWN: usize = 200;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The request could not be sent, or its answer did not begin. The text has all causes.
    #[error("{0}")]
    Transport(String),
    /// The server refused the request.
    #[error("HTTP status {}: {text}", .status.as_u16())]
    Status {
        /// The status.
        status: StatusCode,
        /// The beginning of the answer.
        text: String,
    },
    /// The answer is too large.
    #[error("the answer has more than {0} bytes")]
    TooLarge(usize),
    /// The answer ended early.
    #[error("the answer is incomplete: {0}")]
    Incomplete(String),
}

/// A client for servers whose certificates some authorities issued.
#[derive(Debug, Clone)]
pub struct JsonClient(Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

impl JsonClient {
    /// A client that trusts the authorities in a PEM text, and no others.
    ///
    /// # Errors
    /// The text has no certificate, or one that is none.
    pub fn new(authorities: &[u8]) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authorities) {
            roots.add(certificate.map_err(TlsError::Pem)?).map_err(TlsError::Authority)?;
        }
        if roots.is_empty() {
            return Err(TlsError::NoAuthority);
        }
        Self::over(roots, false)
    }

    /// A client for servers without TLS. It trusts no authority.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn plain() -> Result<Self, TlsError> {
        Self::over(RootCertStore::empty(), true)
    }

    fn over(roots: RootCertStore, plain: bool) -> Result<Self, TlsError> {
        let tls = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Settings)?
            .with_root_certificates(Arc::new(roots))
            .with_no_client_auth();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT));
        let https = HttpsConnectorBuilder::new().with_tls_config(tls);
        let https = if plain { https.https_or_http() } else { https.https_only() };
        let https = https.enable_http1().wrap_connector(tcp);
        let mut client = Client::builder(TokioExecutor::new());
        client.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE);
        client.pool_max_idle_per_host(IDLE_CONNECTIONS);
        Ok(Self(client.build(https)))
    }

    /// Posts a JSON text and returns the answer, of at most `most` bytes. To drop the future ends the call.
    ///
    /// # Errors
    /// The server cannot be reached, is not trusted, refuses the request, or answers too much.
    pub async fn post(&self, url: &Uri, body: Bytes, most: usize) -> Result<Bytes, CallError> {
        let request = Request::post(url)
            .header(CONTENT_TYPE, JSON)
            .header(ACCEPT, JSON)
            .body(Full::new(body))
            .map_err(|error| CallError::Transport(error.to_string()))?;
        let answer = self.0.request(request).await;
        let answer = answer.map_err(|error| CallError::Transport(causes(&error)))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), most).collect().await;
        match body.map(http_body_util::Collected::to_bytes) {
            Ok(body) if status == StatusCode::OK => Ok(body),
            Ok(body) => {
                let text = String::from_utf8_lossy(&body);
                let text = text.chars().filter(|c| !c.is_control()).take(SHOWN).collect();
                Err(CallError::Status { status, text })
            }
            Err(error) if error.is::<LengthLimitError>() => Err(CallError::TooLarge(most)),
            Err(error) => Err(CallError::Incomplete(causes(&*error))),
        }
    }
}

/// An error with its causes: the outermost one of a failed connection names none.
fn causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.ends_with(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}
