//! `atoll convert --from` against an API server that serves Karmada's kinds.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};

use crate::served::Hub;

/// A CRD that accepts any spec, as wide as Karmada's.
async fn install(hub: &Hub, group: &str, kind: &str, plural: &str, scope: &str) {
    let crds: Api<CustomResourceDefinition> = Api::all(hub.client());
    let crd = json!({"metadata": {"name": format!("{plural}.{group}")}, "spec": {
        "group": group, "scope": scope,
        "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
        "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let crd = serde_json::from_value(crd).unwrap();
    crds.create(&PostParams::default(), &crd).await.unwrap();
}

async fn create(hub: &Hub, object: Value) {
    let (group, version) =
        object["apiVersion"].as_str().unwrap().rsplit_once('/').unwrap_or(("", "v1"));
    let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(hub.client(), namespace, &resource),
        None => Api::all_with(hub.client(), &resource),
    };
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

fn config_map(namespace: &str, name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
        "metadata": {"name": name, "namespace": namespace, "labels": labels}})
}

/// A control plane with two policies and the objects that they select, among others.
async fn control_plane() -> Hub {
    let hub = Hub::without_history().await;
    let group = "policy.karmada.io";
    install(&hub, group, "PropagationPolicy", "propagationpolicies", "Namespaced").await;
    install(&hub, group, "ClusterPropagationPolicy", "clusterpropagationpolicies", "Cluster").await;
    hub.create_namespace("shop").await;
    hub.create_namespace("other").await;
    create(
        &hub,
        json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "web", "namespace": "shop"}, "spec": {"resourceSelectors": [
            {"apiVersion": "v1", "kind": "Service", "name": "web"},
            {"apiVersion": "v1", "kind": "Service", "name": "absent"},
            {"apiVersion": "gone.example.com/v1", "kind": "Gizmo"}]}}),
    )
    .await;
    create(&hub, json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterPropagationPolicy",
        "metadata": {"name": "config"}, "spec": {"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap",
            "labelSelector": {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["x"]}]}}]}}))
    .await;
    let selected = json!({"app": "web"});
    create(&hub, config_map("shop", "selected", &selected)).await;
    create(&hub, config_map("other", "selected", &selected)).await;
    create(&hub, config_map("shop", "plain", &json!({}))).await;
    create(&hub, config_map("shop", "tier-x", &json!({"app": "web", "tier": "x"}))).await;
    create(&hub, json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"type": "NodePort", "ports": [{"port": 80}]}}))
    .await;
    hub
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    items
        .map(|item| {
            let metadata = &item["metadata"];
            format!(
                "{} {}/{}",
                text(&item["kind"]),
                text(&metadata["namespace"]),
                text(&metadata["name"])
            )
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_is_read_with_the_objects_that_its_policies_select() {
    let hub = control_plane().await;
    let kubeconfig = hub.kubeconfig();
    let from = ["--from", kubeconfig.to_str().unwrap(), "-o", "json"];
    let answer = hub.atoll("convert", &from).await;
    for part in ["selects Gizmo of gone.example.com/v1", "ResourceBindings and Works were not read"]
    {
        assert!(answer.stderr.contains(part), "{part}: {}", answer.stderr);
    }
    let list = answer.json();
    let mut found = names(&list);
    found.sort();
    assert_eq!(
        found,
        [
            "ClusterPropagationPolicy -/config",
            "ConfigMap other/selected",
            "ConfigMap shop/selected",
            "PropagationPolicy shop/web",
            "Service shop/web",
        ]
    );
    for item in list["items"].as_array().unwrap() {
        for set_by_server in ["uid", "resourceVersion", "managedFields", "creationTimestamp"] {
            assert!(item["metadata"].get(set_by_server).is_none(), "{item}");
        }
    }
    let service =
        list["items"].as_array().unwrap().iter().find(|item| item["kind"] == "Service").unwrap();
    assert!(service["spec"]["ports"][0].get("nodePort").is_none(), "allocated there: {service}");

    let one = hub.atoll("convert", &[&from[..], &["-n", "other"]].concat()).await.json();
    assert_eq!(names(&one), ["ClusterPropagationPolicy -/config", "ConfigMap other/selected"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_without_karmadas_kinds_is_no_empty_success() {
    let hub = Hub::without_history().await;
    let kubeconfig = hub.kubeconfig();
    let answer = hub.atoll("convert", &["--from", kubeconfig.to_str().unwrap()]).await;
    let error = answer.failed(1);
    assert!(error.contains("no object of Karmada's groups"), "{error}");
}
