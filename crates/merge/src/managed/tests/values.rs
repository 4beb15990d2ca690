//! Scalars, nesting, kinds without a schema, and changing schemas.

mod leaf {
    use super::super::*;

    #[test]
    fn apply_twice() {
        check(
            &leaves(),
            vec![
                Apply("default", json!({"numeric": 1, "string": "string"})),
                Apply("default", json!({"numeric": 2, "string": "string", "bool": false})),
            ],
            json!({"numeric": 2, "string": "string", "bool": false}),
            &[("default", &[".bool", ".numeric", ".string"])],
        );
    }

    #[test]
    fn apply_update_apply_no_conflict() {
        check(
            &leaves(),
            vec![
                Apply("default", json!({"numeric": 1, "string": "string"})),
                Update("controller", json!({"numeric": 1, "string": "string", "bool": true})),
                Apply("default", json!({"numeric": 2, "string": "string"})),
            ],
            json!({"numeric": 2, "string": "string", "bool": true}),
            &[("default", &[".numeric", ".string"]), ("controller", &[".bool"])],
        );
    }

    #[test]
    fn apply_update_apply_with_conflict() {
        check(
            &leaves(),
            vec![
                Apply("default", json!({"numeric": 1, "string": "string"})),
                Update("controller", json!({"numeric": 1, "string": "theirs", "bool": true})),
                Conflict(
                    "default",
                    json!({"numeric": 2, "string": "ours"}),
                    &["controller: .string"],
                ),
                Force("default", json!({"numeric": 2, "string": "ours"})),
            ],
            json!({"numeric": 2, "string": "ours", "bool": true}),
            &[("default", &[".numeric", ".string"]), ("controller", &[".bool"])],
        );
    }

    #[test]
    fn apply_twice_remove() {
        check(
            &leaves(),
            vec![
                Apply("default", json!({"numeric": 1, "string": "string", "bool": false})),
                Apply("default", json!({"string": "new string"})),
            ],
            json!({"string": "new string"}),
            &[("default", &[".string"])],
        );
    }

    #[test]
    fn update_apply_omits() {
        check(
            &leaves(),
            vec![
                Apply("default", json!({"numeric": 2})),
                Update("controller", json!({"numeric": 1})),
                Apply("default", json!({})),
            ],
            json!({"numeric": 1}),
            &[("controller", &[".numeric"])],
        );
    }

    #[test]
    fn apply_remove_empty_set() {
        check(
            &leaves(),
            vec![Apply("default", json!({"string": "string"})), Apply("default", json!({}))],
            json!({}),
            &[],
        );
    }

    #[test]
    fn update_remove_empty_set() {
        check(
            &leaves(),
            vec![Update("default", json!({"string": "string"})), Update("default", json!({}))],
            json!({}),
            &[],
        );
    }
}

mod nesting {
    use super::super::*;

    #[test]
    fn change_key_and_value() {
        for (field, before, after, owned) in [
            (
                "listOfLists",
                json!([{"name": "a", "value": ["b", "c"]}]),
                json!([{"name": "b", "value": ["a", "c"]}]),
                vec![
                    "[name=\"b\"]",
                    "[name=\"b\"].name",
                    "[name=\"b\"].value[=\"a\"]",
                    "[name=\"b\"].value[=\"c\"]",
                ],
            ),
            (
                "listOfMaps",
                json!([{"name": "a", "value": {"b": "x", "c": "y"}}]),
                json!([{"name": "a", "value": {"a": "x", "c": "z"}}]),
                vec![
                    "[name=\"a\"]",
                    "[name=\"a\"].name",
                    "[name=\"a\"].value.a",
                    "[name=\"a\"].value.c",
                ],
            ),
            (
                "mapOfLists",
                json!({"a": ["b", "c"]}),
                json!({"b": ["a", "c"]}),
                vec![".b", ".b[=\"a\"]", ".b[=\"c\"]"],
            ),
            (
                "mapOfMaps",
                json!({"a": {"b": "x", "c": "y"}}),
                json!({"a": {"a": "x", "c": "z"}}),
                vec![".a", ".a.a", ".a.c"],
            ),
        ] {
            let owned: Vec<String> = owned.iter().map(|f| format!(".{field}{f}")).collect();
            let owned: Vec<&str> = owned.iter().map(String::as_str).collect();
            check(
                &nested(),
                vec![
                    Apply("default", json!({ field: before })),
                    Apply("default", json!({field: after.clone()})),
                ],
                json!({ field: after }),
                &[("default", &owned)],
            );
        }
    }

    #[test]
    fn struct_apply_remove_all() {
        check(
            &nested(),
            vec![
                Apply("default", json!({"struct": {"name": "a", "value": 1}})),
                Apply("default", json!({})),
            ],
            json!({}),
            &[],
        );
    }

    #[test]
    fn struct_apply_update_remove_all() {
        check(
            &nested(),
            vec![
                Apply("default", json!({"struct": {"name": "a"}})),
                Update("controller", json!({"struct": {"name": "a", "value": 1}})),
                Apply("default", json!({})),
            ],
            json!({"struct": {"value": 1}}),
            &[("controller", &[".struct.value"])],
        );
    }

