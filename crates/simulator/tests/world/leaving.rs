//! Members that workloads leave for good reasons: drains, unhealthy applications, and the way back, across controller
//! crashes.

use std::time::Duration;

use atoll_simulator::world::kinds::{
    CLUSTER, DEPLOYMENT, NODE, POD, PROPAGATION_POLICY, RESOURCE_BINDING,
};
use atoll_simulator::world::{Identities, View, World, condition, shares};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::scenario::{self, BINDING, LIMIT, NGINX};

const POLICY: &str = "default/nginx-propagation";

async fn world(seed: u64) -> World {
    let world = World::builder().seed(seed).identities(Identities::Known).build().await;
    scenario::first(&world).await;
    world
}

async fn until_trigger(world: &World, trigger: &str) -> Value {
    let holds = |binding: &Value| binding["spec"]["decision"]["trigger"] == trigger;
    world.until_object("hub", &RESOURCE_BINDING, BINDING, trigger, LIMIT, holds).await
}

/// Waits until a member has no pod of nginx, and the others have this many ready.
async fn until_left(world: &World, member: &str, replicas: i64) {
    let look = |view: &View| {
        let ready = view.ready(&DEPLOYMENT, NGINX);
        let left = !view.wanted(&DEPLOYMENT, NGINX).contains_key(member);
        let holds = left && ready.values().sum::<i64>() == replicas;
        holds.then_some(()).ok_or_else(|| format!("{ready:?} are ready"))
    };
    world.until(&format!("{member} is left"), LIMIT, look).await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_makes_before_it_breaks_and_goes_on_over_a_controllers_death() {
    let mut world = world(21).await;
    let enough = world.always("3 replicas stay ready", |view| {
        let ready = view.ready(&DEPLOYMENT, NGINX);
        (ready.values().sum::<i64>() >= 3).then_some(()).ok_or_else(|| format!("{ready:?}"))
    });
    let now = world.clock().now_seconds().to_string();
    let taints =
        json!([{"key": "cluster.atoll.dev/drain", "effect": "NoExecute", "timeAdded": now}]);
    world.hub().merge(&CLUSTER, "member1", json!({"spec": {"taints": taints}})).await;
    let moved = until_trigger(&world, "Failover").await;
    assert_eq!(shares(&moved), scenario::counts(&[("member2", 3)]));
    assert_eq!(moved["spec"]["gracefulEvictionTasks"][0]["keep"], true);
    world.crash_controller().await;
    world.rest(Duration::from_secs(20)).await;
    world.start_controller();
    until_left(&world, "member1", 3).await;
    let emptied = |cluster: &Value| condition(cluster, "Emptied") == "True";
    world.until_object("hub", &CLUSTER, "member1", "it says so", LIMIT, emptied).await;
    world.until_settled(LIMIT).await;
    world.lift(enough);
    assert_eq!(world.triggers(BINDING).await, ["First", "Failover", "EvictionDone"]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_sick_application_moves_by_a_clock_that_a_controllers_death_does_not_set_back() {
    let mut world = world(22).await;
    let rules = json!({"application": {"decisionConditions": {"tolerationSeconds": 120}}});
    world.hub().merge(&PROPAGATION_POLICY, POLICY, json!({"spec": {"failover": rules}})).await;
    // No node accepts its pods on member1 any more.
    let nodes: Vec<String> =
        world.read(|view| view.all("member1", &NODE).map(|(name, _)| name.clone()).collect());
    for node in nodes {
        let patch = json!({"spec": {"unschedulable": true}});
        world.member("member1").merge(&NODE, &node, patch).await;
    }
    let pods: Vec<String> = world.read(|view| {
        let all = view.all("member1", &POD);
        let ours = all.filter(|(_, pod)| pod["metadata"]["labels"]["app"] == "nginx");
        ours.map(|(name, _)| name.clone()).collect()
    });
    assert_eq!(pods.len(), 2);
    for pod in pods {
        world.member("member1").delete(&POD, &pod).await;
    }
    let since = |binding: &Value| -> Option<Timestamp> {
        let items = binding["status"]["aggregatedStatus"].as_array()?;
        let item = items.iter().find(|item| item["clusterName"] == "member1")?;
        item["unhealthySince"].as_str()?.parse().ok()
    };
    let what = "it is said to be unhealthy";
    let sick = |binding: &Value| since(binding).is_some();
    let binding = world.until_object("hub", &RESOURCE_BINDING, BINDING, what, LIMIT, sick).await;
    let began = since(&binding).unwrap();
    world.rest(Duration::from_secs(60)).await;
    world.crash_controller().await;
    world.rest(Duration::from_secs(20)).await;
    world.start_controller();
    let moved = until_trigger(&world, "ApplicationFailure").await;
    assert_eq!(shares(&moved), scenario::counts(&[("member2", 3)]));
    let at: Timestamp = moved["spec"]["decision"]["at"].as_str().unwrap().parse().unwrap();
    let took = at.duration_since(began).as_secs();
    assert!((120..150).contains(&took), "{took} s");
    until_left(&world, "member1", 3).await;
    world.until_settled(LIMIT).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_member_that_comes_and_goes_does_not_bounce_work() {
    let mut world = world(23).await;
    let placement = json!({
        "clusterAffinity": null,
        "clusterAffinities": [
            {"affinityName": "first", "clusterNames": ["member1"]},
            {"affinityName": "second", "clusterNames": ["member2"]},
        ],
        "replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": null,
        },
        "rescheduleOn": ["PolicyChange", "ReplicasChange", "ClusterFailure", "Recovery"],
    });
    world.hub().merge(&PROPAGATION_POLICY, POLICY, json!({"spec": {"placement": placement}})).await;
    until_left(&world, "member2", 3).await;
    world.until_settled(LIMIT).await;
    let moves = async |world: &World| {
        let all = world.triggers(BINDING).await;
        let count = |trigger: &str| all.iter().filter(|made| made.as_str() == trigger).count();
        (count("Failover"), count("Recover"))
    };
    world.stop_member("member1").await;
    until_trigger(&world, "Failover").await;
    for _ in 0..3 {
        // Back for four minutes, and lost while work moves.
        world.start_member("member1").await;
        world.rest(Duration::from_secs(240)).await;
        world.stop_member("member1").await;
        world.rest(Duration::from_secs(360)).await;
    }
    assert_eq!(moves(&world).await, (1, 0), "work bounced");
    world.start_member("member1").await;
    let ready = |cluster: &Value| condition(cluster, "Ready") == "True";
    let what = "it is back";
    let cluster = world.until_object("hub", &CLUSTER, "member1", what, LIMIT, ready).await;
    let conditions = cluster["status"]["conditions"].as_array().unwrap();
    let ready = conditions.iter().find(|c| c["type"] == "Ready").unwrap();
    let since: Timestamp = ready["lastTransitionTime"].as_str().unwrap().parse().unwrap();
    let back = until_trigger(&world, "Recover").await;
    assert_eq!(shares(&back), scenario::counts(&[("member1", 3)]));
    let at: Timestamp = back["spec"]["decision"]["at"].as_str().unwrap().parse().unwrap();
    let waited = at.duration_since(since).as_secs();
    assert!((300..330).contains(&waited), "{waited} s");
    until_left(&world, "member2", 3).await;
    world.until_settled(LIMIT).await;
    world.end().await;
}
