//! The status of a WorkloadSpread: whether it is valid and in force, and the progress of its subsets.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::WorkloadSpread;
use atoll_api::conditions::{self, ACCEPTED, Status};
use atoll_api::workload_spread::{SubsetStatus, WorkloadSpreadStatus};
use atoll_decision::GroupReport;
use atoll_scheduler::cycle::check;
use atoll_scheduler::plugins::workload_spread::MARKED;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The desired status of a WorkloadSpread, given the one in force for its target and its subsets in the last decision
/// under it.
#[must_use]
pub(crate) fn status(
    spread: &WorkloadSpread,
    in_force: Option<&WorkloadSpread>,
    subsets: Option<&[SubsetStatus]>,
    now: Timestamp,
) -> WorkloadSpreadStatus {
    let before = spread.status.clone().unwrap_or_default();
    let generation = spread.metadata.generation;
    let winner = in_force.filter(|winner| winner.metadata.name != spread.metadata.name);
    let (holds, reason, message) = match (mistake(spread), winner) {
        (Some(mistake), _) => (Status::False, "Invalid", mistake),
        (None, Some(winner)) => (
            Status::False,
            "Conflicted",
            format!(
                "spec.targetRef: WorkloadSpread {} is older and has the same target: delete one of the two",
                winner.metadata.name.as_deref().unwrap_or_default()
            ),
        ),
        (None, None) => (Status::True, "Accepted", shared(spread).unwrap_or_default()),
    };
    let subsets = match (winner, subsets) {
        // It is not in force.
        (Some(_), _) => Vec::new(),
        (None, Some(subsets)) => subsets.to_vec(),
        // No decision under it since the start of this process: keep the existing subsets.
        (None, None) => before.subsets,
    };
    let mut conditions = before.conditions;
    conditions::set(&mut conditions, ACCEPTED, holds, reason, &message, generation, now);
    WorkloadSpreadStatus { observed_generation: generation, conditions, subsets }
}

/// Which subsets have one limit because they select nodes of the same clusters.
fn shared(spread: &WorkloadSpread) -> Option<String> {
    let spec = &spread.spec;
    let groups: BTreeSet<Vec<&str>> = (0..spec.subsets.len())
        .map(|at| spec.sharing(at).iter().map(|subset| subset.name.as_str()).collect())
        .filter(|group: &Vec<&str>| group.len() > 1)
        .collect();
    let groups: Vec<String> = groups.iter().map(|group| group.join(", ")).collect();
    (!groups.is_empty()).then(|| {
        format!(
            "subsets {} share their clusters: their limits are added, and pods prefer the nodes of earlier subsets",
            groups.join("; ")
        )
    })
}

/// The first mistake, with its field.
fn mistake(spread: &WorkloadSpread) -> Option<String> {
    if let Err(mistake) = check::workload_spread(&spread.spec, &spread.spec.target_ref.kind) {
        return Some(mistake.to_string());
    }
    spread.spec.subsets.iter().enumerate().find_map(|(at, subset)| {
        let problem = atoll_render::check_patch(subset.patch.as_ref()?).err()?;
        Some(format!("spec.subsets[{at}].patch: {problem}"))
    })
}

/// The subsets after a decision. A mark of a stuck subset stays for its full time even if the decision that it caused
/// moved the stuck replicas: without it they would return at once.
#[must_use]
pub(crate) fn subsets(
    groups: &[GroupReport],
    held: &[SubsetStatus],
    now: Timestamp,
) -> Vec<SubsetStatus> {
    let fresh = |time: &&Time| now.duration_since(time.0) < MARKED;
    let marks: BTreeMap<&str, &Time> = held
        .iter()
        .filter_map(|subset| {
            let since = subset.unschedulable_since.as_ref().filter(fresh)?;
            Some((subset.name.as_str(), since))
        })
        .collect();
    let subset = |group: &GroupReport| SubsetStatus {
        name: group.name.clone(),
        replicas: group.own,
        pending: group.pending,
        unschedulable_since: marks
            .get(group.name.as_str())
            .map(|since| (*since).clone())
            .or(group.unschedulable_since.map(Time)),
    };
    groups.iter().map(subset).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn spread(name: &str, created: &str, subsets: serde_json::Value) -> WorkloadSpread {
        serde_json::from_value(json!({
            "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "WorkloadSpread",
            "metadata": {"name": name, "namespace": "shop", "generation": 1, "creationTimestamp": created},
            "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "subsets": subsets},
        }))
        .unwrap()
    }

    fn accepted(status: &WorkloadSpreadStatus) -> (String, String, String) {
        let condition = &status.conditions[0];
        (condition.status.clone(), condition.reason.clone(), condition.message.clone())
    }

    #[test]
    fn mistakes_name_their_field_and_the_younger_of_two_is_conflicted() {
        let now = at("2026-08-21T12:00:00Z");
        let good = json!([{"name": "a", "maxReplicas": 2}, {"name": "b"}]);
        let older = spread("older", "2026-01-01T00:00:00Z", good.clone());
        let younger = spread("younger", "2026-01-02T00:00:00Z", good);
        let (holds, ..) = accepted(&status(&older, Some(&older), None, now));
        assert_eq!(holds, "True");
        let groups =
            [SubsetStatus { name: "a".into(), replicas: 2, pending: 0, unschedulable_since: None }];
        let conflicted = status(&younger, Some(&older), Some(&groups), now);
        let (holds, reason, message) = accepted(&conflicted);
        assert_eq!((holds.as_str(), reason.as_str()), ("False", "Conflicted"));
        assert!(message.contains("older"), "{message}");
        assert!(conflicted.subsets.is_empty());
        for (subsets, field) in [
            (
                json!([{"name": "a", "maxReplicas": "30%"}, {"name": "b", "maxReplicas": 3}]),
                "subsets",
            ),
            (
                json!([{"name": "a", "patch": {"metadata": {"name": "x"}}}]),
                "subsets[0].patch: metadata.name",
            ),
        ] {
            let wrong = spread("wrong", "2026-01-01T00:00:00Z", subsets);
            let (holds, reason, message) = accepted(&status(&wrong, Some(&wrong), None, now));
            assert_eq!((holds.as_str(), reason.as_str()), ("False", "Invalid"));
            assert!(message.contains(field), "{message}");
        }
    }

    #[test]
    fn a_mark_holds_for_its_time_and_is_not_renewed_by_what_repeats_it() {
        let marked = at("2026-08-21T12:00:00Z");
        let group = |since| GroupReport {
            name: "a".into(),
            own: 1,
            unschedulable_since: since,
            ..GroupReport::default()
        };
        let first = subsets(&[group(Some(marked))], &[], marked);
        assert_eq!(first[0].unschedulable_since, Some(Time(marked)));
        let soon = at("2026-08-21T12:04:59Z");
        for repeated in [None, Some(soon)] {
            assert_eq!(subsets(&[group(repeated)], &first, soon), first);
        }
        let late = at("2026-08-21T12:05:00Z");
        assert_eq!(subsets(&[group(None)], &first, late)[0].unschedulable_since, None);
    }
}
