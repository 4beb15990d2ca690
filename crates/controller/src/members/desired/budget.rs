//! How many objects may leave a member in a while because decisions no longer name it.
//!
//! A wrong policy, or a bug, that retargets everything at once is stopped after a part of it, while there is still
//! something to look at.

use std::time::Duration;

use tokio::time::Instant;

/// Length of a window.
const WINDOW: Duration = Duration::from_secs(600);
/// This many objects may always go in a window ...
const FLOOR: usize = 100;
/// ... and this part of what the member holds, in per cent.
const PERCENT: usize = 30;

#[derive(Debug, Default)]
pub(super) struct Budget {
    /// Start of the window and what is left of it.
    window: Option<(Instant, usize)>,
}

impl Budget {
    /// Takes one from the current window, a new one when it is over. `held` = objects that the member holds.
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
