//! The status of ChangeGuards.

use std::collections::BTreeSet;

use atoll_api::change_guard::{
    ChangeGuardStatus, HeldPlan, MAX_CHANGES, MAX_HELD, MAX_RELEASED, PlannedChange, ReleasedPlan,
};
use atoll_api::conditions::{self, ACCEPTED, Status};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::room;
use super::waiting::{Guards, State, Waiting};
use crate::index::Index;
use crate::index::guard_rules::Guard;
use crate::index::key::BindingKey;

/// How long approvals stay visible.
const SHOWN: SignedDuration = SignedDuration::from_hours(24);
/// Most causes of a plan that are listed.
const MOST_CAUSES: usize = 5;

/// The desired status of a guard.
#[must_use]
pub(crate) fn status(
    index: &Index,
    guards: &Guards,
    name: &str,
    guard: &Guard,
    now: Timestamp,
) -> ChangeGuardStatus {
    let before = guard.object.status.clone().unwrap_or_default();
    let generation = guard.object.metadata.generation;
    let live = index.live_plans();
    let mut conditions = before.conditions;
    let (holds, reason, message) = match &guard.rules {
        Ok(_) => (Status::True, "Accepted", ""),
        Err(problem) => (Status::False, "Invalid", problem.as_str()),
    };
    conditions::set(&mut conditions, ACCEPTED, holds, reason, message, generation, now);
    let (moved_replicas, moved_workloads) = room::used(guard, ("", now), &live, now, (0, 0));
    let frozen = guard.rules.as_ref().ok().and_then(|rules| rules.frozen_until(now));
    let mut status = ChangeGuardStatus {
        observed_generation: generation,
        conditions,
        frozen_until: frozen.map(Time),
        moved_replicas,
        moved_workloads,
        released: released(guards, guard, &live, now),
        ..ChangeGuardStatus::default()
    };
    for (id, plan, members) in guards.held_plans() {
        let own: Vec<&Waiting> = members
            .iter()
            .map(|(_, waiting)| *waiting)
            .filter(|waiting| waiting.guards.contains(name))
            .collect();
        if own.is_empty() {
            continue;
        }
        status.held_workloads += own.len() as i64;
        status.held_replicas += moved(own.iter().copied());
        if let (State::Held(why), true) = (&plan.state, status.held.len() < MAX_HELD) {
            status.held.push(held(index, (id, plan.since), why, &members));
        }
    }
    status
}

fn moved<'a>(all: impl Iterator<Item = &'a Waiting>) -> i64 {
    all.fold(0, |sum: i64, waiting| sum.saturating_add(waiting.change.replicas))
}

fn held(
    index: &Index,
    (id, since): (&str, Timestamp),
    why: &str,
    members: &[(&BindingKey, &Waiting)],
) -> HeldPlan {
    let causes: BTreeSet<String> = members
        .iter()
        .map(|(_, waiting)| {
            let of = &waiting.cause;
            let namespace = of.namespace.as_ref().map(|name| format!("{name}/"));
            format!("{} {}{}", of.kind, namespace.unwrap_or_default(), of.name)
        })
        .collect();
    let change = |(key, waiting): &(&BindingKey, &Waiting)| PlannedChange {
        workload: index
            .binding(key)
            .map_or_else(|| key.to_string(), |binding| binding.template.to_string()),
        change: waiting.change.text.clone(),
    };
    HeldPlan {
        plan: id.to_owned(),
        reason: why.to_owned(),
        workloads: members.len() as i64,
        replicas: moved(members.iter().map(|(_, waiting)| *waiting)),
        since: Time(since),
        causes: causes.into_iter().take(MOST_CAUSES).collect(),
        changes: members.iter().take(MAX_CHANGES).map(change).collect(),
    }
}

/// The releases that are still needed: of plans that are not finished, those that count, and approvals of the last day.
fn released(
    guards: &Guards,
    guard: &Guard,
    live: &BTreeSet<String>,
    now: Timestamp,
) -> Vec<ReleasedPlan> {
    let counted: Vec<&ReleasedPlan> = guard.counted(live, now).collect();
    let needed = |one: &&ReleasedPlan| match &one.by {
        _ if live.contains(&one.plan) || guards.is_live(&one.plan) => true,
        None => counted.contains(one),
        Some(_) => now.duration_since(one.at.0) < SHOWN,
    };
    // A move counts from when it was made, which may be later than its release.
    let made = |one: &ReleasedPlan| {
        let last = guards.finished.get(&one.plan).filter(|at| one.by.is_none() && **at > one.at.0);
        ReleasedPlan { at: last.map_or_else(|| one.at.clone(), |at| Time(*at)), ..one.clone() }
    };
    let mut all: Vec<ReleasedPlan> = guard.released().iter().filter(needed).map(made).collect();
    let too_many = all.len().saturating_sub(MAX_RELEASED);
    all.drain(..too_many);
    all
}
