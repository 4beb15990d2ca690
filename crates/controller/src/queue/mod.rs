//! The keyed work queue: one of a key in flight, backoff after failures, and a pool of those that wait for an event.
//!
//! Pure: time is handed in. The pools and their times are Kubernetes' scheduling queue's: active, backoff (1 s doubling
//! to 10 s, rejections and errors apart) and unschedulable, from where only an event that could cure brings a key back,
//! besides a flush every five minutes. What arrives for a key in flight is kept and looked at when it is done.
//!
//! Ready keys are ordered by the rank that the QueueSort plugin gives them, equal ones by how long they have been ready.
//! So that no rank can starve a failover, every second turn belongs to the key that has been ready longest, once that is
//! longer than [`LONGEST_READY`].
//!
//! A key whose gate is shut (PreEnqueue) never becomes ready. It is kept aside with the reason, outside of every clock and
//! event but those that the gate names ([`Queue::stand`] is told of them); what has to be done for it short of a decision
//! is handed out apart, by [`Queue::pop_held`].
//!
//! Waiting keys are filed under the topics of what they wait for ([`cures`] says which), so that an event asks those
//! that it may concern and nobody else.

pub mod cures;
mod standing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use self::standing::Standings;
pub use self::standing::{Held, Opening, Order, Rank, Urgency};

/// First wait after a failure.
pub const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// Longest wait after failures.
pub const LONGEST_BACKOFF: Duration = Duration::from_secs(10);
/// After so long a key that waits for an event is tried without one, in case an event was missed.
pub const FLUSH: Duration = Duration::from_secs(300);
/// After so long in the active pool a key has its turn whatever is ranked before it, every second one. As long as the
/// longest backoff: whoever is refused over and over cannot come back faster than others are served.
pub const LONGEST_READY: Duration = Duration::from_secs(10);

/// Events kept for keys in flight. When more arrive, each of these keys is tried once more instead.
const MOST_REPLAYED: usize = 10_000;

/// What a key waits for.
pub trait Cures {
    /// What happens.
    type Change: Clone;
    /// What waiting keys are filed under.
    type Topic: Ord + Clone;

    /// Under what to file this. An event that is the cure has one of these topics.
    fn topics(&self) -> Vec<Self::Topic>;

    /// What an event is about: all topics of every cure that it may be.
    fn topics_of(change: &Self::Change) -> Vec<Self::Topic>;

    /// Whether the event is the cure.
    fn is_met_by(&self, change: &Self::Change) -> bool;
}

/// How work on a key ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Done<Cure> {
    /// Nothing is left to do, and nothing is waited for.
    Settled,
    /// Nothing is left to do; one of these would change the answer, and is acted on at once. Again at the time besides,
    /// if one is named.
    Watches(Vec<Cure>, Option<Instant>),
    /// Nothing can be done for now: again when one of these happens, after the backoff for rejections, or at the time,
    /// if one is named.
    Waits(Vec<Cure>, Option<Instant>),
    /// A mistake that only an edit cures, which adds the key again. No time brings it back.
    Mistake,
    /// It failed: again after a backoff.
    Failed,
    /// The premises changed while it ran: again at once.
    Again,
}

#[derive(Debug, Clone)]
enum State<Cure> {
    Active(Ready),
    Backoff(Instant),
    Waiting {
        cures: Vec<Cure>,
        until: Option<Instant>,
        refused: bool,
    },
    /// Its gate is shut. At the time, if one is named, something short of a decision is due.
    Held(Option<Instant>),
}

/// A place in the active pool.
#[derive(Debug, Clone, Copy)]
struct Ready {
    rank: Rank,
    urgency: Urgency,
    /// Its number among all that became ready, and when that was.
    sequence: u64,
    since: Instant,
}

#[derive(Debug)]
struct Flight {
    again: Option<Urgency>,
    /// Number of the last event before it began.
    since: u64,
}

/// What a key has behind it.
#[derive(Debug, Clone, Copy, Default)]
struct Attempts {
    failures: u32,
    refusals: u32,
    /// When work on it began last. Waits count from there: under load they have usually run out already.
    popped: Option<Instant>,
}

/// How many keys are where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lengths {
    /// Ready.
    pub active: usize,
    /// In one of the backoffs.
    pub backoff: usize,
    /// Refused: waiting for an event that could let them be placed, or for an edit.
    pub waiting: usize,
    /// Placed: an event could bring something better.
    pub improvable: usize,
    /// Behind a gate that is shut.
    pub held: usize,
    /// Somebody works on them.
    pub in_flight: usize,
}

