//! The keyed work queue: at most one job per key, backoff after failures, and a pool of keys that wait for an event.
//!
//! Pure: the caller passes the time. The pools and their times are those of Kubernetes' scheduling queue: active,
//! backoff (1 s doubling to 10 s, rejections and errors counted separately) and unschedulable, from which only a
//! matching event returns a key, and a flush every five minutes. Placed keys, which Kubernetes' queue does not hold, are
//! flushed every hour. Events that arrive while a key is in flight are stored and checked when its job is done.
//!
//! Ready keys are ordered by the rank of the QueueSort plugin, then by how long they have been ready. So that no rank
//! can starve a failover, every second turn goes to the key that has been ready longest, once that exceeds
//! [`LONGEST_READY`].
//!
//! A key whose gate is shut (PreEnqueue) never becomes ready. It is stored separately with the reason, and only events
//! that the gate names affect it (reported by [`Queue::set_info`]); work that does not need a decision is returned
//! separately, by [`Queue::pop_held`].
//!
//! Waiting keys are filed under the topics of what they wait for (see [`wake_conditions`]), so that an event checks
//! only the keys that it may concern.

mod events;
pub(crate) mod gates;
mod info;
mod ready;
mod waiting;
pub(crate) mod wake_conditions;
mod wakes_on;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use atoll_api::Backoff;
use atoll_scheduler::WakeCondition;
use tokio::time::Instant;

use self::events::Events;
use self::info::QueueInfo;
pub(crate) use self::info::{Held, Opening, Order, Rank, Urgency};

use self::ready::{Ready, ReadyPool};
pub(crate) use self::waiting::WaitingLengths;
use self::waiting::{WaitingPool, Why};
pub(crate) use self::wakes_on::WakesOn;
use crate::index::key::BindingKey;

/// The queue of bindings.
pub(crate) type BindingQueue = Queue<BindingKey, WakeCondition>;

/// Waits after failures. Without jitter: one leader has one queue, and the hub is asked by its jobs alone.
pub(crate) const BACKOFF: Backoff =
    Backoff { first: Duration::from_secs(1), most: Duration::from_secs(10) };
/// After this time a key without a place is tried without an event, in case one was missed.
pub(crate) const FLUSH: Duration = Duration::from_secs(300);
/// The same for a key that is placed and waits for a better place. Every five minutes, 100,000 of them would take a fifth
/// of a core of a federation in which nothing happens.
const FLUSH_PLACED: Duration = Duration::from_secs(3600);

/// Result of a job.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Done<Condition> {
    /// Nothing is left to do or to wait for.
    Settled,
    /// Nothing is left to do; each of these events would change the result, and returns the key at once. So does the
    /// given time.
    Watches(Vec<Condition>, Option<Instant>),
    /// Nothing can be done for now: the key returns when one of these events occurs, after the backoff for rejections,
    /// or at the given time.
    Waits(Vec<Condition>, Option<Instant>),
    /// A mistake that only an edit can fix, which adds the key again. No timer returns it.
    Mistake,
    /// It failed: retry after a backoff.
    Failed,
    /// Its inputs changed while it ran: retry at once.
    Again,
}

#[derive(Debug, Clone)]
enum State<Condition> {
    Active(Ready),
    Backoff(Instant),
    Waiting {
        /// Without spare room: most keys wait, and a list that grows has room for four.
        conditions: Box<[Condition]>,
        until: Option<Instant>,
        refused: bool,
    },
    /// Its gate is shut. At the given time, work that needs no decision is due.
    Held(Option<Instant>),
}

#[derive(Debug)]
struct Flight {
    again: Option<Urgency>,
    /// Number of the last event before the job began.
    since: u64,
    /// How long the key was ready.
    waited: Duration,
}

/// A key's earlier attempts.
#[derive(Debug, Clone, Copy, Default)]
struct Attempts {
    failures: u32,
    refusals: u32,
    /// Start of the key's last job. Waits count from here: under load they have usually passed already.
    popped: Option<Instant>,
}

