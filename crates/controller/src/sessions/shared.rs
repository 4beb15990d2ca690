//! State that all sessions share.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use super::admission::Admission;
use super::bounds::MemoryBudgets;
use crate::member::types::Oracle;

pub(crate) struct SessionsShared {
    pub(crate) admission: Admission,
    /// Node label keys that templates use.
    pub(crate) labels: watch::Sender<Vec<String>>,
    pub(crate) oracle: Arc<dyn Oracle>,
    /// Memory for data from members.
    pub(crate) budgets: MemoryBudgets,
}

impl SessionsShared {
    pub(crate) fn new(oracle: Arc<dyn Oracle>, now: Instant) -> Self {
        Self {
            admission: Admission::new(now),
            labels: watch::Sender::new(Vec::new()),
            oracle,
            budgets: MemoryBudgets::default(),
        }
    }
}
