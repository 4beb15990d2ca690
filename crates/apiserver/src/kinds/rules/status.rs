//! The status of new objects.

use serde_json::{Value, json};

use super::pod;

/// The status of a new object of a built-in kind.
pub(crate) fn initial_status(group: &str, kind: &str, object: &Value) -> Value {
    match (group, kind) {
        ("", "Namespace") => json!({"phase": "Active"}),
        ("", "Pod") => json!({"phase": "Pending", "qosClass": pod::qos_class(object)}),
        ("", "Service") => json!({"loadBalancer": {}}),
        ("", "PersistentVolume" | "PersistentVolumeClaim") => json!({"phase": "Pending"}),
        ("", "ReplicationController") | ("apps", "ReplicaSet") => json!({"replicas": 0}),
        ("apps", "StatefulSet") => json!({"replicas": 0, "availableReplicas": 0}),
        ("apps", "DaemonSet") => json!({
            "currentNumberScheduled": 0,
            "numberMisscheduled": 0,
            "desiredNumberScheduled": 0,
            "numberReady": 0,
        }),
        ("autoscaling", _) => json!({"currentMetrics": null, "desiredReplicas": 0}),
        ("policy", _) => json!({
            "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
        }),
        ("networking.k8s.io", "Ingress") => json!({"loadBalancer": {}}),
        _ => json!({}),
    }
}
