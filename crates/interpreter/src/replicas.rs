//! The replicas that an object requests.

use serde_json::{Map, Value, json};

use crate::{kind::Kind, pod, read::int, third_party};

/// The spec field with a kind's number of replicas, and its default.
fn field(obj: &Value) -> Option<(&'static str, Option<i64>)> {
    match Kind::of(obj) {
        Kind::Deployment | Kind::ReplicaSet | Kind::StatefulSet | Kind::ReplicationController => {
            Some(("replicas", Some(1)))
        }
        Kind::Job => Some(("parallelism", Some(1))),
        Kind::ServiceImport | Kind::Other => match third_party::replicas(obj) {
            Some((name, _)) => Some((name, None)),
            None if third_party::is_known(obj) => None,
            None => pod::template(obj).map(|_| ("replicas", None)),
        },
        _ => None,
    }
}

/// The replicas that the object requests, or `None` for a kind without replicas (a ConfigMap, a DaemonSet, a Pod).
///
/// Deployments, ReplicaSets, StatefulSets and ReplicationControllers use `spec.replicas`, Jobs `spec.parallelism`; the
/// default is 1, as in their API server. Another kind has replicas if it has an integer `spec.replicas` and a pod
/// template.
#[must_use]
pub fn replicas(obj: &Value) -> Option<i64> {
    let (name, default) = field(obj)?;
    int(obj, &["spec", name]).or(default)
}

/// Sets the field that [`replicas`] reads; for a Job only the parallelism. Does nothing for a kind without replicas.
pub fn set_replicas(obj: &mut Value, n: i64) {
    let Some((name, _)) = field(obj).filter(|_| replicas(obj).is_some()) else { return };
    let Some(fields) = obj.as_object_mut() else { return };
    let spec = fields.entry("spec").or_insert_with(|| Value::Object(Map::new()));
    if let Some(spec) = spec.as_object_mut() {
        spec.insert(name.to_owned(), json!(n));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(api_version: &str, kind: &str, spec: Value) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "spec": spec})
    }

    #[test]
    fn each_kind_says_its_replicas_its_own_way() {
        let template = json!({"spec": {"containers": [{"name": "a"}]}});
        for (object, expected) in [
            (object("apps/v1", "Deployment", json!({"replicas": 3})), Some(3)),
            (object("apps/v1", "Deployment", json!({"replicas": 0})), Some(0)),
            (object("apps/v1", "StatefulSet", json!({})), Some(1)),
            (object("batch/v1", "Job", json!({"parallelism": 4, "completions": 2})), Some(4)),
            (object("batch/v1", "Job", json!({})), Some(1)),
            (object("apps/v1", "DaemonSet", json!({"replicas": 3})), None),
            (object("v1", "Pod", json!({})), None),
            (object("v1", "ConfigMap", json!({})), None),
            (object("x.io/v1", "Set", json!({"replicas": 2, "template": template})), Some(2)),
            (object("x.io/v1", "Set", json!({"replicas": "2", "template": template})), None),
            (object("x.io/v1", "Set", json!({"replicas": 2})), None),
            (object("x.io/v1", "Deployment", json!({"replicas": 2})), None),
        ] {
            assert_eq!(replicas(&object), expected, "{object}");
        }
    }

    #[test]
    fn what_is_set_is_what_is_read() {
        for mut object in [
            json!({"apiVersion": "apps/v1", "kind": "Deployment"}),
            object("batch/v1", "Job", json!({"parallelism": 4})),
        ] {
            set_replicas(&mut object, 7);
            assert_eq!(replicas(&object), Some(7));
        }
        let mut service = object("v1", "Service", json!({"type": "ClusterIP"}));
        let before = service.clone();
        set_replicas(&mut service, 7);
        assert_eq!(service, before);
    }
}
