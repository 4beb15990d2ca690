//! Exponential backoff with jitter from a seed.
//!
//! Jitter must differ between processes, so that those that lost the same server do not return at the same moment, and
//! be equal in two runs of one simulated world. So whoever starts a process draws its seed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Doublings after which a ceiling no longer grows: by then every backoff has reached its longest wait.
const MAX_DOUBLINGS: u32 = 20;

/// A source of jitter. Clones share the state. Not for secrets.
#[derive(Debug, Clone)]
pub struct Jitter(Arc<Mutex<fastrand::Rng>>);

impl Jitter {
    /// Starts from this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))))
    }

    /// Uniform in `low ..= high`, to the millisecond.
    #[must_use]
    pub fn between(&self, low: Duration, high: Duration) -> Duration {
        let span = u64::try_from(high.saturating_sub(low).as_millis()).unwrap_or(u64::MAX);
        let mut random = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        low + Duration::from_millis(random.u64(0..=span))
    }
}

/// Backoff with a doubling ceiling.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    /// Ceiling of the first wait.
    pub first: Duration,
    /// Upper bound of all ceilings.
    pub most: Duration,
}

impl Backoff {
    /// Ceiling after `failures` failures in a row (1 = the first).
    #[must_use]
    pub fn ceiling(&self, failures: u32) -> Duration {
        let factor = 1_u32 << failures.saturating_sub(1).min(MAX_DOUBLINGS);
        self.first.saturating_mul(factor).min(self.most)
    }

    /// Full jitter: uniform between zero and the ceiling, so that clients that lost the same server do not reconnect at
    /// the same moment.
    #[must_use]
    pub fn full_jitter(&self, failures: u32, jitter: &Jitter) -> Duration {
        jitter.between(Duration::ZERO, self.ceiling(failures))
    }

    /// Between half the ceiling and the ceiling, for retries that must never be immediate.
    #[must_use]
    pub fn half_jitter(&self, failures: u32, jitter: &Jitter) -> Duration {
        let ceiling = self.ceiling(failures);
        jitter.between(ceiling / 2, ceiling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_ceiling_and_repeat_for_a_seed() {
        let backoff = Backoff { first: Duration::from_millis(500), most: Duration::from_secs(8) };
        let ceilings: Vec<_> = (1..8).map(|n| backoff.ceiling(n).as_millis()).collect();
        assert_eq!(ceilings, [500, 1000, 2000, 4000, 8000, 8000, 8000]);
        assert_eq!(backoff.ceiling(u32::MAX), backoff.most);
        let run = |seed| {
            let jitter = Jitter::new(seed);
            (1..100).map(|n| backoff.full_jitter(n, &jitter)).collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
        assert!(run(7).iter().zip(1..).all(|(wait, n)| *wait <= backoff.ceiling(n)));
        // Half jitter is never immediate.
        let jitter = Jitter::new(7);
        let halves = (1..100).map(|n| (backoff.half_jitter(n, &jitter), backoff.ceiling(n)));
        assert!(halves.into_iter().all(|(wait, most)| most / 2 <= wait && wait <= most));
        // Full jitter reaches both ends of its range.
        let jitter = Jitter::new(1);
        let waits: Vec<_> = (0..400).map(|_| backoff.full_jitter(9, &jitter).as_millis()).collect();
        assert!(waits.iter().any(|ms| *ms < 200) && waits.iter().any(|ms| *ms > 7800));
    }
}
