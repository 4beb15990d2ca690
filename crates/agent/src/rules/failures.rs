//! Failures of rules, for the controller. A rule may fail for every object of a kind, so only the last failure of each
//! customization and operation is kept, and sent at most once in [`WINDOW`].

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_protocol::v1;
use tokio::time::Instant;

/// Time between two reports about the same rule. The status of a customization shows only the last failure.
const WINDOW: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Failure {
    report: v1::RuleFailure,
    /// Not sent yet in this session.
    due: bool,
    /// When the rule was last reported.
    sent: Option<Instant>,
}

/// The last failure by customization and operation. Bounded by the customizations in force.
#[derive(Debug, Default)]
pub(super) struct Failures(BTreeMap<(String, i32), Failure>);

impl Failures {
    /// A rule failed.
    pub(super) fn note(&mut self, report: v1::RuleFailure) {
        let key = (report.customization.clone(), report.operation);
        let sent = self.0.get(&key).and_then(|failure| failure.sent);
        self.0.insert(key, Failure { report, due: true, sent });
    }

    /// The reports to send now.
    pub(super) fn take(&mut self, now: Instant) -> Vec<v1::RuleFailure> {
        let due = self.0.values_mut().filter(|failure| failure.due && failure.at() <= Some(now));
        due.map(|failure| {
            failure.due = false;
            failure.sent = Some(now);
            failure.report.clone()
        })
        .collect()
    }

    /// When there will be a report to send; in the past if there is one.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let due = self.0.values().filter(|failure| failure.due);
        due.map(|failure| failure.at().unwrap_or(now)).min()
    }

    /// A session begins: the controller may not know any of them.
    pub(super) fn repeat(&mut self) {
        for failure in self.0.values_mut() {
            failure.due = true;
            failure.sent = None;
        }
    }

    /// Other customizations are in force: failures of earlier texts say nothing about them.
    pub(super) fn keep(&mut self, hashes: &BTreeMap<String, String>) {
        self.0.retain(|(name, _), failure| hashes.get(name) == Some(&failure.report.hash));
    }
}

impl Failure {
    /// When it may be sent; `None` = at once.
    fn at(&self) -> Option<Instant> {
        self.sent.map(|sent| sent + WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(customization: &str, hash: &str, message: &str) -> v1::RuleFailure {
        v1::RuleFailure {
            customization: customization.to_owned(),
            hash: hash.to_owned(),
            message: message.to_owned(),
            ..v1::RuleFailure::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_failures_of_a_rule_the_last_is_sent_now_and_then() {
        let mut failures = Failures::default();
        let now = Instant::now();
        for at in 0..1000 {
            failures.note(failure("a", "h", &at.to_string()));
            failures.note(failure("b", "h", "b"));
        }
        let sent: Vec<_> = failures.take(now).into_iter().map(|report| report.message).collect();
        assert_eq!(sent, ["999", "b"]);
        failures.note(failure("a", "h", "later"));
        assert_eq!(failures.take(now), []);
        assert_eq!(failures.next(now), Some(now + WINDOW));
        assert_eq!(failures.take(now + WINDOW), [failure("a", "h", "later")]);
        assert_eq!(failures.next(now), None);

        // A new session gets all, except those of texts that were replaced.
        failures.repeat();
        failures.keep(&BTreeMap::from([("a".to_owned(), "h".to_owned())]));
        assert_eq!(failures.take(now + WINDOW), [failure("a", "h", "later")]);
    }
}
