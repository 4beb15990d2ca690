//! `replicaSync: FromMembers`: what members' autoscalers set becomes the template's number.

use atoll_api::binding::Trigger;
use serde_json::{Value, json};

use super::harness::{BINDING, DEPLOYMENT, Federation, SOON};
use crate::testing::eventually;
use crate::testing::members::Order;

const LABEL: &str = atoll_interpreter::RETAIN_REPLICAS;

fn divided() -> Value {
    json!({
        "clusterAffinity": {"clusterNames": ["m1", "m2"]},
        "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaSync": "FromMembers"},
    })
}

async fn label(federation: &Federation, value: &str) {
    let object = json!({"metadata": {"name": "web", "labels": {LABEL: value}}});
    federation.hub.apply(DEPLOYMENT.0, DEPLOYMENT.1, Some("shop"), object).await;
}

async fn replicas(federation: &Federation) -> Value {
    let web = federation.hub.get(DEPLOYMENT.0, DEPLOYMENT.1, Some("shop"), "web").await;
    web["spec"]["replicas"].clone()
}

fn scale_writes(federation: &Federation) -> usize {
    let calls = federation.spy.calls();
    calls.iter().filter(|call| call.path.ends_with("/deployments/web/scale")).count()
}

/// m1 and m2 run three replicas.
async fn placed(label_value: &str) -> Federation {
    let federation = Federation::start().await;
    federation.hub.deployment("web", 3).await;
    label(&federation, label_value).await;
    federation.hub.policy("p", DEPLOYMENT, divided()).await;
    federation.until_replicas(&[("m1", 2), ("m2", 1)]).await;
    tokio::time::sleep(SOON).await;
    federation
}

#[tokio::test(start_paused = true)]
async fn a_members_autoscaler_raises_the_template_once_and_no_member_is_scaled_down() {
    let federation = placed("true").await;
    assert_eq!(scale_writes(&federation), 0, "the members run what the template asks for");
    let before = federation.members.orders().len();
    federation.members.autoscale("m1", 4);
    eventually("the template follows", SOON, || async { replicas(&federation).await == 5 }).await;
    let shares = json!([{"name": "m1", "replicas": 4}, {"name": "m2", "replicas": 1}]);
    federation.until(BINDING, "web-deployment", "/spec/clusters", shares.clone()).await;
    federation.until_history(&[Trigger::First, Trigger::Scale]).await;
    tokio::time::sleep(20 * SOON).await;
    assert_eq!(scale_writes(&federation), 1);
    assert_eq!(federation.history().await, [Trigger::First, Trigger::Scale]);
    let orders = federation.members.orders();
    for order in &orders[before..] {
        let Order::Set { cluster, replicas, .. } = order else { panic!("{order:?}") };
        let run = if cluster.as_str() == "m1" { 4 } else { 1 };
        assert!(replicas.is_none_or(|replicas| replicas >= run), "{order:?}");
    }
    // The same after a restart, and downwards.
    let federation = federation.restart().await;
    tokio::time::sleep(4 * SOON).await;
    assert_eq!(replicas(&federation).await, 5);
    federation.members.autoscale("m1", 2);
    eventually("the template follows down", SOON, || async { replicas(&federation).await == 3 })
        .await;
    federation.until_replicas(&[("m1", 2), ("m2", 1)]).await;
}

#[tokio::test(start_paused = true)]
async fn without_the_label_the_template_stays_and_an_empty_member_counts_as_one_replica() {
    let federation = placed("false").await;
    federation.members.autoscale("m1", 4);
    tokio::time::sleep(4 * SOON).await;
    assert_eq!((replicas(&federation).await, scale_writes(&federation)), (json!(3), 0));
    drop(federation);
    let federation = placed("true").await;
    federation.members.autoscale("m1", 0);
    eventually("the template follows", SOON, || async { replicas(&federation).await == 2 }).await;
    let shares = json!([{"name": "m1", "replicas": 1}, {"name": "m2", "replicas": 1}]);
    federation.until(BINDING, "web-deployment", "/spec/clusters", shares).await;
    // The others still count.
    federation.members.autoscale("m2", 4);
    eventually("the template follows", SOON, || async { replicas(&federation).await == 5 }).await;
    assert!(federation.members.objects("m1").iter().any(|name| name.contains("web")));
}

#[tokio::test(start_paused = true)]
async fn opposite_changes_with_an_equal_sum_become_the_shares() {
    let federation = placed("true").await;
    // Until both reported, the sum differs.
    federation.members.autoscale("m1", 1);
    federation.members.autoscale("m2", 2);
    let shares = json!([{"name": "m1", "replicas": 1}, {"name": "m2", "replicas": 2}]);
    federation.until(BINDING, "web-deployment", "/spec/clusters", shares).await;
    assert_eq!(replicas(&federation).await, 3);
    let decisions = federation.history().await.len();
    tokio::time::sleep(20 * SOON).await;
    assert_eq!(federation.history().await.len(), decisions, "nothing is decided again");
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_is_an_event_that_names_the_fix() {
    let mut federation = placed("true").await;
    federation = federation.restart_without("/scale").await;
    federation.members.autoscale("m1", 4);
    eventually("an Event", 4 * SOON, || async {
        let (events, _) = federation.hub.api("v1", "Event", Some("shop")).await;
        let events = events.list(&Default::default()).await.unwrap();
        events.items.iter().any(|event| {
            event.data["reason"] == "ReplicasNotSynced"
                && event.data["message"]
                    .as_str()
                    .or(event.data["note"].as_str())
                    .is_some_and(|text| text.contains("replica-sync.yaml"))
        })
    })
    .await;
    assert_eq!(replicas(&federation).await, 3);
}

#[tokio::test(start_paused = true)]
async fn duplicated_work_is_refused_with_the_name_of_the_field() {
    let federation = Federation::start().await;
    let (policies, _) =
        federation.hub.api("policy.atoll.dev/v1alpha1", "PropagationPolicy", Some("shop")).await;
    let object = serde_json::from_value(json!({
        "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "resourceSelectors": [{"apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1}],
            "placement": {"replicaScheduling": {
                "replicaSchedulingType": "Duplicated", "replicaSync": "FromMembers",
            }},
        },
    }))
    .unwrap();
    let error = policies.create(&Default::default(), &object).await.unwrap_err().to_string();
    assert!(error.contains("replicaSync"), "{error}");
}
