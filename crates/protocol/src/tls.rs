//! TLS 1.3 on both ends, with `ring`, using the caller's clock.
//!
//! Peers are not identified by DNS names or addresses: the controller is the peer with a certificate of the authority
//! for `spiffe://<trust domain>/controller`, so an agent reaches it through any proxy, port or tunnel.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use atoll_api::Clock;
use jiff::Timestamp;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, ServerConnection,
    SignatureScheme,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use crate::ca::{CaError, CertificateAuthority, CertificateFacts, PublicKeyHash};
use crate::identity::{SpiffeId, TrustDomain};
use crate::member::{MemberError, MemberIdentity};

/// HTTP/2 only, as gRPC requires.
const ALPN: &[u8] = b"h2";
/// A connection on which the roles of HTTP/2 are reversed (see [`crate::tunnel`]).
const ALPN_TUNNEL: &[u8] = b"atoll-tunnel/1";
/// A connection on which a controller passes requests of users on to the leader.
const ALPN_FORWARD: &[u8] = b"atoll-forward/1";

/// What a connection to the controller is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Calls of agents.
    Calls,
    /// A member's tunnel.
    Tunnel,
    /// Requests that another controller passes on.
    Forward,
}
/// Followed by the hash of the authority that the client trusts: a name that the server never selects. It says which of
/// the server's certificates the client can verify while one authority replaces another.
const ALPN_AUTHORITY: &str = "atoll-ca/";

/// Why a TLS configuration could not be built.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// rustls rejected a key, a certificate or a version.
    #[error("set up TLS")]
    Setup(#[source] rustls::Error),
    /// The verifier of client certificates could not be built.
    #[error("set up the verification of client certificates")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
    /// A certificate could not be issued.
    #[error("issue a certificate")]
    Issue(#[from] CaError),
    /// The member's identity cannot be used.
    #[error("use the member's identity")]
    Identity(#[from] MemberError),
}

/// Wall time for rustls from a [`Clock`], at least `floor`: an agent whose clock is before the issue of its own
/// certificate uses the time of issue.
#[derive(Debug)]
struct ClockTime {
    clock: Clock,
    floor: Option<Timestamp>,
}

impl TimeProvider for ClockTime {
    fn current_time(&self) -> Option<UnixTime> {
        let now = self.clock.now();
        unix_time(self.floor.map_or(now, |floor| now.max(floor)))
    }
}

fn unix_time(time: Timestamp) -> Option<UnixTime> {
    let seconds = u64::try_from(time.as_second()).ok()?;
    Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn roots(authority: &CertificateDer<'_>) -> Result<RootCertStore, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone().into_owned())?;
    Ok(roots)
}

/// The controller's certificates, one of each trusted authority, which can be replaced while connections are up.
#[derive(Debug)]
pub struct ServerCertificate(RwLock<Vec<Presented>>);

/// A certificate of the controller.
#[derive(Debug)]
struct Presented {
    /// What a client that trusts its authority offers.
    hint: Vec<u8>,
    key: Arc<CertifiedKey>,
}

/// A chain, leaf first, then the authority (enrolling agents learn it from here), and the leaf's key.
pub type ChainAndKey = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl ServerCertificate {
    /// Starts with this certificate.
    ///
    /// # Errors
    /// When key and certificate do not belong together.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Arc<Self>, TlsError> {
        Self::of_each(vec![(chain, key)])
    }

    /// Starts with a certificate of each authority, that of the oldest first: it is for clients that do not say which
    /// one they trust.
    ///
    /// # Errors
    /// When key and certificate do not belong together.
    pub fn of_each(certificates: Vec<ChainAndKey>) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self(RwLock::new(presented(certificates)?))))
    }

    /// Uses these certificates for new handshakes.
    ///
    /// # Errors
    /// When key and certificate do not belong together; the old certificates stay in use.
    pub fn replace(&self, certificates: Vec<ChainAndKey>) -> Result<(), TlsError> {
        let fresh = presented(certificates)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }
}

fn presented(certificates: Vec<ChainAndKey>) -> Result<Vec<Presented>, TlsError> {
    let each = certificates.into_iter().map(|(chain, key)| {
        let authority = chain.get(1).map(CertificateFacts::read).transpose();
        let authority = authority.map_err(|error| TlsError::Identity(error.into()))?;
        let hint = authority.map(|facts| hint(facts.public_key)).unwrap_or_default();
        Ok(Presented { hint, key: certified(chain, key)? })
    });
    each.collect()
}