    #[test]
    fn struct_apply_update_dict_dangling_and_null() {
        for empty in [json!({"struct": {}}), json!({"struct": null})] {
            check(
                &nested(),
                vec![
                    Apply("default", json!({"struct": {"name": "a"}})),
                    Update("controller", json!({"struct": {"name": "a", "value": 1}})),
                    Apply("default", empty),
                ],
                json!({"struct": {"value": 1}}),
                &[("controller", &[".struct.value"]), ("default", &[".struct"])],
            );
        }
    }

    #[test]
    fn struct_apply_update_took_over() {
        check(
            &nested(),
            vec![
                Apply("default", json!({"struct": {"name": "a"}})),
                Update("controller", json!({"struct": {"name": "b", "value": 1}})),
                Apply("default", json!({"struct": null})),
            ],
            json!({"struct": {"name": "b", "value": 1}}),
            &[("controller", &[".struct.name", ".struct.value"]), ("default", &[".struct"])],
        );
    }

    #[test]
    fn removing_obsolete_applied_structs() {
        check(
            &associative_list(),
            vec![
                Apply("default", json!({"list": [{"name": "a", "value": 1}]})),
                Apply("default", json!({"list": [{"name": "b", "value": 2}]})),
            ],
            json!({"list": [{"name": "b", "value": 2}]}),
            &[(
                "default",
                &[".list[name=\"b\"]", ".list[name=\"b\"].name", ".list[name=\"b\"].value"],
            )],
        );
    }
}

mod deduced_and_unknown {
    use super::super::*;

    #[test]
    fn apply_update_apply_list() {
        check(
            &Schema::deduced(),
            vec![
                Apply("default", json!({"list": ["a", "c"]})),
                Update("controller", json!({"list": ["a", "b", "c", "d"]})),
                Force("default", json!({"list": ["a", "b", "c"]})),
            ],
            json!({"list": ["a", "b", "c"]}),
            &[("default", &[".list"])],
        );
    }

    #[test]
    fn apply_update_apply_nested() {
        let object = |a: i64, d: i64, e: Value, n: i64, g: Option<i64>| {
            let mut c = json!({"d": d, "e": e, "f": [{"name": "n", "value": n}]});
            if let Some(g) = g {
                c["g"] = json!(g);
            }
            json!({"a": a, "b": {"c": c}})
        };
        let ours = object(2, 2, json!([3, 2, 1]), 1, None);
        check(
            &Schema::deduced(),
            vec![
                Apply("default", object(1, 2, json!([1, 2, 3]), 1, None)),
                Update("controller", object(1, 3, json!([1, 2, 3, 4]), 2, Some(5))),
                Conflict(
                    "default",
                    ours.clone(),
                    &["controller: .b.c.d", "controller: .b.c.e", "controller: .b.c.f"],
                ),
                Force("default", ours),
            ],
            object(2, 2, json!([3, 2, 1]), 1, Some(5)),
            &[
                ("default", &[".a", ".b", ".b.c", ".b.c.d", ".b.c.e", ".b.c.f"]),
                ("controller", &[".b.c.g"]),
            ],
        );
    }

    #[test]
    fn preserve_unknown_fields() {
        let schema = Schema::from_openapi(&json!({
            "type": "object",
            "properties": {"num": {"type": "number"}},
            "x-kubernetes-preserve-unknown-fields": true,
        }))
        .unwrap();
        check(
            &schema,
            vec![
                Apply("default", json!({"num": 5, "unknown": "value"})),
                Apply("default", json!({"num": 6, "unknown": "new"})),
            ],
            json!({"num": 6, "unknown": "new"}),
            &[("default", &[".num", ".unknown"])],
        );
    }

    #[test]
    fn what_does_not_fit_the_schema_is_refused_with_its_place() {
        let mut server = Server::new(nested());
        for (config, problem) in [
            (json!({"struct": {"nam": "a"}}), ".struct.nam: field not declared in schema"),
            (json!({"struct": {"value": "x"}}), ".struct.value: expected numeric"),
            (json!({"struct": []}), ".struct: expected map, got array"),
            (json!({"mapOfLists": {"a": [{}]}}), ".mapOfLists.a[0]: an item of a set"),
        ] {
            let error = server.apply("one", &config, false).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
        let own = json!({"metadata": {"managedFields": []}});
        assert_eq!(server.apply("one", &own, false), Err(ApplyError::ManagedFieldsGiven));
    }
}

mod schema_change {
    use super::super::*;

    fn schema(map_type: &str) -> Schema {
        let mut inner = object(json!({"numeric": number(), "string": text()}));
        inner["x-kubernetes-map-type"] = json!(map_type);
        crd(json!({ "struct": inner }))
    }

    #[test]
    fn to_atomic() {
        let theirs = json!({"struct": {"string": "string"}});
        check(
            &schema("granular"),
            vec![
                Apply("one", json!({"struct": {"numeric": 1}})),
                Step::Schema(schema("atomic")),
                Conflict("two", theirs.clone(), &["one: .struct"]),
                Force("two", theirs.clone()),
            ],
            theirs,
            &[("two", &[".struct"])],
        );
    }

    #[test]
    fn to_granular() {
        let theirs = json!({"struct": {"string": "b"}});
        check(
            &schema("atomic"),
            vec![
                Apply("one", json!({"struct": {"numeric": 1, "string": "a"}})),
                Conflict("two", theirs.clone(), &["one: .struct"]),
                Step::Schema(schema("granular")),
                Apply("two", theirs),
            ],
            json!({"struct": {"numeric": 1, "string": "b"}}),
            &[("one", &[".struct"]), ("two", &[".struct.string"])],
        );
    }
}
