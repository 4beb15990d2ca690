//! Fields that belong to the cluster that runs an object: what one cluster filled in means nothing on another.

use serde_json::{Map, Value};

use crate::{
    kind::Kind,
    read::{flag, text},
};

/// The fields of a kind that a member's own controllers and API server write and that are therefore never applied,
/// as JSON pointers in which `*` stands for every item of a list. [`strip_retained`] knows the exceptions.
#[must_use]
pub fn retained_fields(group: &str, kind: &str) -> &'static [&'static str] {
    match Kind::named(group, kind) {
        Kind::Service => &[
            "/spec/clusterIP",
            "/spec/clusterIPs",
            "/spec/healthCheckNodePort",
            "/spec/ports/*/nodePort",
        ],
        Kind::ServiceAccount => &["/secrets"],
        Kind::PersistentVolumeClaim => &[
            "/spec/volumeName",
            "/metadata/annotations/pv.kubernetes.io~1bind-completed",
            "/metadata/annotations/pv.kubernetes.io~1bound-by-controller",
            "/metadata/annotations/volume.kubernetes.io~1selected-node",
            "/metadata/annotations/volume.kubernetes.io~1storage-provisioner",
        ],
        Kind::PersistentVolume => &["/spec/claimRef"],
        Kind::Pod => &["/spec/nodeName", "/spec/priority"],
        Kind::Job => &[
            "/spec/selector",
            "/spec/template/metadata/labels/controller-uid",
            "/spec/template/metadata/labels/job-name",
            "/spec/template/metadata/labels/batch.kubernetes.io~1controller-uid",
            "/spec/template/metadata/labels/batch.kubernetes.io~1job-name",
        ],
        Kind::Secret => &["/data", "/metadata/annotations/kubernetes.io~1service-account.uid"],
        Kind::Namespace => &["/spec/finalizers"],
        Kind::Deployment | Kind::ReplicaSet => {
            &["/metadata/annotations/deployment.kubernetes.io~1revision"]
        }
        _ => &[],
    }
}

/// Volumes of this prefix are put into every pod by its API server, with a token of that cluster.
const TOKEN_VOLUME: &str = "kube-api-access-";

