//! Which leader's orders count: those of the highest term, which is stored on the member before any order is carried
//! out.

use crate::lease::{Held, LeaseError};

/// The highest term that this agent accepted.
pub(crate) struct Terms<'a> {
    lease: &'a Held,
    highest: u64,
}

/// Why a message is rejected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TermError {
    /// It comes from a leader that has been replaced.
    #[error("the message has term {term}; the agent has already obeyed term {highest}")]
    Lower {
        /// Term of the message.
        term: u64,
        /// Highest term of the agent.
        highest: u64,
    },
    /// The higher term could not be stored, so its orders must not be carried out.
    #[error("cannot store the term")]
    Persist(#[from] LeaseError),
}

impl<'a> Terms<'a> {
    /// Starts from the term in the Lease.
    #[must_use]
    pub(crate) fn new(lease: &'a Held) -> Self {
        Self { lease, highest: lease.term }
    }

    /// The highest term so far.
    #[must_use]
    pub(crate) fn highest(&self) -> u64 {
        self.highest
    }

    /// Raises the Lease's epoch above `floor`, and returns it.
    ///
    /// # Errors
    /// When the Lease is lost, or the write fails.
    pub(crate) async fn raise_epoch(&self, floor: u64) -> Result<u64, LeaseError> {
        self.lease.raise_epoch(floor).await
    }

    /// Accepts or rejects a message of this term. A higher term is stored on the member before this returns.
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
