//! Attributes of keys: their place in the order, and whether a gate is shut.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Position of a ready key. Smaller first; equal ones in the order in which they became ready.
pub(crate) type Rank = [i64; 2];

/// How urgently a key must be processed. The more urgent one is smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Something waits for it: an edit, a failure.
    Now,
    /// A mere recheck: a start, a relist, a timer.
    Later,
}

/// Ranks a key by its identity, priority and urgency.
type Ranking<Key> = dyn Fn(&Key, i32, Urgency) -> Rank + Send + Sync;

/// The order of ready keys.
pub struct Order<Key>(Arc<Ranking<Key>>);

impl<Key> Order<Key> {
    /// The order by this rank.
    pub fn new(rank: impl Fn(&Key, i32, Urgency) -> Rank + Send + Sync + 'static) -> Self {
        Self(Arc::new(rank))
    }

    pub(super) fn rank(&self, key: &Key, priority: i32, urgency: Urgency) -> Rank {
        (self.0)(key, priority, urgency)
    }
}

impl<Key> Clone for Order<Key> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<Key> fmt::Debug for Order<Key> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Order")
    }
}

/// Changes that may open a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Opening {
    /// A policy of the binding was created, changed or deleted, or another policy claims it now.
    Policy,
    /// Its template changed.
    Template,
    /// The binding itself changed.
    Binding,
    /// A cluster was created, changed or deleted, or its session changed.
    Cluster,
    /// An override policy was created, changed or deleted.
    OverridePolicy,
    /// A PriorityClass was created, changed or deleted.
    PriorityClass,
    /// A property of the hub changed: its namespaces, or whether it runs workloads.
    Hub,
}

/// Why a key is kept out of the active pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The plugin that shut the gate.
    pub plugin: &'static str,
    /// Why.
    pub why: String,
    /// Changes after which to evaluate the gate again.
    pub opens: &'static [Opening],
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.plugin, self.why)
    }
}

/// Priorities other than 0, and shut gates, by key.
#[derive(Debug)]
pub(super) struct QueueInfo<Key> {
    priorities: BTreeMap<Key, i32>,
    gates: BTreeMap<Key, Held>,
    openers: BTreeMap<Opening, BTreeSet<Key>>,
}

impl<Key> Default for QueueInfo<Key> {
    fn default() -> Self {
        Self { priorities: BTreeMap::new(), gates: BTreeMap::new(), openers: BTreeMap::new() }
    }
}

impl<Key: Ord + Clone> QueueInfo<Key> {
    pub(super) fn priority(&self, key: &Key) -> i32 {
        self.priorities.get(key).copied().unwrap_or_default()
    }

    pub(super) fn held(&self, key: &Key) -> Option<&Held> {
        self.gates.get(key)
    }

    pub(super) fn held_until(&self, opening: Opening) -> impl Iterator<Item = &Key> {
        self.openers.get(&opening).into_iter().flatten()
    }

    pub(super) fn set(&mut self, key: &Key, priority: i32, held: Option<Held>) {
        if priority == 0 {
            self.priorities.remove(key);
        } else {
            self.priorities.insert(key.clone(), priority);
        }
        if let Some(before) = self.gates.remove(key) {
            for opening in before.opens {
                if let Some(keys) = self.openers.get_mut(opening) {
                    keys.remove(key);
                }
            }
        }
        if let Some(held) = held {
            for opening in held.opens {
                self.openers.entry(*opening).or_default().insert(key.clone());
            }
            self.gates.insert(key.clone(), held);
        }
    }
}
