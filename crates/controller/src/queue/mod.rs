//! The keyed work queue: one of a key in flight, backoff after failures, and a pool of those that wait for an event.
//!
//! Pure: time is handed in. The pools and their times are Kubernetes' scheduling queue's: active, backoff (1 s doubling
//! to 10 s, rejections and errors apart) and unschedulable, from where only an event that could cure brings a key back,
//! besides a flush every five minutes. What arrives for a key in flight is kept and looked at when it is done.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

/// First wait after a failure.
pub const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// Longest wait after failures.
pub const LONGEST_BACKOFF: Duration = Duration::from_secs(10);
/// After so long a key that waits for an event is tried without one, in case an event was missed.
pub const FLUSH: Duration = Duration::from_secs(300);

/// Where a key stands among those that are ready. Smaller first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Somebody waits for it: an edit, a failure.
    Now,
    /// It is only looked at again: a start, a relist, a change of a cluster.
    Later,
}

/// How work on a key ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Done<Cure> {
    /// Nothing is left to do.
    Settled,
    /// Nothing can be done for now: again when one of these happens, or at the time, if one is named.
    Waits(Vec<Cure>, Option<Instant>),
    /// It failed: again after a backoff.
    Failed,
    /// The premises changed while it ran: again at once.
    Again,
}

#[derive(Debug, Clone)]
enum State<Cure> {
    Active(Priority, u64),
    Backoff(Instant),
    Waiting(Vec<Cure>, Instant),
}

#[derive(Debug)]
struct Flight<Change> {
    again: Option<Priority>,
    changes: Vec<Change>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Attempts {
    failures: u32,
    refusals: u32,
}

/// Keys, each in one pool or in flight. `Change` is what happened, `Cure` what a key waits for.
#[derive(Debug)]
pub struct Queue<Key, Cure, Change> {
    states: BTreeMap<Key, State<Cure>>,
    active: BTreeSet<(Priority, u64, Key)>,
    timers: BTreeSet<(Instant, Key)>,
    flights: BTreeMap<Key, Flight<Change>>,
    attempts: BTreeMap<Key, Attempts>,
    sequence: u64,
}

impl<Key: Ord + Clone, Cure, Change: Clone> Default for Queue<Key, Cure, Change> {
    fn default() -> Self {
        Self {
            states: BTreeMap::new(),
            active: BTreeSet::new(),
            timers: BTreeSet::new(),
            flights: BTreeMap::new(),
            attempts: BTreeMap::new(),
            sequence: 0,
        }
    }
}

impl<Key: Ord + Clone, Cure, Change: Clone> Queue<Key, Cure, Change> {
    /// Something of this key changed: it is tried at once, whatever it waited for. A key in flight is tried once more
    /// when it is done.
    pub fn add(&mut self, key: Key, priority: Priority) {
        if let Some(flight) = self.flights.get_mut(&key) {
            flight.again = Some(flight.again.map_or(priority, |held| held.min(priority)));
            return;
        }
        if priority == Priority::Now {
            self.attempts.remove(&key);
        }
        match self.states.get(&key) {
            Some(State::Active(held, _)) if *held <= priority => {}
            // A mere second look does not cut a backoff short.
            Some(State::Backoff(_)) if priority == Priority::Later => {}
            _ => self.activate(key, priority),
        }
    }

    /// Something happened that may cure others: every key with a cure that `cures` accepts is tried after its backoff.
    pub fn wake(&mut self, change: &Change, now: Instant, cures: impl Fn(&Change, &Cure) -> bool) {
        for flight in self.flights.values_mut() {
            flight.changes.push(change.clone());
        }
        let woken: Vec<Key> = self
            .states
            .iter()
            .filter(|(_, state)| match state {
                State::Waiting(waits, _) => waits.iter().any(|cure| cures(change, cure)),
                State::Active(..) | State::Backoff(_) => false,
            })
            .map(|(key, _)| key.clone())
            .collect();
        for key in woken {
            self.back_off(key, now, false);
        }
    }

