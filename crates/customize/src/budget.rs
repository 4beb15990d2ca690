//! What a run may still use. Every function that can take long charges it.
//!
//! One thread uses it. It has atomic fields only because CEL's functions must be shareable.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use crate::error::Limit;
use crate::limits;

/// The rest of a run's steps and time. Once exhausted it stays exhausted, so a script that catches the error does not
/// continue.
pub(crate) struct Budget {
    left: AtomicU64,
    deadline: Instant,
    until_clock: AtomicU64,
    stopped: OnceLock<Limit>,
}

/// Steps between two looks at the clock.
const STEPS_PER_LOOK: u64 = 10_000;

impl Budget {
    pub(crate) fn new() -> Self {
        Self {
            left: AtomicU64::new(limits::STEPS),
            deadline: Instant::now() + limits::TIME,
            until_clock: AtomicU64::new(STEPS_PER_LOOK),
            stopped: OnceLock::new(),
        }
    }

    /// Uses steps.
    pub(crate) fn charge(&self, steps: u64) -> Result<(), Limit> {
        if let Some(limit) = self.stopped() {
            return Err(limit);
        }
        let Some(left) = self.left.load(Relaxed).checked_sub(steps) else {
            return Err(self.stop(Limit::Steps));
        };
        self.left.store(left, Relaxed);
        match self.until_clock.load(Relaxed).checked_sub(steps) {
            Some(until) => self.until_clock.store(until, Relaxed),
            None => {
                self.until_clock.store(STEPS_PER_LOOK, Relaxed);
                if Instant::now() >= self.deadline {
                    return Err(self.stop(Limit::Time));
                }
            }
        }
        Ok(())
    }

    /// Steps for work on so many bytes: copying is far cheaper than an instruction.
    pub(crate) fn charge_bytes(&self, bytes: usize) -> Result<(), Limit> {
        self.charge(1 + bytes as u64 / 8)
    }

    /// Looks at the clock at once.
    pub(crate) fn charge_and_look(&self, steps: u64) -> Result<(), Limit> {
        self.until_clock.store(0, Relaxed);
        self.charge(steps.max(1))
    }

    fn stop(&self, limit: Limit) -> Limit {
        *self.stopped.get_or_init(|| limit)
    }

    pub(crate) fn stopped(&self) -> Option<Limit> {
        self.stopped.get().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exhausted_budget_stays_exhausted() {
        let budget = Budget::new();
        assert_eq!(budget.charge(limits::STEPS), Ok(()));
        assert_eq!(budget.charge(1), Err(Limit::Steps));
        assert_eq!(budget.charge(0), Err(Limit::Steps));
        assert_eq!(budget.stopped(), Some(Limit::Steps));
    }
}
