//! What became of a record. The controller holds one receipt for each binding, so a receipt is a cell that is written once
//! and those who wait for it, a quarter of a watch channel.

use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

/// State of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordState {
    /// Not in the database yet.
    Queued,
    /// In the database and durable.
    Recorded,
    /// The database rejects it permanently, for this reason.
    Refused(String),
}

#[derive(Debug)]
struct Shared {
    /// The last state, once there is one.
    settled: OnceLock<RecordState>,
    news: Notify,
}

/// Reports the state of a record. Cheap to store beside the binding in an index.
#[derive(Debug, Clone)]
pub struct Receipt(Arc<Shared>);

impl Receipt {
    /// The current state.
    #[must_use]
    pub fn state(&self) -> RecordState {
        self.0.settled.get().unwrap_or(&RecordState::Queued).clone()
    }

    /// Whether the binding may drop the decision.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.0.settled.get() == Some(&RecordState::Recorded)
    }

    /// Waits until the record is in the database or rejected. Returns `Queued` only when the writer ended before that.
    pub async fn settled(&mut self) -> RecordState {
        loop {
            let mut news = std::pin::pin!(self.0.news.notified());
            news.as_mut().enable();
            if let Some(state) = self.0.settled.get() {
                return state.clone();
            }
            news.await;
        }
    }
}

/// Settles a receipt. If it is dropped before, the record stays `Queued` for good.
#[derive(Debug)]
pub(super) struct Settle(Arc<Shared>);

impl Settle {
    /// A receipt, and what settles it.
    pub(super) fn new() -> (Self, Receipt) {
        let shared = Arc::new(Shared { settled: OnceLock::new(), news: Notify::new() });
        (Self(Arc::clone(&shared)), Receipt(shared))
    }

    pub(super) fn settle(self, state: RecordState) {
        self.finish(state);
    }

    fn finish(&self, state: RecordState) {
        if self.0.settled.set(state).is_ok() {
            self.0.news.notify_waiters();
        }
    }
}

impl Drop for Settle {
    fn drop(&mut self) {
        self.finish(RecordState::Queued);
    }
}
