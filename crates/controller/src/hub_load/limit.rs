//! How many writes the hub gets at once. Synchronous; no I/O.
//!
//! The limit follows the latency of writes, as TCP Vegas does: the time by which a write takes longer than with few writes
//! at once is the time that it waited in the hub. A limit of n writes with a mean latency of m keeps about n * (1 - base / m) of them waiting. Some
//! must wait so that the hub is never idle; more only make every write slower. The base is measured again from time to
//! time, with few writes at once.

use std::time::Duration;

use tokio::time::Instant;

/// Lowest limit. The base is measured with it. Enough to get on with a hub whose latency varies for other reasons.
pub(super) const FEWEST: usize = 8;
/// Highest limit: enough for a hub far away, few enough not to overload one that serves many clients.
pub(super) const MOST: usize = 64;
/// With fewer writes than this waiting in the hub, the limit is raised.
const FEW_WAIT: f64 = 4.0;
/// With more writes than this waiting in the hub, the limit is lowered.
const MANY_WAIT: f64 = 8.0;
/// Smallest number of writes whose mean latency counts: single ones vary too much.
const BATCH: usize = 16;
/// Interval of measurements of the base: the load by other clients changes.
const BASE_FOR: Duration = Duration::from_secs(30);
/// Pause after a refusal that names no time.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest pause that the hub may ask for.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The limit, and the measurements behind it.
#[derive(Debug)]
pub(super) struct Limit {
    most: usize,
    /// It doubles until writes wait for the first time.
    doubles: bool,
    /// Mean latency in seconds with few writes at once.
    base: Option<f64>,
    /// When to measure the base again.
    base_until: Option<Instant>,
    /// The limit before the base was measured.
    before: Option<usize>,
    batch: Batch,
    paused_until: Option<Instant>,
}

/// Latencies of writes since the last change of the limit.
#[derive(Debug, Default)]
struct Batch {
    /// Writes that started under the previous limit and do not count.
    skip: usize,
    count: usize,
    seconds: f64,
    /// Whether as many writes ran at once as the limit allows.
    full: bool,
}

impl Default for Limit {
    fn default() -> Self {
        Self {
            most: FEWEST,
            doubles: true,
            base: None,
            base_until: None,
            before: None,
            batch: Batch::default(),
            paused_until: None,
        }
    }
}

impl Limit {
    /// How many writes may run at once; none during a pause.
    pub(super) fn most(&self, now: Instant) -> usize {
        if self.paused_until(now).is_some() { 0 } else { self.most }
    }

    /// End of the pause, during one.
    pub(super) fn paused_until(&self, now: Instant) -> Option<Instant> {
        self.paused_until.filter(|until| *until > now)
    }

    /// The hub answered a write; `at_once` ran then, including this one.
    pub(super) fn answered(&mut self, now: Instant, at_once: usize, took: Duration) {
        if self.batch.skip > 0 {
            self.batch.skip -= 1;
            return;
        }
        self.batch.count += 1;
        self.batch.seconds += took.as_secs_f64();
        self.batch.full |= at_once >= self.most;
        if self.batch.count >= BATCH.max(self.most) {
            let mean = self.batch.seconds / self.batch.count as f64;
            let full = self.batch.full;
            self.adjust(now, mean, full);
        }
    }

    /// The hub refused a write because of its load, and may have said when it takes the next one.
    pub(super) fn refused(&mut self, now: Instant, again_after: Option<Duration>) {
        // Writes that were on their way at the first refusal say nothing new.
        if self.paused_until(now).is_none() {
            self.lower(self.most / 2);
        }
        let until = now + again_after.unwrap_or(PAUSE).min(LONGEST_PAUSE);
        self.paused_until = self.paused_until.max(Some(until));
    }

    /// The hub did not answer a write.
    pub(super) fn unanswered(&mut self) {
        self.lower(self.most / 2);
    }

