//! CustomResourceDefinitions.

use atoll_apiserver::Options;
use http::Method;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::common::{Api, version};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn schema() -> Value {
    json!({"type": "object", "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 9},
                "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
                "ratio": {"type": "number"},
                "term": {"type": "integer"},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}, "size": {"type": "integer", "default": 1}},
                        "x-kubernetes-validations": [
                            {"rule": "self.size <= 5", "message": "parts are small", "fieldPath": ".size"},
                        ],
                    },
                },
            },
            "x-kubernetes-validations": [
                {"rule": "!has(self.parts) || size(self.parts) <= self.size",
                 "messageExpression": "'at most ' + string(self.size) + ' parts'"},
                {"rule": "!has(oldSelf.term) || (has(self.term) && self.term >= oldSelf.term)",
                 "message": "term may not go back", "reason": "FieldValueForbidden", "fieldPath": ".term"},
                {"rule": "!has(self.ratio) || self.ratio < 1.5"},
            ],
        },
        "status": {"type": "object", "properties": {"size": {"type": "integer"}, "phase": {"type": "string"}}},
    }})
}

fn crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
                "schema": {"openAPIV3Schema": schema()},
                "selectableFields": [{"jsonPath": ".spec.color"}],
            }],
        },
    })
}

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

async fn with_widgets() -> Api {
    let api = Api::new();
    api.post(CRDS, &crd()).await.ok();
    api
}

/// The causes of a 422 as "field: message".
#[track_caller]
fn causes(answer: &crate::common::Answer) -> Vec<String> {
    answer.refused(422, "Invalid");
    let list = answer.body["details"]["causes"].as_array().unwrap();
    list.iter()
        .map(|c| format!("{}: {}", c["field"].as_str().unwrap(), c["message"].as_str().unwrap()))
        .collect()
}

