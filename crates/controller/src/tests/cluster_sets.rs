//! ClusterSets: what a namespace may not use receives nothing of it, whoever asks.

use atoll_api::binding::Trigger;
use serde_json::{Value, json};

use super::harness::{BINDING, DEPLOYMENT, Federation, SOON};
use crate::testing::eventually;

const CLUSTER: (&str, &str) = ("cluster.atoll.dev/v1alpha1", "Cluster");
const SET: (&str, &str) = ("cluster.atoll.dev/v1alpha1", "ClusterSet");
const CLUSTER_POLICY: (&str, &str) = ("policy.atoll.dev/v1alpha1", "ClusterPropagationPolicy");

/// The clusters with these labels are for the namespaces of team shop.
async fn set(federation: &Federation, clusters: Value) {
    let spec = json!({
        "namespaceSelector": {"matchLabels": {"team": "shop"}},
        "clusterSelector": clusters,
    });
    let object = json!({"metadata": {"name": "shop"}, "spec": spec});
    federation.hub.apply(SET.0, SET.1, None, object).await;
}

fn named(names: &[&str]) -> Value {
    json!({"matchExpressions": [{"key": "name", "operator": "In", "values": names}]})
}

async fn team(federation: &Federation, namespace: &str, team: &str) {
    let object = json!({"metadata": {"name": namespace, "labels": {"team": team}}});
    federation.hub.apply("v1", "Namespace", None, object).await;
}

/// Members with their names as labels; namespace `shop` may use `m1`.
async fn federation() -> Federation {
    let federation = Federation::start().await;
    for name in ["m1", "m2", "m3"] {
        let object = json!({"metadata": {"name": name, "labels": {"name": name}}});
        federation.hub.apply(CLUSTER.0, CLUSTER.1, None, object).await;
    }
    team(&federation, "shop", "shop").await;
    set(&federation, named(&["m1"])).await;
    until_status(&federation, "/clusters", json!(1)).await;
    until_status(&federation, "/namespaces", json!(1)).await;
    federation
}

async fn until_status(federation: &Federation, path: &str, value: Value) {
    eventually(&format!("ClusterSet {path} = {value}"), 2 * SOON, || async {
        let set = federation.hub.get(SET.0, SET.1, None, "shop").await;
        set["status"].pointer(path) == Some(&value)
    })
    .await;
}

