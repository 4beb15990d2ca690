//! Reads JSON by pointer: objects stay as the server sent them, and each behaviour reads the few fields it needs.

use std::collections::BTreeMap;

use atoll_api::selector::Selector;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Map, Value};

/// The text at a JSON pointer.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer)?.as_str()
}

/// The whole number at a JSON pointer.
pub(crate) fn int(value: &Value, pointer: &str) -> Option<i64> {
    value.pointer(pointer)?.as_i64()
}

/// The counter at a JSON pointer; absent is zero, as Kubernetes leaves zero counters out.
pub(crate) fn count(value: &Value, pointer: &str) -> i64 {
    int(value, pointer).unwrap_or(0)
}

/// Whether the field at a JSON pointer is `true`.
pub(crate) fn flag(value: &Value, pointer: &str) -> bool {
    value.pointer(pointer).and_then(Value::as_bool).unwrap_or(false)
}

/// The list at a JSON pointer; absent is empty.
pub(crate) fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The map at a JSON pointer.
pub(crate) fn map<'a>(value: &'a Value, pointer: &str) -> Option<&'a Map<String, Value>> {
    value.pointer(pointer)?.as_object()
}

/// The map of texts at a JSON pointer (labels, annotations, nodeSelector); absent is empty.
pub(crate) fn strings(value: &Value, pointer: &str) -> BTreeMap<String, String> {
    map(value, pointer)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// The time at a JSON pointer.
pub(crate) fn time(value: &Value, pointer: &str) -> Option<Timestamp> {
    text(value, pointer)?.parse().ok()
}

/// A time as Kubernetes writes it: RFC 3339 with whole seconds.
pub(crate) fn stamp(at: Timestamp) -> Value {
    Value::String(Timestamp::from_second(at.as_second()).unwrap_or(at).to_string())
}

/// The label selector at a JSON pointer; `None` when it is absent or malformed.
pub(crate) fn any_selector(value: &Value, pointer: &str) -> Option<Selector> {
    let selector: LabelSelector = serde_json::from_value(value.pointer(pointer)?.clone()).ok()?;
    Selector::parse(&selector).ok()
}

/// The label selector of a workload. `None` also when it selects everything: a workload controller must never act on
/// that (the API server refuses it).
pub(crate) fn selector(value: &Value, pointer: &str) -> Option<Selector> {
    any_selector(value, pointer).filter(|selector| !selector.requirements().is_empty())
}

/// An `IntOrString` as a number of `total`: a percentage is rounded up or down, anything unreadable is `None`.
pub(crate) fn scaled(value: Option<&Value>, total: i64, round_up: bool) -> Option<i64> {
    match value? {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => {
            let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
            let product = percent.checked_mul(total)?;
            Some(if round_up { (product + 99).div_euclid(100) } else { product.div_euclid(100) })
        }
        _ => None,
    }
}

/// A JSON merge patch (RFC 7386) that turns `old` into `new`, or `None` when they are equal. Nulls in `new` mean
/// "absent": a merge patch cannot store them.
pub(crate) fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return Some(new.clone());
    };
    let mut patch = Map::new();
    for key in old.keys().filter(|key| new.get(*key).is_none_or(Value::is_null)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new.iter().filter(|(_, value)| !value.is_null()) {
        match old.get(key) {
            Some(before) => {
                if let Some(inner) = merge_patch(before, value) {
                    patch.insert(key.clone(), inner);
                }
            }
            None => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_merge_patch_holds_only_the_difference() {
        let old = json!({"a": 1, "b": {"c": 1, "d": [1]}, "e": "x"});
        assert_eq!(merge_patch(&old, &old), None);
        let new = json!({"a": 1, "b": {"c": 2, "d": [1, 2]}, "f": 0});
        let patch = json!({"b": {"c": 2, "d": [1, 2]}, "e": null, "f": 0});
        assert_eq!(merge_patch(&old, &new), Some(patch));
        assert_eq!(merge_patch(&json!({"a": 1}), &json!({"a": null})), Some(json!({"a": null})));
        assert_eq!(merge_patch(&json!({}), &json!({"a": null})), None);
    }

    #[test]
    fn percentages_round_as_asked() {
        let quarter = json!("25%");
        assert_eq!(scaled(Some(&quarter), 3, true), Some(1));
        assert_eq!(scaled(Some(&quarter), 3, false), Some(0));
        assert_eq!(scaled(Some(&json!(2)), 3, false), Some(2));
        assert_eq!(scaled(Some(&json!("two")), 3, false), None);
        assert_eq!(scaled(None, 3, false), None);
    }
}