#[tokio::test]
async fn an_accepted_crd_is_established_and_served_at_once() {
    let api = Api::new();
    api.get(WIDGETS).await.refused(404, "NotFound");
    let made = api.post(CRDS, &crd()).await.ok();
    let conditions: Vec<_> = made["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| format!("{}={}", c["type"].as_str().unwrap(), c["status"].as_str().unwrap()))
        .collect();
    assert_eq!(conditions, ["NamesAccepted=True", "Established=True"]);
    assert_eq!(made["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(made["spec"]["names"]["listKind"], "WidgetList");
    let list = api.get(WIDGETS).await.ok();
    assert_eq!((&list["kind"], &list["items"]), (&json!("WidgetList"), &json!([])));
    let table = api.table(WIDGETS).await;
    let columns: Vec<_> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(columns, ["Name", "Age"]);
}

#[tokio::test]
async fn objects_are_pruned_and_defaulted_by_their_structural_schema() {
    let api = with_widgets().await;
    let spec =
        json!({"size": 2, "typo": 1, "parts": [{"name": "a"}], "free": {"any": {"thing": [1]}}});
    let made = api.post(WIDGETS, &widget("w", spec)).await;
    assert_eq!(made.warnings, ["299 - \"unknown field \\\"spec.typo\\\"\""]);
    let made = made.ok();
    assert_eq!(
        made["spec"],
        json!({"size": 2, "color": "red", "parts": [{"name": "a", "size": 1}],
            "free": {"any": {"thing": [1]}}})
    );
    let strict = api
        .post(
            &format!("{WIDGETS}?fieldValidation=Strict"),
            &widget("x", json!({"size": 1, "typo": 1})),
        )
        .await;
    assert_eq!(
        strict.refused(400, "BadRequest"),
        "strict decoding error: unknown field \"spec.typo\""
    );
    let selected = api.get(&format!("{WIDGETS}?fieldSelector=spec.color%3Dred")).await.ok();
    assert_eq!(selected["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn violations_name_the_field_and_the_reason() {
    let api = with_widgets().await;
    for (spec, expected) in [
        (json!({}), "spec.size: Required value"),
        (
            json!({"size": "two"}),
            "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
        ),
        (
            json!({"size": 0}),
            "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
        ),
        (
            json!({"size": 1, "color": "green"}),
            "spec.color: Unsupported value: \"green\": supported values: \"red\", \"blue\"",
        ),
    ] {
        let answer = api.post(WIDGETS, &widget("w", spec)).await;
        assert_eq!(causes(&answer), [expected]);
    }
    let message = api.post(WIDGETS, &widget("w", json!({"size": 0}))).await;
    assert_eq!(
        message.refused(422, "Invalid"),
        "Widget.example.com \"w\" is invalid: spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"
    );
}

#[tokio::test]
async fn cel_rules_see_self_and_old_self_and_report_their_field_path() {
    let api = with_widgets().await;
    let post = |spec: Value| {
        let api = &api;
        async move { api.post(WIDGETS, &widget("w", spec)).await }
    };
    let parts = json!([{"name": "a"}, {"name": "b", "size": 6}]);
    let answer = post(json!({"size": 1, "parts": parts})).await;
    assert_eq!(
        causes(&answer),
        [
            "spec: Invalid value: \"object\": at most 1 parts",
            "spec.parts[1].size: Invalid value: \"object\": parts are small",
        ]
    );
    let answer = post(json!({"size": 1, "ratio": 2})).await;
    assert_eq!(
        causes(&answer),
        ["spec: Invalid value: \"object\": failed rule: !has(self.ratio) || self.ratio < 1.5"]
    );
    // A transition rule does not run on create, and refuses a decrease.
    post(json!({"size": 1, "term": 5, "ratio": 1})).await.ok();
    let path = format!("{WIDGETS}/w");
    api.merge(&path, &json!({"spec": {"term": 6}})).await.ok();
    let answer = api.merge(&path, &json!({"spec": {"term": 4}})).await;
    assert_eq!(causes(&answer), ["spec.term: Forbidden: term may not go back"]);
    assert_eq!(answer.body["details"]["causes"][0]["reason"], "FieldValueForbidden");
    let answer = api.merge(&path, &json!({"spec": {"term": null}})).await;
    assert_eq!(causes(&answer).len(), 1);
}

#[tokio::test]
async fn custom_objects_have_status_scale_and_generation() {
    let api = with_widgets().await;
    let mut object = widget("w", json!({"size": 1}));
    object["status"] = json!({"phase": "Lying"});
    let made = api.post(WIDGETS, &object).await.ok();
    assert_eq!((&made["status"], &made["metadata"]["generation"]), (&Value::Null, &json!(1)));
    let path = format!("{WIDGETS}/w");
    let both = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"size": 5}, "status": {"phase": "Ready"}});
    let status = api.merge(&format!("{path}/status"), &both).await.ok();
    assert_eq!((&status["status"]["phase"], &status["spec"]["size"]), (&json!("Ready"), &json!(1)));
    assert_eq!(
        (&status["metadata"]["generation"], &status["metadata"]["labels"]),
        (&json!(1), &Value::Null)
    );
    let main =
        api.merge(&path, &json!({"spec": {"size": 2}, "status": {"phase": "Lost"}})).await.ok();
    assert_eq!(
        (&main["status"]["phase"], &main["metadata"]["generation"]),
        (&json!("Ready"), &json!(2))
    );
    let scale = api.merge(&format!("{path}/scale"), &json!({"spec": {"replicas": 3}})).await.ok();
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(3)));
    let too_large = api.merge(&format!("{path}/scale"), &json!({"spec": {"replicas": 30}})).await;
    too_large.refused(422, "Invalid");
    api.strategic(&path, &json!({})).await.refused(415, "UnsupportedMediaType");
    // Custom kinds have no unconditional update.
    let answer = api.put(&path, &widget("w", json!({"size": 4}))).await;
    assert_eq!(
        causes(&answer),
        ["metadata.resourceVersion: Invalid value: 0: must be specified for an update"]
    );
}

