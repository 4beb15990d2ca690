//! Checks a placement alone.

use std::collections::BTreeMap;

use atoll_api::placement::{
    Placement, ReplicaDivisionPreference, ReplicaScheduling, ReplicaSchedulingType, RescheduleOn,
    SpreadField,
};

use super::{Page, selectors};
use crate::cycle::check;

const FIELD: &str = "spec.placement";

pub(super) fn check(page: &mut Page, placement: &Placement) {
    page.mistake(check::static_placement(placement));
    if let Some(affinity) = &placement.cluster_affinity {
        selectors::affinity(page, &format!("{FIELD}.clusterAffinity"), affinity);
    }
    terms(page, placement);
    tolerations(page, placement);
    spread(page, placement);
    if let Some(scheduling) = &placement.replica_scheduling {
        replica_scheduling(page, scheduling);
    }
    unschedulable(page, placement);
}

/// What moves no unschedulable replicas although the placement mentions them. A WorkloadPolicy or WorkloadSpread may divide
/// the workload whatever the placement says, so only fields that contradict each other are reported.
fn unschedulable(page: &mut Page, placement: &Placement) {
    let on = placement.reschedule_on.as_deref().unwrap_or_default();
    let listed = on.contains(&RescheduleOn::Unschedulable);
    if placement.unschedulable_after_seconds.is_some() && !listed {
        page.warning(
            format!("{FIELD}.unschedulableAfterSeconds"),
            "is ignored: rescheduleOn does not list Unschedulable".to_owned(),
            "add Unschedulable to rescheduleOn, together with the changes that may move the workload",
        );
    }
    let ignored = match &placement.replica_scheduling {
        _ if placement.sticky => "sticky keeps the replicas where they are",
        Some(scheduling) if is_duplicated(scheduling) => "with Duplicated no replica moves",
        Some(scheduling) if ignores_room(scheduling) => {
            "static weights ignore room without respectCapacity"
        }
        _ => return,
    };
    if let Some(at) = on.iter().position(|on| *on == RescheduleOn::Unschedulable) {
        let field = format!("{FIELD}.rescheduleOn[{at}]");
        page.warning(field, format!("is ignored: {ignored}"), "remove it or change the division");
    }
}

fn is_duplicated(scheduling: &ReplicaScheduling) -> bool {
    scheduling.replica_scheduling_type == ReplicaSchedulingType::Duplicated
}

fn ignores_room(scheduling: &ReplicaScheduling) -> bool {
    let aggregated =
        scheduling.replica_division_preference == Some(ReplicaDivisionPreference::Aggregated);
    let weights = scheduling.weight_preference.as_ref();
    let dynamic = weights.is_some_and(|weights| weights.dynamic_weight.is_some());
    !aggregated && !dynamic && !scheduling.respect_capacity
}

fn terms(page: &mut Page, placement: &Placement) {
    let terms = placement.cluster_affinities.as_deref().unwrap_or_default();
    for (at, term) in terms.iter().enumerate() {
        let field = format!("{FIELD}.clusterAffinities[{at}]");
        selectors::affinity(page, &field, &term.affinity);
        if let Some(earlier) = terms[..at].iter().find(|earlier| {
            earlier.affinity == term.affinity
                && earlier.overflow_affinities == term.overflow_affinities
        }) {
            let problem = format!("is never used: {:?} chooses the same", earlier.affinity_name);
            page.warning(&field, problem, "remove it or let it choose other clusters");
        }
        let mut tiers = vec![&term.affinity];
        for (tier, overflow) in term.overflow_affinities.iter().enumerate() {
            let field = format!("{field}.overflowAffinities[{tier}]");
            selectors::affinity(page, &field, &overflow.affinity);
            if tiers.contains(&&overflow.affinity) {
                let problem = "adds nothing: the term or an earlier tier chooses the same clusters";
                page.warning(&field, problem, "remove it or let it choose other clusters");
            }
            tiers.push(&overflow.affinity);
        }
    }
}

fn tolerations(page: &mut Page, placement: &Placement) {
    for (at, toleration) in placement.cluster_tolerations.iter().enumerate() {
        let field = format!("{FIELD}.clusterTolerations[{at}]");
        let operator = toleration.operator.as_deref().unwrap_or("Equal");
        let effect = toleration.effect.as_deref().unwrap_or_default();
        let is_empty = |text: &Option<String>| text.as_deref().unwrap_or_default().is_empty();
        if !["Equal", "Exists"].contains(&operator) {
            let problem = format!("{operator:?} is not an operator: the toleration has no effect");
            page.error(format!("{field}.operator"), problem, "write Equal or Exists");
        }
        if !["", "NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
            let problem = format!("{effect:?} is not a taint effect: the toleration has no effect");
            let fix = "write NoSchedule, PreferNoSchedule or NoExecute, or leave it out for all";
            page.error(format!("{field}.effect"), problem, fix);
        }
        if operator == "Exists" && !is_empty(&toleration.value) {
            let problem = "is ignored with operator Exists";
            page.warning(format!("{field}.value"), problem, "remove it or write Equal");
        }
        if operator == "Equal" && is_empty(&toleration.key) {
            let problem =
                "is empty, which only operator Exists allows: the toleration has no effect";
            page.error(format!("{field}.key"), problem, "name the taint or write Exists");
        }
        if toleration.toleration_seconds.is_some() && !["", "NoExecute"].contains(&effect) {
            let problem = format!("has no effect with {effect}");
            page.warning(
                format!("{field}.tolerationSeconds"),
                problem,
                "remove it or use NoExecute",
            );
        }
    }
}

