//! The federation's certificate authority: created once, stored in a Secret of the hub, signs members' requests.
//!
//! Only the public key of a member's request is used. Identity, lifetime and usages are set here.

use std::fmt;
use std::str::FromStr;

use atoll_api::hex;
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData,
    SanType, SerialNumber,
};
use ring::rand::{SecureRandom, SystemRandom};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateSigningRequestDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::time::ASN1Time;

use crate::identity::{ClusterUid, IdentityError, SpiffeId, TrustDomain};

/// Lifetime of a member's certificate. Renewed daily, so an agent may be offline for six days.
pub const MEMBER_LIFE: SignedDuration = SignedDuration::from_hours(7 * 24);
/// Lifetime of the controller's own certificate. Long, because agents verify it with clocks that may be wrong.
pub const CONTROLLER_LIFE: SignedDuration = SignedDuration::from_hours(90 * 24);
/// Lifetime of the certificate with which a controller passes requests on to the leader. It is issued for each
/// connection.
const FORWARDER_LIFE: SignedDuration = SignedDuration::from_hours(24);
/// Lifetime of the authority: ten years. Every member's trust depends on its key; `atoll ca rotate` replaces it.
const AUTHORITY_LIFE: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);
/// How far `notBefore` of a member's certificate precedes its issue: the allowed clock difference between two
/// controller replicas.
pub const MEMBER_BACKDATE: SignedDuration = SignedDuration::from_secs(60);
/// The same for certificates that agents verify: their clocks may be a day behind.
const SERVER_BACKDATE: SignedDuration = SignedDuration::from_hours(24);
/// Random bytes of a serial number (CA/Browser Forum: at least 8; RFC 5280: at most 20).
const SERIAL_BYTES: usize = 16;
/// Limit of a certificate request in bytes. One with a P-256 key has about 250.
const MAX_REQUEST: usize = 8 * 1024;

/// `sha256:<64 hex>` of a public key (SubjectPublicKeyInfo, DER), in the same form as `kubeadm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKeyHash([u8; 32]);

