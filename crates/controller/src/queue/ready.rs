//! The active pool: ready keys by rank, and by how long they have been ready.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::info::{Rank, Urgency};

/// After this time in the active pool a key gets a turn regardless of rank, every second one. As long as the longest
/// backoff: a key that is rejected again and again cannot return faster than others get their turn.
pub(crate) const LONGEST_READY: Duration = Duration::from_secs(10);

/// A place in the active pool.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ready {
    pub(super) rank: Rank,
    pub(super) urgency: Urgency,
    /// Its sequence number among all keys that became ready, and the time.
    pub(super) sequence: u64,
    pub(super) since: Instant,
}

/// The pool.
#[derive(Debug)]
pub(super) struct ReadyPool<Key> {
    by_rank: BTreeSet<(Rank, u64, Key)>,
    by_age: BTreeMap<u64, (Instant, Key)>,
    /// Whether the last turn went to the longest-ready key.
    last_by_age: bool,
    sequence: u64,
}

impl<Key> Default for ReadyPool<Key> {
    fn default() -> Self {
        Self { by_rank: BTreeSet::new(), by_age: BTreeMap::new(), last_by_age: false, sequence: 0 }
    }
}

impl<Key: Ord + Clone> ReadyPool<Key> {
    /// A key that becomes ready now.
    pub(super) fn next(&mut self, rank: Rank, urgency: Urgency, since: Instant) -> Ready {
        self.sequence += 1;
        Ready { rank, urgency, sequence: self.sequence, since }
    }

    pub(super) fn insert(&mut self, key: &Key, ready: Ready) {
        self.by_rank.insert((ready.rank, ready.sequence, key.clone()));
        self.by_age.insert(ready.sequence, (ready.since, key.clone()));
    }

    pub(super) fn remove(&mut self, key: &Key, ready: Ready) {
        self.by_rank.remove(&(ready.rank, ready.sequence, key.clone()));
        self.by_age.remove(&ready.sequence);
    }

    /// Whose turn it is: the key of the lowest rank, or every second time the one that has been ready for too long.
    pub(super) fn turn(&mut self, now: Instant) -> Option<Key> {
        let (_, _, first) = self.by_rank.first()?;
        let oldest = self.by_age.values().next().filter(|_| !self.last_by_age);
        let overdue = oldest.filter(|(since, _)| *since + LONGEST_READY <= now);
        self.last_by_age = overdue.is_some();
        Some(overdue.map_or(first, |(_, key)| key).clone())
    }

    pub(super) fn len(&self) -> usize {
        self.by_rank.len()
    }
}
