//! Controllers that crash and networks that break at critical moments.

use std::time::Duration;

use atoll_simulator::world::kinds::{CLUSTER, DEPLOYMENT, RESOURCE_BINDING};
use atoll_simulator::world::soak::{Action, Step, play_asking};
use atoll_simulator::world::{
    Actor, Events, Identities, Lists, Skew, View, Who, World, Write, condition, shares,
};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{ListParams, VersionMatch};
use serde_json::{Value, json};

use crate::scenario::{self, BINDING, LIMIT, NGINX, until_rolled_out};

fn by_controller(write: &Write) -> bool {
    write.actor == Actor::Controller && write.resource != "leases"
}

/// The controller crashes after each of the first writes of a scaling, and loses what is in flight.
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

/// A partition is not a failure of the member: its workloads continue, and leave when the network is back.
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
    // A controller that starts now learns of the copy behind the partition only from the binding.
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

/// Kubernetes API concepts, "Semantics for get and list": only requests that accept any version get a stale answer.
#[tokio::test(start_paused = true)]
async fn a_replica_that_lags_behind_answers_as_kubernetes_says() {
    let mut world = World::builder().seed(6).identities(Identities::Known).build().await;
    scenario::first(&world).await;
    let who = Who::Controller(1);
    world.events(&who, Events::Behind);
    world.hub().merge(&DEPLOYMENT, NGINX, json!({"spec": {"replicas": 9}})).await;
    let api: Api<Deployment> = Api::namespaced(world.client_of(&who), "default");
    let replicas = async |params: ListParams| {
        api.list(&params).await.unwrap().items[0].spec.as_ref().unwrap().replicas.unwrap()
    };
    let newest = ListParams::default();
    let (any, version) = (newest.clone().match_any(), api.list(&newest).await.unwrap().metadata);
    let version = version.resource_version.unwrap();
    assert_eq!(replicas(newest.clone()).await, 9);
    assert_eq!(replicas(any.clone()).await, 3);
    assert_eq!(replicas(newest.clone().at(&version).matching(VersionMatch::NotOlderThan)).await, 9);
    assert_eq!(replicas(newest.clone().limit(1)).await, 9);
    assert_eq!(api.get("nginx").await.unwrap().spec.unwrap().replicas, Some(9));
    assert_eq!(world.stale_answers(Actor::Controller), 1);
    // A process that restarts meanwhile uses the same replica.
    world.crash_controller().await;
    world.start_controller();
    let api: Api<Deployment> = Api::namespaced(world.client_of(&who), "default");
    let list = api.list(&any).await.unwrap();
    assert_eq!(list.items[0].spec.as_ref().unwrap().replicas, Some(3));
    world.events(&who, Events::Normal);
    assert_eq!(api.list(&any).await.unwrap().items[0].spec.as_ref().unwrap().replicas, Some(9));
    until_rolled_out(&world, 9).await;
    world.end().await;
}

/// Deletions and writes depend on lists of the newest state, so no client may accept a stale one.
#[tokio::test(start_paused = true)]
async fn nobody_asks_for_a_list_that_may_be_stale() {
    let mut world = World::builder().seed(7).identities(Identities::Known).build().await;
    scenario::first(&world).await;
    for who in [Who::Controller(1), Who::Agent("member1".to_owned())] {
        world.events(&who, Events::Lost);
        world.events(&who, Events::Normal);
        world.events(&who, Events::Behind);
    }
    world.crash_agent("member1").await;
    world.start_agent("member1");
    world.crash_controller().await;
    world.start_controller();
    world.rest(Duration::from_secs(30)).await;
    for who in [Who::Controller(1), Who::Agent("member1".to_owned())] {
        world.events(&who, Events::Normal);
    }
    scenario::scale(&world).await;
    for actor in [Actor::Controller, Actor::Agent] {
        let asked = world.requests(actor);
        assert!(asked.iter().any(|line| line.contains("resourceVersion=")), "{actor:?} watches");
        let less: Vec<_> = asked
            .iter()
            .filter(|line| {
                line.ends_with("resourceVersion=0") || line.contains("resourceVersion=0&")
            })
            .collect();
        assert!(less.is_empty(), "{actor:?} asks for what may be stale: {less:?}");
        assert_eq!(world.stale_answers(actor), 0);
    }
    world.end().await;
}

/// "Time travel" in Sieve (OSDI 2022): a controller starts on a stale API server and takes recent decisions for orphans.
/// This history once made it delete what runs (I12). It must end as desired whether lists are stale or not.
#[test]
fn lists_of_an_earlier_time_delete_nothing_that_runs() {
    let at = |millis, action| Step { at: Duration::from_millis(millis), action };
    let (after, span) = (Duration::from_millis(9_280), Duration::from_millis(15_344));
    let script = [
        at(0, Action::Create { app: 1, replicas: 7, placement: 993_008_248 }),
        at(1_325, Action::Older { who: Who::Controller(1), after, span }),
        at(6_765, Action::Place { app: 1, placement: 460_100_957 }),
    ];
    for lists in [Lists::AtHand, Lists::Newest] {
        let outcome = play_asking(lists, 600_053, &script);
        assert!(outcome.is_ok(), "{outcome:?}");
    }
}

/// Sessions, leases and health use monotonic time, not the wall clock.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_an_hour_off_or_stands_still_moves_nobody() {
    let hour = Duration::from_secs(3_600);
    for skew in [Skew::Ahead(hour), Skew::Behind(hour), Skew::Frozen] {
        let world = World::builder().seed(9).controllers(2).build().await;
        scenario::first(&world).await;
        let (before, leaders) = (world.decided(), world.leaders());
        let steady = world.always("all stay Ready", |view: &View| {
            let ready = |name| condition(view.hub(&CLUSTER, name), "Ready") == "True";
            let sick = ["member1", "member2", "member3"].into_iter().find(|name| !ready(name));
            let how =
                |name| format!("{name}: {}", view.hub(&CLUSTER, name)["status"]["conditions"]);
            sick.map_or(Ok(()), |name| Err(how(name)))
        });
        let everybody = [Who::Controller(leaders[0]), Who::Agent("member1".to_owned())];
        for skew in [Some(skew), None, Some(skew)] {
            for who in &everybody {
                world.skew(who, skew);
                world.rest(Duration::from_secs(60)).await;
            }
        }
        world.lift(steady);
        assert_eq!(world.leaders(), leaders, "{skew:?}: somebody else leads");
        assert_eq!(world.decided(), before, "{skew:?}: somebody moved");
        scenario::scale(&world).await;
        world.end().await;
    }
}