    fn adjust(&mut self, now: Instant, mean: f64, full: bool) {
        if let Some(before) = self.before.take() {
            self.base = Some(mean);
            self.base_until = Some(now + BASE_FOR);
            return self.set(before);
        }
        let is_due = now >= *self.base_until.get_or_insert(now + BASE_FOR);
        if is_due && self.most > FEWEST {
            self.before = Some(self.most);
            return self.set(FEWEST);
        }
        if is_due {
            // This batch ran with few writes at once, so it is the measurement.
            (self.base, self.base_until) = (None, Some(now + BASE_FOR));
        }
        let base = self.base.map_or(mean, |base| base.min(mean));
        self.base = Some(base);
        let wait = self.most as f64 * (1.0 - base / mean.max(f64::MIN_POSITIVE));
        if wait > MANY_WAIT {
            self.lower(self.most - self.most.div_ceil(8));
        } else if wait < FEW_WAIT && full {
            let by = if self.doubles { self.most } else { 1 };
            self.set((self.most + by).min(MOST));
        } else {
            self.doubles &= wait < FEW_WAIT;
            self.set(self.most);
        }
    }

    fn lower(&mut self, most: usize) {
        self.doubles = false;
        self.before = None;
        self.set(most.max(FEWEST));
    }

    fn set(&mut self, most: usize) {
        // Fewer writes from now on: those on their way still wait behind the others.
        let skip = if most < self.most { self.most } else { 0 };
        self.batch = Batch { skip, ..Batch::default() };
        self.most = most;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hub that serves `cores` writes at once, each in `each`: the latency of one among `at_once`.
    fn latency(each: Duration, cores: usize, at_once: usize) -> Duration {
        each.mul_f64(at_once.max(cores) as f64 / cores as f64)
    }

    /// Keeps as many writes running as the limit allows, for this many writes; the limit at the end.
    fn run(limit: &mut Limit, now: &mut Instant, cores: usize, writes: usize) -> usize {
        run_each(limit, now, (cores, Duration::from_millis(8)), writes)
    }

    fn run_each(
        limit: &mut Limit,
        now: &mut Instant,
        (cores, each): (usize, Duration),
        writes: usize,
    ) -> usize {
        for _ in 0..writes {
            let at_once = limit.most(*now);
            let took = latency(each, cores, at_once);
            *now += took / u32::try_from(at_once).unwrap();
            limit.answered(*now, at_once, took);
        }
        limit.most(*now)
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_keeps_a_hub_busy_without_a_long_queue() {
        for cores in [2, 8, 16, 40] {
            let (mut limit, mut now) = (Limit::default(), Instant::now());
            let settled = run(&mut limit, &mut now, cores, 5_000);
            let range = cores + 2..=(cores + 2 * MANY_WAIT as usize).min(MOST);
            assert!(range.contains(&settled), "{cores} cores: {settled}, not in {range:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_follows_a_hub_that_becomes_faster_or_slower() {
        let (mut limit, mut now) = (Limit::default(), Instant::now());
        let slow = run(&mut limit, &mut now, 2, 5_000);
        let fast = run(&mut limit, &mut now, 32, 60_000);
        assert!(fast >= 32 && fast > slow, "{slow}, then {fast}");
        let slow = run(&mut limit, &mut now, 2, 60_000);
        assert!(slow <= 18, "{slow}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_rises_again_on_a_hub_that_became_slower_for_good() {
        let (mut limit, mut now) = (Limit::default(), Instant::now());
        run(&mut limit, &mut now, 32, 5_000);
        let slower = Duration::from_millis(24);
        let settled = run_each(&mut limit, &mut now, (32, slower), 60_000);
        assert!(settled >= 32, "32 writes run at once there, not {settled}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_pauses_all_writes_for_the_time_that_the_hub_asks_for() {
        let (mut limit, mut now) = (Limit::default(), Instant::now());
        let before = run(&mut limit, &mut now, 16, 5_000);
        limit.refused(now, Some(Duration::from_secs(5)));
        limit.refused(now, None);
        assert_eq!(limit.most(now), 0);
        assert_eq!(limit.paused_until(now), Some(now + Duration::from_secs(5)));
        now += Duration::from_secs(5);
        assert_eq!((limit.most(now), limit.paused_until(now)), (before / 2, None));
        limit.refused(now, Some(Duration::from_secs(86_400)));
        assert_eq!(limit.paused_until(now), Some(now + LONGEST_PAUSE));
    }

    #[test]
    fn writes_without_an_answer_leave_few_at_once() {
        let mut limit = Limit::default();
        (0..100).for_each(|_| limit.unanswered());
        assert_eq!(limit.most, FEWEST);
    }
}