    /// The next key to work on; it is in flight until [`Queue::done`].
    pub fn pop(&mut self, now: Instant) -> Option<Key> {
        self.expire(now);
        let (_, _, key) = self.active.pop_first()?;
        self.states.remove(&key);
        self.flights.insert(key.clone(), Flight { again: None, changes: Vec::new() });
        Some(key)
    }

    /// Work on a key ended.
    pub fn done(
        &mut self,
        key: &Key,
        how: Done<Cure>,
        now: Instant,
        cures: impl Fn(&Change, &Cure) -> bool,
    ) {
        let Some(flight) = self.flights.remove(key) else { return };
        if let Some(priority) = flight.again {
            if matches!(how, Done::Settled) {
                self.attempts.remove(key);
            }
            match how {
                // What changed may be the very thing that failed; yet a hot loop helps nobody.
                Done::Failed => self.back_off(key.clone(), now, true),
                _ => self.activate(key.clone(), priority),
            }
            return;
        }
        match how {
            Done::Settled => {
                self.attempts.remove(key);
            }
            Done::Again => self.activate(key.clone(), Priority::Now),
            Done::Failed => self.back_off(key.clone(), now, true),
            Done::Waits(waits, at) => {
                self.attempts.entry(key.clone()).or_default().refusals += 1;
                let missed = flight
                    .changes
                    .iter()
                    .any(|change| waits.iter().any(|cure| cures(change, cure)));
                if missed {
                    self.back_off(key.clone(), now, false);
                } else {
                    let until = at.unwrap_or(now + FLUSH).min(now + FLUSH);
                    self.timers.insert((until, key.clone()));
                    self.states.insert(key.clone(), State::Waiting(waits, until));
                }
            }
        }
    }

    /// The key is of no interest any more.
    pub fn forget(&mut self, key: &Key) {
        self.clear(key);
        self.attempts.remove(key);
    }

    /// When the next key becomes ready without anybody's doing.
    #[must_use]
    pub fn next_timer(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Whether somebody works on a key.
    #[must_use]
    pub fn is_in_flight(&self, key: &Key) -> bool {
        self.flights.contains_key(key)
    }

    /// Whether a key is ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.active.is_empty()
    }

    /// Keys ready, backing off or waiting, and in flight.
    #[must_use]
    pub fn lengths(&self) -> (usize, usize, usize) {
        (self.active.len(), self.states.len() - self.active.len(), self.flights.len())
    }

    /// Moves keys whose time has come to the active pool.
    pub fn expire(&mut self, now: Instant) {
        while let Some((at, key)) = self.timers.first().cloned()
            && at <= now
        {
            self.activate(key, Priority::Later);
        }
    }

    fn clear(&mut self, key: &Key) {
        match self.states.remove(key) {
            Some(State::Active(priority, sequence)) => {
                self.active.remove(&(priority, sequence, key.clone()));
            }
            Some(State::Backoff(at) | State::Waiting(_, at)) => {
                self.timers.remove(&(at, key.clone()));
            }
            None => {}
        }
    }

    fn activate(&mut self, key: Key, priority: Priority) {
        self.clear(&key);
        self.sequence += 1;
        self.active.insert((priority, self.sequence, key.clone()));
        self.states.insert(key, State::Active(priority, self.sequence));
    }

    fn back_off(&mut self, key: Key, now: Instant, failed: bool) {
        self.clear(&key);
        let attempts = self.attempts.entry(key.clone()).or_default();
        let count = if failed {
            attempts.failures += 1;
            attempts.failures
        } else {
            attempts.refusals.max(1)
        };
        let wait = FIRST_BACKOFF
            .saturating_mul(2_u32.saturating_pow(count.saturating_sub(1)))
            .min(LONGEST_BACKOFF);
        self.timers.insert((now + wait, key.clone()));
        self.states.insert(key, State::Backoff(now + wait));
    }
}

#[cfg(test)]
mod tests;
