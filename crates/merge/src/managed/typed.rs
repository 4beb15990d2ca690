//! Objects with their schema: the fields that a value sets, the difference of two values, and a value without some of
//! its fields.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{fieldset::FieldSet, path::PathElement};
use crate::{
    schema::{ListType, Schema, Type},
    value::{child, element, same, type_name},
};

/// How a value is divided into fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// One value: a scalar, or a map or list that is atomic.
    Leaf,
    /// Field by field.
    Map,
    /// Item by item.
    List,
}

pub(super) fn shape(value: &Value, schema: &Schema) -> Shape {
    let node = schema.node();
    match value {
        Value::Object(_) if !node.atomic_map => Shape::Map,
        Value::Array(_) if node.list != ListType::Atomic => Shape::List,
        _ => Shape::Leaf,
    }
}

pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn items_of(list: Option<&Value>) -> &[Value] {
    list.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The items of a list by identity, in order of first occurrence. Items without identity are left out: a stored object
/// may contain items that the current schema rejects, and no manager can own them.
pub(super) fn items_by_identity<'a>(
    items: &'a [Value],
    list: &Schema,
) -> Vec<(PathElement, Vec<&'a Value>)> {
    let mut places: BTreeMap<PathElement, usize> = BTreeMap::new();
    let mut out: Vec<(PathElement, Vec<&Value>)> = Vec::with_capacity(items.len());
    for item in items {
        let Ok(identity) = PathElement::of_item(item, list) else { continue };
        let place = *places.entry(identity.clone()).or_insert(out.len());
        if place == out.len() {
            out.push((identity, vec![item]));
        } else {
            out[place].1.push(item);
        }
    }
    out
}

/// All leaves that the value sets, and all items and map keys above them.
pub(super) fn field_set(value: &Value, schema: &Schema) -> FieldSet {
    let mut set = FieldSet::default();
    collect(value, schema, &mut Vec::new(), &mut set);
    set
}

