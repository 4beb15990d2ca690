//! Names of Clusters that need attention.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use atoll_api::ClusterName;
use tokio::sync::Notify;

/// Names of Clusters that need attention, for one task that handles them.
#[derive(Debug, Default)]
pub(crate) struct Due {
    names: Mutex<BTreeSet<ClusterName>>,
    marked: Notify,
}

impl Due {
    pub(crate) fn mark(&self, name: &ClusterName) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone());
        self.marked.notify_one();
    }

    /// Waits until something is marked.
    pub(crate) async fn any(&self) {
        self.marked.notified().await;
    }

    pub(crate) fn take(&self) -> BTreeSet<ClusterName> {
        std::mem::take(&mut *self.names.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
