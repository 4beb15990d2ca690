//! The merge patch (RFC 7386) between two values.

use serde_json::{Map, Value};

/// The patch that makes `after` of `before`; nothing where they are equal. Lists are replaced as a whole.
#[must_use]
pub(crate) fn merge_patch(before: &Value, after: &Value) -> Option<Value> {
    if before == after {
        return None;
    }
    let (Value::Object(before), Value::Object(after)) = (before, after) else {
        return Some(after.clone());
    };
    let mut patch = Map::new();
    for (key, value) in after {
        match before.get(key) {
            None => {
                patch.insert(key.clone(), value.clone());
            }
            Some(old) => {
                if let Some(change) = merge_patch(old, value) {
                    patch.insert(key.clone(), change);
                }
            }
        }
    }
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// RFC 7386, section 2.
    fn apply(target: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else {
            *target = patch.clone();
            return;
        };
        if !target.is_object() {
            *target = json!({});
        }
        let object = target.as_object_mut().unwrap();
        for (key, value) in patch {
            if value.is_null() {
                object.remove(key);
            } else {
                apply(object.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }

    #[test]
    fn the_patch_makes_the_one_of_the_other() {
        let values = [
            json!({}),
            json!({"a": 1}),
            json!({"a": {"b": [1, 2], "c": "x"}}),
            json!({"a": {"b": [2]}, "d": {}}),
            json!({"a": {"c": "x"}, "d": {"e": {"f": true}}}),
        ];
        for before in &values {
            for after in &values {
                let patch = merge_patch(before, after);
                assert_eq!(patch.is_none(), before == after);
                let mut patched = before.clone();
                if let Some(patch) = patch {
                    apply(&mut patched, &patch);
                }
                assert_eq!(patched, *after);
            }
        }
    }
}
