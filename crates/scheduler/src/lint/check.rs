//! The input of the linter's rules: a decision with its snapshot and request.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::binding::{Outcome, Trigger};
use atoll_api::placement::ReplicaSchedulingType;
use atoll_api::selector::Selector;
use atoll_api::workload_spread::WorkloadSpread;

use super::Fault;
use crate::request::Request;
use crate::state::row::Row;
use crate::state::snapshot::Snapshot;
use atoll_decision::Decision;

pub(super) struct Check<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) request: &'a Request,
    pub(super) decision: &'a Decision,
    pub(super) rows: BTreeMap<&'a str, &'a Row>,
    pub(super) before: BTreeMap<&'a str, i64>,
    pub(super) after: BTreeMap<&'a str, i64>,
    /// Whether nothing may move: failures, and decisions that only record something.
    pub(super) still: bool,
    pub(super) karmada: bool,
    pub(super) faults: Vec<Fault>,
}

impl<'a> Check<'a> {
    pub(super) fn new(
        snapshot: &'a Snapshot,
        request: &'a Request,
        decision: &'a Decision,
    ) -> Self {
        let rows = snapshot.rows().map(|(_, row)| (&*row.name, &**row)).collect();
        let shares = |list: &'a [atoll_api::binding::TargetCluster]| -> BTreeMap<&'a str, i64> {
            list.iter().map(|t| (t.name.as_str(), t.replicas)).collect()
        };
        let (before, after) = (shares(&decision.before), shares(&decision.after));
        let mut check = Self {
            snapshot,
            request,
            decision,
            rows,
            before,
            after,
            still: false,
            karmada: decision.profile == "karmada",
            faults: Vec::new(),
        };
        check.still = check.nothing_may_move();
        check
    }

    /// Whether the decision failed, or only records something.
    fn nothing_may_move(&self) -> bool {
        let (decision, after) = (self.decision, &self.after);
        let before = self.held();
        let sum = |shares: &BTreeMap<&str, i64>| shares.values().sum::<i64>();
        // A decision without a result removes surplus replicas and nothing else.
        let only_shrinks = sum(&before) > decision.desired.unwrap_or(0)
            && !after.is_empty()
            && after.iter().all(|(name, n)| before.get(name).is_some_and(|was| n <= was));
        // So does one on copies, which follow the requested number where they are.
        let copies_follow = self.duplicated() && before.keys().eq(after.keys());
        let failed = matches!(
            decision.outcome,
            Outcome::NoFit | Outcome::FailoverInfeasible | Outcome::Invalid
        ) || (decision.outcome == Outcome::Unschedulable
            && (before == *after || only_shrinks || copies_follow));
        failed || matches!(decision.trigger, Trigger::Avoid | Trigger::EvictionDone)
    }

    /// The shares before the decision, without those whose room other decisions took.
    pub(super) fn held(&self) -> BTreeMap<&'a str, i64> {
        let mut held = self.before.clone();
        for (name, least) in self.remaining() {
            if let Some(share) = held.get_mut(name) {
                *share = least;
            }
            held.retain(|of, share| *of != name || *share > 0);
        }
        held
    }

    pub(super) fn fault(&mut self, rule: &'static str, what: impl Into<String>) {
        self.faults.push(Fault { rule, what: what.into() });
    }

    pub(super) fn duplicated(&self) -> bool {
        let plain = match &self.request.placement.replica_scheduling {
            None => true,
            Some(given) => given.replica_scheduling_type == ReplicaSchedulingType::Duplicated,
        };
        plain && !self.steered()
    }

    /// Whether a WorkloadPolicy or WorkloadSpread divides the replicas.
    pub(super) fn steered(&self) -> bool {
        !self.karmada
            && (self.request.template.workload_policy.is_some() || self.spread().is_some())
    }

    /// The WorkloadSpread of the workload.
    pub(super) fn spread(&self) -> Option<&'a Arc<WorkloadSpread>> {
        let template = &self.request.template;
        let namespace = template.namespace.as_deref().unwrap_or_default();
        self.snapshot.workload_spread(namespace, template.group(), &template.kind, &template.name)
    }

    pub(super) fn divided(&self) -> bool {
        self.decision.desired.is_some() && !self.duplicated()
    }

    /// Whether the share on a cluster is allowed although the cluster rejects new replicas: it did not grow.
    pub(super) fn did_not_grow(&self, name: &str) -> bool {
        let after = self.after.get(name).copied().unwrap_or(0);
        self.before.get(name).is_some_and(|before| after <= *before || self.duplicated())
    }
}

/// The subset of a WorkloadSpread that a cluster belongs to: the first that selects it.
pub(super) fn subset_of(spread: &WorkloadSpread, row: &Row) -> Option<usize> {
    spread.spec.subsets.iter().position(|subset| {
        subset.required_cluster_selector.as_ref().is_none_or(|selector| {
            Selector::parse(selector).is_ok_and(|selector| selector.matches(&row.labels))
        })
    })
}
