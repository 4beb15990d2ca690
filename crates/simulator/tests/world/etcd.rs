//! The failures recorded for etcd's robustness tests, transferred to our streams: agents' sessions correspond to etcd's
//! watches and members, terms and hashes to its revisions.
//!
//! The rows are all 17 of etcd's `tests/robustness/README.md` (as of August 2026); [`ROWS`] maps each to a test.

use std::path::Path;
use std::time::Duration;

use atoll_simulator::world::kinds::{DEPLOYMENT, LEASE, RESOURCE_BINDING};
use atoll_simulator::world::{Actor, Events, Fuse, Identities, View, Way, Who, World, shares};
use serde_json::{Value, json};

use crate::scenario::{self, LIMIT, NGINX, until_rolled_out};

/// etcd's issue, what it was, and the test here: file, name.
const ROWS: [(u32, &str, &str, &str); 17] = [
    (
        13766,
        "revision and data disagree after a crash under load",
        OWN,
        "a_death_under_load_leaves_no_two_opinions",
    ),
    (
        14370,
        "a crash loses a write that was acknowledged",
        OWN,
        "nothing_is_told_that_a_death_takes_back",
    ),
    // Streams carry no authorisation: the certificate and the member's own rules decide.
    (
        14571,
        "members disagree over rights",
        "crates/agent/tests/it/applying.rs",
        "a_poison_object_is_reported_and_holds_nothing_else_up",
    ),
    // The agent's index is our only data rewritten in place; one of these crashes is at its write.
    (
        14685,
        "a crash while the store is rewritten",
        "crates/simulator/tests/world/crashes.rs",
        "an_agent_that_dies_at_any_write_is_followed_by_one_that_goes_on",
    ),
    // The same over a slow and breaking network: `agreement_does_not_overtake_what_is_under_way`.
    (
        15220,
        "progress is told before what it is about",
        "crates/agent/tests/it/removing.rs",
        "removals_wait_until_both_ends_agree",
    ),
    (
        15271,
        "a watch travels back in time after a partition",
        OWN,
        "what_a_partition_held_back_sets_nothing_back",
    ),
    (17247, "an event comes twice", OWN, "events_that_come_twice_decide_once"),
    (17529, "a slow watch loses events", OWN, "a_member_that_reads_slowly_misses_nothing"),
    (
        17780,
        "the revision falls after a crash",
        OWN,
        "terms_never_fall_whenever_a_leader_dies_at_its_lease",
    ),
    (18089, "compaction drops a delete", OWN, "an_end_that_no_watch_told_is_seen_in_the_next_list"),
    (
        18055,
        "two snapshots within a moment are a panic",
        OWN,
        "two_full_pictures_within_a_moment_are_taken_as_they_come",
    ),
    // A commit is one write under one version, so no transaction can read another.
    (
        18667,
        "a transaction reads what is compacted",
        "crates/controller/src/commit/tests.rs",
        "a_decision_on_an_older_version_is_dropped",
    ),
    (
        19179,
        "a watch from the compacted revision misses a delete",
        OWN,
        "a_copy_that_vanishes_unseen_comes_back",
    ),
    (
        20221,
        "a watch from the future hears of progress",
        "crates/controller/tests/members/terms.rs",
        "one_member_of_three_is_not_believed_and_stops_nothing_and_two_are",
    ),
    (
        20221,
        "a watch from the future hears of the past",
        "crates/agent/tests/it/sessions.rs",
        "a_lower_term_is_refused_also_after_a_restart",
    ),
    // The agent's data is the only data of ours that is read back from a member; damaged data is not trusted.
    (
        20271,
        "a page of the store is not what it should be: a panic at the start",
        "crates/agent/tests/it/index.rs",
        "what_a_damaged_index_does_not_name_is_found",
    ),
    (
        20418,
        "a process that was paused answers with the past",
        "crates/simulator/tests/world/leaders.rs",
        "what_a_leader_of_yesterday_had_under_way_loses",
    ),
];
const OWN: &str = "crates/simulator/tests/world/etcd.rs";

