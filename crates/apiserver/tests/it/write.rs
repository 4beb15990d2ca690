//! create, update, patch, delete, subresources.

use http::Method;
use serde_json::{Value, json};

use crate::common::{Api, CONFIG_MAPS, DEPLOYMENTS, PODS, config_map, deployment, pod, version};

#[tokio::test]
async fn create_stamps_metadata_and_ignores_what_is_the_servers() {
    let api = Api::new();
    let mut object = config_map("a");
    object["metadata"]["uid"] = "mine".into();
    object["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z".into();
    object["metadata"]["deletionTimestamp"] = "2001-01-01T00:00:00Z".into();
    let answer = api.post(CONFIG_MAPS, &object).await;
    assert_eq!(answer.code, 201);
    let made = answer.ok();
    let metadata = &made["metadata"];
    assert_eq!(metadata["creationTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(metadata["uid"].as_str().unwrap().len(), 36);
    assert_eq!(
        (&metadata["deletionTimestamp"], &metadata["namespace"]),
        (&Value::Null, &json!("default"))
    );
    assert_eq!(metadata["managedFields"][0]["operation"], "Update");
    let again = api.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(again.refused(409, "AlreadyExists"), "configmaps \"a\" already exists");
}

#[tokio::test]
async fn generate_name_makes_a_free_name_and_namespaces_label_themselves() {
    let api = Api::new();
    let object = json!({"metadata": {"generateName": "team-"}});
    let made = api.post("/api/v1/namespaces", &object).await.ok();
    let name = made["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("team-") && name.len() == 10);
    assert_eq!(made["metadata"]["labels"]["kubernetes.io/metadata.name"], name);
    assert_eq!(made["status"]["phase"], "Active");
    let nameless = api.post(CONFIG_MAPS, &json!({"metadata": {}})).await;
    nameless.refused(422, "Invalid");
    assert_eq!(nameless.body["details"]["causes"][0]["field"], "metadata.name");
    assert_eq!(nameless.body["details"]["causes"][0]["reason"], "FieldValueRequired");
}

#[tokio::test]
async fn create_checks_kind_namespace_and_names() {
    let api = Api::new();
    api.post(CONFIG_MAPS, &pod("a")).await.refused(400, "BadRequest");
    let mut other = config_map("a");
    other["metadata"]["namespace"] = "kube-system".into();
    let message = api.post(CONFIG_MAPS, &other).await;
    assert!(message.refused(400, "BadRequest").contains("does not match the namespace sent"));
    api.post(CONFIG_MAPS, &config_map("Not_A_Name")).await.refused(422, "Invalid");
    let missing = "/api/v1/namespaces/nowhere/configmaps";
    let message = api.post(missing, &config_map("a")).await;
    assert_eq!(message.refused(404, "NotFound"), "namespaces \"nowhere\" not found");
    let body = api.send(Method::POST, CONFIG_MAPS, &[], "{nonsense").await;
    body.refused(400, "BadRequest");
    let body = api.send(Method::POST, CONFIG_MAPS, &[("content-type", "text/html")], "x").await;
    body.refused(415, "UnsupportedMediaType");
    let yaml = "metadata: {name: y}\ndata:\n  v: \"1\"\n";
    api.send(Method::POST, CONFIG_MAPS, &[("content-type", "application/yaml")], yaml).await.ok();
}

#[tokio::test]
async fn dry_run_answers_and_changes_nothing() {
    let api = Api::new();
    let made = api.post(&format!("{CONFIG_MAPS}?dryRun=All"), &config_map("a")).await.ok();
    assert_eq!(made["metadata"]["resourceVersion"], Value::Null);
    api.get(&format!("{CONFIG_MAPS}/a")).await.refused(404, "NotFound");
    api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    let path = format!("{CONFIG_MAPS}/a?dryRun=All");
    let patched = api.merge(&path, &json!({"data": {"v": "2"}})).await.ok();
    assert_eq!(patched["data"]["v"], "2");
    api.delete(&path).await.ok();
    assert_eq!(api.get(&format!("{CONFIG_MAPS}/a")).await.ok()["data"]["v"], "1");
    api.delete(&format!("{CONFIG_MAPS}/a?dryRun=Some")).await.refused(422, "Invalid");
}

#[tokio::test]
async fn updates_lock_optimistically_and_no_op_writes_keep_the_resource_version() {
    let api = Api::new();
    let path = format!("{CONFIG_MAPS}/a");
    let first = api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    let same = api.put(&path, &first).await.ok();
    assert_eq!(version(&same), version(&first));
    api.pass(60);
    assert_eq!(version(&api.merge(&path, &json!({})).await.ok()), version(&first));
    let same = api.merge(&path, &json!({"data": {"v": "1"}})).await.ok();
    assert_eq!(version(&same), version(&first));

    let mut second = first.clone();
    second["data"]["v"] = "2".into();
    let second = api.put(&path, &second).await.ok();
    assert!(version(&second) > version(&first));
    let mut stale = first.clone();
    stale["data"]["v"] = "3".into();
    let message = api.put(&path, &stale).await;
    assert!(
        message
            .refused(409, "Conflict")
            .contains("please apply your changes to the latest version")
    );
    let guarded =
        json!({"metadata": {"resourceVersion": version(&first).to_string()}, "data": {"v": "4"}});
    api.merge(&path, &guarded).await.refused(409, "Conflict");
    let elsewhere = json!({"metadata": {"namespace": "kube-system"}});
    api.merge(&path, &elsewhere).await.refused(400, "BadRequest");
    let other_uid = json!({"metadata": {"uid": "other"}, "data": {"v": "4"}});
    api.merge(&path, &other_uid).await.refused(409, "Conflict");
    // Without a version a built-in kind is simply replaced.
    let mut blind = config_map("a");
    blind["data"]["v"] = "5".into();
    let blind = api.put(&path, &blind).await.ok();
    assert_eq!(blind["metadata"]["uid"], first["metadata"]["uid"]);
    let mut renamed = config_map("b");
    renamed["metadata"]["namespace"] = "default".into();
    api.put(&path, &renamed).await.refused(400, "BadRequest");
    api.put(&format!("{CONFIG_MAPS}/none"), &config_map("none")).await.refused(404, "NotFound");
}

#[tokio::test]
async fn leases_may_be_created_by_put_and_keep_their_micro_time() {
    let api = Api::new();
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
        "spec": {"holderIdentity": "me", "renewTime": "2026-01-01T00:00:00.123456Z"},
    });
    let answer = api.put(path, &lease).await;
    assert_eq!(answer.code, 201);
    assert_eq!(answer.ok()["spec"]["renewTime"], "2026-01-01T00:00:00.123456Z");
}

#[tokio::test]
async fn patches_of_all_kinds_change_what_they_name() {
    let api = Api::new();
    let path = format!("{DEPLOYMENTS}/d");
    api.post(DEPLOYMENTS, &deployment("d", 1)).await.ok();
    let image = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "side", "image": "side:1"}, {"name": "main", "image": "nginx:2"},
    ]}}}});
    let merged = api.strategic(&path, &image).await.ok();
    let containers = merged["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 2);
    assert!(containers.iter().any(|c| c["name"] == "main" && c["image"] == "nginx:2"));
    let dropped = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "side", "$patch": "delete"},
    ]}}}});
    let merged = api.strategic(&path, &dropped).await.ok();
    assert_eq!(merged["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(), 1);
    let ops = json!([{"op": "replace", "path": "/spec/replicas", "value": 3}]);
    assert_eq!(api.json_patch(&path, &ops).await.ok()["spec"]["replicas"], 3);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(api.merge(&path, &label).await.ok()["metadata"]["labels"]["a"], "b");
    let gone = json!({"metadata": {"labels": {"a": null}}});
    assert_eq!(api.merge(&path, &gone).await.ok()["metadata"]["labels"], Value::Null);

    let failed = json!([{"op": "test", "path": "/spec/replicas", "value": 9}]);
    api.json_patch(&path, &failed).await.refused(422, "Invalid");
    api.json_patch(&path, &json!({"op": "x"})).await.refused(400, "BadRequest");
    let forced = api.merge(&format!("{path}?force=true"), &label).await;
    forced.refused(422, "Invalid");
    let unknown = api.send(Method::PATCH, &path, &[("content-type", "text/plain")], "{}").await;
    unknown.refused(415, "UnsupportedMediaType");
}

#[tokio::test]
async fn json_patch_test_of_a_missing_path_against_null_passes_as_kube_finalizers_need() {
    let api = Api::new();
    api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    let ops = json!([
        {"op": "test", "path": "/metadata/finalizers", "value": null},
        {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/f"]},
    ]);
    let path = format!("{CONFIG_MAPS}/a");
    let made = api.json_patch(&path, &ops).await.ok();
    assert_eq!(made["metadata"]["finalizers"], json!(["example.com/f"]));
    api.json_patch(&path, &ops).await.refused(422, "Invalid");
    let remove = json!([{"op": "remove", "path": "/metadata/finalizers/0"}]);
    let made = api.json_patch(&path, &remove).await.ok();
    assert_eq!(made["metadata"]["finalizers"], Value::Null);
    api.json_patch(&path, &ops).await.ok();
}

#[tokio::test]
async fn generation_counts_spec_changes_and_status_is_written_through_its_subresource_only() {
    let api = Api::new();
    let path = format!("{DEPLOYMENTS}/d");
    let mut object = deployment("d", 1);
    object["status"] = json!({"replicas": 7});
    let made = api.post(DEPLOYMENTS, &object).await.ok();
    assert_eq!((&made["metadata"]["generation"], &made["status"]), (&json!(1), &json!({})));

    let both = json!({"spec": {"replicas": 2}, "status": {"replicas": 7}});
    let main = api.merge(&path, &both).await.ok();
    assert_eq!((&main["spec"]["replicas"], &main["status"]), (&json!(2), &json!({})));
    assert_eq!(main["metadata"]["generation"], 2);

    let both = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 5}, "status": {"replicas": 2}});
    let status = api.merge(&format!("{path}/status"), &both).await.ok();
    assert_eq!(
        (&status["spec"]["replicas"], &status["status"]["replicas"]),
        (&json!(2), &json!(2))
    );
    assert_eq!(
        (&status["metadata"]["generation"], &status["metadata"]["labels"]),
        (&json!(2), &Value::Null)
    );

    let label = api.merge(&path, &json!({"metadata": {"labels": {"a": "b"}}})).await.ok();
    assert_eq!(label["metadata"]["generation"], 2);
    // The Deployment strategy counts annotations too.
    let note = api.merge(&path, &json!({"metadata": {"annotations": {"a": "b"}}})).await.ok();
    assert_eq!(note["metadata"]["generation"], 3);
    assert_eq!(api.get(&format!("{path}/status")).await.ok()["status"]["replicas"], 2);
}

