//! The patch of a subset: a strategic merge on the pod template of one member's copy.
//!
//! A patch must not change the identity of the manifest, the labels that select its pods, or Atoll's marks. Otherwise
//! its author could write elsewhere with the agent's rights, or detach a workload from its pods.

use atoll_api::marks;
use atoll_merge::schema::Schema;
use atoll_merge::strategic;
use serde_json::{Map, Value};

/// Fields of a pod template that a patch may contain.
const FIELDS: [&str; 2] = ["metadata", "spec"];
/// Fields of its metadata that a patch may contain.
const METADATA: [&str; 2] = ["labels", "annotations"];

/// Checks a patch without its template.
///
/// # Errors
/// The field that is not allowed, and the allowed ones.
pub fn check(patch: &Value) -> Result<(), String> {
    let Some(fields) = patch.as_object() else {
        return Err("must be an object with metadata or spec of a pod template".to_owned());
    };
    only(fields, &FIELDS, "")?;
    match fields.get("metadata") {
        None => Ok(()),
        Some(Value::Object(metadata)) => {
            only(metadata, &METADATA, "metadata.")?;
            for field in METADATA {
                match metadata.get(field) {
                    None => {}
                    Some(Value::Object(entries)) => entries_are_users(entries, field)?,
                    Some(_) => return Err(format!("metadata.{field} must be a map")),
                }
            }
            Ok(())
        }
        Some(_) => Err("metadata must be a map with labels or annotations".to_owned()),
    }
}

fn only(fields: &Map<String, Value>, known: &[&str], path: &str) -> Result<(), String> {
    match fields.keys().find(|field| !known.contains(&field.as_str())) {
        None => Ok(()),
        Some(field) => {
            Err(format!("{path}{field} may not be patched, only {path}{}", known.join(" and ")))
        }
    }
}

fn entries_are_users(entries: &Map<String, Value>, field: &str) -> Result<(), String> {
    for (key, value) in entries {
        let path = format!("metadata.{field}[{key:?}]");
        if marks::is_own(key) {
            return Err(format!("{path} is reserved by Atoll: remove it"));
        }
        if key.starts_with('$') {
            return Err(format!("{path}: directives are for spec, name labels one by one"));
        }
        if !value.is_string() && !value.is_null() {
            return Err(format!("{path} must be a string, or null to remove it"));
        }
    }
    Ok(())
}

/// Merges the patch into the pod template of a manifest.
pub(crate) fn apply(manifest: &mut Value, patch: &Value) -> Result<(), String> {
    check(patch)?;
    let selected = selected_labels(manifest, patch);
    if let Some(label) = selected {
        return Err(format!(
            "metadata.labels[{label:?}] is in the workload's selector: patched pods would not be its own"
        ));
    }
    let Some(template) = manifest.pointer_mut("/spec/template").filter(|value| value.is_object())
    else {
        return Err("the kind has no pod template at spec.template: leave patch out".to_owned());
    };
    *template = strategic::merge(template, patch, &schema()).map_err(|error| error.to_string())?;
    Ok(())
}

/// The first label in the patch that the workload's selector uses.
fn selected_labels(manifest: &Value, patch: &Value) -> Option<String> {
    let patched = patch.pointer("/metadata/labels")?.as_object()?;
    let selector = manifest.pointer("/spec/selector")?;
    let labels = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    let keys = expressions.into_iter().flatten().filter_map(|e| e.get("key")?.as_str());
    let mut selected = labels.map(|(label, _)| label.as_str()).chain(keys);
    selected.find(|label| patched.contains_key(*label)).map(str::to_owned)
}

/// The schema of a pod template. It is the same in every kind, so a Deployment's is used.
fn schema() -> Schema {
    let deployment = Schema::builtin("apps", "v1", "Deployment");
    let template = deployment.as_ref().and_then(|kind| kind.property("spec")?.property("template"));
    template.cloned().unwrap_or_else(Schema::deduced)
}
