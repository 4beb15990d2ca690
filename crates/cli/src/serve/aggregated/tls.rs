//! The server's certificate, from Atoll's own authority, and client certificates from the front proxy's.

use std::sync::Arc;
use std::time::Duration;

use atoll_api::Clock;
use atoll_http::tls::{self, ServerCertificate, TlsError};
use atoll_protocol::authorities::Authorities;
use atoll_protocol::ca::CertificateAuthority;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::proxy::FrontProxy;

/// Renewal interval: a third of the certificate's lifetime.
const RENEW: Duration = Duration::from_secs(30 * 24 * 3600);

/// The certificate for these names.
///
/// # Errors
/// When it cannot be issued.
pub(super) fn issue(
    authority: &CertificateAuthority,
    names: &[String],
    clock: &Clock,
) -> anyhow::Result<Arc<ServerCertificate>> {
    let (issued, key) = authority.issue_server(names, clock.now())?;
    Ok(ServerCertificate::new(issued.chain, key)?)
}

/// Renews the certificate before it expires and when the authority changes, until the token is cancelled.
pub(super) async fn renew(
    certificate: Arc<ServerCertificate>,
    mut authorities: watch::Receiver<Option<Arc<Authorities>>>,
    names: &[String],
    clock: &Clock,
    token: CancellationToken,
) {
    let renewed = |authority: &CertificateAuthority| -> anyhow::Result<()> {
        let (issued, key) = authority.issue_server(names, clock.now())?;
        Ok(certificate.replace(issued.chain, key)?)
    };
    loop {
        tokio::select! {
            biased;
            () = token.cancelled() => return,
            Ok(()) = authorities.changed() => (),
            () = tokio::time::sleep(RENEW) => (),
        }
        let Some(known) = authorities.borrow_and_update().clone() else { continue };
        if let Err(error) = renewed(known.signing()) {
            let error = format!("{error:#}");
            tracing::error!(error, "the certificate of the aggregated API was not renewed");
        }
    }
}

/// The listener's settings: this certificate, and client certificates of the front proxy's authority. A client without
/// one reaches only the health paths.
///
/// # Errors
/// When rustls rejects the settings.
pub(super) fn config(
    certificate: Arc<ServerCertificate>,
    proxy: Arc<FrontProxy>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let algorithms = tls::provider().signature_verification_algorithms;
    tls::server_config(certificate, Arc::new(ProxyVerifier { proxy, algorithms }))
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
            return Err(Error::General(
                "the hub has not named the authority of its front proxy yet".to_owned(),
            ));
        };
        trust.verifier.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not supported".to_owned()))
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
