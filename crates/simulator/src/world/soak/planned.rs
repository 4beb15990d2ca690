//! What is planned is what happens: after a history, the leader plans changes that users then make. Between plan and change,
//! and after the decisions, another controller may take the lead.

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_controller::{Change, Planned};
use atoll_scheduler::offline::Fate;
use serde_json::{Value, json};

use super::expect::{self, app_name};
use super::perform::Player;
use super::policies::{self, FOLLOWING};
use super::{HEARD, LIMIT, MEMBERS, draw, health};
use crate::random::Random;
use crate::world::kinds::{CHANGE_GUARD, CLUSTER, DEPLOYMENT, Kind, RESOURCE_BINDING};
use crate::world::{View, World, shares};

/// Changes after a history: each takes about as long as the rest of it.
const CHANGES: u64 = 1;
/// Makes the draws of changes differ from the history's.
const PLANS: u64 = 0x0070_6c61_6e73;
/// How long a plan is asked for: the next leader knows the members again only after some seconds.
const PLANNED: Duration = Duration::from_secs(60);

/// Until the next leader has the facts of all members: a lease ends, agents wait at most eight seconds, and send them first.
const LED: Duration = Duration::from_secs(20);

type Shares = BTreeMap<String, BTreeMap<String, i64>>;

/// What a user changes.
#[derive(Debug, Clone)]
enum Edit {
    /// A manifest is applied.
    Apply(Value),
    /// A patch is merged into an object.
    Merge(Kind, String, Value),
}

impl Edit {
    fn draw(random: &mut Random) -> Self {
        let app = random.below(draw::APPS);
        let member = format!("member{}", 1 + random.below(MEMBERS));
        match random.below(8) {
            0 | 1 => Self::Apply(expect::policy(app, random.below(1 << 32))),
            2 | 3 => {
                let patch = json!({"spec": {"replicas": random.below(12)}});
                Self::Merge(DEPLOYMENT, format!("default/{}", app_name(app)), patch)
            }
            4 => {
                let effect = if random.chance(50) { "NoExecute" } else { "NoSchedule" };
                // A toleration counts from this time.
                let taint =
                    json!({"key": "upkeep", "effect": effect, "timeAdded": "2026-01-01T00:00:00Z"});
                Self::Merge(CLUSTER, member, json!({"spec": {"taints": [taint]}}))
            }
            5 => Self::Merge(CLUSTER, member, json!({"spec": {"taints": []}})),
            6 => {
                let site = random.below(draw::SITES).to_string();
                Self::Merge(CLUSTER, member, json!({"metadata": {"labels": {expect::SITE: site}}}))
            }
            _ => Self::Apply(expect::deployment(app, 1 + random.below(9))),
        }
    }

    /// The object as the hub would store it; `None` if it does not exist.
    async fn planned(&self, world: &World) -> Option<Value> {
        match self {
            Self::Apply(object) => Some(world.hub().apply_dry(object.clone()).await),
            Self::Merge(kind, key, patch) => {
                let mut object = world.hub().merge_dry(kind, key, patch.clone()).await?;
                object["apiVersion"] = kind.api_version.into();
                object["kind"] = kind.kind.into();
                Some(object)
            }
        }
    }

    async fn make(self, world: &World) {
        match self {
            Self::Apply(object) => drop(world.hub().apply(object).await),
            Self::Merge(kind, key, patch) => {
                world.hub().merge_if_there(&kind, &key, patch).await;
            }
        }
    }
}

/// Plans changes, makes them, and compares what is committed with what was planned.
pub(super) async fn play(player: &mut Player, seed: u64) {
    let mut random = Random(seed ^ PLANS);
    for number in 0..CHANGES {
        let edit = Edit::draw(&mut random);
        let Some(object) = edit.planned(&player.world).await else { continue };
        let (from, to) = (random.chance(30), random.chance(30));
        if from {
            // The next leader gets new facts of all members. Its plan would be the same only if this leader has them, too.
            player.world.rest(health().facts + HEARD).await;
        }
        let before = player.world.read(committed);
        let plan = plan(&player.world, object).await;
        let what =
            format!("plan {number}: {edit:?}, before: {before:?}, led by another {from} {to}");
        assert!(plan.problems.is_empty(), "{what}: {:?}", plan.problems);
        if from {
            another_leads(player).await;
        }
        edit.make(&player.world).await;
        guarded(player, &plan, &what).await;
        let expected = expected(&plan, &before);
        let holds = |view: &View| same(&expected, &before, &committed(view));
        player.world.until(&what, LIMIT, holds).await;
        if to {
            another_leads(player).await;
        }
        player.world.rest(HEARD).await;
        player.world.until_settled(LIMIT).await;
        player.world.until(&what, Duration::ZERO, holds).await;
    }
}

