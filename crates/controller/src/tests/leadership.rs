//! A process that leads, loses its leadership and leads again behaves like one that was just started.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::harness::{BINDING, DEPLOYMENT, Federation, SLICE, SOON};
use crate::testing::eventually;

const POLICY: &str = "policy.atoll.dev/v1alpha1";
const LEASE: (&str, &str) = ("coordination.k8s.io/v1", "Lease");

/// Another controller takes the Lease; the test acts as that one.
async fn depose(federation: &Federation) {
    hold_lease(federation, "other_1").await;
    eventually("follows", SOON, || async { federation.counters.leads.get() == 0 }).await;
}

/// The other controller releases the Lease.
async fn lead_again(federation: &Federation) {
    hold_lease(federation, "").await;
    eventually("leads again", SOON, || async { federation.counters.leads.get() == 1 }).await;
}

async fn hold_lease(federation: &Federation, holder: &str) {
    let renewed = federation.hub.clock.now().to_string();
    let lease = json!({"metadata": {"name": "atoll-controller"}, "spec": {
        "holderIdentity": holder, "renewTime": renewed,
    }});
    federation.hub.apply(LEASE.0, LEASE.1, Some("atoll-system"), lease).await;
}

/// Writes a status as the other controller.
async fn write_status(federation: &Federation, kind: &str, name: &str, status: Value) {
    let (api, _) = federation.hub.api(POLICY, kind, Some("shop")).await;
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// No decision follows, so that statuses show only what this leadership knows.
async fn suspend_scheduling(federation: &Federation) {
    let policy = json!({"metadata": {"name": "all"}, "spec": {"suspension": {"scheduling": true}}});
    federation.hub.apply(POLICY, "PropagationPolicy", Some("shop"), policy).await;
    eventually("the gate is shut", SOON, || async {
        let binding = federation.hub.binding("web-deployment").await;
        binding["spec"]["suspension"]["scheduling"] == true
    })
    .await;
}

async fn labelled(federation: &Federation, labels: Value) {
    let web = json!({"metadata": {"name": "web", "labels": labels}, "spec": {
        "replicas": 3, "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    }});
    federation.hub.apply(DEPLOYMENT.0, DEPLOYMENT.1, Some("shop"), web).await;
}

/// It stops while it passes committed decisions on, after the first slice of them.
#[tokio::test(start_paused = true)]
async fn a_controller_that_stops_while_it_takes_over_passes_nothing_more_on() {
    const WORKLOADS: usize = 3 * SLICE.get();
    let federation = Federation::start().await;
    federation.hub.policy("all", DEPLOYMENT, json!({})).await;
    for at in 0..WORKLOADS {
        federation.hub.deployment(&format!("web-{at}"), 1).await;
    }
    let sent = || federation.members.orders().len();
    eventually("all are sent", SOON, || async { sent() == 3 * WORKLOADS }).await;
    depose(&federation).await;
    let token = federation.token.clone();
    federation.members.at_next_order(move || token.cancel());
    hold_lease(&federation, "").await;
    let Federation { members, running, .. } = federation;
    tokio::time::timeout(SOON, running).await.unwrap().unwrap().unwrap();
    assert_eq!(members.orders().len(), 3 * WORKLOADS + 3 * SLICE.get());
}

/// After an edit, the status covers the new generation, and what the other leader wrote is still there.
async fn keeps(federation: &Federation, kind: &str, name: &str, edit: Value, path: &str) {
    let other = json!([{"name": "of the other leader"}]);
    federation.hub.apply(POLICY, kind, Some("shop"), edit).await;
    eventually("the status is written anew", Duration::from_secs(60), || async {
        let object = federation.hub.get(POLICY, kind, Some("shop"), name).await;
        object["status"]["observedGeneration"] == object["metadata"]["generation"]
    })
    .await;
    let object = federation.hub.get(POLICY, kind, Some("shop"), name).await;
    assert_eq!(object["status"][path][0]["name"], other[0]["name"], "{:#}", object["status"]);
}

#[tokio::test(start_paused = true)]
async fn subsets_of_an_earlier_leadership_are_not_published() {
    let federation = Federation::start().await;
    let spread = |replicas: i64| {
        json!({"metadata": {"name": "web"}, "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "subsets": [{"name": "first", "maxReplicas": replicas}, {"name": "rest"}],
        }})
    };
    federation.hub.apply(POLICY, "WorkloadSpread", Some("shop"), spread(2)).await;
    federation.hub.policy("all", DEPLOYMENT, json!({})).await;
    federation.hub.deployment("web", 3).await;
    eventually("the subsets are in the status", Duration::from_secs(60), || async {
        let spread = federation.hub.get(POLICY, "WorkloadSpread", Some("shop"), "web").await;
        spread["status"]["subsets"][0]["name"] == "first"
    })
    .await;
    suspend_scheduling(&federation).await;
    depose(&federation).await;
    let status = json!({"subsets": [{"name": "of the other leader", "replicas": 1, "pending": 0}]});
    write_status(&federation, "WorkloadSpread", "web", status).await;
    lead_again(&federation).await;
    keeps(&federation, "WorkloadSpread", "web", spread(3), "subsets").await;
}

#[tokio::test(start_paused = true)]
async fn domains_of_an_earlier_leadership_are_not_published() {
    let federation = Federation::start().await;
    for (name, domain) in [("m1", "member"), ("m2", "host"), ("m3", "host")] {
        let labels = json!({"metadata": {"name": name, "labels": {"domain": domain}}});
        federation.hub.apply("cluster.atoll.dev/v1alpha1", "Cluster", None, labels).await;
    }
    let split = |replicas: i64| {
        json!({"metadata": {"name": "split"}, "spec": {
            "topologyKey": "domain", "labelSelector": {"matchLabels": {"app": "web"}},
            "allocationPolicy": [
                {"name": "member", "replicas": replicas}, {"name": "host", "replicas": 3}],
            "allocationType": "Required", "allocationMethod": "Fill",
        }})
    };
    federation.hub.apply(POLICY, "WorkloadPolicy", Some("shop"), split(1)).await;
    federation.hub.policy("all", DEPLOYMENT, json!({})).await;
    labelled(&federation, json!({"app": "web", "policy.atoll.dev/workload-policy": "split"})).await;
    eventually("the domains are in the status", Duration::from_secs(60), || async {
        let policy = federation.hub.get(POLICY, "WorkloadPolicy", Some("shop"), "split").await;
        policy["status"]["domains"].as_array().is_some_and(|domains| !domains.is_empty())
    })
    .await;
    suspend_scheduling(&federation).await;
    depose(&federation).await;
    let status = json!({"domains": [{"name": "of the other leader", "target": 1, "assigned": 1}]});
    write_status(&federation, "WorkloadPolicy", "split", status).await;
    lead_again(&federation).await;
    keeps(&federation, "WorkloadPolicy", "split", split(2), "domains").await;
}

#[tokio::test(start_paused = true)]
async fn render_errors_of_an_earlier_leadership_are_not_reported() {
    let federation = Federation::start().await;
    let crds = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let crd = json!({"metadata": {"name": "widgets.example.io"}, "spec": {
        "group": "example.io", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
            "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
    }});
    federation.hub.apply(crds.0, crds.1, None, crd).await;
    for name in ["m1", "m2", "m3"] {
        let apis = json!({"apiEnablements": [{"groupVersion": "example.io/v1", "resources": [
            {"name": "widgets", "kind": "Widget"}]}]});
        federation.hub.patch_status("cluster.atoll.dev/v1alpha1", "Cluster", name, apis).await;
    }
    federation.hub.policy("widgets", ("example.io/v1", "Widget"), json!({})).await;
    // Only Atoll may set this mark.
    let widget = json!({"metadata": {"name": "w", "labels": {"atoll.dev/claims": "x"}}});
    federation.hub.apply("example.io/v1", "Widget", Some("shop"), widget).await;
    until_not_applied(&federation, "CannotRender").await;
    depose(&federation).await;
    let (controllers, token) = (federation.hub.server.clone(), CancellationToken::new());
    let running = token.clone();
    let cleanup = tokio::spawn(async move { controllers.run_controllers(running).await });
    federation.hub.delete(crds.0, crds.1, None, "widgets.example.io").await;
    lead_again(&federation).await;
    until_not_applied(&federation, "KindUnreadable").await;
    token.cancel();
    cleanup.await.unwrap();
}

async fn until_not_applied(federation: &Federation, reason: &str) {
    let name = atoll_api::names::binding_name("w", "Widget", "example.io");
    eventually(reason, Duration::from_secs(600), || async {
        let binding = federation.hub.get(BINDING.0, BINDING.1, Some("shop"), &name).await;
        let conditions = binding["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|c| c["type"] == "FullyApplied" && c["reason"] == reason)
    })
    .await;
}
