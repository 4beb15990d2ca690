//! WorkloadRebalancers: each named workload is decided again, once.

use atoll_api::binding::Trigger;
use serde_json::{Value, json};

use super::harness::{BINDING, DEPLOYMENT, Federation, SOON};
use crate::testing::eventually;

const REBALANCER: (&str, &str) = ("apps.atoll.dev/v1alpha1", "WorkloadRebalancer");

fn workload(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": name})
}

async fn rebalance(federation: &Federation, workloads: &[&str], ttl: Option<i64>) {
    let extra = ttl.map_or(json!({}), |ttl| json!({"ttlSecondsAfterFinished": ttl}));
    rebalance_with(federation, workloads, extra).await;
}

async fn rebalance_with(federation: &Federation, workloads: &[&str], mut spec: Value) {
    spec["workloads"] = workloads.iter().map(|name| workload(name)).collect();
    let object = json!({"metadata": {"name": "now"}, "spec": spec});
    federation.hub.apply(REBALANCER.0, REBALANCER.1, None, object).await;
}

async fn until_status(federation: &Federation, path: &str, value: Value) -> Value {
    eventually(&format!("WorkloadRebalancer {path} = {value}"), SOON, || async {
        let object = federation.hub.get(REBALANCER.0, REBALANCER.1, None, "now").await;
        object["status"].pointer(path) == Some(&value)
    })
    .await;
    federation.hub.get(REBALANCER.0, REBALANCER.1, None, "now").await["status"].clone()
}

async fn rebalances(federation: &Federation) -> usize {
    let history = federation.history().await;
    history.iter().filter(|trigger| **trigger == Trigger::Rebalance).count()
}

async fn until_rebalances(federation: &Federation, count: usize) {
    eventually(&format!("{count} rebalances"), SOON, || async {
        rebalances(federation).await == count
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn every_workload_is_decided_again_once_and_the_object_shows_it() {
    let federation = Federation::start().await;
    let placement = json!({"clusterAffinity": {"clusterNames": ["m1", "m2"]},
        "replicaScheduling": {"replicaSchedulingType": "Divided"}});
    federation.hub.policy("all", DEPLOYMENT, placement).await;
    for name in ["web", "api", "cart"] {
        federation.hub.deployment(name, 2).await;
    }
    for name in ["web-deployment", "api-deployment", "cart-deployment"] {
        federation.until(BINDING, name, "/status/summary/applied", json!(2)).await;
    }
    rebalance(&federation, &["web", "web", "missing", "api"], None).await;
    let status = until_status(&federation, "/successful", json!(2)).await;
    let expected = json!([
        {"workload": workload("web"), "result": "Successful"},
        {"workload": workload("missing"), "result": "Failed", "reason": "ReferencedBindingNotFound"},
        {"workload": workload("api"), "result": "Successful"},
    ]);
    assert_eq!(status["observedWorkloads"], expected);
    assert_eq!(status["failed"], 1);
    assert!(status["finishTime"].is_string(), "{status}");
    until_rebalances(&federation, 2).await;
    // What was asked for is not asked for again: not by the next leader, not after an edit.
    let federation = federation.restart().await;
    rebalance(&federation, &["web", "api", "cart"], None).await;
    until_status(&federation, "/successful", json!(3)).await;
    until_rebalances(&federation, 3).await;
    tokio::time::sleep(SOON).await;
    assert_eq!(rebalances(&federation).await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_finished_one_is_deleted_after_its_time() {
    let federation = Federation::start().await;
    federation.hub.policy("all", DEPLOYMENT, json!({})).await;
    federation.hub.deployment("web", 2).await;
    federation.until(BINDING, "web-deployment", "/status/summary/applied", json!(3)).await;
    rebalance(&federation, &["web"], Some(60)).await;
    until_status(&federation, "/successful", json!(1)).await;
    let (api, _) = federation.hub.api(REBALANCER.0, REBALANCER.1, None).await;
    tokio::time::sleep(SOON).await;
    assert!(api.get_opt("now").await.unwrap().is_some(), "too early");
    eventually("deleted", 2 * SOON, || async { api.get_opt("now").await.unwrap().is_none() }).await;
    until_rebalances(&federation, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_rebalance_that_mends_skew_leaves_what_the_constraints_allow() {
    let federation = Federation::start().await;
    for (name, zone) in [("m1", "a"), ("m2", "b"), ("m3", "c")] {
        let labels = json!({"metadata": {"name": name, "labels": {"zone": zone}}});
        federation.hub.apply("cluster.atoll.dev/v1alpha1", "Cluster", None, labels).await;
    }
    let weights = |m1: i64, m2: i64| {
        let of = |name: &str, weight: i64| json!({"targetCluster": {"clusterNames": [name]}, "weight": weight});
        json!({
            "clusterAffinity": {"clusterNames": ["m1", "m2"]},
            "topologySpreadConstraints": [{"maxSkew": 4, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
            "replicaScheduling": {
                "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                "weightPreference": {"staticWeightList": [of("m1", m1), of("m2", m2)]},
            },
        })
    };
    federation.hub.policy("all", DEPLOYMENT, weights(3, 1)).await;
    federation.hub.deployment("web", 8).await;
    federation.until(BINDING, "web-deployment", "/spec/clusters/0/replicas", json!(6)).await;
    rebalance_with(&federation, &["web"], json!({"mode": "MendSkew"})).await;
    until_rebalances(&federation, 1).await;
    federation.until(BINDING, "web-deployment", "/spec/rescheduleMode", json!("MendSkew")).await;
    let object = federation.hub.get(BINDING.0, BINDING.1, Some("shop"), "web-deployment").await;
    assert_eq!(
        object["spec"]["clusters"][0]["replicas"], 6,
        "6 and 2 are within maxSkew 4: {object}"
    );
}
