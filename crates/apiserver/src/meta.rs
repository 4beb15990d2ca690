//! Reads and writes `metadata` of objects as JSON values.

use jiff::Timestamp;
use serde_json::{Map, Value};

/// A JSON object's fields.
pub(crate) type Fields = Map<String, Value>;

/// The string at `metadata.<field>`, empty when absent.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").and_then(|m| m.get(field)).and_then(Value::as_str).unwrap_or("")
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "name")
}

pub(crate) fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

pub(crate) fn uid(object: &Value) -> &str {
    text(object, "uid")
}

/// `metadata.resourceVersion`, `None` when absent or empty.
pub(crate) fn resource_version(object: &Value) -> Option<&str> {
    Some(text(object, "resourceVersion")).filter(|v| !v.is_empty())
}

/// `metadata.<field>` if it is present and not null.
pub(crate) fn get<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get("metadata").and_then(|m| m.get(field)).filter(|v| !v.is_null())
}

/// The fields of `metadata`, created if absent (decoding has refused any other type).
pub(crate) fn of(object: &mut Value) -> &mut Fields {
    child(object, "metadata")
}

/// The object at `field`, created if absent, null or of another type.
pub(crate) fn child<'a>(object: &'a mut Value, field: &str) -> &'a mut Fields {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let fields = object.as_object_mut().expect("made an object above");
    let slot = fields.entry(field).or_insert(Value::Null);
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut().expect("made an object above")
}

/// Sets or removes `metadata.<field>`.
pub(crate) fn set(object: &mut Value, field: &str, value: Option<Value>) {
    match value {
        Some(value) => {
            of(object).insert(field.to_owned(), value);
        }
        None => {
            of(object).remove(field);
        }
    }
}

pub(crate) fn generation(object: &Value) -> i64 {
    get(object, "generation").and_then(Value::as_i64).unwrap_or(0)
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    get(object, "deletionTimestamp").is_some()
}

/// `metadata.finalizers` as strings.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    get(object, "finalizers")
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

pub(crate) fn set_finalizers(object: &mut Value, finalizers: Vec<String>) {
    let value = (!finalizers.is_empty()).then(|| finalizers.into());
    set(object, "finalizers", value);
}

/// The value at a dotted path without lists, for example `spec.nodeName`.
pub(crate) fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |value, step| value.get(step)).filter(|v| !v.is_null())
}

/// RFC 3339 with whole seconds, as `metav1.Time` is written.
pub(crate) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
