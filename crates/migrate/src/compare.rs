//! Differences between two manifests of one object: what Karmada's Work holds, and what Atoll would apply.

use atoll_api::marks;
use atoll_render::{SERVER_ANNOTATIONS, SERVER_METADATA};
use serde::Serialize;
use serde_json::Value;

use crate::is_karmadas;

/// A field that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// For example `spec.template.spec.containers[0].image`.
    pub field: String,
    /// What Karmada's Work has; null if nothing.
    pub karmada: Value,
    /// What Atoll has; null if nothing.
    pub atoll: Value,
}

/// Fields whose change starts pods again or changes their number, as prefixes of paths.
const OF_PODS: [&str; 7] = [
    "spec.template",
    "spec.jobTemplate",
    "spec.replicas",
    "spec.parallelism",
    "spec.completions",
    "spec.selector",
    "spec.volumeClaimTemplates",
];

impl Difference {
    /// Whether pods would start again, or their number would change.
    #[must_use]
    pub fn concerns_pods(&self, kind: &str) -> bool {
        let is_of = |prefix: &str| {
            let rest = self.field.strip_prefix(prefix);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        kind == "Pod" && is_of("spec") || OF_PODS.iter().any(|prefix| is_of(prefix))
    }
}

/// The differences. What API servers, Karmada and Atoll set for themselves is left out, and so are nulls and empty values.
#[must_use]
pub fn manifests(karmada: &Value, atoll: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    walk(String::new(), &essence(karmada), &essence(atoll), &mut found);
    found
}

/// A manifest as a user wrote it.
fn essence(manifest: &Value) -> Value {
    let mut manifest = manifest.clone();
    if let Some(fields) = manifest.as_object_mut() {
        fields.remove("status");
        atoll_interpreter::strip_allocated(fields);
    }
    if let Some(metadata) = manifest["metadata"].as_object_mut() {
        for field in SERVER_METADATA {
            metadata.remove(field);
        }
        for map in ["labels", "annotations"] {
            let Some(entries) = metadata.get_mut(map).and_then(Value::as_object_mut) else {
                continue;
            };
            entries.retain(|key, _| {
                !is_karmadas(key)
                    && !marks::is_own(key)
                    && !SERVER_ANNOTATIONS.contains(&key.as_str())
            });
            if entries.is_empty() {
                metadata.remove(map);
            }
        }
    }
    prune(manifest).unwrap_or_default()
}

/// Without nulls and what is empty because of them. A user's empty map of a union (`emptyDir: {}`) is kept.
fn prune(value: Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(fields) => {
            let was_empty = fields.is_empty();
            let kept: serde_json::Map<_, _> = fields
                .into_iter()
                .filter_map(|(name, value)| Some((name, prune(value)?)))
                .collect();
            (was_empty || !kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(items) => Some(items.into_iter().filter_map(prune).collect()),
        other => Some(other),
    }
}

/// An absent value and an empty one mean the same to an API server, but for maps that a user wrote.
fn is_nothing(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

fn walk(path: String, one: &Value, other: &Value, found: &mut Vec<Difference>) {
    match (one, other) {
        (Value::Object(of_one), Value::Object(of_other)) => {
            let mut names: Vec<&String> = of_one.keys().chain(of_other.keys()).collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                let below = if path.is_empty() {
                    name.clone()
                } else if name.contains(['.', '/']) {
                    format!("{path}[{name}]")
                } else {
                    format!("{path}.{name}")
                };
                walk(below, &one[name], &other[name], found);
            }
        }
        (Value::Array(of_one), Value::Array(of_other)) if of_one.len() == of_other.len() => {
            for (at, (one, other)) in of_one.iter().zip(of_other).enumerate() {
                walk(format!("{path}[{at}]"), one, other, found);
            }
        }
        _ if one == other || is_nothing(one) && is_nothing(other) => {}
        _ => found.push(Difference { field: path, karmada: one.clone(), atoll: other.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn marks_and_what_servers_set_are_no_difference_and_fields_of_pods_are_told_apart() {
        let work = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "uid": "u", "creationTimestamp": null,
                "labels": {"app": "web", "karmada.io/managed": "true"},
                "annotations": {"work.karmada.io/name": "w", "resourcetemplate.karmada.io/uid": "x"}},
            "spec": {"replicas": 2, "template": {
                "metadata": {"creationTimestamp": null, "labels": {"app": "web"}},
                "spec": {"volumes": [{"name": "tmp", "emptyDir": {}}],
                    "containers": [{"name": "main", "image": "web:1", "resources": {}}]}}},
            "status": {"replicas": 2}});
        let mut ours = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "labels": {"app": "web", "atoll.dev/managed-by": "atoll"}},
            "spec": work["spec"].clone()});
        ours["spec"]["template"]["metadata"] = json!({"labels": {"app": "web"}});
        assert_eq!(manifests(&work, &ours), []);

        ours["spec"]["template"]["spec"]["containers"][0]["image"] = json!("web:2");
        ours["spec"]["minReadySeconds"] = json!(5);
        ours["metadata"]["labels"]["example.com/team"] = json!("a");
        let found = manifests(&work, &ours);
        let fields: Vec<(&str, bool)> = found
            .iter()
            .map(|difference| (&*difference.field, difference.concerns_pods("Deployment")))
            .collect();
        assert_eq!(
            fields,
            [
                ("metadata.labels[example.com/team]", false),
                ("spec.minReadySeconds", false),
                ("spec.template.spec.containers[0].image", true),
            ]
        );
        assert_eq!((&found[2].karmada, &found[2].atoll), (&json!("web:1"), &json!("web:2")));
        ours["spec"]["template"]["spec"]["volumes"] = json!([]);
        assert!(manifests(&work, &ours).iter().any(|d| d.field == "spec.template.spec.volumes"));
        let replicas =
            Difference { field: "spec.replicas".into(), karmada: json!(1), atoll: json!(2) };
        assert!(replicas.concerns_pods("Deployment"));
        let templates = Difference { field: "spec.templates".into(), ..replicas };
        assert!(!templates.concerns_pods("Widget"));
    }
}
