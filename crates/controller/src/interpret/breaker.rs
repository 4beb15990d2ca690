//! Rules that run away are not run again for a while, where they would be asked again and again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use atoll_api::customization::Operation;
use tokio::time::Instant;

/// Runs in a row that may be stopped by a limit. One stopped run takes up to a second of a thread.
const MOST_STOPPED: u32 = 3;
/// How long such a rule is not run then.
const PAUSE: Duration = Duration::from_secs(60);

/// Hash of a customization's spec, and the operation of the rule.
pub(super) type Rule = (Arc<str>, Operation);

/// The rules that were stopped lately.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    rules: Mutex<BTreeMap<Rule, Stopped>>,
}

#[derive(Debug, Default)]
struct Stopped {
    in_a_row: u32,
    until: Option<Instant>,
}

impl Breaker {
    /// Whether a rule must not be run now.
    pub(super) fn is_open(&self, rule: &Rule, now: Instant) -> bool {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.get(rule).and_then(|stopped| stopped.until).is_some_and(|until| now < until)
    }

    /// A rule was run. Entries of rules that are not in force any more go.
    pub(super) fn ran(
        &self,
        rule: &Rule,
        was_stopped: bool,
        now: Instant,
        in_force: impl Fn(&str) -> bool,
    ) {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        if !was_stopped {
            rules.remove(rule);
            return;
        }
        rules.retain(|(hash, _), _| in_force(hash));
        let stopped = rules.entry(rule.clone()).or_default();
        stopped.in_a_row += 1;
        if stopped.in_a_row >= MOST_STOPPED {
            stopped.until = Some(now + PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_that_is_stopped_three_times_pauses_for_a_minute_and_then_has_one_trial() {
        let (breaker, rule) = (Breaker::default(), (Arc::from("a"), Operation::AggregateStatus));
        let start = Instant::now();
        let ran = |stopped, at| breaker.ran(&rule, stopped, at, |_| true);
        ran(true, start);
        ran(true, start);
        ran(false, start);
        for _ in 0..MOST_STOPPED {
            assert!(!breaker.is_open(&rule, start), "an answer in between counts");
            ran(true, start);
        }
        assert!(breaker.is_open(&rule, start + PAUSE - Duration::from_millis(1)));
        let later = start + PAUSE;
        assert!(!breaker.is_open(&rule, later), "one trial");
        ran(true, later);
        assert!(breaker.is_open(&rule, later));
        ran(false, later + PAUSE);
        assert!(!breaker.is_open(&rule, later + PAUSE));
        // Another rule is not concerned, and what is not in force is forgotten.
        let other = (Arc::from("b"), Operation::AggregateStatus);
        assert!(!breaker.is_open(&other, later));
        ran(true, later);
        breaker.ran(&other, true, later, |hash| hash == "b");
        assert_eq!(breaker.rules.lock().unwrap().len(), 1);
    }
}
