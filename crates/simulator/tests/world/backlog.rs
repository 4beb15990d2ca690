//! Much data over a slow network: heartbeats do not queue behind it, so no member is declared lost.

use std::time::Duration;

use atoll_simulator::world::kinds::{CLUSTER, CONFIG_MAP, DEPLOYMENT};
use atoll_simulator::world::{Identities, RuleId, View, World, condition};
use serde_json::json;

use crate::etcd;

/// 40 KiB/s.
const ROAD: (usize, Duration) = (4096, Duration::from_millis(100));
/// Far longer than a member may be silent.
const LONG: Duration = Duration::from_secs(45);
/// Longest time for a backlog to drain.
const LIMIT: Duration = Duration::from_secs(600);

fn member1_stays_ready(world: &World) -> RuleId {
    world.always("member1 stays Ready", |view: &View| {
        let ready = condition(view.hub(&CLUSTER, "member1"), "Ready").to_owned();
        (ready == "True").then_some(()).ok_or(ready)
    })
}

/// 4 MB for a member, which takes minutes; the controller's messages queue, the agent's do not.
#[tokio::test(start_paused = true)]
async fn a_member_with_a_large_backlog_is_not_taken_for_lost() {
    const COUNT: usize = 20;
    let mut world = World::builder().seed(81).identities(Identities::Known).build().await;
    world.slow_network("member1", Some(ROAD));
    let ready = member1_stays_ready(&world);
    world
        .hub()
        .apply(json!({
            "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"name": "bulk"},
            "spec": {"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}]},
        }))
        .await;
    let began = world.clock().now();
    for number in 0..COUNT {
        world
            .hub()
            .apply(json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("bulk{number}")},
                "data": {"text": "x".repeat(200 * 1024)},
            }))
            .await;
    }
    let all = |view: &View| {
        let held = |number: &usize| {
            let key = format!("default/bulk{number}");
            !view.on("member1", &CONFIG_MAP, &key).is_null()
        };
        let count = (0..COUNT).filter(held).count();
        (count == COUNT).then_some(()).ok_or_else(|| format!("{count} of {COUNT} there"))
    };
    world.until("all of it is there", LIMIT, all).await;
    let took = Duration::try_from(world.clock().now().duration_since(began)).unwrap();
    assert!(took > LONG, "the road carried all of it within {took:?}");
    world.until_settled(LIMIT).await;
    world.lift(ready);
    world.end().await;
}

/// A new leader requests a member's whole inventory and status; the agent's messages queue.
#[tokio::test(start_paused = true)]
async fn a_member_that_has_much_to_tell_is_not_taken_for_lost() {
    const COUNT: u64 = 30;
    let mut world = World::builder().seed(82).identities(Identities::Known).build().await;
    etcd::many(&world, COUNT).await;
    world.slow_network("member1", Some((256, Duration::from_millis(200))));
    world.crash_controller().await;
    world.start_controller();
    let ready = member1_stays_ready(&world);
    // Meanwhile everything changes, which doubles the data to report.
    for number in 0..COUNT {
        let key = format!("default/many{number}");
        world.hub().merge(&DEPLOYMENT, &key, json!({"spec": {"replicas": 6}})).await;
    }
    world.rest(LONG).await;
    world.slow_network("member1", None);
    etcd::until_all(&world, COUNT, 6).await;
    world.lift(ready);
    world.end().await;
}
