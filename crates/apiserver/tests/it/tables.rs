//! Tables: what `kubectl get` prints.

use serde_json::{Value, json};

use crate::common::{Api, CONFIG_MAPS, DEPLOYMENTS, PODS, config_map, deployment, pod};

const ACCEPT: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

fn columns(table: &Value) -> Vec<&str> {
    let list = table["columnDefinitions"].as_array().unwrap();
    list.iter().map(|c| c["name"].as_str().unwrap()).collect()
}

/// The cells of the first row, by heading.
fn row(table: &Value) -> Vec<(&str, &Value)> {
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells.len(), columns(table).len());
    columns(table).into_iter().zip(cells).collect()
}

fn cell<'a>(table: &'a Value, heading: &str) -> &'a Value {
    row(table).into_iter().find(|(h, _)| *h == heading).unwrap().1
}

#[tokio::test]
async fn every_kind_prints_as_many_cells_as_columns_even_when_it_is_empty() {
    let api = Api::new();
    for (path, object) in [
        ("/api/v1/nodes", json!({"metadata": {"name": "x"}})),
        (
            "/api/v1/namespaces/default/services",
            json!({"metadata": {"name": "x"}, "spec": {"ports": [{"port": 1}]}}),
        ),
        ("/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "x"}})),
        (
            "/api/v1/namespaces/default/persistentvolumeclaims",
            json!({"metadata": {"name": "x"}, "spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}}),
        ),
        ("/api/v1/persistentvolumes", json!({"metadata": {"name": "x"}})),
        ("/api/v1/namespaces/default/endpoints", json!({"metadata": {"name": "x"}})),
        (
            "/api/v1/namespaces/default/events",
            json!({"metadata": {"name": "x"}, "involvedObject": {"namespace": "default"}}),
        ),
        (
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
            json!({"metadata": {"name": "x"}, "addressType": "IPv4", "endpoints": []}),
        ),
        (
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            json!({"metadata": {"name": "x"}}),
        ),
        (
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
            json!({"metadata": {"name": "x"}, "spec": {"maxReplicas": 3,
                "scaleTargetRef": {"kind": "Deployment", "name": "d"}}}),
        ),
        (
            "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
            json!({"metadata": {"name": "x"}, "spec": {"defaultBackend": {"service": {
                "name": "s", "port": {"number": 80}}}}}),
        ),
        ("/apis/networking.k8s.io/v1/ingressclasses", json!({"metadata": {"name": "x"}})),
        (
            "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
            json!({"metadata": {"name": "x"}}),
        ),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", json!({"metadata": {"name": "x"}})),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            json!({"metadata": {"name": "x"}, "roleRef": {"kind": "ClusterRole", "name": "x"}}),
        ),
        (
            "/apis/storage.k8s.io/v1/storageclasses",
            json!({"metadata": {"name": "x"}, "provisioner": "p"}),
        ),
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            json!({"metadata": {"name": "x"}, "value": 1}),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            json!({"metadata": {"name": "x"}}),
        ),
        (
            "/apis/apps/v1/namespaces/default/controllerrevisions",
            json!({"metadata": {"name": "x"}, "revision": 1}),
        ),
        ("/apis/apps/v1/namespaces/default/replicasets", with_template("ReplicaSet")),
        ("/apis/apps/v1/namespaces/default/statefulsets", with_template("StatefulSet")),
        ("/apis/apps/v1/namespaces/default/daemonsets", with_template("DaemonSet")),
        (
            "/apis/batch/v1/namespaces/default/cronjobs",
            json!({"metadata": {"name": "x"}, "spec": {
            "schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}}),
        ),
        (
            "/apis/batch/v1/namespaces/default/jobs",
            json!({"metadata": {"name": "x"}, "spec": {
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}),
        ),
    ] {
        api.post(path, &object).await.ok();
        let table = api.table(path).await;
        assert_eq!(table["kind"], "Table", "{path}");
        assert!(row(&table).iter().any(|(_, cell)| **cell == json!("x")), "{path}: {table:#}");
    }
}

fn with_template(kind: &str) -> Value {
    let mut object = deployment("x", 1);
    object["kind"] = kind.into();
    if kind == "DaemonSet" {
        object["spec"].as_object_mut().unwrap().remove("replicas");
    }
    object
}

#[tokio::test]
async fn deployments_print_their_progress_and_wide_columns_have_a_priority() {
    let api = Api::new();
    api.post(DEPLOYMENTS, &deployment("d", 3)).await.ok();
    let status =
        json!({"status": {"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 1}});
    api.merge(&format!("{DEPLOYMENTS}/d/status"), &status).await.ok();
    api.pass(3 * 60 + 5);
    let table = api.table(&format!("{DEPLOYMENTS}/d")).await;
    for (heading, expected) in [
        ("Name", json!("d")),
        ("Ready", json!("2/3")),
        ("Up-to-date", json!(3)),
        ("Available", json!(1)),
        ("Age", json!("3m5s")),
        ("Images", json!("nginx:1.25")),
        ("Selector", json!("app=d")),
    ] {
        assert_eq!(cell(&table, heading), &expected, "{heading}");
    }
    let definitions = table["columnDefinitions"].as_array().unwrap();
    let wide: Vec<_> =
        definitions.iter().filter(|c| c["priority"] == 1).map(|c| &c["name"]).collect();
    assert_eq!(wide, ["Containers", "Images", "Selector"]);
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
}

#[tokio::test]
async fn pod_status_is_the_worst_of_its_containers() {
    let api = Api::new();
    api.post(PODS, &pod("p")).await.ok();
    let path = format!("{PODS}/p");
    let statuses = |state: Value, ready: bool| {
        json!({"status": {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [{
            "name": "main", "ready": ready, "restartCount": 2, "image": "i", "imageID": "",
            "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:00:00Z"}},
            "state": state}]}})
    };
    for (state, ready, expected) in [
        (json!({"running": {}}), true, "Running"),
        (json!({"waiting": {"reason": "CrashLoopBackOff"}}), false, "CrashLoopBackOff"),
        (json!({"terminated": {"exitCode": 3}}), false, "ExitCode:3"),
        (json!({"terminated": {"exitCode": 0, "reason": "Completed"}}), false, "Completed"),
    ] {
        api.merge(&format!("{path}/status"), &json!({"status": null})).await.ok();
        api.merge(&format!("{path}/status"), &statuses(state, ready)).await.ok();
        let table = api.table(&path).await;
        assert_eq!(cell(&table, "Status"), expected);
        assert_eq!(cell(&table, "Ready"), if ready { "1/1" } else { "0/1" });
    }
    api.pass(60);
    let table = api.table(&path).await;
    assert_eq!(
        (cell(&table, "Restarts"), cell(&table, "IP")),
        (&json!("2 (60s ago)"), &json!("10.0.0.1"))
    );
}

#[tokio::test(start_paused = true)]
async fn watch_frames_are_tables_and_the_first_carries_the_columns() {
    let api = Api::new();
    api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    let mut frames = api.watch_as(&format!("{CONFIG_MAPS}?watch=1"), ACCEPT).await;
    let first = frames.next().await.unwrap();
    assert_eq!(columns(&first["object"]), ["Name", "Data", "Age"]);
    assert_eq!(first["object"]["rows"][0]["cells"], json!(["a", 1, "0s"]));
    api.post(CONFIG_MAPS, &config_map("b")).await.ok();
    let second = frames.next().await.unwrap();
    assert_eq!((second["type"].as_str(), columns(&second["object"]).len()), (Some("ADDED"), 0));
    assert_eq!(second["object"]["rows"][0]["cells"][0], "b");
}

#[tokio::test]
async fn include_object_says_how_much_comes_with_a_row() {
    let api = Api::new();
    api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    let table = |include: &'static str| {
        let api = &api;
        async move { api.table(&format!("{CONFIG_MAPS}?includeObject={include}")).await }
    };
    assert_eq!(table("Object").await["rows"][0]["object"]["data"]["v"], "1");
    assert_eq!(table("None").await["rows"][0]["object"], Value::Null);
    assert_eq!(table("Metadata").await["rows"][0]["object"]["metadata"]["name"], "a");
}

#[tokio::test]
async fn printer_columns_of_crds_follow_their_json_paths_and_types() {
    let api = Api::new();
    let crd = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                "additionalPrinterColumns": [
                    {"name": "Ready", "type": "string",
                     "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                    {"name": "Wrong", "type": "integer", "jsonPath": ".spec.name"},
                    {"name": "Map", "type": "string", "jsonPath": ".spec.map"},
                    {"name": "Seen", "type": "date", "jsonPath": ".spec.seen", "priority": 1},
                    {"name": "Missing", "type": "string", "jsonPath": ".spec.missing"},
                ],
            }],
        },
    });
    api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await.ok();
    let object = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
        "spec": {"size": 3, "name": "n", "map": {"a": 1}, "seen": "2025-12-31T23:59:00Z"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    api.post("/apis/example.com/v1/widgets", &object).await.ok();
    let table = api.table("/apis/example.com/v1/widgets").await;
    assert_eq!(table["rows"][0]["cells"], json!(["w", "True", 3, null, "{\"a\":1}", "60s", null]));
    assert_eq!(table["columnDefinitions"][5]["priority"], 1);
}