fn spread(page: &mut Page, placement: &Placement) {
    let mut seen = BTreeMap::new();
    for (at, constraint) in placement.spread_constraints.iter().enumerate() {
        let field = format!("{FIELD}.spreadConstraints[{at}]");
        let by = (constraint.spread_by_field, constraint.spread_by_label.clone());
        if let Some(earlier) = seen.insert(by, at) {
            let problem = format!("groups by the same key as spreadConstraints[{earlier}]");
            page.error(&field, problem, "keep one of them");
        }
    }
    let of = |field: SpreadField| {
        placement.spread_constraints.iter().find(|c| c.spread_by_field == Some(field))
    };
    let most = of(SpreadField::Cluster).and_then(|c| c.max_groups).filter(|max| *max > 0);
    for (at, constraint) in placement.spread_constraints.iter().enumerate() {
        let groups = constraint.min_groups.unwrap_or(0);
        if let Some(most) = most.filter(|most| groups > *most)
            && constraint.spread_by_field != Some(SpreadField::Cluster)
        {
            let field = format!("{FIELD}.spreadConstraints[{at}].minGroups");
            let problem = format!(
                "{groups} groups need as many clusters, but maxGroups by cluster is {most}"
            );
            page.error(field, problem, "lower it or raise maxGroups of the constraint by cluster");
        }
    }
    let mut keys = BTreeMap::new();
    for (at, constraint) in placement.topology_spread_constraints.iter().enumerate() {
        let key = (constraint.topology_key.clone(), format!("{:?}", constraint.when_unsatisfiable));
        if let Some(earlier) = keys.insert(key, at) {
            let field = format!("{FIELD}.topologySpreadConstraints[{at}].topologyKey");
            let problem = format!("is also the key of topologySpreadConstraints[{earlier}]");
            page.error(field, problem, "keep one constraint for a key and whenUnsatisfiable");
        }
    }
}

fn replica_scheduling(page: &mut Page, scheduling: &ReplicaScheduling) {
    let field = format!("{FIELD}.replicaScheduling");
    let weights = scheduling.weight_preference.as_ref();
    let list = weights.map_or(&[][..], |weights| &weights.static_weight_list);
    let dynamic = weights.is_some_and(|weights| weights.dynamic_weight.is_some());
    let ignored = |page: &mut Page, name: &str, by: &str| {
        page.warning(format!("{field}.{name}"), format!("is ignored: {by}"), "remove it");
    };
    if scheduling.replica_scheduling_type == ReplicaSchedulingType::Duplicated {
        let by = "with Duplicated every cluster gets all replicas";
        for (name, given) in [
            ("replicaDivisionPreference", scheduling.replica_division_preference.is_some()),
            ("weightPreference", weights.is_some()),
            ("bounds", !scheduling.bounds.is_empty()),
            ("respectCapacity", scheduling.respect_capacity),
        ] {
            if given {
                ignored(page, name, by);
            }
        }
        return;
    }
    let aggregated =
        scheduling.replica_division_preference == Some(ReplicaDivisionPreference::Aggregated);
    if aggregated && weights.is_some() {
        ignored(page, "weightPreference", "Aggregated ignores weights");
    } else if dynamic && !list.is_empty() {
        ignored(page, "weightPreference.staticWeightList", "dynamicWeight takes precedence");
    }
    if scheduling.respect_capacity && (aggregated || dynamic) {
        ignored(page, "respectCapacity", "this division always respects capacity");
    }
    for (at, rule) in list.iter().enumerate() {
        let field = format!("{field}.weightPreference.staticWeightList[{at}]");
        selectors::affinity(page, &format!("{field}.targetCluster"), &rule.target_cluster);
        // The largest matching weight of a cluster counts.
        let stronger = list.iter().enumerate().find(|(other, stronger)| {
            let covers = stronger.target_cluster == rule.target_cluster
                || stronger.target_cluster == Default::default();
            *other != at
                && covers
                && (stronger.weight > rule.weight
                    || (stronger.weight == rule.weight && *other < at))
        });
        if let Some((other, _)) = stronger {
            let problem = format!(
                "is shadowed: staticWeightList[{other}] gives its clusters at least the same weight"
            );
            page.warning(field, problem, "remove it or give it the larger weight");
        }
    }
    for (at, bound) in scheduling.bounds.iter().enumerate() {
        let field = format!("{field}.bounds[{at}]");
        selectors::affinity(page, &format!("{field}.targetCluster"), &bound.target_cluster);
        if bound.min.is_none() && bound.max.is_none() {
            page.warning(&field, "has neither min nor max", "give it min or max, or remove it");
        }
        for (other, earlier) in scheduling.bounds[..at].iter().enumerate() {
            if earlier.target_cluster != bound.target_cluster {
                continue;
            }
            let (min, max) = (
                bound.min.max(earlier.min).unwrap_or(0),
                bound.max.unwrap_or(i64::MAX).min(earlier.max.unwrap_or(i64::MAX)),
            );
            if min > max {
                let problem = format!(
                    "together with bounds[{other}] it requires at least {min} and at most {max}"
                );
                page.error(&field, problem, "keep one bound for these clusters");
            } else {
                let problem = format!("bounds the same clusters as bounds[{other}]");
                page.warning(&field, problem, "keep one bound for these clusters");
            }
        }
    }
}
