//! PropagationPolicies with `kind: "*"`.

use atoll_api::marks;
use futures::StreamExt;
use kube::ResourceExt;
use kube::api::{WatchEvent, WatchParams};
use serde_json::{Value, json};

use super::harness::{BINDING, DEPLOYMENT, Federation, SOON, Setup};
use crate::testing::eventually;
use crate::testing::hub::Hub;

const POLICY: (&str, &str) = ("policy.atoll.dev/v1alpha1", "PropagationPolicy");
const CLUSTER_POLICY: (&str, &str) = ("policy.atoll.dev/v1alpha1", "ClusterPropagationPolicy");

fn policy(name: &str, selectors: Value) -> Value {
    let placement = json!({"clusterAffinity": {"clusterNames": ["m1"]}});
    json!({
        "metadata": {"name": name},
        "spec": {"resourceSelectors": selectors, "placement": placement},
    })
}

fn everything() -> Value {
    json!({"apiVersion": "*", "kind": "*"})
}

async fn create(federation: &Federation, api_version: &str, kind: &str, object: Value) {
    federation.hub.apply(api_version, kind, Some("shop"), object).await;
}

/// One object of every sort that is never selected.
async fn create_unselected(federation: &Federation) {
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "settings", "uid": "u"});
    let owned = json!({"name": "owned", "ownerReferences": [owner]});
    create(federation, "v1", "ConfigMap", json!({"metadata": owned})).await;
    for (api_version, kind, name) in [
        ("v1", "ConfigMap", "kube-root-ca.crt"),
        ("v1", "ServiceAccount", "default"),
        ("v1", "Endpoints", "web"),
        ("coordination.k8s.io/v1", "Lease", "lock"),
        ("apps/v1", "ControllerRevision", "web-1"),
        ("v1", "Secret", "password"),
    ] {
        let mut object = json!({"metadata": {"name": name}});
        if kind == "ControllerRevision" {
            object["revision"] = json!(1);
        }
        if federation.serves(api_version, kind).await {
            create(federation, api_version, kind, object).await;
        }
    }
    let slice = json!({"metadata": {"name": "web-x"}, "addressType": "IPv4", "endpoints": []});
    if federation.serves("discovery.k8s.io/v1", "EndpointSlice").await {
        create(federation, "discovery.k8s.io/v1", "EndpointSlice", slice).await;
    }
    let about = json!({"kind": "ConfigMap", "namespace": "shop", "name": "settings"});
    let event = json!({"metadata": {"name": "e"}, "involvedObject": about, "reason": "R"});
    create(federation, "v1", "Event", event).await;
    let token = json!({
        "metadata": {"name": "token", "annotations": {"kubernetes.io/service-account.name": "app"}},
        "type": "kubernetes.io/service-account-token",
    });
    create(federation, "v1", "Secret", token).await;
}

