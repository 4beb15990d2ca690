//! Removes from a template what belongs to the hub's API server and to Atoll's work on the hub.

use atoll_api::marks;
use serde_json::{Map, Value};

use crate::{RenderError, type_of};

/// Metadata that an API server writes, or that is only valid there (owners and finalizers refer to objects and controllers
/// of that cluster).
pub const SERVER_METADATA: [&str; 11] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Annotations that describe the object in one cluster: kubectl's record of the last client-side apply, the Deployment
/// controller's rollout counter.
pub const SERVER_ANNOTATIONS: [&str; 2] =
    ["kubectl.kubernetes.io/last-applied-configuration", "deployment.kubernetes.io/revision"];

/// The template without status, without the hub's metadata, without labels and annotations that are for Atoll on the hub.
pub(crate) fn server_side(template: &Value) -> Result<Map<String, Value>, RenderError> {
    let mut manifest = match template {
        Value::Object(fields) => fields.clone(),
        other => return Err(malformed("template", "a map", Some(other))),
    };
    manifest.remove("status");
    let Some(Value::Object(metadata)) = manifest.get_mut("metadata") else {
        return Err(malformed("metadata", "a map", template.get("metadata")));
    };
    for field in SERVER_METADATA {
        metadata.remove(field);
    }
    for field in ["labels", "annotations"] {
        match metadata.get_mut(field) {
            None | Some(Value::Null) => {}
            Some(Value::Object(entries)) => keep_users(entries, field)?,
            Some(other) => {
                return Err(malformed(&format!("metadata.{field}"), "a map", Some(other)));
            }
        }
    }
    // Clients that build typed objects write this null into pod templates. Applied, Atoll would own the field.
    if let Some(Value::Object(pod)) = template_metadata(&mut manifest)
        && pod.get("creationTimestamp").is_some_and(Value::is_null)
    {
        pod.remove("creationTimestamp");
    }
    Ok(manifest)
}

/// Removes empty labels and annotations. Applied, Atoll would own those fields.
pub(crate) fn empty_metadata(manifest: &mut Value) {
    let Some(metadata) = manifest["metadata"].as_object_mut() else { return };
    for field in ["labels", "annotations"] {
        let empty = match metadata.get(field) {
            Some(Value::Object(entries)) => entries.is_empty(),
            Some(Value::Null) => true,
            _ => false,
        };
        if empty {
            metadata.remove(field);
        }
    }
}

fn keep_users(entries: &mut Map<String, Value>, field: &str) -> Result<(), RenderError> {
    for (key, value) in entries.iter() {
        let path = || format!("metadata.{field}[{key:?}]");
        if marks::MEMBER_MARKS.iter().any(|(_, names)| names.contains(&key.as_str())) {
            return Err(RenderError::Marked { field: path() });
        }
        if !value.is_string() {
            return Err(malformed(&path(), "a string", Some(value)));
        }
    }
    // The agent reads this one.
    let for_members = |key: &str| field == "labels" && key == atoll_interpreter::RETAIN_REPLICAS;
    entries.retain(|key, _| {
        for_members(key) || !SERVER_ANNOTATIONS.contains(&key.as_str()) && !marks::is_own(key)
    });
    Ok(())
}

fn template_metadata(manifest: &mut Map<String, Value>) -> Option<&mut Value> {
    manifest.get_mut("spec")?.get_mut("template")?.get_mut("metadata")
}

fn malformed(field: &str, expected: &'static str, found: Option<&Value>) -> RenderError {
    RenderError::Malformed { field: field.to_owned(), expected, found: type_of(found) }
}
