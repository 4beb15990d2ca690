//! Several appliers of one object.

use super::*;

fn names(names: &str) -> Value {
    let items: Vec<Value> = names.chars().map(|c| json!({"name": c.to_string()})).collect();
    json!({ "list": items })
}

#[test]
fn remove_one_keep_one() {
    check(
        &associative_list(),
        vec![Apply("one", names("abc")), Apply("two", names("cd")), Apply("one", names("a"))],
        names("acd"),
        &[
            ("one", &[".list[name=\"a\"]", ".list[name=\"a\"].name"]),
            (
                "two",
                &[
                    ".list[name=\"c\"]",
                    ".list[name=\"c\"].name",
                    ".list[name=\"d\"]",
                    ".list[name=\"d\"].name",
                ],
            ),
        ],
    );
}

#[test]
fn same_value_no_conflict_and_change_value_yes_conflict() {
    let item = |value: i64| json!({"list": [{"name": "a", "value": value}]});
    let fields: &[&str] =
        &[".list[name=\"a\"]", ".list[name=\"a\"].name", ".list[name=\"a\"].value"];
    check(
        &associative_list(),
        vec![
            Apply("one", item(0)),
            Apply("two", item(0)),
            Conflict("two", item(1), &["one: .list[name=\"a\"].value"]),
        ],
        item(0),
        &[("one", fields), ("two", fields)],
    );
}

#[test]
fn unset_scalar_shared_with_applier_and_updater() {
    check(
        &nested(),
        vec![
            Apply("one", json!({"struct": {"name": "a", "value": 1}})),
            Apply("two", json!({"struct": {"value": 1}})),
            Apply("one", json!({"struct": {"name": "a"}})),
        ],
        json!({"struct": {"name": "a", "value": 1}}),
        &[("one", &[".struct.name"]), ("two", &[".struct.value"])],
    );
    check(
        &nested(),
        vec![
            Update("updater", json!({"struct": {"name": "a", "value": 1}})),
            Apply("applier", json!({"struct": {"name": "a", "value": 1}})),
            Apply("applier", json!({"struct": {"name": "a"}})),
        ],
        json!({"struct": {"name": "a", "value": 1}}),
        &[
            ("updater", &[".struct", ".struct.name", ".struct.value"]),
            ("applier", &[".struct.name"]),
        ],
    );
}

#[test]
fn updater_claims_field() {
    check(
        &nested(),
        vec![
            Apply("applier", json!({"struct": {"name": "a", "value": 1}})),
            Update("updater", json!({"struct": {"name": "a", "value": 2}})),
        ],
        json!({"struct": {"name": "a", "value": 2}}),
        &[("applier", &[".struct.name"]), ("updater", &[".struct.value"])],
    );
}

#[test]
fn remove_one_keep_one_with_dangling_subitem() {
    check(
        &nested(),
        vec![
            Apply("one", json!({"listOfLists": [{"name": "a"}, {"name": "b", "value": ["c"]}]})),
            Apply("two", json!({"listOfLists": [{"name": "b", "value": ["d"]}]})),
            Update(
                "controller",
                json!({"listOfLists": [
                    {"name": "a"}, {"name": "b", "value": ["c", "d", "e"]},
                ]}),
            ),
            Apply("one", json!({"listOfLists": [{"name": "a"}]})),
        ],
        json!({"listOfLists": [{"name": "a"}, {"name": "b", "value": ["d", "e"]}]}),
        &[
            ("one", &[".listOfLists[name=\"a\"]", ".listOfLists[name=\"a\"].name"]),
            (
                "two",
                &[
                    ".listOfLists[name=\"b\"]",
                    ".listOfLists[name=\"b\"].name",
                    ".listOfLists[name=\"b\"].value[=\"d\"]",
                ],
            ),
            ("controller", &[".listOfLists[name=\"b\"].value[=\"e\"]"]),
        ],
    );
}

