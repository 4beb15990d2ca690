//! Patches of kinds with parts of which the schema says nothing. Such a part is not parsed by a patch that leaves it alone, and
//! managed fields are not parsed by one that resets them; a dry run parses everything, so both must have the same result.

use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};

use crate::common::Api;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const ROUTES: &str = "/apis/example.com/v1/namespaces/default/routes";
const ROUTE: &str = "/apis/example.com/v1/namespaces/default/routes/r";

async fn with_route() -> Api {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["places"], "properties": {
            "places": open,
            "more": open,
            "count": {"type": "integer", "default": 1, "maximum": 3},
            "step": {
                "type": "object",
                "properties": {"term": {"type": "integer"}},
                "x-kubernetes-validations": [{"rule": "self.term >= oldSelf.term"}],
            },
        }},
        "status": open,
    }});
    let api = Api::new();
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "routes.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "routes", "kind": "Route"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    });
    api.post(CRDS, &crd).await.ok();
    let route = json!({
        "apiVersion": "example.com/v1", "kind": "Route", "metadata": {"name": "r"},
        "spec": {"places": {"weights": [{"weight": 1, "text": "\"}{\\"}], "n": 1.5}, "step": {"term": 1}},
    });
    api.apply(&format!("{ROUTE}?fieldManager=a"), &route).await.ok();
    api
}

/// An answer without what differs between a write and its dry run.
fn comparable(mut body: Value) -> Value {
    if let Some(metadata) = body["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    body
}

fn patch() -> impl Strategy<Value = (&'static str, Value)> {
    let spec = select(vec![
        json!({"count": 2}),
        json!({"count": 9}),
        json!({"count": null}),
        json!({"unknown": 1}),
        json!({"step": {"term": 0}}),
        json!({"step": {"term": 2}}),
        json!({"places": {"n": 2}}),
        json!({"places": {"weights": null}, "count": 3}),
        json!({"places": null}),
        json!({"places": 1}),
        json!({"more": {"a": {"b": [1]}}}),
        json!({"more": {"a": null}, "count": 2}),
        json!({"more": null}),
        Value::Null,
        json!({}),
    ]);
    let metadata = select(vec![
        json!({}),
        json!({"labels": {"a": "1"}}),
        json!({"labels": null}),
        json!({"managedFields": [{}]}),
        json!({"managedFields": []}),
        json!({"managedFields": null}),
        json!({"finalizers": ["example.com/f"]}),
    ]);
    let status =
        select(vec![json!({}), json!({"s": {"deep": [1]}}), json!({"s": null}), Value::Null]);
    (select(vec!["", "/status"]), spec, metadata, status).prop_map(
        |(path, spec, metadata, status)| {
            (path, json!({"metadata": metadata, "spec": spec, "status": status}))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_patch_has_the_result_of_its_dry_run(patches in proptest::collection::vec(patch(), 1..12)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let api = with_route().await;
            for (path, patch) in patches {
                let send = async |query: &str| {
                    let path = format!("{ROUTE}{path}?fieldManager=b{query}");
                    api.merge(&path, &patch).await
                };
                let (dry, real) = (send("&dryRun=All").await, send("").await);
                assert_eq!(real.code, dry.code, "{patch}");
                assert_eq!(real.warnings, dry.warnings, "{patch}");
                assert_eq!(comparable(real.body.clone()), comparable(dry.body), "{patch}");
                if real.code == 200 {
                    assert_eq!(api.get(ROUTE).await.ok(), real.body, "{patch}");
                }
            }
        });
    }
}

#[tokio::test]
async fn readers_of_a_patched_object_see_its_open_parts() {
    let api = with_route().await;
    let patched = api.merge(ROUTE, &json!({"metadata": {"labels": {"a": "1"}}})).await.ok();
    assert_eq!(patched["spec"]["places"]["n"], 1.5);
    let listed = api.get(&format!("{ROUTES}?labelSelector=a%3D1")).await.ok();
    assert_eq!(listed["items"][0]["spec"], patched["spec"]);
    let test = json!([{"op": "test", "path": "/spec/places/n", "value": 1.5}]);
    api.json_patch(ROUTE, &test).await.ok();
    let mut put = patched.clone();
    put["spec"]["places"]["n"] = 2.into();
    assert_eq!(api.put(ROUTE, &put).await.ok()["metadata"]["generation"], 2);
}
