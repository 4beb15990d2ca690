//! State that all sessions share.

use tokio::sync::watch;
use tokio::time::Instant;

use super::admission::Admission;
use super::bounds::MemoryBudgets;

pub(crate) struct SessionsShared {
    pub(crate) admission: Admission,
    /// Node label keys that templates use.
    pub(crate) labels: watch::Sender<Vec<String>>,
    /// Memory for data from members.
    pub(crate) budgets: MemoryBudgets,
}

impl SessionsShared {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            admission: Admission::new(now),
            labels: watch::Sender::new(Vec::new()),
            budgets: MemoryBudgets::default(),
        }
    }
}
