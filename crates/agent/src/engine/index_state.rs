//! The index of kinds and namespaces as the engine knows it, and how far it can be trusted.

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::inventory::index::{Found, Index};
use crate::member::MemberError;

/// How far the index can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// It names every kind and namespace with objects of ours, on the member too.
    Complete,
    /// It was lost: every kind that the member serves is followed. It stays lost on the member until all kinds were
    /// listed, so that a successor of a crashed agent also lists everything; until then objects are applied without it.
    Lost,
    /// The member's content is known and the index is being written. Only objects that it names are applied.
    Restored,
}

/// The index and its write in progress.
#[derive(Debug)]
pub(super) struct IndexState {
    /// As it is on the member.
    pub(super) index: Index,
    pub(super) trust: Trust,
    /// The index being written.
    pub(super) writing: Option<Index>,
    /// When a failed write is repeated.
    pub(super) retry: Option<Instant>,
    /// The write.
    pub(super) writes: JoinSet<Result<(), MemberError>>,
}

impl IndexState {
    /// The index as found at start. `first`: no agent ran on this member before.
    pub(super) fn open(found: Found, first: bool) -> Self {
        let (index, trust) = match found {
            Found::Intact(index) => (index, Trust::Complete),
            // Written at once, so that its loss would be noticed.
            Found::Absent if first => (Index::default(), Trust::Restored),
            Found::Absent | Found::Damaged => {
                let what = if found == Found::Absent { "missing" } else { "damaged" };
                tracing::warn!("the inventory's index is {what}: listing all kinds of the member");
                (Index::default(), Trust::Lost)
            }
        };
        Self { index, trust, writing: None, retry: None, writes: JoinSet::new() }
    }

    /// Whether a write may start: none is running, and no retry is pending.
    pub(super) fn may_write(&self, now: Instant) -> bool {
        self.writing.is_none() && self.retry.is_none_or(|at| at <= now)
    }
}
