//! Triggers of decisions that other scenarios do not cover, and `rescheduleOn`.

use std::sync::Arc;
use std::time::Duration;

use atoll_api::binding::Trigger;
use atoll_scheduler::Profiles;
use atoll_scheduler::framework::plugin::Point;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::harness::{BINDING, Federation, SOON, Setup};
use crate::schedule::extend::{Answer, Extension, Passage, Permit};
use crate::testing::eventually;
use crate::testing::hub::Hub;

const CLUSTER: (&str, &str) = ("cluster.atoll.dev/v1alpha1", "Cluster");
const POLICY: (&str, &str) = ("policy.atoll.dev/v1alpha1", "PropagationPolicy");

/// A policy for one Deployment.
pub(super) async fn policy(hub: &Hub, name: &str, placement: Value) {
    let object = json!({"metadata": {"name": name}, "spec": {
        "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": name}],
        "placement": placement,
    }});
    hub.apply(POLICY.0, POLICY.1, Some("shop"), object).await;
}

async fn join(federation: &Federation, name: &str) {
    federation.hub.cluster(name).await;
    federation.members.connect(name).await;
}

/// The capacity in a member's status, in pods.
pub(super) async fn room(hub: &Hub, cluster: &str, pods: i64) {
    let summary = json!({"resourceSummary": {"allocatable": {"pods": pods.to_string()}}});
    hub.patch_status(CLUSTER.0, CLUSTER.1, cluster, summary).await;
}

pub(super) async fn shares(federation: &Federation, name: &str) -> Vec<(String, i64)> {
    let binding = federation.hub.binding(&format!("{name}-deployment")).await;
    let clusters = binding["spec"]["clusters"].as_array().cloned().unwrap_or_default();
    let share =
        |c: &Value| (c["name"].as_str().unwrap().to_owned(), c["replicas"].as_i64().unwrap());
    clusters.iter().map(share).collect()
}

pub(super) async fn until_shares(federation: &Federation, name: &str, expected: &[(&str, i64)]) {
    let expected: Vec<_> = expected.iter().map(|(c, n)| ((*c).to_owned(), *n)).collect();
    eventually(&format!("{name} has {expected:?}"), Duration::from_secs(120), || async {
        shares(federation, name).await == expected
    })
    .await;
}

fn divided() -> Value {
    json!({"replicaScheduling": {"replicaSchedulingType": "Divided"}})
}

pub(super) fn by_room() -> Value {
    let weights = json!({"dynamicWeight": "AvailableReplicas"});
    json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "weightPreference": weights}})
}

