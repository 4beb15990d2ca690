//! The taints that policies give a Cluster. Pure.

use atoll_api::cluster_taint_policy::{ClusterTaintPolicySpec, MatchCondition, PolicyTaint};
use atoll_api::selector::Selector;
use atoll_api::{Cluster, ClusterTaintPolicy, marks, names};
use atoll_scheduler::LiveCluster;
use atoll_scheduler::state::{affinity, row::Row};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The taints of a Cluster after all policies, by name; `None` if they do not change. A policy with a mistake does
/// nothing. Taints that no policy names stay.
#[must_use]
pub(super) fn taints(
    cluster: &Cluster,
    policies: &[&ClusterTaintPolicy],
    now: Timestamp,
) -> Option<Vec<Taint>> {
    let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice());
    let conditions = conditions.unwrap_or_default();
    let row = Row::read(cluster, LiveCluster::default(), None);
    let mut taints = cluster.spec.taints.clone();
    for policy in policies {
        let spec = &policy.spec;
        let targets = &spec.target_clusters;
        let concerns = targets.as_ref().is_none_or(|of| affinity::matches(of, &row).is_ok());
        if !concerns || mistake(spec).is_some() {
            continue;
        }
        if all(&spec.remove_on_conditions, conditions) {
            taints.retain(|taint| !spec.taints.iter().any(|ours| is(taint, ours)));
        } else if all(&spec.add_on_conditions, conditions) {
            for ours in &spec.taints {
                match taints.iter_mut().find(|taint| is(taint, ours)) {
                    Some(taint) => taint.value.clone_from(&ours.value),
                    None => taints.push(Taint {
                        key: ours.key.clone(),
                        value: ours.value.clone(),
                        effect: ours.effect.as_str().to_owned(),
                        time_added: Some(Time(now)),
                    }),
                }
            }
        }
    }
    (taints != cluster.spec.taints).then_some(taints)
}

/// Whether two versions of a Cluster get the same taints: heartbeats change other fields.
#[must_use]
pub(super) fn same(before: &Cluster, after: &Cluster) -> bool {
    let conditions = |cluster: &Cluster| {
        let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice());
        let states = conditions.unwrap_or_default().iter();
        states.map(|one| (one.type_.clone(), one.status.clone())).collect::<Vec<_>>()
    };
    (&before.spec, &before.metadata.labels, &before.metadata.uid)
        == (&after.spec, &after.metadata.labels, &after.metadata.uid)
        && conditions(before) == conditions(after)
}

fn is(taint: &Taint, ours: &PolicyTaint) -> bool {
    taint.key == ours.key && taint.effect == ours.effect.as_str()
}

/// Whether all requirements hold. None = no.
fn all(requirements: &[MatchCondition], conditions: &[Condition]) -> bool {
    !requirements.is_empty() && requirements.iter().all(|one| one.matches(conditions))
}

/// Why a policy cannot be applied, with the field.
#[must_use]
pub(super) fn mistake(spec: &ClusterTaintPolicySpec) -> Option<String> {
    let taints = spec.taints.iter().enumerate().find_map(|(at, taint)| {
        let problem = match names::label_key_problem(&taint.key) {
            Some(problem) => format!("{:?} is not a key: {problem}", taint.key),
            None if marks::is_own(&taint.key) => {
                format!("{:?} is reserved: Atoll sets and removes such taints itself", taint.key)
            }
            None => return None,
        };
        Some(format!("spec.taints[{at}].key: {problem}"))
    });
    let selector = spec.target_clusters.as_ref().and_then(|of| of.label_selector.as_ref());
    let selector = selector.and_then(|selector| Selector::parse(selector).err());
    let selector = selector.map(|error| format!("spec.targetClusters.labelSelector: {error}"));
    let never = spec.add_on_conditions.is_empty() && spec.remove_on_conditions.is_empty();
    let never = never.then(|| {
        "spec.addOnConditions: empty, and so is spec.removeOnConditions: give at least one"
            .to_owned()
    });
    taints.or(selector).or(never)
}
