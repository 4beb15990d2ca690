//! Merges an applied configuration into the live object.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    path::PathElement,
    typed::{Shape, is_empty, items_by_identity, shape},
};
use crate::schema::Schema;

/// The live object with all values of the configuration. Nothing is removed.
pub(super) fn merge(live: &Value, config: &Value, schema: &Schema) -> Value {
    match (live, config) {
        (Value::Object(old), Value::Object(new)) if shape(live, schema) == Shape::Map => {
            let mut out = old.clone();
            for (name, v) in new {
                let inner = schema.property(name).unwrap_or_else(|| Schema::untyped());
                let merged = old.get(name).map_or_else(|| v.clone(), |o| merge(o, v, inner));
                out.insert(name.clone(), merged);
            }
            Value::Object(out)
        }
        (Value::Array(old), Value::Array(new)) if shape(live, schema) == Shape::List => {
            Value::Array(merge_items(old, new, schema))
        }
        // A null does not change a map or list that merges.
        (_, Value::Null) if shape(live, schema) != Shape::Leaf && !is_empty(live) => live.clone(),
        _ => config.clone(),
    }
}

/// Items in both lists come in the configuration's order. Items that only the live object has stay after the items that
/// they followed.
fn merge_items(old: &[Value], new: &[Value], schema: &Schema) -> Vec<Value> {
    let inner = schema.items_or_untyped();
    // An identity that occurs several times in the live list is replaced as a whole, not merged.
    let old_by_id: BTreeMap<PathElement, Option<&Value>> = items_by_identity(old, schema)
        .into_iter()
        .map(|(id, items)| (id, if let [item] = items[..] { Some(item) } else { None }))
        .collect();
    let wanted: Vec<(PathElement, &Value)> = items_by_identity(new, schema)
        .into_iter()
        .filter_map(|(id, items)| Some((id, *items.first()?)))
        .collect();
    let in_config: BTreeSet<&PathElement> = wanted.iter().map(|(id, _)| id).collect();
    let live: Vec<(Option<PathElement>, &Value)> =
        old.iter().map(|item| (PathElement::of_item(item, schema).ok(), item)).collect();
    let mut shared = wanted.iter().map(|(id, _)| id).filter(|id| old_by_id.contains_key(*id));

    let mut out = Vec::with_capacity(old.len().max(new.len()));
    let mut next_shared = shared.next();
    let mut placed: BTreeSet<&PathElement> = BTreeSet::new();
    let (mut l, mut c) = (0, 0);
    while l < live.len() || c < wanted.len() {
        if let Some((id, item)) = live.get(l) {
            let Some(id) = id.as_ref().filter(|id| in_config.contains(id)) else {
                out.push((*item).clone());
                l += 1;
                continue;
            };
            // The item is already placed, or the configuration places it later.
            if placed.contains(id) || next_shared.is_some_and(|next| next != id) {
                l += 1;
                continue;
            }
        }
        let Some((id, item)) = wanted.get(c) else { break };
        let merged = match old_by_id.get(id) {
            Some(Some(before)) => merge(before, item, inner),
            _ => (*item).clone(),
        };
        out.push(merged);
        placed.insert(id);
        if next_shared == Some(id) {
            next_shared = shared.next();
        }
        c += 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(value: &Value) -> String {
        value.as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect()
    }

    #[test]
    fn shared_items_take_the_order_of_the_configuration() {
        let schema = Schema::builtin("", "v1", "Pod").unwrap();
        for (live, config, expected) in [
            ("abc", "d", "abcd"),
            ("abc", "ca", "bca"),
            ("abc", "cb", "acb"),
            ("abc", "xaby", "xabcy"),
            ("abc", "abc", "abc"),
            ("", "ba", "ba"),
            ("abcd", "dxb", "acdxb"),
        ] {
            let list = |s: &str| s.chars().map(|c| Value::from(c.to_string())).collect::<Value>();
            let object = |s: &str| json!({"metadata": {"finalizers": list(s)}});
            let out = merge(&object(live), &object(config), &schema);
            assert_eq!(names(&out["metadata"]["finalizers"]), expected, "{live} + {config}");
        }
    }

    #[test]
    fn items_that_the_live_list_has_twice_are_replaced_as_one() {
        let schema = Schema::builtin("", "v1", "Pod").unwrap();
        let ports = |items: Value| json!({"spec": {"containers": [{"name": "a", "ports": items}]}});
        let live = ports(json!([
            {"containerPort": 1, "name": "x"}, {"containerPort": 2},
            {"containerPort": 1, "protocol": "TCP", "name": "y"},
        ]));
        let config = ports(json!([{"containerPort": 1, "hostPort": 9}]));
        let expected = ports(json!([{"containerPort": 1, "hostPort": 9}, {"containerPort": 2}]));
        assert_eq!(merge(&live, &config, &schema), expected);
        assert_eq!(merge(&live, &ports(json!([])), &schema), live);
    }
}
