//! The authorities that are trusted now: the one that signs and, while it replaces another one, its predecessor.
//!
//! The predecessor endorses its successor: it signs a certificate for the successor's key. An agent that trusts only
//! the predecessor checks this endorsement before it trusts the successor, so the private key of an authority is needed
//! to move an agent to another one.

use std::sync::Arc;

use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::ca::{CaError, CertificateAuthority, CertificateFacts, PublicKeyHash};
use crate::identity::SpiffeId;
use crate::member::pem;
use crate::{tls, v1};

/// The authorities of a federation.
#[derive(Debug, Clone)]
pub struct Authorities {
    signing: Arc<CertificateAuthority>,
    predecessor: Option<Predecessor>,
}

/// The authority that is being replaced.
#[derive(Debug, Clone)]
struct Predecessor {
    authority: Arc<CertificateAuthority>,
    endorsement: Endorsement,
}

/// A certificate for the key of an authority, signed by the one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endorsement(CertificateDer<'static>);

/// Why an endorsement proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EndorsementError {
    /// It cannot be parsed.
    #[error(
        "the endorsement of the new certificate authority is not a certificate of an authority"
    )]
    Form,
    /// It names another key or another trust domain.
    #[error("the endorsement is for another certificate authority than the new one")]
    Subject,
    /// The endorsing authority is not the trusted one.
    #[error("the new certificate authority is endorsed by one that is not trusted")]
    Endorser,
    /// The trusted authority did not sign it.
    #[error("the endorsement of the new certificate authority is not signed by the trusted one")]
    Signature,
}

impl Authorities {
    /// One authority, which replaces none.
    #[must_use]
    pub fn of(authority: CertificateAuthority) -> Self {
        Self { signing: Arc::new(authority), predecessor: None }
    }

    /// Stored authorities.
    ///
    /// # Errors
    /// When the endorsement is not one of `predecessor` for `signing`.
    pub fn stored(
        signing: CertificateAuthority,
        predecessor: Option<(CertificateAuthority, Endorsement)>,
    ) -> Result<Self, EndorsementError> {
        let predecessor = match predecessor {
            None => None,
            Some((authority, endorsement)) => {
                let der = (authority.certificate(), signing.certificate());
                endorsement.check(authority.hash(), der.0, der.1)?;
                Some(Predecessor { authority: Arc::new(authority), endorsement })
            }
        };
        Ok(Self { signing: Arc::new(signing), predecessor })
    }

    /// A new authority of the same trust domain signs from now on, and the present one stays trusted. `None` while one
    /// replaces another already.
    ///
    /// # Errors
    /// When the operating system returns no random numbers.
    pub fn succeeded(&self, now: Timestamp) -> Result<Option<Self>, CaError> {
        if self.predecessor.is_some() {
            return Ok(None);
        }
        let next = CertificateAuthority::create(self.signing.trust_domain(), now)?;
        let endorsement = Endorsement(self.signing.endorse(&next, now)?);
        let predecessor = Predecessor { authority: self.signing.clone(), endorsement };
        Ok(Some(Self { signing: Arc::new(next), predecessor: Some(predecessor) }))
    }

    /// The predecessor is no longer trusted.
    #[must_use]
    pub fn alone(&self) -> Self {
        Self { signing: self.signing.clone(), predecessor: None }
    }

    /// The authority that signs.
    #[must_use]
    pub fn signing(&self) -> &Arc<CertificateAuthority> {
        &self.signing
    }

    /// The authority that is being replaced.
    #[must_use]
    pub fn predecessor(&self) -> Option<&Arc<CertificateAuthority>> {
        self.predecessor.as_ref().map(|predecessor| &predecessor.authority)
    }

    /// The endorsement of the one that signs, by its predecessor.
    #[must_use]
    pub fn endorsement(&self) -> Option<&Endorsement> {
        self.predecessor.as_ref().map(|predecessor| &predecessor.endorsement)
    }

    /// All that are trusted, the oldest first.
    pub fn all(&self) -> impl Iterator<Item = &Arc<CertificateAuthority>> {
        self.predecessor().into_iter().chain([&self.signing])
    }

    /// Their certificates, for clients that trust any of them.
    #[must_use]
    pub fn bundle_pem(&self) -> String {
        // Not the stored texts: one without a line end at its end would run into the next.
        self.all().map(|authority| pem("CERTIFICATE", authority.certificate())).collect()
    }

    /// The authority that signs for this peer. One that cannot check endorsements gets a certificate of the authority
    /// that it trusts: that of its present certificate, or else the oldest.
    #[must_use]
    pub fn signer(&self, follows: bool, trusts: Option<PublicKeyHash>) -> &CertificateAuthority {
        match self.predecessor() {
            Some(old) if !follows && trusts != Some(self.signing.hash()) => old,
            _ => &self.signing,
        }
    }

    /// Whether certificates of the authority with this key are accepted.
    #[must_use]
    pub fn trusts(&self, authority: PublicKeyHash) -> bool {
        self.all().any(|one| one.hash() == authority)
    }

    /// Whether these are the same authorities.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        self.all().map(|authority| authority.hash()).eq(other.all().map(|other| other.hash()))
    }

    /// What proves the one that signs to a peer that trusts its predecessor.
    #[must_use]
    pub fn proof(&self) -> Option<v1::AuthorityChange> {
        self.predecessor.as_ref().map(|predecessor| v1::AuthorityChange {
            predecessor_der: predecessor.authority.certificate().to_vec(),
            endorsement_der: predecessor.endorsement.0.to_vec(),
        })
    }
}