#[tokio::test]
async fn versions_of_strategy_none_differ_in_api_version_only() {
    let api = Api::new();
    let mut crd = crd();
    let mut old = crd["spec"]["versions"][0].clone();
    old["name"] = "v1alpha1".into();
    old["storage"] = false.into();
    crd["spec"]["versions"].as_array_mut().unwrap().push(old);
    api.post(CRDS, &crd).await.ok();
    let alpha = "/apis/example.com/v1alpha1/namespaces/default/widgets";
    let mut object = widget("w", json!({"size": 1}));
    object["apiVersion"] = "example.com/v1alpha1".into();
    let made = api.post(alpha, &object).await.ok();
    assert_eq!(made["apiVersion"], "example.com/v1alpha1");
    let shown = api.get(&format!("{WIDGETS}/w")).await.ok();
    assert_eq!((&shown["apiVersion"], &shown["spec"]), (&json!("example.com/v1"), &made["spec"]));
    assert_eq!(version(&shown), version(&made));
    let same = api.put(&format!("{alpha}/w"), &made).await.ok();
    assert_eq!(version(&same), version(&made));
    let mut frames = api.watch(&format!("{alpha}?watch=1")).await;
    assert_eq!(frames.next().await.unwrap()["object"]["apiVersion"], "example.com/v1alpha1");
    let list = api.get(alpha).await.ok();
    assert_eq!(list["items"][0]["apiVersion"], "example.com/v1alpha1");
    let group = api.get("/apis/example.com").await.ok();
    assert_eq!(group["preferredVersion"]["version"], "v1");
    // A new storage version applies to new writes: existing objects keep theirs and are served in both.
    let path = format!("{CRDS}/widgets.example.com");
    let mut stored = api.get(&path).await.ok();
    for version in stored["spec"]["versions"].as_array_mut().unwrap() {
        version["storage"] = (version["name"] == "v1alpha1").into();
    }
    let changed = api.put(&path, &stored).await.ok();
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v1alpha1"]));
    for (path, expected) in [(WIDGETS, "example.com/v1"), (alpha, "example.com/v1alpha1")] {
        assert_eq!(api.get(&format!("{path}/w")).await.ok()["apiVersion"], expected);
    }
}

#[tokio::test]
async fn a_changed_crd_changes_what_is_accepted() {
    let api = with_widgets().await;
    let path = format!("{CRDS}/widgets.example.com");
    let mut stored = api.get(&path).await.ok();
    stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        ["size"]["maximum"] = 99.into();
    let changed = api.put(&path, &stored).await.ok();
    assert_eq!(changed["metadata"]["generation"], 2);
    api.post(WIDGETS, &widget("w", json!({"size": 50}))).await.ok();
    let group = api.merge(&path, &json!({"spec": {"scope": "Cluster"}})).await;
    assert!(group.refused(422, "Invalid").contains("field is immutable"));
}

#[tokio::test]
async fn validation_ratchets_what_did_not_change() {
    let api = with_widgets().await;
    api.post(WIDGETS, &widget("w", json!({"size": 5, "parts": [{"name": "a", "size": 4}]})))
        .await
        .ok();
    let path = format!("{CRDS}/widgets.example.com");
    let mut stored = api.get(&path).await.ok();
    let spec =
        &mut stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["properties"]["size"]["maximum"] = 3.into();
    spec["required"] = json!(["size", "color", "ratio"]);
    spec["properties"]["parts"]["items"]["x-kubernetes-validations"][0]["rule"] =
        "self.size <= 2".into();
    api.put(&path, &stored).await.ok();
    // Another field may change; the ones that break the new rules may not.
    let status = json!({"status": {"phase": "Ready"}});
    api.merge(&format!("{WIDGETS}/w/status"), &status).await.ok();
    api.merge(&format!("{WIDGETS}/w"), &json!({"metadata": {"labels": {"a": "b"}}})).await.ok();
    let answer = api.merge(&format!("{WIDGETS}/w"), &json!({"spec": {"size": 6}})).await;
    assert_eq!(causes(&answer).len(), 2, "{answer:?}");
    let parts = json!({"spec": {"ratio": 1, "parts": [{"name": "a", "size": 5}]}});
    let answer = api.merge(&format!("{WIDGETS}/w"), &parts).await;
    assert_eq!(causes(&answer), ["spec.parts[0].size: Invalid value: \"object\": parts are small"]);
}

