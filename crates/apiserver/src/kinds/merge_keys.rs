//! Strategic merge annotations in schemas: `x-kubernetes-patch-strategy` and `x-kubernetes-patch-merge-key`.
//! k8s-openapi lacks them, and kubectl computes the patches of `kubectl apply` from the server's documents.

use std::collections::BTreeSet;

use atoll_apimachinery::discovery::reference;
use atoll_merge::schema::Schema;
use serde_json::{Map, Value};

/// Unions in which a patch keeps only the member it names: (definition, field). [`Schema::builtin`] lacks them, because
/// the server's side of a patch needs no rule for it.
const RETAIN_KEYS: [(&str, &str); 2] = [("DeploymentSpec", "strategy"), ("PodSpec", "volumes")];

/// Adds them to the definition of this name and to those below it. `done` has the visited names.
pub(super) fn annotate(
    schemas: &mut Map<String, Value>,
    name: &str,
    fields: &Schema,
    done: &mut BTreeSet<String>,
) {
    if !done.insert(name.to_owned()) {
        return;
    }
    let mut below = Vec::new();
    for (field, schema) in fields.properties() {
        let Some(property) = schemas.get_mut(name).and_then(|s| s["properties"].get_mut(field))
        else {
            continue;
        };
        below.extend(references(property, schema));
        let short = name.rsplit('.').next().unwrap_or(name);
        let retains = RETAIN_KEYS.contains(&(short, field));
        let strategy = match (schema.patch_strategy(), retains) {
            (Some(strategy), true) => Some(format!("{strategy},retainKeys")),
            (None, true) => Some("retainKeys".to_owned()),
            (strategy, false) => strategy.map(str::to_owned),
        };
        if let Some(strategy) = strategy {
            property["x-kubernetes-patch-strategy"] = strategy.into();
        }
        if let Some(key) = schema.patch_merge_key() {
            property["x-kubernetes-patch-merge-key"] = key.into();
        }
    }
    for (name, schema) in below {
        annotate(schemas, &name, &schema, done);
    }
}

/// The definition that a field, its items or its values refer to, with its schema.
fn references(property: &Value, schema: &Schema) -> Option<(String, Schema)> {
    if let Some(name) = reference(property) {
        return Some((name, schema.clone()));
    }
    let (inner, schema) = match (property.get("items"), property.get("additionalProperties")) {
        (Some(items), _) => (items, schema.items()?),
        (None, Some(values)) => (values, schema.additional()?),
        (None, None) => return None,
    };
    Some((reference(inner)?, schema.clone()))
}
