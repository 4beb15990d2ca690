//! Priority and preemption: which bindings may lose room to which others, and the room that committed decisions took.

use std::sync::Arc;

use atoll_api::binding::{BindingPriority, ObjectReference, Preemption, ResourceBindingSpec};
use atoll_api::placement::{
    Placement, ReplicaDivisionPreference, ReplicaScheduling, ReplicaSchedulingType,
};
use atoll_decision::{BindingKey, Decision};
use serde::{Deserialize, Serialize};

use super::tables::BindingFacts;
use crate::request::Request;

/// The priority of a binding, and its part in preemptions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Standing {
    /// `spec.schedulePriority.priority`.
    pub priority: i32,
    /// Whether bindings of higher priority may take its room.
    pub preemptible: bool,
    /// The preemptions that it is part of. Usually none, and then not allocated.
    pub links: Option<Arc<Links>>,
}

/// The preemptions that a binding is part of.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Links {
    /// Room that it took from others.
    pub preempts: Vec<Preemption>,
    /// Id of a decision that is being committed: what it preempts is not available to others, but nothing may leave yet.
    pub uncommitted: Option<String>,
    /// Decisions of others that it has followed.
    pub preempted_by: Vec<String>,
}

impl Standing {
    /// Reads it from a binding. `steered`: the workload names a WorkloadPolicy.
    #[must_use]
    pub fn read(spec: &ResourceBindingSpec, steered: bool) -> Self {
        Self {
            priority: spec.schedule_priority.unwrap_or_default().priority,
            preemptible: is_preemptible(spec, steered),
            links: Links::of(spec.preempts.clone(), None, spec.preempted_by.clone()),
        }
    }

    /// The standing of a binding once a decision on it is committed.
    #[must_use]
    pub fn after(request: &Request, decision: &Decision) -> Self {
        let spec = ResourceBindingSpec {
            resource: ObjectReference {
                api_version: request.template.api_version.clone(),
                kind: request.template.kind.clone(),
                ..ObjectReference::default()
            },
            placement: Some(request.placement.clone()),
            scheduler_name: Some(request.scheduler_name.as_str().into()),
            replicas: request.template.replicas,
            components: request.template.components.clone(),
            schedule_priority: Some(BindingPriority { priority: request.priority.value }),
            preempts: decision.preempts.clone(),
            preempted_by: decision.preempted_by.clone(),
            ..ResourceBindingSpec::default()
        };
        Self::read(&spec, request.template.workload_policy.is_some())
    }

    /// The same while a decision is being committed.
    #[must_use]
    pub fn committing(mut self, decision: &str) -> Self {
        if let Some(links) = &mut self.links {
            Arc::make_mut(links).uncommitted = Some(decision.to_owned());
        }
        self
    }

    /// Room that it took from others.
    #[must_use]
    pub fn preempts(&self) -> &[Preemption] {
        self.links.as_ref().map_or(&[], |links| &links.preempts)
    }

    /// Whether it has followed a decision.
    #[must_use]
    pub fn has_followed(&self, decision: &str) -> bool {
        self.links.as_ref().is_some_and(|links| links.preempted_by.iter().any(|id| id == decision))
    }
}

impl Links {
    /// The links; `None` if there are none.
    #[must_use]
    pub fn of(
        preempts: Vec<Preemption>,
        uncommitted: Option<String>,
        preempted_by: Vec<String>,
    ) -> Option<Arc<Self>> {
        (!preempts.is_empty() || !preempted_by.is_empty())
            .then(|| Arc::new(Self { preempts, uncommitted, preempted_by }))
    }
}

/// Whether a binding may lose room to bindings of higher priority: its replicas are divided by free room, so that what
/// it loses does not return beyond the room, and nothing keeps them where they are.
fn is_preemptible(spec: &ResourceBindingSpec, steered: bool) -> bool {
    let Some(placement) = spec.placement.as_deref() else { return false };
    let job = spec.resource.kind == "Job" && spec.resource.group() == "batch";
    let suspended = spec.suspension.as_ref().is_some_and(|suspension| suspension.scheduling);
    let karmada = spec.scheduler_name.as_deref() == Some(crate::framework::profile::KARMADA);
    let whole = spec.replicas.is_none() || !spec.components.is_empty();
    let free = !job && !suspended && !karmada && !whole && !placement.sticky;
    free && (steered || divides_by_room(placement))
}

/// Whether a placement divides replicas, and places none where there is no room.
#[must_use]
pub fn divides_by_room(placement: &Placement) -> bool {
    let by_room = |given: &ReplicaScheduling| {
        let weights = given.weight_preference.as_ref();
        given.replica_scheduling_type == ReplicaSchedulingType::Divided
            && (given.respect_capacity
                || given.replica_division_preference == Some(ReplicaDivisionPreference::Aggregated)
                || weights.is_some_and(|weights| weights.dynamic_weight.is_some()))
    };
    placement.replica_scheduling.as_ref().is_some_and(by_room)
}

/// Room of a binding that another one took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The binding that took it.
    pub by: BindingKey,
    /// The priority of that binding.
    pub priority: i32,
    /// The entry.
    pub taken: Preemption,
    /// Whether the decision is committed.
    pub committed: bool,
}

impl Claim {
    /// The claims of a binding, each with the binding that loses the room.
    pub(super) fn of(facts: &BindingFacts) -> impl Iterator<Item = (BindingKey, Self)> + '_ {
        let links = facts.standing.links.as_deref();
        let all =
            links.into_iter().flat_map(|links| links.preempts.iter().map(move |t| (links, t)));
        all.map(|(links, taken)| {
            let victim = BindingKey::of(taken.namespace.as_deref(), &taken.name);
            let claim = Self {
                by: facts.key.clone(),
                priority: facts.standing.priority,
                taken: taken.clone(),
                committed: links.uncommitted.as_ref() != Some(&taken.decision),
            };
            (victim, claim)
        })
    }
}

/// Replicas of a binding on a cluster that no other binding has claimed.
#[must_use]
pub fn available(facts: &BindingFacts, cluster: &str, claims: &[Claim]) -> i64 {
    let share = facts.shares.iter().find(|share| share.name == cluster);
    let share = share.map_or(0, |share| share.replicas.clamp(0, i64::from(i32::MAX)));
    let open = claims.iter().filter(|claim| claim.taken.cluster == cluster);
    let open = open.filter(|claim| !facts.standing.has_followed(&claim.taken.decision));
    open.map(|claim| claim.taken.remaining.max(0)).fold(share, i64::min)
}

/// Replicas of a binding that leave a cluster: those that others have claimed, and those that the member still reports
/// although they are not in its share any more. Returns both numbers.
#[must_use]
pub fn leaving(facts: &BindingFacts, cluster: &str, claims: &[Claim]) -> (i64, i64) {
    let share = facts.shares.iter().find(|share| share.name == cluster);
    let share = share.map_or(0, |share| share.replicas.clamp(0, i64::from(i32::MAX)));
    let reported = facts.reported.get(cluster).copied().unwrap_or(0);
    let claimed = share.saturating_sub(available(facts, cluster, claims)).max(0);
    (claimed, reported.saturating_sub(share).max(0))
}
