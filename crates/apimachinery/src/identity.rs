//! The users of requests.

use std::collections::BTreeMap;

use rustls_pki_types::CertificateDer;
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Group of all authenticated users.
pub const AUTHENTICATED: &str = "system:authenticated";
const MASTERS: &str = "system:masters";
/// Separates groups within one organisation attribute: rcgen writes at most one attribute of a type.
pub const GROUP_SEPARATOR: &str = ",";

/// The user of a request. The TLS listener adds it to the request's extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name, from the certificate's CN or the token's subject.
    pub user: String,
    /// Groups, from the certificate's O or the token's kind.
    pub groups: Vec<String>,
    /// The ServiceAccount's uid, empty for users.
    pub uid: String,
    /// Further fields of the authenticator.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Identity {
    /// A caller in this process.
    pub fn internal() -> Self {
        Identity {
            user: "system:admin".to_owned(),
            groups: vec![MASTERS.to_owned(), AUTHENTICATED.to_owned()],
            uid: String::new(),
            extra: BTreeMap::new(),
        }
    }

    /// The anonymous user.
    pub fn anonymous() -> Self {
        Identity {
            user: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            uid: String::new(),
            extra: BTreeMap::new(),
        }
    }

    /// A user with groups, as named by a client certificate.
    pub fn user(user: impl Into<String>, groups: impl IntoIterator<Item = String>) -> Self {
        let mut groups: Vec<String> = groups.into_iter().collect();
        groups.push(AUTHENTICATED.to_owned());
        Identity { user: user.into(), groups, uid: String::new(), extra: BTreeMap::new() }
    }

    /// Whether the user is not authenticated.
    pub fn is_anonymous(&self) -> bool {
        !self.groups.iter().any(|group| group == AUTHENTICATED)
    }

    /// `authentication.k8s.io` UserInfo.
    pub fn user_info(&self) -> Value {
        let mut info = json!({"username": self.user, "groups": self.groups});
        if !self.uid.is_empty() {
            info["uid"] = self.uid.as_str().into();
        }
        info
    }
}

/// User (CN) and groups (O) of a client certificate.
///
/// # Errors
/// When it is not an X.509 certificate.
pub fn subject(certificate: &CertificateDer<'_>) -> Result<(String, Vec<String>), String> {
    let (_, certificate) =
        X509Certificate::from_der(certificate).map_err(|error| error.to_string())?;
    let text = |a: &x509_parser::x509::AttributeTypeAndValue<'_>| a.as_str().map(str::to_owned);
    let user = certificate.subject().iter_common_name().find_map(|a| text(a).ok());
    let groups = certificate
        .subject()
        .iter_organization()
        .filter_map(|a| text(a).ok())
        .flat_map(|joined| joined.split(GROUP_SEPARATOR).map(str::to_owned).collect::<Vec<_>>())
        .collect();
    Ok((user.unwrap_or_default(), groups))
}