#[tokio::test]
async fn scale_is_a_window_on_replicas() {
    let api = Api::new();
    let path = format!("{DEPLOYMENTS}/d/scale");
    api.post(DEPLOYMENTS, &deployment("d", 1)).await.ok();
    let mut scale = api.get(&path).await.ok();
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(1)));
    assert_eq!(scale["status"]["selector"], "app=d");
    scale["spec"]["replicas"] = 4.into();
    assert_eq!(api.put(&path, &scale).await.ok()["spec"]["replicas"], 4);
    api.put(&path, &scale).await.refused(409, "Conflict");
    assert_eq!(
        api.merge(&path, &json!({"spec": {"replicas": 6}})).await.ok()["spec"]["replicas"],
        6
    );
    let deployment = api.get(&format!("{DEPLOYMENTS}/d")).await.ok();
    assert_eq!(
        (&deployment["spec"]["replicas"], &deployment["metadata"]["generation"]),
        (&json!(6), &json!(3))
    );
    api.merge(&path, &json!({"spec": {"replicas": -1}})).await.refused(422, "Invalid");
}

#[tokio::test]
async fn wrong_types_are_400_and_unknown_fields_follow_field_validation() {
    let api = Api::new();
    let mut wrong = deployment("d", 1);
    wrong["spec"]["replicas"] = "three".into();
    let message = api.post(DEPLOYMENTS, &wrong).await;
    assert!(message.refused(400, "BadRequest").contains("spec.replicas"), "{message:?}");
    let mut unknown = deployment("d", 1);
    unknown["spec"]["replica"] = 3.into();
    let strict = api.post(&format!("{DEPLOYMENTS}?fieldValidation=Strict"), &unknown).await;
    assert!(
        strict
            .refused(400, "BadRequest")
            .ends_with("strict decoding error: unknown field \"spec.replica\"")
    );
    let warned = api.post(DEPLOYMENTS, &unknown).await;
    assert_eq!(warned.warnings, ["299 - \"unknown field \\\"spec.replica\\\"\""]);
    assert_eq!(warned.ok()["spec"]["replica"], Value::Null);
    unknown["metadata"]["name"] = "e".into();
    let ignored = api.post(&format!("{DEPLOYMENTS}?fieldValidation=Ignore"), &unknown).await;
    assert!(ignored.warnings.is_empty() && ignored.code == 201);
}

