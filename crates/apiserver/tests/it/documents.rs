//! Examples of the documentation and of `examples/` are objects that an API server accepts.

use std::{collections::BTreeSet, fs, path::Path};

use http::Method;
use serde_json::{Value, json};

use crate::common::Api;

/// Pages whose YAML is meant to be applied.
const PAGES: [&str; 5] =
    ["leaving.md", "members.md", "overrides.md", "policies.md", "scheduling.md"];

/// The objects in a page. Excerpts of objects have no apiVersion.
fn of_page(page: &str) -> Vec<Value> {
    let blocks = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks
        .flat_map(|block| serde_saphyr::from_multiple::<Value>(block).unwrap())
        .filter(|object| object["apiVersion"].is_string())
        // A file of the controller, not an object.
        .filter(|object| object["kind"] != "SchedulerConfiguration")
        .collect()
}

/// A server with Atoll's kinds.
async fn hub() -> Api {
    let api = Api::new();
    for definition in atoll_api::crds::all() {
        let definition = serde_json::to_value(definition).unwrap();
        api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.ok();
    }
    api
}

/// Applies an object as `kubectl apply --server-side --validate=strict` does.
async fn apply(api: &Api, plurals: &BTreeSet<(String, String, String)>, object: &Value) {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let (version, kind) = (text("/apiVersion").unwrap(), text("/kind").unwrap());
    let found = plurals.iter().find(|(v, k, _)| (v.as_str(), k.as_str()) == (version, kind));
    let (.., plural) = found.unwrap_or_else(|| panic!("{version} {kind} is not served"));
    let prefix = if version.contains('/') { "apis" } else { "api" };
    let name = text("/metadata/name").unwrap_or_else(|| panic!("a name: {object}"));
    let place = match text("/metadata/namespace") {
        None => String::new(),
        Some(namespace) => {
            let body =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            let made = api.post("/api/v1/namespaces", &body).await;
            assert!(made.code < 300 || made.code == 409, "{made:?}");
            format!("namespaces/{namespace}/")
        }
    };
    let path = format!(
        "/{prefix}/{version}/{place}{plural}/{name}?fieldManager=docs&force=true&fieldValidation=Strict"
    );
    let kind = [("content-type", "application/apply-patch+yaml")];
    let applied = api.send(Method::PATCH, &path, &kind, object.to_string()).await;
    assert!(applied.code < 300, "{object:#}: {applied:#?}");
}

/// Kind and plural of everything that the server serves, with the apiVersion.
async fn plurals(api: &Api) -> BTreeSet<(String, String, String)> {
    let mut versions = vec![("v1".to_owned(), "/api/v1".to_owned())];
    let groups = api.get("/apis").await.ok();
    for group in groups["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            let version = version["groupVersion"].as_str().unwrap();
            versions.push((version.to_owned(), format!("/apis/{version}")));
        }
    }
    let mut found = BTreeSet::new();
    for (version, path) in versions {
        for resource in api.get(&path).await.ok()["resources"].as_array().unwrap() {
            let text = |field: &str| resource[field].as_str().unwrap().to_owned();
            if !text("name").contains('/') {
                found.insert((version.clone(), text("kind"), text("name")));
            }
        }
    }
    found
}

#[tokio::test]
async fn what_the_documentation_and_the_examples_show_can_be_applied() {
    let api = hub().await;
    let plurals = plurals(&api).await;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for page in PAGES {
        let text = fs::read_to_string(root.join("docs").join(page)).unwrap();
        let objects = of_page(&text);
        assert!(!objects.is_empty(), "{page} has no example");
        for object in &objects {
            apply(&api, &plurals, object).await;
        }
    }
    let files = |folder: &str| fs::read_dir(root.join(folder)).unwrap();
    for entry in files("examples").chain(files("examples/policies")) {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            // Templates for `sed` have upper-case names.
            let text = fs::read_to_string(&path).unwrap().replace("APP", "app-1");
            for mut object in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
                // As kubectl fills it in.
                let cluster_scoped = matches!(
                    object["kind"].as_str().unwrap(),
                    "Namespace"
                        | "ClusterPropagationPolicy"
                        | "ClusterOverridePolicy"
                        | "ClusterSet"
                        | "ChangeGuard"
                        | "ClusterTaintPolicy"
                        | "WorkloadRebalancer"
                );
                if !cluster_scoped && object["metadata"]["namespace"].is_null() {
                    object["metadata"]["namespace"] = json!("default");
                }
                apply(&api, &plurals, &object).await;
            }
        }
    }
}
