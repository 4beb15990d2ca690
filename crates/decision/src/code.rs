//! Status codes of plugins.

use serde::{Deserialize, Serialize};

/// Status codes: those of Kubernetes' scheduling framework, and `Partial`, which a scheduler of nodes has no use for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Code {
    /// Fine.
    Success,
    /// This cluster takes so many of the replicas asked for.
    Partial(i64),
    /// Something unexpected; retried after the backoff for errors.
    Error,
    /// No, as things stand.
    Unschedulable,
    /// No, and preemption would not help.
    UnschedulableAndUnresolvable,
    /// Permit only: not yet.
    Wait,
    /// Not this plugin's business.
    Skip,
    /// Decided, but somebody else must act first; requeued without backoff.
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
