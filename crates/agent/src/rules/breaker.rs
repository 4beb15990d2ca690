//! Stops asking a rule that runs away again and again: each run takes a thread for up to a second.

use std::time::Duration;

use tokio::time::Instant;

/// Runs in a row that used up a limit before the rule is paused. One object must not disable the rule for others.
const RUNS: u32 = 3;
/// How long it is paused; afterwards one run shows whether it still runs away.
const PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Breaker {
    in_a_row: u32,
    until: Option<Instant>,
}

impl Breaker {
    /// Whether the rule may run.
    pub(super) fn is_closed(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }

    /// The rule ran, and used up a limit or not.
    pub(super) fn ran(&mut self, away: bool, now: Instant) {
        self.in_a_row = if away { self.in_a_row + 1 } else { 0 };
        self.until = (self.in_a_row >= RUNS).then_some(now + PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_rule_that_runs_away_is_tried_once_a_minute_until_it_ends() {
        let mut breaker = Breaker::default();
        let now = Instant::now();
        for away in [true, true, false, true, true] {
            breaker.ran(away, now);
            assert!(breaker.is_closed(now));
        }
        breaker.ran(true, now);
        assert!(!breaker.is_closed(now) && breaker.is_closed(now + PAUSE));
        breaker.ran(true, now + PAUSE);
        assert!(!breaker.is_closed(now + PAUSE));
        breaker.ran(false, now + PAUSE * 2);
        assert!(breaker.is_closed(now + PAUSE * 2));
    }
}
