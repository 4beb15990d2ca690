//! The scheduling queue as a data structure: which binding is decided next, and what wakes those that wait.
//!
//! Four places: `active` (by priority, then time), two backoffs (one clock for rejections, one for errors) and `waiting`,
//! where a binding lies until an event that its last decision waits for. Time is passed in; nothing is polled. The
//! controller drives it: [`Queue::add`], [`Queue::pop`], then [`Queue::done`] with what came of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::{SignedDuration, Timestamp};

use crate::decision::Cure;
use crate::key::BindingKey;
use crate::state::change::Change;

/// First delay after a rejection or an error, as in Kubernetes.
pub const BACKOFF_FIRST: SignedDuration = SignedDuration::from_secs(1);
/// Longest delay.
pub const BACKOFF_MOST: SignedDuration = SignedDuration::from_secs(10);
/// A waiting binding is looked at again after this long whatever happens: a net under missed events.
pub const FLUSH: SignedDuration = SignedDuration::from_mins(5);
/// Events kept for replay while decisions are under way. When more arrive, every decision under way is made again.
const MAX_REPLAY: usize = 10_000;

/// Rank in the active queue: higher priority first, then who came first.
type Rank = (std::cmp::Reverse<i32>, Timestamp, u64);

/// What came of a decision.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Nothing waits. The cures say what may make the answer wrong later.
    Settled(Vec<Cure>),
    /// Something waits: retried when one of these happens, after the backoff for rejections.
    Rejected(Vec<Cure>),
    /// Decided, but somebody else must act first: retried when one of these happens, without backoff.
    Pending(Vec<Cure>),
    /// The commit or something else failed: retried after the backoff for errors.
    Error,
    /// A mistake that only an edit cures.
    Mistake,
    /// The binding is gone.
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Clock {
    Rejections,
    Errors,
}

#[derive(Debug, Clone, PartialEq)]
enum Place {
    Active(Rank),
    Backoff(Clock, Timestamp),
    /// Waits for cures; `back_off` when one happens.
    Waiting {
        flush: Option<Timestamp>,
        due: Option<Timestamp>,
        back_off: bool,
    },
    /// Being decided since this event number; `again` = added meanwhile.
    InFlight {
        since: u64,
        again: bool,
    },
}

#[derive(Debug, Clone)]
struct Entry {
    place: Place,
    priority: i32,
    added: Timestamp,
    /// When it was popped last: backoff counts from there.
    popped: Timestamp,
    rejections: u32,
    errors: u32,
    cures: Vec<Cure>,
}

/// Kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Joined,
    Left,
    Labels,
    Taints,
    Apis,
    Capacity,
    WorkloadPolicy,
    WorkloadSpread,
    Shrank,
}

impl Kind {
    fn of(change: &Change) -> Self {
        match change {
            Change::ClusterJoined { .. } => Self::Joined,
            Change::ClusterLeft { .. } => Self::Left,
            Change::ClusterLabels { .. } => Self::Labels,
            Change::ClusterTaints { .. } => Self::Taints,
            Change::ClusterApis { .. } => Self::Apis,
            Change::Capacity { .. } => Self::Capacity,
            Change::WorkloadPolicy { .. } => Self::WorkloadPolicy,
            Change::WorkloadSpread { .. } => Self::WorkloadSpread,
            Change::BindingShrank { .. } => Self::Shrank,
        }
    }

    /// The kinds of events that can be this cure. Times, edits and ended evictions come by other ways.
    fn cured_by(cure: &Cure) -> &'static [Self] {
        match cure {
            Cure::ClusterJoins => &[Self::Joined],
            Cure::TargetChanges { .. } => &[Self::Left, Self::Labels, Self::Taints],
            Cure::LabelsChange => &[Self::Labels],
            Cure::TaintsChange => &[Self::Taints],
            Cure::ServesApi { .. } => &[Self::Apis],
            Cure::CapacityRises { .. } => &[Self::Capacity],
            Cure::WorkloadPolicyChanges { .. } => &[Self::WorkloadPolicy],
            Cure::WorkloadSpreadChanges { .. } => &[Self::WorkloadSpread],
            Cure::BindingShrinks { .. } => &[Self::Shrank],
            Cure::TimePasses { .. } | Cure::EvictionEnds { .. } | Cure::Edit { .. } => &[],
        }
    }
}