#[test]
fn every_row_has_its_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (issue, what, file, test) in ROWS {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        assert!(text.contains(&format!("fn {test}()")), "#{issue}, {what}: no {test} in {file}");
    }
}

async fn world(seed: u64) -> World {
    World::builder().seed(seed).identities(Identities::Known).build().await
}

/// Creates this many workloads, `many0` and so on, with a replica on each member.
pub(crate) async fn many(world: &World, count: u64) {
    world
        .hub()
        .apply(json!({
            "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"name": "all"},
            "spec": {
                "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
                "placement": {"replicaScheduling": {
                    "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                }},
            },
        }))
        .await;
    for number in 0..count {
        world.hub().apply(deployment(&format!("many{number}"), 3)).await;
    }
    until_all(world, count, 3).await;
}

pub(crate) fn deployment(name: &str, replicas: u64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "nginx"}]},
            },
        },
    })
}

async fn scale_all(world: &World, count: u64, replicas: u64) {
    for number in 0..count {
        let key = format!("default/many{number}");
        world.hub().merge(&DEPLOYMENT, &key, json!({"spec": {"replicas": replicas}})).await;
    }
}

/// Waits until every one of them runs, and the hub shows it.
pub(crate) async fn until_all(world: &World, count: u64, replicas: u64) {
    let all = |view: &View| {
        (0..count).try_for_each(|number| {
            let key = format!("default/many{number}");
            let template = view.hub(&DEPLOYMENT, &key);
            let ready: i64 = view.ready(&DEPLOYMENT, &key).values().sum();
            let holds = ready.unsigned_abs() == replicas
                && template["status"]["readyReplicas"] == replicas
                && template["status"]["observedGeneration"] == template["metadata"]["generation"];
            holds.then_some(()).ok_or_else(|| format!("{key}: {ready} of {replicas} ready"))
        })
    };
    world.until(&format!("{count} with {replicas}"), LIMIT, all).await;
    world.until_settled(LIMIT).await;
}

/// Waits for a crash by a fuse and restarts the process after a moment.
async fn revive(world: &mut World) {
    let who = tokio::time::timeout(LIMIT, world.death()).await.expect("nobody died");
    match &who {
        Who::Controller(number) => world.crash_controller_at(*number).await,
        Who::Agent(name) => world.crash_agent(name).await,
    }
    world.rest(Duration::from_secs(3)).await;
    match &who {
        Who::Controller(number) => world.start_controller_at(*number),
        Who::Agent(name) => world.start_agent(name),
    }
}

fn agent(member: &str) -> Who {
    Who::Agent(member.to_owned())
}

fn fuse(site: &str, nth: u32, after: bool) -> Option<Fuse> {
    Some(Fuse { site: Some(site.to_owned()), nth, after })
}

