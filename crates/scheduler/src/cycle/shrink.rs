//! Fewer replicas need no candidate: where a decision has no result, what runs beyond what is asked for is taken back
//! all the same, by the strategy's own order. Copies of a workload follow its number where they are.

use std::sync::Arc;

use atoll_api::binding::{Mode, TargetCluster, Trigger};

use super::intent::Strategy;
use super::state::{Assignment, Cycle, Rules};
use crate::divide::claims::Claims;
use crate::divide::ground::Ties;

/// What is left of the shares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shrunk {
    /// Replicas by row, ascending.
    pub seats: Vec<(u32, i64)>,
    /// Shares on clusters that are gone.
    pub gone: Vec<TargetCluster>,
    /// Replicas that wait besides, by reason.
    pub pending: Vec<(i64, String)>,
}

/// The shares that follow the number asked for; `None` = they do already, or the profile keeps them (Karmada), or the
/// parts are what they are (Job).
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
    // What is on clusters that are gone does not run: it goes first.
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
    // Scaled to zero it stays where it ran.
    let seats = seats.filter(|(_, n)| *n > 0 || desired == 0).collect();
    Some(Shrunk { seats, gone, pending: assignment.pending })
}

fn copies(cycle: &Cycle<'_>, desired: i64) -> Option<Shrunk> {
    let targets = cycle.targets;
    let all = targets.seats.iter().map(|(_, n)| *n).chain(targets.gone.iter().map(|t| t.replicas));
    let gone = targets.gone.iter().map(|t| TargetCluster { replicas: desired, ..t.clone() });
    all.into_iter().any(|replicas| replicas != desired).then(|| Shrunk {
        seats: targets.seats.iter().map(|(row, _)| (*row, desired)).collect(),
        gone: gone.collect(),
        pending: Vec::new(),
    })
}

/// The same without a strategy, because the request cannot be read: most replicas first.
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

/// The strategy's own way down, over the targets alone, none of which may grow.
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
