//! Exponential backoff with jitter from a seed, so that two runs of one seed wait alike.

use std::time::Duration;

/// Exponential backoff with jitter in the upper half of each step.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
    state: u64,
}

impl Backoff {
    /// Waits `first` at first, twice as long after each failure, at most `longest`.
    #[must_use]
    pub(crate) fn new(first: Duration, longest: Duration, seed: u64) -> Self {
        Self { first, longest, failures: 0, state: seed }
    }

    /// The wait after one more failure.
    pub(crate) fn next_wait(&mut self) -> Duration {
        let full = self.first.saturating_mul(2_u32.saturating_pow(self.failures)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        let half = full / 2;
        let spread = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX).max(1);
        half + Duration::from_nanos(self.random() % spread)
    }

    /// After a success: the next failure starts from the first wait.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// splitmix64 (Steele, Lea, Flood 2014): small, seedable and good enough to spread waits.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_depend_on_the_seed_alone() {
        let (first, longest) = (Duration::from_millis(100), Duration::from_secs(2));
        let waits = |seed| {
            let mut backoff = Backoff::new(first, longest, seed);
            (0..8).map(|_| backoff.next_wait()).collect::<Vec<_>>()
        };
        for (i, wait) in waits(7).iter().enumerate() {
            let full = (first * 2_u32.pow(u32::try_from(i).unwrap())).min(longest);
            assert!(*wait >= full / 2 && *wait <= full, "{i}: {wait:?}");
        }
        assert_eq!(waits(7), waits(7));
        assert_ne!(waits(7), waits(8));
    }
}
