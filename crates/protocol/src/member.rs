//! A member's key, its certificate request, and the resulting identity.

use std::fmt;

use rcgen::{CertificateParams, DistinguishedName, KeyPair, PublicKeyData};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::authorities::{EndorsementError, check_change};
use crate::ca::{CaError, CertificateFacts, PublicKeyHash};
use crate::identity::{ClusterUid, SpiffeId, TrustDomain};
use crate::tls;
use crate::v1::CertificateResponse;

/// An agent's key and the certificate request for it. The key is never sent.
pub struct KeyRequest {
    key: KeyPair,
    csr_der: Vec<u8>,
}

/// A key with its certificate, as stored by an agent.
pub struct MemberIdentity {
    chain: Vec<CertificateDer<'static>>,
    key_pem: String,
    facts: CertificateFacts,
    trust_domain: TrustDomain,
    cluster_uid: ClusterUid,
}

/// Why a certificate cannot be used as a member's identity.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    /// The key could not be created, or the certificate not parsed.
    #[error("read or make a key or certificate")]
    Certificate(#[from] CaError),
    /// The stored text is not PEM of the named type.
    #[error("the stored {0} cannot be read: remove the identity and join again")]
    Stored(&'static str),
    /// The chain is not a leaf and its authority.
    #[error("the certificate chain must be a leaf and its authority: 2 certificates, not {0}")]
    Chain(usize),
    /// The authority in the chain is not the one that was expected.
    #[error("the authority's public key is {found}, expected {expected}")]
    Authority {
        /// Hash from the join command.
        expected: PublicKeyHash,
        /// Hash of the received authority.
        found: PublicKeyHash,
    },
    /// The authority replaced the expected one, and the proof of that does not hold.
    #[error("the certificate authority changed without a proof")]
    Change(#[from] EndorsementError),
    /// The leaf is not signed by the authority, or not for this use.
    #[error("the certificate is not signed by its authority for a client's use")]
    Signature,
    /// The certificate is for another key or another identity.
    #[error("the certificate is for another {0} than requested")]
    Other(&'static str),
}

impl KeyRequest {
    /// Generates a key (P-256) and its request.
    ///
    /// # Errors
    /// When the operating system returns no random numbers.
    pub fn generate() -> Result<Self, MemberError> {
        Self::for_key(KeyPair::generate().map_err(CaError::Make)?)
    }

    /// The request for a key that was stored before its certificate arrived: a repeated enrolment must use the same
    /// key.
    ///
    /// # Errors
    /// When the text is not a private key.
    pub fn from_key_pem(key_pem: &str) -> Result<Self, MemberError> {
        Self::for_key(KeyPair::from_pem(key_pem).map_err(|_| MemberError::Stored("key"))?)
    }

    fn for_key(key: KeyPair) -> Result<Self, MemberError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let csr = params.serialize_request(&key).map_err(CaError::Make)?;
        Ok(Self { key, csr_der: csr.der().to_vec() })
    }

    /// The request to send.
    #[must_use]
    pub fn csr_der(&self) -> &[u8] {
        &self.csr_der
    }

    /// The private key, to store. Never log it.
    #[must_use]
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// Hash of the public key.
    #[must_use]
    pub fn public_key(&self) -> PublicKeyHash {
        PublicKeyHash::of(&self.key.subject_public_key_info())
    }
}

impl MemberIdentity {
    /// Verifies a reply to `Enroll` or `Renew` and turns it into an identity. Its authority is the expected one, or one
    /// that the expected one endorses.
    ///
    /// # Errors
    /// When the authority is not the expected one, or the certificate is not for this key and the cluster named in the
    /// reply.
    pub fn from_response(
        request: &KeyRequest,
        response: &CertificateResponse,
        expected: &PublicKeyHash,
    ) -> Result<Self, MemberError> {
        let chain: Vec<_> =
            response.chain_der.iter().map(|der| CertificateDer::from(der.clone())).collect();
        let identity = Self::new(chain, request.key_pem())?;
        let found = identity.authority_hash()?;
        match &response.authority_change {
            _ if found == *expected => (),
            Some(change) => check_change(change, *expected, &identity.chain[1])?,
            None => return Err(MemberError::Authority { expected: *expected, found }),
        }
        if identity.cluster_uid.as_str() != response.cluster_uid {
            return Err(MemberError::Other("cluster"));
        }
        if identity.trust_domain.as_str() != response.trust_domain {
            return Err(MemberError::Other("trust domain"));
        }
        Ok(identity)
    }

    /// Loads a stored identity.
    ///
    /// # Errors
    /// When they are damaged or do not belong together.
    pub fn from_pem(chain_pem: &str, key_pem: &str) -> Result<Self, MemberError> {
        let chain = CertificateDer::pem_slice_iter(chain_pem.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| MemberError::Stored("certificate chain"))?;
        Self::new(chain, key_pem.to_owned())
    }

    fn new(chain: Vec<CertificateDer<'static>>, key_pem: String) -> Result<Self, MemberError> {
        let [leaf, authority] = &chain[..] else {
            return Err(MemberError::Chain(chain.len()));
        };
        let facts = CertificateFacts::read(leaf)?;
        let SpiffeId::Cluster(trust_domain, cluster_uid) = facts.id.clone() else {
            return Err(MemberError::Other("identity"));
        };
        if CertificateFacts::read(authority)?.id != SpiffeId::Authority(trust_domain.clone()) {
            return Err(MemberError::Other("trust domain"));
        }
        let key = KeyPair::from_pem(&key_pem).map_err(|_| MemberError::Stored("key"))?;
        if PublicKeyHash::of(&key.subject_public_key_info()) != facts.public_key {
            return Err(MemberError::Other("key"));
        }
        tls::check_client_chain(leaf, authority, facts.not_before)
            .map_err(|_| MemberError::Signature)?;
        Ok(Self { chain, key_pem, facts, trust_domain, cluster_uid })
    }

    /// Leaf and authority, to store.
    #[must_use]
    pub fn chain_pem(&self) -> String {
        self.chain.iter().map(|der| pem("CERTIFICATE", der)).collect()
    }

    /// The private key, to store. Never log it.
    #[must_use]
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// Leaf and authority.
    #[must_use]
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// The private key for TLS.
    ///
    /// # Errors
    /// When the stored text is not a private key.
    pub fn key(&self) -> Result<PrivateKeyDer<'static>, MemberError> {
        PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes())
            .map_err(|_| MemberError::Stored("key"))
    }

    /// Hash of the authority's public key: the controller and the next certificate must have the same authority.
    ///
    /// # Errors
    /// When the chain's second certificate cannot be read.
    pub fn authority_hash(&self) -> Result<PublicKeyHash, MemberError> {
        Ok(CertificateFacts::read(&self.chain[1])?.public_key)
    }

    /// uid of the Cluster object.
    #[must_use]
    pub fn cluster_uid(&self) -> &ClusterUid {
        &self.cluster_uid
    }

    /// The trust domain.
    #[must_use]
    pub fn trust_domain(&self) -> &TrustDomain {
        &self.trust_domain
    }

    /// The leaf's facts; its times determine the renewal.
    #[must_use]
    pub fn facts(&self) -> &CertificateFacts {
        &self.facts
    }
}

