//! State that all sessions share.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use super::admission::Admission;
use super::bounds::MemoryBudgets;
use super::customizations::AgentCustomizations;
use crate::proxy::tunnels::Tunnels;

pub(crate) struct SessionsShared {
    pub(crate) admission: Admission,
    /// Node label keys that templates use.
    pub(crate) labels: watch::Sender<Vec<String>>,
    /// Customizations with rules that agents use.
    pub(crate) customizations: watch::Sender<Arc<AgentCustomizations>>,
    /// Members' connections for users' requests.
    pub(crate) tunnels: Tunnels,
    /// Memory for data from members.
    pub(crate) budgets: MemoryBudgets,
}

impl SessionsShared {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            admission: Admission::new(now),
            labels: watch::Sender::new(Vec::new()),
            customizations: watch::Sender::default(),
            tunnels: Tunnels::default(),
            budgets: MemoryBudgets::default(),
        }
    }
}
