//! Bugs that other federations had, as scenarios of a whole federation. Those that a mutant brings back are in
//! `controller/src/engine/tests/corpus.rs`.

use std::time::Duration;

use atoll_simulator::world::kinds::{CLUSTER, DEPLOYMENT, RESOURCE_BINDING};
use atoll_simulator::world::{Identities, View, Who, World, condition, shares};
use serde_json::{Value, json};

use crate::scenario::{self, BINDING, LIMIT, NGINX, until_rolled_out};

const OWN: &str = "example.com/maintenance";

fn taints(cluster: &Value) -> Vec<String> {
    let taints = cluster["spec"]["taints"].as_array().into_iter().flatten();
    taints.map(|taint| taint["key"].as_str().unwrap().to_owned()).collect()
}

async fn world(seed: u64) -> World {
    World::builder().seed(seed).identities(Identities::Known).build().await
}

/// Karmada #7348: of two writers of taints one lost the other's.
#[tokio::test(start_paused = true)]
async fn a_users_taint_lives_beside_those_of_health_whoever_writes_when() {
    for moment in [14_800, 15_000, 15_200] {
        let mut world = world(51).await;
        world.cut_member("member2");
        // Around the moment at which the member is judged lost and its taint is written.
        world.rest(Duration::from_millis(moment)).await;
        let own = json!([{"key": OWN, "effect": "NoSchedule"}]);
        let cluster = world.hub().get(&CLUSTER, "member2").await;
        let mut all = cluster["spec"]["taints"].as_array().cloned().unwrap_or_default();
        all.extend(own.as_array().cloned().unwrap());
        world.hub().merge(&CLUSTER, "member2", json!({"spec": {"taints": all}})).await;
        let both = |cluster: &Value| {
            let taints = taints(cluster);
            taints.iter().any(|key| key == OWN)
                && taints.iter().any(|key| key == "cluster.atoll.dev/unreachable")
        };
        world.until_object("hub", &CLUSTER, "member2", "both taints", LIMIT, both).await;
        world.start_member("member2").await;
        let own = |cluster: &Value| taints(cluster) == [OWN];
        world.until_object("hub", &CLUSTER, "member2", "the user's taint alone", LIMIT, own).await;
        world.end().await;
    }
}

/// Karmada 1.17: a scale down was divided over clusters that were not the workload's any more.
#[tokio::test(start_paused = true)]
async fn a_scale_down_counts_only_clusters_of_today() {
    let world = world(52).await;
    scenario::first(&world).await;
    scenario::scale(&world).await;
    scenario::third_member(&world).await;
    // At one time member3 leaves the policy and the workload shrinks.
    scenario::apply(&world, scenario::FIRST).await;
    world.hub().merge(&DEPLOYMENT, NGINX, json!({"spec": {"replicas": 4}})).await;
    let right = |binding: &Value| {
        let shares = shares(binding);
        !shares.contains_key("member3") && shares.values().sum::<i64>() == 4
    };
    world.until_object("hub", &RESOURCE_BINDING, BINDING, "4 on two", LIMIT, right).await;
    until_rolled_out(&world, 4).await;
    world.until_settled(LIMIT).await;
    world.end().await;
}

/// Karmada #7426: credentials that failed in passing made a member not ready, and its workloads moved.
#[tokio::test(start_paused = true)]
async fn an_api_that_fails_in_passing_moves_nobody() {
    let world = world(53).await;
    scenario::first(&world).await;
    let before = world.decided();
    let steady = world.always("member1 stays Ready", |view: &View| {
        let ready = condition(view.hub(&CLUSTER, "member1"), "Ready").to_owned();
        (ready == "True").then_some(()).ok_or(ready)
    });
    let agent = Who::Agent("member1".to_owned());
    for _ in 0..3 {
        world.hold(&agent, true);
        world.rest(Duration::from_secs(8)).await;
        world.hold(&agent, false);
        world.rest(Duration::from_secs(30)).await;
    }
    world.lift(steady);
    assert_eq!(world.decided(), before, "somebody moved");
    world.end().await;
}
