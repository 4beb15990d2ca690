//! CustomResourceDefinitions: their validation, and what their kinds need besides a definition: rules and columns.

pub(crate) mod cel;
pub(crate) mod columns;
pub(crate) mod custom;
pub(crate) mod definition;
pub(crate) mod fields;
mod functions;
mod jsonpath;

use serde_json::Value;

pub(crate) use self::fields::{objects_table, table};

/// Whether the update left the value at a path unchanged. Violations of such values are ignored (validation ratcheting,
/// so that a stricter CRD does not freeze existing objects). A missing value is unchanged if its parent is.
pub(crate) fn unchanged(old: &Value, new: &Value, path: &str) -> bool {
    let Ok(parsed) = jsonpath::JsonPath::parse(path) else { return false };
    match (parsed.first(old), parsed.first(new)) {
        (Some(before), Some(after)) => before == after,
        (None, None) => {
            let parent = path.rfind(['.', '[']).map_or("", |end| &path[..end]);
            !parent.is_empty() && unchanged(old, new, parent)
        }
        _ => false,
    }
}