/// Number of keys by pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Lengths {
    /// Ready.
    pub active: usize,
    /// In either backoff.
    pub backoff: usize,
    /// Waiting for an event.
    pub waiting: WaitingLengths,
    /// Behind a shut gate.
    pub held: usize,
    /// In flight.
    pub in_flight: usize,
}

/// Keys, each in one pool or in flight.
pub(crate) struct Queue<Key, Condition: WakesOn> {
    states: BTreeMap<Key, State<Condition>>,
    ready: ReadyPool<Key>,
    waiting: WaitingPool<Key, Condition>,
    order: Order<Key>,
    /// Waits after failures.
    retry: Backoff,
    info: QueueInfo<Key>,
    /// Keys behind shut gates with due work that needs no decision.
    maintenance: BTreeSet<Key>,
    /// Number of keys behind shut gates.
    held: usize,
    timers: BTreeSet<(Instant, Key)>,
    flights: BTreeMap<Key, Flight>,
    attempts: BTreeMap<Key, Attempts>,
    events: Events<Condition::Change>,
}

impl<Key: Ord + Clone, Condition: WakesOn> Queue<Key, Condition> {
    /// Creates an empty queue.
    #[must_use]
    pub(crate) fn new(order: Order<Key>, retry: Backoff) -> Self {
        Self {
            states: BTreeMap::new(),
            ready: ReadyPool::default(),
            waiting: WaitingPool::default(),
            order,
            retry,
            info: QueueInfo::default(),
            maintenance: BTreeSet::new(),
            held: 0,
            timers: BTreeSet::new(),
            flights: BTreeMap::new(),
            attempts: BTreeMap::new(),
            events: Events::default(),
        }
    }

    /// Something about this key changed: it is tried at once, whatever it waited for. A key in flight is tried once
    /// more when it is done; one behind a shut gate only gets its other work done.
    pub(crate) fn add(&mut self, key: Key, urgency: Urgency, now: Instant) {
        if let Some(flight) = self.flights.get_mut(&key) {
            flight.again = Some(flight.again.map_or(urgency, |held| held.min(urgency)));
            return;
        }
        if urgency == Urgency::Now {
            self.attempts.remove(&key);
        }
        match self.states.get(&key) {
            Some(State::Active(held)) if held.urgency <= urgency => {}
            // A mere recheck does not shorten a backoff.
            Some(State::Backoff(_)) if urgency == Urgency::Later => {}
            _ => self.activate(key, urgency, now),
        }
    }

    /// Sets a key's priority, and whether its gate is shut. A ready key takes its new place at once, or leaves the
    /// active pool. When a gate opens, the caller must also add the key.
    pub(crate) fn set_info(&mut self, key: &Key, priority: i32, gate: Option<Held>) {
        self.info.set(key, priority, gate);
        let Some(State::Active(ready)) = self.states.get(key) else { return };
        let ready = *ready;
        if self.info.held(key).is_some() {
            self.hold(key.clone(), None, true);
            return;
        }
        let rank = self.order.rank(key, priority, ready.urgency);
        if rank != ready.rank {
            self.enter(key.clone(), Ready { rank, ..ready });
        }
    }

    /// Why a key's gate is shut, if it is.
    #[must_use]
    pub(crate) fn held(&self, key: &Key) -> Option<&Held> {
        self.info.held(key)
    }

    /// The keys whose gates this may open.
    #[must_use]
    pub(crate) fn held_until(&self, opening: Opening) -> Vec<Key> {
        self.info.held_until(opening).cloned().collect()
    }

