//! Simulated time of day.

use atoll_api::Clock;
use jiff::Timestamp;

/// A clock that starts at `start` and runs with `tokio::time`: on a runtime with paused time it stands still until the
/// runtime moves on, and then jumps with it. Has to be called, and read, inside a tokio runtime.
#[must_use]
pub fn simulated_clock(start: Timestamp) -> Clock {
    let origin = tokio::time::Instant::now();
    Clock::from_fn(move || start + origin.elapsed())
}
