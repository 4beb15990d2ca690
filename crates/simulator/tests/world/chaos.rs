//! Random histories: users make changes while members and controllers come and go. The invariants hold at every event,
//! and after the last fault everything runs where it should.

use std::time::Duration;

use atoll_controller::members::HealthTimes;
use atoll_simulator::random::Random;
use atoll_simulator::world::kinds::{DEPLOYMENT, RESOURCE_BINDING};
use atoll_simulator::world::{Identities, View, World, shares, simulate};
use serde_json::{Value, json};

use crate::scenario::{BINDING, LIMIT, NGINX, apply};

/// Seeds of a normal run; 8 and 9 once found workloads that never became ready. `ATOLL_SEEDS=from..to` runs others, for
/// example nightly.
const SEEDS: std::ops::Range<u64> = 0..12;
/// Actions of one history.
const STEPS: usize = 10;
const MEMBERS: u64 = 3;

fn member(random: &mut Random) -> String {
    format!("member{}", 1 + random.below(MEMBERS))
}

/// As in `atoll up`: failover within seconds.
fn health() -> HealthTimes {
    let seconds = Duration::from_secs;
    HealthTimes {
        heartbeat: seconds(1),
        silent_after: seconds(4),
        settle: seconds(2),
        failover_after: seconds(6),
        leader_grace: seconds(5),
        suspicion_window: seconds(10),
        ..HealthTimes::default()
    }
}

/// Weights 0 to 3 over all members; 0 leaves a member out, and at least one stays in.
fn policy(random: &mut Random) -> Value {
    let mut weights: Vec<(String, u64)> =
        (1..=MEMBERS).map(|number| (format!("member{number}"), random.below(4))).collect();
    weights.retain(|(_, weight)| *weight > 0);
    if weights.is_empty() {
        weights.push((member(random), 1));
    }
    let names: Vec<&String> = weights.iter().map(|(name, _)| name).collect();
    let list = weights
        .iter()
        .map(|(name, weight)| json!({"targetCluster": {"clusterNames": [name]}, "weight": weight}));
    json!({
        "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "nginx-propagation"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "nginx"}],
            "placement": {
                "clusterAffinity": {"clusterNames": names},
                "replicaScheduling": {
                    "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                    "weightPreference": {"staticWeightList": list.collect::<Vec<_>>()},
                },
            },
        },
    })
}

async fn step(world: &mut World, random: &mut Random) -> String {
    let what = match random.below(8) {
        0 | 1 => {
            let replicas = random.below(13);
            world.hub().merge(&DEPLOYMENT, NGINX, json!({"spec": {"replicas": replicas}})).await;
            format!("scale to {replicas}")
        }
        2 => {
            let policy = policy(random);
            let text =
                policy["spec"]["placement"]["replicaScheduling"]["weightPreference"].to_string();
            world.hub().apply(policy).await;
            format!("policy {text}")
        }
        3 => {
            let name = member(random);
            world.stop_member(&name).await;
            format!("stop {name}")
        }
        4 => {
            let name = member(random);
            world.cut_member(&name);
            format!("cut {name}")
        }
        5 => {
            let name = member(random);
            world.start_member(&name).await;
            format!("start {name}")
        }
        6 => {
            let image = format!("nginx:{}", random.below(1000));
            let containers = json!([{"name": "nginx", "image": image}]);
            let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
            world.hub().merge(&DEPLOYMENT, NGINX, patch).await;
            image
        }
        _ => {
            world.crash_controller().await;
            world.start_controller();
            "another controller".to_owned()
        }
    };
    let span = Duration::from_millis(random.below(4) * random.below(8_000));
    world.rest(span).await;
    format!("{what}, then {span:?}")
}

async fn history(seed: u64) {
    let mut random = Random(seed);
    let builder = World::builder().seed(seed).members(MEMBERS).identities(Identities::Known);
    let mut world = builder.health(health()).build().await;
    apply(&world, include_str!("../../../../examples/01-nginx.yaml")).await;
    for number in 0..STEPS {
        let what = step(&mut world, &mut random).await;
        eprintln!("seed {seed}, step {number}: {what}");
    }
    for number in 1..=MEMBERS {
        world.start_member(&format!("member{number}")).await;
    }
    let settled = |view: &View| {
        let binding = view.hub(&RESOURCE_BINDING, BINDING);
        let template = view.hub(&DEPLOYMENT, NGINX);
        let desired = template["spec"]["replicas"].as_i64().unwrap();
        let decided: i64 = shares(binding).values().sum();
        let ready: i64 = view.ready(&DEPLOYMENT, NGINX).values().sum();
        let shown = template["status"]["readyReplicas"].as_i64().unwrap_or(0);
        let observed =
            template["status"]["observedGeneration"] == template["metadata"]["generation"];
        let holds = [decided, ready, shown].iter().all(|count| *count == desired) && observed;
        holds.then_some(()).ok_or_else(|| {
            format!("{desired} wanted, {decided} decided, {ready} ready, {shown} shown")
        })
    };
    world.until("observed is desired", LIMIT, settled).await;
    world.until_settled(LIMIT).await;
    // And it stays so.
    world.rest(Duration::from_secs(120)).await;
    world.until("still", Duration::ZERO, settled).await;
    world.until_settled(Duration::ZERO).await;
    world.end().await;
}

/// Regression: a member whose stream survived a cut of some seconds was back, but its reports still counted as stale:
/// nothing moved back to it, and its replicas were shown as unknown.
#[test]
fn a_member_that_returns_on_a_stream_that_lived_is_certain_again() {
    simulate(history(68));
}

/// Regression: a workload that was scaled down while no cluster fitted kept more replicas than requested.
#[test]
fn scaling_down_is_followed_while_no_cluster_fits() {
    for seed in [65, 95] {
        simulate(history(seed));
    }
}

#[test]
fn after_the_last_fault_observed_becomes_desired_and_stays() {
    let seeds = match std::env::var("ATOLL_SEEDS") {
        Ok(text) => {
            let (from, to) = text.split_once("..").expect("ATOLL_SEEDS is from..to");
            from.parse().unwrap()..to.parse().unwrap()
        }
        Err(_) => SEEDS,
    };
    for seed in seeds {
        eprintln!("seed {seed}");
        simulate(history(seed));
    }
}
