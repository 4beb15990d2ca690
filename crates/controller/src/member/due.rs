//! Names of Clusters that need attention.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// Names of Clusters that need attention, for one task that handles them.
#[derive(Debug, Default)]
pub(crate) struct Due {
    names: Mutex<BTreeSet<String>>,
    marked: Notify,
}

impl Due {
    pub(crate) fn mark(&self, name: &str) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        self.marked.notify_one();
    }

    /// Waits until something is marked.
    pub(crate) async fn any(&self) {
        self.marked.notified().await;
    }

    pub(crate) fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.names.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
