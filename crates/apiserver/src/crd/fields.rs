//! Reads CRDs as JSON values.

use atoll_apimachinery::meta;
use serde_json::Value;

use crate::store::TableId;

/// The CRDs' own table.
pub(crate) fn table() -> TableId {
    TableId::new("apiextensions.k8s.io", "customresourcedefinitions")
}

/// The string at a path, empty when absent.
pub(crate) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    meta::at(value, path).and_then(Value::as_str).unwrap_or("")
}

/// The string at a path, empty when absent.
pub(crate) fn texts(value: &Value, path: &str) -> Vec<String> {
    let list = meta::at(value, path).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
}

/// The table of a CRD's objects.
pub(crate) fn objects_table(definition: &Value) -> TableId {
    TableId::new(text(definition, "spec.group"), text(definition, "spec.names.plural"))
}

/// The `spec.versions` entries of a CRD.
pub(crate) fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten()
}
