//! FederatedResourceQuotas: many decisions at once stay within one, it blocks no failover, and its status shows the use.

use serde_json::{Value, json};

use super::harness::{BINDING, DEPLOYMENT, Federation, SOON};
use crate::testing::eventually;

const QUOTA: (&str, &str) = ("policy.atoll.dev/v1alpha1", "FederatedResourceQuota");

async fn quota(federation: &Federation, overall: Value) {
    let object = json!({"metadata": {"name": "team"}, "spec": {"overall": overall}});
    federation.hub.apply(QUOTA.0, QUOTA.1, Some("shop"), object).await;
}

async fn until_status(federation: &Federation, path: &str, value: Value) {
    eventually(&format!("quota {path} = {value}"), 2 * SOON, || async {
        let quota = federation.hub.get(QUOTA.0, QUOTA.1, Some("shop"), "team").await;
        quota["status"].pointer(path) == Some(&value)
    })
    .await;
}

/// Replicas of a workload by member, as decided.
async fn shares(federation: &Federation, name: &str) -> Vec<(String, i64)> {
    let key = format!("{name}-deployment");
    let binding = federation.hub.binding(&key).await;
    let clusters = binding["spec"]["clusters"].as_array().cloned().unwrap_or_default();
    let share = |share: &Value| {
        (share["name"].as_str().unwrap().to_owned(), share["replicas"].as_i64().unwrap())
    };
    clusters.iter().map(share).collect()
}

async fn all(federation: &Federation) -> Vec<(String, i64)> {
    let mut all = Vec::new();
    for name in ["one", "two", "three"] {
        all.extend(shares(federation, name).await);
    }
    all
}

async fn total(federation: &Federation) -> i64 {
    all(federation).await.iter().map(|(_, replicas)| replicas).sum()
}

#[tokio::test(start_paused = true)]
async fn workloads_that_arrive_together_stay_within_the_quota_and_wait_for_more() {
    let federation = Federation::start().await;
    quota(&federation, json!({"pods": "7"})).await;
    until_status(&federation, "/overallUsed/pods", json!("0")).await;
    let divided = json!({"replicaScheduling": {"replicaSchedulingType": "Divided"}});
    federation.hub.policy("shop", DEPLOYMENT, divided).await;
    for name in ["one", "two", "three"] {
        federation.hub.deployment(name, 4).await;
    }
    eventually("7 replicas", 2 * SOON, || async { total(&federation).await == 7 }).await;
    until_status(&federation, "/overallUsed/pods", json!("7")).await;
    until_status(&federation, "/conditions/0/reason", json!("Accepted")).await;
    federation
        .until(BINDING, "three-deployment", "/status/conditions/0/reason", json!("QuotaExceeded"))
        .await;
    // The next leader counts what the last one placed.
    let federation = federation.restart().await;
    tokio::time::sleep(SOON).await;
    assert_eq!(total(&federation).await, 7);
    // What another workload frees is used at once.
    federation.hub.deployment("one", 2).await;
    eventually("others grow", 2 * SOON, || async {
        let grown = shares(&federation, "three").await.iter().map(|(_, n)| n).sum::<i64>();
        total(&federation).await == 7 && grown > 0
    })
    .await;
    quota(&federation, json!({"pods": "20"})).await;
    eventually("all run", 2 * SOON, || async { total(&federation).await == 10 }).await;
    until_status(&federation, "/overallUsed/pods", json!("10")).await;
    // A quota below the use takes nothing away, and lets work leave a member.
    quota(&federation, json!({"pods": "1", "services": "2"})).await;
    until_status(&federation, "/conditions/0/status", json!("False")).await;
    let cluster = ("cluster.atoll.dev/v1alpha1", "Cluster");
    let taint = json!({"metadata": {"name": "m1"}, "spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}});
    federation.hub.apply(cluster.0, cluster.1, None, taint).await;
    eventually("m1 is empty and nothing is lost", 4 * SOON, || async {
        let all = all(&federation).await;
        total(&federation).await == 10 && all.iter().all(|(cluster, _)| cluster != "m1")
    })
    .await;
}