fn collect(value: &Value, schema: &Schema, path: &mut Vec<PathElement>, set: &mut FieldSet) {
    match (shape(value, schema), value) {
        (Shape::Map, Value::Object(fields)) => {
            for (name, v) in fields {
                let Some(field) = schema.field(name) else { continue };
                path.push(PathElement::Field(name.clone()));
                collect(v, field.schema, path, set);
                let empty_map = v.is_object() && is_empty(v);
                if !field.named || empty_map {
                    set.insert(path);
                }
                path.pop();
            }
        }
        (Shape::List, Value::Array(items)) => {
            for (identity, same) in items_by_identity(items, schema) {
                path.push(identity);
                // Items with the same identity are owned together, without their content.
                if let [item] = same[..] {
                    collect(item, schema.items_or_untyped(), path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
        _ => set.insert(path),
    }
}

/// The difference between two values.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    pub(super) added: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) removed: FieldSet,
}

impl Comparison {
    /// Whether nothing was added, changed or removed.
    pub(super) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }
}

/// Compares an object before and after a write.
pub(super) fn compare(before: &Value, after: &Value, schema: &Schema) -> Comparison {
    let mut walk = Walk { path: Vec::new(), found: Comparison::default() };
    walk.values(Some(before), Some(after), schema);
    walk.found
}

struct Walk {
    path: Vec<PathElement>,
    found: Comparison,
}

impl Walk {
    fn values(&mut self, before: Option<&Value>, after: Option<&Value>, schema: &Schema) {
        match (before, after) {
            (None, None) => {}
            (Some(v), None) => {
                self.children(Some(v), None, schema);
                self.found.removed.insert(&self.path);
            }
            (None, Some(v)) => {
                self.children(None, Some(v), schema);
                self.found.added.insert(&self.path);
            }
            (Some(b), Some(a)) => {
                // Null compares like an empty map or list.
                if b.is_null() && !is_empty(a) && shape(a, schema) != Shape::Leaf {
                    return self.children(None, Some(a), schema);
                }
                if a.is_null() && !is_empty(b) && shape(b, schema) != Shape::Leaf {
                    return self.children(Some(b), None, schema);
                }
                let (was, is) = (shape(b, schema), shape(a, schema));
                if was == is && was != Shape::Leaf {
                    self.children(before, after, schema);
                } else if was == is {
                    if !same(b, a) {
                        self.found.modified.insert(&self.path);
                    }
                } else {
                    self.children(before, None, schema);
                    self.children(None, after, schema);
                    self.found.modified.insert(&self.path);
                }
            }
        }
    }

    fn children(&mut self, before: Option<&Value>, after: Option<&Value>, schema: &Schema) {
        let Some(some) = before.or(after) else { return };
        match shape(some, schema) {
            Shape::Leaf => {}
            Shape::Map => {
                let (before, after) =
                    (before.and_then(Value::as_object), after.and_then(Value::as_object));
                let old = before.into_iter().flatten();
                let new = after
                    .into_iter()
                    .flatten()
                    .filter(|(name, _)| !before.is_some_and(|b| b.contains_key(*name)));
                for (name, _) in old.chain(new) {
                    let Some(field) = schema.field(name) else { continue };
                    let b = before.and_then(|b| b.get(name));
                    let a = after.and_then(|a| a.get(name));
                    // Most of an object is unchanged and needs no paths below.
                    if let (Some(b), Some(a)) = (b, a)
                        && same(b, a)
                    {
                        continue;
                    }
                    self.path.push(PathElement::Field(name.clone()));
                    self.values(b, a, field.schema);
                    self.path.pop();
                }
            }
            Shape::List => self.items(before, after, schema),
        }
    }

    fn items(&mut self, before: Option<&Value>, after: Option<&Value>, schema: &Schema) {
        let mut old: BTreeMap<PathElement, Vec<&Value>> =
            items_by_identity(items_of(before), schema).into_iter().collect();
        let inner = schema.items_or_untyped();
        for (identity, new) in items_by_identity(items_of(after), schema) {
            let old = old.remove(&identity).unwrap_or_default();
            self.path.push(identity);
            self.item(&old, &new, inner);
            self.path.pop();
        }
        for (identity, old) in old {
            self.path.push(identity);
            self.item(&old, &[], inner);
            self.path.pop();
        }
    }

    /// Compares the items with one identity, usually at most one on either side. Repeated items count as one value.
    fn item(&mut self, old: &[&Value], new: &[&Value], schema: &Schema) {
        match (old, new) {
            ([] | [_], [] | [_]) => {
                self.values(old.first().copied(), new.first().copied(), schema);
            }
            ([_, _, ..], [_, _, ..]) => {
                let equal = old.len() == new.len() && old.iter().zip(new).all(|(o, n)| same(o, n));
                if !equal {
                    self.found.modified.insert(&self.path);
                }
            }
            ([_, _, ..], _) => {
                self.values(None, new.first().copied(), schema);
                self.found.removed.insert(&self.path);
            }
            (_, _) => {
                self.values(old.first().copied(), None, schema);
                self.found.added.insert(&self.path);
            }
        }
    }
}

/// The value without the fields of `set`. A map or list that becomes empty stays, unless the set contains it.
pub(super) fn without(value: &Value, set: &FieldSet, schema: &Schema) -> Value {
    match (shape(value, schema), value) {
        (Shape::Map, Value::Object(fields)) => {
            let kept = fields.iter().filter_map(|(name, v)| {
                let step = PathElement::Field(name.clone());
                if set.has(&step) {
                    return None;
                }
                let inner = schema.property(name).unwrap_or_else(|| Schema::untyped());
                let v = set.below(&step).map_or_else(|| v.clone(), |s| without(v, s, inner));
                Some((name.clone(), v))
            });
            Value::Object(kept.collect())
        }
        (Shape::List, Value::Array(items)) => {
            let inner = schema.items_or_untyped();
            let kept = items.iter().filter_map(|item| {
                let Ok(step) = PathElement::of_item(item, schema) else {
                    return Some(item.clone());
                };
                if set.has(&step) {
                    return None;
                }
                Some(set.below(&step).map_or_else(|| item.clone(), |s| without(item, s, inner)))
            });
            Value::Array(kept.collect())
        }
        _ => value.clone(),
    }
}

/// Why a value cannot be applied: fields that are not in the schema, values of another type, and items of keyed lists
/// and sets that lack an identity or repeat one.
pub(super) fn misfits(value: &Value, schema: &Schema) -> Vec<String> {
    let mut out = Vec::new();
    find_misfits(value, schema, "", &mut out);
    out
}

fn find_misfits(value: &Value, schema: &Schema, path: &str, out: &mut Vec<String>) {
    let expected = match (schema.kind(), value) {
        (Type::Any, _) | (_, Value::Null) => None,
        (Type::Object, v) => (!v.is_object()).then_some("map"),
        (Type::Array, v) => (!v.is_array()).then_some("list"),
        (Type::String, v) => (!v.is_string()).then_some("string"),
        (Type::Integer | Type::Number, v) => (!v.is_number()).then_some("numeric (int or float)"),
        (Type::Boolean, v) => (!v.is_boolean()).then_some("boolean"),
        (Type::IntOrString | Type::Quantity, v) => {
            (!v.is_string() && !v.is_number()).then_some("string or number")
        }
    };
    if let Some(expected) = expected {
        out.push(format!(".{path}: expected {expected}, got {}", type_name(value)));
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, v) in fields {
                let at = child(path, name);
                match schema.field(name) {
                    Some(field) => find_misfits(v, field.schema, &at, out),
                    None => out.push(format!(".{at}: field not declared in schema")),
                }
            }
        }
        Value::Array(items) => {
            let tracked = shape(value, schema) == Shape::List;
            let mut seen = BTreeMap::new();
            for (i, item) in items.iter().enumerate() {
                let at = element(path, i);
                if tracked {
                    match PathElement::of_item(item, schema) {
                        Err(why) => out.push(format!(".{at}: {why}")),
                        Ok(identity) => {
                            if let Some(identity) =
                                seen.insert(identity, i).map(|first| element(path, first))
                            {
                                out.push(format!(
                                    ".{at}: duplicate entry, the same as .{identity}"
                                ));
                            }
                        }
                    }
                }
                find_misfits(item, schema.items_or_untyped(), &at, out);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn items_that_cannot_be_told_apart_are_owned_without_their_content() {
        let schema = Schema::builtin("", "v1", "Pod").unwrap();
        let pod = json!({"spec": {"containers": [
            {"name": "a", "image": "1"}, {"name": "b", "image": "2"}, {"name": "a", "image": "3"},
        ]}});
        let expected = json!({"f:spec": {"f:containers": {
            "k:{\"name\":\"a\"}": {},
            "k:{\"name\":\"b\"}": {".": {}, "f:name": {}, "f:image": {}},
        }}});
        assert_eq!(field_set(&pod, &schema).to_json(), expected);
    }
}
