//! Which object is worked on next: due times, a bound on concurrency, and the order in which first attempts start.
//!
//! The order helps objects that depend on others, but is never a barrier: an object that failed, or whose first attempt
//! is slow, blocks nothing. Retries get at most half of the slots, so that new work always finds some.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::apply::order::Rank;
use crate::key::Key;

/// Concurrent calls to the member. Enough to cover a round trip of tens of milliseconds, and few for an API server.
const SLOTS: usize = 32;
/// Slots among [`SLOTS`] for objects that failed before.
const RETRY_SLOTS: usize = 16;
/// How long the first attempt of an object delays objects later in the order.
const GATE: Duration = Duration::from_secs(5);
/// How often blocked work is checked again.
const LOOK: Duration = Duration::from_millis(500);

/// Position of a piece of work in the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// Applied: lower ranks first.
    Apply(Rank),
    /// Removed or released: higher ranks first.
    Withdraw(std::cmp::Reverse<Rank>),
}

impl Place {
    /// Work in place `self` waits for the first attempts of work in `other`.
    fn comes_after(self, other: Self) -> bool {
        match (self, other) {
            (Self::Apply(mine), Self::Apply(other)) => mine > other,
            (Self::Withdraw(mine), Self::Withdraw(other)) => mine > other,
            _ => false,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Item {
    place: Place,
    /// Set for a first attempt: since when it is queued.
    fresh: Option<Instant>,
}

/// Keys with work. At most one job per key runs at a time.
#[derive(Debug, Default)]
pub(super) struct Queue {
    timers: BTreeSet<(Instant, Key)>,
    ready: BTreeSet<(Place, Key)>,
    items: BTreeMap<Key, (Item, Option<Instant>)>,
    running: BTreeMap<Key, Item>,
    retries_running: usize,
    /// First attempts that are ready or running, by scope (namespace, or empty for all) and place.
    gates: BTreeMap<(String, Place), BTreeMap<Key, Instant>>,
}

impl Queue {
    /// Schedules a key's work, replacing what is queued for it. If a job of the key is running, the new one runs after
    /// it.
    pub(super) fn schedule(&mut self, key: &Key, place: Place, at: Instant, first_try: bool) {
        let fresh = match self.remove(key) {
            // Rescheduling does not restart a gate's time.
            Some(Item { place: before, fresh: Some(since) }) if before == place && first_try => {
                Some(since)
            }
            _ => first_try.then_some(at),
        };
        let item = Item { place, fresh };
        self.timers.insert((at, key.clone()));
        self.items.insert(key.clone(), (item, Some(at)));
        self.open_gate(key, item);
    }

    /// Removes a key's queued work.
    pub(super) fn cancel(&mut self, key: &Key) {
        self.remove(key);
    }

    /// Whether work of the key is queued.
    #[must_use]
    pub(super) fn has(&self, key: &Key) -> bool {
        self.items.contains_key(key)
    }

    /// Whether a job of the key runs.
    #[must_use]
    pub(super) fn is_running(&self, key: &Key) -> bool {
        self.running.contains_key(key)
    }

    /// The key's job ended.
    pub(super) fn finish(&mut self, key: &Key) {
        if let Some(item) = self.running.remove(key) {
            if item.fresh.is_none() {
                self.retries_running -= 1;
            }
            // The key's next job may share the gate entry: then it is removed with that job.
            let shared = self
                .items
                .get(key)
                .is_some_and(|(next, _)| next.place == item.place && next.fresh.is_some());
            if !shared {
                self.close_gate(key, item);
            }
        }
    }

    /// Work that may start now, in order; `covered` tells whether the index lists what the key needs.
    pub(super) fn take(&mut self, now: Instant, covered: impl Fn(&Key, Place) -> bool) -> Vec<Key> {
        while let Some((at, _)) = self.timers.first()
            && *at <= now
        {
            if let Some((_, key)) = self.timers.pop_first()
                && let Some((item, timer)) = self.items.get_mut(&key)
            {
                *timer = None;
                self.ready.insert((item.place, key));
            }
        }
        let mut taken = Vec::new();
        let ready: Vec<_> = if self.running.len() < SLOTS {
            self.ready.iter().cloned().collect()
        } else {
            Vec::new()
        };
        for (place, key) in ready {
            if self.running.len() >= SLOTS {
                break;
            }
            let Some((item, _)) = self.items.get(&key).copied() else { continue };
            let retry = item.fresh.is_none();
            if self.running.contains_key(&key)
                || (retry && self.retries_running >= RETRY_SLOTS)
                || self.is_gated(&key, place, now)
                || !covered(&key, place)
            {
                continue;
            }
            self.ready.remove(&(place, key.clone()));
            self.items.remove(&key);
            self.retries_running += usize::from(retry);
            self.running.insert(key.clone(), item);
            taken.push(key);
        }
        taken
    }

    /// How many keys have queued work, and on how many work runs.
    pub(super) fn lengths(&self) -> (usize, usize) {
        (self.items.len(), self.running.len())
    }

    /// Keys that are due and have not started.
    pub(super) fn due(&self) -> impl Iterator<Item = (&Key, Place)> {
        self.ready.iter().map(|(place, key)| (key, *place))
    }

    /// When to check again.
    #[must_use]
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let held = (!self.ready.is_empty() && self.running.len() < SLOTS).then(|| now + LOOK);
        let timer = self.timers.first().map(|(at, _)| *at);
        [held, timer].into_iter().flatten().min()
    }

    fn remove(&mut self, key: &Key) -> Option<Item> {
        let (item, timer) = self.items.remove(key)?;
        match timer {
            Some(at) => self.timers.remove(&(at, key.clone())),
            None => self.ready.remove(&(item.place, key.clone())),
        };
        self.close_gate(key, item);
        Some(item)
    }

    fn open_gate(&mut self, key: &Key, item: Item) {
        if let Some(since) = item.fresh {
            let gate = self.gates.entry((scope(key), item.place)).or_default();
            gate.insert(key.clone(), since);
        }
    }

    fn close_gate(&mut self, key: &Key, item: Item) {
        let place = (scope(key), item.place);
        if let Some(gate) = self.gates.get_mut(&place) {
            gate.remove(key);
            if gate.is_empty() {
                self.gates.remove(&place);
            }
        }
    }

    fn is_gated(&self, key: &Key, place: Place, now: Instant) -> bool {
        let own = scope(key);
        let everywhere = self.gates.range((String::new(), PLACES.0)..=(String::new(), PLACES.1));
        let here = self.gates.range((own.clone(), PLACES.0)..=(own.clone(), PLACES.1));
        let here = here.filter(|_| !own.is_empty());
        everywhere
            .chain(here)
            .filter(|((_, other), _)| place.comes_after(*other))
            .any(|(_, gate)| gate.values().any(|since| now < *since + GATE))
    }
}

/// The first and the last place.
const PLACES: (Place, Place) =
    (Place::Apply(Rank::Namespace), Place::Withdraw(std::cmp::Reverse(Rank::Namespace)));

/// The scope that a key's first attempt delays: its namespace; for a Namespace, its contents; for other cluster-scoped
/// objects, everything.
fn scope(key: &Key) -> String {
    if crate::apply::order::is_namespace(&key.kind) {
        key.name.clone()
    } else {
        key.namespace.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use super::*;
    use crate::key::GroupKind;

    fn key(kind: &str, namespace: &str, name: &str) -> Key {
        Key { kind: GroupKind::new("", kind), namespace: namespace.into(), name: name.into() }
    }

    fn all(_: &Key, _: Place) -> bool {
        true
    }

    #[tokio::test(start_paused = true)]
    async fn first_tries_go_in_order_and_failures_hold_nothing_up() {
        let mut queue = Queue::default();
        let now = Instant::now();
        let workload = key("Pod", "shop", "web");
        let elsewhere = key("Pod", "other", "web");
        let config = key("ConfigMap", "shop", "config");
        let namespace = key("Namespace", "", "shop");
        queue.schedule(&workload, Place::Apply(Rank::Rest), now, true);
        queue.schedule(&elsewhere, Place::Apply(Rank::Rest), now, true);
        queue.schedule(&config, Place::Apply(Rank::Config), now, true);
        queue.schedule(&namespace, Place::Apply(Rank::Namespace), now, true);
        assert_eq!(queue.take(now, all), [namespace.clone(), elsewhere]);
        queue.finish(&namespace);
        assert_eq!(queue.take(now, all), std::slice::from_ref(&config));
        assert_eq!(queue.take(now, all), []);
        // The config failed: it is retried later, and the workload continues.
        queue.finish(&config);
        queue.schedule(&config, Place::Apply(Rank::Config), now + GATE, false);
        assert_eq!(queue.take(now, all), [workload]);
        assert_eq!(queue.next(now), Some(now + GATE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_try_that_hangs_holds_others_up_for_a_moment_only() {
        let mut queue = Queue::default();
        let now = Instant::now();
        let (config, workload) = (key("ConfigMap", "shop", "config"), key("Pod", "shop", "web"));
        queue.schedule(&config, Place::Apply(Rank::Config), now, true);
        queue.schedule(&workload, Place::Apply(Rank::Rest), now, true);
        assert_eq!(queue.take(now, all), [config]);
        assert_eq!(queue.take(now + GATE - LOOK, all), []);
        assert_eq!(queue.next(now), Some(now + LOOK), "somebody looks again");
        assert_eq!(queue.take(now + GATE, all), [workload]);
    }

    #[tokio::test(start_paused = true)]
    async fn removals_go_in_reverse_and_do_not_wait_for_applies() {
        let mut queue = Queue::default();
        let now = Instant::now();
        let (config, workload) = (key("ConfigMap", "shop", "config"), key("Pod", "shop", "web"));
        let applied = key("ConfigMap", "shop", "new");
        queue.schedule(&config, Place::Withdraw(Reverse(Rank::Config)), now, true);
        queue.schedule(&workload, Place::Withdraw(Reverse(Rank::Rest)), now, true);
        queue.schedule(&applied, Place::Apply(Rank::Config), now, true);
        assert_eq!(queue.take(now, all), [applied, workload.clone()]);
        queue.finish(&workload);
        assert_eq!(queue.take(now, all), [config]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_failed_before_leaves_room_for_new_work() {
        let mut queue = Queue::default();
        let now = Instant::now();
        for n in 0..100 {
            queue.schedule(&key("Pod", "a", &n.to_string()), Place::Apply(Rank::Rest), now, false);
        }
        assert_eq!(queue.take(now, all).len(), RETRY_SLOTS);
        for n in 0..100 {
            queue.schedule(&key("Pod", "b", &n.to_string()), Place::Apply(Rank::Rest), now, true);
        }
        assert_eq!(queue.take(now, all).len(), SLOTS - RETRY_SLOTS);
        assert_eq!(queue.take(now, all), []);
        queue.finish(&key("Pod", "a", "0"));
        assert_eq!(queue.take(now, all).len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_runs_once_at_a_time_and_uncovered_keys_wait() {
        let mut queue = Queue::default();
        let now = Instant::now();
        let web = key("Pod", "shop", "web");
        queue.schedule(&web, Place::Apply(Rank::Rest), now, true);
        assert_eq!(queue.take(now, |_, _| false), []);
        assert_eq!(queue.take(now, all), std::slice::from_ref(&web));
        queue.schedule(&web, Place::Withdraw(Reverse(Rank::Rest)), now, true);
        assert_eq!(queue.take(now, all), []);
        queue.finish(&web);
        assert_eq!(queue.take(now, all), std::slice::from_ref(&web));
        queue.finish(&web);
        assert_eq!(queue.next(now), None);
        assert!(queue.gates.is_empty() && queue.items.is_empty() && queue.retries_running == 0);
    }
}
