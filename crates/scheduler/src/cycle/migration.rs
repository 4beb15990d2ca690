//! Moves replicas that stay unschedulable to clusters with room (trigger `Unschedulable`, plugin `AutoMigration`). Only
//! those replicas move, only as many as others have known room for, and the sum stays the same.

use std::mem;

use atoll_api::binding::{FullCluster, Mode, Trigger};
use atoll_api::placement::RescheduleOn;
use atoll_api::text::counted;
use atoll_api::workload_spread::ScheduleStrategyType;
use jiff::Timestamp;

use super::Failure;
use super::intent::Strategy;
use super::state::{Cycle, Tried};
use super::triggers::AllowedTriggers;
use crate::divide::input::DivisionInput;
use crate::plugins::auto_migration;
use atoll_decision::{Decision, Shares};

/// Most divisions of one decision. The first says how many replicas find room; the second usually places exactly those.
const MAX_ROUNDS: usize = 4;

/// Why the strategy does not move unschedulable replicas, if so.
fn unsuitable(cycle: &Cycle<'_>) -> Option<&'static str> {
    match &cycle.intent.strategy {
        Strategy::Copies | Strategy::WholeSet | Strategy::Duplicated => {
            Some("only divided replicas move")
        }
        Strategy::StaticWeight(_) if !cycle.intent.respect_capacity => {
            Some("static weights ignore room without replicaScheduling.respectCapacity")
        }
        Strategy::WorkloadSpread(spread)
            if spread.spec.schedule_strategy.type_ == ScheduleStrategyType::Adaptive =>
        {
            Some("an Adaptive WorkloadSpread moves them from subset to subset itself")
        }
        _ if cycle.divides_once() => Some("the completions of a Job are divided once"),
        _ => None,
    }
}

/// What is unschedulable for too long, in words, and whether some of it can move. The filters of the term in force have
/// run.
pub fn find(cycle: &mut Cycle<'_>, allowed: &AllowedTriggers) -> Option<(String, bool)> {
    if allowed.sticky || !allowed.has(RescheduleOn::Unschedulable) {
        return None;
    }
    let late = auto_migration::late(cycle);
    let (row, count) = *late.first()?;
    let total = late.iter().map(|(_, count)| *count).fold(0, i64::saturating_add);
    let name = &cycle.snapshot.row(row as usize).name;
    let seconds = auto_migration::limit(cycle).as_secs();
    let mut what =
        format!("{name}: {} unschedulable for {seconds} s or longer", counted(count, "replica"));
    if late.len() > 1 {
        what.push_str(&format!(", {total} on {}", counted(late.len(), "cluster")));
    }
    if let Some(why) = unsuitable(cycle) {
        return Some((format!("{what}; {why}"), false));
    }
    let moves = moves(cycle);
    if moves == 0 {
        what.push_str("; no other cluster is known to have room");
    }
    Some((what, moves > 0))
}

/// Number of replicas that would move. The division stays in `tried`.
fn moves(cycle: &mut Cycle<'_>) -> i64 {
    let trigger = std::mem::replace(&mut cycle.trigger, Trigger::Unschedulable);
    let notes = cycle.notes.len();
    cycle.kept = cycle.kept(false);
    let result = super::score_and_select(cycle).and_then(|()| assign(cycle));
    let assignment = cycle.assignment.take().filter(|assignment| assignment.refused.is_none());
    cycle.trigger = trigger;
    let (groups, leaving) = (mem::take(&mut cycle.groups), mem::take(&mut cycle.leaving));
    let notes = cycle.notes.split_off(notes);
    let (Ok(()), Some(assignment)) = (result, assignment) else { return 0 };
    let moves = leaving.iter().map(|(_, count)| *count).sum();
    let (withheld, rules) = (cycle.withheld.take(), mem::take(&mut cycle.rules));
    cycle.tried = Some(Tried { assignment, withheld, rules, groups, leaving, notes });
    moves
}

/// Runs Assign so that unschedulable replicas leave, as many as find room.
pub fn assign(cycle: &mut Cycle<'_>) -> Result<(), Failure> {
    cycle.leaving = auto_migration::late(cycle);
    let (rules, notes) = (cycle.rules.clone(), cycle.notes.len());
    for round in 0..=MAX_ROUNDS {
        if round == MAX_ROUNDS {
            cycle.leaving.clear();
        }
        cycle.rules = rules.clone();
        cycle.notes.truncate(notes);
        cycle.groups.clear();
        super::assign(cycle)?;
        let homeless = homeless(cycle);
        if homeless == 0 || cycle.leaving.is_empty() {
            break;
        }
        stay(&mut cycle.leaving, homeless);
    }
    Ok(())
}

/// Lowers what leaves by this many replicas, starting with the last cluster.
fn stay(leaving: &mut Vec<(u32, i64)>, mut replicas: i64) {
    for (_, count) in leaving.iter_mut().rev() {
        let less = replicas.min(*count);
        *count -= less;
        replicas -= less;
    }
    leaving.retain(|(_, count)| *count > 0);
}

/// How many of the leaving replicas found no place. If the division did anything else than place them, all count.
fn homeless(cycle: &Cycle<'_>) -> i64 {
    let Some(assignment) = cycle.assignment.as_ref().filter(|a| a.refused.is_none()) else {
        return i64::MAX;
    };
    let (mut before, mut after) = (0_i64, 0_i64);
    let mut others_shrink = false;
    for (row, seats) in cycle.candidates.iter().zip(&assignment.seats) {
        let had = cycle.targets.on(*row as usize);
        let leaves = cycle.leaving.iter().find(|(of, _)| of == row).map_or(0, |(_, count)| *count);
        others_shrink |= *seats < had - leaves;
        before = before.saturating_add(had);
        after = after.saturating_add(*seats);
    }
    let desired = cycle.intent.desired.unwrap_or(0);
    if others_shrink && before <= desired {
        return i64::MAX;
    }
    before.min(desired).saturating_sub(after).max(0)
}

/// Takes the leaving replicas out of the input. Their clusters get none back, and clusters without figures get none: they
/// are not known to have room.
pub fn restrict(cycle: &Cycle<'_>, input: &mut DivisionInput) {
    if cycle.mode != Mode::Steady {
        return;
    }
    for more in input.more.iter_mut().filter(|more| more.is_none()) {
        *more = Some(0);
    }
    for (row, count) in &cycle.leaving {
        if let Ok(index) = cycle.candidates.binary_search(row) {
            input.seats[index] -= count;
            input.frozen[index] = true;
        }
    }
}

/// Whether unschedulable replicas stay where they are until another cluster has room.
#[must_use]
pub fn waits_for_room(cycle: &Cycle<'_>, allowed: &AllowedTriggers) -> bool {
    !allowed.sticky && unsuitable(cycle).is_none() && !auto_migration::late(cycle).is_empty()
}

/// When unschedulable replicas are late, and when clusters no longer count as full, if something waits for that.
pub fn times(cycle: &Cycle<'_>, trigger: Trigger, waits: bool) -> Vec<Timestamp> {
    let stuck = auto_migration::stuck(cycle);
    let now = cycle.request.now;
    let mut times: Vec<Timestamp> = stuck.iter().map(|(_, _, late)| *late).collect();
    if waits {
        times.extend(auto_migration::ends(cycle));
    }
    // Another trigger came first: what is late is looked at again.
    let quiet = matches!(trigger, Trigger::Avoid | Trigger::EvictionDone | Trigger::Unschedulable);
    if !quiet && times.iter().any(|at| *at <= now) {
        times.extend(now.checked_add(auto_migration::limit(cycle)).ok());
    }
    times
}

/// The clusters that count as full after a decision.
#[must_use]
pub fn full_clusters(cycle: &Cycle<'_>, after: &Shares) -> Vec<FullCluster> {
    let share = |row: u32| {
        let name = cycle.snapshot.row(row as usize).name.as_str();
        after.each().find(|(of, _)| *of == name).map_or(0, |(_, replicas)| replicas)
    };
    let left = cycle.leaving.iter().map(|(row, _)| *row);
    let left: Vec<u32> = left.filter(|row| share(*row) < cycle.targets.on(*row as usize)).collect();
    auto_migration::record(cycle, &left)
}

/// What the decision says about full clusters.
pub fn notes(cycle: &Cycle<'_>, decision: &Decision) -> Vec<String> {
    let now = cycle.request.now;
    let full = decision.full_clusters.iter().filter(|full| full.until.0 > now);
    full.map(|full| {
        format!(
            "{}: {} counts as full until {}: replicas were unschedulable there",
            auto_migration::NAME,
            full.cluster,
            full.until.0
        )
    })
    .collect()
}
