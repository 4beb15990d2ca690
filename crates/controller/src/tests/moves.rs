use std::time::Duration;

use atoll_api::binding::Trigger;
use serde_json::json;

use super::harness::{BINDING, DEPLOYMENT, Federation, SOON};
use crate::members::Proof;
use crate::testing::eventually;
use crate::testing::members::Order;

const CLUSTER: (&str, &str) = ("cluster.atoll.dev/v1alpha1", "Cluster");

async fn on(clusters: &[&str], replicas: i64) -> Federation {
    let federation = Federation::start().await;
    place(&federation, clusters).await;
    federation.hub.deployment("web", replicas).await;
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(replicas)).await;
    federation
}

async fn place(federation: &Federation, clusters: &[&str]) {
    let placement = json!({
        "clusterAffinity": {"clusterNames": clusters},
        "replicaScheduling": {"replicaSchedulingType": "Divided"},
    });
    federation.hub.policy("all", DEPLOYMENT, placement).await;
}

async fn until_no_tasks(federation: &Federation) {
    eventually("no eviction task is left", Duration::from_secs(900), || async {
        let binding = federation.hub.binding("web-deployment").await;
        binding["spec"]["gracefulEvictionTasks"].as_array().is_none_or(Vec::is_empty)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn scaling_is_a_decision_and_reaches_the_members() {
    let federation = on(&["m1", "m2", "m3"], 3).await;
    federation.hub.deployment("web", 9).await;
    federation.until_replicas(&[("m1", 3), ("m2", 3), ("m3", 3)]).await;
    federation.until(DEPLOYMENT, "web", "/status/readyReplicas", json!(9)).await;
    federation.until_history(&[Trigger::First, Trigger::Scale]).await;
}

#[tokio::test(start_paused = true)]
async fn the_old_copy_runs_until_the_new_one_is_healthy() {
    let federation = on(&["m1"], 4).await;
    federation.members.make_sick("m2", true);
    place(&federation, &["m2"]).await;
    federation.until(BINDING, "web-deployment", "/spec/clusters/0/name", json!("m2")).await;
    tokio::time::sleep(SOON).await;
    let held = federation.members.replicas();
    assert_eq!(held.get("m1"), Some(&4), "kept while m2 is not healthy: {held:?}");
    federation.members.make_sick("m2", false);
    federation.until_replicas(&[("m2", 4)]).await;
    until_no_tasks(&federation).await;
    let history = [Trigger::First, Trigger::Reconcile, Trigger::EvictionDone];
    federation.until_history(&history).await;
    let last = federation.members.orders().pop().unwrap();
    assert!(matches!(last, Order::Withdraw { proof: Proof::NotTargeted, .. }), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_what_health_does_not() {
    let federation = on(&["m1"], 4).await;
    federation.members.make_sick("m2", true);
    place(&federation, &["m2"]).await;
    federation.until(BINDING, "web-deployment", "/spec/clusters/0/name", json!("m2")).await;
    federation.until_replicas(&[("m2", 4)]).await; // within 600 s plus a margin
    until_no_tasks(&federation).await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_members_share_moves_and_its_old_copy_goes_when_it_is_back() {
    let federation = on(&["m1", "m2"], 4).await;
    federation.members.lose("m1").await;
    let taint = json!([{"key": "cluster.atoll.dev/unreachable", "effect": "NoExecute",
        "timeAdded": "2026-01-01T00:00:00Z"}]);
    let tainted = |taints| json!({"metadata": {"name": "m1"}, "spec": {"taints": taints}});
    federation.hub.apply(CLUSTER.0, CLUSTER.1, None, tainted(taint)).await;
    federation.until_replicas(&[("m1", 2), ("m2", 4)]).await;
    federation.until_history(&[Trigger::First, Trigger::Failover]).await;
    let binding = federation.hub.binding("web-deployment").await;
    let task = &binding["spec"]["gracefulEvictionTasks"][0];
    assert_eq!((&task["fromCluster"], &task["keep"]), (&json!("m1"), &json!(false)));

    federation.members.bring_back("m1").await;
    until_no_tasks(&federation).await;
    federation.until_replicas(&[("m2", 4)]).await;
    federation.until_history(&[Trigger::First, Trigger::Failover, Trigger::EvictionDone]).await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_in_the_middle_of_an_eviction_goes_on_with_it() {
    let federation = on(&["m1"], 4).await;
    federation.members.make_sick("m2", true);
    place(&federation, &["m2"]).await;
    federation.until(BINDING, "web-deployment", "/spec/clusters/0/name", json!("m2")).await;
    let federation = federation.restart().await;
    assert_eq!(federation.members.replicas().get("m1"), Some(&4));
    federation.members.make_sick("m2", false);
    federation.until_replicas(&[("m2", 4)]).await;
    until_no_tasks(&federation).await;
}