/// Errors of the authority.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// A key or certificate could not be created.
    #[error("make a certificate")]
    Make(#[source] rcgen::Error),
    /// The operating system returned no random numbers.
    #[error("the operating system's random number generator failed")]
    Random,
    /// A time before 1950 or after 9999.
    #[error("time {0} is out of the range of certificates")]
    Time(Timestamp),
    /// The stored certificate or key is damaged, or they do not belong together.
    #[error("the authority's {0} cannot be used: restore the Secret from a backup")]
    Stored(&'static str),
    /// A certificate without exactly one URI name of Atoll's.
    #[error("a certificate must have exactly one subject alternative name, a SPIFFE id")]
    Names,
    /// The URI name is not a valid identity.
    #[error("read the identity of a certificate")]
    Identity(#[from] IdentityError),
    /// The request is not a PKCS#10 request with a good signature and a key of a known kind.
    #[error("csr_der is not a certificate request (PKCS#10, DER) signed by its own key")]
    Request,
    /// The request contains an identity or an extension.
    #[error("csr_der must have no {0}: the controller sets the identity")]
    RequestNames(&'static str),
}

/// A key and its self-signed certificate.
pub struct CertificateAuthority {
    trust_domain: TrustDomain,
    certificate: CertificateDer<'static>,
    certificate_pem: String,
    key_pem: String,
    issuer: Issuer<'static, KeyPair>,
    hash: PublicKeyHash,
}

/// The result of signing a request.
#[derive(Debug, Clone)]
pub struct Issued {
    /// Leaf first, then the authority.
    pub chain: Vec<CertificateDer<'static>>,
    /// Hash of the certified public key.
    pub public_key: PublicKeyHash,
    /// End of its validity.
    pub not_after: Timestamp,
}

/// The facts in a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFacts {
    /// The identity that it certifies.
    pub id: SpiffeId,
    /// Hash of its public key.
    pub public_key: PublicKeyHash,
    /// Start of its validity.
    pub not_before: Timestamp,
    /// End of its validity.
    pub not_after: Timestamp,
}

impl CertificateAuthority {
    /// Creates an authority for this trust domain.
    ///
    /// # Errors
    /// When the operating system returns no random numbers.
    pub fn create(trust_domain: &TrustDomain, now: Timestamp) -> Result<Self, CaError> {
        let key = KeyPair::generate().map_err(CaError::Make)?;
        let id = SpiffeId::Authority(trust_domain.clone());
        let mut params = params(&id, now, SERVER_BACKDATE, AUTHORITY_LIFE)?;
        params.distinguished_name.push(DnType::CommonName, format!("Atoll {trust_domain}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(CaError::Make)?;
        Self::from_pem(&certificate.pem(), &key.serialize_pem())
    }

    /// Loads a stored authority.
    ///
    /// # Errors
    /// When they are damaged or do not belong together.
    pub fn from_pem(certificate_pem: &str, key_pem: &str) -> Result<Self, CaError> {
        let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes())
            .map_err(|_| CaError::Stored("certificate"))?
            .into_owned();
        let key = KeyPair::from_pem(key_pem).map_err(|_| CaError::Stored("key"))?;
        let facts = CertificateFacts::read(&certificate)?;
        let SpiffeId::Authority(trust_domain) = facts.id else {
            return Err(CaError::Stored("certificate"));
        };
        if PublicKeyHash::of(&key.subject_public_key_info()) != facts.public_key {
            return Err(CaError::Stored("key"));
        }
        Ok(Self {
            trust_domain,
            issuer: Issuer::from_ca_cert_der(&certificate, key).map_err(CaError::Make)?,
            certificate,
            certificate_pem: certificate_pem.to_owned(),
            key_pem: key_pem.to_owned(),
            hash: facts.public_key,
        })
    }

    /// The trust domain.
    #[must_use]
    pub fn trust_domain(&self) -> &TrustDomain {
        &self.trust_domain
    }

    /// The certificate.
    #[must_use]
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The certificate, to store.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The private key, to store. Never log it.
    #[must_use]
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// The hash that joining agents verify (`--ca-hash`).
    #[must_use]
    pub fn hash(&self) -> PublicKeyHash {
        self.hash
    }

    /// Signs a member's request: its public key, with the identity of `uid`, for [`MEMBER_LIFE`].
    ///
    /// # Errors
    /// A request that is damaged, badly signed, or contains a subject, a name or an extension.
    pub fn sign_member(
        &self,
        csr_der: &[u8],
        uid: &ClusterUid,
        now: Timestamp,
    ) -> Result<Issued, CaError> {
        let public_key = check_request(csr_der)?;
        let id = SpiffeId::Cluster(self.trust_domain.clone(), uid.clone());
        let mut params = params(&id, now, MEMBER_BACKDATE, MEMBER_LIFE)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let hash = PublicKeyHash::of(&public_key.subject_public_key_info());
        let leaf = params.signed_by(&public_key, &self.issuer).map_err(CaError::Make)?;
        Ok(Issued {
            chain: vec![leaf.der().clone(), self.certificate.clone()],
            public_key: hash,
            not_after: after(now, MEMBER_LIFE)?,
        })
    }

    /// A key and certificate for the controller's own listener.
    ///
    /// # Errors
    /// When the operating system returns no random numbers.
    pub fn issue_controller(
        &self,
        now: Timestamp,
    ) -> Result<(Issued, PrivateKeyDer<'static>), CaError> {
        let id = SpiffeId::Controller(self.trust_domain.clone());
        self.serve_as(params(&id, now, SERVER_BACKDATE, CONTROLLER_LIFE)?, now)
    }

    /// A key and certificate for a controller as a client of the leader. It cannot serve, so no agent accepts it.
    ///
    /// # Errors
    /// When the operating system returns no random numbers.
    pub fn issue_forwarder(
        &self,
        now: Timestamp,
    ) -> Result<(Issued, PrivateKeyDer<'static>), CaError> {
        let id = SpiffeId::Controller(self.trust_domain.clone());
        let mut params = params(&id, now, SERVER_BACKDATE, FORWARDER_LIFE)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(&params, after(now, FORWARDER_LIFE)?)
    }

    /// A key and certificate for a listener with these DNS names, for clients other than agents. It has no identity, so
    /// no agent accepts it as the controller's.
    ///
    /// # Errors
    /// When a DNS name is invalid, or the operating system returns no random numbers.
    pub fn issue_server(
        &self,
        names: &[String],
        now: Timestamp,
    ) -> Result<(Issued, PrivateKeyDer<'static>), CaError> {
        let id = SpiffeId::Controller(self.trust_domain.clone());
        let mut params = params(&id, now, SERVER_BACKDATE, CONTROLLER_LIFE)?;
        let name = |name: &String| name.clone().try_into().map(SanType::DnsName);
        params.subject_alt_names =
            names.iter().map(name).collect::<Result<_, _>>().map_err(CaError::Make)?;
        self.serve_as(params, now)
    }

    /// A certificate for the key of `successor`, by which those who trust this authority learn to trust that one.
    ///
    /// # Errors
    /// When the operating system returns no random numbers.
    pub(crate) fn endorse(
        &self,
        successor: &Self,
        now: Timestamp,
    ) -> Result<CertificateDer<'static>, CaError> {
        let id = SpiffeId::Authority(successor.trust_domain.clone());
        let mut params = params(&id, now, SERVER_BACKDATE, AUTHORITY_LIFE)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::from_pem(&successor.key_pem).map_err(CaError::Make)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(CaError::Make)?;
        Ok(certificate.der().clone())
    }

    fn serve_as(
        &self,
        mut params: CertificateParams,
        now: Timestamp,
    ) -> Result<(Issued, PrivateKeyDer<'static>), CaError> {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(&params, after(now, CONTROLLER_LIFE)?)
    }

    fn issue(
        &self,
        params: &CertificateParams,
        not_after: Timestamp,
    ) -> Result<(Issued, PrivateKeyDer<'static>), CaError> {
        let key = KeyPair::generate().map_err(CaError::Make)?;
        let leaf = params.signed_by(&key, &self.issuer).map_err(CaError::Make)?;
        let issued = Issued {
            chain: vec![leaf.der().clone(), self.certificate.clone()],
            public_key: PublicKeyHash::of(&key.subject_public_key_info()),
            not_after,
        };
        let key = PrivateKeyDer::try_from(key.serialize_der())
            .map_err(|_| CaError::Stored("controller key"))?;
        Ok((issued, key))
    }
}

impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CertificateAuthority({}, {})", self.trust_domain, self.hash)
    }
}