/// Keys, each in one pool or in flight.
#[derive(Debug)]
pub struct Queue<Key, Cure: Cures> {
    states: BTreeMap<Key, State<Cure>>,
    active: BTreeSet<(Rank, u64, Key)>,
    /// The same keys by how long they have been ready.
    ages: BTreeMap<u64, Key>,
    /// The last turn went to the one that had been ready longest.
    last_by_age: bool,
    order: Order<Key>,
    standings: Standings<Key>,
    /// Keys behind shut gates for which something short of a decision is due.
    chores: BTreeSet<Key>,
    held: usize,
    timers: BTreeSet<(Instant, Key)>,
    /// Who waits for what.
    topics: BTreeMap<Cure::Topic, BTreeSet<Key>>,
    waiting: usize,
    /// Of those that wait, the placed ones.
    improvable: usize,
    flights: BTreeMap<Key, Flight>,
    attempts: BTreeMap<Key, Attempts>,
    sequence: u64,
    /// Events that arrived while keys were in flight, with their numbers.
    events: VecDeque<(u64, Cure::Change)>,
    last_event: u64,
    /// Events up to this number are no longer known.
    forgotten: u64,
}

impl<Key: Ord + Clone, Cure: Cures> Queue<Key, Cure> {
    /// No key yet.
    #[must_use]
    pub fn new(order: Order<Key>) -> Self {
        Self {
            states: BTreeMap::new(),
            active: BTreeSet::new(),
            ages: BTreeMap::new(),
            last_by_age: false,
            order,
            standings: Standings::default(),
            chores: BTreeSet::new(),
            held: 0,
            timers: BTreeSet::new(),
            topics: BTreeMap::new(),
            waiting: 0,
            improvable: 0,
            flights: BTreeMap::new(),
            attempts: BTreeMap::new(),
            sequence: 0,
            events: VecDeque::new(),
            last_event: 0,
            forgotten: 0,
        }
    }

    /// Something of this key changed: it is tried at once, whatever it waited for. A key in flight is tried once more
    /// when it is done; one behind a shut gate only gets its chores done.
    pub fn add(&mut self, key: Key, urgency: Urgency, now: Instant) {
        if let Some(flight) = self.flights.get_mut(&key) {
            flight.again = Some(flight.again.map_or(urgency, |held| held.min(urgency)));
            return;
        }
        if urgency == Urgency::Now {
            self.attempts.remove(&key);
        }
        match self.states.get(&key) {
            Some(State::Active(held)) if held.urgency <= urgency => {}
            // A mere second look does not cut a backoff short.
            Some(State::Backoff(_)) if urgency == Urgency::Later => {}
            _ => self.activate(key, urgency, now),
        }
    }

    /// Says what is known of a key: its priority, and whether a gate is shut. A ready key takes its new place at once,
    /// or leaves the active pool. One whose gate opened is to be added besides.
    pub fn stand(&mut self, key: &Key, priority: i32, gate: Option<Held>) {
        self.standings.set(key, priority, gate);
        let Some(State::Active(ready)) = self.states.get(key) else { return };
        let ready = *ready;
        if self.standings.held(key).is_some() {
            self.hold(key.clone(), None, true);
            return;
        }
        let rank = self.order.rank(key, priority, ready.urgency);
        if rank != ready.rank {
            self.enter(key.clone(), Ready { rank, ..ready });
        }
    }

    /// Why a key is behind a shut gate, if it is.
    #[must_use]
    pub fn held(&self, key: &Key) -> Option<&Held> {
        self.standings.held(key)
    }

    /// The keys behind gates that this may open.
    #[must_use]
    pub fn held_until(&self, opening: Opening) -> Vec<Key> {
        self.standings.held_until(opening).cloned().collect()
    }

