//! Several controllers: one writes, and the others wait as followers.

use std::time::Duration;

use atoll_simulator::world::kinds::{CLUSTER, DEPLOYMENT, RESOURCE_BINDING};
use atoll_simulator::world::{Actor, Identities, View, Who, World, Write, shares};
use serde_json::{Value, json};

use crate::scenario::{self, BINDING, LIMIT, NGINX, until_rolled_out};

async fn three(seed: u64) -> World {
    World::builder().seed(seed).controllers(3).identities(Identities::Known).build().await
}

fn leader(world: &World) -> u32 {
    let leaders = world.leaders();
    assert_eq!(leaders.len(), 1, "{leaders:?} lead");
    leaders[0]
}

#[tokio::test(start_paused = true)]
async fn followers_write_nothing_and_agents_find_the_leader_behind_one_address() {
    let world = three(31).await;
    let leader = leader(&world);
    let mark = world.mark();
    scenario::first(&world).await;
    scenario::scale(&world).await;
    scenario::third_member(&world).await;
    let by = |counts: &dyn Fn(u32) -> bool| {
        world.writes(mark, |write: &Write| {
            write.actor == Actor::Controller && counts(write.controller)
        })
    };
    assert!(by(&|number| number == leader).len() > 8);
    let others = by(&|number| number != leader);
    assert!(others.is_empty(), "followers wrote: {others:?}");
    world.end().await;
}

/// The leader's traffic to the hub is held in the middle of a write, past its lease. The write arrives after another
/// leads and has decided again: it is refused, and no message of the old leader reaches a member.
#[tokio::test(start_paused = true)]
async fn what_a_leader_of_yesterday_had_under_way_loses() {
    for seed in 0..6 {
        let mut world = three(40 + seed).await;
        scenario::first(&world).await;
        let old = leader(&world);
        let who = Who::Controller(old);
        world.hub().merge(&DEPLOYMENT, NGINX, json!({"spec": {"replicas": 9}})).await;
        // A little later for each seed: before, during and after the write of the decision.
        world.rest(Duration::from_millis(seed)).await;
        world.hold(&who, true);
        let another = |binding: &Value| binding["spec"]["decision"]["desired"] == 9;
        world
            .until_object("hub", &RESOURCE_BINDING, BINDING, "the next leader's", LIMIT, another)
            .await;
        world.rest(Duration::from_secs(20)).await;
        assert!(!world.leaders().contains(&old), "it stopped at its own deadline");
        world.hub().merge(&DEPLOYMENT, NGINX, json!({"spec": {"replicas": 6}})).await;
        until_rolled_out(&world, 6).await;
        let before = world.decided();
        world.hold(&who, false);
        world.rest(Duration::from_secs(60)).await;
        assert_eq!(world.decided(), before, "seed {seed}: the old leader's write took effect");
        until_rolled_out(&world, 6).await;
        world.until_settled(LIMIT).await;
        world.crash_controller_at(old).await;
        world.end().await;
    }
}

/// Regression: a member that joined under the previous leader was new to the next one, which waited for its first
/// session: forever, if member and leader had failed together.
#[tokio::test(start_paused = true)]
async fn a_member_that_goes_together_with_the_leader_is_missed_by_the_next() {
    let mut world = three(38).await;
    scenario::first(&world).await;
    let known = world.always("nobody is new", |view: &View| {
        let reason = |cluster: &Value| {
            let conditions = cluster["status"]["conditions"].as_array().cloned();
            let mut conditions = conditions.into_iter().flatten();
            conditions.find(|condition| condition["type"] == "Ready").map(|c| c["reason"].clone())
        };
        let mut all = view.all("hub", &CLUSTER);
        let new = all.find(|(_, cluster)| reason(cluster).is_some_and(|r| r == "NotJoined"));
        new.map_or(Ok(()), |(name, _)| Err(name.clone()))
    });
    let old = leader(&world);
    world.stop_member("member1").await;
    world.crash_controller_at(old).await;
    let moved = |binding: &Value| {
        let shares = shares(binding);
        !shares.contains_key("member1") && shares.values().sum::<i64>() == 3
    };
    let what = "its share is elsewhere";
    world.until_object("hub", &RESOURCE_BINDING, BINDING, what, LIMIT, moved).await;
    world.lift(known);
    world.start_member("member1").await;
    until_rolled_out(&world, 3).await;
    world.until_settled(LIMIT).await;
    world.end().await;
}
