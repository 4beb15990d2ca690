//! How fast work leaves clusters that failed or are drained: a limit on bindings per second in total, and a limit on
//! the part of a remaining cluster's capacity filled in ten seconds. Bindings above a limit wait in order of arrival.
//!
//! Pure: the caller passes the time. The state is not durable and need not be: a waiting binding is one whose cluster
//! still has the taint, which the next leader finds in the hub.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use atoll_api::ClusterName;
use tokio::time::Instant;

/// Bindings that leave clusters per second, in total.
pub const BINDINGS_PER_SECOND: u32 = 100;
/// Per cent of a remaining cluster's capacity that may be filled within [`ROOM_WINDOW`]: its image pulls, node
/// autoscaler and scheduler have to keep up.
pub const ROOM_PERCENT: u32 = 10;
/// Bindings per second whose manifests change because override policies or Clusters changed.
pub const ROLLOUTS_PER_SECOND: u32 = 100;
/// See [`ROOM_PERCENT`].
pub const ROOM_WINDOW: Duration = Duration::from_secs(10);

/// Turns that may accumulate, as a fraction of a second's: the rate holds within any second, not only on average.
const BURST: f64 = 0.1;
/// A cluster's whole capacity, in the unit of the counters.
const WHOLE: u64 = 1_000_000;

/// Limits of the pace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaceLimits {
    /// Bindings per second in total; 0 = no limit. Default [`BINDINGS_PER_SECOND`].
    pub bindings_per_second: u32,
    /// Per cent of a remaining cluster's capacity per [`ROOM_WINDOW`]; 0 = no limit. Default [`ROOM_PERCENT`].
    pub room_percent: u32,
    /// Bindings per second that are rendered anew because override policies or Clusters changed; 0 = no limit. Default
    /// [`ROLLOUTS_PER_SECOND`].
    pub rollouts_per_second: u32,
    /// Replicas per minute that move because the skew of a topologySpreadConstraint is too large; 0 = none move. Default 0.
    pub mended_replicas_per_minute: u32,
}

impl Default for PaceLimits {
    fn default() -> Self {
        Self {
            bindings_per_second: BINDINGS_PER_SECOND,
            room_percent: ROOM_PERCENT,
            rollouts_per_second: ROLLOUTS_PER_SECOND,
            mended_replicas_per_minute: 0,
        }
    }
}

impl PaceLimits {
    /// No limits, and no mending.
    pub const NONE: Self = Self {
        bindings_per_second: 0,
        room_percent: 0,
        rollouts_per_second: 0,
        mended_replicas_per_minute: 0,
    };
}

/// Replicas that a cluster is to gain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gain {
    /// The cluster.
    pub cluster: ClusterName,
    /// How many replicas.
    pub replicas: i64,
    /// How many fit there, if known.
    pub room: Option<i64>,
}

/// Which limit a binding waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// [`PaceLimits::bindings_per_second`].
    Rate,
    /// [`PaceLimits::room_percent`].
    Room,
}

/// Which bindings may leave now.
#[derive(Debug)]
pub struct Pace<Key> {
    limits: PaceLimits,
    turns: f64,
    counted: Instant,
    /// Bindings that wait for a turn, in order.
    line: BTreeMap<u64, Key>,
    /// Bindings that rejoin the line at a given time.
    later: BTreeSet<(Instant, u64, Key)>,
    places: BTreeMap<Key, (Place, Hold)>,
    next: u64,
    /// Start of a cluster's current window, and how much of its capacity was filled in it.
    windows: BTreeMap<ClusterName, (Instant, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Line(u64),
    Later(Instant, u64),
    /// It has its turn, and was released.
    Turn,
}

impl<Key: Ord + Clone> Pace<Key> {
    /// Starts with nothing waiting.
    #[must_use]
    pub fn new(limits: PaceLimits, now: Instant) -> Self {
        Self {
            limits,
            turns: 1.0,
            counted: now,
            line: BTreeMap::new(),
            later: BTreeSet::new(),
            places: BTreeMap::new(),
            next: 0,
            windows: BTreeMap::new(),
        }
    }