/// The queue.
#[derive(Debug, Default)]
pub struct Queue {
    entries: BTreeMap<BindingKey, Entry>,
    active: BTreeMap<Rank, BindingKey>,
    /// Backoffs, flushes and due times, by time.
    timers: BTreeSet<(Timestamp, BindingKey)>,
    /// Waiting bindings by the kinds of events that they wait for: an event looks at no others.
    waiting: BTreeMap<Kind, BTreeSet<BindingKey>>,
    parked: BTreeSet<BindingKey>,
    in_flight: BTreeSet<BindingKey>,
    /// Events that arrived while decisions were under way, with their numbers.
    events: VecDeque<(u64, Change)>,
    next_event: u64,
    /// Events up to this number are no longer known.
    forgotten: u64,
    sequence: u64,
}

/// How many bindings are where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lengths {
    /// Ready to be decided.
    pub active: usize,
    /// In one of the backoffs.
    pub backoff: usize,
    /// Waiting for an event.
    pub waiting: usize,
    /// Being decided.
    pub in_flight: usize,
}

impl Queue {
    /// Puts a binding in line: it was created or edited, or somebody asks for it. It starts with a clean slate.
    pub fn add(&mut self, key: &BindingKey, priority: i32, now: Timestamp) {
        if let Some(entry) = self.entries.get_mut(key)
            && let Place::InFlight { again, .. } = &mut entry.place
        {
            *again = true;
            entry.priority = priority;
            return;
        }
        let fresh = match self.take_out(key) {
            Some(Entry { place: Place::Active(_), added, .. }) => added,
            _ => now,
        };
        let entry = Entry {
            place: Place::InFlight { since: 0, again: false },
            priority,
            added: fresh,
            popped: now,
            rejections: 0,
            errors: 0,
            cures: Vec::new(),
        };
        self.activate(key.clone(), entry);
    }

    /// Forgets a binding.
    pub fn remove(&mut self, key: &BindingKey) {
        self.take_out(key);
    }

    /// An event: wakes exactly the bindings that wait for it, and is kept for those that are being decided.
    pub fn event(&mut self, change: &Change, now: Timestamp) {
        if !self.in_flight.is_empty() {
            self.next_event += 1;
            self.events.push_back((self.next_event, change.clone()));
            if self.events.len() > MAX_REPLAY
                && let Some((number, _)) = self.events.pop_front()
            {
                self.forgotten = number;
            }
        }
        let candidates = self.waiting.get(&Kind::of(change)).into_iter().flatten();
        let woken: Vec<BindingKey> = candidates
            .filter(|key| {
                self.entries
                    .get(key)
                    .is_some_and(|entry| entry.cures.iter().any(|cure| cure.is_met_by(change)))
            })
            .cloned()
            .collect();
        for key in woken {
            self.wake(&key, now);
        }
    }

    /// An eviction task of a binding ended: the members' reports are no event of the tables.
    pub fn eviction_ended(&mut self, key: &BindingKey, now: Timestamp) {
        if self.parked.contains(key) {
            self.wake(key, now);
        } else if let Some(entry) = self.entries.get(key) {
            self.add(key, entry.priority, now);
        }
    }

