//! The server's certificate, of Atoll's own authority, and the clients', of the front proxy's.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::Context;
use atoll_api::Clock;
use atoll_protocol::ca::CertificateAuthority;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme};
use tokio_util::sync::CancellationToken;

use super::proxy::FrontProxy;

/// How often the certificate is made anew: a third of its life.
const RENEW: Duration = Duration::from_secs(30 * 24 * 3600);

/// The certificate that is shown now.
#[derive(Debug)]
pub(super) struct Certificate(RwLock<Arc<CertifiedKey>>);

impl Certificate {
    /// Makes one for these names.
    pub(super) fn issue(
        authority: &CertificateAuthority,
        names: &[String],
        clock: &Clock,
    ) -> anyhow::Result<Self> {
        Ok(Self(RwLock::new(key(authority, names, clock)?)))
    }

    /// Makes it anew in time, until the token ends it.
    pub(super) async fn renew(
        &self,
        authority: &CertificateAuthority,
        names: &[String],
        clock: &Clock,
        token: CancellationToken,
    ) {
        while token.run_until_cancelled(tokio::time::sleep(RENEW)).await.is_some() {
            match key(authority, names, clock) {
                Ok(key) => *self.0.write().unwrap_or_else(PoisonError::into_inner) = key,
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::error!(error, "the aggregated API keeps its certificate");
                }
            }
        }
    }
}

fn key(
    authority: &CertificateAuthority,
    names: &[String],
    clock: &Clock,
) -> anyhow::Result<Arc<CertifiedKey>> {
    let (issued, key) = authority.issue_server(names, clock.now())?;
    let provider = rustls::crypto::ring::default_provider();
    let key = CertifiedKey::from_der(issued.chain, key, &provider).context("use the new key")?;
    Ok(Arc::new(key))
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// Shows the certificate, and takes client certificates of the front proxy's authority. Without one a client gets no
/// further than the health paths.
pub(super) fn config(certificate: Arc<Certificate>, proxy: Arc<FrontProxy>) -> Arc<ServerConfig> {
    let mut config = ServerConfig::builder()
        .with_client_cert_verifier(Arc::new(ProxyVerifier {
            proxy,
            algorithms: rustls::crypto::ring::default_provider().signature_verification_algorithms,
        }))
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

/// Checks by the authority that the hub names now.
#[derive(Debug)]
struct ProxyVerifier {
    proxy: Arc<FrontProxy>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for ProxyVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // The authority may change; without a hint clients send what they have.
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let Some(trust) = self.proxy.trust() else {
            return Err(Error::General("the hub has not said whom to believe".to_owned()));
        };
        trust.verifier.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
