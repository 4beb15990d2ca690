//! The pool of keys that wait for an event, filed under the topics of what they wait for.

use std::collections::{BTreeMap, BTreeSet};

use super::wakes_on::WakesOn;

/// The pool.
pub(super) struct WaitingPool<Key, Condition: WakesOn> {
    topics: BTreeMap<Condition::Topic, BTreeSet<Key>>,
    /// Number of keys that were rejected, or wait for an edit.
    rejected: usize,
    /// Number of keys that are placed.
    improvable: usize,
}

impl<Key, Condition: WakesOn> Default for WaitingPool<Key, Condition> {
    fn default() -> Self {
        Self { topics: BTreeMap::new(), rejected: 0, improvable: 0 }
    }
}

impl<Key: Ord + Clone, Condition: WakesOn> WaitingPool<Key, Condition> {
    /// Files a key; `improvable`: it is placed, and only waits for a better placement.
    pub(super) fn insert(&mut self, key: &Key, conditions: &[Condition], improvable: bool) {
        for topic in conditions.iter().flat_map(WakesOn::topics) {
            self.topics.entry(topic).or_default().insert(key.clone());
        }
        *self.count(improvable) += 1;
    }

    pub(super) fn remove(&mut self, key: &Key, conditions: &[Condition], improvable: bool) {
        for topic in conditions.iter().flat_map(WakesOn::topics) {
            if let Some(keys) = self.topics.get_mut(&topic) {
                keys.remove(key);
                if keys.is_empty() {
                    self.topics.remove(&topic);
                }
            }
        }
        *self.count(improvable) -= 1;
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

    pub(super) fn rejected(&self) -> usize {
        self.rejected
    }

    pub(super) fn improvable(&self) -> usize {
        self.improvable
    }

    fn count(&mut self, improvable: bool) -> &mut usize {
        if improvable { &mut self.improvable } else { &mut self.rejected }
    }
}
