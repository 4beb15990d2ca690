//! Empty tables: Lua cannot tell an empty list from an empty map. As in Karmada, an empty table is what the object had
//! at the same path (without the positions in lists), and is left out if the object had nothing empty there.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::convert::Shape;

/// The paths at which objects have empty lists and maps.
#[derive(Default)]
struct Known<'a> {
    lists: HashSet<Vec<&'a str>>,
    maps: HashSet<Vec<&'a str>>,
}

impl<'a> Known<'a> {
    fn add(&mut self, value: &'a Value, path: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    path.push(name);
                    self.note(field, path);
                    path.pop();
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.note(item, path)),
            _ => {}
        }
    }

    fn note(&mut self, value: &'a Value, path: &mut Vec<&'a str>) {
        match value {
            Value::Array(items) if items.is_empty() => {
                self.lists.insert(path.clone());
            }
            Value::Object(fields) if fields.is_empty() => {
                self.maps.insert(path.clone());
            }
            other => self.add(other, path),
        }
    }

    /// What the empty table at a path is; `None` if it is left out.
    fn empty(&self, path: &[&str]) -> Option<Value> {
        if self.maps.contains(path) {
            Some(Value::Object(Map::new()))
        } else if self.lists.contains(path) {
            Some(Value::Array(Vec::new()))
        } else {
            None
        }
    }

    fn settle(&self, value: Value, path: &[&str]) -> Option<Value> {
        match value {
            Value::Array(items) if items.is_empty() => self.empty(path),
            Value::Array(items) => {
                let items = items.into_iter().filter_map(|item| self.settle(item, path));
                Some(Value::Array(items.collect()))
            }
            Value::Object(fields) => {
                let fields = fields.into_iter().filter_map(|(name, field)| {
                    let path: Vec<&str> = path.iter().copied().chain([name.as_str()]).collect();
                    let field = self.settle(field, &path)?;
                    Some((name, field))
                });
                Some(Value::Object(fields.collect()))
            }
            other => Some(other),
        }
    }
}

/// Decides what the empty tables of a result are.
pub(super) fn settle(value: Value, top: Shape, references: &[&Value]) -> Value {
    let empty = match top {
        Shape::List => Value::Array(Vec::new()),
        Shape::Map => Value::Object(Map::new()),
    };
    if value.as_array().is_some_and(Vec::is_empty) {
        return empty;
    }
    let mut known = Known::default();
    for reference in references {
        known.add(reference, &mut Vec::new());
    }
    known.settle(value, &[]).unwrap_or(empty)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_empty_table_is_what_the_object_had_there() {
        let object = json!({"a": {}, "b": [], "c": [{"d": {}}], "e.f": {"g": []}, "h": [[]]});
        let result =
            json!({"a": [], "b": [], "c": [{"d": []}, {"x": []}], "e.f": {"g": []}, "new": []});
        let settled = settle(result, Shape::Map, &[&object]);
        assert_eq!(settled, json!({"a": {}, "b": [], "c": [{"d": {}}, {}], "e.f": {"g": []}}));
        assert_eq!(settle(json!([]), Shape::Map, &[]), json!({}));
        assert_eq!(settle(json!([]), Shape::List, &[]), json!([]));
        assert_eq!(settle(json!({"a": [1, []]}), Shape::Map, &[]), json!({"a": [1]}));
    }
}