    /// Whether a binding may move now. If not, it is queued, and [`Pace::release`] returns it later.
    ///
    /// # Errors
    /// With the limit that it waits for.
    pub fn admit(&mut self, key: &Key, gains: &[Gain], now: Instant) -> Result<(), Hold> {
        self.refill(now);
        match self.places.get(key) {
            Some((Place::Turn, _)) => {}
            Some((Place::Line(_) | Place::Later(..), hold)) => return Err(*hold),
            None if self.limits.bindings_per_second == 0 => {}
            None if self.line.is_empty() && self.turns >= 1.0 => self.turns -= 1.0,
            None => {
                self.stand_in_line(key, Hold::Rate);
                return Err(Hold::Rate);
            }
        }
        if let Some(until) = self.full_until(gains, now) {
            self.give_back();
            self.next += 1;
            self.later.insert((until, self.next, key.clone()));
            self.places.insert(key.clone(), (Place::Later(until, self.next), Hold::Room));
            return Err(Hold::Room);
        }
        self.places.remove(key);
        for gain in gains {
            let window = self.windows.entry(gain.cluster.clone()).or_insert((now, 0));
            if now >= window.0 + ROOM_WINDOW {
                *window = (now, 0);
            }
            window.1 = window.1.saturating_add(part(gain));
        }
        Ok(())
    }

    /// Bindings whose turn has come: decide them again.
    pub fn release(&mut self, now: Instant) -> Vec<Key> {
        self.refill(now);
        while let Some((until, _, _)) = self.later.first()
            && *until <= now
        {
            if let Some((_, _, key)) = self.later.pop_first() {
                self.stand_in_line(&key, Hold::Room);
            }
        }
        let limited = self.limits.bindings_per_second > 0;
        let mut due = Vec::new();
        while !self.line.is_empty() && (!limited || self.turns >= 1.0) {
            let Some((_, key)) = self.line.pop_first() else { break };
            if limited {
                self.turns -= 1.0;
            }
            let hold = self.places.get(&key).map_or(Hold::Rate, |(_, hold)| *hold);
            self.places.insert(key.clone(), (Place::Turn, hold));
            due.push(key);
        }
        due
    }

    /// When [`Pace::release`] next has a result.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        let later = self.later.first().map(|(until, _, _)| *until);
        let turn = (!self.line.is_empty()).then(|| {
            let missing =
                (1.0 - self.turns).max(0.0) / f64::from(self.limits.bindings_per_second.max(1));
            // A millisecond more, so that the turn is complete when the timer fires.
            self.counted + Duration::from_secs_f64(missing) + Duration::from_millis(1)
        });
        [later, turn].into_iter().flatten().min()
    }

    /// A binding no longer has a reason to leave.
    pub fn forget(&mut self, key: &Key) {
        match self.places.remove(key) {
            Some((Place::Line(at), _)) => drop(self.line.remove(&at)),
            Some((Place::Later(until, at), _)) => {
                self.later.remove(&(until, at, key.clone()));
            }
            Some((Place::Turn, _)) => self.give_back(),
            None => {}
        }
    }

    /// The limit that a binding waits for.
    #[must_use]
    pub fn hold(&self, key: &Key) -> Option<Hold> {
        self.places.get(key).filter(|(place, _)| *place != Place::Turn).map(|(_, hold)| *hold)
    }

    /// How many bindings wait, for either limit.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.line.len() + self.later.len()
    }

    /// The limits.
    #[must_use]
    pub fn limits(&self) -> PaceLimits {
        self.limits
    }

    fn stand_in_line(&mut self, key: &Key, hold: Hold) {
        self.next += 1;
        self.line.insert(self.next, key.clone());
        self.places.insert(key.clone(), (Place::Line(self.next), hold));
    }

    fn most(&self) -> f64 {
        (f64::from(self.limits.bindings_per_second) * BURST).max(1.0)
    }

    fn give_back(&mut self) {
        self.turns = (self.turns + 1.0).min(self.most());
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.counted).as_secs_f64();
        self.counted = self.counted.max(now);
        let more = passed * f64::from(self.limits.bindings_per_second);
        self.turns = (self.turns + more).min(self.most());
    }

    /// When the clusters of these gains may take more again; the latest of them.
    fn full_until(&self, gains: &[Gain], now: Instant) -> Option<Instant> {
        if self.limits.room_percent == 0 {
            return None;
        }
        let most = WHOLE / 100 * u64::from(self.limits.room_percent);
        let full = gains.iter().filter_map(|gain| {
            let (since, used) = self.windows.get(&gain.cluster)?;
            let end = *since + ROOM_WINDOW;
            // The first gain of a window always passes; otherwise one above the limit would never.
            let full = *used > 0 && used.saturating_add(part(gain)) > most;
            (full && now < end).then_some(end)
        });
        full.max()
    }
}

