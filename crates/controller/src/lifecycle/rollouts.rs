//! Manifests that change because override policies or Clusters changed, although the template did not: they are sent at
//! a bounded rate, so that a mistake in one label does not reach all workloads at once, and history records the cause.
//!
//! The state is not durable: the next leader sends what is left without the limit.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use atoll_api::ClusterName;
use atoll_history::{MemberEvent, MemberEventKind};
use atoll_render::overrides::Applied;
use jiff::Timestamp;
use tokio::time::Instant;

use super::pace::{Pace, PaceLimits};
use crate::index::key::BindingKey;

/// How long manifests of the same cause are counted before history gets one row for them.
const RECORD_AFTER: Duration = Duration::from_secs(5);
/// Number of workloads and policies that a row names.
const MOST_NAMES: usize = 5;

/// Why a manifest changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// Name, labels, provider, region or zones of the member's Cluster.
    Cluster,
    /// The override policies.
    Policies,
}

impl Cause {
    /// The reason in history.
    fn reason(self) -> &'static str {
        match self {
            Self::Cluster => "ClusterChanged",
            Self::Policies => "OverridePoliciesChanged",
        }
    }
}

/// Manifests that were sent for one cause.
#[derive(Debug, Default)]
struct Batch {
    manifests: u64,
    bindings: BTreeSet<BindingKey>,
    policies: BTreeSet<String>,
}

impl Batch {
    fn message(&self) -> String {
        let names: Vec<String> = self.bindings.iter().map(ToString::to_string).collect();
        let more = self.manifests.saturating_sub(names.len() as u64);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let policies: Vec<&str> = self.policies.iter().map(String::as_str).collect();
        let policies = match policies.is_empty() {
            true => "no override policy applies".to_owned(),
            false => format!("override policies: {}", policies.join(", ")),
        };
        format!("rendered anew: {}{more}; {policies}", names.join(", "))
    }
}

/// Rollouts of changed overrides in this leadership.
pub(crate) struct Rollouts {
    pace: Pace<BindingKey>,
    /// Manifests that history does not have yet.
    unrecorded: BTreeMap<(ClusterName, Cause), Batch>,
    record_at: Option<Instant>,
}

impl Rollouts {
    pub(crate) fn begin(limits: PaceLimits, now: Instant) -> Self {
        let limits =
            PaceLimits { bindings_per_second: limits.rollouts_per_second, ..PaceLimits::NONE };
        Self { pace: Pace::new(limits, now), unrecorded: BTreeMap::new(), record_at: None }
    }

    /// Whether the binding's changed manifests may be sent now. If not, it is queued, and [`Rollouts::release`] returns
    /// it later.
    pub(crate) fn may_send(&mut self, key: &BindingKey, now: Instant) -> bool {
        self.pace.admit(key, &[], now).is_ok()
    }

    /// Whether the binding waits for its turn.
    pub(crate) fn waits(&self, key: &BindingKey) -> bool {
        self.pace.hold(key).is_some()
    }

    /// Number of bindings that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.pace.waiting()
    }

    /// The binding has nothing to send any more.
    pub(crate) fn forget(&mut self, key: &BindingKey) {
        self.pace.forget(key);
    }

    /// The bindings whose turn has come.
    pub(crate) fn release(&mut self, now: Instant) -> Vec<BindingKey> {
        self.pace.release(now)
    }

    /// Counts a manifest that was sent.
    pub(crate) fn sent(
        &mut self,
        key: &BindingKey,
        cluster: &ClusterName,
        cause: Cause,
        applied: &[Applied],
        now: Instant,
    ) {
        let batch = self.unrecorded.entry((cluster.clone(), cause)).or_default();
        batch.manifests += 1;
        if batch.bindings.len() < MOST_NAMES {
            batch.bindings.insert(key.clone());
        }
        for rule in applied {
            if batch.policies.len() < MOST_NAMES {
                batch.policies.insert(format!("{} {}", rule.scope.kind(), rule.policy));
            }
        }
        self.record_at.get_or_insert(now + RECORD_AFTER);
    }

    /// The rows for history, when they are due.
    pub(crate) fn records(&mut self, now: Instant, at: Timestamp) -> Vec<MemberEvent> {
        if self.record_at.is_none_or(|due| due > now) {
            return Vec::new();
        }
        self.record_at = None;
        let batches = std::mem::take(&mut self.unrecorded);
        let rows = batches.into_iter().map(|((cluster, cause), batch)| MemberEvent {
            cluster,
            uid: None,
            at,
            kind: MemberEventKind::Rerendered,
            reason: cause.reason().to_owned(),
            message: batch.message(),
        });
        rows.collect()
    }

    /// When the next binding's turn comes, or rows are due.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.pace.next().into_iter().chain(self.record_at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn history_gets_one_row_for_each_member_and_cause() {
        let now = Instant::now();
        let mut rollouts = Rollouts::begin(PaceLimits::default(), now);
        for n in 0..7 {
            let key = BindingKey::of(Some("shop"), &format!("web-{n}"));
            rollouts.sent(&key, &"m1".into(), Cause::Cluster, &[], now);
        }
        let key = BindingKey::of(Some("shop"), "web-0");
        rollouts.sent(&key, &"m1".into(), Cause::Policies, &[], now);
        let due = rollouts.next_timer().unwrap();
        assert_eq!(rollouts.records(now, Timestamp::UNIX_EPOCH), []);
        let rows = rollouts.records(due, Timestamp::UNIX_EPOCH);
        let said: Vec<_> =
            rows.iter().map(|row| (row.reason.as_str(), row.message.as_str())).collect();
        let (names, none) = (
            "shop/web-0, shop/web-1, shop/web-2, shop/web-3, shop/web-4",
            "no override policy applies",
        );
        assert_eq!(
            said,
            [
                ("ClusterChanged", &*format!("rendered anew: {names} and 2 more; {none}")),
                ("OverridePoliciesChanged", &*format!("rendered anew: shop/web-0; {none}")),
            ]
        );
        assert_eq!(rollouts.next_timer(), None);
    }
}
