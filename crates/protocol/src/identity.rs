//! SPIFFE ids, parsed and written exactly.
//!
//! An id has one of three forms. There is no prefix matching anywhere: names that start alike are unrelated.

use std::fmt;
use std::str::FromStr;

/// Longest trust domain (SPIFFE-ID standard, section 2.1).
const MAX_TRUST_DOMAIN: usize = 255;
/// Longest accepted uid. Kubernetes' uids have 36 characters.
const MAX_UID: usize = 64;
const SCHEME: &str = "spiffe://";

/// A federation's name in its members' identities, for example `atoll.local`. Lower case letters, digits, `.`, `-`, `_`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrustDomain(String);

/// uid of a Cluster object: the identity in a member's certificate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterUid(String);

/// What is wrong with an identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The trust domain has characters that are not allowed, or too many.
    #[error(
        "trust domain {0:?} must be 1 to 255 lower case letters, digits, dots, dashes or underscores"
    )]
    TrustDomain(String),
    /// The uid has characters that are not allowed, or too many.
    #[error("cluster uid {0:?} must be 1 to 64 letters, digits or dashes")]
    ClusterUid(String),
    /// The text is not an id in a form that Atoll issues.
    #[error(
        "{0:?} is none of spiffe://<trust domain>, spiffe://<trust domain>/controller and \
         spiffe://<trust domain>/cluster/<uid>"
    )]
    Form(String),
}

impl TrustDomain {
    /// Checks the characters and the length.
    ///
    /// # Errors
    /// When the text is not a trust domain.
    pub fn new(text: impl Into<String>) -> Result<Self, IdentityError> {
        let text = text.into();
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-_".contains(c);
        if text.is_empty() || text.len() > MAX_TRUST_DOMAIN || !text.chars().all(allowed) {
            return Err(IdentityError::TrustDomain(text));
        }
        Ok(Self(text))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ClusterUid {
    /// Checks the characters and the length.
    ///
    /// # Errors
    /// When the text is not a uid.
    pub fn new(text: impl Into<String>) -> Result<Self, IdentityError> {
        let text = text.into();
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if text.is_empty() || text.len() > MAX_UID || !text.chars().all(allowed) {
            return Err(IdentityError::ClusterUid(text));
        }
        Ok(Self(text))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TrustDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ClusterUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The identity in a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SpiffeId {
    /// The trust domain itself: the certificate authority.
    Authority(TrustDomain),
    /// The controller.
    Controller(TrustDomain),
    /// A member, by the uid of its Cluster object.
    Cluster(TrustDomain, ClusterUid),
}

impl SpiffeId {
    /// The trust domain of the id.
    #[must_use]
    pub fn trust_domain(&self) -> &TrustDomain {
        match self {
            Self::Authority(domain) | Self::Controller(domain) | Self::Cluster(domain, _) => domain,
        }
    }
}

impl fmt::Display for SpiffeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Authority(domain) => write!(f, "{SCHEME}{domain}"),
            Self::Controller(domain) => write!(f, "{SCHEME}{domain}/controller"),
            Self::Cluster(domain, uid) => write!(f, "{SCHEME}{domain}/cluster/{uid}"),
        }
    }
}

impl FromStr for SpiffeId {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let form = || IdentityError::Form(text.to_owned());
        let rest = text.strip_prefix(SCHEME).ok_or_else(form)?;
        let mut parts = rest.split('/');
        let domain = TrustDomain::new(parts.next().ok_or_else(form)?)?;
        match (parts.next(), parts.next(), parts.next()) {
            (None, ..) => Ok(Self::Authority(domain)),
            (Some("controller"), None, _) => Ok(Self::Controller(domain)),
            (Some("cluster"), Some(uid), None) => Ok(Self::Cluster(domain, ClusterUid::new(uid)?)),
            _ => Err(form()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_back_as_written() {
        let domain = TrustDomain::new("atoll.local").unwrap();
        let uid = ClusterUid::new("0b7c-1").unwrap();
        for id in [
            SpiffeId::Authority(domain.clone()),
            SpiffeId::Controller(domain.clone()),
            SpiffeId::Cluster(domain, uid),
        ] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
    }

    #[test]
    fn whatever_is_not_exactly_one_of_the_forms_is_refused() {
        for text in [
            "",
            "spiffe://",
            "spiffe:///cluster/a",
            "https://d/cluster/a",
            "SPIFFE://d/cluster/a",
            "spiffe://d/",
            "spiffe://d/controller/",
            "spiffe://d/controllers",
            "spiffe://d/cluster",
            "spiffe://d/cluster/",
            "spiffe://d/cluster/a/",
            "spiffe://d/cluster/a/b",
            "spiffe://d/cluster//a",
            "spiffe://d/cluster/..",
            "spiffe://d/cluster/a%2fb",
            "spiffe://d/cluster/a?x",
            "spiffe://d/cluster/a#x",
            "spiffe://d:1/cluster/a",
            "spiffe://u@d/cluster/a",
            "spiffe://D/cluster/a",
            " spiffe://d/cluster/a",
        ] {
            assert!(text.parse::<SpiffeId>().is_err(), "{text}");
        }
    }
}