impl fmt::Debug for MemberIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemberIdentity({}, until {})", self.facts.id, self.facts.not_after)
    }
}

impl fmt::Debug for KeyRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyRequest({})", self.public_key())
    }
}

pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    for (index, character) in text.chars().enumerate() {
        if index > 0 && index % 64 == 0 {
            pem.push('\n');
        }
        pem.push(character);
    }
    pem.push_str(&format!("\n-----END {label}-----\n"));
    pem
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::ca::CertificateAuthority;

    #[test]
    fn an_answer_becomes_an_identity_only_when_everything_fits() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let domain = TrustDomain::new("atoll.local").unwrap();
        let ca = CertificateAuthority::create(&domain, now).unwrap();
        let other_ca = CertificateAuthority::create(&domain, now).unwrap();
        let (request, other_request) =
            (KeyRequest::generate().unwrap(), KeyRequest::generate().unwrap());
        let uid = ClusterUid::new("u-1").unwrap();
        let answer = |ca: &CertificateAuthority, request: &KeyRequest| CertificateResponse {
            chain_der: ca
                .sign_member(request.csr_der(), &uid, now)
                .unwrap()
                .chain
                .iter()
                .map(|der| der.to_vec())
                .collect(),
            cluster_uid: uid.to_string(),
            cluster_name: "member1".into(),
            trust_domain: domain.to_string(),
            authority_change: None,
        };
        let take = |answer: &CertificateResponse| {
            MemberIdentity::from_response(&request, answer, &ca.hash())
        };

        let good = take(&answer(&ca, &request)).unwrap();
        assert_eq!((good.cluster_uid(), good.trust_domain()), (&uid, &domain));
        let copy = MemberIdentity::from_pem(&good.chain_pem(), good.key_pem()).unwrap();
        assert_eq!(copy.chain(), good.chain());
        let again = KeyRequest::from_key_pem(good.key_pem()).unwrap();
        assert_eq!(again.public_key(), request.public_key());
        assert!(!format!("{good:?}").contains("PRIVATE"));

        let foreign = take(&answer(&other_ca, &request));
        assert!(matches!(foreign, Err(MemberError::Authority { .. })));
        assert!(matches!(take(&answer(&ca, &other_request)), Err(MemberError::Other("key"))));
        let mut mixed = answer(&other_ca, &request);
        mixed.chain_der[1] = ca.certificate().to_vec();
        assert!(matches!(take(&mixed), Err(MemberError::Signature)));
        let mut short = answer(&ca, &request);
        short.chain_der.pop();
        assert!(matches!(take(&short), Err(MemberError::Chain(1))));
        let named = CertificateResponse { cluster_uid: "u".into(), ..answer(&ca, &request) };
        assert!(matches!(take(&named), Err(MemberError::Other("cluster"))));
    }
}
