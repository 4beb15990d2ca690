//! Simulated time of day.

use std::time::Duration;

use atoll_api::Clock;
use jiff::{SignedDuration, Timestamp};

/// A clock that starts at `start` and runs with `tokio::time`: on a runtime with paused time it stands still until the
/// runtime moves on, and then jumps with it. Has to be called, and read, inside a tokio runtime.
#[must_use]
pub fn simulated_clock(start: Timestamp) -> Clock {
    let origin = tokio::time::Instant::now();
    Clock::from_fn(move || start + origin.elapsed())
}

/// The time so long after another. Users write these durations: what leads beyond the calendar is its last instant.
pub(crate) fn after(at: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// The time so long before another, or the calendar's first instant.
pub(crate) fn before(at: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    at.checked_sub(by).unwrap_or(Timestamp::MIN)
}
