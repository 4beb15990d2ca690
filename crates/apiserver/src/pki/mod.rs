//! Certificates of one embedded API server: its own authority, the serving certificate, client certificates whose
//! subject is the user (CN) and the groups (O), all stored as PEM files in a folder so that kubeconfigs stay valid
//! across restarts. Validity is based on the machine's clock, which the other end of a connection also uses.

mod credentials;
mod files;
mod kubeconfig;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use atoll_apimachinery::identity;
use atoll_http::tls::{self, ServerCertificate};
use jiff::{Timestamp, ToSpan, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use x509_parser::prelude::{FromDer, X509Certificate};

pub use self::credentials::{Credentials, PkiError};
pub use self::kubeconfig::{Context, kubeconfig};

/// Validity of certificates in days: ten years for the authority, one for those it signs. All of them are local to one
/// folder, and an expired one is replaced at the next start.
const CA_DAYS: i64 = 3650;
const LEAF_DAYS: i64 = 365;
/// A certificate with less time left than this, in days, is replaced when it is opened.
const RENEW_DAYS: i64 = 30;

/// The authority of one API server.
pub struct Authority {
    folder: PathBuf,
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// The subject of a certificate.
enum Subject<'a> {
    Server(&'a [String]),
    Client { user: &'a str, groups: &'a [&'a str] },
}

fn lifetime(params: &mut CertificateParams, days: i64) {
    let date = |days: i64| {
        // Days around today are within jiff's range; the fallback is today.
        let now = Timestamp::now().to_zoned(TimeZone::UTC).date();
        let date = now.checked_add(days.days()).unwrap_or(now);
        rcgen::date_time_ymd(date.year().into(), date.month() as u8, date.day() as u8)
    };
    // One day back, for members whose clocks are behind.
    params.not_before = date(-1);
    params.not_after = date(days);
}

impl Authority {
    /// Opens the authority in `folder`, making folder, key and certificate when missing.
    ///
    /// # Errors
    /// Files cannot be accessed or are damaged.
    pub fn open(folder: &Path) -> Result<Authority, PkiError> {
        files::make_folder(folder)?;
        let found = files::read(folder, "ca")?;
        let credentials = match found {
            Some(found) if remaining_days(&found.certificate)? >= RENEW_DAYS => found,
            _ => {
                let mut params = CertificateParams::default();
                lifetime(&mut params, CA_DAYS);
                params.distinguished_name.push(DnType::CommonName, "atoll-apiserver-ca");
                params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
                params.key_usages =
                    vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
                let key = KeyPair::generate()?;
                let credentials = Credentials {
                    certificate: params.self_signed(&key)?.pem(),
                    key: key.serialize_pem(),
                };
                files::write(folder, "ca", &credentials)?;
                credentials
            }
        };
        let damaged = |_| PkiError::Damaged { path: folder.join("ca.crt") };
        let key = KeyPair::from_pem(&credentials.key).map_err(damaged)?;
        let issuer = Issuer::from_ca_cert_pem(&credentials.certificate, key).map_err(damaged)?;
        Ok(Authority { folder: folder.to_owned(), certificate: credentials.certificate, issuer })
    }

    /// The authority's certificate, PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The certificate that the server presents, for these DNS names and IP addresses. Kept as `server.crt`
    /// and `server.key`; replaced when the names changed.
    ///
    /// # Errors
    /// Files cannot be accessed or are damaged, or a name is not valid.
    pub fn server(&self, names: &[String]) -> Result<Credentials, PkiError> {
        self.obtain("server", &Subject::Server(names))
    }

    /// A client certificate, kept as `<file>.crt` and `<file>.key`.
    ///
    /// # Errors
    /// Files cannot be accessed or are damaged.
    pub fn client(&self, file: &str, user: &str, groups: &[&str]) -> Result<Credentials, PkiError> {
        self.obtain(file, &Subject::Client { user, groups })
    }

    fn obtain(&self, file: &str, subject: &Subject<'_>) -> Result<Credentials, PkiError> {
        if let Some(found) = files::read(&self.folder, file)?
            && self.fits(&found, subject)?
        {
            return Ok(found);
        }
        let mut params = match subject {
            Subject::Server(names) => CertificateParams::new(names.to_vec())?,
            Subject::Client { .. } => CertificateParams::default(),
        };
        lifetime(&mut params, LEAF_DAYS);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        match subject {
            Subject::Server(_) => {
                params.distinguished_name.push(DnType::CommonName, "atoll-apiserver");
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            }
            Subject::Client { user, groups } => {
                params.distinguished_name.push(DnType::CommonName, *user);
                // rcgen keeps one value per attribute type, so several groups are joined into one.
                if !groups.is_empty() {
                    params
                        .distinguished_name
                        .push(DnType::OrganizationName, groups.join(identity::GROUP_SEPARATOR));
                }
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            }
        }
        let key = KeyPair::generate()?;
        let credentials = Credentials {
            certificate: params.signed_by(&key, &self.issuer)?.pem(),
            key: key.serialize_pem(),
        };
        files::write(&self.folder, file, &credentials)?;
        Ok(credentials)
    }

    /// Whether a stored certificate is still usable: ours, with time left, for the same subject.
    fn fits(&self, found: &Credentials, wanted: &Subject<'_>) -> Result<bool, PkiError> {
        if remaining_days(&found.certificate)? < RENEW_DAYS {
            return Ok(false);
        }
        let (leaf, own) = (der(&found.certificate)?, der(&self.certificate)?);
        let (leaf_x509, own_x509) = (parse(&leaf)?, parse(&own)?);
        if leaf_x509.verify_signature(Some(own_x509.public_key())).is_err() {
            return Ok(false);
        }
        Ok(match wanted {
            Subject::Client { user, groups } => {
                let (found_user, found_groups) =
                    identity::subject(&leaf).map_err(PkiError::Parse)?;
                found_user == *user && found_groups == *groups
            }
            Subject::Server(names) => {
                let mut wanted = CertificateParams::new(names.to_vec())?.subject_alt_names;
                let mut have = Vec::new();
                if let Ok(Some(extension)) = leaf_x509.subject_alternative_name() {
                    have.extend(extension.value.general_names.iter().filter_map(alternative));
                }
                let mut wanted: Vec<String> = wanted.drain(..).map(|n| format!("{n:?}")).collect();
                let mut have: Vec<String> = have.into_iter().map(|n| format!("{n:?}")).collect();
                wanted.sort();
                have.sort();
                wanted == have
            }
        })
    }

    /// The TLS settings of a listener: this server certificate, client certificates of this authority if a
    /// client has one, HTTP/2 and HTTP/1.1.
    ///
    /// # Errors
    /// The certificates do not fit together.
    pub fn server_config(
        &self,
        server: &Credentials,
    ) -> Result<Arc<rustls::ServerConfig>, PkiError> {
        let key = PrivateKeyDer::from_pem_slice(server.key.as_bytes())
            .map_err(|e| PkiError::Parse(e.to_string()))?;
        let certificate = ServerCertificate::new(vec![der(&server.certificate)?], key)?;
        Ok(tls::server_config(certificate, tls::client_verifier(&self.certificate)?)?)
    }
}

fn alternative(name: &x509_parser::extensions::GeneralName<'_>) -> Option<rcgen::SanType> {
    use x509_parser::extensions::GeneralName;
    match name {
        GeneralName::DNSName(name) => {
            rcgen::string::Ia5String::try_from(*name).ok().map(rcgen::SanType::DnsName)
        }
        GeneralName::IPAddress(bytes) => {
            let ip = match bytes.len() {
                4 => <[u8; 4]>::try_from(*bytes).ok().map(std::net::IpAddr::from),
                _ => <[u8; 16]>::try_from(*bytes).ok().map(std::net::IpAddr::from),
            };
            ip.map(rcgen::SanType::IpAddress)
        }
        _ => None,
    }
}

fn der(pem: &str) -> Result<CertificateDer<'static>, PkiError> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|e| PkiError::Parse(e.to_string()))
}

fn parse<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, PkiError> {
    X509Certificate::from_der(der)
        .map(|(_, certificate)| certificate)
        .map_err(|e| PkiError::Parse(e.to_string()))
}

fn remaining_days(pem: &str) -> Result<i64, PkiError> {
    let der = der(pem)?;
    let end = parse(&der)?.validity().not_after.timestamp();
    Ok((end - Timestamp::now().as_second()) / (24 * 60 * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_reused_until_something_about_them_changes() {
        let folder = tempfile::tempdir().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let first = Authority::open(folder.path()).unwrap();
        let server = first.server(&names).unwrap();
        let client = first.client("admin", "admin", &["system:masters", "dev"]).unwrap();
        let second = Authority::open(folder.path()).unwrap();
        assert_eq!(first.certificate(), second.certificate());
        assert!(second.server(&names).unwrap() == server);
        assert!(second.client("admin", "admin", &["system:masters", "dev"]).unwrap() == client);
        assert!(second.client("admin", "other", &[]).unwrap() != client);
        assert!(second.server(&["example.com".to_owned()]).unwrap() != server);
        let (user, groups) = identity::subject(&der(&client.certificate).unwrap()).unwrap();
        assert_eq!((user.as_str(), groups.join(" ").as_str()), ("admin", "system:masters dev"));
        second.server_config(&server).unwrap();
    }

    #[test]
    fn a_new_authority_replaces_what_the_old_one_signed() {
        let folder = tempfile::tempdir().unwrap();
        let client = Authority::open(folder.path()).unwrap().client("a", "a", &[]).unwrap();
        std::fs::remove_file(folder.path().join("ca.crt")).unwrap();
        let again = Authority::open(folder.path()).unwrap().client("a", "a", &[]).unwrap();
        assert!(client != again);
    }
}