/// What a client offers that trusts the authority with this key.
fn hint(authority: PublicKeyHash) -> Vec<u8> {
    format!("{ALPN_AUTHORITY}{authority}").into_bytes()
}

fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<CertifiedKey>, TlsError> {
    let key = CertifiedKey::from_der(chain, key, &provider()).map_err(TlsError::Setup)?;
    key.keys_match().map_err(TlsError::Setup)?;
    Ok(Arc::new(key))
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let certificates = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let offered: Vec<_> = hello.alpn().into_iter().flatten().collect();
        let wanted = certificates.iter().find(|one| offered.contains(&one.hint.as_slice()));
        wanted.or_else(|| certificates.first()).map(|one| one.key.clone())
    }
}

/// The controller's end: TLS 1.3, optional client certificates of these authorities (an enrolling agent has none), no
/// resumption, so that every connection presents its certificate.
///
/// # Errors
/// When an authority's certificate cannot be used.
pub fn server_config(
    authorities: &[&CertificateDer<'_>],
    certificate: Arc<ServerCertificate>,
    clock: Clock,
) -> Result<Arc<ServerConfig>, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add((*authority).clone().into_owned()).map_err(TlsError::Setup)?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .allow_unauthenticated()
        .build()
        .map_err(TlsError::Verifier)?;
    let time = Arc::new(ClockTime { clock, floor: None });
    let mut config = ServerConfig::builder_with_details(provider(), time)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(TlsError::Setup)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![ALPN.to_vec(), ALPN_TUNNEL.to_vec(), ALPN_FORWARD.to_vec()];
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// An agent's end before it has a certificate: the authority must have this public key, and the peer must be its
/// controller. Otherwise the handshake fails, before a secret is sent.
///
/// # Errors
/// When rustls rejects the settings.
pub fn enrolment_config(
    authority: PublicKeyHash,
    clock: Clock,
) -> Result<Arc<ClientConfig>, TlsError> {
    let config = client_builder(ControllerVerifier { authority, trust_domain: None }, clock, None)?
        .with_no_client_auth();
    Ok(finished(config, ALPN, authority))
}

/// An agent's end after enrolment: presents its certificate, and requires the controller of the same authority.
///
/// # Errors
/// When the identity's key or chain cannot be used.
pub fn member_config(
    identity: &MemberIdentity,
    clock: Clock,
) -> Result<Arc<ClientConfig>, TlsError> {
    configured(identity, clock, ALPN)
}

/// The same for the connection of a member's tunnel.
///
/// # Errors
/// When the identity's key or chain cannot be used.
pub fn tunnel_config(
    identity: &MemberIdentity,
    clock: Clock,
) -> Result<Arc<ClientConfig>, TlsError> {
    configured(identity, clock, ALPN_TUNNEL)
}

/// A controller's end of a connection to the leader: presents a certificate of the controller's identity, and requires
/// the same identity of the same authority.
///
/// # Errors
/// When no certificate can be issued.
pub fn forward_config(
    authority: &CertificateAuthority,
    clock: Clock,
) -> Result<Arc<ClientConfig>, TlsError> {
    let verifier = ControllerVerifier {
        authority: authority.hash(),
        trust_domain: Some(authority.trust_domain().clone()),
    };
    let (issued, key) = authority.issue_forwarder(clock.now())?;
    let leaf = issued.chain.into_iter().take(1).collect();
    let config = client_builder(verifier, clock, None)?
        .with_client_auth_cert(leaf, key)
        .map_err(TlsError::Setup)?;
    Ok(finished(config, ALPN_FORWARD, authority.hash()))
}

fn configured(
    identity: &MemberIdentity,
    clock: Clock,
    protocol: &[u8],
) -> Result<Arc<ClientConfig>, TlsError> {
    let authority = identity.authority_hash()?;
    let verifier =
        ControllerVerifier { authority, trust_domain: Some(identity.trust_domain().clone()) };
    // Without the authority's certificate: the controller has it.
    let leaf = identity.chain().iter().take(1).cloned().collect();
    let config = client_builder(verifier, clock, Some(identity.facts().not_before))?
        .with_client_auth_cert(leaf, identity.key()?)
        .map_err(TlsError::Setup)?;
    Ok(finished(config, protocol, authority))
}

fn client_builder(
    verifier: ControllerVerifier,
    clock: Clock,
    floor: Option<Timestamp>,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>, TlsError> {
    let time = Arc::new(ClockTime { clock, floor });
    Ok(ClientConfig::builder_with_details(provider(), time)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(TlsError::Setup)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier)))
}