    /// Something happened that may cure others: every key that waits for it is tried, those that were refused after
    /// their backoff. Asks only keys that are filed under what the event is about.
    pub fn wake(&mut self, change: &Cure::Change, now: Instant) {
        if !self.flights.is_empty() {
            self.last_event += 1;
            self.events.push_back((self.last_event, change.clone()));
            if self.events.len() > MOST_REPLAYED
                && let Some((number, _)) = self.events.pop_front()
            {
                self.forgotten = number;
            }
        }
        let topics = Cure::topics_of(change);
        let asked: BTreeSet<&Key> =
            topics.iter().filter_map(|topic| self.topics.get(topic)).flatten().collect();
        let woken: Vec<Key> = asked
            .into_iter()
            .filter(|key| match self.states.get(key) {
                Some(State::Waiting { cures, .. }) => {
                    cures.iter().any(|cure| cure.is_met_by(change))
                }
                Some(State::Active(..) | State::Backoff(_) | State::Held(_)) | None => false,
            })
            .cloned()
            .collect();
        for key in woken {
            self.rouse(key, now);
        }
    }

    /// The next key to work on; it is in flight until [`Queue::done`].
    pub fn pop(&mut self, now: Instant) -> Option<Key> {
        self.expire(now);
        let (_, _, first) = self.active.first()?;
        let oldest = self.ages.values().next().filter(|_| !self.last_by_age);
        let overdue = oldest.filter(|key| match self.states.get(key) {
            Some(State::Active(ready)) => ready.since + LONGEST_READY <= now,
            _ => false,
        });
        self.last_by_age = overdue.is_some();
        let key = overdue.unwrap_or(first).clone();
        self.clear(&key);
        self.take_off(key.clone(), now);
        Some(key)
    }

    /// The next key behind a shut gate for which something short of a decision is due; it is in flight until
    /// [`Queue::done`].
    pub fn pop_held(&mut self, now: Instant) -> Option<Key> {
        let key = self.chores.pop_first()?;
        self.clear(&key);
        self.take_off(key.clone(), now);
        Some(key)
    }

    fn take_off(&mut self, key: Key, now: Instant) {
        self.attempts.entry(key.clone()).or_default().popped = Some(now);
        self.flights.insert(key, Flight { again: None, since: self.last_event });
    }

