//! A member that returns after most of what it ran has failed over.

use std::time::Duration;

use atoll_simulator::world::kinds::{CLUSTER, DEPLOYMENT};
use atoll_simulator::world::{Identities, View, World, condition};
use serde_json::json;

use crate::scenario::LIMIT;

/// More than the limit on mass removals allows in one window: 100 objects, or 30 % of the member's.
const WORKLOADS: usize = 200;

/// Our Deployments on a member.
fn held(view: &View, member: &str) -> usize {
    view.managed(member).filter(|(kind, ..)| **kind == DEPLOYMENT).count()
}

/// Waits until member1 and the other members hold these numbers.
async fn until_held(world: &World, what: &str, limit: Duration, on_first: usize, elsewhere: usize) {
    let look = |view: &View| {
        let (first, second) = (held(view, "member1"), held(view, "member2"));
        let holds = (first, second) == (on_first, elsewhere);
        holds.then_some(()).ok_or_else(|| format!("{first} on member1, {second} on member2"))
    };
    world.until(what, limit, look).await;
}

#[tokio::test(start_paused = true)]
async fn a_returning_member_gives_up_everything_that_failed_over_also_to_the_next_leader() {
    let mut world =
        World::builder().seed(31).members(2).identities(Identities::Known).build().await;
    let policy = json!({
        "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "first"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
            "placement": {
                "clusterAffinities": [
                    {"affinityName": "first", "clusterNames": ["member1"]},
                    {"affinityName": "second", "clusterNames": ["member2"]},
                ],
                "replicaScheduling": {"replicaSchedulingType": "Divided"},
            },
        },
    });
    world.hub().apply(policy).await;
    for number in 0..WORKLOADS {
        let name = format!("web-{number:03}");
        world
            .hub()
            .apply(json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
                "spec": {
                    "replicas": 1, "selector": {"matchLabels": {"app": name}},
                    "template": {
                        "metadata": {"labels": {"app": name}},
                        "spec": {"containers": [{"name": "web", "image": "nginx"}]},
                    },
                },
            }))
            .await;
    }
    until_held(&world, "all run on member1", LIMIT, WORKLOADS, 0).await;
    world.stop_member("member1").await;
    until_held(&world, "all failed over", LIMIT, WORKLOADS, WORKLOADS).await;
    world.crash_controller().await;
    world.start_controller();
    let never_held = world.always("no removal is held back", |view| {
        let held = condition(view.hub(&CLUSTER, "member1"), "PruneHeld");
        (held != "True").then_some(()).ok_or_else(|| "removals are held back".to_owned())
    });
    world.start_member("member1").await;
    let minute = Duration::from_secs(60);
    until_held(&world, "the old copies are gone", minute, 0, WORKLOADS).await;
    world.until_settled(LIMIT).await;
    world.lift(never_held);
    world.end().await;
}