#[tokio::test(start_paused = true)]
async fn a_death_under_load_leaves_no_two_opinions() {
    const COUNT: u64 = 8;
    let mut world = world(61).await;
    many(&world, COUNT).await;
    for (replicas, nth, after) in [(6, 3, false), (9, 5, true), (3, 8, false)] {
        world.lay(&agent("member1"), fuse("PATCH deployments", nth, after));
        scale_all(&world, COUNT, replicas).await;
        revive(&mut world).await;
        until_all(&world, COUNT, replicas).await;
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_told_that_a_death_takes_back() {
    let mut world = world(62).await;
    scenario::first(&world).await;
    // When the hub shows all replicas of the newest version, the members were assigned that many and hold them.
    let true_words = world.always("what is told is held", |view: &View| {
        let template = view.hub(&DEPLOYMENT, NGINX);
        let (spec, status) = (&template["spec"], &template["status"]);
        if status["observedGeneration"] != template["metadata"]["generation"]
            || status["readyReplicas"] != spec["replicas"]
        {
            return Ok(());
        }
        let wanted: i64 = view.wanted(&DEPLOYMENT, NGINX).values().sum();
        let ready: i64 = view.ready(&DEPLOYMENT, NGINX).values().sum();
        let told = spec["replicas"].as_i64().unwrap();
        (wanted == told && ready == told)
            .then_some(())
            .ok_or_else(|| format!("{told} told, {wanted} held, {ready} ready"))
    });
    for (replicas, after) in [(6, false), (9, true)] {
        world.lay(&agent("member1"), fuse("PATCH deployments", 1, after));
        world.hub().merge(&DEPLOYMENT, NGINX, json!({"spec": {"replicas": replicas}})).await;
        revive(&mut world).await;
        until_rolled_out(&world, replicas).await;
        world.until_settled(LIMIT).await;
    }
    world.lift(true_words);
    world.end().await;
}

/// Half of a member's objects are added and the other half removed, over a slow network. Only withdrawn objects are
/// deleted (I12 checks every deletion), and in the end both ends agree.
#[tokio::test(start_paused = true)]
async fn agreement_does_not_overtake_what_is_under_way() {
    const COUNT: u64 = 10;
    let mut world = world(63).await;
    many(&world, COUNT).await;
    world.slow_network("member1", Some((64, Duration::from_millis(40))));
    for number in 0..COUNT / 2 {
        world.hub().delete(&DEPLOYMENT, &format!("default/many{}", COUNT / 2 + number)).await;
        world.hub().apply(deployment(&format!("many{number}"), 6)).await;
    }
    // The stream breaks in the middle of it, so that the inventory is compared again.
    world.break_stream("member1", Some(500));
    world.rest(Duration::from_secs(60)).await;
    world.slow_network("member1", None);
    until_all(&world, COUNT / 2, 6).await;
    world.end().await;
}

/// The agent's messages are delayed while the state moves on, and arrive afterwards.
#[tokio::test(start_paused = true)]
async fn what_a_partition_held_back_sets_nothing_back() {
    let mut world = world(64).await;
    scenario::first(&world).await;
    let mut seen = (0, 0);
    let forward = world.always("what was seen is not unseen", move |view: &View| {
        let observed = &view.hub(&DEPLOYMENT, NGINX)["status"]["observedGeneration"];
        let copy = &view.on("member1", &DEPLOYMENT, NGINX)["metadata"]["generation"];
        let now = (observed.as_i64().unwrap_or(0), copy.as_i64().unwrap_or(0));
        let holds = now.0 >= seen.0 && now.1 >= seen.1;
        let before = seen;
        seen = (now.0.max(seen.0), now.1.max(seen.1));
        holds.then_some(()).ok_or_else(|| format!("{before:?}, then {now:?}"))
    });
    for (way, span) in
        [(Way::ToController, 10), (Way::ToController, 40), (Way::ToAgent, 10), (Way::Both, 40)]
    {
        for replicas in [6, 9, 3] {
            world.hub().merge(&DEPLOYMENT, NGINX, json!({"spec": {"replicas": replicas}})).await;
            world.partition("member1", Some(way));
            world.rest(Duration::from_secs(span)).await;
        }
        world.partition("member1", None);
        until_rolled_out(&world, 3).await;
        world.until_settled(LIMIT).await;
    }
    world.lift(forward);
    world.end().await;
}

/// A member's whole inventory is sent to the controller twice within a moment, the second while the first is in flight;
/// the lists of the hub and of the member are requested twice as well.
#[tokio::test(start_paused = true)]
async fn two_full_pictures_within_a_moment_are_taken_as_they_come() {
    const COUNT: u64 = 8;
    let mut world = world(70).await;
    many(&world, COUNT).await;
    for after in [0, 200, 2_000] {
        world.slow_network("member1", Some((256, Duration::from_millis(20))));
        for _ in 0..2 {
            world.break_stream("member1", Some(after));
            for who in [Who::Controller(1), agent("member1")] {
                world.events(&who, Events::Lost);
                world.events(&who, Events::Normal);
            }
            world.rest(Duration::from_millis(900)).await;
        }
        world.break_stream("member1", None);
        world.slow_network("member1", None);
        scale_all(&world, COUNT, 6).await;
        until_all(&world, COUNT, 6).await;
        scale_all(&world, COUNT, 3).await;
        until_all(&world, COUNT, 3).await;
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn events_that_come_twice_decide_once() {
    let mut world = world(65).await;
    world.events(&Who::Controller(1), Events::Twice);
    for member in ["member1", "member2"] {
        world.events(&agent(member), Events::Twice);
    }
    let mark = world.mark();
    scenario::first(&world).await;
    scenario::scale(&world).await;
    assert_eq!(world.triggers(scenario::BINDING).await, ["First", "Scale"]);
    let of = |actor: Actor, resource: &str| {
        world.writes(mark, |write| write.actor == actor && write.resource == resource).len()
    };
    assert_eq!(of(Actor::Controller, "resourcebindings"), 2);
    assert_eq!(of(Actor::Agent, "deployments"), 4, "two members, told twice each");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_member_that_reads_slowly_misses_nothing() {
    const COUNT: u64 = 12;
    let mut world = world(66).await;
    many(&world, COUNT).await;
    world.slow_network("member1", Some((128, Duration::from_millis(50))));
    // More messages than it can read, of which only the last counts.
    for replicas in [6, 9, 12, 6] {
        scale_all(&world, COUNT, replicas).await;
        world.rest(Duration::from_secs(2)).await;
    }
    world.slow_network("member1", None);
    until_all(&world, COUNT, 6).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn terms_never_fall_whenever_a_leader_dies_at_its_lease() {
    let mut world = world(67).await;
    scenario::first(&world).await;
    let (mut highest, mut last) = (0, String::new());
    let rises =
        world.always("terms never fall, and each leader has a higher one", move |view: &View| {
            let lease = view.hub(&LEASE, "atoll-system/atoll-controller");
            let term = lease["metadata"]["annotations"]["atoll.dev/term"].as_str();
            let term: u64 = term.and_then(|term| term.parse().ok()).unwrap_or(0);
            let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
            let other = !holder.is_empty() && holder != last;
            let holds = if other { term > highest } else { term >= highest };
            let before = format!("{highest} of {last:?}");
            if other {
                holder.clone_into(&mut last);
            }
            highest = highest.max(term);
            holds.then_some(()).ok_or_else(|| format!("term {term} of {holder:?} after {before}"))
        });
    let who = Who::Controller(1);
    for nth in [1, 2] {
        for after in [false, true] {
            // A leader crashes at a renewal, the next one while it takes the Lease, and the third continues.
            world.lay(&who, fuse("PUT leases", nth, after));
            revive(&mut world).await;
            world.lay(&who, fuse("PUT leases", 1, after));
            revive(&mut world).await;
        }
    }
    scenario::scale(&world).await;
    world.lift(rises);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_end_that_no_watch_told_is_seen_in_the_next_list() {
    let mut world = world(68).await;
    scenario::first(&world).await;
    let who = Who::Controller(1);
    world.events(&who, Events::Lost);
    world.hub().delete(&DEPLOYMENT, NGINX).await;
    world.rest(Duration::from_secs(20)).await;
    assert!(!shares(&world.hub().get(&RESOURCE_BINDING, scenario::BINDING).await).is_empty());
    world.events(&who, Events::Normal);
    let gone = |view: &View| {
        let held = view.running().flat_map(|member| view.managed(member)).count();
        let binding = view.hub(&RESOURCE_BINDING, scenario::BINDING);
        (held == 0 && binding.is_null()).then_some(()).ok_or_else(|| format!("{held} held"))
    };
    world.until("it is gone everywhere", LIMIT, gone).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_vanishes_unseen_comes_back() {
    let mut world = world(69).await;
    scenario::first(&world).await;
    world.events(&agent("member1"), Events::Lost);
    world.member("member1").delete(&DEPLOYMENT, NGINX).await;
    world.rest(Duration::from_secs(20)).await;
    assert!(world.member("member1").get(&DEPLOYMENT, NGINX).await.is_null());
    world.events(&agent("member1"), Events::Normal);
    let back = |view: &View| {
        let ready = view.ready(&DEPLOYMENT, NGINX);
        let holds = ready == scenario::counts(&[("member1", 2), ("member2", 1)]);
        holds.then_some(()).ok_or_else(|| format!("{ready:?}"))
    };
    world.until("it is back", LIMIT, back).await;
    world.until_settled(LIMIT).await;
    world.end().await;
}