    /// An event that may meet a condition: every key that waits for it is tried, rejected ones after their backoff.
    /// Checks only keys filed under the event's topics.
    pub(crate) fn wake(&mut self, change: &Condition::Change, now: Instant) {
        if !self.flights.is_empty() {
            self.events.push(change.clone());
        }
        let concerned = self.waiting.concerned(change);
        let urgency = |key: &&Key| match self.states.get(*key) {
            Some(State::Waiting { conditions, .. }) => urgency(conditions, change),
            Some(State::Active(..) | State::Backoff(_) | State::Held(_)) | None => None,
        };
        let woken: Vec<(Key, Urgency)> =
            concerned.into_iter().filter_map(|key| Some((key.clone(), urgency(&key)?))).collect();
        for (key, urgency) in woken {
            self.rouse(key, urgency, now);
        }
    }

    /// An event that concerns this key if it is placed. Other keys wait for the event's topic.
    pub(crate) fn wake_placed(&mut self, key: &Key, now: Instant) {
        if let Some(flight) = self.flights.get_mut(key) {
            flight.again = Some(Urgency::Now);
        } else if matches!(self.states.get(key), Some(State::Waiting { refused: false, .. })) {
            self.activate(key.clone(), Urgency::Now, now);
        }
    }

    /// The next key to work on; in flight until [`Queue::done`].
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Key> {
        self.expire(now);
        let key = self.ready.turn(now)?;
        let waited = match self.states.get(&key) {
            Some(State::Active(ready)) => now.saturating_duration_since(ready.since),
            _ => Duration::ZERO,
        };
        self.clear(&key);
        self.take_off(key.clone(), waited, now);
        Some(key)
    }

    /// The next key behind a shut gate with due work that needs no decision; in flight until [`Queue::done`].
    pub(crate) fn pop_held(&mut self, now: Instant) -> Option<Key> {
        let key = self.maintenance.pop_first()?;
        self.clear(&key);
        self.take_off(key.clone(), Duration::ZERO, now);
        Some(key)
    }

    fn take_off(&mut self, key: Key, waited: Duration, now: Instant) {
        self.attempts.entry(key.clone()).or_default().popped = Some(now);
        self.flights.insert(key, Flight { again: None, since: self.events.last(), waited });
    }

    /// A key's job ended. Events that arrived meanwhile are checked against what it waits for now.
    pub(crate) fn done(&mut self, key: &Key, how: Done<Condition>, now: Instant) {
        let Some(flight) = self.flights.remove(key) else { return };
        let attempts = self.attempts.entry(key.clone()).or_default();
        match &how {
            Done::Settled | Done::Watches(..) | Done::Mistake => {
                (attempts.failures, attempts.refusals) = (0, 0);
            }
            Done::Waits(..) => attempts.refusals = attempts.refusals.saturating_add(1),
            Done::Failed => attempts.failures = attempts.failures.saturating_add(1),
            Done::Again => {}
        }
        let failures = attempts.failures;
        match (how, flight.again) {
            // The change may fix the failure, but a hot loop must be avoided.
            (Done::Failed, _) => self.back_off(key.clone(), failures, now),
            (_, Some(urgency)) => {
                if urgency == Urgency::Now {
                    self.attempts.remove(key);
                }
                self.activate(key.clone(), urgency, now);
            }
            (Done::Again, None) => self.activate(key.clone(), Urgency::Now, now),
            // Behind a shut gate a key waits only for the gate, and for the time of its next other work.
            (how, None) if self.info.held(key).is_some() => {
                self.attempts.remove(key);
                let at = match how {
                    Done::Watches(_, at) => at,
                    Done::Waits(_, at) => Some(at.unwrap_or(now + FLUSH)),
                    Done::Settled | Done::Mistake | Done::Failed | Done::Again => None,
                };
                self.hold(key.clone(), at, false);
            }
            (Done::Settled, None) => {
                self.attempts.remove(key);
            }
            (Done::Mistake, None) => self.park(key, Vec::new(), None, false),
            (Done::Watches(conditions, at), None) => {
                self.wait(key, conditions, at, false, flight.since, now);
            }
            (Done::Waits(conditions, at), None) => {
                self.wait(key, conditions, at, true, flight.since, now)
            }
        }
        self.trim();
    }

