//! Fields of an object that belong to the member: what an apply leaves out, and what it applies as it is there.
//!
//! An interpreter gives the desired object with the values that the member keeps. Server-side apply keeps a field that
//! we leave out, unless we alone own it: then it would be removed. So a retained field is left out if we do not own it
//! or share it, and is otherwise applied with the observed value.

use serde_json::{Map, Value};

use super::fields::FieldOwners;

/// The manifest to apply: `desired`, in which the fields that differ in `retained` are left out or have the value of
/// `retained`. `owners` are those of `observed`.
#[must_use]
pub(crate) fn manifest(
    desired: Value,
    retained: &Value,
    observed: &Value,
    owners: &FieldOwners<'_>,
) -> Value {
    keep(Some(desired), retained, Some(observed), owners)
        .unwrap_or_else(|| Value::Object(Map::new()))
}

/// The value to apply at one place of the object; `None` = leave it out.
fn keep(
    desired: Option<Value>,
    retained: &Value,
    observed: Option<&Value>,
    owners: &FieldOwners<'_>,
) -> Option<Value> {
    if desired.as_ref() == Some(retained) {
        return desired;
    }
    match (retained, observed) {
        (Value::Null, _) => None,
        (Value::Object(fields), Some(Value::Object(there))) if !owners.is_whole() => {
            keep_fields(desired, fields, there, owners)
        }
        (Value::Array(items), Some(Value::Array(there))) => match owners.keys() {
            Some(keys) => keep_items(desired, items, there, &keys, owners),
            None => keep_whole(retained, observed, owners),
        },
        _ => keep_whole(retained, observed, owners),
    }
}

fn keep_whole(
    retained: &Value,
    observed: Option<&Value>,
    owners: &FieldOwners<'_>,
) -> Option<Value> {
    let left_out = observed == Some(retained) && !owners.is_only_ours();
    (!left_out).then(|| retained.clone())
}

fn keep_fields(
    desired: Option<Value>,
    retained: &Map<String, Value>,
    observed: &Map<String, Value>,
    owners: &FieldOwners<'_>,
) -> Option<Value> {
    let is_desired = desired.is_some();
    let Value::Object(mut desired) = desired.unwrap_or_default() else {
        return keep_whole(
            &Value::Object(retained.clone()),
            Some(&Value::Object(observed.clone())),
            owners,
        );
    };
    let mut kept = Map::new();
    for (name, value) in retained {
        let value = keep(desired.remove(name), value, observed.get(name), &owners.of_field(name));
        if let Some(value) = value {
            kept.insert(name.clone(), value);
        }
    }
    (is_desired || !kept.is_empty()).then_some(Value::Object(kept))
}

