//! Controllers that die and networks that break, at moments that hurt.

use std::time::Duration;

use atoll_simulator::world::kinds::{DEPLOYMENT, RESOURCE_BINDING};
use atoll_simulator::world::{Actor, Identities, View, World, Write, shares};
use serde_json::{Value, json};

use crate::scenario::{self, BINDING, LIMIT, NGINX, until_rolled_out};

fn by_controller(write: &Write) -> bool {
    write.actor == Actor::Controller && write.resource != "leases"
}

/// After each of the first writes of a scaling the controller dies, and what is under way with it.
#[tokio::test(start_paused = true)]
async fn a_controller_that_dies_between_any_two_writes_is_followed_by_one_that_goes_on() {
    for writes in 0..5 {
        let mut world = World::builder().seed(writes).identities(Identities::Known).build().await;
        scenario::first(&world).await;
        let mark = world.mark();
        world.hub().merge(&DEPLOYMENT, NGINX, json!({"spec": {"replicas": 9}})).await;
        world
            .until(&format!("{writes} writes"), LIMIT, |_| {
                let made = world.writes(mark, by_controller).len() as u64;
                (made >= writes).then_some(()).ok_or_else(|| format!("{made} writes"))
            })
            .await;
        world.crash_controller().await;
        world.rest(Duration::from_secs(20)).await;
        world.start_controller();
        until_rolled_out(&world, 9).await;
        world.until_settled(LIMIT).await;
        assert_eq!(
            world.read(|view| view.ready(&DEPLOYMENT, NGINX)),
            scenario::counts(&[("member1", 6), ("member2", 3)])
        );
        assert_eq!(world.triggers(BINDING).await, ["First", "Scale"], "after {writes} writes");
        world.end().await;
    }
}

/// A partition is not a death: what runs behind it goes on, and leaves when the network is back.
#[tokio::test(start_paused = true)]
async fn a_member_behind_a_partition_goes_on_and_gives_up_its_copy_afterwards() {
    let mut world = World::builder().seed(5).build().await;
    scenario::first(&world).await;
    scenario::scale(&world).await;
    scenario::third_member(&world).await;
    world.cut_member("member1");
    let moved = |binding: &Value| {
        binding["spec"]["decision"]["trigger"] == "Failover"
            && !shares(binding).contains_key("member1")
    };
    let what = "the share moves";
    world.until_object("hub", &RESOURCE_BINDING, BINDING, what, LIMIT, moved).await;
    until_rolled_out(&world, 9).await;
    let behind = world.read(|view| view.ready(&DEPLOYMENT, NGINX)["member1"]);
    assert_eq!(behind, 5, "nobody could tell the member to stop");
    // A controller that starts now knows of the copy behind the partition from the binding alone.
    world.stop_controller().await;
    world.start_controller();
    world.rest(Duration::from_secs(60)).await;
    world.start_member("member1").await;
    let nine = |view: &View| {
        let ready = view.ready(&DEPLOYMENT, NGINX);
        let holds = !ready.contains_key("member1") && ready.values().sum::<i64>() == 9;
        holds.then_some(()).ok_or_else(|| format!("{ready:?}"))
    };
    world.until("the old copy goes", LIMIT, nine).await;
    world.until_settled(LIMIT).await;
    world.end().await;
}