#[tokio::test(start_paused = true)]
async fn a_rebalance_that_is_asked_for_divides_again_from_zero() {
    let federation = Federation::start().await;
    policy(&federation.hub, "web", divided()).await;
    federation.hub.deployment("web", 8).await;
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(8)).await;
    join(&federation, "m4").await;
    // Bindings are decided in order: when the late one is, m4 was evaluated, and moved nothing.
    policy(&federation.hub, "late", json!({})).await;
    federation.hub.deployment("late", 1).await;
    until_shares(&federation, "late", &[("m1", 1), ("m2", 1), ("m3", 1), ("m4", 1)]).await;
    assert_eq!(shares(&federation, "web").await.len(), 3, "a new member moves nothing");

    tokio::time::advance(Duration::from_secs(2)).await;
    let asked = federation.hub.clock.now_seconds().to_string();
    let ask =
        json!({"metadata": {"name": "web-deployment"}, "spec": {"rescheduleTriggeredAt": asked}});
    federation.hub.apply(BINDING.0, BINDING.1, Some("shop"), ask).await;
    until_shares(&federation, "web", &[("m1", 2), ("m2", 2), ("m3", 2), ("m4", 2)]).await;
    eventually("history has the rebalance", SOON, || async {
        federation.history().await.contains(&Trigger::Rebalance)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn reschedule_on_says_what_a_binding_follows() {
    let federation = Federation::start().await;
    policy(&federation.hub, "follows", json!({})).await;
    let mut placement = divided();
    placement["rescheduleOn"] = json!([]);
    policy(&federation.hub, "stays", placement).await;
    federation.hub.deployment("follows", 1).await;
    federation.hub.deployment("stays", 3).await;
    let at_first = [("m1", 1), ("m2", 1), ("m3", 1)];
    for name in ["follows", "stays"] {
        until_shares(&federation, name, &at_first).await;
    }
    join(&federation, "m4").await;
    until_shares(&federation, "follows", &[("m1", 1), ("m2", 1), ("m3", 1), ("m4", 1)]).await;
    federation.hub.deployment("follows", 2).await;
    federation.hub.deployment("stays", 6).await;
    until_shares(&federation, "follows", &[("m1", 2), ("m2", 2), ("m3", 2), ("m4", 2)]).await;
    federation.until(BINDING, "stays-deployment", "/spec/replicas", json!(6)).await;
    let stayed = at_first.map(|(cluster, replicas)| (cluster.to_owned(), replicas));
    assert_eq!(shares(&federation, "stays").await, stayed);
    // Replicas leave a deleted member whatever `rescheduleOn` allows.
    federation.hub.delete(CLUSTER.0, CLUSTER.1, None, "m3").await;
    eventually("stays leaves m3", Duration::from_secs(120), || async {
        shares(&federation, "stays").await.iter().all(|(cluster, _)| cluster != "m3")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_tried_again_when_there_is_room_for_it() {
    let federation = Federation::start().await;
    for name in ["m1", "m2", "m3"] {
        room(&federation.hub, name, 1).await;
    }
    policy(&federation.hub, "web", by_room()).await;
    federation.hub.deployment("web", 5).await;
    until_shares(&federation, "web", &[("m1", 1), ("m2", 1), ("m3", 1)]).await;
    room(&federation.hub, "m2", 9).await;
    until_shares(&federation, "web", &[("m1", 1), ("m2", 3), ("m3", 1)]).await;
    federation.until_history(&[Trigger::First, Trigger::Retry]).await;
}

#[tokio::test(start_paused = true)]
async fn replicas_that_a_member_cannot_run_move_on_to_the_next_subset() {
    let federation = Federation::start().await;
    federation.members.fill("m1", 1, federation.hub.clock.now());
    let labels = json!({"metadata": {"name": "m1", "labels": {"pool": "reserved"}}});
    federation.hub.apply(CLUSTER.0, CLUSTER.1, None, labels).await;
    let spread = json!({"metadata": {"name": "web"}, "spec": {
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "subsets": [
            {"name": "reserved", "requiredClusterSelector": {"matchLabels": {"pool": "reserved"}}},
            {"name": "elastic", "requiredClusterSelector": {
                "matchExpressions": [{"key": "pool", "operator": "DoesNotExist"}]}},
        ],
        "scheduleStrategy": {
            "type": "Adaptive", "adaptive": {"rescheduleCriticalSeconds": 30},
        },
    }});
    let kind = ("policy.atoll.dev/v1alpha1", "WorkloadSpread");
    federation.hub.apply(kind.0, kind.1, Some("shop"), spread).await;
    federation.hub.deployment("web", 3).await;
    until_shares(&federation, "web", &[("m1", 3)]).await;
    until_shares(&federation, "web", &[("m1", 1), ("m2", 1), ("m3", 1)]).await;
    assert_eq!(federation.history().await[..2], [Trigger::First, Trigger::Overflow]);
}

#[tokio::test(start_paused = true)]
async fn the_ordinals_of_a_stateful_set_go_on_from_subset_to_subset() {
    let federation = Federation::start().await;
    for (name, pool) in [("m3", "reserved"), ("m1", "elastic")] {
        let labels = json!({"metadata": {"name": name, "labels": {"pool": pool}}});
        federation.hub.apply(CLUSTER.0, CLUSTER.1, None, labels).await;
        let served = json!({"apiEnablements": [{"groupVersion": "apps/v1", "resources": [
            {"name": "statefulsets", "kind": "StatefulSet"}]}]});
        federation.hub.patch_status(CLUSTER.0, CLUSTER.1, name, served).await;
    }
    let selector = |pool: &str| json!({"matchLabels": {"pool": pool}});
    let spread = json!({"metadata": {"name": "db"}, "spec": {
        "targetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"},
        "subsets": [
            {"name": "reserved", "maxReplicas": 2, "requiredClusterSelector": selector("reserved")},
            {"name": "elastic", "requiredClusterSelector": selector("elastic")},
        ],
    }});
    let kind = ("policy.atoll.dev/v1alpha1", "WorkloadSpread");
    federation.hub.apply(kind.0, kind.1, Some("shop"), spread).await;
    let set = |replicas: i64| {
        json!({"metadata": {"name": "db"}, "spec": {
            "replicas": replicas, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [{"name": "c", "image": "postgres"}]},
            },
        }})
    };
    federation.hub.apply("apps/v1", "StatefulSet", Some("shop"), set(3)).await;
    let start =
        |cluster: &str| federation.members.manifest(cluster)["spec"]["ordinals"]["start"].clone();
    federation.until_replicas(&[("m1", 1), ("m3", 2)]).await;
    assert_eq!((start("m3"), start("m1")), (Value::Null, json!(2)), "db-0 and db-1, then db-2");
    federation.hub.apply("apps/v1", "StatefulSet", Some("shop"), set(5)).await;
    federation.until_replicas(&[("m1", 3), ("m3", 2)]).await;
    assert_eq!((start("m3"), start("m1")), (Value::Null, json!(2)), "it grows at its end");
}

/// A Permit that waits a minute for an answer about `first`, and allows everything else.
struct Slow;

impl Extension for Slow {
    fn name(&self) -> &'static str {
        "Slow"
    }

    fn permit(&self, passage: &Passage, _: Answer) -> Permit {
        match passage.write.key.name() {
            "first-deployment" => Permit::Wait(Duration::from_secs(60)),
            _ => Permit::Allow,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_permit_holds_its_room_and_nobody_up_and_gives_it_back_when_denied() {
    let mut profiles = Profiles::default();
    let mut profile = (**profiles.get("default").unwrap()).clone();
    profile.enable(Point::Permit, "Slow");
    profiles.insert(profile);
    let plugins: Vec<Arc<dyn Extension>> = vec![Arc::new(Slow)];
    let setup = Setup { profiles, plugins, ..Setup::default() };
    let federation = Federation::start_on(Hub::open().await, setup).await;
    for (name, pods) in [("m1", 2), ("m2", 0), ("m3", 0)] {
        room(&federation.hub, name, pods).await;
    }
    for name in ["first", "second"] {
        policy(&federation.hub, name, by_room()).await;
    }
    let begun = Instant::now();
    federation.hub.deployment("first", 2).await;
    eventually("first is decided", SOON, || async {
        let line = r#"queue_depth{place="inFlight"} 1"#;
        federation.metrics().iter().any(|metric| metric.contains(line))
    })
    .await;
    federation.hub.deployment("second", 2).await;
    // first's permit delays no other binding; its capacity stays reserved while it may still be granted.
    federation.until(BINDING, "second-deployment", "/spec/decision/desired", json!(2)).await;
    assert!(begun.elapsed() < Duration::from_secs(50), "{:?}", begun.elapsed());
    assert_eq!(shares(&federation, "second").await, []);
    // first is denied after its minute, and second gets what it had reserved.
    until_shares(&federation, "second", &[("m1", 2)]).await;
    assert!(begun.elapsed() >= Duration::from_secs(60), "{:?}", begun.elapsed());
    assert_eq!(federation.hub.binding("first-deployment").await, Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_mistake_waits_for_an_edit_and_is_not_decided_over_and_over() {
    let federation = Federation::start().await;
    let bounds = |min| {
        let bounds = json!([{"targetCluster": {"clusterNames": ["m1"]}, "min": min}]);
        json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "bounds": bounds}})
    };
    policy(&federation.hub, "web", bounds(5)).await;
    federation.hub.deployment("web", 3).await;
    federation.until(BINDING, "web-deployment", "/spec/decision/outcome", json!("Invalid")).await;
    let avoided = federation.counters.avoided.get();
    // In paused time: ten minutes, in which a retry with backoff would run sixty times.
    tokio::time::sleep(Duration::from_secs(600)).await;
    let looks = federation.counters.avoided.get() - avoided;
    assert!(looks <= 3, "looked at {looks} times without an edit");
    policy(&federation.hub, "web", bounds(1)).await;
    until_shares(&federation, "web", &[("m1", 1), ("m2", 1), ("m3", 1)]).await;
}
