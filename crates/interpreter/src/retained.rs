//! Fields that belong to the cluster that runs an object. Their values are not valid on another cluster.

use serde_json::{Map, Value};

use crate::{
    kind::Kind,
    read::{flag, text},
};

/// The fields of a kind that a cluster's own controllers and API server fill in, so that their values are not valid on
/// another cluster. JSON pointers, in which `*` stands for every item of a list. [`strip_retained`] implements the
/// exceptions: a value that a user wrote is applied.
#[must_use]
pub fn retained_fields(group: &str, kind: &str) -> &'static [&'static str] {
    match Kind::named(group, kind) {
        Kind::Service => &["/spec/clusterIP", "/spec/clusterIPs"],
        Kind::ServiceAccount => &["/secrets"],
        Kind::PersistentVolumeClaim => &[
            "/spec/volumeName",
            "/metadata/annotations/pv.kubernetes.io~1bind-completed",
            "/metadata/annotations/pv.kubernetes.io~1bound-by-controller",
            "/metadata/annotations/volume.kubernetes.io~1selected-node",
            "/metadata/annotations/volume.kubernetes.io~1storage-provisioner",
        ],
        Kind::PersistentVolume => {
            &["/spec/claimRef", "/metadata/annotations/pv.kubernetes.io~1bound-by-controller"]
        }
        Kind::Pod => &["/spec/priority"],
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

/// Prefix of the volumes that an API server adds to every pod, with a token of that cluster.
const TOKEN_VOLUME: &str = "kube-api-access-";

/// Annotation of the volume controller: it, and not a user, chose the volume of a claim or the claim of a volume.
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

/// Removes [`retained_fields`] from an object. Values that a user wrote stay: a headless Service's `clusterIP: None`, a
/// Job's selector with `manualSelector`, the data of every Secret except service account tokens, and the volume of a
/// claim or claim of a volume that no controller bound (without uid and resourceVersion, which identify an object of
/// the hub). The token volume of Pods is removed too. A `nodeName` stays, because nothing on the hub schedules Pods.
///
/// [`strip_allocated`] handles node ports earlier.
pub fn strip_retained(obj: &mut Map<String, Value>) {
    let word = |name: &str| obj.get(name).and_then(Value::as_str).unwrap_or_default();
    let group = word("apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
    let kind = Kind::named(group, word("kind"));
    let fields = retained_fields(group, word("kind"));
    let spec = obj.get("spec").unwrap_or(&Value::Null);
    let annotations = obj.get("metadata").and_then(|metadata| metadata.get("annotations"));
    let bound = annotations.and_then(|all| all.get(BOUND_BY_CONTROLLER)).is_some();
    let users_word = match kind {
        Kind::Service => text(spec, &["clusterIP"]) == "None",
        Kind::Job => flag(spec, &["manualSelector"]),
        Kind::Secret => word("type") != "kubernetes.io/service-account-token",
        Kind::PersistentVolumeClaim | Kind::PersistentVolume => !bound,
        _ => false,
    };
    for pointer in fields {
        let kept = match kind {
            Kind::Service => users_word && pointer.starts_with("/spec/clusterIP"),
            Kind::Job | Kind::Secret => users_word,
            Kind::PersistentVolumeClaim => users_word && *pointer == "/spec/volumeName",
            Kind::PersistentVolume => users_word && *pointer == "/spec/claimRef",
            _ => false,
        };
        if !kept {
            let steps: Vec<String> =
                pointer[1..].split('/').map(|s| s.replace("~1", "/").replace("~0", "~")).collect();
            remove_field(obj, &steps);
        }
    }
    if kind == Kind::PersistentVolume
        && let Some(claim) = obj.get_mut("spec").and_then(|spec| spec.get_mut("claimRef"))
        && let Some(claim) = claim.as_object_mut()
    {
        claim.remove("uid");
        claim.remove("resourceVersion");
    }
    if kind == Kind::Pod
        && let Some(spec) = obj.get_mut("spec").and_then(Value::as_object_mut)
    {
        strip_token_volume(spec);
    }
}

/// Removes the node ports of a Service that its API server allocated: those that no entry of `managedFields` owns. The
/// server records the fields that clients wrote before it allocates, so an owned port is a port that a user chose.
pub fn strip_allocated(obj: &mut Map<String, Value>) {
    let word = |name: &str| obj.get(name).and_then(Value::as_str).unwrap_or_default();
    if word("kind") != "Service" || word("apiVersion") != "v1" {
        return;
    }
    let entries = obj.get("metadata").and_then(|metadata| metadata.get("managedFields"));
    let entries = entries.and_then(Value::as_array).into_iter().flatten();
    let owned: Vec<Value> =
        entries.filter_map(|entry| entry.get("fieldsV1")?.get("f:spec").cloned()).collect();
    let Some(spec) = obj.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if !owned.iter().any(|fields| fields.get("f:healthCheckNodePort").is_some()) {
        spec.remove("healthCheckNodePort");
    }
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten();
    for port in ports.filter_map(Value::as_object_mut) {
        if !owned.iter().any(|fields| owns_node_port(fields, port)) {
            port.remove("nodePort");
        }
    }
}

/// Whether the Service spec fields of one entry include this port's node port.
fn owns_node_port(fields: &Value, port: &Map<String, Value>) -> bool {
    let Some(Value::Object(ports)) = fields.get("f:ports") else { return false };
    // Ports are a list keyed by port and protocol. An entry without items owns the whole list.
    if !ports.keys().any(|name| name.starts_with("k:")) {
        return true;
    }
    ports.iter().any(|(name, fields)| {
        let key = name.strip_prefix("k:").and_then(|key| serde_json::from_str::<Value>(key).ok());
        let Some(Value::Object(key)) = key else { return false };
        let is_port = key.iter().all(|(field, value)| match port.get(field) {
            Some(held) => held == value,
            None => field == "protocol" && value == "TCP",
        });
        is_port && fields.get("f:nodePort").is_some()
    })
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
    fn addresses_of_a_service_stay_behind_but_headless_is_the_users_word() {
        let service = |ip: &str| {
            json!({"apiVersion": "v1", "kind": "Service", "spec": {
                "clusterIP": ip, "clusterIPs": [ip], "ports": [{"port": 80, "nodePort": 30080}],
            }})
        };
        let ports = json!([{"port": 80, "nodePort": 30080}]);
        assert_eq!(stripped(service("10.0.0.1"))["spec"], json!({"ports": ports}));
        assert_eq!(stripped(service("None")), service("None"));
    }

    #[test]
    fn node_ports_that_a_user_wrote_travel_and_those_that_the_hub_allocated_do_not() {
        let service = |managed: Value| {
            let mut service = json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"managedFields": managed},
                "spec": {"healthCheckNodePort": 30001, "ports": [
                    {"port": 80, "protocol": "TCP", "nodePort": 30080},
                    {"port": 80, "protocol": "UDP", "nodePort": 30081},
                    {"port": 81, "nodePort": 30082},
                ]},
            });
            strip_allocated(service.as_object_mut().unwrap());
            service["spec"].clone()
        };
        let owns = |ports: Value| json!([{"manager": "kubectl", "fieldsV1": {"f:spec": ports}}]);
        let chosen = owns(json!({"f:ports": {
            "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:nodePort": {}},
            "k:{\"port\":80,\"protocol\":\"UDP\"}": {".": {}, "f:port": {}},
            "k:{\"port\":81,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:nodePort": {}},
        }}));
        let expected = json!({"ports": [
            {"port": 80, "protocol": "TCP", "nodePort": 30080},
            {"port": 80, "protocol": "UDP"},
            {"port": 81, "nodePort": 30082},
        ]});
        assert_eq!(service(chosen), expected);
        let whole = service(owns(json!({"f:ports": {}, "f:healthCheckNodePort": {}})));
        assert_eq!(whole["ports"][1]["nodePort"], 30081, "the list as a whole is the user's");
        assert_eq!(whole["healthCheckNodePort"], 30001);
        let unknown = service(json!([]));
        assert_eq!(unknown["ports"][0].get("nodePort"), None, "nobody says who wrote it");
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
    fn a_pod_keeps_the_node_that_a_user_chose_and_leaves_its_token_volume_behind() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {
            "nodeName": "n1", "priority": 0,
            "volumes": [{"name": "kube-api-access-abcde"}, {"name": "data"}],
            "containers": [
                {"name": "a", "volumeMounts": [{"name": "kube-api-access-abcde"}]},
                {"name": "b", "volumeMounts": [{"name": "data"}]},
            ],
        }});
        let expected = json!({
            "nodeName": "n1",
            "volumes": [{"name": "data"}],
            "containers": [{"name": "a"}, {"name": "b", "volumeMounts": [{"name": "data"}]}],
        });
        assert_eq!(stripped(pod)["spec"], expected);
    }

    #[test]
    fn volumes_that_a_user_chose_travel_and_those_that_a_controller_bound_do_not() {
        let bound = "pv.kubernetes.io/bound-by-controller";
        let claim = |annotations: Value| {
            stripped(json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"annotations": annotations},
                "spec": {"volumeName": "pv-1", "storageClassName": "fast"},
            }))
        };
        let chosen = claim(json!({"pv.kubernetes.io/bind-completed": "yes", "mine": "1"}));
        assert_eq!(chosen["spec"], json!({"volumeName": "pv-1", "storageClassName": "fast"}));
        assert_eq!(chosen["metadata"]["annotations"], json!({"mine": "1"}));
        let found = claim(json!({bound: "yes"}));
        assert_eq!(found["spec"], json!({"storageClassName": "fast"}));
        let volume = |annotations: Value| {
            stripped(json!({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"annotations": annotations},
                "spec": {"claimRef": {
                    "namespace": "shop", "name": "data", "uid": "u", "resourceVersion": "7",
                }},
            }))
        };
        let claim_ref = json!({"namespace": "shop", "name": "data"});
        assert_eq!(volume(json!({}))["spec"]["claimRef"], claim_ref, "by name, of any cluster");
        let found = volume(json!({bound: "yes"}));
        assert!(found["spec"].get("claimRef").is_none());
        assert_eq!(found["metadata"]["annotations"], json!({}));
        let account =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "secrets": [{"name": "t"}]});
        assert!(stripped(account).get("secrets").is_none());
        let other = json!({"apiVersion": "x.io/v1", "kind": "Service", "spec": {"clusterIP": "1"}});
        assert_eq!(stripped(other.clone()), other);
    }
}
