//! A policy propagates a namespace, and another one what is in it.

use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::{PORTS, condition};
use crate::support::federation::{
    Federation, bindings, cluster_scoped, create, free_ports, objects,
};
use crate::support::wait::until;

fn applied(binding: &Value) -> bool {
    condition(binding, "FullyApplied").as_deref() == Some("True")
}

fn select(objects: Value) -> Value {
    json!({"metadata": {"name": "all"}, "spec": {"resourceSelectors": objects}})
}

/// Makes a policy and a ConfigMap in a namespace of the hub, and waits until its member has it.
async fn fill(hub: &Client, namespace: &str) {
    let policies = objects(hub, "policy.atoll.dev", "v1alpha1", "PropagationPolicy", namespace);
    create(&policies, select(json!([{"apiVersion": "v1", "kind": "ConfigMap"}]))).await;
    add_config(hub, namespace, "settings").await;
}

async fn add_config(hub: &Client, namespace: &str, name: &str) {
    let configs = objects(hub, "", "v1", "ConfigMap", namespace);
    create(&configs, json!({"metadata": {"name": name}, "data": {"a": "b"}})).await;
    until(&bindings(hub, namespace), &format!("{name}-configmap"), "applied", applied).await;
}

/// Sets the label `tier` of a namespace.
async fn label(namespaces: &Api<DynamicObject>, name: &str, tier: &str) {
    let patch = Patch::Merge(json!({"metadata": {"labels": {"tier": tier}}}));
    namespaces.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn until_labelled(namespaces: &Api<DynamicObject>, name: &str, tier: &str) {
    let labelled = |namespace: &Value| namespace["metadata"]["labels"]["tier"] == tier;
    until(namespaces, name, &format!("tier={tier}"), labelled).await;
}

/// Bindings of namespaces, and the namespaces of the member.
async fn views(federation: &Federation) -> (Api<DynamicObject>, Api<DynamicObject>) {
    let (hub, member) = (federation.client("hub").await, federation.client("member1").await);
    let bindings = cluster_scoped(&hub, "work.atoll.dev", "v1alpha1", "ClusterResourceBinding");
    (bindings, cluster_scoped(&member, "", "v1", "Namespace"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_propagated_namespace_follows_its_labels_beside_what_is_in_it() {
    let data = tempfile::tempdir().unwrap();
    let folder = data.path().join("atoll");
    let port = free_ports(PORTS);
    let federation = Federation::start_with(&folder, port, &["--members", "1"]);
    let hub = federation.client("hub").await;
    let (of_namespaces, on_member) = views(&federation).await;
    let namespaces = cluster_scoped(&hub, "", "v1", "Namespace");
    let tier_a = |name: &str| json!({"metadata": {"name": name, "labels": {"tier": "a"}}});

    // The member has it because of what is in it, before a policy selects it.
    create(&namespaces, tier_a("team")).await;
    fill(&hub, "team").await;
    until_labelled(&on_member, "team", "a").await;
    let policies = cluster_scoped(&hub, "policy.atoll.dev", "v1alpha1", "ClusterPropagationPolicy");
    let named = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "name": name});
    create(&policies, select(json!([named("team"), named("next")]))).await;
    until(&of_namespaces, "team-namespace", "applied", applied).await;
    label(&namespaces, "team", "b").await;
    until_labelled(&on_member, "team", "b").await;

    // The member has it before anything is in it.
    create(&namespaces, tier_a("next")).await;
    until(&of_namespaces, "next-namespace", "applied", applied).await;
    fill(&hub, "next").await;
    label(&on_member, "next", "edited").await;
    until_labelled(&on_member, "next", "a").await;

    // Edits on the member are undone in a later session too.
    federation.signal("-TERM");
    let federation = Federation::start(&folder, port);
    let (of_namespaces, on_member) = views(&federation).await;
    // Controller and agent have compared what the member holds once it has something new.
    add_config(&federation.client("hub").await, "team", "more").await;
    label(&on_member, "team", "edited").await;
    until_labelled(&on_member, "team", "b").await;
    until(&of_namespaces, "team-namespace", "applied", applied).await;
}
