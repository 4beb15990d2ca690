//! Properties of every history of writes.

use proptest::prelude::*;

use super::*;
use crate::managed::PathElement;

fn schema() -> Schema {
    crd(json!({
        "leaf": number(),
        "struct": object(json!({"a": text(), "b": set(text()), "c": map(text())})),
        "list": keyed(&["name"], json!({
            "name": text(), "value": number(), "tags": set(text()), "map": map(map(text())),
        })),
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "whole": {"type": "array", "items": text()},
    }))
}

fn optional(name: &'static str, value: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    prop::option::of(value)
        .prop_map(move |v| v.map_or_else(|| json!({}), |v| json!({ name: v })))
        .boxed()
}

fn fields(fields: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    let all: Vec<_> = fields.into_iter().map(|(name, v)| optional(name, v)).collect();
    let join = |parts: Vec<Value>| {
        parts.into_iter().filter_map(|p| p.as_object().cloned()).flatten().collect()
    };
    all.prop_map(join).boxed()
}

fn words() -> BoxedStrategy<Value> {
    "[a-c]".prop_map(Value::from).boxed()
}

fn subset() -> BoxedStrategy<Value> {
    // Not empty, because an empty list has no owner, see below.
    let all = vec!["x", "y", "z"];
    prop::sample::subsequence(all, 1..=3).prop_shuffle().prop_map(Value::from).boxed()
}

fn maps(values: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    prop::collection::btree_map("[a-c]", values, 0..3)
        .prop_map(|m| Value::Object(m.into_iter().collect()))
        .boxed()
}

fn objects() -> BoxedStrategy<Value> {
    let numbers = (0..3_i64).prop_map(Value::from).boxed();
    let item =
        fields(vec![("value", numbers.clone()), ("tags", subset()), ("map", maps(maps(words())))]);
    let list = prop::collection::btree_map("[p-r]", item, 1..3).prop_map(|items| {
        let named = items.into_iter().map(|(name, mut item)| {
            item["name"] = json!(name);
            item
        });
        named.collect::<Value>()
    });
    let inner = fields(vec![("a", words()), ("b", subset()), ("c", maps(words()))]);
    fields(vec![
        ("leaf", numbers),
        ("struct", inner),
        ("list", list.boxed()),
        ("free", maps(maps(words()))),
        ("whole", subset()),
    ])
}

/// A history of writes by three managers; update replaces the object, apply merges by force.
fn histories() -> impl Strategy<Value = Vec<(bool, usize, Value)>> {
    prop::collection::vec((any::<bool>(), 0..3_usize, objects()), 0..6)
}

const MANAGERS: [&str; 3] = ["one", "two", "three"];

fn replay(history: &[(bool, usize, Value)]) -> Server {
    let mut server = Server::new(schema());
    for (apply, manager, object) in history {
        if *apply {
            server.apply(MANAGERS[*manager], object, true).unwrap();
        } else {
            let mut object = object.clone();
            if let Some(live) = &server.live {
                object["metadata"] = live["metadata"].clone();
            }
            server.update(MANAGERS[*manager], &object);
        }
    }
    server
}

/// Whether the object has all values of the configuration. Lists are compared as sets.
fn holds(object: &Value, config: &Value) -> bool {
    match (object, config) {
        (Value::Object(o), Value::Object(c)) => {
            c.iter().all(|(name, v)| o.get(name).is_some_and(|w| holds(w, v)))
        }
        (Value::Array(o), Value::Array(c)) => c.iter().all(|v| o.iter().any(|w| holds(w, v))),
        _ => object == config,
    }
}

/// Follows one element of a path into an object.
fn follow<'a>(value: &'a Value, step: &PathElement) -> Option<&'a Value> {
    match step {
        PathElement::Field(name) => value.get(name),
        PathElement::Index(_) => None,
        PathElement::Value(atom) => value.as_array()?.iter().find(|v| **v == atom.0),
        PathElement::Key(keys) => value
            .as_array()?
            .iter()
            .find(|item| keys.iter().all(|(name, atom)| item.get(name) == Some(&atom.0))),
    }
}

/// As upstream: the list exists without an owner, and is removed together with its items.
#[test]
fn an_applied_empty_list_is_not_owned() {
    let mut server = Server::new(schema());
    server.apply("one", &json!({"leaf": 1, "list": []}), false).unwrap();
    let (object, owned) = server.state();
    assert_eq!(object, json!({"leaf": 1, "list": []}));
    assert_eq!(owned["one"], [".leaf"]);
    server.apply("one", &json!({"leaf": 1, "list": [{"name": "p"}]}), false).unwrap();
    server.apply("one", &json!({"leaf": 1, "list": []}), false).unwrap();
    assert_eq!(server.state().0, json!({"leaf": 1}));
}

proptest! {
    #[test]
    fn applying_twice_is_applying_once(history in histories(), config in objects()) {
        let mut server = replay(&history);
        server.apply("one", &config, true).unwrap();
        let once = server.live.clone();
        server.apply("one", &config, false).unwrap();
        prop_assert_eq!(server.live, once);
    }

    #[test]
    fn what_is_applied_is_so(history in histories(), config in objects()) {
        let mut server = replay(&history);
        server.apply("one", &config, true).unwrap();
        let live = server.live.unwrap();
        prop_assert!(holds(&live, &config), "{} lacks {}", live, config);
    }

    #[test]
    fn an_apply_that_is_taken_back_by_its_only_owner_leaves_no_trace(config in objects()) {
        let mut server = Server::new(schema());
        server.apply("one", &config, false).unwrap();
        server.apply("one", &json!({}), false).unwrap();
        prop_assert_eq!(server.live.unwrap(), json!({"metadata": {}}));
    }

    #[test]
    fn an_update_that_changes_nothing_changes_no_owner(history in histories()) {
        let mut server = replay(&history);
        if let Some(live) = server.live.clone() {
            server.update("four", &live);
            prop_assert_eq!(server.live.unwrap(), live);
        }
    }

    #[test]
    fn nobody_owns_what_is_not_there(history in histories()) {
        let server = replay(&history);
        let Some(live) = &server.live else { return Ok(()) };
        for entry in server.entries() {
            let fields = FieldSet::from_json(&entry["fieldsV1"]).unwrap();
            for path in fields.paths() {
                let there = path.iter().try_fold(live, follow).is_some();
                prop_assert!(there, "{}: {} in {}", entry["manager"], display_path(&path), live);
            }
        }
    }
}
