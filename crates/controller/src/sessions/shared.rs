//! State that all sessions share.

use std::sync::{Arc, OnceLock};

use tokio::sync::watch;
use tokio::time::Instant;

use super::admission::Admission;
use super::bounds::MemoryBudgets;
use super::customizations::AgentCustomizations;
use crate::proxy::leader_api::LeaderApi;
use crate::proxy::link::LeaderLink;
use crate::proxy::tunnels::Tunnels;

pub(crate) struct SessionsShared {
    pub(crate) admission: Admission,
    /// Node label keys that templates use.
    pub(crate) labels: watch::Sender<Vec<String>>,
    /// Customizations with rules that agents use.
    pub(crate) customizations: watch::Sender<Arc<AgentCustomizations>>,
    /// Members' connections for users' requests.
    pub(crate) tunnels: Tunnels,
    /// The way to the leader for users' requests, while another controller leads.
    pub(crate) leader: LeaderLink,
    /// Answers requests that other controllers pass on for the leader itself. Set once.
    pub(crate) leader_api: OnceLock<Arc<dyn LeaderApi>>,
    /// Memory for data from members.
    pub(crate) budgets: MemoryBudgets,
}

impl SessionsShared {
    pub(crate) fn new(now: Instant, other_leader: watch::Receiver<Option<String>>) -> Self {
        Self {
            admission: Admission::new(now),
            labels: watch::Sender::new(Vec::new()),
            customizations: watch::Sender::default(),
            tunnels: Tunnels::default(),
            leader: LeaderLink::new(other_leader),
            leader_api: OnceLock::new(),
            budgets: MemoryBudgets::default(),
        }
    }
}