impl CertificateFacts {
    /// Parses a certificate. TLS verifies its signature, not this function.
    ///
    /// # Errors
    /// When it is damaged or does not have exactly one name, a SPIFFE id.
    pub fn read(certificate: &CertificateDer<'_>) -> Result<Self, CaError> {
        let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| CaError::Names)?;
        let names = parsed.subject_alternative_name().map_err(|_| CaError::Names)?;
        let names = names.map(|extension| extension.value.general_names.as_slice());
        let Some([GeneralName::URI(uri)]) = names else {
            return Err(CaError::Names);
        };
        let validity = parsed.validity();
        let time = |time: ASN1Time| {
            Timestamp::from_second(time.timestamp()).map_err(|_| CaError::Stored("certificate"))
        };
        Ok(Self {
            id: uri.parse()?,
            public_key: PublicKeyHash::of(parsed.public_key().raw),
            not_before: time(validity.not_before)?,
            not_after: time(validity.not_after)?,
        })
    }
}

impl PublicKeyHash {
    /// Hash of a SubjectPublicKeyInfo in DER.
    #[must_use]
    pub fn of(public_key_info: &[u8]) -> Self {
        Self(Sha256::digest(public_key_info).into())
    }
}

impl fmt::Display for PublicKeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex::encode(&self.0))
    }
}

/// The text is not a public key hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a public key hash is `sha256:` and 64 hex digits")]
pub struct PublicKeyHashError;

impl FromStr for PublicKeyHash {
    type Err = PublicKeyHashError;

    fn from_str(text: &str) -> Result<Self, PublicKeyHashError> {
        text.strip_prefix("sha256:").and_then(hex::decode).map(Self).ok_or(PublicKeyHashError)
    }
}

/// The public key of a request, which must contain no names.
fn check_request(csr_der: &[u8]) -> Result<rcgen::PublicKey, CaError> {
    if csr_der.len() > MAX_REQUEST {
        return Err(CaError::Request);
    }
    let (rest, request) =
        X509CertificationRequest::from_der(csr_der).map_err(|_| CaError::Request)?;
    if !rest.is_empty() {
        return Err(CaError::Request);
    }
    if request.certification_request_info.subject.iter().next().is_some() {
        return Err(CaError::RequestNames("subject"));
    }
    let mut asked =
        request.certification_request_info.iter_attributes().flat_map(|attribute| match attribute
            .parsed_attribute()
        {
            ParsedCriAttribute::ExtensionRequest(request) => request.extensions.as_slice(),
            _ => &[],
        });
    if let Some(extension) = asked.next() {
        return Err(CaError::RequestNames(match extension.parsed_extension() {
            ParsedExtension::SubjectAlternativeName(_) => "subject alternative names",
            _ => "extensions",
        }));
    }
    // Also verifies the signature, which proves that the requester holds the key.
    let request =
        CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(csr_der))
            .map_err(|_| CaError::Request)?;
    Ok(request.public_key)
}

