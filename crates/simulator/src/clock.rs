//! Simulated time of day.

use std::time::Duration;

use atoll_api::Clock;
use jiff::{SignedDuration, Timestamp};

/// A clock that starts at `start` and follows `tokio::time`: on a runtime with paused time it stands still until the
/// runtime advances. Must be created and read inside a tokio runtime.
#[must_use]
pub fn simulated_clock(start: Timestamp) -> Clock {
    let origin = tokio::time::Instant::now();
    Clock::from_fn(move || start + origin.elapsed())
}

/// `at` plus `by`. The durations come from users, so an overflow returns the last representable instant.
pub(crate) fn after(at: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// `at` minus `by`, or the first representable instant.
pub(crate) fn before(at: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    at.checked_sub(by).unwrap_or(Timestamp::MIN)
}
