//! Events that arrived while keys were in flight: what such a key waits for afterwards may have happened already.

use std::collections::VecDeque;

use super::info::Urgency;

/// Limit of stored events. Beyond it, each key in flight is tried once more instead.
pub(super) const MOST_REPLAYED: usize = 10_000;

/// The events, with their numbers.
#[derive(Debug)]
pub(super) struct Events<Change> {
    stored: VecDeque<(u64, Change)>,
    last: u64,
    /// Events up to this number were dropped.
    forgotten: u64,
}

impl<Change> Default for Events<Change> {
    fn default() -> Self {
        Self { stored: VecDeque::new(), last: 0, forgotten: 0 }
    }
}

impl<Change> Events<Change> {
    pub(super) fn push(&mut self, change: Change) {
        self.last += 1;
        self.stored.push_back((self.last, change));
        if self.stored.len() > MOST_REPLAYED
            && let Some((number, _)) = self.stored.pop_front()
        {
            self.forgotten = number;
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.stored.len()
    }

    /// Number of the last event.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// The highest urgency of the events after this number; `None` if none concerns the key.
    pub(super) fn most_since(
        &self,
        number: u64,
        urgency: impl Fn(&Change) -> Option<Urgency>,
    ) -> Option<Urgency> {
        if number < self.forgotten {
            return Some(Urgency::Now);
        }
        let later = self.stored.iter().filter(|(at, _)| *at > number);
        later.filter_map(|(_, change)| urgency(change)).min()
    }

    /// Drops the events up to this number; all, if there is none.
    pub(super) fn forget(&mut self, up_to: Option<u64>) {
        match up_to {
            None => self.stored.clear(),
            Some(number) => {
                while self.stored.front().is_some_and(|(at, _)| *at <= number) {
                    self.stored.pop_front();
                }
            }
        }
    }
}