/// Parameters of a certificate with this one name and no subject.
fn params(
    id: &SpiffeId,
    now: Timestamp,
    backdate: SignedDuration,
    life: SignedDuration,
) -> Result<CertificateParams, CaError> {
    let mut serial = [0; SERIAL_BYTES];
    SystemRandom::new().fill(&mut serial).map_err(|_| CaError::Random)?;
    // Serial numbers are positive integers.
    serial[0] = serial[0] & 0x7f | 0x40;
    let date = |time: Timestamp| {
        ASN1Time::from_timestamp(time.as_second())
            .map(|time| time.to_datetime())
            .map_err(|_| CaError::Time(time))
    };
    let mut params = CertificateParams::default();
    params.not_before = date(after(now, -backdate)?)?;
    params.not_after = date(after(now, life)?)?;
    params.serial_number = Some(SerialNumber::from(serial.to_vec()));
    params.distinguished_name = DistinguishedName::new();
    params.subject_alt_names =
        vec![SanType::URI(id.to_string().try_into().map_err(CaError::Make)?)];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn after(now: Timestamp, span: SignedDuration) -> Result<Timestamp, CaError> {
    now.checked_add(span).map_err(|_| CaError::Time(now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::KeyRequest;

    fn authority() -> (CertificateAuthority, Timestamp) {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let domain = TrustDomain::new("atoll.local").unwrap();
        (CertificateAuthority::create(&domain, now).unwrap(), now)
    }

    #[test]
    fn a_stored_authority_is_the_same_and_a_foreign_key_is_refused() {
        let (ca, _) = authority();
        let copy = CertificateAuthority::from_pem(ca.certificate_pem(), ca.key_pem()).unwrap();
        assert_eq!(copy.hash(), ca.hash());
        assert_eq!(copy.trust_domain(), ca.trust_domain());
        assert_eq!(ca.hash().to_string().parse(), Ok(ca.hash()));
        let (other, _) = authority();
        assert!(matches!(
            CertificateAuthority::from_pem(ca.certificate_pem(), other.key_pem()),
            Err(CaError::Stored("key"))
        ));
        assert!(!format!("{ca:?}").contains("PRIVATE"));
    }

    #[test]
    fn a_members_certificate_has_our_identity_its_key_and_seven_days() {
        let (ca, now) = authority();
        let uid = ClusterUid::new("u-1").unwrap();
        let request = KeyRequest::generate().unwrap();
        let issued = ca.sign_member(request.csr_der(), &uid, now).unwrap();
        let facts = CertificateFacts::read(&issued.chain[0]).unwrap();
        assert_eq!(facts.id, SpiffeId::Cluster(ca.trust_domain().clone(), uid.clone()));
        assert_eq!(facts.public_key, request.public_key());
        assert_eq!(facts.public_key, issued.public_key);
        assert_eq!(facts.not_after, issued.not_after);
        assert_eq!(facts.not_after.duration_since(now), MEMBER_LIFE);
        assert_eq!(now.duration_since(facts.not_before), MEMBER_BACKDATE);
        let (_, parsed) = X509Certificate::from_der(&issued.chain[0]).unwrap();
        assert!(parsed.subject().iter().next().is_none());
        assert!(!parsed.is_ca());
        let again = ca.sign_member(request.csr_der(), &uid, now).unwrap();
        assert_ne!(again.chain[0], issued.chain[0], "serial numbers differ");
    }

    #[test]
    fn requests_that_name_anything_are_refused() {
        let (ca, now) = authority();
        let uid = ClusterUid::new("u-1").unwrap();
        let key = KeyPair::generate().unwrap();
        let request = |change: fn(&mut CertificateParams)| {
            let mut params = CertificateParams::default();
            params.distinguished_name = DistinguishedName::new();
            change(&mut params);
            params.serialize_request(&key).unwrap().der().to_vec()
        };
        let sign = |csr: &[u8]| ca.sign_member(csr, &uid, now);
        assert!(sign(&request(|_| ())).is_ok());
        let subject = request(|p| p.distinguished_name.push(DnType::CommonName, "system:masters"));
        assert!(matches!(sign(&subject), Err(CaError::RequestNames("subject"))));
        for name in [
            SanType::URI("spiffe://atoll.local/cluster/u-1".try_into().unwrap()),
            SanType::DnsName("atoll".try_into().unwrap()),
        ] {
            let mut params = CertificateParams::default();
            params.distinguished_name = DistinguishedName::new();
            params.subject_alt_names = vec![name];
            let csr = params.serialize_request(&key).unwrap();
            let refused = sign(csr.der());
            assert!(matches!(refused, Err(CaError::RequestNames("subject alternative names"))));
        }
        let usage = request(|p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
        assert!(matches!(sign(&usage), Err(CaError::RequestNames("extensions"))));

        let good = request(|_| ());
        let mut forged = good.clone();
        let last = forged.len() - 1;
        forged[last] ^= 1;
        let mut long = good.clone();
        long.push(0);
        for bad in [&forged[..], &long[..], &good[..40], &[], &vec![0; MAX_REQUEST + 1][..]] {
            assert!(matches!(sign(bad), Err(CaError::Request)));
        }
    }
}