/// Removes [`retained_fields`] from an object. What looks like such a field but is the user's word stays: a headless
/// Service's `clusterIP: None`, a Job's selector with `manualSelector`, the data of every Secret but a service account
/// token. From Pods the token volume goes as well.
pub fn strip_retained(obj: &mut Map<String, Value>) {
    let word = |name: &str| obj.get(name).and_then(Value::as_str).unwrap_or_default();
    let group = word("apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
    let kind = Kind::named(group, word("kind"));
    let fields = retained_fields(group, word("kind"));
    let spec = obj.get("spec").unwrap_or(&Value::Null);
    let users_word = match kind {
        Kind::Service => text(spec, &["clusterIP"]) == "None",
        Kind::Job => flag(spec, &["manualSelector"]),
        Kind::Secret => word("type") != "kubernetes.io/service-account-token",
        _ => false,
    };
    for pointer in fields {
        let kept = match kind {
            Kind::Service => users_word && pointer.starts_with("/spec/clusterIP"),
            Kind::Job | Kind::Secret => users_word,
            _ => false,
        };
        if !kept {
            let steps: Vec<String> =
                pointer[1..].split('/').map(|s| s.replace("~1", "/").replace("~0", "~")).collect();
            remove_field(obj, &steps);
        }
    }
    if kind == Kind::Pod
        && let Some(spec) = obj.get_mut("spec").and_then(Value::as_object_mut)
    {
        strip_token_volume(spec);
    }
}

fn remove_field(fields: &mut Map<String, Value>, steps: &[String]) {
    let [first, rest @ ..] = steps else { return };
    if rest.is_empty() {
        fields.remove(first);
    } else if let Some(inner) = fields.get_mut(first) {
        remove(inner, rest);
    }
}

fn remove(value: &mut Value, steps: &[String]) {
    match (value, steps) {
        (Value::Object(fields), steps) => remove_field(fields, steps),
        (Value::Array(items), [first, rest @ ..]) if first == "*" => {
            items.iter_mut().for_each(|item| remove(item, rest));
        }
        _ => {}
    }
}

fn strip_token_volume(spec: &mut Map<String, Value>) {
    let keep = |item: &Value| !text(item, &["name"]).starts_with(TOKEN_VOLUME);
    let retain = |fields: &mut Map<String, Value>, name: &str| {
        if let Some(Value::Array(items)) = fields.get_mut(name) {
            items.retain(keep);
            if items.is_empty() {
                fields.remove(name);
            }
        }
    };
    retain(spec, "volumes");
    for kind in ["containers", "initContainers"] {
        let containers = spec.get_mut(kind).and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            retain(container, "volumeMounts");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stripped(mut object: Value) -> Value {
        strip_retained(object.as_object_mut().unwrap());
        object
    }

    #[test]
    fn addresses_and_node_ports_of_a_service_stay_behind_but_headless_is_the_users_word() {
        let service = |ip: &str| {
            json!({"apiVersion": "v1", "kind": "Service", "spec": {
                "clusterIP": ip, "clusterIPs": [ip], "healthCheckNodePort": 30001,
                "ports": [{"port": 80, "nodePort": 30080}, {"port": 81}],
            }})
        };
        let spec = stripped(service("10.0.0.1"))["spec"].clone();
        assert_eq!(spec, json!({"ports": [{"port": 80}, {"port": 81}]}));
        let spec = stripped(service("None"))["spec"].clone();
        let expected = json!({
            "clusterIP": "None", "clusterIPs": ["None"], "ports": [{"port": 80}, {"port": 81}],
        });
        assert_eq!(spec, expected);
    }

    #[test]
    fn generated_job_selectors_stay_behind_and_manual_ones_travel() {
        let job = |manual: bool| {
            json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {
                "manualSelector": manual,
                "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "1"}},
                "template": {"metadata": {"labels": {
                    "app": "a", "batch.kubernetes.io/controller-uid": "1", "job-name": "j",
                }}},
            }})
        };
        let spec = stripped(job(false))["spec"].clone();
        let labels = json!({"metadata": {"labels": {"app": "a"}}});
        assert_eq!(spec, json!({"manualSelector": false, "template": labels}));
        assert_eq!(stripped(job(true)), job(true));
    }

    #[test]
    fn tokens_stay_behind_and_other_secrets_travel() {
        let secret = |kind: &str| json!({"apiVersion": "v1", "kind": "Secret", "type": kind, "data": {"a": "b"}});
        assert_eq!(stripped(secret("Opaque")), secret("Opaque"));
        let token = stripped(secret("kubernetes.io/service-account-token"));
        assert!(token.get("data").is_none());
    }

    #[test]
    fn a_pod_leaves_its_node_and_token_volume_behind() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {
            "nodeName": "n1", "priority": 0,
            "volumes": [{"name": "kube-api-access-abcde"}, {"name": "data"}],
            "containers": [
                {"name": "a", "volumeMounts": [{"name": "kube-api-access-abcde"}]},
                {"name": "b", "volumeMounts": [{"name": "data"}]},
            ],
        }});
        let expected = json!({
            "volumes": [{"name": "data"}],
            "containers": [{"name": "a"}, {"name": "b", "volumeMounts": [{"name": "data"}]}],
        });
        assert_eq!(stripped(pod)["spec"], expected);
    }

    #[test]
    fn bindings_of_volumes_and_marks_of_controllers_stay_behind() {
        let claim = stripped(json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes", "mine": "1"}},
            "spec": {"volumeName": "pv-1", "storageClassName": "fast"},
        }));
        assert_eq!(claim["spec"], json!({"storageClassName": "fast"}));
        assert_eq!(claim["metadata"]["annotations"], json!({"mine": "1"}));
        let account =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "secrets": [{"name": "t"}]});
        assert!(stripped(account).get("secrets").is_none());
        let other = json!({"apiVersion": "x.io/v1", "kind": "Service", "spec": {"clusterIP": "1"}});
        assert_eq!(stripped(other.clone()), other);
    }
}
