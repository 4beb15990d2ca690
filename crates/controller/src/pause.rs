//! Pauses of work whose cost grows with the number of workloads.

use std::time::Duration;

/// Such work pauses this many times as long as it took: each piece of it takes at most 2 % of the event loop, also with
/// 100,000 workloads.
const TIMES: u32 = 50;

/// The pause after work that took so long.
pub(crate) fn after(took: Duration) -> Duration {
    took * TIMES
}
