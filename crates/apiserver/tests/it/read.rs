//! get, list, discovery.

use http::Method;
use serde_json::{Value, json};

use crate::common::{Api, CONFIG_MAPS, PODS, config_map, pod, version};

fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| i["metadata"]["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn system_namespaces_exist_and_kube_system_identifies_the_cluster() {
    let (one, two) = (Api::new(), Api::new());
    let list = one.get("/api/v1/namespaces").await.ok();
    assert_eq!(names(&list), ["default", "kube-node-lease", "kube-public", "kube-system"]);
    let path = "/api/v1/namespaces/kube-system";
    let uid = |v: Value| v["metadata"]["uid"].as_str().unwrap().to_owned();
    assert_eq!(uid(one.get(path).await.ok()), uid(two.get(path).await.ok()));
}

#[tokio::test]
async fn lists_are_paged_at_one_revision_and_count_what_remains() {
    let api = Api::new();
    for name in ["a", "b", "c", "d", "e"] {
        api.post(CONFIG_MAPS, &config_map(name)).await.ok();
    }
    let first = api.get(&format!("{CONFIG_MAPS}?limit=2")).await.ok();
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    api.delete(&format!("{CONFIG_MAPS}/c")).await.ok();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest = api.get(&format!("{CONFIG_MAPS}?limit=5&continue={token}")).await.ok();
    assert_eq!(names(&rest), ["c", "d", "e"]);
    assert_eq!(version(&rest), version(&first));
    assert_eq!(rest["metadata"]["continue"], Value::Null);
    api.get(&format!("{CONFIG_MAPS}?continue=nonsense")).await.refused(400, "BadRequest");
}

#[tokio::test]
async fn resource_version_match_follows_the_list_options_rules() {
    let api = Api::new();
    let old = version(&api.post(CONFIG_MAPS, &config_map("a")).await.ok());
    api.post(CONFIG_MAPS, &config_map("b")).await.ok();
    let exact = format!("{CONFIG_MAPS}?resourceVersionMatch=Exact&resourceVersion={old}");
    assert_eq!(names(&api.get(&exact).await.ok()), ["a"]);
    let newer = format!("{CONFIG_MAPS}?resourceVersionMatch=NotOlderThan&resourceVersion={old}");
    assert_eq!(names(&api.get(&newer).await.ok()), ["a", "b"]);
    let future = api.get(&format!("{CONFIG_MAPS}?resourceVersion=99999")).await;
    future.refused(504, "Timeout");
    assert_eq!(future.body["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    for bad in [
        "resourceVersionMatch=Exact",
        "resourceVersionMatch=Exact&resourceVersion=0",
        "resourceVersionMatch=Other&resourceVersion=1",
        "sendInitialEvents=true",
    ] {
        api.get(&format!("{CONFIG_MAPS}?{bad}")).await.refused(422, "Invalid");
    }
}

#[tokio::test]
async fn selectors_restrict_lists_by_labels_and_known_fields() {
    let api = Api::new();
    for name in ["a", "b", "c"] {
        api.post(PODS, &pod(name)).await.ok();
    }
    let list = |query: &'static str| {
        let api = &api;
        async move { api.get(&format!("{PODS}?{query}")).await }
    };
    assert_eq!(names(&list("labelSelector=app+in+(a,b),app!=b").await.ok()), ["a"]);
    assert_eq!(names(&list("fieldSelector=metadata.name%3Db").await.ok()), ["b"]);
    assert_eq!(names(&list("fieldSelector=status.phase!=Pending").await.ok()), [] as [&str; 0]);
    assert_eq!(
        names(&list("fieldSelector=spec.nodeName%3D,metadata.name!=a").await.ok()),
        ["b", "c"]
    );
    let message = list("fieldSelector=spec.unknown%3Dx").await;
    assert_eq!(message.refused(400, "BadRequest"), "field label not supported: spec.unknown");
    list("labelSelector=a%3Db,,").await.refused(400, "BadRequest");
}

#[tokio::test]
async fn get_of_what_is_not_there_is_a_status_with_details() {
    let api = Api::new();
    let answer = api.get("/apis/apps/v1/namespaces/default/deployments/x").await;
    assert_eq!(answer.refused(404, "NotFound"), "deployments.apps \"x\" not found");
    assert_eq!(
        answer.body["details"],
        json!({"name": "x", "group": "apps", "kind": "deployments"})
    );
    for path in ["/apis/apps/v1/widgets", "/apis/none.io/v1/x", "/nothing", "/api/v1/pods/x"] {
        api.get(path).await.refused(404, "NotFound");
    }
}

