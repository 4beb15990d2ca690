//! Options for opening a server: storage, clock, uids.

use std::{fmt, path::PathBuf, sync::Arc};

use atoll_apimachinery::{discovery::Version, read_only::Clock};
use jiff::Timestamp;

/// Options of [`crate::Server::open`].
#[derive(Clone)]
pub struct Options {
    /// The redb file of the objects; created if missing. `None` keeps them in memory only, and then nothing in the
    /// server leaves the async thread (paused time works).
    pub data: Option<PathBuf>,
    /// The only source of wall time in this crate; a simulated world passes its own. For `creationTimestamp`, managed fields and ages in tables.
    pub clock: Clock,
    /// Uids and generated names are a function of this and of the order of writes. Two servers of one
    /// federation need two seeds.
    pub seed: u64,
    /// Whether `propagationPolicy` and ownerReferences have an effect. With `false`, `Foreground` and `Orphan` are
    /// treated as `Background` and owned objects stay (as kube-apiserver with `--enable-garbage-collector=false`).
    pub garbage_collection: bool,
    /// What authenticated users may do.
    pub authorization: Authorization,
    /// The version that `/version` reports.
    pub version: Version,
}

/// What authenticated users may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authorization {
    /// Everything: for servers on loopback whose users are the machine's.
    #[default]
    Authenticated,
    /// What Roles and ClusterRoles grant. Discovery needs no role; group `system:masters` may do everything.
    Rbac,
}

impl Options {
    /// A server in memory on the machine's clock, with garbage collection.
    pub fn memory() -> Self {
        Options {
            data: None,
            clock: Arc::new(Timestamp::now),
            seed: 0,
            garbage_collection: true,
            authorization: Authorization::default(),
            version: Version::default(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("data", &self.data)
            .field("seed", &self.seed)
            .field("garbage_collection", &self.garbage_collection)
            .field("authorization", &self.authorization)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Why a server could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process (or another server of this process) holds the file.
    #[error("{} is in use by another process; stop it or choose another data folder", path.display())]
    InUse {
        /// The redb file.
        path: PathBuf,
    },
    /// The file cannot be opened, created or read.
    #[error("open the object store {}", path.display())]
    Open {
        /// The redb file.
        path: PathBuf,
        /// The error of the database engine.
        #[source]
        source: Box<redb::Error>,
    },
    /// The file has another format.
    #[error("{} holds no object store of this version: {reason}", path.display())]
    Format {
        /// The redb file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
}
