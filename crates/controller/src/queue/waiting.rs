//! The pool of keys that wait for an event, filed under the topics of what they wait for.

use std::collections::{BTreeMap, BTreeSet};

use super::wakes_on::WakesOn;

/// The pool.
pub(super) struct WaitingPool<Key, Condition: WakesOn> {
    topics: BTreeMap<Condition::Topic, BTreeSet<Key>>,
    lengths: WaitingLengths,
}

/// Why a key waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Replicas have no place: an event may allow one.
    Unplaced,
    /// An edit is needed.
    Mistaken,
    /// The next step depends on others: members that have not confirmed a removal, a rule, a plugin, or the hub, which
    /// refused the write.
    Blocked,
    /// It is placed: an event may allow a better placement.
    Improvable,
}

/// Number of waiting keys, by why they wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct WaitingLengths {
    pub(crate) unplaced: usize,
    pub(crate) mistaken: usize,
    pub(crate) blocked: usize,
    pub(crate) improvable: usize,
}

impl WaitingLengths {
    /// All of them.
    pub(super) fn all(self) -> usize {
        self.unplaced + self.mistaken + self.blocked + self.improvable
    }

    fn of(&mut self, why: Why) -> &mut usize {
        match why {
            Why::Unplaced => &mut self.unplaced,
            Why::Mistaken => &mut self.mistaken,
            Why::Blocked => &mut self.blocked,
            Why::Improvable => &mut self.improvable,
        }
    }
}

impl<Key, Condition: WakesOn> Default for WaitingPool<Key, Condition> {
    fn default() -> Self {
        Self { topics: BTreeMap::new(), lengths: WaitingLengths::default() }
    }
}

impl<Key: Ord + Clone, Condition: WakesOn> WaitingPool<Key, Condition> {
    /// Files a key.
    pub(super) fn insert(&mut self, key: &Key, conditions: &[Condition], why: Why) {
        for topic in conditions.iter().flat_map(WakesOn::topics) {
            self.topics.entry(topic).or_default().insert(key.clone());
        }
        *self.lengths.of(why) += 1;
    }

    pub(super) fn remove(&mut self, key: &Key, conditions: &[Condition], why: Why) {
        for topic in conditions.iter().flat_map(WakesOn::topics) {
            if let Some(keys) = self.topics.get_mut(&topic) {
                keys.remove(key);
                if keys.is_empty() {
                    self.topics.remove(&topic);
                }
            }
        }
        *self.lengths.of(why) -= 1;
    }

    /// The keys that an event may concern.
    pub(super) fn concerned(&self, change: &Condition::Change) -> BTreeSet<&Key> {
        let topics = Condition::topics_of(change);
        topics.iter().filter_map(|topic| self.topics.get(topic)).flatten().collect()
    }

    #[cfg(test)]
    pub(super) fn topics(&self) -> usize {
        self.topics.len()
    }

    pub(super) fn lengths(&self) -> WaitingLengths {
        self.lengths
    }
}
