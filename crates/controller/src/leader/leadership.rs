//! Leadership as its holder sees it.

use tokio::time::Instant;

use super::term::LeaderTerm;

/// Proof of leadership, with its deadline unless renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leadership {
    /// The term, part of every decision and every message to a member.
    pub term: LeaderTerm,
    /// After this time, nothing may be written in our name.
    pub deadline: Instant,
}

impl Leadership {
    /// The term, unless the deadline has passed.
    #[must_use]
    pub fn in_force(&self) -> Option<LeaderTerm> {
        (Instant::now() < self.deadline).then_some(self.term)
    }
}
