//! Withdrawing a binding: every member that may hold its objects is ordered to remove them, and the binding is deleted
//! when all connected ones have confirmed, or after a minute; history records unconfirmed members before that.

use std::collections::BTreeSet;
use std::time::Duration;

use atoll_api::{BindingUid, ClusterName, DecisionId};
use tokio::time::Instant;

/// Time for the connected members to confirm; an unreachable member must not block names or namespaces.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Next step of a withdrawal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait for confirmations, until this time.
    Confirmations(Instant),
    /// Pass the record, with the members that have not confirmed, to history, and wait for its acknowledgement.
    Record(Vec<ClusterName>),
    /// Wait for history's acknowledgement.
    History,
    /// Remove the finalizer.
    Release,
}

/// A withdrawal in progress.
#[derive(Debug, Clone)]
pub(crate) struct Withdrawal {
    /// uid of the binding: one of the same name may follow before this one's last events arrive.
    claim: BindingUid,
    since: Instant,
    all: BTreeSet<ClusterName>,
    unconfirmed: BTreeSet<ClusterName>,
    record: Record,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Record {
    Open,
    Handed(DecisionId),
    Held,
}

impl Withdrawal {
    /// Begins, with every member that may hold an object.
    #[must_use]
    pub(crate) fn begin(claim: &BindingUid, members: BTreeSet<ClusterName>, now: Instant) -> Self {
        Self {
            claim: claim.clone(),
            since: now,
            unconfirmed: members.clone(),
            all: members,
            record: Record::Open,
        }
    }

    /// Whether it is of the binding with this uid.
    #[must_use]
    pub(crate) fn is_of(&self, claim: &BindingUid) -> bool {
        self.claim == *claim
    }

    /// Every member that may have held an object, by name.
    #[must_use]
    pub(crate) fn members(&self) -> Vec<ClusterName> {
        self.all.iter().cloned().collect()
    }

    /// A member confirmed that it holds no object any more.
    pub(crate) fn confirm(&mut self, cluster: &ClusterName) {
        self.unconfirmed.remove(cluster);
    }

    /// The record with this id was passed to history.
    pub(crate) fn handed(&mut self, id: DecisionId) {
        self.record = Record::Handed(id);
    }

    /// The id of the record that history has to acknowledge.
    #[must_use]
    pub(crate) fn awaited(&self) -> Option<&DecisionId> {
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
    pub(crate) fn next(&self, now: Instant, connected: impl Fn(&ClusterName) -> bool) -> Next {
        match self.record {
            Record::Held => Next::Release,
            Record::Handed(_) => Next::History,
            Record::Open => {
                let until = self.since + PATIENCE;
                let answering = self.unconfirmed.iter().any(connected);
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

    fn members(names: &[&str]) -> BTreeSet<ClusterName> {
        names.iter().map(|name| (*name).into()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_connected_confirm_and_the_lost_are_named_to_history() {
        let now = Instant::now();
        let connected = |cluster: &ClusterName| *cluster != "lost";
        let mut withdrawal = Withdrawal::begin(&"u1".into(), members(&["a", "b", "lost"]), now);
        withdrawal.confirm(&"a".into());
        assert_eq!(withdrawal.next(now, connected), Next::Confirmations(now + PATIENCE));
        withdrawal.confirm(&"b".into());
        assert_eq!(withdrawal.next(now, connected), Next::Record(vec!["lost".into()]));
        withdrawal.handed("id".into());
        assert_eq!(withdrawal.next(now, connected), Next::History, "no record, no end");
        withdrawal.held();
        assert_eq!(withdrawal.next(now, connected), Next::Release);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connected_member_that_does_not_answer_has_a_minute() {
        let now = Instant::now();
        let withdrawal = Withdrawal::begin(&"u1".into(), members(&["a"]), now);
        let late = now + PATIENCE;
        assert_eq!(withdrawal.next(late, |_| true), Next::Record(vec!["a".into()]));
    }
}
