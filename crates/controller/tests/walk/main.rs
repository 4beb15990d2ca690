//! The whole way on one thread and paused time: the controller with real agents over TLS in memory, and members that
//! behave. What each part does alone is tested in its own place; here is what they do together.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a panic is the report")]

mod federation;
mod rights;

use std::time::Duration;

use federation::{Federation, condition, deployment, policy, replicas};
use serde_json::json;

const DEPLOYMENTS: (&str, &str) = ("apps/v1", "deployments");
const BINDINGS: (&str, &str) = ("work.atoll.dev/v1alpha1", "resourcebindings");
const WORKLOAD_POLICIES: (&str, &str) = ("policy.atoll.dev/v1alpha1", "workloadpolicies");
const SPREADS: (&str, &str) = ("policy.atoll.dev/v1alpha1", "workloadspreads");
const POLICIES: (&str, &str) = ("policy.atoll.dev/v1alpha1", "propagationpolicies");

#[tokio::test(start_paused = true)]
async fn a_workload_is_placed_scaled_moved_fails_over_and_leaves() {
    let mut federation = Federation::start(3).await;
    federation.hub.apply(POLICIES, policy(&[("member1", 2), ("member2", 1)])).await;
    federation.hub.apply(DEPLOYMENTS, deployment(3)).await;
    federation.until_runs(&[("member1", 2), ("member2", 1)]).await;
    federation.until_hub_is_ready(3).await;

    federation.hub.apply(DEPLOYMENTS, deployment(9)).await;
    federation.until_runs(&[("member1", 6), ("member2", 3)]).await;
    federation.until_hub_is_ready(9).await;

    federation.hub.apply(POLICIES, policy(&[("member1", 2), ("member2", 1), ("member3", 1)])).await;
    federation.until_trigger("EvictionDone").await;
    federation.until_hub_is_ready(9).await;
    let spread = federation.runs().await;
    assert_eq!(spread.len(), 3, "{spread:?}");
    assert_eq!(spread.values().sum::<i64>(), 9, "{spread:?}");

    federation.stop_agent("member1").await;
    federation.until_trigger("Failover").await;
    let moved = federation.until_sum_without("member1", 9).await;
    assert_eq!(moved.len(), 2, "{moved:?}");
    federation.start_agent("member1").await;
    federation.until_trigger("EvictionDone").await;
    federation.until_runs(&[("member2", moved["member2"]), ("member3", moved["member3"])]).await;
    federation.until_hub_is_ready(9).await;

    federation.hub.delete(POLICIES, "nginx").await;
    federation
        .hub
        .until("Claimed=False", BINDINGS, "nginx-deployment", |binding| {
            condition(binding, "Claimed") == Some("False")
        })
        .await;
    assert_eq!(federation.runs().await.values().sum::<i64>(), 9, "nothing was removed");

    federation.hub.delete(DEPLOYMENTS, "nginx").await;
    federation.until_runs(&[]).await;
    federation.hub.until_gone(BINDINGS, "nginx-deployment").await;
    let history = federation.triggers().await;
    assert_eq!(
        history,
        ["First", "Scale", "Reconcile", "EvictionDone", "Failover", "EvictionDone", "Withdrawn"]
    );
    federation.asked.assert_allowed();
    federation.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_workload_policy_steers_without_a_propagation_policy() {
    let mut federation = Federation::start(2).await;
    federation.label("member1", "workload-test", "member").await;
    federation.label("member2", "workload-test", "host").await;
    let workload_policy = |allocation_type: &str| {
        json!({
            "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "WorkloadPolicy",
            "metadata": {"name": "test"},
            "spec": {
                "topologyKey": "workload-test", "labelSelector": {"matchLabels": {"app": "nginx"}},
                "allocationPolicy": [
                    {"name": "member", "replicas": 1}, {"name": "host", "replicas": 3}],
                "allocationType": allocation_type, "allocationMethod": "Fill",
            },
        })
    };
    federation.hub.apply(WORKLOAD_POLICIES, workload_policy("Required")).await;
    let mut labelled = deployment(6);
    labelled["metadata"]["labels"] = json!({"policy.atoll.dev/workload-policy": "test"});
    federation.hub.apply(DEPLOYMENTS, labelled).await;
    federation.until_runs(&[("member1", 1), ("member2", 3)]).await;
    federation
        .hub
        .until("two wait", BINDINGS, "nginx-deployment", |binding| {
            replicas(binding, "/spec/decision/pending/0/replicas") == 2
                && condition(binding, "Scheduled") == Some("False")
        })
        .await;
    federation
        .hub
        .until("the domains say so", WORKLOAD_POLICIES, "test", |policy| {
            condition(policy, "Accepted") == Some("True")
                && replicas(policy, "/status/domains/0/assigned") == 1
                && replicas(policy, "/status/domains/1/assigned") == 3
        })
        .await;
    // A policy edit wakes what waits for it.
    federation.hub.apply(WORKLOAD_POLICIES, workload_policy("Preferred")).await;
    federation.until_hub_is_ready(6).await;
    federation.restart_controller().await;
    federation.until_hub_is_ready(6).await;
    federation.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_workload_spread_fills_its_subsets_in_order_and_patches_their_copies() {
    let federation = Federation::start(2).await;
    federation.label("member1", "pool", "reserved").await;
    federation.label("member2", "pool", "elastic").await;
    let subset = |name: &str| {
        json!({
            "name": name,
            "requiredClusterSelector": {"matchLabels": {"pool": name}},
            "patch": {"metadata": {"labels": {"pool": name}}},
        })
    };
    let spread = |name: &str, limit: i64| {
        let (mut reserved, elastic) = (subset("reserved"), subset("elastic"));
        reserved["maxReplicas"] = json!(limit);
        json!({
            "apiVersion": SPREADS.0, "kind": "WorkloadSpread", "metadata": {"name": name},
            "spec": {
                "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "nginx"},
                "subsets": [reserved, elastic],
            },
        })
    };
    federation.hub.apply(SPREADS, spread("nginx", 4)).await;
    federation.hub.apply(DEPLOYMENTS, deployment(3)).await;
    federation.until_runs(&[("member1", 3)]).await;
    federation.hub.apply(DEPLOYMENTS, deployment(6)).await;
    federation.until_runs(&[("member1", 4), ("member2", 2)]).await;
    federation.until_hub_is_ready(6).await;
    for (member, pool) in [("member1", "reserved"), ("member2", "elastic")] {
        let copy = federation.copy(member).await;
        let labels = &copy["spec"]["template"]["metadata"]["labels"];
        assert_eq!(labels, &json!({"app": "nginx", "pool": pool}), "{member}");
    }
    federation
        .hub
        .until("the subsets say so", SPREADS, "nginx", |spread| {
            condition(spread, "Accepted") == Some("True")
                && replicas(spread, "/status/subsets/0/replicas") == 4
                && replicas(spread, "/status/subsets/1/replicas") == 2
        })
        .await;

    // A second one for the same workload steers nothing, until the first is gone.
    tokio::time::sleep(Duration::from_secs(2)).await;
    federation.hub.apply(SPREADS, spread("another", 1)).await;
    let reason = |spread: &serde_json::Value, reason: &str| {
        spread["status"]["conditions"][0]["reason"] == reason
    };
    federation
        .hub
        .until("Conflicted", SPREADS, "another", |spread| reason(spread, "Conflicted"))
        .await;
    federation.until_runs(&[("member1", 4), ("member2", 2)]).await;
    federation.hub.delete(SPREADS, "nginx").await;
    federation
        .hub
        .until("in force now", SPREADS, "another", |spread| reason(spread, "Accepted"))
        .await;

    // What may not be patched is refused, and the field is named.
    let mut wrong = spread("another", 1);
    wrong["spec"]["subsets"][0]["patch"] = json!({"metadata": {"name": "elsewhere"}});
    federation.hub.apply(SPREADS, wrong).await;
    federation
        .hub
        .until("Invalid", SPREADS, "another", |spread| {
            let message = spread["status"]["conditions"][0]["message"].as_str().unwrap_or("");
            reason(spread, "Invalid") && message.contains("spec.subsets[0].patch: metadata.name")
        })
        .await;
    federation.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restarted_controller_finds_everything_as_it_was_and_writes_nothing() {
    let mut federation = Federation::start(2).await;
    federation.hub.apply(POLICIES, policy(&[("member1", 1), ("member2", 1)])).await;
    federation.hub.apply(DEPLOYMENTS, deployment(4)).await;
    federation.until_hub_is_ready(4).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let version = |object: &serde_json::Value| object["metadata"]["resourceVersion"].clone();
    let before = [
        version(&federation.hub.get(BINDINGS, "nginx-deployment").await),
        version(&federation.hub.get(DEPLOYMENTS, "nginx").await),
        version(&federation.hub.get(POLICIES, "nginx").await),
    ];
    federation.restart_controller().await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let after = [
        version(&federation.hub.get(BINDINGS, "nginx-deployment").await),
        version(&federation.hub.get(DEPLOYMENTS, "nginx").await),
        version(&federation.hub.get(POLICIES, "nginx").await),
    ];
    assert_eq!(before, after);
    federation.until_runs(&[("member1", 2), ("member2", 2)]).await;
    let deployment = federation.hub.get(DEPLOYMENTS, "nginx").await;
    assert_eq!(replicas(&deployment, "/status/readyReplicas"), 4);
    assert_eq!(deployment["status"]["observedGeneration"], json!(1));
    federation.stop().await;
}
