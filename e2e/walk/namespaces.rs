//! A policy propagates a namespace, and another one what is in it.

use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};

use super::{PORTS, condition};
use crate::support::federation::{Federation, bindings, free_ports, objects};
use crate::support::wait::until;

fn of_clusters(
    client: &kube::Client,
    group: &str,
    version: &str,
    kind: &str,
) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::all_with(client.clone(), &resource)
}

async fn create(api: &Api<DynamicObject>, object: Value) {
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// Sets the label `tier` of the namespace.
async fn label(namespaces: &Api<DynamicObject>, tier: &str) {
    let patch = Patch::Merge(json!({"metadata": {"labels": {"tier": tier}}}));
    namespaces.patch("team", &PatchParams::default(), &patch).await.unwrap();
}

async fn until_labelled(member: &Api<DynamicObject>, tier: &str) {
    let labelled = |namespace: &Value| namespace["metadata"]["labels"]["tier"] == tier;
    until(member, "team", &format!("tier={tier}"), labelled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_propagated_namespace_follows_its_labels_beside_what_is_in_it() {
    let data = tempfile::tempdir().unwrap();
    let folder = data.path().join("atoll");
    let port = free_ports(PORTS);
    let federation = Federation::start_with(&folder, port, &["--members", "1"]);
    let hub = federation.client("hub").await;
    let namespaces = of_clusters(&hub, "", "v1", "Namespace");
    create(&namespaces, json!({"metadata": {"name": "team", "labels": {"tier": "a"}}})).await;
    let policies = objects(&hub, "policy.atoll.dev", "v1alpha1", "PropagationPolicy", "team");
    let select = |kind: &str| json!({"resourceSelectors": [{"apiVersion": "v1", "kind": kind}]});
    create(&policies, json!({"metadata": {"name": "all"}, "spec": select("ConfigMap")})).await;
    let configs = objects(&hub, "", "v1", "ConfigMap", "team");
    create(&configs, json!({"metadata": {"name": "settings"}, "data": {"a": "b"}})).await;
    let applied = |binding: &Value| condition(binding, "FullyApplied").as_deref() == Some("True");
    until(&bindings(&hub, "team"), "settings-configmap", "applied", applied).await;
    let on_member = of_clusters(&federation.client("member1").await, "", "v1", "Namespace");
    until_labelled(&on_member, "a").await;

    let policies = of_clusters(&hub, "policy.atoll.dev", "v1alpha1", "ClusterPropagationPolicy");
    let mut spec = select("Namespace");
    spec["resourceSelectors"][0]["name"] = json!("team");
    create(&policies, json!({"metadata": {"name": "namespaces"}, "spec": spec})).await;
    let of_namespaces = of_clusters(&hub, "work.atoll.dev", "v1alpha1", "ClusterResourceBinding");
    until(&of_namespaces, "team-namespace", "applied", applied).await;
    label(&namespaces, "b").await;
    until_labelled(&on_member, "b").await;

    // In a later session too what users of the member change is put right.
    federation.signal("-TERM");
    let federation = Federation::start(&folder, port);
    let hub = federation.client("hub").await;
    let of_namespaces = of_clusters(&hub, "work.atoll.dev", "v1alpha1", "ClusterResourceBinding");
    let on_member = of_clusters(&federation.client("member1").await, "", "v1", "Namespace");
    let configs = objects(&hub, "", "v1", "ConfigMap", "team");
    // The session has agreed on what the member holds once it brings something new.
    create(&configs, json!({"metadata": {"name": "more"}, "data": {"a": "b"}})).await;
    until(&bindings(&hub, "team"), "more-configmap", "applied", applied).await;
    label(&on_member, "edited").await;
    until_labelled(&on_member, "b").await;
    until(&of_namespaces, "team-namespace", "applied", applied).await;
}