async fn until_on_m1(federation: &Federation, expected: &[&str]) {
    eventually(&format!("m1 has {expected:?}"), 4 * SOON, || async {
        federation.members.objects("m1").iter().map(String::as_str).eq(expected.iter().copied())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn every_kind_means_what_users_made_and_no_secrets() {
    let federation = Federation::start().await;
    let kinds = ["ConfigMap", "Endpoints", "Event", "Secret", "ServiceAccount"];
    let kinds = kinds.map(|kind| json!({"name": kind.to_lowercase(), "kind": kind}));
    let apis = json!([
        {"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]},
        {"groupVersion": "v1", "resources": kinds},
    ]);
    let status = json!({"apiEnablements": apis});
    federation.hub.patch_status("cluster.atoll.dev/v1alpha1", "Cluster", "m1", status).await;
    federation.hub.deployment("web", 2).await;
    create(&federation, "v1", "ConfigMap", json!({"metadata": {"name": "settings"}})).await;
    create(&federation, "v1", "ServiceAccount", json!({"metadata": {"name": "app"}})).await;
    create_unselected(&federation).await;
    create(&federation, POLICY.0, POLICY.1, policy("all", json!([everything()]))).await;
    let chosen = ["ConfigMap/settings", "Deployment/web", "ServiceAccount/app"];
    until_on_m1(&federation, &chosen).await;
    tokio::time::sleep(4 * SOON).await;
    until_on_m1(&federation, &chosen).await;
    federation.until(POLICY, "all", "/status/conditions/0/reason", json!("Accepted")).await;
    federation.until(POLICY, "all", "/status/claimed", json!(3)).await;
    // What is created later follows.
    create(&federation, "v1", "ConfigMap", json!({"metadata": {"name": "later"}})).await;
    until_on_m1(
        &federation,
        &["ConfigMap/later", "ConfigMap/settings", "Deployment/web", "ServiceAccount/app"],
    )
    .await;
    // A selector that names the kind selects Secrets, but no tokens.
    let secrets = json!({"apiVersion": "v1", "kind": "Secret"});
    create(&federation, POLICY.0, POLICY.1, policy("all", json!([everything(), secrets]))).await;
    until_on_m1(
        &federation,
        &[
            "ConfigMap/later",
            "ConfigMap/settings",
            "Deployment/web",
            "Secret/password",
            "ServiceAccount/app",
        ],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn kinds_are_listed_only_while_a_policy_selects_every_kind() {
    let federation = Federation::start().await;
    let lists = || {
        let calls = federation.spy.calls();
        calls.iter().filter(|call| call.path == "/apis" || call.path == "/api").count()
    };
    let named = json!([{"apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1}]);
    create(&federation, POLICY.0, POLICY.1, policy("named", named)).await;
    tokio::time::sleep(4 * SOON).await;
    assert_eq!(lists(), 0);
    create(&federation, POLICY.0, POLICY.1, policy("all", json!([everything()]))).await;
    create(&federation, "v1", "ConfigMap", json!({"metadata": {"name": "settings"}})).await;
    until_on_m1(&federation, &["ConfigMap/settings"]).await;
    assert!(lists() >= 2);
    federation.hub.delete(POLICY.0, POLICY.1, Some("shop"), "all").await;
    tokio::time::sleep(2 * SOON).await;
    let before = lists();
    tokio::time::sleep(8 * SOON).await;
    assert_eq!(lists(), before);
    until_on_m1(&federation, &["ConfigMap/settings"]).await;
}

#[tokio::test(start_paused = true)]
async fn every_kind_in_a_cluster_scoped_policy_is_not_accepted() {
    let federation = Federation::start().await;
    federation.hub.deployment("web", 2).await;
    let object = policy("all", json!([everything()]));
    federation.hub.apply(CLUSTER_POLICY.0, CLUSTER_POLICY.1, None, object).await;
    eventually("the status names the field", SOON, || async {
        let policy = federation.hub.get(CLUSTER_POLICY.0, CLUSTER_POLICY.1, None, "all").await;
        let condition = policy["status"]["conditions"][0].clone();
        condition["reason"] == "Invalid"
            && condition["message"]
                .as_str()
                .is_some_and(|m| m.contains("spec.resourceSelectors[0].kind"))
    })
    .await;
    assert!(federation.members.objects("m1").is_empty());
}

/// The kinds of the hub are listed only from then on: until they are known, the policy keeps what it has claimed.
#[tokio::test(start_paused = true)]
async fn a_policy_that_is_edited_to_every_kind_keeps_its_claims_meanwhile() {
    let federation = Federation::start().await;
    let deployments = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
    create(&federation, POLICY.0, POLICY.1, policy("all", json!([deployments]))).await;
    federation.hub.deployment("web", 2).await;
    until_on_m1(&federation, &["Deployment/web"]).await;
    let (api, _) = federation.hub.api(BINDING.0, BINDING.1, Some("shop")).await;
    let before = federation.hub.binding("web-deployment").await;
    let version = before["metadata"]["resourceVersion"].as_str().unwrap();
    let events = api.watch(&WatchParams::default(), version).await.unwrap();
    create(&federation, POLICY.0, POLICY.1, policy("all", json!([everything()]))).await;
    create(&federation, "v1", "ConfigMap", json!({"metadata": {"name": "settings"}})).await;
    until_on_m1(&federation, &["ConfigMap/settings", "Deployment/web"]).await;
    let mut events = std::pin::pin!(events);
    while let Ok(Some(event)) = tokio::time::timeout(SOON, events.next()).await {
        let (WatchEvent::Added(binding) | WatchEvent::Modified(binding)) = event.unwrap() else {
            continue;
        };
        assert!(binding.labels().contains_key(marks::POLICY_UID), "{binding:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn kinds_that_the_controller_may_not_read_are_a_remark_and_the_others_are_propagated() {
    let setup = Setup { forbidden: vec!["/roles"], ..Setup::default() };
    let federation = Federation::start_on(Hub::open().await, setup).await;
    create(&federation, POLICY.0, POLICY.1, policy("all", json!([everything()]))).await;
    create(&federation, "v1", "ConfigMap", json!({"metadata": {"name": "settings"}})).await;
    until_on_m1(&federation, &["ConfigMap/settings"]).await;
    let reason = json!("SomeKindsUnreadable");
    federation.until(POLICY, "all", "/status/conditions/0/reason", reason).await;
    federation.until(POLICY, "all", "/status/conditions/0/status", json!("True")).await;
    // A selector that names the kind asks for it.
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"});
    create(&federation, POLICY.0, POLICY.1, policy("all", json!([everything(), role]))).await;
    federation.until(POLICY, "all", "/status/conditions/0/reason", json!("KindUnreadable")).await;
    federation.until(POLICY, "all", "/status/conditions/0/status", json!("False")).await;
}
