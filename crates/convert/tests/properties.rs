//! Nothing of an object is lost without a line in the report, whatever the object holds.

#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

use std::collections::BTreeMap;

use atoll_convert::{Class, Converted, Converter, Fault, Line, Options, Purpose};
use atoll_merge::schema::{self, Schema};
use proptest::prelude::*;
use serde_json::{Value, json};

/// One object of each kind, with all fields that Karmada's API has.
fn samples() -> Vec<Value> {
    serde_json::from_str(include_str!("samples/karmada.json")).unwrap()
}

/// The scalars and empty containers of a value, with their paths. Null is an absent field.
fn leaves(value: &Value, path: &str, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Null => {}
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                leaves(value, &path, found);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (at, value) in items.iter().enumerate() {
                leaves(value, &format!("{path}[{at}]"), found);
            }
        }
        value => found.push((path.to_owned(), value.clone())),
    }
}

/// `a[3].b` as `a[].b`: items may have moved up where an earlier one was left out.
fn general(path: &str) -> String {
    let mut kept = String::new();
    let mut inside = false;
    for c in path.chars() {
        inside = (inside || c == '[') && c != ']';
        if !inside || c == '[' {
            kept.push(c);
        }
    }
    kept
}

/// Whether a line that says more than "taken over" covers a field.
fn explains(line: &Line, path: &str) -> bool {
    let says = line.class != Class::TakenOver || !line.note.is_empty();
    let rest = path.strip_prefix(line.field.as_str());
    let whole_is_kept = line.field.is_empty() && line.note.starts_with("kept");
    says && !whole_is_kept
        && rest.is_some_and(|rest| {
            line.field.is_empty() || rest.is_empty() || rest.starts_with(['.', '['])
        })
}

fn is_container(value: &Value) -> bool {
    value.is_object() || value.is_array()
}

/// The fields of the source that are neither in the output nor explained.
fn lost(source: &Value, converted: &Converted) -> Vec<String> {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    leaves(source, "", &mut before);
    if let Some(object) = &converted.object {
        leaves(object, "", &mut after);
    }
    let after: Vec<_> = after.into_iter().map(|(path, value)| (general(&path), value)).collect();
    before
        .into_iter()
        .filter(|(path, _)| path != "apiVersion" && path != "kind")
        .filter(|(path, value)| !after.contains(&(general(path), value.clone())))
        // An empty container may have been filled in.
        .filter(|(path, value)| {
            let filled = |other: &String| other.starts_with(&general(path));
            !(is_container(value) && after.iter().any(|(other, _)| filled(other)))
        })
        .filter(|(path, _)| !converted.lines.iter().any(|line| explains(line, path)))
        .map(|(path, value)| format!("{path} = {value}"))
        .collect()
}

thread_local! {
    static CONVERTERS: [Converter; 2] = converters();
    /// Schemas of Atoll's kinds, by group and kind.
    static SCHEMAS: BTreeMap<(String, String), Schema> = schemas();
}

fn schemas() -> BTreeMap<(String, String), Schema> {
    let mut schemas = BTreeMap::new();
    for crd in atoll_api::crds::all() {
        let schema = Schema::from_openapi(&atoll_api::crds::full_schema(&crd)).unwrap();
        schemas.insert((crd.spec.group, crd.spec.names.kind), schema);
    }
    schemas
}

/// What the schema of Atoll's kind does not have.
fn unknown_to_atoll(object: &Value) -> Vec<String> {
    let group = object["apiVersion"].as_str().unwrap().split('/').next().unwrap();
    let key = (group.to_owned(), object["kind"].as_str().unwrap().to_owned());
    SCHEMAS.with(|all| {
        all.get(&key).map_or_else(Vec::new, |schema| schema::prune(&mut object.clone(), schema))
    })
}

fn converters() -> [Converter; 2] {
    [Purpose::Hub, Purpose::Offline].map(|purpose| Converter::new(Options::new(purpose)).unwrap())
}

