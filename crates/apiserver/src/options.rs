//! Options for opening a server: storage, clock, uids.

use std::{fmt, path::PathBuf, sync::Arc};

use jiff::Timestamp;

use crate::gate::Gate;

/// The only source of wall time in this crate; a simulated world passes its own.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The version that `/version` reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Major number, `1` on every Kubernetes so far.
    pub major: u32,
    /// Minor number. Clients compare it with their own, so it names the release whose rules are mirrored.
    pub minor: u32,
}

impl Default for Version {
    fn default() -> Self {
        Version { major: 1, minor: 33 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}.{}.0+atoll", self.major, self.minor)
    }
}

/// Options of [`crate::Server::open`].
#[derive(Clone)]
pub struct Options {
    /// The redb file of the objects; created if missing. `None` keeps them in memory only, and then nothing in the
    /// server leaves the async thread (paused time works).
    pub data: Option<PathBuf>,
    /// Wall time for `creationTimestamp`, managed fields and ages in tables.
    pub clock: Clock,
    /// Uids and generated names are a function of this and of the order of writes. Two servers of one
    /// federation need two seeds.
    pub seed: u64,
    /// Whether `propagationPolicy` and ownerReferences have an effect. With `false`, `Foreground` and `Orphan` are
    /// treated as `Background` and owned objects stay (as kube-apiserver with `--enable-garbage-collector=false`).
    pub garbage_collection: bool,
    /// The version that `/version` reports.
    pub version: Version,
    /// Whether Kubernetes' own kinds are served. With `false` only mounted kinds are, as in an extension API server.
    pub builtins: bool,
    /// Authentication and authorisation. With `None` every authenticated user may do everything.
    pub gate: Option<Arc<dyn Gate>>,
}

impl Options {
    /// A server in memory on the machine's clock, with garbage collection.
    pub fn memory() -> Self {
        Options {
            data: None,
            clock: Arc::new(Timestamp::now),
            seed: 0,
            garbage_collection: true,
            version: Version::default(),
            builtins: true,
            gate: None,
        }
    }

    /// A server in memory with mounted kinds only, behind a gate.
    pub fn extension(gate: Arc<dyn Gate>) -> Self {
        Options { builtins: false, gate: Some(gate), ..Self::memory() }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("data", &self.data)
            .field("seed", &self.seed)
            .field("garbage_collection", &self.garbage_collection)
            .field("version", &self.version)
            .field("builtins", &self.builtins)
            .field("gate", &self.gate.is_some())
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
