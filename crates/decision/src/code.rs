//! Status codes of plugins.

use serde::{Deserialize, Serialize};

/// Status codes of Kubernetes' scheduling framework, plus `Partial`, which only a scheduler of clusters needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Code {
    /// The cluster passes.
    Success,
    /// The cluster has room for this many of the requested replicas.
    Partial(i64),
    /// Unexpected error; retried after the error backoff.
    Error,
    /// Rejected in the current state.
    Unschedulable,
    /// Rejected, and preemption would not help.
    UnschedulableAndUnresolvable,
    /// Permit only: wait.
    Wait,
    /// The plugin does not apply.
    Skip,
    /// Decided, but another component must act first; requeued without backoff.
    Pending,
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Partial(n) => write!(f, "Partial({n})"),
            other => write!(f, "{other:?}"),
        }
    }
}