#[tokio::test]
async fn deployments_are_defaulted_and_validated_as_users_know_them() {
    let api = Api::new();
    let made = api.post(DEPLOYMENTS, &deployment("d", 1)).await.ok();
    let spec = &made["spec"];
    assert_eq!(
        spec["strategy"]["rollingUpdate"],
        json!({"maxSurge": "25%", "maxUnavailable": "25%"})
    );
    assert_eq!(
        (&spec["revisionHistoryLimit"], &spec["progressDeadlineSeconds"]),
        (&json!(10), &json!(600))
    );
    let pod = &spec["template"]["spec"];
    assert_eq!(
        (&pod["restartPolicy"], &pod["dnsPolicy"]),
        (&json!("Always"), &json!("ClusterFirst"))
    );
    assert_eq!(pod["containers"][0]["imagePullPolicy"], "IfNotPresent");

    let mut bad = deployment("e", -1);
    bad["spec"]["selector"]["matchLabels"] = json!({"app": "other"});
    bad["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({"limits": {"cpu": "1x"}});
    let answer = api.post(DEPLOYMENTS, &bad).await;
    answer.refused(422, "Invalid");
    let fields: Vec<_> = answer.body["details"]["causes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["field"].as_str().unwrap())
        .collect();
    assert_eq!(
        fields,
        [
            "spec.template.metadata.labels",
            "spec.replicas",
            "spec.template.spec.containers[0].resources.limits[cpu]",
        ]
    );
    let selector = json!({"spec": {
        "selector": {"matchLabels": {"app": "x"}}, "template": {"metadata": {"labels": {"app": "x"}}},
    }});
    let message = api.merge(&format!("{DEPLOYMENTS}/d"), &selector).await;
    assert!(message.refused(422, "Invalid").contains("field is immutable"));
}

#[tokio::test]
async fn services_get_addresses_that_stay_and_are_not_shared() {
    let api = Api::new();
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str, extra: Value| {
        let mut s = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]},
        });
        for (field, value) in extra.as_object().unwrap() {
            s["spec"][field] = value.clone();
        }
        s
    };
    let a = api.post(services, &service("a", json!({}))).await.ok();
    let ip = a["spec"]["clusterIP"].as_str().unwrap();
    assert!(ip.starts_with("10.96."), "{ip}");
    assert_eq!(
        (&a["spec"]["type"], &a["spec"]["ports"][0]["targetPort"]),
        (&json!("ClusterIP"), &json!(80))
    );
    let kept = api.put(&format!("{services}/a"), &service("a", json!({}))).await.ok();
    assert_eq!(kept["spec"]["clusterIP"], ip);
    let taken = api.post(services, &service("b", json!({"clusterIP": ip}))).await;
    assert!(taken.refused(422, "Invalid").contains("already allocated"));
    let moved =
        api.merge(&format!("{services}/a"), &json!({"spec": {"clusterIP": "10.96.9.9"}})).await;
    moved.refused(422, "Invalid");
    let headless = api.post(services, &service("h", json!({"clusterIP": "None"}))).await.ok();
    assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
    let node = api.post(services, &service("n", json!({"type": "NodePort"}))).await.ok();
    let port = node["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
    assert!((30_000..=32_767).contains(&port));
    let same = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
    api.post(services, &service("m", same)).await.refused(422, "Invalid");
}

