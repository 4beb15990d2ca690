//! The API server's field manager on top of structured-merge-diff.

use super::*;

fn deployment() -> Schema {
    Schema::builtin("apps", "v1", "Deployment").unwrap()
}

fn manifest(replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [
            {"name": "web", "image": "web:1", "ports": [{"containerPort": 80}]},
        ]}}},
    })
}

#[test]
fn no_op_apply_changes_nothing_and_keeps_the_time() {
    let mut server = Server::new(deployment());
    server.apply("ctl", &manifest(3), false).unwrap();
    let before = server.live.clone();
    server.apply("ctl", &manifest(3), false).unwrap();
    assert_eq!(server.live, before);
    assert_eq!(server.entries()[0]["time"], "2024-01-01T00:00:01Z");
    server.apply("ctl", &manifest(4), false).unwrap();
    assert_eq!(server.entries()[0]["time"], "2024-01-01T00:00:03Z");
}

#[test]
fn entries_have_the_form_of_the_api_server() {
    let mut server = Server::new(deployment());
    server.apply("ctl", &manifest(3), false).unwrap();
    let expected = json!([{
        "manager": "ctl", "operation": "Apply", "apiVersion": "a/v1",
        "time": "2024-01-01T00:00:01Z", "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {"f:labels": {"f:app": {}}},
            "f:spec": {
                "f:replicas": {},
                "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {
                    ".": {}, "f:name": {}, "f:image": {},
                    "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {
                        ".": {}, "f:containerPort": {},
                    }},
                }}}},
            },
        },
    }]);
    assert_eq!(Value::Array(server.entries()), expected);
}

#[test]
fn one_name_with_two_operations_is_two_owners() {
    let mut server = Server::new(deployment());
    server.update("ctl", &manifest(3));
    let error = server.apply("ctl", &manifest(4), false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"ctl\" using a/v1 at \
         2024-01-01T00:00:01Z: .spec.replicas"
    );
    server.apply("ctl", &manifest(4), true).unwrap();
    let operations: Vec<Value> = server.entries().iter().map(|e| e["operation"].clone()).collect();
    assert_eq!(operations, ["Apply", "Update"]);
}

#[test]
fn conflicts_are_listed_by_manager() {
    let mut server = Server::new(deployment());
    server.apply("a", &json!({"spec": {"replicas": 1, "paused": true}}), false).unwrap();
    server.apply("b", &json!({"spec": {"minReadySeconds": 1}}), false).unwrap();
    let config = json!({"spec": {"replicas": 2, "paused": false, "minReadySeconds": 2}});
    let error = server.apply("c", &config, false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 3 conflicts: conflicts with \"a\":\n- .spec.paused\n\
         - .spec.replicas\nconflicts with \"b\":\n- .spec.minReadySeconds"
    );
}

#[test]
fn objects_without_managed_fields_belong_to_before_first_apply() {
    let mut server = Server::new(deployment());
    server.live = Some(manifest(3));
    server.update("ignored", &manifest(2));
    assert!(server.entries().is_empty(), "an object without managed fields is not tracked");
    server.step(Conflict("ctl", manifest(5), &["before-first-apply: .spec.replicas"]));
    server.apply("ctl", &manifest(5), true).unwrap();
    let (_, owned) = server.state();
    assert!(owned["ctl"].contains(&".spec.replicas".to_owned()));
    assert!(!owned["before-first-apply"].contains(&".spec.replicas".to_owned()));
    assert!(owned["before-first-apply"].contains(&".metadata.labels.app".to_owned()));
}

#[test]
fn identity_and_server_kept_metadata_are_never_owned_nor_applied() {
    let mut server = Server::new(deployment());
    let mut created = manifest(1);
    created["metadata"]["uid"] = json!("1");
    created["metadata"]["resourceVersion"] = json!("7");
    server.update("creator", &created);
    let mut config = manifest(1);
    config["metadata"]["creationTimestamp"] = Value::Null;
    config["metadata"]["resourceVersion"] = json!("3");
    server.apply("ctl", &config, false).unwrap();
    let (_, owned) = server.state();
    for fields in owned.values() {
        let metadata: Vec<&String> = fields.iter().filter(|f| f.starts_with(".metadata")).collect();
        assert!(metadata.iter().all(|f| f.starts_with(".metadata.labels")), "{metadata:?}");
    }
    let live = server.live.unwrap();
    assert_eq!(live["metadata"]["resourceVersion"], "7");
    assert!(live["metadata"].get("creationTimestamp").is_none());
}