/// What a ChangeGuard holds is approved. A guard without freezes holds what the plan said.
async fn guarded(player: &Player, plan: &Planned, what: &str) {
    let freezes = |view: &View| {
        let guard = view.hub(&CHANGE_GUARD, policies::GUARD);
        guard
            .is_object()
            .then(|| guard["spec"]["freeze"].as_array().is_some_and(|all| !all.is_empty()))
    };
    let Some(freezes) = player.world.read(freezes) else { return };
    if plan.held_by.is_some() && !freezes {
        let waits = |view: &View| match policies::nothing_waits(view) {
            Ok(()) => Err("nothing waits for the guard".to_owned()),
            Err(_) => Ok(()),
        };
        player.world.until(what, LIMIT, waits).await;
    }
    player.world.rest(HEARD).await;
    player.release(LIMIT * 3).await;
}

/// The leader's plan, as soon as there is a leader.
async fn plan(world: &World, object: Value) -> Planned {
    let asked = async {
        loop {
            for planner in world.planners() {
                if let Ok(base) = planner.base().await {
                    let change = Change { objects: vec![object.clone()], ..Change::default() };
                    match base.plan(change).await {
                        Ok(planned) => return planned,
                        Err(error) => panic!("plan {object}: {error}"),
                    }
                }
            }
            world.rest(Duration::from_secs(1)).await;
        }
    };
    match tokio::time::timeout(PLANNED, asked).await {
        Ok(planned) => planned,
        Err(_) => panic!("no leader plans {object} within {PLANNED:?}"),
    }
}

/// The leading controller crashes and starts again, and the next leader hears from all members: a plan follows the room that
/// they report.
async fn another_leads(player: &mut Player) {
    let world = &mut player.world;
    let number = world.leaders().first().or(world.controllers().first()).copied().unwrap_or(1);
    world.crash_controller_at(number).await;
    world.start_controller_at(number);
    world.rest(LED).await;
}

/// The shares of all bindings.
fn committed(view: &View) -> Shares {
    let all = view.all("hub", &RESOURCE_BINDING);
    all.map(|(key, binding)| (key.clone(), shares(binding))).collect()
}

/// The shares that a plan leads to.
fn expected(plan: &Planned, before: &Shares) -> Shares {
    let mut all = before.clone();
    for answer in &plan.after.answers {
        let key = format!("default/{}", answer.object.binding().name());
        let shares = match &answer.fate {
            Fate::Decided(decision) => decision.clusters(),
            // Where it is needed is in the bindings that need it.
            Fate::Attached(_) => &[],
            Fate::NotClaimed(_) | Fate::Unusable(_) => continue,
        };
        all.insert(key, shares.iter().map(|one| (one.name.clone(), one.replicas)).collect());
    }
    all
}

fn same(expected: &Shares, before: &Shares, after: &Shares) -> Result<(), String> {
    // Members set its numbers themselves.
    let follows = format!("default/{}-deployment", app_name(FOLLOWING));
    for (key, shares) in expected.iter().filter(|(key, _)| **key != follows) {
        let none = BTreeMap::new();
        let now = after.get(key).unwrap_or(&none);
        // Where members are equal, the uid of the workload decides, and a new one does not have it yet.
        let fits = match before.contains_key(key) {
            true => now == shares,
            false => amounts(now) == amounts(shares),
        };
        if !fits {
            return Err(format!("{key}: planned {shares:?}, committed {now:?}"));
        }
    }
    match after.keys().find(|key| !expected.contains_key(*key)) {
        Some(key) => Err(format!("{key} is not in the plan")),
        None => Ok(()),
    }
}

/// The shares without the members.
fn amounts(on: &BTreeMap<String, i64>) -> Vec<i64> {
    let mut amounts: Vec<i64> = on.values().copied().collect();
    amounts.sort_unstable();
    amounts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(key: &str, on: &[(&str, i64)]) -> Shares {
        let shares = on.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        [(format!("default/{key}"), shares)].into()
    }

    #[test]
    fn what_was_not_planned_is_found() {
        let (none, a) = (Shares::new(), of("a-deployment", &[("member1", 2), ("member2", 1)]));
        let b = of("a-deployment", &[("member1", 1), ("member2", 2)]);
        assert_eq!(same(&a, &a, &a), Ok(()));
        assert!(same(&a, &a, &b).unwrap_err().contains("planned"));
        assert_eq!(same(&a, &none, &b), Ok(()), "a new workload on equal members");
        assert!(same(&a, &none, &none).is_err());
        assert!(same(&none, &none, &a).unwrap_err().contains("not in the plan"));
    }
}
