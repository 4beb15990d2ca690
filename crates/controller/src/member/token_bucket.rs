//! A token bucket.

use tokio::time::Instant;

/// Rate of a token bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    /// Size of a burst after an idle time.
    pub(crate) burst: f64,
    pub(crate) per_second: f64,
}

/// A token bucket.
#[derive(Debug)]
pub(crate) struct Bucket {
    rate: Rate,
    left: f64,
    at: Instant,
}

impl Bucket {
    pub(crate) fn new(rate: Rate, now: Instant) -> Self {
        Self { rate, left: rate.burst, at: now }
    }

    /// Takes a token, if there is one.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        self.refill(now);
        if self.left < 1.0 {
            return false;
        }
        self.left -= 1.0;
        true
    }

    /// Whether the bucket is full, as if new.
    pub(crate) fn is_full(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.left >= self.rate.burst
    }

    fn refill(&mut self, now: Instant) {
        let refill = now.saturating_duration_since(self.at).as_secs_f64() * self.rate.per_second;
        self.left = (self.left + refill).min(self.rate.burst);
        self.at = now;
    }
}
