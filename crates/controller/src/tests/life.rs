use std::time::Duration;

use atoll_api::binding::Trigger;
use serde_json::{Value, json};

use super::harness::{BINDING, DEPLOYMENT, Federation, SOON};
use crate::members::{Proof, Withdrawal};
use crate::testing::eventually;
use crate::testing::members::Order;

const POLICY: (&str, &str) = ("policy.atoll.dev/v1alpha1", "PropagationPolicy");

async fn running(replicas: i64) -> Federation {
    let federation = Federation::start().await;
    federation.hub.policy("all", DEPLOYMENT, json!({"replicaScheduling": {}})).await;
    federation.hub.deployment("web", replicas).await;
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(replicas)).await;
    federation
}

async fn gone(federation: &Federation) {
    eventually("the binding is gone", Duration::from_secs(120), || async {
        federation.hub.binding("web-deployment").await.is_null()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_template_leaves_every_member() {
    let federation = running(3).await;
    federation.hub.delete(DEPLOYMENT.0, DEPLOYMENT.1, Some("shop"), "web").await;
    gone(&federation).await;
    assert!(federation.members.replicas().is_empty());
    let orders = federation.members.orders();
    let withdrawn = |order: &&Order| {
        matches!(
            order,
            Order::Withdraw { how: Withdrawal::Remove, proof: Proof::BindingDeleted, .. }
        )
    };
    assert_eq!(orders.iter().filter(withdrawn).count(), 3);
    federation.until_history(&[Trigger::First, Trigger::Withdrawn]).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_member_blocks_no_name_and_gives_its_copy_back_later() {
    let federation = running(3).await;
    federation.members.lose("m2").await;
    federation.hub.delete(DEPLOYMENT.0, DEPLOYMENT.1, Some("shop"), "web").await;
    gone(&federation).await;
    assert_eq!(federation.members.replicas().into_keys().collect::<Vec<_>>(), ["m2"]);
    use atoll_history::Store;
    assert_eq!(federation.store.unconfirmed("m2").await.unwrap().len(), 1, "the proof is kept");
    assert!(federation.store.unconfirmed("m1").await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_recreated_template_waits_for_the_end_of_the_old_binding() {
    let federation = running(3).await;
    let old = federation.hub.binding("web-deployment").await["metadata"]["uid"].clone();
    federation.hub.delete(DEPLOYMENT.0, DEPLOYMENT.1, Some("shop"), "web").await;
    federation.hub.deployment("web", 6).await;
    eventually("another binding", Duration::from_secs(120), || async {
        let binding = federation.hub.binding("web-deployment").await;
        !binding.is_null() && binding["metadata"]["uid"] != old
    })
    .await;
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(6)).await;
    let history = [Trigger::First, Trigger::Withdrawn, Trigger::First];
    federation.until_history(&history).await;
}

#[tokio::test(start_paused = true)]
async fn without_its_policy_a_binding_stays_and_edits_still_flow() {
    let federation = running(3).await;
    let marks = |binding: &Value| {
        let text = binding["metadata"].to_string();
        [atoll_api::marks::POLICY_UID, atoll_api::marks::POLICY_NAME]
            .iter()
            .filter(|mark| text.contains(&format!("\"{mark}\"")))
            .count()
    };
    assert_eq!(marks(&federation.hub.binding("web-deployment").await), 2);
    tokio::time::sleep(Duration::from_secs(30)).await;
    federation.spy.take_writes();
    federation.hub.delete(POLICY.0, POLICY.1, Some("shop"), "all").await;
    eventually("Claimed=False", SOON, || async {
        let binding = federation.hub.binding("web-deployment").await;
        let conditions = binding["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|c: &Value| c["type"] == "Claimed" && c["status"] == "False")
    })
    .await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let writes = federation.spy.take_writes();
    let path = "/apis/work.atoll.dev/v1alpha1/namespaces/shop/resourcebindings/web-deployment";
    let expected = [format!("PATCH {path}"), format!("PATCH {path}/status")];
    assert_eq!(writes, expected, "the marks go with one write, the condition with another");
    assert_eq!(marks(&federation.hub.binding("web-deployment").await), 0);
    assert_eq!(federation.members.replicas().values().sum::<i64>(), 3, "nothing was removed");
    federation.hub.deployment("web", 6).await;
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(6)).await;
}

#[tokio::test(start_paused = true)]
async fn preserved_objects_are_released_not_removed() {
    let federation = Federation::start().await;
    federation
        .hub
        .apply(
            POLICY.0,
            POLICY.1,
            Some("shop"),
            json!({
                "metadata": {"name": "all"},
                "spec": {
                    "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
                    "placement": {"replicaScheduling": {}}, "preserveResourcesOnDeletion": true,
                },
            }),
        )
        .await;
    federation.hub.deployment("web", 3).await;
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(3)).await;
    federation.hub.delete(DEPLOYMENT.0, DEPLOYMENT.1, Some("shop"), "web").await;
    gone(&federation).await;
    let orders = federation.members.orders();
    let released =
        |order: &&Order| matches!(order, Order::Withdraw { how: Withdrawal::Release, .. });
    assert_eq!(orders.iter().filter(released).count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_no_longer_served_freezes_its_bindings() {
    let federation = Federation::start().await;
    let crd = |name: &str| {
        json!({
            "metadata": {"name": format!("{name}s.example.io")},
            "spec": {
                "group": "example.io", "scope": "Namespaced",
                "names": {"plural": format!("{name}s"), "singular": name, "kind": "Widget"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
            },
        })
    };
    let crds = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    federation.hub.apply(crds.0, crds.1, None, crd("widget")).await;
    for name in ["m1", "m2", "m3"] {
        let apis = json!({"apiEnablements": [{"groupVersion": "example.io/v1", "resources": [
            {"name": "widgets", "kind": "Widget"}]}]});
        federation.hub.patch_status("cluster.atoll.dev/v1alpha1", "Cluster", name, apis).await;
    }
    federation.hub.policy("widgets", ("example.io/v1", "Widget"), json!({})).await;
    let widget = json!({"metadata": {"name": "w"}, "spec": {"size": 1}});
    federation.hub.apply("example.io/v1", "Widget", Some("shop"), widget).await;
    let name = atoll_api::names::binding_name("w", "Widget", "example.io");
    federation.until(BINDING, &name, "/status/summary/applied", json!(3)).await;

    let controllers = federation.hub.server.clone();
    let token = tokio_util::sync::CancellationToken::new();
    let running = token.clone();
    let cleanup = tokio::spawn(async move { controllers.run_controllers(running).await });
    federation.hub.delete(crds.0, crds.1, None, "widgets.example.io").await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let binding = federation.hub.binding(&name).await;
    assert!(!binding.is_null(), "the binding went with its kind");
    assert!(binding["metadata"]["deletionTimestamp"].is_null());
    assert_eq!(federation.members.replicas().len(), 3, "nothing left a member");
    token.cancel();
    cleanup.await.unwrap();
}
