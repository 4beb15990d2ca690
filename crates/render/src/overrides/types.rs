//! Whether an object has the types of its kind. Karmada reads an object into the type of its kind before it changes
//! images, so an object with a wrong type is refused there. Members would refuse it too.

use atoll_api::quantity::Quantity;
use atoll_merge::schema::{Schema, Type};
use serde_json::Value;

/// The first field whose type the kind does not allow. Unknown kinds, unknown fields and nulls have no type.
pub(super) fn check(manifest: &Value) -> Result<(), String> {
    let Some(schema) = schema_of(manifest) else { return Ok(()) };
    match mismatch(manifest, &schema) {
        None => Ok(()),
        Some((mut path, problem)) => {
            path.reverse();
            Err(format!("field {} of the object {problem}", path.concat().trim_start_matches('.')))
        }
    }
}

/// Whether the value at a path has the type that the kind gives it, so that [`check`] need not look at the whole object
/// again. Below a list the answer is no.
pub(super) fn fits(manifest: &Value, path: &[String]) -> bool {
    let Some(schema) = schema_of(manifest) else { return true };
    let (mut value, mut schema) = (manifest, &schema);
    for name in path {
        let Value::Object(fields) = value else { return false };
        let Some(property) = schema.property(name) else { return true };
        let Some(below) = fields.get(name) else { return false };
        (value, schema) = (below, property);
    }
    mismatch(value, schema).is_none()
}

/// The schema of the kinds whose images can be overridden. The group is not compared, as for containers.
fn schema_of(manifest: &Value) -> Option<Schema> {
    match manifest.get("kind").and_then(Value::as_str)? {
        "Pod" => Schema::builtin("", "v1", "Pod"),
        kind @ ("ReplicaSet" | "Deployment" | "StatefulSet" | "DaemonSet") => {
            Schema::builtin("apps", "v1", kind)
        }
        "Job" => Schema::builtin("batch", "v1", "Job"),
        _ => None,
    }
}

/// The path of the first mismatch, innermost part first, and the problem.
fn mismatch(value: &Value, schema: &Schema) -> Option<(Vec<String>, String)> {
    if value.is_null() {
        return None;
    }
    if let Some(expected) = wrong(value, schema.kind()) {
        return Some((Vec::new(), format!("must be {expected}")));
    }
    match value {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            let (mut path, problem) = mismatch(value, schema.property(name)?)?;
            path.push(format!(".{name}"));
            Some((path, problem))
        }),
        Value::Array(items) => items.iter().enumerate().find_map(|(at, value)| {
            let (mut path, problem) = mismatch(value, schema.items()?)?;
            path.push(format!("[{at}]"));
            Some((path, problem))
        }),
        _ => None,
    }
}

fn wrong(value: &Value, kind: Type) -> Option<&'static str> {
    let whole = || value.as_f64().is_some_and(|number| number.fract() == 0.0);
    let quantity = |text: &str| Quantity::new(text).milli().is_ok();
    let (fits, expected) = match kind {
        Type::Any => (true, ""),
        Type::Object => (value.is_object(), "a map"),
        Type::Array => (value.is_array(), "a list"),
        Type::String => (value.is_string(), "a string"),
        Type::Integer => (whole(), "an integer"),
        Type::Number => (value.is_number(), "a number"),
        Type::Boolean => (value.is_boolean(), "a boolean"),
        Type::IntOrString => (value.is_string() || whole(), "an integer or a string"),
        Type::Quantity => (value.is_number() || value.as_str().is_some_and(quantity), "a quantity"),
    };
    (!fits).then_some(expected)
}
