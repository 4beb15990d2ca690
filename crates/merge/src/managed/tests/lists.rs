//! Sets and keyed lists.

mod sets {
    use super::super::*;

    fn schema() -> Schema {
        crd(json!({"list": set(text())}))
    }

    fn list(items: &str) -> Value {
        json!({"list": items.split_whitespace().collect::<Vec<_>>()})
    }

    #[test]
    fn apply_update_apply_no_overlap() {
        check(
            &schema(),
            vec![
                Apply("default", list("a c")),
                Update("controller", list("a b c d")),
                Apply("default", list("a aprime c cprime")),
            ],
            list("a b aprime c d cprime"),
            &[
                (
                    "default",
                    &[".list[=\"a\"]", ".list[=\"aprime\"]", ".list[=\"c\"]", ".list[=\"cprime\"]"],
                ),
                ("controller", &[".list[=\"b\"]", ".list[=\"d\"]"]),
            ],
        );
    }

    #[test]
    fn apply_update_apply_with_overlap() {
        check(
            &schema(),
            vec![
                Apply("default", list("a c")),
                Update("controller", list("a b c d")),
                Apply("default", list("a b c")),
            ],
            list("a b c d"),
            &[
                ("default", &[".list[=\"a\"]", ".list[=\"b\"]", ".list[=\"c\"]"]),
                ("controller", &[".list[=\"b\"]", ".list[=\"d\"]"]),
            ],
        );
    }

    #[test]
    fn apply_twice_reorder() {
        check(
            &schema(),
            vec![Apply("default", list("a b c d")), Apply("default", list("a d c b"))],
            list("a d c b"),
            &[("default", &[".list[=\"a\"]", ".list[=\"b\"]", ".list[=\"c\"]", ".list[=\"d\"]"])],
        );
    }

    #[test]
    fn apply_update_apply_reorder() {
        check(
            &schema(),
            vec![
                Apply("default", list("a b c d")),
                Update("controller", list("a d c b")),
                Apply("default", list("a b c d")),
            ],
            list("a b c d"),
            &[("default", &[".list[=\"a\"]", ".list[=\"b\"]", ".list[=\"c\"]", ".list[=\"d\"]"])],
        );
    }

    #[test]
    fn apply_twice_remove() {
        check(
            &schema(),
            vec![Apply("default", list("a b c d")), Apply("default", list("a c"))],
            list("a c"),
            &[("default", &[".list[=\"a\"]", ".list[=\"c\"]"])],
        );
    }
}

mod duplicates {
    use super::super::*;

    fn schema() -> Schema {
        crd(json!({
            "set": set(number()),
            "list": keyed(&["name"], json!({"name": text(), "value": number()})),
            "unrelated": number(),
        }))
    }

    #[test]
    fn sets_ownership_add_and_remove_duplicate() {
        for (first, second) in [
            (json!({"set": [1, 3, 4]}), json!({"set": [1, 1, 3, 4]})),
            (json!({"set": [1, 1, 3, 4]}), json!({"set": [1, 3, 4]})),
        ] {
            check(
                &schema(),
                vec![Update("one", first), Update("two", second.clone())],
                second,
                &[("one", &[".set", ".set[=3]", ".set[=4]"]), ("two", &[".set[=1]"])],
            );
        }
    }

    #[test]
    fn sets_merging_remove_duplicate() {
        check(
            &schema(),
            vec![
                Update("updater", json!({"set": [1, 1, 3, 4]})),
                Conflict("applier", json!({"set": [1]}), &["updater: .set[=1]"]),
                Force("applier", json!({"set": [1]})),
            ],
            json!({"set": [1, 3, 4]}),
            &[("updater", &[".set", ".set[=3]", ".set[=4]"]), ("applier", &[".set[=1]"])],
        );
    }

    #[test]
    fn unrelated_fields_can_be_applied_over_duplicates() {
        let twice = json!({"list": [{"name": "a", "value": 1}, {"name": "a", "value": 2}]});
        check(
            &schema(),
            vec![Update("updater", twice), Apply("applier", json!({"unrelated": 5}))],
            json!({
                "list": [{"name": "a", "value": 1}, {"name": "a", "value": 2}], "unrelated": 5,
            }),
            &[("updater", &[".list", ".list[name=\"a\"]"]), ("applier", &[".unrelated"])],
        );
    }

    #[test]
    fn an_applied_list_may_not_hold_a_key_twice() {
        let mut server = Server::new(schema());
        for config in [json!({"list": [{"name": "a"}, {"name": "a"}]}), json!({"set": [1, 1.0]})] {
            let error = server.apply("one", &config, false).unwrap_err();
            assert!(error.to_string().contains("duplicate entry"), "{error}");
        }
    }
}

mod default_keys {
    use super::super::*;

    fn schema() -> Schema {
        let protocol = json!({"type": "string", "default": "TCP"});
        let fields = json!({"port": number(), "protocol": protocol, "name": text()});
        crd(json!({"containerPorts": keyed(&["port", "protocol"], fields)}))
    }

    #[test]
    fn apply_missing_defaulted_key() {
        check(
            &schema(),
            vec![Apply(
                "default",
                json!({"containerPorts": [{"port": 80}, {"port": 80, "protocol": "UDP"}]}),
            )],
            json!({"containerPorts": [{"port": 80}, {"port": 80, "protocol": "UDP"}]}),
            &[(
                "default",
                &[
                    ".containerPorts[port=80,protocol=\"TCP\"]",
                    ".containerPorts[port=80,protocol=\"TCP\"].port",
                    ".containerPorts[port=80,protocol=\"UDP\"]",
                    ".containerPorts[port=80,protocol=\"UDP\"].port",
                    ".containerPorts[port=80,protocol=\"UDP\"].protocol",
                ],
            )],
        );
    }

    #[test]
    fn apply_missing_defaulted_key_with_conflict() {
        let item = json!({"containerPorts": [{"port": 80, "protocol": "TCP", "name": "foo"}]});
        let item_path = ".containerPorts[port=80,protocol=\"TCP\"]";
        check(
            &schema(),
            vec![
                Apply("one", item.clone()),
                Conflict(
                    "two",
                    json!({"containerPorts": [{"port": 80, "name": "bar"}]}),
                    &["one: .containerPorts[port=80,protocol=\"TCP\"].name"],
                ),
            ],
            item,
            &[(
                "one",
                &[
                    item_path,
                    &format!("{item_path}.name"),
                    &format!("{item_path}.port"),
                    &format!("{item_path}.protocol"),
                ],
            )],
        );
    }

    #[test]
    fn apply_missing_defaulted_key_ambiguous() {
        let mut server = Server::new(schema());
        let config = json!({"containerPorts": [{"port": 80}, {"port": 80, "protocol": "TCP"}]});
        assert!(matches!(server.apply("a", &config, false), Err(ApplyError::Misfit(_))));
        let undefaulted = json!({"list": [{"value": 1}]});
        let mut server = Server::new(associative_list());
        let error = server.apply("a", &undefaulted, false).unwrap_err().to_string();
        assert!(error.ends_with(".list[0]: an item of a list with keys omits all of them (name)"));
    }
}