/// A ClusterPropagationPolicy that sends every Deployment to every member.
async fn everywhere(federation: &Federation) {
    let selectors = json!([{"apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1}]);
    let spec = json!({"resourceSelectors": selectors, "placement": {}});
    let object = json!({"metadata": {"name": "everywhere"}, "spec": spec});
    federation.hub.apply(CLUSTER_POLICY.0, CLUSTER_POLICY.1, None, object).await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_policy_reaches_no_further_than_the_set_and_follows_its_changes() {
    let federation = federation().await;
    everywhere(&federation).await;
    federation.hub.deployment("web", 2).await;
    federation.until_replicas(&[("m1", 2)]).await;
    // The set grows and shrinks, the namespace changes its team, a cluster its labels.
    set(&federation, named(&["m1", "m2"])).await;
    federation.until_replicas(&[("m1", 2), ("m2", 2)]).await;
    until_status(&federation, "/clusters", json!(2)).await;
    set(&federation, named(&["m2"])).await;
    federation.until_replicas(&[("m2", 2)]).await;
    assert!(federation.history().await.contains(&Trigger::OutsideClusterSet));
    let object = json!({"metadata": {"name": "m3", "labels": {"name": "m2"}}});
    federation.hub.apply(CLUSTER.0, CLUSTER.1, None, object).await;
    federation.until_replicas(&[("m2", 2), ("m3", 2)]).await;
    team(&federation, "shop", "other").await;
    federation.until_replicas(&[("m1", 2), ("m2", 2), ("m3", 2)]).await;
    until_status(&federation, "/namespaces", json!(0)).await;
    team(&federation, "shop", "shop").await;
    federation.until_replicas(&[("m2", 2), ("m3", 2)]).await;
    // The next leader knows the sets before it sends anything.
    let federation = federation.restart().await;
    tokio::time::sleep(SOON).await;
    federation.until_replicas(&[("m2", 2), ("m3", 2)]).await;
    federation.hub.delete(SET.0, SET.1, None, "shop").await;
    federation.until_replicas(&[("m1", 2), ("m2", 2), ("m3", 2)]).await;
}

/// The next leader takes over the copy, so its status and changes of its template reach it as before.
#[tokio::test(start_paused = true)]
async fn a_running_copy_outside_a_set_follows_its_template_under_the_next_leader() {
    let federation = federation().await;
    everywhere(&federation).await;
    federation.hub.deployment("web", 2).await;
    federation.until_replicas(&[("m1", 2)]).await;
    set(&federation, named(&["none"])).await;
    let nowhere = json!("NoFit");
    federation.until(BINDING, "web-deployment", "/status/conditions/0/reason", nowhere).await;
    let federation = federation.restart().await;
    let (api, _) = federation.hub.api(DEPLOYMENT.0, DEPLOYMENT.1, Some("shop")).await;
    let patch = json!({"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}});
    let patch = kube::api::Patch::Merge(patch);
    let edited = api.patch("web", &kube::api::PatchParams::default(), &patch).await.unwrap();
    let generation = json!(edited.metadata.generation);
    federation.until(DEPLOYMENT, "web", "/status/observedGeneration", generation).await;
    federation.until_replicas(&[("m1", 2)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_set_without_any_cluster_shows_why_nothing_is_placed() {
    let federation = federation().await;
    set(&federation, named(&["none"])).await;
    everywhere(&federation).await;
    federation.hub.deployment("web", 2).await;
    federation
        .until(BINDING, "web-deployment", "/status/conditions/0/reason", json!("NoFit"))
        .await;
    let binding = federation.hub.binding("web-deployment").await;
    let message = binding["status"]["conditions"][0]["message"].as_str().unwrap();
    assert!(message.contains("ClusterSet shop"), "{message}");
    assert!(federation.members.replicas().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_binding_written_by_hand_sends_nothing_beyond_the_set() {
    let federation = federation().await;
    everywhere(&federation).await;
    federation.hub.deployment("web", 2).await;
    federation.until_replicas(&[("m1", 2)]).await;
    federation.members.take_moves();
    // Its author copies a decision of the controller and adds a share, and a parent that needs it elsewhere.
    let shares = json!([{"name": "m1", "replicas": 2}, {"name": "m2", "replicas": 2}]);
    let parents = json!([{"namespace": "shop", "name": "other", "clusters": [{"name": "m3"}]}]);
    let spec = json!({"clusters": shares, "requiredBy": parents});
    let (api, _) = federation.hub.api(BINDING.0, BINDING.1, Some("shop")).await;
    let patch = kube::api::Patch::Merge(json!({"spec": spec}));
    api.patch("web-deployment", &kube::api::PatchParams::default(), &patch).await.unwrap();
    federation
        .until(BINDING, "web-deployment", "/spec/clusters", json!([{"name": "m1", "replicas": 2}]))
        .await;
    tokio::time::sleep(SOON).await;
    let moves = federation.members.take_moves();
    assert!(
        !moves.iter().any(|line| line.starts_with("m2 +") || line.starts_with("m3 +")),
        "{moves:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn dependencies_stay_inside_the_set_even_if_a_binding_written_by_hand_asks_for_more() {
    let federation = federation().await;
    for name in ["settings", "keys"] {
        let config = json!({"metadata": {"name": name}, "data": {"key": "value"}});
        federation.hub.apply("v1", "ConfigMap", Some("shop"), config).await;
    }
    let selectors = json!([{"apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1}]);
    let spec = json!({"resourceSelectors": selectors, "placement": {}, "propagateDeps": true});
    let object = json!({"metadata": {"name": "everywhere"}, "spec": spec});
    federation.hub.apply(CLUSTER_POLICY.0, CLUSTER_POLICY.1, None, object).await;
    let container = json!({"name": "c", "image": "nginx",
        "envFrom": [{"configMapRef": {"name": "settings"}}]});
    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}});
    let spec =
        json!({"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    let object = json!({"metadata": {"name": "web"}, "spec": spec});
    federation.hub.apply(DEPLOYMENT.0, DEPLOYMENT.1, Some("shop"), object).await;
    eventually("both are on m1", SOON, || async {
        federation.members.objects("m1").iter().eq(["ConfigMap/settings", "Deployment/web"])
    })
    .await;
    let parents = json!([{"namespace": "shop", "name": "web-deployment",
        "clusters": [{"name": "m1"}, {"name": "m3"}]}]);
    let resource =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": "keys"});
    let spec = json!({"resource": resource, "requiredBy": parents});
    let object = json!({"metadata": {"name": "keys-configmap"}, "spec": spec});
    federation.hub.apply(BINDING.0, BINDING.1, Some("shop"), object).await;
    tokio::time::sleep(SOON).await;
    let moves = federation.members.take_moves();
    assert!(
        !moves.iter().any(|line| line.starts_with("m2 ") || line.starts_with("m3 ")),
        "{moves:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn neither_a_rebalance_nor_an_override_reaches_beyond_the_set() {
    let federation = federation().await;
    everywhere(&federation).await;
    federation.hub.deployment("web", 2).await;
    federation.until_replicas(&[("m1", 2)]).await;
    federation.members.take_moves();
    let web = json!({"apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1, "namespace": "shop", "name": "web"});
    let object = json!({"metadata": {"name": "anew"}, "spec": {"workloads": [web]}});
    federation.hub.apply("apps.atoll.dev/v1alpha1", "WorkloadRebalancer", None, object).await;
    federation.until_history(&[Trigger::First, Trigger::Rebalance]).await;
    // It would put the copies into a namespace that no set limits, on every member.
    let elsewhere = json!({"path": "/metadata/namespace", "operator": "replace", "value": "other"});
    let rule = json!({"targetCluster": {}, "overriders": {"plaintext": [elsewhere]}});
    let spec = json!({"resourceSelectors": [{"apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1}],
        "overrideRules": [rule]});
    let object = json!({"metadata": {"name": "elsewhere"}, "spec": spec});
    federation.hub.apply(CLUSTER_POLICY.0, "ClusterOverridePolicy", None, object).await;
    eventually("the override is refused", 2 * SOON, || async {
        let binding = federation.hub.binding("web-deployment").await;
        let all = binding["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.iter().any(|condition| {
            condition["type"] == "FullyApplied"
                && condition["status"] == "False"
                && condition["message"].as_str().is_some_and(|text| text.contains("namespace"))
        })
    })
    .await;
    federation.until_replicas(&[("m1", 2)]).await;
    assert_eq!(federation.members.manifest("m1")["metadata"]["namespace"], "shop");
    let moves = federation.members.take_moves();
    assert!(
        !moves.iter().any(|line| line.starts_with("m2 ") || line.starts_with("m3 ")),
        "{moves:?}"
    );
}
