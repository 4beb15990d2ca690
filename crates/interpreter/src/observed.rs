//! A summary of an object on a member, small enough to send on every change.

use serde_json::Value;

use crate::{
    Health, health,
    kind::Kind,
    kinds,
    read::{at, int},
};

/// The state of an object on a member. Numbers are `None` if the kind has none or nothing has been reported yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// `metadata.generation`; 0 for kinds that have none.
    pub generation: i64,
    /// `status.observedGeneration`. A kind that does not write it counts as observed.
    pub observed_generation: Option<i64>,
    /// Replicas that exist.
    pub replicas: Option<i64>,
    /// Replicas that are ready.
    pub ready: Option<i64>,
    /// Replicas of the current template.
    pub updated: Option<i64>,
    /// Replicas that have been ready for the required time.
    pub available: Option<i64>,
    /// Desired replicas that are not available.
    pub unavailable: Option<i64>,
    /// The health of the object.
    pub health: Health,
    /// The part of `.status` from which [`crate::aggregate`] builds the template's status; `None` if there is none.
    pub status: Option<Value>,
}

/// Reads the state of an object on a member.
#[must_use]
pub fn observed(obj: &Value) -> Observed {
    let status = at(obj, &["status"]);
    let count = |name: &str| status.map(|s| int(s, &[name]).unwrap_or(0));
    let mut out = Observed {
        generation: int(obj, &["metadata", "generation"]).unwrap_or(0),
        observed_generation: observed_generation(obj),
        replicas: None,
        ready: None,
        updated: None,
        available: None,
        unavailable: None,
        health: health(obj),
        status: kinds::reflect(obj),
    };
    match Kind::of(obj) {
        Kind::Deployment | Kind::ReplicaSet | Kind::StatefulSet | Kind::ReplicationController => {
            out.replicas = count("replicas");
            out.ready = count("readyReplicas");
            out.available = count("availableReplicas");
            out.updated = match Kind::of(obj) {
                Kind::Deployment | Kind::StatefulSet => count("updatedReplicas"),
                _ => None,
            };
            out.unavailable = match Kind::of(obj) {
                Kind::Deployment => count("unavailableReplicas"),
                _ => out.replicas.zip(out.available).map(|(all, up)| (all - up).max(0)),
            };
        }
        Kind::DaemonSet => {
            out.replicas = count("currentNumberScheduled");
            out.ready = count("numberReady");
            out.updated = count("updatedNumberScheduled");
            out.available = count("numberAvailable");
            out.unavailable = count("numberUnavailable");
        }
        Kind::Job => {
            out.replicas = count("active");
            out.ready = count("ready");
        }
        Kind::Pod => {
            out.replicas = status.map(|_| 1);
            out.ready = status.map(|s| i64::from(kinds::pod_is_ready(s)));
        }
        Kind::ServiceImport | Kind::Other => {
            // By the conventions of the scale subresource. Kinds without these counts have `None`.
            out.replicas = int(obj, &["status", "replicas"]);
            out.ready = int(obj, &["status", "readyReplicas"]);
            out.updated = int(obj, &["status", "updatedReplicas"]);
            out.available = int(obj, &["status", "availableReplicas"]);
            out.unavailable = int(obj, &["status", "unavailableReplicas"]);
        }
        _ => {}
    }
    out
}

/// The generation that the kind's controller has seen. Without this field in the status of a workload its controller has
/// not seen the object; other kinds may have no such field, and their health alone counts.
fn observed_generation(obj: &Value) -> Option<i64> {
    let written = int(obj, &["status", "observedGeneration"]);
    match Kind::of(obj) {
        Kind::Deployment
        | Kind::ReplicaSet
        | Kind::StatefulSet
        | Kind::DaemonSet
        | Kind::ReplicationController => written,
        _ => written.or_else(|| int(obj, &["metadata", "generation"])),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn numbers(o: &Observed) -> [Option<i64>; 5] {
        [o.replicas, o.ready, o.updated, o.available, o.unavailable]
    }

    #[test]
    fn a_status_without_a_number_means_zero_and_no_status_means_unknown() {
        let mut deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"generation": 4},
            "spec": {"replicas": 3},
        });
        let nothing = observed(&deployment);
        assert_eq!(numbers(&nothing), [None; 5]);
        assert_eq!((nothing.generation, nothing.observed_generation), (4, None));
        assert_eq!(nothing.status, None);
        deployment["status"] = json!({
            "observedGeneration": 4, "replicas": 3, "updatedReplicas": 1, "unavailableReplicas": 3,
        });
        let found = observed(&deployment);
        assert_eq!(numbers(&found), [Some(3), Some(0), Some(1), Some(0), Some(3)]);
        assert_eq!(found.observed_generation, Some(4));
    }

    #[test]
    fn a_kind_that_writes_no_observed_generation_counts_as_observed() {
        let of = |api_version: &str, kind: &str, status: Value| {
            observed(&json!({
                "apiVersion": api_version, "kind": kind, "metadata": {"generation": 3}, "status": status,
            }))
            .observed_generation
        };
        assert_eq!(of("networking.k8s.io/v1", "Ingress", json!({"loadBalancer": {}})), Some(3));
        assert_eq!(of("example.com/v1", "Widget", Value::Null), Some(3));
        assert_eq!(of("example.com/v1", "Widget", json!({"observedGeneration": 2})), Some(2));
        assert_eq!(of("apps/v1", "StatefulSet", Value::Null), None);
    }

    #[test]
    fn every_kind_counts_in_its_own_words() {
        let of = |api_version: &str, kind: &str, status: Value| {
            let object = json!({"apiVersion": api_version, "kind": kind, "status": status});
            numbers(&observed(&object))
        };
        let stateful = json!({"replicas": 3, "readyReplicas": 2, "availableReplicas": 1});
        assert_eq!(
            of("apps/v1", "StatefulSet", stateful),
            [Some(3), Some(2), Some(0), Some(1), Some(2)]
        );
        let daemon = json!({"currentNumberScheduled": 5, "numberReady": 4});
        assert_eq!(
            of("apps/v1", "DaemonSet", daemon),
            [Some(5), Some(4), Some(0), Some(0), Some(0)]
        );
        assert_eq!(
            of("batch/v1", "Job", json!({"active": 2, "ready": 1})),
            [Some(2), Some(1), None, None, None]
        );
        let pod = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        assert_eq!(of("v1", "Pod", pod), [Some(1), Some(1), None, None, None]);
        let set = json!({"replicas": 2, "readyReplicas": 1});
        assert_eq!(of("x.io/v1", "Set", set), [Some(2), Some(1), None, None, None]);
        assert_eq!(of("v1", "ConfigMap", Value::Null), [None; 5]);
    }
}
