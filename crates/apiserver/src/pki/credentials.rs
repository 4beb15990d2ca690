//! Certificates with their keys, and the errors about them.

use std::{io, path::PathBuf};

use atoll_http::tls::TlsError;

/// Errors of keys and certificates.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file or the folder cannot be read or written.
    #[error("access {}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file has unexpected content.
    #[error("{} holds no usable certificate or key; remove it, and a new one is created", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// A certificate cannot be created.
    #[error("make a certificate")]
    Make(#[from] rcgen::Error),
    /// TLS cannot use the certificates.
    #[error("set up TLS")]
    Tls(#[from] TlsError),
    /// The data is not a certificate.
    #[error("read a certificate: {0}")]
    Parse(String),
}

/// A certificate with its key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}
