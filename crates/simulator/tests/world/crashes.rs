//! A process dies at each of its durable writes, before and after it, and the next one goes on.
//!
//! Every write of a life is counted, from the start of the process on: the fuse is laid at the first, the second and so on,
//! until a life ends in which nobody died. Renewals of Leases go on for ever and are looked at by kind. A write is whole or
//! it is not there, as Kubernetes and databases have it; what is half there is damaged in random histories.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use atoll_simulator::world::kinds::{DEPLOYMENT, PROPAGATION_POLICY};
use atoll_simulator::world::{Actor, Fuse, Identities, Mark, View, Who, World, simulate};
use serde_json::json;

use crate::scenario::{self, LIMIT, NGINX};

/// How long a process is away that died.
const AWAY: Duration = Duration::from_secs(3);
/// Writes of a Lease that a process dies at, each in a run of its own.
const LEASES: u32 = 2;
/// More writes than any of these lives has.
const MOST: u32 = 400;

async fn world() -> World {
    let world = World::builder().seed(21).members(2).identities(Identities::Known).build().await;
    scenario::apply(&world, scenario::FIRST).await;
    world
}

/// A workload comes, is scaled, and goes; the process that dies at its fuse comes back after a moment, and dies at the next
/// one again. How many died.
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

/// 2026-01-01 and half an hour: far more than any of these lives takes.
const END: i64 = 1_767_225_600 + 1_800;

/// Kinds of writes in a life without faults, with how often each is done, by who does them.
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

/// The process starts: the controller anew, the agent on a member that has lost everything.
async fn begin(world: &mut World, who: &Who) {
    match who {
        Who::Controller(number) => {
            world.crash_controller_at(*number).await;
            world.start_controller_at(*number);
        }
        Who::Agent(name) => world.restore(name, true).await,
    }
}

/// A life with a death at this fuse, and at the next one. How many died.
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

/// A death at every write of a life; at how many.
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

/// What a life writes, by kind, is what deaths are counted over.
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
    // Those to history are none of the hub's.
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

/// What goes on after a death dies as well, at its first writes.
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
