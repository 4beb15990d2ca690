//! The template and the policy of an object that a member has.

use atoll_api::marks;
use atoll_render::{SERVER_ANNOTATIONS, SERVER_METADATA};
use serde_json::{Value, json};

use crate::read::workload::Workload;

/// Fields of a Service that its cluster chooses.
const ADDRESSES: [&str; 3] = ["clusterIP", "clusterIPs", "healthCheckNodePort"];
/// Limit of a policy's name: it becomes the value of a label.
const NAME: usize = 63;

/// The object without what belongs to the member. Its spec stays as it is: with another, pods would start again.
pub(super) fn of(object: &Value) -> Value {
    let mut template = object.clone();
    if let Some(fields) = template.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = template["metadata"].as_object_mut() {
        for field in SERVER_METADATA {
            metadata.remove(field);
        }
        for field in ["labels", "annotations"] {
            match metadata.get_mut(field).and_then(Value::as_object_mut) {
                Some(entries) => entries.retain(|key, _| {
                    !SERVER_ANNOTATIONS.contains(&key.as_str()) && !marks::is_own(key)
                }),
                // Absent, or odd.
                None => {
                    metadata.remove(field);
                }
            }
        }
    }
    if template["kind"] == "Service"
        && template["spec"]["clusterIP"] != "None"
        && let Some(spec) = template["spec"].as_object_mut()
    {
        for field in ADDRESSES {
            spec.remove(field);
        }
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(port) = port.as_object_mut() {
                port.remove("nodePort");
            }
        }
    }
    template
}

/// A policy for this object alone, which takes over the one that the member has.
pub(super) fn policy(workload: &Workload, member: &str) -> Value {
    let kind = &workload.kind;
    let mut name = format!("{}-{}", workload.name, kind.kind.to_lowercase());
    if name.len() > NAME {
        let digest = format!("-{:08x}", checksum(&name));
        name.truncate(name.floor_char_boundary(NAME - digest.len()));
        name.push_str(&digest);
    }
    json!({
        "apiVersion": "policy.atoll.dev/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": name, "namespace": workload.namespace},
        "spec": {
            "resourceSelectors": [
                {"apiVersion": kind.api_version(), "kind": kind.kind, "name": workload.name},
            ],
            "conflictResolution": "Overwrite",
            "placement": {"clusterAffinity": {"clusterNames": [member]}},
        },
    })
}

/// FNV-1a of a name, so that long names that begin alike differ.
fn checksum(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::workload::Kind;

    #[test]
    fn a_template_keeps_the_users_part_and_nothing_of_the_member() {
        let spec = json!({"replicas": 3, "template": {"metadata": {"creationTimestamp": null, "labels": {"app": "web"},
            "annotations": {"kubectl.kubernetes.io/restartedAt": "x"}}, "spec": {"restartPolicy": "Always"}}});
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 4,
                "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{}], "finalizers": ["x/y"],
                "labels": {"app": "web", "policy.atoll.dev/old": "x"},
                "annotations": {"team": "a", "deployment.kubernetes.io/revision": "9",
                    "kubectl.kubernetes.io/last-applied-configuration": "{}"},
            },
            "spec": spec, "status": {"replicas": 3},
        });
        let expected = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}, "annotations": {"team": "a"}},
            "spec": spec,
        });
        assert_eq!(of(&object), expected);
        let service = |address: &str| {
            of(&json!({"kind": "Service", "metadata": {}, "spec": {"clusterIP": address, "clusterIPs": [address],
                "ports": [{"port": 80, "nodePort": 30_001}]}}))["spec"]
                .clone()
        };
        assert_eq!(service("10.0.0.1"), json!({"ports": [{"port": 80}]}));
        assert_eq!(service("None")["clusterIP"], "None");
    }

    #[test]
    fn names_of_policies_are_short_and_differ() {
        let policy = |name: &str| {
            let kind = Kind::named("apps", "v1", "Deployment");
            let namespace = Some("shop".to_owned());
            let name = name.to_owned();
            policy(&Workload { kind, decisions_served: false, namespace, name }, "m1")
        };
        let web = policy("web");
        assert_eq!(web["metadata"]["name"], "web-deployment");
        assert_eq!(web["spec"]["resourceSelectors"][0]["apiVersion"], "apps/v1");
        let long =
            |end: &str| policy(&format!("{}{end}", "a".repeat(80)))["metadata"]["name"].clone();
        assert!(long("x").as_str().unwrap().len() <= NAME && long("x") != long("y"));
    }
}
