//! `labelsOverrider` and `annotationsOverrider`.

use atoll_api::marks;
use atoll_api::override_policy::{LabelAnnotationOverrider, OverriderOperator};
use serde_json::{Value, json};

/// Changes the entries of `metadata.FIELD` (`labels` or `annotations`).
pub(super) fn apply(
    manifest: &mut Value,
    field: &str,
    change: &LabelAnnotationOverrider,
) -> Result<(), String> {
    for (key, value) in &change.value {
        let entries = manifest.get_mut("metadata").and_then(|metadata| metadata.get_mut(field));
        let exists = entries.as_ref().is_some_and(|entries| entries.get(key).is_some());
        if change.operator != OverriderOperator::Add && !exists {
            continue;
        }
        if marks::is_own(key) {
            return Err(format!("{key:?} is a mark that only Atoll sets: remove it"));
        }
        if change.operator == OverriderOperator::Remove {
            if let Some(Value::Object(entries)) = entries {
                entries.remove(key);
            }
            continue;
        }
        let Some(Value::Object(metadata)) = manifest.get_mut("metadata") else {
            return Err("metadata of the object is not a map".to_owned());
        };
        let entries = metadata.entry(field).or_insert(Value::Null);
        if entries.is_null() {
            *entries = json!({});
        }
        let Value::Object(entries) = entries else {
            return Err(format!("metadata.{field} of the object is not a map"));
        };
        entries.insert(key.clone(), json!(value));
    }
    Ok(())
}