#[tokio::test]
async fn secrets_take_string_data_and_config_maps_may_be_immutable() {
    let api = Api::new();
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"a": "hello"}});
    let made = api.post(secrets, &secret).await.ok();
    assert_eq!((&made["data"]["a"], &made["stringData"]), (&json!("aGVsbG8="), &Value::Null));
    assert_eq!(made["type"], "Opaque");
    api.merge(&format!("{secrets}/s"), &json!({"data": {"a": "***"}}))
        .await
        .refused(422, "Invalid");
    let mut frozen = config_map("f");
    frozen["immutable"] = true.into();
    api.post(CONFIG_MAPS, &frozen).await.ok();
    let change = api.merge(&format!("{CONFIG_MAPS}/f"), &json!({"data": {"v": "2"}})).await;
    change.refused(422, "Invalid");
}

#[tokio::test]
async fn finalizers_hold_a_deleted_object_until_the_last_is_removed() {
    let api = Api::new();
    let path = format!("{DEPLOYMENTS}/d");
    let mut object = deployment("d", 1);
    object["metadata"]["finalizers"] = json!(["example.com/a", "example.com/b"]);
    api.post(DEPLOYMENTS, &object).await.ok();
    let held = api.delete(&path).await.ok();
    assert_eq!((&held["kind"], &held["metadata"]["generation"]), (&json!("Deployment"), &json!(2)));
    assert_eq!(held["metadata"]["deletionTimestamp"], "2026-01-01T00:00:00Z");
    let again = api.delete(&path).await.ok();
    assert_eq!(version(&again), version(&held));
    let more = json!({"metadata": {"finalizers": ["example.com/a", "example.com/c"]}});
    assert!(api.merge(&path, &more).await.refused(422, "Invalid").contains("no new finalizers"));
    api.merge(&path, &json!({"metadata": {"finalizers": ["example.com/b"]}})).await.ok();
    api.get(&path).await.ok();
    api.merge(&path, &json!({"metadata": {"finalizers": null}})).await.ok();
    api.get(&path).await.refused(404, "NotFound");
}

