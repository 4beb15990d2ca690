//! Preemption with crashes: the controller dies at each of its writes while a workload of high priority takes the room of
//! a low one, and random histories of priorities and sizes. The invariants of preemption are checked at every event
//! (`world/invariants.rs`).

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_controller::schedule::{Profiles, SchedulerConfiguration};
use atoll_simulator::world::kinds::{DEPLOYMENT, RESOURCE_BINDING};
use atoll_simulator::world::{Fuse, Identities, View, Who, World, shares, simulate};
use serde_json::{Value, json};

use crate::scenario::{LIMIT, counts};

/// How long a crashed process stays down.
const AWAY: Duration = Duration::from_secs(3);
/// More writes than a run has.
const MOST: u32 = 60;
/// CPU of a replica: two fit on each of a member's three nodes.
const CPU: &str = "4";
/// Replicas that fit on a member.
const ROOM: i64 = 6;
/// Random histories, and their steps.
const HISTORIES: u64 = 8;
const STEPS: usize = 10;

fn profiles() -> Profiles {
    let text = "apiVersion: config.atoll.dev/v1alpha1\nkind: SchedulerConfiguration\nprofiles:\n\
                - schedulerName: default\n  plugins: {postFilter: {enabled: [{name: Preemption}]}}\n";
    Profiles::read(&SchedulerConfiguration::read(text).unwrap()).unwrap()
}

/// Workloads w0 to w3 have priority 0 to 3.
async fn world(seed: u64) -> World {
    let builder = World::builder().seed(seed).members(2).identities(Identities::Known);
    let world = builder.profiles(profiles()).build().await;
    for priority in 0..4 {
        let name = format!("w{priority}");
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": format!("p{priority}")}, "value": priority});
        world.hub().apply(class).await;
        let policy = json!({"apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": name, "namespace": "default"}, "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": name}],
            "placement": {"replicaScheduling": {
                "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}},
            "schedulePriority": {
                "priorityClassSource": "KubePriorityClass", "priorityClassName": format!("p{priority}")},
        }});
        world.hub().apply(policy).await;
    }
    world
}

async fn scale(world: &World, priority: i64, replicas: i64) {
    let name = format!("w{priority}");
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "main", "image": "main:1",
                "resources": {"requests": {"cpu": CPU}}}]}}}});
    world.hub().apply(deployment).await;
}

fn binding(view: &View, priority: i64) -> Value {
    view.hub(&RESOURCE_BINDING, &format!("default/w{priority}-deployment")).clone()
}

/// Replicas that all decisions place on each member.
fn placed(view: &View) -> BTreeMap<String, i64> {
    let mut placed = BTreeMap::new();
    for (_, binding) in view.all("hub", &RESOURCE_BINDING) {
        for (name, replicas) in shares(binding) {
            *placed.entry(name).or_insert(0) += replicas;
        }
    }
    placed
}

/// Every victim has given what was taken, no member has more than fits, and everything placed runs.
fn given(view: &View) -> Result<(), String> {
    for (key, binding) in view.all("hub", &RESOURCE_BINDING) {
        for entry in binding["spec"]["preempts"].as_array().into_iter().flatten() {
            let victim = format!("default/{}", entry["name"].as_str().unwrap());
            let victim = view.hub(&RESOURCE_BINDING, &victim);
            let followed = victim["spec"]["preemptedBy"].as_array().into_iter().flatten();
            let held = shares(victim).get(entry["cluster"].as_str().unwrap()).copied().unwrap_or(0);
            if held > entry["remaining"].as_i64().unwrap()
                && !followed.into_iter().any(|id| *id == entry["decision"])
            {
                return Err(format!("{key}: {entry} is open"));
            }
        }
    }
    let placed = placed(view);
    if let Some((name, over)) = placed.iter().find(|(_, placed)| **placed > ROOM) {
        return Err(format!("{over} replicas are placed on {name}"));
    }
    for priority in 0..4 {
        let wanted = shares(&binding(view, priority));
        let wanted = wanted.into_iter().filter(|(_, n)| *n > 0).collect::<BTreeMap<_, _>>();
        let mut ready = view.ready(&DEPLOYMENT, &format!("default/w{priority}"));
        ready.retain(|_, n| *n > 0);
        if ready != wanted {
            return Err(format!("w{priority}: {ready:?} of {wanted:?} are ready"));
        }
    }
    Ok(())
}

