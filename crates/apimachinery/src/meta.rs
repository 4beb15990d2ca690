//! Reads and writes `metadata` of objects as JSON values.

use jiff::Timestamp;
use serde_json::{Map, Value};

/// A JSON object's fields.
pub type Fields = Map<String, Value>;

/// The string at `metadata.<field>`, empty when absent.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").and_then(|m| m.get(field)).and_then(Value::as_str).unwrap_or("")
}

/// `metadata.name`, empty when absent.
pub fn name(object: &Value) -> &str {
    text(object, "name")
}

/// `metadata.namespace`, empty when absent.
pub fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

/// `metadata.uid`, empty when absent.
pub fn uid(object: &Value) -> &str {
    text(object, "uid")
}

/// `metadata.resourceVersion`, `None` when absent or empty.
pub fn resource_version(object: &Value) -> Option<&str> {
    Some(text(object, "resourceVersion")).filter(|v| !v.is_empty())
}

/// `metadata.<field>` if it is present and not null.
pub fn get<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get("metadata").and_then(|m| m.get(field)).filter(|v| !v.is_null())
}

/// The fields of `metadata`, created if absent (decoding has refused any other type).
pub fn of(object: &mut Value) -> &mut Fields {
    child(object, "metadata")
}

/// The object at `field`, created if absent, null or of another type.
pub fn child<'a>(object: &'a mut Value, field: &str) -> &'a mut Fields {
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
pub fn set(object: &mut Value, field: &str, value: Option<Value>) {
    match value {
        Some(value) => {
            of(object).insert(field.to_owned(), value);
        }
        None => {
            of(object).remove(field);
        }
    }
}

/// `metadata.generation`, 0 when absent.
pub fn generation(object: &Value) -> i64 {
    get(object, "generation").and_then(Value::as_i64).unwrap_or(0)
}

/// Whether `metadata.deletionTimestamp` is set.
pub fn is_deleting(object: &Value) -> bool {
    get(object, "deletionTimestamp").is_some()
}

/// `metadata.finalizers` as strings.
pub fn finalizers(object: &Value) -> Vec<&str> {
    get(object, "finalizers")
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

/// Sets `metadata.finalizers`; an empty list removes the field.
pub fn set_finalizers(object: &mut Value, finalizers: Vec<String>) {
    let value = (!finalizers.is_empty()).then(|| finalizers.into());
    set(object, "finalizers", value);
}

/// The value at a dotted path without lists, for example `spec.nodeName`.
pub fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |value, step| value.get(step)).filter(|v| !v.is_null())
}

/// RFC 3339 with whole seconds, as `metav1.Time` is written.
pub fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
