//! A process crashes at each of its durable writes, before and after it, and the next one continues.
//!
//! Every write of a run is counted, from the start of the process: the fuse is set to the first write, the second and
//! so
//! on, until a run ends without a crash. Renewals of Leases never end and are tested by kind. A write is complete or
//! absent,
//! as Kubernetes and databases guarantee; the random histories cover damaged data.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use atoll_simulator::world::kinds::{DEPLOYMENT, PROPAGATION_POLICY};
use atoll_simulator::world::{Actor, Fuse, Identities, Mark, View, Who, World, simulate};
use serde_json::json;

use crate::scenario::{self, LIMIT, NGINX};

/// How long a crashed process stays down.
const AWAY: Duration = Duration::from_secs(3);
/// Writes of a Lease to crash at, each in its own run.
const LEASES: u32 = 2;
/// More writes than any of these runs has.
const MOST: u32 = 400;

async fn world() -> World {
    let world = World::builder().seed(21).members(2).identities(Identities::Known).build().await;
    scenario::apply(&world, scenario::FIRST).await;
    world
}

/// A workload is created, scaled and deleted; the process crashes at its fuse, restarts after a moment, and crashes at
/// the next one. Returns the number of crashes.
async fn life(world: &mut World, who: Option<&Who>, mut next: Option<Fuse>) -> u32 {
    let mut deaths = 0;
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
            // The crashed process is cleaned up and restarted; then the wait continues.
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
                world.lay(&died, next.take());
                deaths += 1;
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
    deaths
}

/// 2026-01-01 and half an hour: far longer than any of these runs takes.
const END: i64 = 1_767_225_600 + 1_800;

/// Kinds of writes in a run without faults, with their counts, for one actor.
fn sites(actor: Actor) -> BTreeMap<String, usize> {
    let who = match actor {
        Actor::Agent => agent(),
        _ => Who::Controller(1),
    };
    simulate(async {
        let mut world = world().await;
        let mark: Mark = world.mark();
        begin(&mut world, &who).await;
        life(&mut world, None, None).await;
        let site = if actor == Actor::Agent { "member1" } else { "hub" };
        let mut sites = BTreeMap::new();
        for write in world.writes(mark, |write| write.actor == actor && write.site == site) {
            *sites.entry(format!("{} {}", write.method, write.resource)).or_default() += 1;
        }
        world.end().await;
        sites
    })
}

fn agent() -> Who {
    Who::Agent("member1".to_owned())
}

/// Starts the process: a new controller, or the agent on a member that has lost everything.
async fn begin(world: &mut World, who: &Who) {
    match who {
        Who::Controller(number) => {
            world.crash_controller_at(*number).await;
            world.start_controller_at(*number);
        }
        Who::Agent(name) => world.restore(name, true).await,
    }
}

/// A run with a crash at this fuse, and at the next one. Returns the number of crashes.
fn dies(who: &Who, fuse: Fuse, next: Option<Fuse>) -> u32 {
    simulate(async {
        let mut world = world().await;
        begin(&mut world, who).await;
        eprintln!("{who:?} dies at {fuse:?}, then at {next:?}");
        world.lay(who, Some(fuse));
        let deaths = life(&mut world, Some(who), next).await;
        world.end().await;
        deaths
    })
}

/// A crash at every write of a run. Returns the number of writes.
fn dies_everywhere(who: &Who, after: bool) -> u32 {
    for nth in 1..MOST {
        if dies(who, Fuse { site: None, nth, after }, None) == 0 {
            return nth - 1;
        }
    }
    panic!("a life of {who:?} has more than {MOST} writes");
}

/// The same at its Lease.
fn dies_at_its_lease(who: &Who) {
    for nth in 1..=LEASES {
        for after in [false, true] {
            let fuse = Fuse { site: Some("PUT leases".to_owned()), nth, after };
            assert_eq!(dies(who, fuse.clone(), Some(fuse)), 2);
        }
    }
}

/// The kinds of writes of a run, over which crashes are counted.
#[test]
fn a_life_has_every_kind_of_write() {
    let names = |actor| sites(actor).into_keys().collect::<BTreeSet<String>>();
    let hub = names(Actor::Controller);
    for expected in [
        "POST resourcebindings",
        "PATCH resourcebindings",
        "DELETE resourcebindings",
        "PATCH resourcebindings/status",
        "PATCH deployments/status",
        "POST events",
        "PUT leases",
    ] {
        assert!(hub.contains(expected), "{expected} is not among {hub:?}");
    }
    let member = names(Actor::Agent);
    for expected in
        ["POST leases", "PUT leases", "PATCH configmaps", "PATCH deployments", "DELETE deployments"]
    {
        assert!(member.contains(expected), "{expected} is not among {member:?}");
    }
}

#[test]
fn a_controller_that_dies_before_any_write_is_followed_by_one_that_goes_on() {
    let writes = dies_everywhere(&Who::Controller(1), false);
    let counted: usize = sites(Actor::Controller)
        .iter()
        .filter(|(site, _)| !site.ends_with(" leases"))
        .map(|(_, count)| count)
        .sum();
    // Writes to history are not among the hub's.
    assert!(writes as usize > counted, "{writes} deaths, {counted} writes to the hub");
}

#[test]
fn a_controller_that_dies_after_any_write_is_followed_by_one_that_goes_on() {
    dies_everywhere(&Who::Controller(1), true);
}

#[test]
fn a_controller_that_dies_at_its_lease_is_followed_by_one_that_goes_on() {
    dies_at_its_lease(&Who::Controller(1));
}

#[test]
fn an_agent_that_dies_at_any_write_is_followed_by_one_that_goes_on() {
    for after in [false, true] {
        let writes = dies_everywhere(&agent(), after);
        let counted: usize = sites(Actor::Agent)
            .iter()
            .filter(|(site, _)| !site.ends_with(" leases"))
            .map(|(_, count)| count)
            .sum();
        assert_eq!(writes as usize, counted, "deaths and writes");
    }
    dies_at_its_lease(&agent());
}

/// The restarted process crashes as well, at its first writes.
#[test]
fn who_goes_on_after_a_death_may_die_too() {
    for who in [Who::Controller(1), agent()] {
        for nth in [1, 2, 3, 5] {
            for (after, second) in [(false, 1), (true, 1), (true, 2)] {
                let next = Fuse { site: None, nth: second, after: !after };
                let deaths = dies(&who, Fuse { site: None, nth, after }, Some(next));
                assert!(deaths > 0, "nobody died");
            }
        }
    }
}
