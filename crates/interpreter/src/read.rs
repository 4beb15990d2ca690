//! Reads fields of JSON objects.

use serde_json::{Map, Value};

/// The value at a path of field names.
pub(crate) fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |v, name| v.get(name)).filter(|v| !v.is_null())
}

/// The text at a path; `""` if there is none.
pub(crate) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// The integer at a path.
pub(crate) fn int(value: &Value, path: &[&str]) -> Option<i64> {
    at(value, path).and_then(Value::as_i64)
}

/// The flag at a path; false if there is none.
pub(crate) fn flag(value: &Value, path: &[&str]) -> bool {
    at(value, path).and_then(Value::as_bool).unwrap_or(false)
}

/// The list at a path; empty if there is none.
pub(crate) fn list<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The entries of the map at a path; empty if there is none.
pub(crate) fn map<'a>(
    value: &'a Value,
    path: &[&str],
) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let entries = at(value, path).and_then(Value::as_object);
    entries.into_iter().flatten().map(|(name, v)| (name.as_str(), v))
}

/// A map with the named fields that `value` has.
pub(crate) fn pick(value: &Value, names: &[&str]) -> Map<String, Value> {
    let fields =
        names.iter().filter_map(|name| Some(((*name).to_owned(), at(value, &[name])?.clone())));
    fields.collect()
}