#[test]
fn remove_one_with_managed_subitem_keep_one() {
    check(
        &nested(),
        vec![
            Apply("one", json!({"listOfLists": [{"name": "a"}, {"name": "b", "value": ["c"]}]})),
            Apply("two", json!({"listOfLists": [{"name": "a", "value": ["b"]}]})),
            Update(
                "controller",
                json!({"listOfLists": [
                    {"name": "a", "value": ["b"]}, {"name": "b", "value": ["c", "d"]},
                ]}),
            ),
            Apply("one", json!({"listOfLists": [{"name": "a"}]})),
        ],
        json!({"listOfLists": [{"name": "a", "value": ["b"]}]}),
        &[
            ("one", &[".listOfLists[name=\"a\"]", ".listOfLists[name=\"a\"].name"]),
            (
                "two",
                &[
                    ".listOfLists[name=\"a\"]",
                    ".listOfLists[name=\"a\"].name",
                    ".listOfLists[name=\"a\"].value[=\"b\"]",
                ],
            ),
        ],
    );
}

/// Fields without an owner below an item are removed only together with the item.
#[test]
fn unowned_fields_of_an_item_that_someone_else_applies_stay() {
    let mut server = Server::new(associative_list());
    server.step(Apply("one", names("ab")));
    server.step(Apply("two", names("b")));
    let mut live = server.live.clone().unwrap();
    live["list"][1]["value"] = json!(7);
    server.live = Some(live);
    server.step(Apply("one", names("a")));
    let (object, owned) = server.state();
    assert_eq!(object, json!({"list": [{"name": "a"}, {"name": "b", "value": 7}]}));
    assert_eq!(owned["two"], [".list[name=\"b\"]", ".list[name=\"b\"].name"]);
    server.step(Apply("two", json!({})));
    assert_eq!(server.state().0, names("a"));
}

/// The steps of both recursive cases, below `root`.
fn recursive(root: fn(Value) -> Value, last: Value) -> Vec<Step> {
    vec![
        Apply("one", root(json!({"a": {"b": {"c": {"d": null}}}}))),
        Apply("two", root(json!({"a": null, "c": {"d": null}}))),
        Update("controller-one", root(json!({"a": {"b": {"c": null}}, "c": {"d": {"e": null}}}))),
        Update(
            "controller-two",
            root(json!({"a": {"b": {"c": {"d": null}}}, "c": {"d": {"e": {"f": null}}}})),
        ),
        Update(
            "controller-one",
            root(json!({
                "a": {"b": {"c": {"d": {"e": null}}}}, "c": {"d": {"e": {"f": {"g": null}}}},
            })),
        ),
        Apply("one", last),
    ]
}

// Upstream leaves `a: null` if everything within was removed and another manager owns `a`; here an emptied map stays an
// empty map.

#[test]
fn multiple_appliers_recursive_map() {
    let root = |v: Value| json!({ "mapOfMapsRecursive": v });
    check(
        &nested(),
        recursive(root, root(Value::Null)),
        root(json!({"a": {}, "c": {"d": {"e": {"f": {"g": null}}}}})),
        &[
            ("one", &[".mapOfMapsRecursive"]),
            ("two", &[".mapOfMapsRecursive.a", ".mapOfMapsRecursive.c", ".mapOfMapsRecursive.c.d"]),
            ("controller-one", &[".mapOfMapsRecursive.c.d.e", ".mapOfMapsRecursive.c.d.e.f.g"]),
            ("controller-two", &[".mapOfMapsRecursive.c.d.e.f"]),
        ],
    );
}

#[test]
fn multiple_appliers_recursive_map_deduced() {
    check(
        &Schema::deduced(),
        recursive(|v| v, json!({})),
        json!({"a": {}, "c": {"d": {"e": {"f": {"g": null}}}}}),
        &[
            ("two", &[".a", ".c", ".c.d"]),
            ("controller-one", &[".c.d.e", ".c.d.e.f.g"]),
            ("controller-two", &[".c.d.e.f"]),
        ],
    );
}
