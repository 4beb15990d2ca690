//! ClusterTaintPolicies: taints follow the conditions of Clusters.

use serde_json::{Value, json};

use super::harness::{Federation, SOON};
use crate::testing::eventually;

const CLUSTER: (&str, &str) = ("cluster.atoll.dev/v1alpha1", "Cluster");
const POLICY: (&str, &str) = ("policy.atoll.dev/v1alpha1", "ClusterTaintPolicy");

async fn disk(federation: &Federation, name: &str, status: &str) {
    let condition = |type_: &str, status: &str| {
        json!({"type": type_, "status": status, "reason": "Test", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let conditions = json!([condition("Ready", "True"), condition("DiskFull", status)]);
    let status = json!({"conditions": conditions});
    federation.hub.patch_status(CLUSTER.0, CLUSTER.1, name, status).await;
}

async fn policy(federation: &Federation, key: &str) {
    let is = |value: &str| json!([{"conditionType": "DiskFull", "operator": "In", "statusValues": [value]}]);
    let spec = json!({
        "targetClusters": {"exclude": ["m3"]},
        "addOnConditions": is("True"), "removeOnConditions": is("False"),
        "taints": [{"key": key, "value": "full", "effect": "NoExecute"}],
    });
    let object = json!({"metadata": {"name": "disk"}, "spec": spec});
    federation.hub.apply(POLICY.0, POLICY.1, None, object).await;
}

async fn taints(federation: &Federation, name: &str) -> Vec<Value> {
    let cluster = federation.hub.get(CLUSTER.0, CLUSTER.1, None, name).await;
    cluster["spec"]["taints"].as_array().cloned().unwrap_or_default()
}

async fn until_taints(federation: &Federation, name: &str, keys: &[&str]) {
    eventually(&format!("{name} has taints {keys:?}"), SOON, || async {
        let taints = taints(federation, name).await;
        taints.iter().map(|taint| taint["key"].as_str().unwrap()).eq(keys.iter().copied())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn taints_follow_conditions_and_those_of_others_stay() {
    let federation = Federation::start().await;
    let own = json!({"metadata": {"name": "m2"}, "spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}]}});
    federation.hub.apply(CLUSTER.0, CLUSTER.1, None, own).await;
    policy(&federation, "example.io/disk").await;
    for name in ["m1", "m2", "m3"] {
        disk(&federation, name, "True").await;
    }
    until_taints(&federation, "m1", &["example.io/disk"]).await;
    until_taints(&federation, "m2", &["mine", "example.io/disk"]).await;
    let taint = &taints(&federation, "m1").await[0];
    assert_eq!((&taint["value"], &taint["effect"]), (&json!("full"), &json!("NoExecute")));
    assert!(taint["timeAdded"].is_string(), "tolerationSeconds count from then: {taint}");
    assert!(taints(&federation, "m3").await.is_empty(), "not a target");
    // Neither requirement holds: nothing changes. Then the taint goes, also under the next leader.
    disk(&federation, "m1", "Unknown").await;
    tokio::time::sleep(SOON).await;
    until_taints(&federation, "m1", &["example.io/disk"]).await;
    let federation = federation.restart().await;
    disk(&federation, "m1", "False").await;
    disk(&federation, "m2", "False").await;
    until_taints(&federation, "m1", &[]).await;
    until_taints(&federation, "m2", &["mine"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_taint_of_atolls_own_is_refused_and_the_status_names_the_field() {
    let federation = Federation::start().await;
    policy(&federation, "cluster.atoll.dev/unreachable").await;
    disk(&federation, "m1", "True").await;
    eventually("it is not accepted", SOON, || async {
        let object = federation.hub.get(POLICY.0, POLICY.1, None, "disk").await;
        let condition = &object["status"]["conditions"][0];
        condition["reason"] == "Invalid"
            && condition["message"].as_str().is_some_and(|text| text.contains("spec.taints[0].key"))
    })
    .await;
    tokio::time::sleep(SOON).await;
    assert!(taints(&federation, "m1").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_the_hub_refuses_to_change_does_not_delay_the_others() {
    let federation = Federation::start().await;
    federation.spy.forbid("/clusters/m1");
    for name in ["m1", "m2"] {
        disk(&federation, name, "True").await;
    }
    policy(&federation, "example.io/disk").await;
    until_taints(&federation, "m2", &["example.io/disk"]).await;
    assert!(taints(&federation, "m1").await.is_empty());
}
