//! Bugs that other federations had, as scenarios of a whole federation. Those that a mutant brings back are in
//! `controller/src/tests/corpus.rs`, what etcd had in `etcd.rs`.
//!
//! | what went wrong elsewhere | scenario |
//! | --- | --- |
//! | Karmada #7348: of two writers of taints one lost the other's | [`a_users_taint_lives_beside_those_of_health_whoever_writes_when`] |
//! | Karmada 1.17: a scale down was divided over clusters of an earlier time | [`a_scale_down_counts_only_clusters_of_today`] |
//! | Karmada #7426: credentials that failed in passing moved workloads | [`an_api_that_fails_in_passing_moves_nobody`] |
//! | Karmada 1.11: a new member overwrote one that was there | [`a_new_member_takes_nothing_from_the_one_whose_name_it_comes_with`], [`a_new_members_own_object_is_left_alone`] |
//! | two leaders and `generateName`: a child twice | [`two_leaders_make_one_binding`] |

use std::time::Duration;

use atoll_simulator::world::kinds::{CLUSTER, DEPLOYMENT, PROPAGATION_POLICY, RESOURCE_BINDING};
use atoll_simulator::world::{Identities, View, Who, World, condition, shares};
use serde_json::{Value, json};

use crate::etcd;
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

/// Karmada 1.17: a scale down was divided over clusters that the policy no longer selected.
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

/// Karmada #7426: a transient credential failure made a member not ready, and its workloads moved.
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

/// Karmada 1.11: a cluster that registered under a taken name replaced the existing one. Here another cluster presents
/// the full identity of member1.
#[tokio::test(start_paused = true)]
async fn a_new_member_takes_nothing_from_the_one_whose_name_it_comes_with() {
    let mut world = world(54).await;
    scenario::first(&world).await;
    let before = world.decided();
    let impostor = world.impostor("member1").await;
    world.rest(Duration::from_secs(60)).await;
    // Not even when the real member is silent for a while.
    world.stop_member("member1").await;
    world.rest(Duration::from_secs(60)).await;
    world.start_member("member1").await;
    let ready = |cluster: &Value| condition(cluster, "Ready") == "True";
    world.until_object("hub", &CLUSTER, "member1", "it is back", LIMIT, ready).await;
    world.hub().merge(&DEPLOYMENT, NGINX, json!({"spec": {"replicas": 6}})).await;
    until_rolled_out(&world, 6).await;
    world.until_settled(LIMIT).await;
    assert!(world.member(&impostor).get(&DEPLOYMENT, NGINX).await.is_null());
    assert_eq!(world.triggers(BINDING).await, ["First", "Scale"]);
    assert_eq!(before.len(), world.decided().len());
    let held = world.read(|view| view.ready(&DEPLOYMENT, NGINX));
    assert_eq!(held, scenario::counts(&[("member1", 4), ("member2", 2)]));
    world.end().await;
}

/// The same with objects: what a new member already runs stays its own until a user claims it.
#[tokio::test(start_paused = true)]
async fn a_new_members_own_object_is_left_alone() {
    let world = world(55).await;
    scenario::first(&world).await;
    let mut own = scenario::documents(scenario::FIRST)
        .into_iter()
        .find(|document| document["kind"] == "Deployment")
        .unwrap();
    own["spec"]["replicas"] = json!(7);
    let applied = world.member("member3").apply(own).await;
    scenario::apply(&world, scenario::MEMBER3).await;
    let hindered = |binding: &Value| {
        shares(binding).contains_key("member3") && condition(binding, "FullyApplied") == "False"
    };
    world.until_object("hub", &RESOURCE_BINDING, BINDING, "hindered", LIMIT, hindered).await;
    world.rest(Duration::from_secs(60)).await;
    let now = world.member("member3").get(&DEPLOYMENT, NGINX).await;
    assert_eq!(now["spec"], applied["spec"], "it was touched");
    let policy = json!({"spec": {"conflictResolution": "Overwrite"}});
    world.hub().merge(&PROPAGATION_POLICY, "default/nginx-propagation", policy).await;
    let applied = |binding: &Value| condition(binding, "FullyApplied") == "True";
    world.until_object("hub", &RESOURCE_BINDING, BINDING, "taken over", LIMIT, applied).await;
    until_rolled_out(&world, 3).await;
    world.until_settled(LIMIT).await;
    world.end().await;
}

/// Two leaders, and a child whose name the server generates: it is created twice. Ours has a name derived from the
/// template's, so the second leader finds it already created.
#[tokio::test(start_paused = true)]
async fn two_leaders_make_one_binding() {
    let builder = World::builder().seed(56).controllers(3).identities(Identities::Known);
    let mut world = builder.build().await;
    etcd::many(&world, 1).await;
    let old = world.leaders()[0];
    let who = Who::Controller(old);
    let mark = world.mark();
    // Its writes are slow, and in the middle of one they are held until another controller leads.
    world.slow_api(&who, Duration::from_secs(2));
    world.hub().apply(etcd::deployment("many1", 3)).await;
    world.rest(Duration::from_secs(1)).await;
    world.hold(&who, true);
    let (key, made) = ("default/many1-deployment", |binding: &Value| !shares(binding).is_empty());
    world.until_object("hub", &RESOURCE_BINDING, key, "it is made", LIMIT, made).await;
    world.rest(Duration::from_secs(30)).await;
    world.hold(&who, false);
    world.slow_api(&who, Duration::ZERO);
    world.rest(Duration::from_secs(30)).await;
    etcd::until_all(&world, 2, 3).await;
    let posts =
        world.writes(mark, |write| write.method == "POST" && write.resource == "resourcebindings");
    let answers: Vec<(bool, u16)> =
        posts.iter().map(|write| (write.controller == old, write.status)).collect();
    assert_eq!(answers, [(false, 201), (true, 409)]);
    assert_eq!(world.read(|view| view.all("hub", &RESOURCE_BINDING).count()), 2);
    assert_eq!(world.triggers(key).await, ["First"]);
    world.crash_controller_at(old).await;
    world.end().await;
}
