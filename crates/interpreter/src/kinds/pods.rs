//! Pods that are placed on their own.

use serde_json::{Map, Value, json};

use super::{Member, reported, worst_phase};
use crate::{
    Health, conditions,
    read::{list, pick, text},
};

/// Fields of a container's status that are sent.
const CONTAINER_FIELDS: [&str; 4] = ["name", "ready", "restartCount", "state"];

/// Whether a pod's status is Running and ready.
pub(crate) fn is_ready(status: &Value) -> bool {
    text(status, &["phase"]) == "Running" && conditions::state(status, "Ready") == "True"
}

pub(super) fn health(obj: &Value) -> Health {
    let status = &obj["status"];
    let message = text(status, &["message"]);
    match text(status, &["phase"]) {
        "Succeeded" => Health::healthy("Succeeded"),
        "Running" if is_ready(status) => Health::healthy("Ready"),
        "Running" => Health::progressing("NotReady", conditions::message(status, "Ready")),
        "Failed" => {
            let reason = text(status, &["reason"]);
            Health::unhealthy(if reason.is_empty() { "Failed" } else { reason }, message)
        }
        "Unknown" => Health::unknown("NodeLost", message),
        _ => {
            let scheduled = conditions::state(status, "PodScheduled");
            let reason = if scheduled == "False" { "Unschedulable" } else { "Pending" };
            Health::progressing(reason, conditions::message(status, "PodScheduled"))
        }
    }
}

pub(super) fn reflect(status: &Value) -> Value {
    let mut out = pick(status, &["phase", "reason", "message", "startTime"]);
    let conditions = conditions::all(status);
    if !conditions.is_empty() {
        out.insert("conditions".to_owned(), Value::Array(conditions));
    }
    for field in ["containerStatuses", "initContainerStatuses"] {
        let containers: Vec<Value> = list(status, &[field])
            .iter()
            .map(|c| Value::Object(pick(c, &CONTAINER_FIELDS)))
            .collect();
        if !containers.is_empty() {
            out.insert(field.to_owned(), Value::Array(containers));
        }
    }
    Value::Object(out)
}

/// The worst phase of all members, and all their containers.
pub(super) fn aggregate(members: &[Member<'_>]) -> Map<String, Value> {
    let order = ["Failed", "Pending", "Running", "Succeeded"];
    let mut out = Map::new();
    if let Some(phase) = worst_phase(members, &order, "Pending") {
        out.insert("phase".to_owned(), json!(phase));
    }
    for field in ["containerStatuses", "initContainerStatuses"] {
        let containers: Vec<Value> = reported(members)
            .iter()
            .flat_map(|(_, s)| list(s, &[field]))
            .map(|c| Value::Object(pick(c, &["ready", "state"])))
            .collect();
        if !containers.is_empty() {
            out.insert(field.to_owned(), Value::Array(containers));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        HealthState::{Healthy, Progressing, Unhealthy, Unknown},
        kinds::testing::{aggregated, judged, object},
        observed,
    };

    fn pod(status: Value) -> Value {
        object("v1", "Pod", json!({}), status)
    }

    #[test]
    fn a_pod_is_healthy_when_it_has_succeeded_or_is_ready() {
        let condition = |kind: &str, status: &str| json!([{"type": kind, "status": status}]);
        let ready = condition("Ready", "True");
        let unscheduled = condition("PodScheduled", "False");
        for (status, state, reason) in [
            (json!({"phase": "Succeeded"}), Healthy, "Succeeded"),
            (json!({"phase": "Running", "conditions": ready}), Healthy, "Ready"),
            (json!({"phase": "Running"}), Progressing, "NotReady"),
            (json!({"phase": "Pending", "conditions": unscheduled}), Progressing, "Unschedulable"),
            (json!({"phase": "Pending"}), Progressing, "Pending"),
            (json!({}), Progressing, "Pending"),
            (json!({"phase": "Failed", "reason": "Evicted"}), Unhealthy, "Evicted"),
            (json!({"phase": "Unknown"}), Unknown, "NodeLost"),
        ] {
            assert_eq!(judged(&pod(status.clone())), (state, reason.to_owned()), "{status}");
        }
    }

    #[test]
    fn the_worst_phase_counts_and_a_silent_member_is_pending() {
        let phase =
            |members: &[(&str, Value)]| aggregated(&pod(json!({})), members)["phase"].clone();
        let of = |phase: &str| json!({ "phase": phase });
        assert_eq!(phase(&[("a", of("Running")), ("b", of("Failed"))]), "Failed");
        assert_eq!(phase(&[("a", of("Running")), ("b", Value::Null)]), "Pending");
        assert_eq!(phase(&[("a", of("Running")), ("b", of("Succeeded"))]), "Running");
        assert_eq!(phase(&[("a", of("Succeeded"))]), "Succeeded");
        assert_eq!(phase(&[]), Value::Null);
    }

    #[test]
    fn containers_are_reflected_in_short_and_aggregated_without_names() {
        let container = json!({
            "name": "c", "ready": true, "restartCount": 1, "state": {"running": {}},
            "imageID": "long",
        });
        let status = json!({"phase": "Running", "hostIP": "x", "containerStatuses": [container]});
        let reflected = observed(&pod(status)).status.unwrap();
        let short =
            json!({"name": "c", "ready": true, "restartCount": 1, "state": {"running": {}}});
        assert_eq!(reflected, json!({"phase": "Running", "containerStatuses": [short]}));
        let status = aggregated(&pod(json!({})), &[("a", reflected.clone()), ("b", reflected)]);
        let shorter = json!({"ready": true, "state": {"running": {}}});
        assert_eq!(status["containerStatuses"], json!([shorter, shorter]));
    }
}