/// The part of a cluster's capacity that a gain fills.
fn part(gain: &Gain) -> u64 {
    let Some(room) = gain.room else { return 0 };
    let (replicas, room) = (gain.replicas.max(0).unsigned_abs(), room.max(1).unsigned_abs());
    replicas.saturating_mul(WHOLE) / room
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gain(cluster: &str, replicas: i64, room: i64) -> Vec<Gain> {
        vec![Gain { cluster: cluster.into(), replicas, room: Some(room) }]
    }

    /// Admits bindings millisecond by millisecond; returns how many per second.
    fn seconds(
        pace: &mut Pace<u32>,
        keys: u32,
        gains: &[Gain],
        start: Instant,
        most: u64,
    ) -> Vec<usize> {
        let mut left = vec![0; usize::try_from(most).unwrap()];
        let mut due: Vec<u32> = (0..keys).collect();
        for milli in 0..most * 1000 {
            let now = start + Duration::from_millis(milli);
            for key in due.drain(..) {
                if pace.admit(&key, gains, now).is_ok() {
                    left[usize::try_from(milli / 1000).unwrap()] += 1;
                }
            }
            due = pace.release(now);
        }
        left
    }

    #[tokio::test]
    async fn no_second_sees_more_than_the_rate_and_nobody_is_lost() {
        let start = Instant::now();
        let limits = PaceLimits { bindings_per_second: 100, ..PaceLimits::NONE };
        let mut pace = Pace::new(limits, start);
        let left = seconds(&mut pace, 450, &[], start, 6);
        assert_eq!(left.iter().sum::<usize>(), 450);
        assert!(left.iter().all(|n| *n <= 101), "{left:?}");
        assert!(left[..4].iter().all(|n| *n >= 98), "{left:?}");
        assert_eq!((pace.waiting(), pace.next()), (0, None));
    }

    #[tokio::test]
    async fn without_limits_everybody_leaves_at_once() {
        let start = Instant::now();
        let mut pace = Pace::new(PaceLimits::NONE, start);
        for key in 0..1000 {
            assert_eq!(pace.admit(&key, &gain("b", 50, 100), start), Ok(()));
        }
    }

    #[tokio::test]
    async fn a_survivor_takes_a_tenth_of_its_room_in_ten_seconds() {
        let start = Instant::now();
        let limits = PaceLimits { room_percent: 10, ..PaceLimits::NONE };
        let mut pace = Pace::new(limits, start);
        // Each is 2 of 100 replicas: five of them are a tenth.
        let left = seconds(&mut pace, 12, &gain("b", 2, 100), start, 31);
        assert_eq!((left[0], left[10], left[20]), (5, 5, 2), "{left:?}");
        assert_eq!(left.iter().sum::<usize>(), 12);
        // A gain above a tenth goes alone; gains elsewhere do not wait for it.
        let later = start + Duration::from_secs(60);
        assert_eq!(pace.admit(&100, &gain("b", 60, 100), later), Ok(()));
        assert_eq!(pace.admit(&101, &gain("b", 1, 100), later), Err(Hold::Room));
        assert_eq!(pace.hold(&101), Some(Hold::Room));
        assert_eq!(pace.admit(&102, &gain("c", 1, 100), later), Ok(()));
        assert_eq!(pace.next(), Some(later + ROOM_WINDOW));
    }

    #[tokio::test]
    async fn whoever_need_not_leave_any_more_gives_its_turn_back() {
        let start = Instant::now();
        let limits = PaceLimits { bindings_per_second: 1, ..PaceLimits::NONE };
        let mut pace = Pace::new(limits, start);
        assert_eq!(pace.admit(&1, &[], start), Ok(()));
        assert_eq!(pace.admit(&2, &[], start), Err(Hold::Rate));
        assert_eq!(pace.admit(&3, &[], start), Err(Hold::Rate));
        let due = pace.next().unwrap();
        assert_eq!(pace.release(due), [2]);
        pace.forget(&2);
        assert_eq!(pace.release(due), [3]);
        assert_eq!(pace.admit(&3, &[], due), Ok(()));
        pace.admit(&4, &[], due).unwrap_err();
        pace.forget(&4);
        assert_eq!((pace.waiting(), pace.next()), (0, None));
    }
}
