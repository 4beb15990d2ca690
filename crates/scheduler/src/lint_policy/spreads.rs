//! Checks WorkloadSpreads, alone and against the existing clusters and workloads.

use atoll_api::WorkloadSpread;
use atoll_api::workload_spread::{ScheduleStrategyType, WorkloadSpreadSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Page, selectors};
use crate::cycle::check;
use crate::detect::KindRef;
use crate::offline::World;
use crate::state::affinity;
use crate::state::row::Row;

pub(super) fn check(page: &mut Page, spec: &WorkloadSpreadSpec) {
    page.mistake(check::workload_spread(spec, &spec.target_ref.kind));
    for (at, subset) in spec.subsets.iter().enumerate() {
        let field = format!("spec.subsets[{at}]");
        if let Some(selector) = &subset.required_cluster_selector {
            selectors::labels(page, &format!("{field}.requiredClusterSelector"), selector);
        }
        for (wish, preferred) in subset.preferred_cluster_selectors.iter().enumerate() {
            let field = format!("{field}.preferredClusterSelectors[{wish}].preference");
            selectors::labels(page, &field, &preferred.preference);
        }
        // A cluster belongs to the first subset that matches it. Neighbours that select nodes share their clusters.
        let before = if spec.shares_clusters(at) { &[] } else { &spec.subsets[..at] };
        let earlier = before.iter().find(|earlier| {
            earlier.required_cluster_selector.is_none()
                || earlier.required_cluster_selector == Some(Default::default())
                || earlier.required_cluster_selector == subset.required_cluster_selector
        });
        if let Some(earlier) = earlier {
            let problem =
                format!("gets no cluster: the earlier subset {:?} takes them all", earlier.name);
            let field = format!("{field}.requiredClusterSelector");
            page.error(field, problem, "narrow the earlier one or remove this one");
        }
        let none = match &subset.max_replicas {
            Some(IntOrString::Int(max)) => *max == 0,
            Some(IntOrString::String(text)) => check::percent(text) == Some(0),
            None => false,
        };
        if none {
            let problem = "is 0: the subset never gets a replica";
            page.warning(format!("{field}.maxReplicas"), problem, "raise it or remove the subset");
        }
    }
    let strategy = &spec.schedule_strategy;
    if strategy.type_ == ScheduleStrategyType::Fixed && strategy.adaptive.is_some() {
        let problem = "is ignored with type Fixed";
        page.warning("spec.scheduleStrategy.adaptive", problem, "remove it or use type: Adaptive");
    }
}

pub(super) fn reach(page: &mut Page, spread: &WorkloadSpread, rows: &[Row], world: &World) {
    let spec = &spread.spec;
    let mut left: Vec<&Row> = rows.iter().collect();
    for (at, subset) in spec.subsets.iter().enumerate() {
        let all = left.len();
        left.retain(|row| match &subset.required_cluster_selector {
            Some(selector) => affinity::labels(selector, row).is_err(),
            None => false,
        });
        if left.len() == all && !rows.is_empty() && !spec.shares_clusters(at) {
            let field = format!("spec.subsets[{at}].requiredClusterSelector");
            let problem = format!(
                "subset {:?} is empty: no cluster matches it that is not in an earlier subset",
                subset.name
            );
            page.warning(field, problem, "correct it, or label the intended clusters");
        }
    }
    let target = &spec.target_ref;
    let kind = KindRef::of(&target.api_version, &target.kind);
    let namespace = spread.metadata.namespace.as_deref();
    let workload = world.workloads.iter().find(|w| {
        w.key.group_kind() == kind && w.key.namespace() == namespace && w.key.name() == target.name
    });
    let Some(workload) = workload else {
        if !world.workloads.is_empty() {
            let problem = format!("there is no {kind} {:?} in its namespace", target.name);
            page.warning("spec.targetRef", problem, "correct it or add the workload");
        }
        return;
    };
    if let Some(first) = world.spreads_of(&workload.key).next()
        && first.metadata.name != spread.metadata.name
    {
        let other = first.metadata.name.as_deref().unwrap_or_default();
        let problem = format!("WorkloadSpread {other:?} already targets this workload");
        page.error("spec.targetRef", problem, "keep one WorkloadSpread for a workload");
    }
    let numbers: Option<i64> = spec
        .subsets
        .iter()
        .map(|subset| match &subset.max_replicas {
            Some(IntOrString::Int(max)) => Some(i64::from(*max)),
            Some(IntOrString::String(_)) | None => None,
        })
        .sum();
    if let (Some(most), Some(replicas)) = (numbers, workload.template.replicas)
        && most < replicas
    {
        let problem = format!(
            "maxReplicas add up to {most}, but the workload requests {replicas}: the rest stays pending"
        );
        page.warning(
            "spec.subsets",
            problem,
            "raise a maxReplicas or leave it out of the last subset",
        );
    }
}
