//! Scaling down without candidates: if a decision has no result, surplus replicas are still removed, in the strategy's
//! order. Duplicated workloads follow the requested number on their current targets.

use std::sync::Arc;

use atoll_api::binding::{Mode, TargetCluster, Trigger};

use super::intent::Strategy;
use super::state::{Assignment, Cycle, Rules};
use crate::divide::claims::Claims;
use crate::divide::input::Ties;

/// The shares after scaling down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shrunk {
    /// Replicas by row, ascending.
    pub seats: Vec<(u32, i64)>,
    /// Shares on clusters that are no longer members.
    pub gone: Vec<TargetCluster>,
    /// Pending replicas, by reason.
    pub pending: Vec<(i64, String)>,
}

/// The shares for the desired number. `None` if they already match, or must not change: profiles with Karmada's rules
/// keep them, and the parts of a Job are fixed.
#[must_use]
pub fn to_desired(cycle: &mut Cycle<'_>) -> Option<Shrunk> {
    let desired = cycle.intent.desired?;
    if matches!(cycle.intent.strategy, Strategy::Duplicated) && !cycle.as_karmada() {
        return copies(cycle, desired);
    }
    let divides = cycle.intent.strategy.divides() && !cycle.divides_once() && !cycle.as_karmada();
    let mut over = cycle.targets.total().saturating_sub(desired);
    if !divides || over <= 0 {
        return None;
    }
    // Replicas on clusters that are no longer members do not run, so they go first.
    let mut gone = cycle.targets.gone.clone();
    for target in gone.iter_mut().rev() {
        let fewer = target.replicas.clamp(0, over);
        target.replicas -= fewer;
        over -= fewer;
    }
    gone.retain(|target| target.replicas > 0);
    if over == 0 {
        return Some(Shrunk { seats: cycle.targets.seats.clone(), gone, pending: Vec::new() });
    }
    let before: Vec<i64> = cycle.targets.seats.iter().map(|(_, seats)| *seats).collect();
    let assignment = by_strategy(cycle, desired, &before).unwrap_or_else(|| {
        let claims = Claims::down(&vec![1; before.len()], cycle.ties(&rows(cycle)));
        Assignment { seats: fewer(&before, over, &claims), ..Assignment::default() }
    });
    let rows = rows(cycle);
    let seats = rows.iter().copied().zip(assignment.seats);
    // A workload that is scaled to zero keeps its targets.
    let seats = seats.filter(|(_, n)| *n > 0 || desired == 0).collect();
    Some(Shrunk { seats, gone, pending: assignment.pending })
}

fn copies(cycle: &Cycle<'_>, desired: i64) -> Option<Shrunk> {
    let targets = cycle.targets;
    let all = targets.seats.iter().map(|(_, n)| *n).chain(targets.gone.iter().map(|t| t.replicas));
    // A quota may not allow growth.
    let count = (targets.seats.len() + targets.gone.len()) as i64;
    let quota = cycle.intent.quota.as_ref();
    let grows = quota.is_none_or(|quota| quota.has_room_for(count.saturating_mul(desired)));
    let follow = |replicas: i64| if grows { desired } else { replicas.min(desired) };
    let gone =
        targets.gone.iter().map(|t| TargetCluster { replicas: follow(t.replicas), ..t.clone() });
    all.into_iter().any(|replicas| replicas != follow(replicas)).then(|| Shrunk {
        seats: targets.seats.iter().map(|(row, n)| (*row, follow(*n))).collect(),
        gone: gone.collect(),
        pending: Vec::new(),
    })
}

/// The shares for the desired number without a strategy, for an invalid request: clusters with the most replicas shrink
/// first.
#[must_use]
pub fn shares(before: &[TargetCluster], desired: i64) -> Vec<TargetCluster> {
    let seats: Vec<i64> = before.iter().map(|target| target.replicas.max(0)).collect();
    let running = seats.iter().fold(0_i64, |sum, seats| sum.saturating_add(*seats));
    let claims = Claims::down(&vec![1; seats.len()], Ties::Same);
    let left = fewer(&seats, running.saturating_sub(desired), &claims);
    let share = |(target, replicas): (&TargetCluster, i64)| TargetCluster {
        name: target.name.clone(),
        replicas,
    };
    let stays = |target: &TargetCluster| target.replicas > 0 || desired == 0;
    before.iter().zip(left).map(share).filter(stays).collect()
}

fn rows(cycle: &Cycle<'_>) -> Arc<[u32]> {
    cycle.targets.seats.iter().map(|(row, _)| *row).collect()
}

fn fewer(before: &[i64], over: i64, claims: &Claims) -> Vec<i64> {
    let mut seats = before.to_vec();
    let all: Vec<usize> = (0..seats.len()).collect();
    claims.take_back(&mut seats, &vec![0; before.len()], &all, over);
    seats
}

/// Scales down by the strategy, over the current targets only, none of which may grow.
fn by_strategy(cycle: &mut Cycle<'_>, desired: i64, before: &[i64]) -> Option<Assignment> {
    (cycle.trigger, cycle.mode) = (Trigger::Scale, Mode::Steady);
    cycle.candidates = rows(cycle);
    cycle.kept = cycle.targets.rows.clone();
    cycle.rules = Rules::default();
    cycle.assignment = None;
    super::assign(cycle).ok()?;
    let assignment = cycle.assignment.take().filter(|a| a.refused.is_none())?;
    let waits = assignment.pending.iter().map(|(count, _)| *count);
    let total = assignment.seats.iter().copied().chain(waits).fold(0, i64::saturating_add);
    let shrinks = assignment.seats.len() == before.len()
        && assignment.seats.iter().zip(before).all(|(after, before)| after <= before);
    (total == desired && shrinks).then_some(assignment)
}
