//! Plugin Preemption in the controller: a victim is decided again once the decision that took its room is durable, also by
//! the next leader, and exactly once.

use std::time::Duration;

use atoll_api::binding::Trigger;
use atoll_scheduler::{Profiles, SchedulerConfiguration};
use http::Method;
use serde_json::{Value, json};

use super::harness::{BINDING, Federation, SOON, Setup};
use crate::testing::eventually;
use crate::testing::hub::{How, Hub};

const POLICY: (&str, &str) = ("policy.atoll.dev/v1alpha1", "PropagationPolicy");
const CLASS: (&str, &str) = ("scheduling.k8s.io/v1", "PriorityClass");
const CLUSTER: (&str, &str) = ("cluster.atoll.dev/v1alpha1", "Cluster");

fn profiles() -> Profiles {
    let text = "apiVersion: config.atoll.dev/v1alpha1\nkind: SchedulerConfiguration\nprofiles:\n\
                - schedulerName: default\n  plugins: {postFilter: {enabled: [{name: Preemption}]}}\n";
    Profiles::read(&SchedulerConfiguration::read(text).unwrap()).unwrap()
}

async fn policy(hub: &Hub, name: &str, class: &str) {
    let object = json!({"metadata": {"name": name}, "spec": {
        "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": name}],
        "placement": {"replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}},
        "schedulePriority": {"priorityClassSource": "KubePriorityClass", "priorityClassName": class},
    }});
    hub.apply(POLICY.0, POLICY.1, Some("shop"), object).await;
}

/// A full federation: `batch`, of low priority, has all 6 places of m1.
async fn full() -> Federation {
    let hub = Hub::open().await;
    for (name, value) in [("low", 1), ("high", 100)] {
        let object = json!({"metadata": {"name": name}, "value": value});
        hub.apply(CLASS.0, CLASS.1, None, object).await;
    }
    let setup = Setup { profiles: profiles(), ..Setup::default() };
    let federation = Federation::start_on(hub, setup).await;
    for (cluster, pods) in [("m1", 6), ("m2", 0), ("m3", 0)] {
        let summary = json!({"resourceSummary": {"allocatable": {"pods": pods.to_string()}}});
        federation.hub.patch_status(CLUSTER.0, CLUSTER.1, cluster, summary).await;
    }
    policy(&federation.hub, "batch", "low").await;
    policy(&federation.hub, "web", "high").await;
    federation.hub.deployment("batch", 6).await;
    federation.until(BINDING, "batch-deployment", "/spec/clusters/0/replicas", json!(6)).await;
    federation.until(BINDING, "batch-deployment", "/status/summary/ready", json!(6)).await;
    // The member's free room without what it runs.
    let summary =
        json!({"resourceSummary": {"allocatable": {"pods": "6"}, "allocated": {"pods": "6"}}});
    federation.hub.patch_status(CLUSTER.0, CLUSTER.1, "m1", summary).await;
    federation
}

async fn until_given(federation: &Federation) {
    federation.until(BINDING, "web-deployment", "/spec/clusters/0/replicas", json!(2)).await;
    federation.until(BINDING, "batch-deployment", "/spec/clusters/0/replicas", json!(4)).await;
    let web = federation.hub.binding("web-deployment").await;
    let batch = federation.hub.binding("batch-deployment").await;
    assert_eq!(web["spec"]["preempts"][0]["name"], "batch-deployment");
    assert_eq!(web["spec"]["preempts"][0]["remaining"], 4);
    assert_eq!(batch["spec"]["preemptedBy"], json!([web["spec"]["preempts"][0]["decision"]]));
}

async fn preempted(federation: &Federation) -> usize {
    let history = federation.history().await;
    history.iter().filter(|trigger| **trigger == Trigger::Preempted).count()
}