    /// Work on a key ended. Events that arrived meanwhile are held against what it waits for now.
    pub fn done(&mut self, key: &Key, how: Done<Cure>, now: Instant) {
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
            // What changed may be the very thing that failed; yet a hot loop helps nobody.
            (Done::Failed, _) => self.back_off(key.clone(), failures, now),
            (_, Some(urgency)) => {
                if urgency == Urgency::Now {
                    self.attempts.remove(key);
                }
                self.activate(key.clone(), urgency, now);
            }
            (Done::Again, None) => self.activate(key.clone(), Urgency::Now, now),
            // Behind a shut gate no cure is waited for: only the gate, and the time of the next chore.
            (how, None) if self.standings.held(key).is_some() => {
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
            (Done::Watches(cures, at), None) => {
                self.wait(key, cures, at, false, flight.since, now);
            }
            (Done::Waits(cures, at), None) => self.wait(key, cures, at, true, flight.since, now),
        }
        self.trim();
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

    /// Whether a key is in the active pool.
    #[must_use]
    pub fn is_ready(&self, key: &Key) -> bool {
        matches!(self.states.get(key), Some(State::Active(_)))
    }

    /// How many keys are where.
    #[must_use]
    pub fn lengths(&self) -> Lengths {
        Lengths {
            active: self.active.len(),
            backoff: self.states.len() - self.active.len() - self.waiting - self.held,
            waiting: self.waiting - self.improvable,
            improvable: self.improvable,
            held: self.held,
            in_flight: self.flights.len(),
        }
    }

    /// Moves keys whose time has come to the active pool.
    pub fn expire(&mut self, now: Instant) {
        while let Some((at, key)) = self.timers.first().cloned()
            && at <= now
        {
            self.activate(key, Urgency::Later, now);
        }
    }

    fn wait(
        &mut self,
        key: &Key,
        cures: Vec<Cure>,
        at: Option<Instant>,
        refused: bool,
        since: u64,
        now: Instant,
    ) {
        let missed = since < self.forgotten
            || self
                .events
                .iter()
                .filter(|(number, _)| *number > since)
                .any(|(_, change)| cures.iter().any(|cure| cure.is_met_by(change)));
        let until = at.unwrap_or(now + FLUSH).min(now + FLUSH);
        self.park(key, cures, Some(until), refused);
        if missed {
            self.rouse(key.clone(), now);
        }
    }

    fn park(&mut self, key: &Key, cures: Vec<Cure>, until: Option<Instant>, refused: bool) {
        if let Some(until) = until {
            self.timers.insert((until, key.clone()));
        }
        for topic in cures.iter().flat_map(Cures::topics) {
            self.topics.entry(topic).or_default().insert(key.clone());
        }
        self.waiting += 1;
        self.improvable += usize::from(is_improvable(until, refused));
        self.states.insert(key.clone(), State::Waiting { cures, until, refused });
    }

    fn clear(&mut self, key: &Key) {
        match self.states.remove(key) {
            Some(State::Active(ready)) => {
                self.active.remove(&(ready.rank, ready.sequence, key.clone()));
                self.ages.remove(&ready.sequence);
            }
            Some(State::Held(until)) => {
                self.held -= 1;
                self.chores.remove(key);
                if let Some(at) = until {
                    self.timers.remove(&(at, key.clone()));
                }
            }
            Some(State::Backoff(at)) => {
                self.timers.remove(&(at, key.clone()));
            }
            Some(State::Waiting { cures, until, refused }) => {
                self.waiting -= 1;
                self.improvable -= usize::from(is_improvable(until, refused));
                if let Some(at) = until {
                    self.timers.remove(&(at, key.clone()));
                }
                for topic in cures.iter().flat_map(Cures::topics) {
                    if let Some(keys) = self.topics.get_mut(&topic) {
                        keys.remove(key);
                        if keys.is_empty() {
                            self.topics.remove(&topic);
                        }
                    }
                }
            }
            None => {}
        }
    }

    /// Makes a key ready, or has its chores done where its gate is shut.
    fn activate(&mut self, key: Key, urgency: Urgency, now: Instant) {
        if self.standings.held(&key).is_some() {
            return self.hold(key, None, true);
        }
        let rank = self.order.rank(&key, self.standings.priority(&key), urgency);
        // What becomes more urgent has been ready as long as before.
        let ready = match self.states.get(&key) {
            Some(State::Active(ready)) => Ready { rank, urgency, ..*ready },
            _ => {
                self.sequence += 1;
                Ready { rank, urgency, sequence: self.sequence, since: now }
            }
        };
        self.enter(key, ready);
    }

    fn enter(&mut self, key: Key, ready: Ready) {
        self.clear(&key);
        self.active.insert((ready.rank, ready.sequence, key.clone()));
        self.ages.insert(ready.sequence, key.clone());
        self.states.insert(key, State::Active(ready));
    }

    fn hold(&mut self, key: Key, until: Option<Instant>, chores: bool) {
        self.clear(&key);
        if let Some(until) = until {
            self.timers.insert((until, key.clone()));
        }
        if chores {
            self.chores.insert(key.clone());
        }
        self.held += 1;
        self.states.insert(key, State::Held(until));
    }

    /// A waiting key has its event.
    fn rouse(&mut self, key: Key, now: Instant) {
        let refused = matches!(self.states.get(&key), Some(State::Waiting { refused: true, .. }));
        let refusals = self.attempts.get(&key).map_or(0, |attempts| attempts.refusals);
        if refused {
            self.back_off(key, refusals, now);
        } else {
            self.activate(key, Urgency::Now, now);
        }
    }

    fn back_off(&mut self, key: Key, times: u32, now: Instant) {
        let wait = FIRST_BACKOFF
            .saturating_mul(2_u32.saturating_pow(times.saturating_sub(1)))
            .min(LONGEST_BACKOFF);
        #[cfg(test)]
        let wait = match crate::mutants::is(crate::mutants::Mutant::RetryAfterMinutes) {
            true => Duration::from_secs(300),
            false => wait,
        };
        let popped = self.attempts.get(&key).and_then(|attempts| attempts.popped);
        let until = popped.unwrap_or(now) + wait;
        if until <= now {
            return self.activate(key, Urgency::Now, now);
        }
        self.clear(&key);
        self.timers.insert((until, key.clone()));
        self.states.insert(key, State::Backoff(until));
    }

    /// Events that no flight can have missed are dropped.
    fn trim(&mut self) {
        match self.flights.values().map(|flight| flight.since).min() {
            None => self.events.clear(),
            Some(oldest) => {
                while self.events.front().is_some_and(|(number, _)| *number <= oldest) {
                    self.events.pop_front();
                }
            }
        }
    }
}

/// Whether a waiting key has a place and only hopes for a better one. Without a time it waits for the edit of a mistake.
fn is_improvable(until: Option<Instant>, refused: bool) -> bool {
    !refused && until.is_some()
}

#[cfg(test)]
mod tests;
