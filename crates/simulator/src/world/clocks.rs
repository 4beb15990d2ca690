//! Wall clocks: each process has its own, and it may be wrong.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use atoll_api::Clock;
use jiff::Timestamp;

use super::line::Who;

/// The error of a wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skew {
    /// Fast by this much.
    Ahead(Duration),
    /// Slow by this much.
    Behind(Duration),
    /// Stopped.
    Frozen,
}

#[derive(Clone, Copy)]
enum Wrong {
    By(Skew),
    At(Timestamp),
}

/// The right time, and the processes whose wall clock is wrong. Monotonic time (`tokio::time`) is never wrong.
#[derive(Clone)]
pub(super) struct Clocks {
    pub(super) right: Clock,
    wrong: Arc<Mutex<BTreeMap<Who, Wrong>>>,
}

impl Clocks {
    pub(super) fn new(right: Clock) -> Self {
        Self { right, wrong: Arc::default() }
    }

    fn wrong(&self) -> MutexGuard<'_, BTreeMap<Who, Wrong>> {
        // Nothing panics while it holds the lock.
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, who: &Who, skew: Option<Skew>) {
        let wrong = skew.map(|skew| match skew {
            Skew::Frozen => Wrong::At(self.right.now()),
            skew => Wrong::By(skew),
        });
        match wrong {
            Some(wrong) => self.wrong().insert(who.clone(), wrong),
            None => self.wrong().remove(who),
        };
    }

    /// The clock of a process; it also applies after a restart.
    pub(super) fn of(&self, who: Who) -> Clock {
        let clocks = self.clone();
        Clock::from_fn(move || {
            let now = clocks.right.now();
            match clocks.wrong().get(&who) {
                Some(Wrong::By(Skew::Ahead(by))) => now + *by,
                Some(Wrong::By(Skew::Behind(by))) => now - *by,
                Some(Wrong::At(then)) => *then,
                Some(Wrong::By(Skew::Frozen)) | None => now,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated_clock;

    #[tokio::test(start_paused = true)]
    async fn one_is_wrong_and_the_others_are_right() {
        let start = Timestamp::from_second(1_000_000).unwrap();
        let clocks = Clocks::new(simulated_clock(start));
        let (who, hour) = (Who::Controller(1), Duration::from_secs(3_600));
        let (one, other) = (clocks.of(who.clone()), clocks.of(Who::Controller(2)));
        for (skew, expected) in [
            (Some(Skew::Ahead(hour)), start + hour),
            (Some(Skew::Behind(hour)), start - hour),
            (None, start),
            (Some(Skew::Frozen), start),
        ] {
            clocks.set(&who, skew);
            assert_eq!((one.now(), other.now()), (expected, start), "{skew:?}");
        }
        tokio::time::advance(hour).await;
        assert_eq!((one.now(), other.now()), (start, start + hour));
    }
}