/// Both members are full, and everything placed runs.
fn full(view: &View) -> Result<(), String> {
    match placed(view) == counts(&[("member1", ROOM), ("member2", ROOM)]) {
        true => given(view),
        false => Err(format!("{:?} are placed", placed(view))),
    }
}

#[test]
fn a_controller_that_dies_at_any_write_preempts_exactly_once() {
    for after in [false, true] {
        for nth in 1..=MOST {
            let died = simulate(async {
                let mut world = world(31).await;
                scale(&world, 0, 2 * ROOM).await;
                world.until("the room is full", LIMIT, full).await;
                let who = Who::Controller(1);
                world.lay(&who, Some(Fuse { site: None, nth, after }));
                scale(&world, 3, 4).await;
                let died = tokio::time::timeout(Duration::from_secs(60), world.death()).await;
                if died.is_ok() {
                    world.crash_controller_at(1).await;
                    world.rest(AWAY).await;
                    world.start_controller_at(1);
                }
                let what = "four replicas changed hands";
                let done = |view: &View| {
                    let placed = |priority| shares(&binding(view, priority)).values().sum::<i64>();
                    let found = (placed(0), placed(3));
                    (found == (2 * ROOM - 4, 4))
                        .then_some(())
                        .ok_or_else(|| format!("{found:?}"))?;
                    given(view)
                };
                world.until(what, LIMIT, done).await;
                world.check_history().await;
                let triggers = world.triggers("default/w0-deployment").await;
                let preempted = triggers.iter().filter(|trigger| *trigger == "Preempted");
                assert_eq!(preempted.count(), 1, "{triggers:?}");
                world.end().await;
                died.is_ok()
            });
            if !died {
                assert!(nth > 3, "a run has more than {nth} writes");
                break;
            }
        }
    }
}

/// Pseudo-random numbers below a limit.
fn below(state: &mut u64, limit: u64) -> i64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    ((*state >> 33) % limit).cast_signed()
}

#[test]
fn random_priorities_and_crashes_give_no_room_twice() {
    for seed in 0..HISTORIES {
        simulate(async {
            let mut dice = seed;
            let mut world = world(seed).await;
            for _ in 0..STEPS {
                scale(&world, below(&mut dice, 4), below(&mut dice, 11)).await;
                if below(&mut dice, 2) == 0 {
                    let nth = 1 + u32::try_from(below(&mut dice, 4)).unwrap();
                    let after = below(&mut dice, 2) == 0;
                    world.lay(&Who::Controller(1), Some(Fuse { site: None, nth, after }));
                    let died = tokio::time::timeout(AWAY, world.death()).await.is_ok();
                    if died {
                        world.crash_controller_at(1).await;
                        world.rest(AWAY).await;
                        world.start_controller_at(1);
                    } else {
                        world.lay(&Who::Controller(1), None);
                    }
                }
            }
            world.until(&format!("seed {seed}: everything is given"), LIMIT, given).await;
            world.check_history().await;
            world.end().await;
        });
    }
}

#[test]
fn high_priority_takes_the_room_of_low_priority() {
    simulate(async {
        let world = world(32).await;
        scale(&world, 1, 2 * ROOM).await;
        world.until("the room is full", LIMIT, full).await;
        scale(&world, 0, 3).await;
        scale(&world, 2, 6).await;
        let done = |view: &View| {
            let placed = |priority| shares(&binding(view, priority)).values().sum::<i64>();
            let found = (placed(0), placed(1), placed(2));
            (found == (0, 6, 6)).then_some(()).ok_or_else(|| format!("{found:?}"))?;
            given(view)
        };
        world.until("the higher one runs", LIMIT, done).await;
        world.end().await;
    });
}
