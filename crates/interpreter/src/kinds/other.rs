//! Unknown kinds, which are judged by conventions only.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Member, not_observed, reported};
use crate::{
    Health,
    conditions::{self, Merge},
    read::{int, list, text},
};

/// Conditions that report a failure when true.
const BAD: [&str; 5] = ["Stalled", "Failed", "Degraded", "ReplicaFailure", "Conflicted"];
/// Conditions that report work in progress when true.
const AT_WORK: [&str; 2] = ["Reconciling", "Progressing"];
/// Conditions that report health when true, the most specific first.
const GOOD: [&str; 6] = ["Ready", "Available", "Healthy", "Succeeded", "Complete", "Established"];
/// Count fields of kinds with a scale subresource.
const COUNTS: [&str; 5] =
    ["replicas", "readyReplicas", "updatedReplicas", "availableReplicas", "unavailableReplicas"];

pub(super) fn namespace_health(obj: &Value) -> Health {
    match text(obj, &["status", "phase"]) {
        "Terminating" => Health::progressing("Terminating", "the namespace is being deleted"),
        _ => Health::healthy("Active"),
    }
}

pub(super) fn health(obj: &Value) -> Health {
    let status = &obj["status"];
    // Custom controllers may set an observed generation on objects without one.
    let observed = int(status, &["observedGeneration"]);
    if observed.is_some_and(|observed| int(obj, &["metadata", "generation"]) > Some(observed))
        && let Some(waiting) = not_observed(obj)
    {
        return waiting;
    }
    let reason_of = |kind: &'_ str| -> String {
        let reason = conditions::reason(status, kind);
        if reason.is_empty() { kind.to_owned() } else { reason.to_owned() }
    };
    let said = |kind: &str| conditions::message(status, kind).to_owned();
    if let Some(kind) = BAD.iter().find(|kind| conditions::state(status, kind) == "True") {
        return Health::unhealthy(&reason_of(kind), said(kind));
    }
    let good = GOOD.iter().find(|kind| conditions::find(status, kind).is_some());
    // `Progressing` stays true after a rollout is done, so it counts only without a healthy condition.
    let at_work = AT_WORK.iter().find(|kind| conditions::state(status, kind) == "True");
    match (good, at_work) {
        (Some(kind), at_work) => match conditions::state(status, kind) {
            "True" => Health::healthy(kind),
            "False" if at_work.is_some() => Health::progressing(&reason_of(kind), said(kind)),
            "False" => Health::unhealthy(&reason_of(kind), said(kind)),
            _ => Health::unknown(&reason_of(kind), said(kind)),
        },
        (None, Some(kind)) => Health::progressing(&reason_of(kind), said(kind)),
        (None, None) => Health::healthy("Exists"),
    }
}

/// The unchanged status of a single member; for several members, the sums of the usual counts and the merged
/// conditions.
pub(crate) fn aggregate(members: &[Member<'_>], old: &Value) -> Map<String, Value> {
    let reports = reported(members);
    if let ([(_, only)], [_]) = (&reports[..], members) {
        let mut status = only.as_object().cloned().unwrap_or_default();
        status.remove("observedGeneration");
        return status;
    }
    let mut out = Map::new();
    for field in COUNTS {
        let counts: Vec<i64> = reports.iter().filter_map(|(_, s)| int(s, &[field])).collect();
        if !counts.is_empty() {
            out.insert(field.to_owned(), json!(counts.into_iter().fold(0, i64::saturating_add)));
        }
    }
    let kinds: BTreeSet<&str> = reports
        .iter()
        .flat_map(|(_, s)| list(s, &["conditions"]))
        .map(|c| text(c, &["type"]))
        .filter(|kind| !kind.is_empty())
        .collect();
    let merge = |kind: &&str| {
        let how =
            if BAD.contains(kind) || AT_WORK.contains(kind) { Merge::Any } else { Merge::All };
        conditions::merge(kind, how, &reports, old)
    };
    let merged: Vec<Value> = kinds.iter().filter_map(merge).collect();
    if !merged.is_empty() {
        out.insert("conditions".to_owned(), Value::Array(merged));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        HealthState::{Healthy, Progressing, Unhealthy, Unknown},
        aggregate,
        kinds::testing::{aggregated, judged, object},
    };

    fn custom(status: Value) -> Value {
        object("x.io/v1", "Thing", json!({}), status)
    }

    fn conditions(list: &[(&str, &str)]) -> Value {
        let of = |(kind, status): &(&str, &str)| json!({"type": kind, "status": status});
        json!({"conditions": list.iter().map(of).collect::<Vec<_>>()})
    }

    #[test]
    fn an_unknown_kind_is_judged_by_the_conventions() {
        for (status, state, reason) in [
            (Value::Null, Healthy, "Exists"),
            (json!({"phase": "Whatever"}), Healthy, "Exists"),
            (json!({"observedGeneration": 1}), Progressing, "NotObserved"),
            (conditions(&[("Ready", "True")]), Healthy, "Ready"),
            (conditions(&[("Ready", "False")]), Unhealthy, "Ready"),
            (conditions(&[("Ready", "Unknown")]), Unknown, "Ready"),
            (conditions(&[("Ready", "False"), ("Reconciling", "True")]), Progressing, "Ready"),
            (conditions(&[("Available", "True"), ("Progressing", "True")]), Healthy, "Available"),
            (conditions(&[("Progressing", "True")]), Progressing, "Progressing"),
            (conditions(&[("Ready", "True"), ("Stalled", "True")]), Unhealthy, "Stalled"),
        ] {
            assert_eq!(judged(&custom(status.clone())), (state, reason.to_owned()), "{status}");
        }
        let namespace =
            |phase: &str| object("v1", "Namespace", json!({}), json!({ "phase": phase }));
        assert_eq!(judged(&namespace("Active")).0, Healthy);
        assert_eq!(judged(&namespace("Terminating")).0, Progressing);
    }

    #[test]
    fn the_status_of_one_member_is_taken_whole() {
        let status = json!({"observedGeneration": 9, "phase": "Up", "endpoint": "e"});
        let expected = json!({"phase": "Up", "endpoint": "e"});
        assert_eq!(aggregated(&custom(json!({})), &[("a", status)]), expected);
    }

    #[test]
    fn what_may_have_no_status_gets_none() {
        let nothing: [(&str, &Value); 1] = [("a", &Value::Null)];
        assert_eq!(aggregate(&custom(Value::Null), &nothing), None);
        let secret = json!({"apiVersion": "v1", "kind": "Secret"});
        assert_eq!(aggregate(&secret, &[("a", &json!({"x": 1}))]), None);
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
        let none: [(&str, &Value); 0] = [];
        assert_eq!(aggregate(&deployment, &none).unwrap()["readyReplicas"], 0);
    }

    #[test]
    fn several_members_give_sums_and_merged_conditions() {
        let member = |n: i64, ready: &str, stalled: &str| {
            let mut status = conditions(&[("Ready", ready), ("Stalled", stalled)]);
            status["replicas"] = json!(n);
            status["phase"] = json!("Up");
            status
        };
        let members = [("a", member(1, "True", "False")), ("b", member(2, "False", "True"))];
        let status = aggregated(&custom(json!({})), &members);
        let expected = json!({
            "replicas": 3,
            "conditions": [
                {"type": "Ready", "status": "False", "message": "Ready is False in b"},
                {"type": "Stalled", "status": "True", "message": "Stalled is True in b"},
            ],
        });
        assert_eq!(status, expected);
    }
}
