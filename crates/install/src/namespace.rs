//! Installs the Pods in another namespace than `atoll-system`, in which Atoll's own objects on the hub stay.

use atoll_api::marks::SYSTEM_NAMESPACE;
use serde_json::{Value, json};

/// Name of the Role and RoleBinding on the controller's own Pod.
const POD_ROLE: &str = "atoll-controller-pod";

/// The objects, with everything that belongs to the Pods in `namespace`.
pub(crate) fn moved(objects: Vec<Value>, namespace: &str) -> Vec<Value> {
    let mut all = Vec::with_capacity(objects.len());
    for mut object in objects {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        match kind.as_str() {
            "Namespace" => {
                let mut own = object.clone();
                own["metadata"]["name"] = namespace.into();
                all.push(own);
            }
            "Service" | "ServiceAccount" | "NetworkPolicy" => {
                object["metadata"]["namespace"] = namespace.into();
            }
            "APIService" => object["spec"]["service"]["namespace"] = namespace.into(),
            "Role" => {
                if let Some(role) = split_pods(&mut object, namespace) {
                    all.push(role);
                    all.push(pod_binding(namespace));
                }
            }
            _ => {}
        }
        // Not by index, which would add the field to objects without it.
        let subjects = object.get_mut("subjects").and_then(Value::as_array_mut);
        for subject in subjects.into_iter().flatten() {
            if subject["namespace"] == SYSTEM_NAMESPACE {
                subject["namespace"] = namespace.into();
            }
        }
        all.push(object);
    }
    all
}

/// Takes the rights on Pods out of a Role of `atoll-system`, and returns a Role with them for `namespace`.
fn split_pods(role: &mut Value, namespace: &str) -> Option<Value> {
    let rules = role["rules"].as_array_mut()?;
    let about_pods = |rule: &Value| rule["resources"] == json!(["pods"]);
    let (pods, others): (Vec<Value>, Vec<Value>) = rules.drain(..).partition(about_pods);
    *rules = others;
    (!pods.is_empty()).then(|| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": POD_ROLE, "namespace": namespace}, "rules": pods,
        })
    })
}

fn pod_binding(namespace: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": POD_ROLE, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": POD_ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": super::CONTROLLER, "namespace": namespace}],
    })
}
