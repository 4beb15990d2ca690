//! Histories with a ChangeGuard: people edit policies and approve plans while anything can fail and leaders change. Nothing
//! moves beyond the guard without an approval (I14), failover goes on, and what was approved is decided in the end. More
//! of them: `cargo xtask world --guarded`.

use std::time::Duration;

use atoll_simulator::world::kinds::{CHANGE_GUARD, CLUSTER, DEPLOYMENT, RESOURCE_BINDING};
use atoll_simulator::world::soak::{Fault, Step, guarded, play};
use atoll_simulator::world::{Identities, View, World, shares};
use serde_json::{Value, json};

use crate::scenario::LIMIT;

fn seeds(from: u64, to: u64) {
    for seed in from..to {
        let script = guarded(seed, &Fault::ALL);
        if let Err(error) = play(seed, &script) {
            let lines: String = script.iter().map(|step: &Step| format!("  {step}\n")).collect();
            panic!(
                "seed {seed}: {error}\n{lines}narrow it down: cargo xtask world --guarded --from {seed} --seeds 1"
            );
        }
    }
}

#[test]
fn seeds_0_to_24_move_nothing_beyond_the_guard() {
    seeds(0, 25);
}

#[test]
fn seeds_25_to_49_move_nothing_beyond_the_guard() {
    seeds(25, 50);
}

fn place(clusters: &[&str]) -> Value {
    json!({
        "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy", "metadata": {"name": "all"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
            "placement": {
                "clusterAffinity": {"clusterNames": clusters},
                "replicaScheduling": {"replicaSchedulingType": "Divided"},
            },
        },
    })
}

async fn until_all_on(world: &World, what: &str, names: &[&str]) {
    let look = |view: &View| {
        for (key, binding) in view.all("hub", &RESOURCE_BINDING) {
            let on: Vec<String> = shares(binding).into_keys().collect();
            if on != names {
                return Err(format!("{key} is on {on:?}"));
            }
        }
        Ok(())
    };
    world.until(what, LIMIT, look).await;
}

/// A leader dies while it holds a plan, the next one while it carries it out; and a member fails while a plan waits.
#[tokio::test(start_paused = true)]
async fn a_plan_outlives_leaders_and_a_failover_does_not_wait_for_it() {
    let mut world =
        World::builder().seed(33).members(3).identities(Identities::Known).build().await;
    let guard = json!({
        "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "ChangeGuard", "metadata": {"name": "guard"},
        "spec": {"maxMovedReplicas": 7, "window": "24h"},
    });
    world.hub().apply(guard).await;
    world.hub().apply(place(&["member1"])).await;
    for number in 0..10 {
        let name = format!("web{number}");
        let template = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {
                "replicas": 2, "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{"name": "web", "image": "nginx"}]},
                },
            },
        });
        world.hub().apply(template).await;
    }
    world.until_settled(LIMIT).await;
    world.hub().apply(place(&["member2", "member3"])).await;
    let held = |view: &View| {
        let held = &view.hub(&CHANGE_GUARD, "guard")["status"]["held"];
        let whole = held[0]["workloads"] == 10 && held[0]["replicas"] == 20 && held[1].is_null();
        let plan = held[0]["plan"].as_str().filter(|_| whole).map(str::to_owned);
        plan.ok_or_else(|| format!("held is {held}"))
    };
    let plan = world.until("all of it is held", LIMIT, held).await;
    let stays = world.always("nothing of it leaks", |view| {
        let mut rows = view.all("hub", &RESOURCE_BINDING);
        match rows.find(|(_, row)| shares(row).keys().any(|name| name != "member1")) {
            Some((key, _)) => Err(format!("{key} left")),
            None => Ok(()),
        }
    });
    world.crash_controller().await;
    world.start_controller();
    world.rest(Duration::from_secs(60)).await;
    assert_eq!(world.until("the next leader holds the same", LIMIT, held).await, plan);
    world.lift(stays);
    world.approve(&plan).await;
    let half = |view: &View| {
        let moved = view.all("hub", &RESOURCE_BINDING);
        let moved = moved.filter(|(_, row)| !shares(row).contains_key("member1")).count();
        (moved >= 3).then_some(()).ok_or_else(|| format!("{moved} moved"))
    };
    world.until("some of it moved", LIMIT, half).await;
    world.crash_controller().await;
    world.start_controller();
    until_all_on(&world, "the third leader carries it out", &["member2", "member3"]).await;
    world.until_settled(LIMIT).await;
    // The next plan waits, and the member that it leaves fails.
    world.hub().apply(place(&["member1", "member2"])).await;
    world
        .until("the next plan is held", LIMIT, |view: &View| {
            let held = &view.hub(&CHANGE_GUARD, "guard")["status"]["heldWorkloads"];
            (*held == 10).then_some(()).ok_or_else(|| format!("held are {held}"))
        })
        .await;
    let taint = json!({"spec": {"taints": [{"key": "broken", "effect": "NoExecute"}]}});
    world.hub().merge(&CLUSTER, "member3", taint).await;
    until_all_on(&world, "what was there is on member2", &["member2"]).await;
    let running = |view: &View| {
        let on = view.managed("member1").filter(|(kind, ..)| **kind == DEPLOYMENT).count();
        (on == 0).then_some(()).ok_or_else(|| format!("{on} on member1"))
    };
    world.until("the old placement decides", LIMIT, running).await;
    world.end().await;
}
