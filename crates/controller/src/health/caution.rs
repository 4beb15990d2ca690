//! When no new taint may be written, whatever members do.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::suspicion::Suspicion;

/// The controller's self-suspicion, and the grace period of a new leader.
#[derive(Debug, Default)]
pub(crate) struct Caution {
    suspicion: Mutex<Suspicion>,
    /// When a new leader starts to count members as silent; `None` while this is not the leader.
    grace: Mutex<Option<Instant>>,
}

impl Caution {
    pub(crate) fn suspicion(&self) -> MutexGuard<'_, Suspicion> {
        self.suspicion.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When a new leader starts to count members as silent; `None` while this is not the leader.
    pub(crate) fn grace(&self) -> Option<Instant> {
        *self.grace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_grace(&self, until: Option<Instant>) {
        *self.grace.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    /// Whether no new taint may be written now: a new leader has not waited long enough, or suspects itself.
    pub(crate) fn is_frozen(&self, now: Instant) -> bool {
        self.grace().is_none_or(|until| now < until) || self.suspicion().is_active()
    }
}