    /// When the next key becomes ready by time alone.
    #[must_use]
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Whether a key is in flight.
    #[must_use]
    pub(crate) fn is_in_flight(&self, key: &Key) -> bool {
        self.flights.contains_key(key)
    }

    /// Keys that are ready or in flight.
    #[must_use]
    pub(crate) fn busy(&self) -> Vec<Key> {
        let ready = self.states.iter().filter(|(_, state)| matches!(state, State::Active(_)));
        ready.map(|(key, _)| key).chain(self.flights.keys()).cloned().collect()
    }

    /// Keys that are due now or after a backoff, or in flight.
    #[must_use]
    pub(crate) fn due(&self) -> Vec<Key> {
        let due = |state: &State<Condition>| matches!(state, State::Active(_) | State::Backoff(_));
        let due = self.states.iter().filter(|(_, state)| due(state)).map(|(key, _)| key);
        due.chain(self.flights.keys()).cloned().collect()
    }

    /// Keys behind shut gates.
    pub(crate) fn all_held(&self) -> impl Iterator<Item = &Key> {
        let held = |state: &State<Condition>| matches!(state, State::Held(_));
        self.states.iter().filter(move |(_, state)| held(state)).map(|(key, _)| key)
    }

    /// Keys that wait for events, with the events.
    pub(crate) fn all_waiting(&self) -> impl Iterator<Item = (&Key, &[Condition])> {
        self.states.iter().filter_map(|(key, state)| match state {
            State::Waiting { conditions, .. } if !conditions.is_empty() => {
                Some((key, &**conditions))
            }
            _ => None,
        })
    }

    /// How long a key in flight was ready before.
    #[must_use]
    pub(crate) fn waited(&self, key: &Key) -> Duration {
        self.flights.get(key).map_or(Duration::ZERO, |flight| flight.waited)
    }

    /// When a key in flight left the pool, and how long it had been ready.
    #[must_use]
    pub(crate) fn flight(&self, key: &Key) -> Option<(Instant, Duration)> {
        let flight = self.flights.get(key)?;
        Some((self.attempts.get(key)?.popped?, flight.waited))
    }

    /// Whether a key is in the active pool.
    #[must_use]
    pub(crate) fn is_ready(&self, key: &Key) -> bool {
        matches!(self.states.get(key), Some(State::Active(_)))
    }

    /// Number of keys by pool.
    #[must_use]
    pub(crate) fn lengths(&self) -> Lengths {
        let waiting = self.waiting.lengths();
        Lengths {
            active: self.ready.len(),
            backoff: self.states.len() - self.ready.len() - waiting.all() - self.held,
            waiting,
            held: self.held,
            in_flight: self.flights.len(),
        }
    }