impl Endorsement {
    /// Reads a stored one.
    ///
    /// # Errors
    /// When it is not a certificate in PEM.
    pub fn from_pem(text: &str) -> Result<Self, EndorsementError> {
        let der = CertificateDer::from_pem_slice(text.as_bytes());
        der.map(|der| Self(der.into_owned())).map_err(|_| EndorsementError::Form)
    }

    /// To store.
    #[must_use]
    pub fn to_pem(&self) -> String {
        pem("CERTIFICATE", &self.0)
    }

    /// Whether the authority `trusted`, with this certificate, endorses `successor`.
    fn check(
        &self,
        trusted: PublicKeyHash,
        endorser: &CertificateDer<'_>,
        successor: &CertificateDer<'_>,
    ) -> Result<(), EndorsementError> {
        let facts = |der| CertificateFacts::read(der).map_err(|_| EndorsementError::Form);
        let (by, of, named) = (facts(endorser)?, facts(successor)?, facts(&self.0)?);
        if by.public_key != trusted {
            return Err(EndorsementError::Endorser);
        }
        let domain =
            matches!(&of.id, SpiffeId::Authority(_)) && of.id == by.id && of.id == named.id;
        if !domain || of.public_key != named.public_key {
            return Err(EndorsementError::Subject);
        }
        let form = |_| EndorsementError::Form;
        let (_, parsed) = X509Certificate::from_der(&self.0).map_err(form)?;
        let (_, endorser) = X509Certificate::from_der(endorser).map_err(form)?;
        if !parsed.is_ca() || !endorser.is_ca() {
            return Err(EndorsementError::Form);
        }
        let key = &endorser.public_key().subject_public_key.data;
        let signed =
            tls::is_signed(key, parsed.tbs_certificate.as_ref(), &parsed.signature_value.data);
        if signed { Ok(()) } else { Err(EndorsementError::Signature) }
    }
}

/// Whether the authority with this key's hash endorses the one with this certificate.
///
/// # Errors
/// When the change proves nothing to who trusts `trusted`.
pub(crate) fn check_change(
    change: &v1::AuthorityChange,
    trusted: PublicKeyHash,
    successor: &CertificateDer<'_>,
) -> Result<(), EndorsementError> {
    let endorsement = Endorsement(CertificateDer::from(change.endorsement_der.clone()));
    endorsement.check(trusted, &CertificateDer::from(change.predecessor_der.as_slice()), successor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::TrustDomain;

    fn authority(domain: &str) -> CertificateAuthority {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        CertificateAuthority::create(&TrustDomain::new(domain).unwrap(), now).unwrap()
    }

    #[test]
    fn only_the_trusted_authority_endorses_its_successor() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let first = authority("atoll.test");
        let stored = CertificateAuthority::from_pem(first.certificate_pem(), first.key_pem());
        let trusted = first.hash();
        let rotated = Authorities::of(stored.unwrap()).succeeded(now).unwrap().unwrap();
        assert!(rotated.succeeded(now).unwrap().is_none(), "one rotation at a time");
        let next = rotated.signing().certificate().clone();
        let change = rotated.proof().unwrap();
        assert_eq!(check_change(&change, trusted, &next), Ok(()));
        let loaded = Authorities::stored(
            CertificateAuthority::from_pem(
                rotated.signing().certificate_pem(),
                rotated.signing().key_pem(),
            )
            .unwrap(),
            Some((first, Endorsement::from_pem(&rotated.endorsement().unwrap().to_pem()).unwrap())),
        );
        assert!(loaded.unwrap().same(&rotated) && !rotated.same(&rotated.alone()));

        // Someone else's authority, with an endorsement by itself, by a stranger, or taken from ours.
        let (foreign, stranger) = (authority("atoll.test"), authority("atoll.test"));
        let by_stranger = v1::AuthorityChange {
            predecessor_der: stranger.certificate().to_vec(),
            endorsement_der: stranger.endorse(&foreign, now).unwrap().to_vec(),
        };
        let refused = |change: &v1::AuthorityChange| {
            check_change(change, trusted, foreign.certificate()).unwrap_err()
        };
        assert_eq!(refused(&by_stranger), EndorsementError::Endorser);
        assert_eq!(refused(&change), EndorsementError::Subject);
        let posing = v1::AuthorityChange {
            predecessor_der: change.predecessor_der.clone(),
            ..by_stranger.clone()
        };
        assert_eq!(refused(&posing), EndorsementError::Signature);
        let garbage = v1::AuthorityChange { endorsement_der: vec![1, 2, 3], ..change.clone() };
        assert_eq!(refused(&garbage), EndorsementError::Form);
        // Of another trust domain.
        let elsewhere = authority("other.test");
        let signed = rotated.predecessor().unwrap().endorse(&elsewhere, now).unwrap();
        let change = v1::AuthorityChange { endorsement_der: signed.to_vec(), ..change };
        let other = check_change(&change, trusted, elsewhere.certificate());
        assert_eq!(other, Err(EndorsementError::Subject));
    }

    #[test]
    fn a_peer_that_checks_no_endorsement_keeps_the_authority_that_it_trusts() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let old = authority("atoll.test");
        let before = old.hash();
        let rotated = Authorities::of(old).succeeded(now).unwrap().unwrap();
        let after = rotated.signing().hash();
        assert_eq!(rotated.signer(true, Some(before)).hash(), after);
        assert_eq!(rotated.signer(true, None).hash(), after);
        assert_eq!(rotated.signer(false, Some(before)).hash(), before);
        assert_eq!(rotated.signer(false, None).hash(), before);
        assert_eq!(rotated.signer(false, Some(after)).hash(), after);
        assert_eq!(rotated.alone().signer(false, Some(before)).hash(), after);
    }
}
