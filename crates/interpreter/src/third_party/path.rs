//! Paths into objects, with steps over lists and maps.
//!
//! `spec.tasks[].template` visits the template of every task, `spec.replicaSpecs{}.template` that of every entry of a
//! map, and `spec.userConfig` one field.

use serde_json::Value;

/// The non-null values at a path.
pub(crate) fn values<'a>(root: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut found = vec![root];
    for step in steps(path) {
        found = found.into_iter().flat_map(|value| step.of(value)).collect();
    }
    found.retain(|value| !value.is_null());
    found
}

/// The first value at a path.
pub(crate) fn value<'a>(root: &'a Value, path: &str) -> Option<&'a Value> {
    values(root, path).into_iter().next()
}

/// The first text at a path; `""` if there is none.
pub(crate) fn text<'a>(root: &'a Value, path: &str) -> &'a str {
    value(root, path).and_then(Value::as_str).unwrap_or_default()
}

/// The first integer at a path. A number in a text counts, because some kinds write it so.
pub(crate) fn int(root: &Value, path: &str) -> Option<i64> {
    let value = value(root, path)?;
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

/// The integers at a path, with the names of the fields on the way. Lists are not visited.
pub(crate) fn ints(root: &Value, path: &str) -> Vec<(Vec<String>, i64)> {
    let mut found: Vec<(Vec<String>, &Value)> = vec![(Vec::new(), root)];
    for step in steps(path) {
        let mut next = Vec::new();
        for (names, value) in found {
            let Some(field) = value.get(step.name) else { continue };
            let mut names = names;
            names.push(step.name.to_owned());
            match step.items {
                Items::One => next.push((names, field)),
                Items::Map => {
                    next.extend(field.as_object().into_iter().flatten().map(|(name, entry)| {
                        let mut names = names.clone();
                        names.push(name.clone());
                        (names, entry)
                    }))
                }
                Items::List => {}
            }
        }
        found = next;
    }
    found.into_iter().filter_map(|(names, value)| Some((names, value.as_i64()?))).collect()
}

#[derive(Clone, Copy)]
enum Items {
    One,
    List,
    Map,
}

#[derive(Clone, Copy)]
struct Step<'p> {
    name: &'p str,
    items: Items,
}

impl Step<'_> {
    fn of(self, value: &Value) -> Vec<&Value> {
        let Some(field) = value.get(self.name) else { return Vec::new() };
        match self.items {
            Items::One => vec![field],
            Items::List => field.as_array().into_iter().flatten().collect(),
            Items::Map => field.as_object().into_iter().flatten().map(|(_, v)| v).collect(),
        }
    }
}

fn steps(path: &str) -> impl Iterator<Item = Step<'_>> {
    path.split('.').map(|word| {
        if let Some(name) = word.strip_suffix("[]") {
            Step { name, items: Items::List }
        } else if let Some(name) = word.strip_suffix("{}") {
            Step { name, items: Items::Map }
        } else {
            Step { name: word, items: Items::One }
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_visit_fields_lists_and_maps() {
        let object = json!({
            "tasks": [{"n": 1}, {"n": 2}, {}], "roles": {"a": {"n": 3}, "b": {"n": null}}, "g": "4",
        });
        assert_eq!(values(&object, "tasks[].n"), [&json!(1), &json!(2)]);
        assert_eq!(values(&object, "roles{}.n"), [&json!(3)]);
        assert_eq!(int(&object, "g"), Some(4));
        assert_eq!(values(&object, "g.n"), Vec::<&Value>::new());
        let named = vec!["roles".to_owned(), "a".to_owned(), "n".to_owned()];
        assert_eq!(ints(&object, "roles{}.n"), [(named, 3)]);
    }
}