#[tokio::test]
async fn delete_checks_preconditions_and_answers_with_a_status() {
    let api = Api::new();
    let path = format!("{CONFIG_MAPS}/a");
    let made = api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    let wrong =
        json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "other"}});
    let answer = api.send(Method::DELETE, &path, &[], wrong.to_string()).await;
    assert!(answer.refused(409, "Conflict").contains("Precondition failed: UID"));
    let wrong = json!({"preconditions": {"resourceVersion": "1"}});
    api.send(Method::DELETE, &path, &[], wrong.to_string()).await.refused(409, "Conflict");
    let right = json!({"preconditions": {"uid": made["metadata"]["uid"]}});
    let status = api.send(Method::DELETE, &path, &[], right.to_string()).await.ok();
    assert_eq!(
        (&status["status"], &status["details"]["uid"]),
        (&json!("Success"), &made["metadata"]["uid"])
    );
    api.delete(&path).await.refused(404, "NotFound");
    let bad = json!({"propagationPolicy": "Sideways"}).to_string();
    api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    api.send(Method::DELETE, &path, &[], bad).await.refused(422, "Invalid");
}

#[tokio::test]
async fn delete_collection_deletes_what_the_selectors_match() {
    let api = Api::new();
    for name in ["a", "b", "c"] {
        api.post(PODS, &pod(name)).await.ok();
    }
    let gone = api.delete(&format!("{PODS}?labelSelector=app+in+(a,c)")).await.ok();
    assert_eq!(gone["items"].as_array().unwrap().len(), 2);
    let left = api.get(PODS).await.ok();
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn pods_on_a_node_are_deleted_gracefully_and_the_kubelet_finishes() {
    let api = Api::new();
    api.post(PODS, &pod("p")).await.ok();
    let path = format!("{PODS}/p");
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "node-1"}});
    api.post(&format!("{path}/binding"), &binding).await.ok();
    api.post(&format!("{path}/binding"), &binding).await.refused(409, "Conflict");
    let bound = api.get(&path).await.ok();
    assert_eq!(bound["spec"]["nodeName"], "node-1");
    assert_eq!(bound["status"]["conditions"][0]["type"], "PodScheduled");
    let held = api.delete(&path).await.ok();
    assert_eq!(held["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(held["metadata"]["deletionTimestamp"], "2026-01-01T00:00:30Z");
    // Grace only shrinks.
    let longer = api.delete(&format!("{path}?gracePeriodSeconds=60")).await.ok();
    assert_eq!(version(&longer), version(&held));
    let shorter = api.delete(&format!("{path}?gracePeriodSeconds=5")).await.ok();
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5);
    api.delete(&format!("{path}?gracePeriodSeconds=0")).await.ok();
    api.get(&path).await.refused(404, "NotFound");
    // An unscheduled pod needs no kubelet.
    api.post(PODS, &pod("q")).await.ok();
    api.delete(&format!("{PODS}/q")).await.ok();
    api.get(&format!("{PODS}/q")).await.refused(404, "NotFound");
}

