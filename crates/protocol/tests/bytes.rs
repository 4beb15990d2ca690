//! Tokens, certificate requests and identities of arbitrary bytes: rejected, and never a panic.

#![allow(clippy::unwrap_used, missing_docs)]

use atoll_protocol::ca::CertificateAuthority;
use atoll_protocol::identity::{ClusterUid, SpiffeId, TrustDomain};
use atoll_protocol::member::KeyRequest;
use atoll_protocol::token::{BootstrapToken, TokenHash, TokenId};
use jiff::Timestamp;
use proptest::prelude::*;

fn authority() -> (CertificateAuthority, Timestamp) {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let domain = TrustDomain::new("atoll.local".to_owned()).unwrap();
    (CertificateAuthority::create(&domain, now).unwrap(), now)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tokens_are_read_whole_or_not_at_all(text in "\\PC{0,80}", id in "[0-9a-g]{11,13}", rest in "[A-Za-z0-9_=-]{42,44}") {
        for text in [text, format!("{id}.{rest}")] {
            if let Ok(token) = text.parse::<BootstrapToken>() {
                prop_assert_eq!(token.reveal(), text.as_str());
                prop_assert!(token.hash().matches(&token));
            }
            if let Ok(id) = TokenId::new(&text) {
                prop_assert_eq!(id.as_str(), text.as_str());
            }
            if let Ok(hash) = text.parse::<TokenHash>() {
                prop_assert_eq!(hash.to_string(), text.to_lowercase());
            }
        }
    }

    #[test]
    fn identities_come_back_as_they_were_written(text in "\\PC{0,300}", path in "[a-z0-9./:-]{0,60}") {
        for text in [text, format!("spiffe://{path}"), format!("spiffe://atoll.local/cluster/{path}")] {
            if let Ok(id) = text.parse::<SpiffeId>() {
                prop_assert_eq!(id.to_string(), text.clone());
            }
            let _ = ClusterUid::new(text.clone());
            let _ = TrustDomain::new(text);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// A certificate is issued only for the key that signed the request.
    #[test]
    fn requests_for_certificates_are_signed_as_they_are_or_refused(
        noise in proptest::collection::vec(any::<u8>(), 0..400),
        at in any::<prop::sample::Index>(),
        bit in 0..8_u32,
        cut in any::<prop::sample::Index>(),
    ) {
        let (authority, now) = authority();
        let uid = ClusterUid::new("u-1").unwrap();
        let request = KeyRequest::generate().unwrap();
        let good = request.csr_der().to_vec();
        let mut flipped = good.clone();
        flipped[at.index(good.len())] ^= 1 << bit;
        let mut longer = good.clone();
        longer.extend_from_slice(&noise);
        for bytes in [noise, flipped, good[..cut.index(good.len())].to_vec(), longer] {
            match authority.sign_member(&bytes, &uid, now) {
                Ok(issued) => prop_assert_eq!(issued.public_key, request.public_key()),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}
