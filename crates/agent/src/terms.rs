//! Which leader's word counts: the highest term, kept on the member before it is acted on.

use crate::lease::{Held, LeaseError};

/// The highest term that this agent acted on.
pub(crate) struct Terms<'a> {
    lease: &'a Held,
    highest: u64,
}

/// Why a message is not acted on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TermError {
    /// It comes from a leader that another one has replaced.
    #[error("the message has term {term}, the agent has acted on {highest} already")]
    Lower {
        /// The message's.
        term: u64,
        /// The agent's.
        highest: u64,
    },
    /// The higher term could not be written down, so nothing may be done on its word.
    #[error("the term cannot be kept")]
    Persist(#[from] LeaseError),
}

impl<'a> Terms<'a> {
    /// Starts from what the Lease keeps.
    #[must_use]
    pub(crate) fn new(lease: &'a Held) -> Self {
        Self { lease, highest: lease.term }
    }

    /// The highest so far.
    #[must_use]
    pub(crate) fn highest(&self) -> u64 {
        self.highest
    }

    /// Raises the Lease's epoch above this one, and returns it.
    ///
    /// # Errors
    /// When the Lease is lost, or the write fails.
    pub(crate) async fn raise_epoch(&self, floor: u64) -> Result<u64, LeaseError> {
        self.lease.raise_epoch(floor).await
    }

    /// Lets a message of this term through, or not. A higher one is on the member when this returns.
    ///
    /// # Errors
    /// For a lower term, and when a higher one cannot be written.
    pub(crate) async fn admit(&mut self, term: u64) -> Result<(), TermError> {
        if term < self.highest {
            return Err(TermError::Lower { term, highest: self.highest });
        }
        if term > self.highest {
            self.lease.persist_term(term).await?;
            self.highest = term;
        }
        Ok(())
    }
}
