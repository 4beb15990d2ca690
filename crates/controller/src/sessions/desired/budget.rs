//! Limit of objects that leave a member per time window because decisions no longer name it.
//!
//! If a wrong policy or a bug retargets everything at once, this stops it after a part, while there is still something
//! left to inspect.

use std::time::Duration;

use tokio::time::Instant;

/// Length of a window.
const WINDOW: Duration = Duration::from_secs(600);
/// This many objects may always leave in a window ...
const FLOOR: usize = 100;
/// ... and this part of the member's objects, in per cent.
const PERCENT: usize = 30;

#[derive(Debug, Default)]
pub(super) struct Budget {
    /// Start of the window and its remaining budget.
    window: Option<(Instant, usize)>,
}

impl Budget {
    /// Takes one from the current window, or from a new one when it is over. `held` = objects that the member holds.
    pub(super) fn take(&mut self, now: Instant, held: impl FnOnce() -> usize) -> bool {
        let left = match &mut self.window {
            Some((start, left)) if now < *start + WINDOW => left,
            window => &mut window.insert((now, FLOOR.max(held() * PERCENT / 100))).1,
        };
        if *left == 0 {
            return false;
        }
        *left -= 1;
        true
    }

    /// When the current window ends.
    pub(super) fn reopens(&self) -> Option<Instant> {
        self.window.map(|(start, _)| start + WINDOW)
    }
}