#[tokio::test]
async fn unusable_crds_are_refused_with_the_place() {
    let api = Api::new();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut object = crd();
        change(&mut object);
        object
    };
    for (object, field) in [
        (with(&|c| c["metadata"]["name"] = "other.example.com".into()), "metadata.name"),
        (with(&|c| c["spec"]["group"] = "example".into()), "metadata.name"),
        (with(&|c| c["spec"]["scope"] = "Sideways".into()), "spec.scope"),
        (with(&|c| c["spec"]["versions"][0]["storage"] = false.into()), "spec.versions"),
        (
            with(&|c| c["spec"]["versions"][0]["schema"] = json!({})),
            "spec.versions[0].schema.openAPIV3Schema",
        ),
        (
            with(&|c| {
                c["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["type"] =
                    "thing".into();
            }),
            "spec.versions[0].schema.openAPIV3Schema.properties.spec.type",
        ),
        (
            with(&|c| {
                c["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"]
                    [0]["rule"] = "self.(".into();
            }),
            "spec.versions[0].schema.openAPIV3Schema.x-kubernetes-validations",
        ),
        // Old and new items cannot be matched.
        (
            with(&|c| {
                let spec = &mut c["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
                    ["spec"];
                spec["properties"]["parts"]["x-kubernetes-list-type"] = "atomic".into();
                spec["properties"]["parts"]["items"]["x-kubernetes-validations"][0]["rule"] =
                    "self == oldSelf".into();
            }),
            "spec.versions[0].schema.openAPIV3Schema.x-kubernetes-validations",
        ),
        (
            with(&|c| {
                c["spec"]["versions"][0]["additionalPrinterColumns"] =
                    json!([{"name": "A", "type": "string", "jsonPath": "..a"}]);
            }),
            "spec.versions[0].additionalPrinterColumns[0].jsonPath",
        ),
    ] {
        let answer = api.post(CRDS, &object).await;
        let causes = causes(&answer);
        assert!(causes[0].starts_with(&format!("{field}: ")), "{causes:?}");
    }
}

#[tokio::test]
async fn a_second_crd_with_the_same_names_is_not_established() {
    let api = with_widgets().await;
    let mut other = crd();
    other["metadata"]["name"] = "gadgets.example.com".into();
    other["spec"]["names"] = json!({"plural": "gadgets", "singular": "gadget", "kind": "Widget"});
    let made = api.post(CRDS, &other).await.ok();
    assert_eq!(made["status"]["conditions"][0]["reason"], "KindConflict");
    api.get("/apis/example.com/v1/gadgets").await.refused(404, "NotFound");
}

#[tokio::test(start_paused = true)]
async fn deleting_a_crd_deletes_its_objects_and_ends_its_watches() {
    let api = with_widgets().await;
    let mut held = widget("held", json!({"size": 1}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    for object in [widget("a", json!({"size": 1})), held] {
        api.post(WIDGETS, &object).await.ok();
    }
    let mut frames = api.watch(&format!("{WIDGETS}?watch=1&fieldSelector=metadata.name%3Da")).await;
    assert_eq!(frames.short().await, "ADDED a");
    let token = CancellationToken::new();
    let server = api.server.clone();
    let controllers = tokio::spawn({
        let token = token.clone();
        async move { server.run_controllers(token).await }
    });
    let marked = api.delete(&format!("{CRDS}/widgets.example.com")).await.ok();
    let condition = marked["status"]["conditions"].as_array().unwrap().last().unwrap();
    assert_eq!(condition["type"], "Terminating");
    assert_eq!(frames.short().await, "DELETED a");
    // New objects are refused while old ones wait for their finalizers.
    let refused = api.post(WIDGETS, &widget("b", json!({"size": 1}))).await;
    refused.refused(405, "MethodNotAllowed");
    api.merge(&format!("{WIDGETS}/held"), &json!({"metadata": {"finalizers": null}})).await.ok();
    assert_eq!(frames.short().await, "end");
    api.get(&format!("{CRDS}/widgets.example.com")).await.refused(404, "NotFound");
    api.get(WIDGETS).await.refused(404, "NotFound");
    api.post(CRDS, &crd()).await.ok();
    assert_eq!(api.get(WIDGETS).await.ok()["items"], json!([]));
    token.cancel();
    controllers.await.unwrap();
}

#[tokio::test]
async fn stored_crds_are_served_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let options =
        || Options { data: Some(folder.path().join("objects.redb")), ..Options::memory() };
    let api = Api::with(options());
    api.post(CRDS, &crd()).await.ok();
    let made = api.post(WIDGETS, &widget("w", json!({"size": 1}))).await.ok();
    drop(api);
    let api = Api::with(options());
    assert_eq!(api.get(&format!("{WIDGETS}/w")).await.ok(), made);
}

#[tokio::test]
async fn atolls_own_crds_are_accepted() {
    let api = Api::new();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crds");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let headers = [("content-type", "application/yaml")];
        let made = api.send(Method::POST, CRDS, &headers, text).await.ok();
        let conditions = made["status"]["conditions"].as_array().unwrap();
        assert!(
            conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True"),
            "{conditions:?}"
        );
        count += 1;
    }
    assert!(count > 0);
    let index = api.get("/openapi/v3").await.ok();
    assert!(index["paths"].as_object().unwrap().contains_key("apis/policy.atoll.dev/v1alpha1"));
    api.get("/openapi/v3/apis/policy.atoll.dev/v1alpha1").await.ok();
}