#[test]
fn a_writer_may_reset_managed_fields_but_not_through_a_subresource() {
    for reset in [json!([]), json!([{}])] {
        let mut server = Server::new(deployment());
        server.apply("ctl", &manifest(1), false).unwrap();
        let mut new = server.live.clone().unwrap();
        new["metadata"]["managedFields"] = reset;
        let status =
            Writer { manager: "x", api_version: "a/v1", subresource: Some("status"), now: "t" };
        let kept = update(server.live.as_ref(), new.clone(), &status, &server.schema);
        assert_eq!(kept["metadata"]["managedFields"], json!(server.entries()));
        server.update("x", &new);
        assert!(server.entries().is_empty());
    }
}

#[test]
fn unreadable_managed_fields_from_a_client_leave_those_that_are() {
    let mut server = Server::new(deployment());
    server.apply("ctl", &manifest(1), false).unwrap();
    let before = server.entries();
    let mut new = server.live.clone().unwrap();
    new["metadata"]["managedFields"][0]["operation"] = json!("Frob");
    server.update("x", &new);
    assert_eq!(server.entries(), before);
    server.live = Some(new);
    let error = server.apply("ctl", &manifest(1), false).unwrap_err();
    assert!(matches!(error, ApplyError::Entry(_)));
}

#[test]
fn the_status_endpoint_owns_the_status_and_nothing_else() {
    let mut config = manifest(9);
    config["status"] = json!({"replicas": 1});
    let mut of_status = config.clone();
    Endpoint::Status.restrict(&mut of_status);
    let metadata = json!({"name": "web", "namespace": "shop"});
    let expected = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "status": {"replicas": 1},
    });
    assert_eq!(of_status, expected);
    let mut of_object = config.clone();
    Endpoint::Object { status_subresource: true }.restrict(&mut of_object);
    assert_eq!(of_object, manifest(9));
    let mut of_plain_object = config.clone();
    Endpoint::Object { status_subresource: false }.restrict(&mut of_plain_object);
    assert_eq!(of_plain_object, config);

    let mut server = Server::new(deployment());
    server.apply("ctl", &manifest(1), false).unwrap();
    let writer =
        Writer { manager: "ctl", api_version: "a/v1", subresource: Some("status"), now: "t" };
    let live = apply(server.live.as_ref(), &of_status, &writer, false, &server.schema).unwrap();
    assert_eq!(live["spec"]["replicas"], 1);
    server.live = Some(live);
    let status = server.entries().into_iter().find(|e| e["subresource"] == "status").unwrap();
    assert_eq!(status["fieldsV1"], json!({"f:status": {"f:replicas": {}}}));
}

#[test]
fn only_so_many_updaters_are_remembered() {
    let mut server = Server::new(Schema::deduced());
    let mut object = json!({});
    let managers: Vec<String> = (0..14).map(|i| format!("manager-{i:02}")).collect();
    for (i, manager) in managers.iter().enumerate() {
        object[format!("f{i:02}")] = json!(i);
        if let Some(live) = &server.live {
            object["metadata"] = live["metadata"].clone();
        }
        server.update(manager, &object);
    }
    let (_, owned) = server.state();
    assert_eq!(owned.len(), 10);
    assert_eq!(owned["ancient-changes"], [".f00", ".f01", ".f02", ".f03", ".f04"]);
    assert_eq!(owned["manager-05"], [".f05"]);
}

#[test]
fn finalizers_and_owner_references_of_several_managers_live_side_by_side() {
    let mut server = Server::new(deployment());
    let meta = |finalizer: &str, uid: &str| {
        let owner = json!({"apiVersion": "v1", "kind": "K", "name": uid, "uid": uid});
        json!({"metadata": {"finalizers": [finalizer], "ownerReferences": [owner]}})
    };
    server.apply("a", &meta("a/a", "1"), false).unwrap();
    server.apply("b", &meta("b/b", "2"), false).unwrap();
    let live = server.live.clone().unwrap();
    assert_eq!(live["metadata"]["finalizers"], json!(["a/a", "b/b"]));
    assert_eq!(live["metadata"]["ownerReferences"].as_array().unwrap().len(), 2);
    server.apply("a", &json!({}), false).unwrap();
    let live = server.live.unwrap();
    assert_eq!(live["metadata"]["finalizers"], json!(["b/b"]));
    assert_eq!(live["metadata"]["ownerReferences"][0]["uid"], "2");
}