/// Items of a list whose items are identified by some of their fields.
fn keep_items(
    desired: Option<Value>,
    retained: &[Value],
    observed: &[Value],
    keys: &[String],
    owners: &FieldOwners<'_>,
) -> Option<Value> {
    let is_desired = desired.is_some();
    let mut desired = match desired {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    let mut kept = Vec::new();
    for item in retained {
        let wanted = desired.iter().position(|wanted| is_same(wanted, item, keys));
        let wanted = wanted.map(|at| desired.remove(at));
        let was_wanted = wanted.is_some();
        let there = observed.iter().find(|there| is_same(there, item, keys));
        let owners = there.map(|there| owners.of_item(there)).unwrap_or_default();
        let Some(value) = keep(wanted, item, there, &owners) else { continue };
        // Without its keys an item that only the member wants would be another item.
        if was_wanted || keys.iter().any(|key| value.get(key).is_some()) {
            kept.push(value);
        }
    }
    (is_desired || !kept.is_empty()).then_some(Value::Array(kept))
}

/// Whether two items have the same keys. A key that one of them lacks has its default there.
fn is_same(one: &Value, other: &Value, keys: &[String]) -> bool {
    let mut compared = keys.iter().filter_map(|key| Some((one.get(key)?, other.get(key)?)));
    let mut any = false;
    compared.all(|(one, other)| {
        any = true;
        one == other
    }) && any
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(manager: &str, fields: Value) -> Value {
        let operation = if manager == "atoll" { "Apply" } else { "Update" };
        json!({"manager": manager, "operation": operation, "fieldsV1": fields})
    }

    /// What is applied of an object that the built-in interpreter knows.
    fn applied(desired: &Value, observed: &Value) -> Value {
        let retained = atoll_interpreter::retained(desired, observed).unwrap().unwrap();
        manifest(desired.clone(), &retained, observed, &FieldOwners::of(observed))
    }

    #[test]
    fn a_retained_field_is_applied_only_where_leaving_it_out_would_remove_it() {
        let deployment = |replicas: i64| {
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"labels": {atoll_interpreter::RETAIN_REPLICAS: "true"}},
                "spec": {"replicas": replicas, "paused": true},
            })
        };
        let replicas = json!({"f:spec": {"f:replicas": {}}});
        let ours = json!({"f:spec": {"f:replicas": {}, "f:paused": {}}});
        let without = json!({"f:spec": {"f:paused": {}}});
        let of = |entries: Value| {
            let mut observed = deployment(7);
            observed["metadata"]["managedFields"] = entries;
            applied(&deployment(2), &observed)["spec"].clone()
        };
        let alone = of(json!([entry("atoll", ours.clone())]));
        assert_eq!(alone, json!({"replicas": 7, "paused": true}));
        let shared = of(json!([entry("atoll", ours), entry("kubectl", replicas.clone())]));
        assert_eq!(shared, json!({"paused": true}));
        let others = of(json!([entry("atoll", without), entry("kubectl", replicas)]));
        assert_eq!(others, json!({"paused": true}));
    }

    #[test]
    fn what_the_members_api_server_allocated_is_not_claimed() {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {},
            "spec": {"type": "NodePort", "ports": [{"port": 80}, {"port": 81, "nodePort": 30001}]},
        });
        let mut observed = service.clone();
        observed["metadata"]["managedFields"] = json!([entry(
            "atoll",
            json!({"f:spec": {
                "f:type": {},
                "f:ports": {
                    "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}},
                    "k:{\"port\":81,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:nodePort": {}},
                },
            }})
        )]);
        observed["spec"]["clusterIP"] = json!("10.0.0.1");
        observed["spec"]["clusterIPs"] = json!(["10.0.0.1"]);
        observed["spec"]["ports"] = json!([
            {"port": 80, "protocol": "TCP", "nodePort": 30000},
            {"port": 81, "protocol": "TCP", "nodePort": 30001},
        ]);
        assert_eq!(applied(&service, &observed), service);

        // A port that is not wanted any more was ours: it stays as it is on the member.
        let mut wanted = service.clone();
        wanted["spec"]["ports"][1].as_object_mut().unwrap().remove("nodePort");
        assert_eq!(applied(&wanted, &observed), service);
    }

    #[test]
    fn labels_of_a_jobs_pods_stay_as_they_are_because_they_cannot_change() {
        let job = |labels: Value| {
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": {
                "parallelism": 2, "template": {"metadata": {"labels": labels}},
            }})
        };
        let mut observed = job(json!({"app": "a", "job-name": "j"}));
        observed["spec"]["selector"] = json!({"matchLabels": {"controller-uid": "1"}});
        observed["metadata"]["managedFields"] = json!([entry(
            "atoll",
            json!({"f:spec": {
                "f:parallelism": {}, "f:template": {"f:metadata": {"f:labels": {"f:app": {}}}},
            }})
        )]);
        let wanted = job(json!({"app": "b", "new": "x"}));
        assert_eq!(applied(&wanted, &observed), job(json!({"app": "a"})));
    }

    #[test]
    fn a_pod_keeps_its_node_and_its_volumes_and_nothing_else_of_it_changes() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {
            "nodeName": "n1",
            "volumes": [{"name": "data", "emptyDir": {}}],
            "containers": [{
                "name": "a", "image": "a:2", "resources": {},
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }],
        }});
        let mut observed = pod.clone();
        observed["spec"]["nodeName"] = json!("n2");
        observed["spec"]["serviceAccountName"] = json!("default");
        observed["spec"]["containers"][0]["image"] = json!("a:1");
        let token = json!({"name": "kube-api-access-1", "projected": {"defaultMode": 420}});
        observed["spec"]["volumes"].as_array_mut().unwrap().push(token);
        let mount = json!({"name": "kube-api-access-1", "mountPath": "/var/run/secrets"});
        observed["spec"]["containers"][0]["volumeMounts"].as_array_mut().unwrap().push(mount);
        observed["metadata"]["managedFields"] = json!([entry(
            "atoll",
            json!({"f:spec": {
                "f:nodeName": {},
                "f:volumes": {"k:{\"name\":\"data\"}": {".": {}, "f:name": {}, "f:emptyDir": {}}},
                "f:containers": {"k:{\"name\":\"a\"}": {
                    ".": {}, "f:name": {}, "f:image": {}, "f:resources": {},
                    "f:volumeMounts": {"k:{\"mountPath\":\"/data\"}": {
                        ".": {}, "f:name": {}, "f:mountPath": {},
                    }},
                }},
            }})
        ),]);
        let mut expected = pod.clone();
        expected["spec"]["nodeName"] = json!("n2");
        assert_eq!(applied(&pod, &observed), expected);
    }

    #[test]
    fn a_list_that_is_owned_as_a_whole_is_applied_as_a_whole_or_not_at_all() {
        let account = |secrets: Value| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {}, "imagePullSecrets": secrets});
        let mut observed = account(json!([{"name": "a"}, {"name": "theirs"}]));
        observed["metadata"]["managedFields"] = json!([
            entry("atoll", json!({"f:metadata": {}})),
            entry("somebody", json!({"f:imagePullSecrets": {}})),
        ]);
        let of = |secrets: Value| applied(&account(secrets), &observed);
        assert_eq!(of(json!([{"name": "a"}])).get("imagePullSecrets"), None);
        let both = json!([{"name": "b"}, {"name": "a"}, {"name": "theirs"}]);
        assert_eq!(of(json!([{"name": "b"}])), account(both));
    }
}
