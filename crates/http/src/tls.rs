//! TLS settings of servers: TLS 1.3 with ring, HTTP/2 and HTTP/1.1, optional client certificates.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// ALPN name of HTTP/2.
pub(crate) const ALPN_HTTP2: &[u8] = b"h2";
const ALPN_HTTP1: &[u8] = b"http/1.1";

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A certificate is not PEM.
    #[error("parse a PEM certificate")]
    Pem(#[source] pem::Error),
    /// A certificate cannot be an authority.
    #[error("use a certificate as authority")]
    Authority(#[source] rustls::Error),
    /// There is no authority to verify a server's certificate with.
    #[error("it has no certificate in PEM")]
    NoAuthority,
    /// There is no authority to verify client certificates with.
    #[error("set up the verification of client certificates")]
    Verifier(#[source] VerifierBuilderError),
    /// Certificate and key cannot be used together.
    #[error("use the certificate and its key")]
    Certificate(#[source] rustls::Error),
    /// rustls rejects the settings.
    #[error("set up TLS")]
    Settings(#[source] rustls::Error),
}

/// The one crypto provider of Atoll.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A server's certificate, which can be replaced while connections are open.
#[derive(Debug)]
pub struct ServerCertificate(RwLock<Arc<CertifiedKey>>);

impl ServerCertificate {
    /// A certificate chain, leaf first, with the leaf's key.
    ///
    /// # Errors
    /// When certificate and key do not belong together.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self(RwLock::new(certified(chain, key)?))))
    }

    /// Uses another certificate for new handshakes.
    ///
    /// # Errors
    /// When certificate and key do not belong together; the old certificate stays in use.
    pub fn replace(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<(), TlsError> {
        let fresh = certified(chain, key)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }
}

fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<CertifiedKey>, TlsError> {
    let key = CertifiedKey::from_der(chain, key, &provider()).map_err(TlsError::Certificate)?;
    Ok(Arc::new(key))
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// Verifies client certificates against the authorities of a PEM bundle. A client may also present none.
///
/// # Errors
/// When the bundle has no certificate, or one that cannot be used.
pub fn client_verifier(authorities: &str) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        roots.add(certificate.map_err(TlsError::Pem)?).map_err(TlsError::Authority)?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .allow_unauthenticated()
        .build()
        .map_err(TlsError::Verifier)
}

/// The settings of a listener. TLS 1.3 only: kubectl and kube-apiserver support it since Go 1.13.
///
/// # Errors
/// When rustls rejects them.
pub fn server_config(
    certificate: Arc<ServerCertificate>,
    clients: Arc<dyn ClientCertVerifier>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(TlsError::Settings)?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![ALPN_HTTP2.to_vec(), ALPN_HTTP1.to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use std::io;

    use rustls::{
        ClientConfig, ClientConnection, ServerConnection, SupportedProtocolVersion, version,
    };
    use rustls_pki_types::ServerName;

    use super::*;

    const NAME: &str = "atoll-api.atoll-system.svc";

    /// Runs a handshake between a client of this version and a server, in memory.
    fn handshake(version: &'static SupportedProtocolVersion) -> Result<(), String> {
        let issued = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(issued.signing_key.serialize_der()).unwrap();
        let certificate = ServerCertificate::new(vec![issued.cert.der().clone()], key).unwrap();
        let clients = client_verifier(&issued.cert.pem()).unwrap();
        let server = server_config(certificate, clients).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(issued.cert.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[version])
            .unwrap()
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
    fn a_client_that_offers_only_tls_1_2_is_refused() {
        assert_eq!(handshake(&version::TLS13), Ok(()));
        let refused = handshake(&version::TLS12).unwrap_err();
        assert!(refused.contains("Tls12"), "{refused}");
    }

    #[test]
    fn a_bundle_without_an_authority_is_an_error() {
        assert!(matches!(client_verifier(""), Err(TlsError::Verifier(_))));
        let damaged = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
        assert!(matches!(client_verifier(damaged), Err(TlsError::Pem(_))));
    }
}