fn finished(
    mut config: ClientConfig,
    protocol: &[u8],
    authority: PublicKeyHash,
) -> Arc<ClientConfig> {
    config.alpn_protocols = vec![protocol.to_vec(), hint(authority)];
    config.resumption = rustls::client::Resumption::disabled();
    Arc::new(config)
}

/// Accepts only the controller of the authority with this public key.
#[derive(Debug)]
struct ControllerVerifier {
    authority: PublicKeyHash,
    /// `None` before enrolment: the trust domain is not known yet.
    trust_domain: Option<TrustDomain>,
}

impl ServerCertVerifier for ControllerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let refused = |why: &'static str| rustls::Error::General(why.to_owned());
        let authority = intermediates
            .iter()
            .find(|der| {
                CertificateFacts::read(der).is_ok_and(|facts| facts.public_key == self.authority)
            })
            .ok_or_else(|| refused("the server's authority is not the expected one (--ca-hash)"))?;
        rustls::client::verify_server_cert_signed_by_trust_anchor(
            &ParsedCertificate::try_from(end_entity)?,
            &roots(authority)?,
            &[],
            now,
            algorithms().all,
        )?;
        let id = CertificateFacts::read(end_entity)
            .map_err(|_| refused("the server's certificate has no Atoll identity"))?
            .id;
        match (&id, &self.trust_domain) {
            (SpiffeId::Controller(_), None) => Ok(ServerCertVerified::assertion()),
            (SpiffeId::Controller(domain), Some(expected)) if domain == expected => {
                Ok(ServerCertVerified::assertion())
            }
            (SpiffeId::Controller(_), _) => {
                Err(refused("the server belongs to another trust domain"))
            }
            _ => Err(refused("the server is not the controller")),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not supported".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        algorithms().supported_schemes()
    }
}

fn algorithms() -> WebPkiSupportedAlgorithms {
    provider().signature_verification_algorithms
}

/// Whether the holder of this public key (the bits of a SubjectPublicKeyInfo) made this signature.
pub(crate) fn is_signed(public_key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let mut all = algorithms().all.iter();
    all.any(|algorithm| algorithm.verify_signature(public_key, message, signature).is_ok())
}

/// Which of these authorities signed the certificate that the peer of this connection presented.
#[must_use]
pub fn issuer<'a>(
    connection: &ServerConnection,
    authorities: impl Iterator<Item = &'a CertificateAuthority>,
) -> Option<PublicKeyHash> {
    let leaf = connection.peer_certificates()?.first()?;
    let issued = CertificateFacts::read(leaf).ok()?.not_before;
    let mut authorities = authorities;
    let issuer = authorities
        .find(|authority| check_client_chain(leaf, authority.certificate(), issued).is_ok());
    issuer.map(CertificateAuthority::hash)
}

/// Whether `authority` signed `leaf` for use as a client certificate.
pub(crate) fn check_client_chain(
    leaf: &CertificateDer<'_>,
    authority: &CertificateDer<'_>,
    at: Timestamp,
) -> Result<(), TlsError> {
    let roots = Arc::new(roots(authority).map_err(TlsError::Setup)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
        .build()
        .map_err(TlsError::Verifier)?;
    let at = unix_time(at).ok_or(TlsError::Setup(rustls::Error::FailedToGetCurrentTime))?;
    verifier.verify_client_cert(leaf, &[], at).map_err(TlsError::Setup)?;
    Ok(())
}

/// What the peer opened this connection for.
#[must_use]
pub fn purpose(connection: &ServerConnection) -> Purpose {
    match connection.alpn_protocol() {
        Some(ALPN_TUNNEL) => Purpose::Tunnel,
        Some(ALPN_FORWARD) => Purpose::Forward,
        _ => Purpose::Calls,
    }
}

/// The peer's identity after a handshake; `None` without a certificate.
///
/// # Errors
/// When the certificate, although signed by the authority, has no Atoll identity.
pub fn peer(connection: &ServerConnection) -> Result<Option<CertificateFacts>, crate::ca::CaError> {
    connection.peer_certificates().and_then(<[_]>::first).map(CertificateFacts::read).transpose()
}