    /// The binding to decide next, if one is ready. It is in flight until [`Queue::done`].
    pub fn pop(&mut self, now: Timestamp) -> Option<BindingKey> {
        self.tick(now);
        let (_, key) = self.active.pop_first()?;
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.place = Place::InFlight { since: self.next_event, again: false };
            entry.popped = now;
        }
        self.in_flight.insert(key.clone());
        Some(key)
    }

    /// What came of the binding that was popped. Events that arrived meanwhile are replayed against its new cures.
    pub fn done(&mut self, key: &BindingKey, verdict: Verdict, now: Timestamp) {
        let Some(Entry { place: Place::InFlight { since, again }, .. }) = self.entries.get(key)
        else {
            return;
        };
        let (since, again) = (*since, *again);
        self.in_flight.remove(key);
        let Some(mut entry) = self.entries.remove(key) else { return };
        let flushed = matches!(verdict, Verdict::Rejected(_) | Verdict::Pending(_));
        let (cures, back_off) = match verdict {
            Verdict::Gone => {
                self.trim();
                return;
            }
            Verdict::Error => {
                entry.errors = entry.errors.saturating_add(1);
                if again {
                    self.activate(key.clone(), Entry { added: now, ..entry });
                } else {
                    self.back_off(key.clone(), entry, Clock::Errors);
                }
                self.trim();
                return;
            }
            Verdict::Settled(cures) => {
                (entry.rejections, entry.errors) = (0, 0);
                (cures, false)
            }
            Verdict::Mistake => (Vec::new(), false),
            Verdict::Pending(cures) => (cures, false),
            Verdict::Rejected(cures) => {
                entry.rejections = entry.rejections.saturating_add(1);
                (cures, true)
            }
        };
        entry.cures = cures;
        let missed = since < self.forgotten
            || self
                .events
                .iter()
                .filter(|(number, _)| *number > since)
                .any(|(_, change)| entry.cures.iter().any(|cure| cure.is_met_by(change)));
        if again {
            self.activate(key.clone(), Entry { added: now, rejections: 0, errors: 0, ..entry });
        } else {
            // Mistakes wait for an edit and what is settled for an event: only what waits for a place is looked at again.
            let flush = flushed.then(|| later(now, FLUSH));
            self.park(key.clone(), entry, flush, back_off);
            if missed {
                self.wake(key, now);
            }
        }
        self.trim();
    }

    /// Moves what is due into the active queue.
    pub fn tick(&mut self, now: Timestamp) {
        while let Some((at, key)) = self.timers.first().cloned() {
            if at > now {
                break;
            }
            self.timers.pop_first();
            let Some(entry) = self.take_out(&key) else { continue };
            self.activate(key, Entry { added: at, ..entry });
        }
    }

    /// When [`Queue::tick`] has something to do next.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// How many bindings are where.
    #[must_use]
    pub fn lengths(&self) -> Lengths {
        Lengths {
            active: self.active.len(),
            backoff: self
                .entries
                .values()
                .filter(|entry| matches!(entry.place, Place::Backoff(..)))
                .count(),
            waiting: self.parked.len(),
            in_flight: self.in_flight.len(),
        }
    }

    fn activate(&mut self, key: BindingKey, mut entry: Entry) {
        self.sequence += 1;
        let rank = (std::cmp::Reverse(entry.priority), entry.added, self.sequence);
        entry.place = Place::Active(rank);
        self.active.insert(rank, key.clone());
        self.entries.insert(key, entry);
    }

    fn park(
        &mut self,
        key: BindingKey,
        mut entry: Entry,
        flush: Option<Timestamp>,
        back_off: bool,
    ) {
        let due = entry.cures.iter().filter_map(Cure::due).min();
        for at in flush.into_iter().chain(due) {
            self.timers.insert((at, key.clone()));
        }
        entry.place = Place::Waiting { flush, due, back_off };
        for kind in entry.cures.iter().flat_map(Kind::cured_by) {
            self.waiting.entry(*kind).or_default().insert(key.clone());
        }
        self.parked.insert(key.clone());
        self.entries.insert(key, entry);
    }

    /// A rejection's delay counts from when the binding was popped: under load it has usually run out already.
    fn back_off(&mut self, key: BindingKey, mut entry: Entry, clock: Clock) {
        let times = match clock {
            Clock::Rejections => entry.rejections,
            Clock::Errors => entry.errors,
        };
        let until = later(entry.popped, delay(times));
        self.timers.insert((until, key.clone()));
        entry.place = Place::Backoff(clock, until);
        self.entries.insert(key, entry);
    }

    fn wake(&mut self, key: &BindingKey, now: Timestamp) {
        let Some(entry) = self.take_out(key) else { return };
        let until = later(entry.popped, delay(entry.rejections));
        if matches!(entry.place, Place::Waiting { back_off: true, .. }) && until > now {
            self.back_off(key.clone(), entry, Clock::Rejections);
        } else {
            self.activate(key.clone(), Entry { added: now, ..entry });
        }
    }

    fn take_out(&mut self, key: &BindingKey) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        match &entry.place {
            Place::Active(rank) => {
                self.active.remove(rank);
            }
            Place::Backoff(_, until) => {
                self.timers.remove(&(*until, key.clone()));
            }
            Place::Waiting { flush, due, .. } => {
                for at in flush.iter().chain(due) {
                    self.timers.remove(&(*at, key.clone()));
                }
                for kind in entry.cures.iter().flat_map(Kind::cured_by) {
                    if let Some(keys) = self.waiting.get_mut(kind) {
                        keys.remove(key);
                    }
                }
                self.parked.remove(key);
            }
            Place::InFlight { .. } => {
                self.in_flight.remove(key);
            }
        }
        Some(entry)
    }

    /// Events that no decision under way can have missed are dropped.
    fn trim(&mut self) {
        let oldest = self
            .in_flight
            .iter()
            .filter_map(|key| match self.entries.get(key)?.place {
                Place::InFlight { since, .. } => Some(since),
                _ => None,
            })
            .min();
        match oldest {
            None => self.events.clear(),
            Some(oldest) => {
                while self.events.front().is_some_and(|(number, _)| *number <= oldest) {
                    self.events.pop_front();
                }
            }
        }
    }
}

fn delay(times: u32) -> SignedDuration {
    let Some(doublings) = times.checked_sub(1) else { return SignedDuration::ZERO };
    let seconds = BACKOFF_FIRST.as_secs().checked_shl(doublings.min(16)).unwrap_or(i64::MAX);
    SignedDuration::from_secs(seconds).min(BACKOFF_MOST)
}

fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}
