//! The server's certificate, from Atoll's own authority, and client certificates from the front proxy's.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::Context;
use atoll_api::Clock;
use atoll_protocol::ca::CertificateAuthority;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme};
use tokio_util::sync::CancellationToken;

use super::proxy::FrontProxy;

/// Renewal interval: a third of the certificate's lifetime.
const RENEW: Duration = Duration::from_secs(30 * 24 * 3600);

/// The current serving certificate.
#[derive(Debug)]
pub(super) struct Certificate(RwLock<Arc<CertifiedKey>>);

impl Certificate {
    /// Issues a certificate for these names.
    pub(super) fn issue(
        authority: &CertificateAuthority,
        names: &[String],
        clock: &Clock,
    ) -> anyhow::Result<Self> {
        Ok(Self(RwLock::new(key(authority, names, clock)?)))
    }

    /// Renews it before it expires, until the token is cancelled.
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

/// TLS with this certificate; accepts client certificates of the front proxy's authority. A client without one reaches
/// only the health paths. TLS 1.3 only: kube-apiserver supports it since Go 1.13.
pub(super) fn config(certificate: Arc<Certificate>, proxy: Arc<FrontProxy>) -> Arc<ServerConfig> {
    let mut config = ServerConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
        .with_client_cert_verifier(Arc::new(ProxyVerifier {
            proxy,
            algorithms: rustls::crypto::ring::default_provider().signature_verification_algorithms,
        }))
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

/// Verifies against the authority that the hub currently names.
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
        // The authority may change; without a hint clients send any certificate they have.
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
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken".to_owned()))
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

#[cfg(test)]
mod tests {
    use std::io;

    use atoll_protocol::identity::TrustDomain;
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection, version};

    use super::*;

    const NAME: &str = "atoll-api.atoll-system.svc";

    /// Runs a handshake between a client of this version and the server, in memory.
    fn handshake(version: &'static rustls::SupportedProtocolVersion) -> Result<(), String> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let clock = Clock::system();
        let domain = TrustDomain::new("atoll.test").unwrap();
        let authority = CertificateAuthority::create(&domain, clock.now()).unwrap();
        let certificate = Certificate::issue(&authority, &[NAME.to_owned()], &clock).unwrap();
        let server = config(Arc::new(certificate), Arc::new(FrontProxy::default()));
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate().clone()).unwrap();
        let client = ClientConfig::builder_with_protocol_versions(&[version])
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(NAME).unwrap();
        let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
        let mut server = ServerConnection::new(server).unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            let mut flight = Vec::new();
            client.write_tls(&mut flight).unwrap();
            server.read_tls(&mut io::Cursor::new(flight)).unwrap();
            server.process_new_packets().map_err(|error| error.to_string())?;
            let mut flight = Vec::new();
            server.write_tls(&mut flight).unwrap();
            client.read_tls(&mut io::Cursor::new(flight)).unwrap();
            client.process_new_packets().map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    #[test]
    fn a_client_that_speaks_tls_1_2_alone_is_refused() {
        assert_eq!(handshake(&version::TLS13), Ok(()));
        let refused = handshake(&version::TLS12).unwrap_err();
        assert!(refused.contains("Tls12"), "{refused}");
    }
}