#[test]
fn every_field_of_karmadas_api_is_taken_over_or_explained() {
    for converter in converters() {
        for sample in samples() {
            let converted = converter.convert(sample.clone());
            assert_eq!(lost(&sample, &converted), [""; 0], "{}", sample["kind"]);
            let faults: Vec<_> =
                converted.lines.iter().filter(|line| line.fault.is_some()).collect();
            assert!(faults.is_empty(), "{}: {faults:#?}", sample["kind"]);
            let Some(object) = converted.object else { continue };
            assert_eq!(unknown_to_atoll(&object), [""; 0], "{}", sample["kind"]);
            assert_eq!(
                converter.convert(object.clone()).object.as_ref(),
                Some(&object),
                "once is enough"
            );
        }
    }
}

#[test]
fn a_field_that_no_rule_and_no_schema_has_is_reported_as_unknown() {
    let policy = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "nam": "web"}], "placment": {"a": 1}}});
    let converted = converters()[0].convert(policy);
    let typos = converted.lines.iter().filter(|line| line.fault == Some(Fault::UnknownField));
    let typos: Vec<_> = typos.map(|line| line.field.as_str()).collect();
    assert_eq!(typos, ["spec.placment", "spec.resourceSelectors[0].nam"]);
    assert!(converted.object.unwrap()["spec"].get("placment").is_none());
}

#[test]
fn the_placement_of_a_binding_is_converted_as_that_of_a_policy() {
    let placement = json!({
        "clusterTolerations": [{"key": "cluster.karmada.io/not-ready", "operator": "Exists"}],
        "spreadConstraint": [],
    });
    let binding = json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": "web-deployment", "namespace": "shop"},
        "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web",
            "namespace": "shop"}, "placement": placement}});
    let policy = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "p", "namespace": "shop"}, "spec": {"placement": placement}});
    let [of_binding, of_policy] = [binding, policy].map(|object| {
        let converted = converters()[1].convert(object);
        let typos = converted.lines.iter().filter(|line| line.fault == Some(Fault::UnknownField));
        assert_eq!(
            typos.map(|line| &*line.field).collect::<Vec<_>>(),
            ["spec.placement.spreadConstraint"]
        );
        converted.object.unwrap()["spec"]["placement"].take()
    });
    assert_eq!(of_binding, of_policy);
    assert_eq!(of_binding["clusterTolerations"][0]["key"], "cluster.atoll.dev/not-ready");
}

/// Any JSON value, not deep.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-zA-Z./-]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map("[a-z]{1,6}", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A change of the object: the container to change (counted over all containers), the new value, and its key.
fn change() -> impl Strategy<Value = (usize, Value, String, bool)> {
    (0..200_usize, any_value(), "[a-z]{1,5}(\\.karmada\\.io/[a-z]{1,4})?", any::<bool>())
}

/// Changes the n-th container below `spec` or `metadata`: adds a field, or replaces one.
fn apply(value: &mut Value, n: &mut usize, change: &(usize, Value, String, bool)) {
    let hit = *n == 0;
    *n = n.wrapping_sub(1);
    match value {
        Value::Object(fields) => {
            if hit {
                let replaced = fields.keys().nth(change.0 % fields.len().max(1)).cloned();
                let key = replaced.filter(|_| change.3).unwrap_or_else(|| change.2.clone());
                fields.insert(key, change.1.clone());
                return;
            }
            fields.values_mut().for_each(|value| apply(value, n, change));
        }
        Value::Array(items) => {
            if hit {
                items.push(change.1.clone());
                return;
            }
            items.iter_mut().for_each(|value| apply(value, n, change));
        }
        _ => *n = n.wrapping_add(1),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn whatever_an_object_holds_nothing_is_lost_without_a_line(
        which in 0..11_usize,
        changes in proptest::collection::vec(change(), 0..4),
        hub in any::<bool>(),
    ) {
        let mut object = samples()[which].clone();
        for change in &changes {
            let part = if change.0 % 4 == 0 { "metadata" } else { "spec" };
            apply(&mut object[part], &mut (change.0 % 40), change);
        }
        let converted = CONVERTERS.with(|both| both[usize::from(!hub)].convert(object.clone()));
        prop_assert_eq!(lost(&object, &converted), Vec::<String>::new(), "{:#?}", converted.lines);
        if let Some(output) = &converted.object {
            let refused = |path: &str| {
                converted.lines.iter().any(|line| line.fault.is_some() && explains(line, path))
            };
            let unknown: Vec<_> =
                unknown_to_atoll(output).into_iter().filter(|path| !refused(path)).collect();
            prop_assert_eq!(unknown, Vec::<String>::new());
        }
    }
}
