//! Controllers and agents replaced by other versions: upgrade, downgrade, upgrade again. Only one version of the code
//! exists here, so the data of another version is faked: an index without a checksum and with an unknown field, hashes
//! of a different renderer, unknown marks.

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_api::marks;
use atoll_simulator::world::kinds::{CONFIG_MAP, DEPLOYMENT, LEASE, POD};
use atoll_simulator::world::{Identities, View, World};
use serde_json::json;

use crate::scenario::{self, LIMIT, NGINX};

const MEMBERS: [&str; 3] = ["member1", "member2", "member3"];

/// Pods by name, with their creation times, which reveal replacements.
fn pods(view: &View) -> BTreeMap<String, String> {
    let of = |member: &'static str| {
        view.all(member, &POD).map(move |(key, pod)| {
            (format!("{member} {key}"), pod["metadata"]["uid"].as_str().unwrap().to_owned())
        })
    };
    MEMBERS.into_iter().flat_map(of).collect()
}

/// Rewrites the data on a member as another version would have left it.
async fn rewrite(world: &World, member: &str, version: &str) {
    let site = world.member(member);
    let index = json!({"data": {"checksum": null, "kept-by": version}});
    site.merge_if_there(&CONFIG_MAP, "atoll-system/atoll-inventory", index).await;
    let marked = json!({"metadata": {"annotations": {"atoll.dev/later": version}}});
    site.merge_if_there(&LEASE, "atoll-system/atoll-agent", marked.clone()).await;
    site.merge_if_there(&DEPLOYMENT, NGINX, marked).await;
    let hash = json!({"metadata": {"annotations": {marks::HASH: format!("{version:0>64}")}}});
    site.merge_if_there(&DEPLOYMENT, NGINX, hash).await;
}

#[tokio::test(start_paused = true)]
async fn whoever_is_upgraded_or_taken_back_moves_nothing() {
    let mut world = World::builder().seed(83).identities(Identities::Known).build().await;
    scenario::first(&world).await;
    let (decided, running) = (world.decided(), world.read(pods));
    assert_eq!(running.len(), 3);
    // Members first, the controller first, all at once.
    for (version, agents, controller) in
        [("2", true, false), ("1", false, true), ("2", true, true), ("1", true, true)]
    {
        if controller {
            world.crash_controller().await;
        }
        if agents {
            for member in MEMBERS {
                world.crash_agent(member).await;
                rewrite(&world, member, version).await;
                world.start_agent(member);
            }
        }
        if controller {
            world.start_controller();
        }
        world.rest(Duration::from_secs(45)).await;
        world.until_settled(LIMIT).await;
        assert_eq!(world.decided(), decided, "something was decided anew");
        assert_eq!(world.read(pods), running, "a pod was replaced");
        let index = world.member("member1").get(&CONFIG_MAP, "atoll-system/atoll-inventory").await;
        assert_eq!(index["data"]["checksum"].as_str().map(str::len), Some(64), "{index}");
    }
    scenario::scale(&world).await;
    world.end().await;
}

/// All agents reconnect at once after a leader is gone, and are served within seconds.
#[tokio::test(start_paused = true)]
async fn a_herd_that_comes_back_at_once_is_served_within_seconds() {
    const HERD: u64 = 24;
    let builder = World::builder().seed(84).members(HERD).controllers(2);
    let mut world = builder.identities(Identities::Known).build().await;
    let policy = json!({
        "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "settings"},
        "spec": {"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}]},
    });
    world.hub().apply(policy).await;
    let settings = |text: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"},
            "data": {"text": text},
        })
    };
    let everywhere = |text: &'static str| {
        move |view: &View| {
            let has = |number: &u64| {
                let member = format!("member{number}");
                view.on(&member, &CONFIG_MAP, "default/settings")["data"]["text"] == text
            };
            let count = (1..=HERD).filter(has).count() as u64;
            (count == HERD).then_some(()).ok_or_else(|| format!("{count} of {HERD}"))
        }
    };
    world.hub().apply(settings("one")).await;
    world.until("all have it", LIMIT, everywhere("one")).await;
    let old = world.leaders()[0];
    world.crash_controller_at(old).await;
    world.hub().apply(settings("two")).await;
    // The Lease expires within 15 s and the other polls every 2 s; agents are back 10 s later.
    let limit = Duration::from_secs(15 + 2 + 10);
    world.until("all are back", limit, everywhere("two")).await;
    world.end().await;
}
