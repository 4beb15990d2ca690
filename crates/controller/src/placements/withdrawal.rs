//! Withdrawing a binding: every member that may hold its objects is ordered to remove them, and the binding is deleted
//! when all connected ones have confirmed, or after a minute; history records unconfirmed members before that.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

/// Time for the connected members to confirm; an unreachable member must not block names or namespaces.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Next step of a withdrawal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait for confirmations, until this time.
    Confirmations(Instant),
    /// Pass the record, with the members that have not confirmed, to history, and wait for its acknowledgement.
    Record(Vec<String>),
    /// Wait for history's acknowledgement.
    History,
    /// Remove the finalizer.
    Release,
}

/// A withdrawal in progress.
#[derive(Debug, Clone)]
pub(crate) struct Withdrawal {
    /// uid of the binding: one of the same name may follow before this one's last events arrive.
    claim: String,
    since: Instant,
    all: BTreeSet<String>,
    unconfirmed: BTreeSet<String>,
    record: Record,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Record {
    Open,
    Handed(String),
    Held,
}

impl Withdrawal {
    /// Begins, with every member that may hold an object.
    #[must_use]
    pub(crate) fn begin(claim: &str, members: BTreeSet<String>, now: Instant) -> Self {
        Self {
            claim: claim.to_owned(),
            since: now,
            unconfirmed: members.clone(),
            all: members,
            record: Record::Open,
        }
    }

    /// Whether it is of the binding with this uid.
    #[must_use]
    pub(crate) fn is_of(&self, claim: &str) -> bool {
        self.claim == claim
    }

    /// Every member that may have held an object, by name.
    #[must_use]
    pub(crate) fn members(&self) -> Vec<String> {
        self.all.iter().cloned().collect()
    }

    /// A member confirmed that it holds no object any more.
    pub(crate) fn confirm(&mut self, cluster: &str) {
        self.unconfirmed.remove(cluster);
    }

    /// The record with this id was passed to history.
    pub(crate) fn handed(&mut self, id: String) {
        self.record = Record::Handed(id);
    }

    /// The id of the record that history has to acknowledge.
    #[must_use]
    pub(crate) fn awaited(&self) -> Option<&str> {
        match &self.record {
            Record::Handed(id) => Some(id),
            Record::Open | Record::Held => None,
        }
    }

    /// History acknowledged the record.
    pub(crate) fn held(&mut self) {
        self.record = Record::Held;
    }

    /// The next step. `connected` tells which members have a session.
    #[must_use]
    pub(crate) fn next(&self, now: Instant, connected: impl Fn(&str) -> bool) -> Next {
        match self.record {
            Record::Held => Next::Release,
            Record::Handed(_) => Next::History,
            Record::Open => {
                let until = self.since + PATIENCE;
                let answering = self.unconfirmed.iter().any(|cluster| connected(cluster));
                if answering && now < until {
                    Next::Confirmations(until)
                } else {
                    Next::Record(self.unconfirmed.iter().cloned().collect())
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_connected_confirm_and_the_lost_are_named_to_history() {
        let now = Instant::now();
        let connected = |cluster: &str| cluster != "lost";
        let mut withdrawal = Withdrawal::begin("u1", members(&["a", "b", "lost"]), now);
        withdrawal.confirm("a");
        assert_eq!(withdrawal.next(now, connected), Next::Confirmations(now + PATIENCE));
        withdrawal.confirm("b");
        assert_eq!(withdrawal.next(now, connected), Next::Record(vec!["lost".to_owned()]));
        withdrawal.handed("id".to_owned());
        assert_eq!(withdrawal.next(now, connected), Next::History, "no record, no end");
        withdrawal.held();
        assert_eq!(withdrawal.next(now, connected), Next::Release);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connected_member_that_does_not_answer_has_a_minute() {
        let now = Instant::now();
        let withdrawal = Withdrawal::begin("u1", members(&["a"]), now);
        let late = now + PATIENCE;
        assert_eq!(withdrawal.next(late, |_| true), Next::Record(vec!["a".to_owned()]));
    }
}