#[tokio::test]
async fn partial_object_metadata_is_served_for_get_and_list() {
    let api = Api::new();
    api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    let accept = |kind: &str| format!("application/json;as={kind};g=meta.k8s.io;v=v1");
    let one = accept("PartialObjectMetadata");
    let one =
        api.send(Method::GET, &format!("{CONFIG_MAPS}/a"), &[("accept", &one)], "").await.ok();
    assert_eq!((&one["kind"], &one["data"]), (&json!("PartialObjectMetadata"), &Value::Null));
    let many = accept("PartialObjectMetadataList");
    let many = api.send(Method::GET, CONFIG_MAPS, &[("accept", &many)], "").await.ok();
    assert_eq!(many["kind"], "PartialObjectMetadataList");
    assert_eq!(names(&many), ["a"]);
    let accept = accept("PartialObjectMetadataList");
    let empty = api.send(Method::GET, "/api/v1/secrets", &[("accept", &accept)], "").await.ok();
    assert_eq!(empty["kind"], "PartialObjectMetadataList");
    assert_eq!(empty.get("items"), Some(&Value::Null), "as kube-apiserver answers");
    let none = api.send(
        Method::GET,
        CONFIG_MAPS,
        &[("accept", "application/vnd.kubernetes.protobuf")],
        "",
    );
    none.await.refused(406, "NotAcceptable");
}

#[tokio::test]
async fn events_are_one_kind_in_two_groups() {
    let api = Api::new();
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": "e", "namespace": "default"},
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z", "note": "hello", "reason": "Testing",
        "action": "Test", "type": "Normal",
        "reportingController": "tests", "reportingInstance": "tests-1",
    });
    api.post("/apis/events.k8s.io/v1/namespaces/default/events", &event).await.ok();
    let core = api
        .get("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dp,reason%3DTesting")
        .await
        .ok();
    let core = &core["items"][0];
    assert_eq!((&core["apiVersion"], &core["message"]), (&json!("v1"), &json!("hello")));
    assert_eq!(core["eventTime"], "2026-01-01T00:00:00.000000Z");
    let new = api.get("/apis/events.k8s.io/v1/namespaces/default/events/e").await.ok();
    assert_eq!(
        (&new["apiVersion"], &new["regarding"]["name"]),
        (&json!("events.k8s.io/v1"), &json!("p"))
    );
}

#[tokio::test]
async fn discovery_is_served_aggregated_and_legacy() {
    let api = Api::new();
    let accept =
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let groups = api.send(Method::GET, "/apis", &[("accept", accept)], "").await.ok();
    assert_eq!(groups["kind"], "APIGroupDiscoveryList");
    let apps = groups["items"].as_array().unwrap().iter().find(|g| g["metadata"]["name"] == "apps");
    let deployments = apps.unwrap()["versions"][0]["resources"]
        .as_array()
        .unwrap()
        .iter()
        .find(|r| r["resource"] == "deployments")
        .unwrap();
    assert_eq!(deployments["shortNames"], json!(["deploy"]));
    let subresources: Vec<_> = deployments["subresources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["subresource"].as_str().unwrap())
        .collect();
    assert_eq!(subresources, ["scale", "status"]);
    assert_eq!(api.get("/api").await.ok()["versions"], json!(["v1"]));
    let legacy = api.get("/apis/apps/v1").await.ok();
    assert!(
        legacy["resources"].as_array().unwrap().iter().any(|r| r["name"] == "deployments/scale")
    );
    assert_eq!(api.get("/apis/apps").await.ok()["preferredVersion"]["version"], "v1");
}

#[tokio::test]
async fn every_discovered_group_version_has_an_openapi_document_with_validating_patches() {
    let api = Api::new();
    let index = api.get("/openapi/v3").await.ok();
    let paths = index["paths"].as_object().unwrap();
    assert!(paths.contains_key("api/v1") && paths.contains_key("apis/apps/v1"));
    for (name, entry) in paths {
        let document = api.get(entry["serverRelativeURL"].as_str().unwrap()).await.ok();
        let resources = api.get(&format!("/{name}")).await.ok();
        for resource in resources["resources"].as_array().unwrap() {
            let verbs = resource["verbs"].as_array().unwrap();
            let plural = resource["name"].as_str().unwrap();
            if plural.contains('/') || !verbs.contains(&json!("patch")) {
                continue;
            }
            let scope = if resource["namespaced"] == true { "/namespaces/{namespace}" } else { "" };
            let patch = &document["paths"][format!("/{name}{scope}/{plural}/{{name}}")]["patch"];
            assert_eq!(
                patch["x-kubernetes-group-version-kind"]["kind"], resource["kind"],
                "{plural}"
            );
            let parameters = patch["parameters"].as_array().unwrap();
            assert!(parameters.iter().any(|p| p["name"] == "fieldValidation"), "{plural}");
            let schema = patch["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
                .as_str()
                .unwrap();
            let component = schema.strip_prefix("#/components/schemas/").unwrap();
            let schema = &document["components"]["schemas"][component];
            assert_eq!(schema["x-kubernetes-group-version-kind"][0]["kind"], resource["kind"]);
        }
    }
}

#[tokio::test]
async fn a_request_of_a_known_shape_answers_reviews() {
    let api = Api::new();
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(api.post(path, &review).await.ok()["status"]["allowed"], true);
    let who = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let who = api.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &who).await.ok();
    assert_eq!(who["status"]["userInfo"]["username"], "system:admin");
}
