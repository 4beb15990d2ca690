//! Deployments, ReplicaSets, StatefulSets, DaemonSets, ReplicationControllers.

use serde_json::{Map, Value};

use super::{Member, not_observed, reported, sums};
use crate::{
    Health,
    conditions::{self, Merge},
    kind::Kind,
    read::{int, pick, text},
};

/// The count fields in the status of a kind.
pub(crate) fn counts(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Deployment => &[
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
        ],
        Kind::StatefulSet => &[
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
        ],
        Kind::DaemonSet => &[
            "currentNumberScheduled",
            "desiredNumberScheduled",
            "numberAvailable",
            "numberMisscheduled",
            "numberReady",
            "numberUnavailable",
            "updatedNumberScheduled",
        ],
        _ => &["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    }
}

/// The conditions that are sent.
const CONDITIONS: [&str; 3] = ["Available", "Progressing", "ReplicaFailure"];

pub(super) fn health(kind: Kind, obj: &Value) -> Health {
    let status = &obj["status"];
    if let Some(waiting) = not_observed(obj) {
        return waiting;
    }
    if conditions::reason(status, "Progressing") == "ProgressDeadlineExceeded"
        && conditions::state(status, "Progressing") == "False"
    {
        let message = conditions::message(status, "Progressing");
        return Health::unhealthy("ProgressDeadlineExceeded", message);
    }
    if conditions::state(status, "ReplicaFailure") == "True" {
        return Health::unhealthy("ReplicaFailure", conditions::message(status, "ReplicaFailure"));
    }
    let count = |name: &str| int(status, &[name]).unwrap_or(0);
    // The API server writes the default of `replicas`; an object without the field asks for nothing that could be missing.
    let replicas = || int(obj, &["spec", "replicas"]).unwrap_or(0);
    let (desired, updated, available) = match kind {
        Kind::DaemonSet => (
            count("desiredNumberScheduled"),
            count("updatedNumberScheduled"),
            count("numberAvailable"),
        ),
        Kind::Deployment | Kind::StatefulSet => {
            (replicas(), count("updatedReplicas"), count("availableReplicas"))
        }
        _ => (replicas(), i64::MAX, count("availableReplicas")),
    };
    // Pods below the partition keep the old template intentionally.
    let partition = int(obj, &["spec", "updateStrategy", "rollingUpdate", "partition"]);
    let current = match manual_update(obj) {
        Some(all) => all,
        None => updated.saturating_add(partition.unwrap_or(0)),
    };
    if current < desired {
        return Health::progressing("Updating", format!("{current} of {desired} updated"));
    }
    // During a rollout with surge, updated pods may exceed the desired number; all of them must be available.
    let needed = if updated == i64::MAX { desired } else { desired.max(updated) };
    if available < needed {
        let message = format!("{available} of {needed} available");
        return Health::progressing("Unavailable", message);
    }
    Health::healthy("Available")
}

/// With `OnDelete` pods keep their template until a user deletes them, so they count as updated.
fn manual_update(obj: &Value) -> Option<i64> {
    (text(obj, &["spec", "updateStrategy", "type"]) == "OnDelete").then_some(i64::from(i32::MAX))
}

pub(super) fn reflect(kind: Kind, status: &Value) -> Value {
    let mut out = pick(status, counts(kind));
    out.extend(pick(status, &["observedGeneration"]));
    let conditions = conditions::pick(status, &CONDITIONS);
    if !conditions.is_empty() {
        out.insert("conditions".to_owned(), Value::Array(conditions));
    }
    Value::Object(out)
}

pub(super) fn aggregate(kind: Kind, members: &[Member<'_>], old: &Value) -> Map<String, Value> {
    let mut out = sums(members, counts(kind));
    let reports = reported(members);
    let merged = CONDITIONS.iter().filter_map(|name| {
        let how = if *name == "ReplicaFailure" { Merge::Any } else { Merge::All };
        // The condition exists only while there is a failure. Members without a condition do not count against it.
        let having: Vec<(&str, &Value)> = match how {
            Merge::Any => reports.clone(),
            Merge::All => reports
                .iter()
                .filter(|(_, s)| conditions::find(s, name).is_some())
                .copied()
                .collect(),
        };
        conditions::merge(name, how, &having, old)
    });
    let merged: Vec<Value> = merged.map(|c| still_updating(c, &reports)).collect();
    if !merged.is_empty() {
        out.insert("conditions".to_owned(), Value::Array(merged));
    }
    out
}

/// A rollout is done when it is done everywhere. While one member is still updating, its reason is reported.
fn still_updating(mut condition: Value, reports: &[(&str, &Value)]) -> Value {
    const DONE: &str = "NewReplicaSetAvailable";
    if text(&condition, &["type"]) == "Progressing" && text(&condition, &["status"]) == "True" {
        let at_work = reports.iter().find(|(_, s)| {
            conditions::find(s, "Progressing").is_some()
                && conditions::reason(s, "Progressing") != DONE
        });
        if let Some((name, status)) = at_work {
            condition["reason"] = conditions::reason(status, "Progressing").into();
            let message = conditions::message(status, "Progressing");
            condition["message"] = format!("{name}: {message}").into();
        }
    }
    condition
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        HealthState::{Healthy, Progressing, Unhealthy},
        kinds::testing::{aggregated, judged, object},
        observed,
    };

    fn deployment(status: Value) -> Value {
        object("apps/v1", "Deployment", json!({"replicas": 3}), status)
    }

    fn done() -> Value {
        json!({
            "observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3,
            "availableReplicas": 3,
        })
    }

    fn with(mut status: Value, changes: Value) -> Value {
        for (name, v) in changes.as_object().unwrap() {
            status[name] = v.clone();
        }
        status
    }

    #[test]
    fn a_deployment_is_healthy_when_all_is_observed_updated_and_available() {
        let progressing = |status: &str, reason: &str| json!({"conditions": [{"type": "Progressing", "status": status, "reason": reason}]});
        for (status, state, reason) in [
            (done(), Healthy, "Available"),
            (Value::Null, Progressing, "NotObserved"),
            (with(done(), json!({"observedGeneration": 1})), Progressing, "NotObserved"),
            (with(done(), json!({"observedGeneration": 3})), Progressing, "NotObserved"),
            (with(done(), json!({"updatedReplicas": 4})), Progressing, "Unavailable"),
            (with(done(), json!({"updatedReplicas": 2})), Progressing, "Updating"),
            (with(done(), json!({"availableReplicas": 2})), Progressing, "Unavailable"),
            (
                with(done(), progressing("False", "ProgressDeadlineExceeded")),
                Unhealthy,
                "ProgressDeadlineExceeded",
            ),
            (with(done(), progressing("True", "ReplicaSetUpdated")), Healthy, "Available"),
            (
                with(done(), json!({"conditions": [{"type": "ReplicaFailure", "status": "True"}]})),
                Unhealthy,
                "ReplicaFailure",
            ),
        ] {
            assert_eq!(judged(&deployment(status.clone())), (state, reason.to_owned()), "{status}");
        }
    }

    #[test]
    fn partitions_and_manual_updates_do_not_wait_for_new_templates() {
        let status = with(done(), json!({"updatedReplicas": 1}));
        let set = |strategy: Value| {
            let spec = json!({"replicas": 3, "updateStrategy": strategy});
            judged(&object("apps/v1", "StatefulSet", spec, status.clone())).0
        };
        assert_eq!(set(json!({})), Progressing);
        assert_eq!(set(json!({"rollingUpdate": {"partition": 2}})), Healthy);
        assert_eq!(set(json!({"type": "OnDelete"})), Healthy);
    }

    #[test]
    fn replica_sets_and_daemon_sets_have_their_own_numbers() {
        let replica_set = |available: i64| {
            let status = json!({"observedGeneration": 2, "availableReplicas": available});
            judged(&object("apps/v1", "ReplicaSet", json!({"replicas": 2}), status)).0
        };
        assert_eq!(replica_set(2), Healthy);
        assert_eq!(replica_set(1), Progressing);
        let daemon_set = |updated: i64, available: i64| {
            let status = json!({
                "observedGeneration": 2, "desiredNumberScheduled": 2,
                "updatedNumberScheduled": updated, "numberAvailable": available,
            });
            judged(&object("apps/v1", "DaemonSet", json!({}), status)).0
        };
        assert_eq!(daemon_set(2, 2), Healthy);
        assert_eq!(daemon_set(1, 2), Progressing);
        assert_eq!(daemon_set(2, 1), Progressing);
    }

    fn condition(kind: &str, status: &str, reason: &str, time: &str) -> Value {
        json!({
            "type": kind, "status": status, "reason": reason, "message": format!("{reason}."),
            "lastTransitionTime": time, "lastUpdateTime": time,
        })
    }

    #[test]
    fn the_status_of_a_deployment_is_the_sum_over_its_members() {
        let member = |n: i64, conditions: Value| {
            json!({
                "observedGeneration": 7, "replicas": n, "updatedReplicas": n, "readyReplicas": n,
                "availableReplicas": n, "unavailableReplicas": 1, "conditions": conditions,
            })
        };
        let (early, late) = ("2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z");
        let template = deployment(json!({"observedGeneration": 1, "conditions": [
            condition("Available", "False", "Old", early),
        ]}));
        let status = aggregated(
            &template,
            &[
                (
                    "east",
                    member(
                        2,
                        json!([
                            condition("Available", "True", "MinimumReplicasAvailable", early),
                            condition("Progressing", "True", "NewReplicaSetAvailable", early),
                        ]),
                    ),
                ),
                ("north", Value::Null),
                (
                    "west",
                    member(
                        3,
                        json!([
                            condition("Available", "True", "MinimumReplicasAvailable", late),
                            condition("Progressing", "True", "ReplicaSetUpdated", late),
                        ]),
                    ),
                ),
            ],
        );
        let mut progressing = condition("Progressing", "True", "ReplicaSetUpdated", late);
        progressing["message"] = json!("west: ReplicaSetUpdated.");
        let expected = json!({
            "replicas": 5, "updatedReplicas": 5, "readyReplicas": 5, "availableReplicas": 5,
            "unavailableReplicas": 2,
            "conditions": [
                condition("Available", "True", "MinimumReplicasAvailable", late),
                progressing,
            ],
        });
        assert_eq!(status, expected);
    }

    #[test]
    fn one_member_that_is_not_available_makes_the_template_not_available() {
        let member = |status: &str| json!({"replicas": 1, "conditions": [condition("Available", status, status, "")]});
        let status = aggregated(
            &deployment(json!({})),
            &[("east", member("True")), ("west", member("False"))],
        );
        assert_eq!(status["conditions"][0]["status"], "False");
        assert_eq!(status["conditions"][0]["message"], "Available is False in west");
    }

    #[test]
    fn what_is_reflected_is_what_is_aggregated() {
        let seen = with(
            done(),
            json!({
                "conditions": [
                    condition("Available", "True", "A", "t"), condition("Custom", "True", "C", "t"),
                ],
                "collisionCount": 3,
            }),
        );
        let reflected = observed(&deployment(seen)).status.unwrap();
        let expected =
            with(done(), json!({"conditions": [condition("Available", "True", "A", "t")]}));
        assert_eq!(reflected, expected);
        let daemon_set = object("apps/v1", "DaemonSet", json!({}), json!({}));
        let status = aggregated(
            &daemon_set,
            &[
                ("a", json!({"numberReady": 1, "desiredNumberScheduled": 2})),
                ("b", json!({"numberReady": 2, "desiredNumberScheduled": 2})),
            ],
        );
        assert_eq!(status["numberReady"], 3);
        assert_eq!(status["desiredNumberScheduled"], 4);
        assert_eq!(status["numberUnavailable"], 0);
    }
}