async fn messages(federation: &Federation, name: &str) -> Vec<String> {
    let (api, _) = federation.hub.api("v1", "Event", Some("shop")).await;
    let all = api.list(&kube::api::ListParams::default()).await.unwrap().items;
    let of = |event: &&kube::api::DynamicObject| event.data["involvedObject"]["name"] == name;
    let text = |event: &kube::api::DynamicObject| {
        let reason = event.data["reason"].as_str().unwrap_or_default();
        format!("{reason}: {}", event.data["message"].as_str().unwrap_or_default())
    };
    all.iter().filter(of).map(text).collect()
}

#[tokio::test(start_paused = true)]
async fn a_victim_is_decided_again_and_events_name_both_sides() {
    let federation = full().await;
    federation.hub.deployment("web", 2).await;
    until_given(&federation).await;
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(2)).await;
    eventually("the Events", Duration::from_secs(120), || async {
        let web = messages(&federation, "web").await;
        let batch = messages(&federation, "batch").await;
        let takes = "preempts 2 replicas of shop/batch-deployment (priority 1) on m1";
        let gives = "shop/web-deployment (priority 100) took the room of 2 replicas on m1";
        web.iter().any(|text| text.starts_with("First: ") && text.contains(takes))
            && batch.iter().any(|text| text.starts_with("Preempted: ") && text.contains(gives))
    })
    .await;
    let counted = federation.metrics();
    assert!(counted.iter().any(|line| line.contains("decisions_total{trigger=\"Preempted\"")));
    let federation = federation.restart().await;
    federation.hub.deployment("web", 1).await;
    federation.until(BINDING, "web-deployment", "/spec/clusters/0/replicas", json!(1)).await;
    eventually("the followed entry is dropped", SOON, || async {
        federation.hub.binding("web-deployment").await["spec"]["preempts"] == Value::Null
    })
    .await;
    assert_eq!(preempted(&federation).await, 1, "exactly once");
}

#[tokio::test(start_paused = true)]
async fn the_next_leader_finds_victims_that_were_not_decided_again() {
    let federation = full().await;
    // The victim's decision does not arrive until the leader is gone.
    federation.spy.forbid("resourcebindings/batch-deployment");
    federation.hub.deployment("web", 2).await;
    federation.until(BINDING, "web-deployment", "/spec/preempts/0/replicas", json!(2)).await;
    let batch = federation.hub.binding("batch-deployment").await;
    assert_eq!(batch["spec"]["clusters"][0]["replicas"], 6);
    let federation = federation.restart().await;
    until_given(&federation).await;
    eventually("recorded", SOON, || async { preempted(&federation).await == 1 }).await;
    let federation = federation.restart().await;
    federation.hub.deployment("web", 1).await;
    federation.until(BINDING, "web-deployment", "/spec/clusters/0/replicas", json!(1)).await;
    assert_eq!(preempted(&federation).await, 1, "exactly once");
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_is_not_durable_preempts_nothing() {
    let federation = full().await;
    federation.spy.fail_next(Method::POST, "resourcebindings", How::LoseRequest);
    federation.hub.deployment("web", 2).await;
    until_given(&federation).await;
    let web = federation.hub.binding("web-deployment").await;
    let decision = &web["spec"]["preempts"][0]["decision"];
    assert_eq!(*decision, web["spec"]["decision"]["id"], "the decision that was committed");
    eventually("recorded", SOON, || async { preempted(&federation).await == 1 }).await;
}

#[tokio::test(start_paused = true)]
async fn a_class_that_never_preempts_waits_for_room() {
    let federation = full().await;
    let object = json!({"metadata": {"name": "never"}, "value": 100, "preemptionPolicy": "Never"});
    federation.hub.apply(CLASS.0, CLASS.1, None, object).await;
    policy(&federation.hub, "web", "never").await;
    federation.hub.deployment("web", 2).await;
    let pending = "/spec/decision/pending/0/replicas";
    federation.until(BINDING, "web-deployment", pending, json!(2)).await;
    assert_eq!(preempted(&federation).await, 0);
}
