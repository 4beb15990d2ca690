//! `replicaSync: FromMembers`: what members run of a Deployment whose replicas their autoscalers set.

use atoll_api::binding::{DecisionRecord, ResourceHealth, TargetCluster};
use atoll_api::placement::{ReplicaSchedulingType, ReplicaSync};
use atoll_interpreter::RETAIN_REPLICAS;

use super::Placements;
use super::observed::Certainty;
use crate::index::Index;
use crate::index::key::KindRef;
use crate::index::rows::Binding;
use crate::index::template::Template;

/// Whether the number of replicas of a template follows its members. Only Deployments keep their number on members by
/// the label. A WorkloadPolicy or WorkloadSpread sets the numbers itself.
fn follows(index: &Index, binding: &Binding, template: &Template) -> bool {
    let placement = binding.spec.placement.as_deref();
    let scheduling = placement.and_then(|placement| placement.replica_scheduling.as_ref());
    let asked = scheduling.is_some_and(|scheduling| {
        scheduling.replica_sync == Some(ReplicaSync::FromMembers)
            && scheduling.replica_scheduling_type == ReplicaSchedulingType::Divided
    });
    let KindRef { group, kind } = template.key.group_kind();
    asked
        && (group, kind) == ("apps", "Deployment")
        && template.labels.get(RETAIN_REPLICAS).is_some_and(|value| &**value == "true")
        && template.extract.workload_policy.is_none()
        && index.spreads_for(&template.key).is_none()
}

/// What each target runs; `None` unless the number of replicas follows the members, and every target holds what was
/// sent last and is healthy there. A member that scaled to zero counts as one replica: with an empty share its object
/// would be removed, and with it what could scale it up again.
#[must_use]
pub(crate) fn counts(
    index: &Index,
    placements: &Placements,
    binding: &Binding,
    template: &Template,
) -> Option<Vec<TargetCluster>> {
    if !follows(index, binding, template) {
        return None;
    }
    let spec = &binding.spec;
    let pending = spec.decision.as_ref().map_or(0, DecisionRecord::pending_replicas);
    let settled = !spec.clusters.is_empty() && spec.graceful_eviction_tasks.is_empty();
    if !settled || pending > 0 || binding.deleting() {
        return None;
    }
    let run = |target: &TargetCluster| {
        let placement = placements.get(&binding.key, &target.name)?;
        let (sent, observed) = (placement.sent.as_ref()?, placement.observed.as_ref()?);
        // During a rollout more replicas exist than the member asks for.
        let settled = observed.item.ready_replicas == observed.item.replicas;
        let fresh = observed.certainty == Certainty::Fresh;
        let current = fresh && settled && observed.holds(&sent.hash) && observed.observed;
        let healthy = observed.item.health == ResourceHealth::Healthy;
        let replicas = observed.item.replicas.get()?.max(1);
        (current && healthy).then(|| TargetCluster { name: target.name.clone(), replicas })
    };
    let counts: Vec<TargetCluster> = spec.clusters.iter().map(run).collect::<Option<_>>()?;
    (sum(&counts) <= i64::from(i32::MAX)).then_some(counts)
}

/// Whether a binding must be decided on, because its shares differ from what the members run although the template
/// already has the sum: the members' autoscalers made opposite changes.
#[must_use]
pub(crate) fn differs(
    index: &Index,
    placements: &Placements,
    binding: &Binding,
    template: &Template,
) -> bool {
    let Some(counts) = counts(index, placements, binding, template) else { return false };
    let desired = template.extract.demand.replicas.unwrap_or(1);
    binding.spec.clusters != counts && sum(&counts) == desired
}

/// Replicas of all clusters together.
#[must_use]
pub(crate) fn sum(counts: &[TargetCluster]) -> i64 {
    counts.iter().fold(0, |sum, count| sum.saturating_add(count.replicas))
}