#[tokio::test]
async fn pod_specs_are_fixed_but_for_images_and_a_few_fields() {
    let api = Api::new();
    api.post(PODS, &pod("p")).await.ok();
    let path = format!("{PODS}/p");
    let image = json!({"spec": {"containers": [{"name": "main", "image": "nginx:2"}]}});
    api.strategic(&path, &image).await.ok();
    let command = json!({"spec": {"containers": [{"name": "main", "command": ["sh"]}]}});
    let message = api.strategic(&path, &command).await;
    assert!(message.refused(422, "Invalid").contains("pod updates may not change fields"));
}

#[tokio::test]
async fn eviction_respects_disruption_budgets() {
    let api = Api::new();
    api.post(PODS, &pod("p")).await.ok();
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({"metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "p"}}}});
    api.post(budgets, &budget).await.ok();
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let path = format!("{PODS}/p/eviction");
    api.post(&path, &eviction).await.refused(429, "TooManyRequests");
    let allowed = json!({"status": {"disruptionsAllowed": 1}});
    api.merge(&format!("{budgets}/b/status"), &allowed).await.ok();
    api.post(&path, &eviction).await.ok();
    api.get(&format!("{PODS}/p")).await.refused(404, "NotFound");
    assert_eq!(api.get(&format!("{budgets}/b")).await.ok()["status"]["disruptionsAllowed"], 0);
}

#[tokio::test]
async fn jobs_generate_their_selector_and_keep_their_template() {
    let api = Api::new();
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}}}});
    let made = api.post(jobs, &job).await.ok();
    let uid = &made["metadata"]["uid"];
    assert_eq!(made["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"], *uid);
    assert_eq!(made["spec"]["template"]["metadata"]["labels"]["job-name"], "j");
    assert_eq!(
        (&made["spec"]["completions"], &made["spec"]["backoffLimit"]),
        (&json!(1), &json!(6))
    );
    let change = json!({"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}});
    api.merge(&format!("{jobs}/j"), &change).await.refused(422, "Invalid");
    let always = json!({"metadata": {"name": "k"}, "spec": {"template": {"spec": {
        "containers": [{"name": "c", "image": "busybox"}]}}}});
    api.post(jobs, &always).await.refused(422, "Invalid");
}

#[tokio::test]
async fn system_namespaces_cannot_be_deleted() {
    let api = Api::new();
    api.delete("/api/v1/namespaces/default").await.refused(403, "Forbidden");
}

#[tokio::test]
async fn methods_that_a_path_does_not_have_are_refused() {
    let api = Api::new();
    api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    for (method, path) in [
        (Method::PUT, CONFIG_MAPS.to_owned()),
        (Method::POST, format!("{CONFIG_MAPS}/a")),
        (Method::POST, "/version".to_owned()),
        (Method::DELETE, format!("{DEPLOYMENTS}/d/status")),
        (Method::GET, format!("{PODS}/p/binding")),
        (Method::POST, "/api/v1/configmaps".to_owned()),
    ] {
        let answer = api.send(method.clone(), &path, &[], "{}").await;
        assert_eq!(answer.code, 405, "{method} {path}: {answer:?}");
    }
    api.get(&format!("{CONFIG_MAPS}/a/status")).await.refused(404, "NotFound");
}

#[tokio::test]
async fn priority_classes_keep_their_value_and_leave_the_systems_names_alone() {
    const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let api = Api::new();
    let class = |name: &str, value: i64| json!({"metadata": {"name": name}, "value": value});
    let made = api.post(CLASSES, &class("gold", 1_000_000_000)).await.ok();
    assert_eq!(made["preemptionPolicy"], "PreemptLowerPriority");
    for (name, value, why) in [
        (
            "too-high",
            1_000_000_001,
            "maximum allowed value of a user defined priority is 1000000000",
        ),
        ("system-mine", 1, "reserved for system use only"),
        ("system-node-critical", 5, "must be 2000001000"),
    ] {
        let refused = api.post(CLASSES, &class(name, value)).await;
        let message = refused.refused(422, "Invalid");
        assert!(message.contains(why), "{message}");
    }
    api.post(CLASSES, &class("system-node-critical", 2_000_001_000)).await.ok();
    let gold = format!("{CLASSES}/gold");
    let changed = api.merge(&gold, &json!({"value": 7})).await;
    let message = changed.refused(422, "Invalid");
    assert!(message.contains("value: Forbidden: may not be changed in an update."), "{message}");
    api.merge(&gold, &json!({"description": "first of all"})).await.ok();
}

#[tokio::test]
async fn a_protected_object_is_deleted_only_after_its_label_was_removed() {
    let api = Api::new();
    let mut object = config_map("kept");
    object["metadata"]["labels"] =
        json!({"resourcetemplate.atoll.dev/deletion-protected": "Always"});
    api.post(CONFIG_MAPS, &object).await.ok();
    let path = format!("{CONFIG_MAPS}/kept");
    for path in [&path, CONFIG_MAPS, "/api/v1/namespaces/default/configmaps?labelSelector="] {
        let refused = api.delete(path).await;
        assert!(refused.refused(403, "Forbidden").contains("remove the label"), "{refused:?}");
    }
    for value in ["Never", ""] {
        object["metadata"]["labels"]["resourcetemplate.atoll.dev/deletion-protected"] =
            value.into();
        api.put(&path, &object).await.ok();
        api.delete(&path).await.ok();
        api.post(CONFIG_MAPS, &object).await.ok();
    }
}
