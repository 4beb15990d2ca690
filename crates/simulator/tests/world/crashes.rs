//! A process dies at each of its durable writes, before and after it, and the next one goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use atoll_simulator::world::kinds::{DEPLOYMENT, PROPAGATION_POLICY};
use atoll_simulator::world::{Actor, Fuse, Identities, Mark, View, Who, World, simulate};
use serde_json::json;

use crate::scenario::{self, LIMIT, NGINX};

/// How long a process is away that died.
const AWAY: Duration = Duration::from_secs(3);
/// Writes of one kind that a process dies at, each in a run of its own.
const EACH: usize = 2;

async fn world() -> World {
    let world = World::builder().seed(21).members(2).identities(Identities::Known).build().await;
    scenario::apply(&world, scenario::FIRST).await;
    world
}

/// A workload comes, is scaled, and goes; the process that dies at its fuse comes back after a moment.
async fn life(world: &mut World, who: Option<&Who>) {
    let steps: [(&str, Option<i64>); 3] = [("comes", Some(3)), ("grows", Some(6)), ("goes", None)];
    for (what, replicas) in steps {
        match (what, replicas) {
            ("grows", Some(replicas)) => {
                let patch = json!({"spec": {"replicas": replicas}});
                world.hub().merge(&DEPLOYMENT, NGINX, patch).await;
            }
            ("goes", _) => world.hub().delete(&DEPLOYMENT, NGINX).await,
            _ => {}
        }
        let there = move |view: &View| {
            let ready: i64 = view.ready(&DEPLOYMENT, NGINX).values().sum();
            let shown = view.hub(&DEPLOYMENT, NGINX)["status"]["readyReplicas"].as_i64();
            let held = view.running().flat_map(|member| view.managed(member)).count();
            let holds = match replicas {
                Some(replicas) => ready == replicas && shown == Some(replicas),
                None => held == 0,
            };
            holds.then_some(()).ok_or_else(|| format!("{what}: {ready} ready, {shown:?} shown"))
        };
        loop {
            // What dies is taken away and comes back; the wait then goes on.
            let died = tokio::time::timeout(AWAY, world.death()).await.ok();
            if let Some(died) = died {
                assert_eq!(Some(&died), who);
                match &died {
                    Who::Controller(number) => world.crash_controller_at(*number).await,
                    Who::Agent(name) => world.crash_agent(name).await,
                }
                world.rest(AWAY).await;
                match &died {
                    Who::Controller(number) => world.start_controller_at(*number),
                    Who::Agent(name) => world.start_agent(name),
                }
                continue;
            }
            if world.read(there).is_ok() {
                break;
            }
            assert!(world.clock().now().as_second() < END, "{what}: not in time");
        }
    }
    world.hub().delete(&PROPAGATION_POLICY, "default/nginx-propagation").await;
    world.until_settled(LIMIT).await;
    world.check_history().await;
}

/// 2026-01-01 and half an hour: far more than any of these lives takes.
const END: i64 = 1_767_225_600 + 1_800;

/// Kinds of writes in a life without faults, with how often each is done, by who does them.
fn sites(actor: Actor) -> BTreeMap<String, usize> {
    simulate(async {
        let mut world = world().await;
        let mark: Mark = world.mark();
        life(&mut world, None).await;
        let site = if actor == Actor::Agent { "member1" } else { "hub" };
        let mut sites = BTreeMap::new();
        for write in world.writes(mark, |write| write.actor == actor && write.site == site) {
            *sites.entry(format!("{} {}", write.method, write.resource)).or_default() += 1;
        }
        world.end().await;
        sites
    })
}

fn dies_everywhere(who: &Who, sites: &BTreeMap<String, usize>) {
    for (site, count) in sites {
        for nth in 1..=(*count).min(EACH) {
            for after in [false, true] {
                let nth = u32::try_from(nth).unwrap();
                let fuse = Fuse { site: Some(site.clone()), nth, after };
                simulate(async {
                    let mut world = world().await;
                    world.lay(who, Some(fuse.clone()));
                    eprintln!("{who:?} dies at {fuse:?}");
                    life(&mut world, Some(who)).await;
                    world.end().await;
                });
            }
        }
    }
}

#[test]
fn a_controller_that_dies_at_any_write_is_followed_by_one_that_goes_on() {
    let mut sites = sites(Actor::Controller);
    let names: BTreeSet<&str> = sites.keys().map(String::as_str).collect();
    for expected in ["POST resourcebindings", "PATCH deployments/status", "POST events"] {
        assert!(names.contains(expected), "{expected} is not among {names:?}");
    }
    sites.insert("INSERT history".to_owned(), EACH);
    dies_everywhere(&Who::Controller(1), &sites);
}

#[test]
fn an_agent_that_dies_at_any_write_is_followed_by_one_that_goes_on() {
    let sites = sites(Actor::Agent);
    for expected in ["PATCH deployments", "DELETE deployments"] {
        assert!(sites.contains_key(expected), "{expected} is not among {sites:?}");
    }
    dies_everywhere(&Who::Agent("member1".to_owned()), &sites);
}