    /// Moves keys whose time has come to the active pool.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some((at, key)) = self.timers.first().cloned()
            && at <= now
        {
            let urgency = match self.states.get(&key) {
                // A change or a failure put it there.
                Some(State::Backoff(_)) => Urgency::Now,
                _ => Urgency::Later,
            };
            self.activate(key, urgency, now);
        }
    }

    fn wait(
        &mut self,
        key: &Key,
        conditions: Vec<Condition>,
        at: Option<Instant>,
        refused: bool,
        since: u64,
        now: Instant,
    ) {
        let missed = self.events.most_since(since, |change| urgency(&conditions, change));
        let flush = now + if refused { FLUSH } else { FLUSH_PLACED };
        let until = at.unwrap_or(flush).min(flush);
        self.park(key, conditions, Some(until), refused);
        if let Some(urgency) = missed {
            self.rouse(key.clone(), urgency, now);
        }
    }

    fn park(
        &mut self,
        key: &Key,
        conditions: Vec<Condition>,
        until: Option<Instant>,
        refused: bool,
    ) {
        if let Some(until) = until {
            self.timers.insert((until, key.clone()));
        }
        self.waiting.insert(key, &conditions, why(&conditions, until, refused));
        let conditions = conditions.into_boxed_slice();
        self.states.insert(key.clone(), State::Waiting { conditions, until, refused });
    }

    fn clear(&mut self, key: &Key) {
        match self.states.remove(key) {
            Some(State::Active(ready)) => {
                self.ready.remove(key, ready);
            }
            Some(State::Held(until)) => {
                self.held -= 1;
                self.maintenance.remove(key);
                if let Some(at) = until {
                    self.timers.remove(&(at, key.clone()));
                }
            }
            Some(State::Backoff(at)) => {
                self.timers.remove(&(at, key.clone()));
            }
            Some(State::Waiting { conditions, until, refused }) => {
                self.waiting.remove(key, &conditions, why(&conditions, until, refused));
                if let Some(at) = until {
                    self.timers.remove(&(at, key.clone()));
                }
            }
            None => {}
        }
    }

    /// Makes a key ready, or its other work due if its gate is shut.
    fn activate(&mut self, key: Key, urgency: Urgency, now: Instant) {
        if self.info.held(&key).is_some() {
            return self.hold(key, None, true);
        }
        let rank = self.order.rank(&key, self.info.priority(&key), urgency);
        // A key that becomes more urgent keeps its time of becoming ready.
        let ready = match self.states.get(&key) {
            Some(State::Active(ready)) => Ready { rank, urgency, ..*ready },
            _ => self.ready.next(rank, urgency, now),
        };
        self.enter(key, ready);
    }

    fn enter(&mut self, key: Key, ready: Ready) {
        self.clear(&key);
        self.ready.insert(&key, ready);
        self.states.insert(key, State::Active(ready));
    }

    fn hold(&mut self, key: Key, until: Option<Instant>, maintenance: bool) {
        self.clear(&key);
        if let Some(until) = until {
            self.timers.insert((until, key.clone()));
        }
        if maintenance {
            self.maintenance.insert(key.clone());
        }
        self.held += 1;
        self.states.insert(key, State::Held(until));
    }

    /// A waiting key's event occurred.
    fn rouse(&mut self, key: Key, urgency: Urgency, now: Instant) {
        let refused = matches!(self.states.get(&key), Some(State::Waiting { refused: true, .. }));
        let refusals = self.attempts.get(&key).map_or(0, |attempts| attempts.refusals);
        if refused {
            self.back_off(key, refusals, now);
        } else {
            self.activate(key, urgency, now);
        }
    }

    fn back_off(&mut self, key: Key, times: u32, now: Instant) {
        let wait = self.retry.ceiling(times);
        let popped = self.attempts.get(&key).and_then(|attempts| attempts.popped);
        let until = popped.unwrap_or(now) + wait;
        if until <= now {
            return self.activate(key, Urgency::Now, now);
        }
        self.clear(&key);
        self.timers.insert((until, key.clone()));
        self.states.insert(key, State::Backoff(until));
    }

    /// Drops events that every key in flight already includes.
    fn trim(&mut self) {
        self.events.forget(self.flights.values().map(|flight| flight.since).min());
    }
}

/// How urgently a key with these conditions must be tried because of a change; `None` if the change meets none.
fn urgency<Condition: WakesOn>(
    conditions: &[Condition],
    change: &Condition::Change,
) -> Option<Urgency> {
    let met = conditions.iter().filter(|condition| condition.is_met_by(change));
    met.map(WakesOn::urgency).min()
}

/// Why a key waits. Without a time it waits for an edit of a mistake.
fn why<Condition>(conditions: &[Condition], until: Option<Instant>, refused: bool) -> Why {
    match (refused, until) {
        (true, _) if conditions.is_empty() => Why::Blocked,
        (true, _) => Why::Unplaced,
        (false, None) => Why::Mistaken,
        (false, Some(_)) => Why::Improvable,
    }
}

#[cfg(test)]
mod tests;
