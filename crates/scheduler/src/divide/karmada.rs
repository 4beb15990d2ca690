//! Division as in Karmada (`pkg/scheduler/core/assignment.go`, `division_algorithm.go`), for profile `karmada`: static
//! weights always from zero, no partial placement, ties by name.
//!
//! There are two differences. Sums do not overflow 32 bits. Karmada's unstable sort reorders more than twelve equal
//! holders when scaling down; here they stay in the binding's order.

use atoll_api::binding::Mode;

use super::input::{Division, DivisionInput};
use super::{Start, aggregated, dynamic_weight, static_weight};
use crate::cycle::intent::Strategy;
use crate::cycle::state::{Assignment, Cycle};

/// Divides over the candidates, which are in Karmada's order of clusters.
pub fn assign(cycle: &Cycle<'_>) -> Assignment {
    let desired = cycle.intent.desired.unwrap_or(0);
    if matches!(cycle.intent.strategy, Strategy::Copies) {
        return Assignment {
            seats: vec![0; cycle.candidates.len()],
            targets: Some(vec![true; cycle.candidates.len()]),
            ..Assignment::default()
        };
    }
    let input = division_input(cycle, desired);
    let all: Vec<usize> = (0..input.len()).collect();
    let division = match &cycle.tiers {
        Some(tiers) => by_tier(cycle, &input, tiers, desired),
        None => one(cycle, &input, &all, desired),
    };
    let short = division.pending.first().map(|(_, reason)| reason.clone());
    Assignment {
        refused: division.refused.or(short),
        seats: division.seats,
        ..Assignment::default()
    }
}

/// The input in the order of the candidates. Ties are ranks by name, not indices.
fn division_input(cycle: &Cycle<'_>, desired: i64) -> DivisionInput {
    let rows = &cycle.candidates;
    DivisionInput {
        seats: rows.iter().map(|row| cycle.targets.on(*row as usize)).collect(),
        more: rows.iter().map(|row| Some(cycle.more(*row as usize).unwrap_or(desired))).collect(),
        frozen: vec![false; rows.len()],
        ties: cycle.ties(rows),
        limits: super::limits::Limits::default(),
    }
}

fn one(cycle: &Cycle<'_>, input: &DivisionInput, of: &[usize], desired: i64) -> Division {
    let start = if cycle.mode == Mode::Fresh { Start::Zero } else { Start::Running };
    match &cycle.intent.strategy {
        Strategy::Duplicated => Division { seats: vec![desired; of.len()], ..Division::default() },
        Strategy::DynamicWeight => dynamic_weight::divide(input, desired, start),
        Strategy::Aggregated => {
            let down = start == Start::Running && input.running() > desired;
            // Inverted, so that the first in order gets the greatest rank.
            let place = |at: usize| {
                let place = if down { place_before(cycle, of[at]) } else { at as u32 };
                u64::from(u32::MAX - place)
            };
            aggregated::divide(input, &place, desired, start)
        }
        Strategy::StaticWeight(rules) => {
            let mut weights = vec![u64::from(rules.is_empty()); of.len()];
            for rule in rules.iter() {
                let mut cache = cycle.cache.borrow_mut();
                let column = cache.affinity.get(cycle.snapshot, &rule.target_cluster);
                for (weight, at) in weights.iter_mut().zip(of) {
                    if column.0.pass.contains(cycle.candidates[*at] as usize) {
                        *weight = (*weight).max(u64::try_from(rule.weight).unwrap_or(0));
                    }
                }
            }
            if weights.iter().all(|weight| *weight == 0) {
                weights.fill(1);
            }
            static_weight::divide(input, &weights, desired, Start::Zero, false)
        }
        _ => Division::refuse("Karmada has no such strategy"),
    }
}

/// When scaling down, equal holders stay in the binding's order.
fn place_before(cycle: &Cycle<'_>, candidate: usize) -> u32 {
    let name = &cycle.snapshot.row(cycle.candidates[candidate] as usize).name;
    let mut before = cycle.request.previous.iter().flat_map(|previous| &previous.clusters);
    before.position(|target| *target.name == **name).map_or(u32::MAX, |at| at as u32)
}

fn by_tier(cycle: &Cycle<'_>, input: &DivisionInput, tiers: &[u32], desired: i64) -> Division {
    let mut seats = vec![0; input.len()];
    let mut left = desired;
    for tier in 0..=cycle.term.tiers.len() as u32 {
        if left == 0 {
            break;
        }
        let of: Vec<usize> =
            (0..input.len()).filter(|at| tiers[cycle.candidates[*at] as usize] == tier).collect();
        let part = input.part(&of, &seats);
        let room = (0..part.len()).fold(0_i64, |sum, at| sum.saturating_add(part.room(at)));
        let take = left.min(room);
        if take == 0 {
            continue;
        }
        let division = one(cycle, &part, &of, take);
        if division.refused.is_some() || !division.pending.is_empty() {
            return division;
        }
        for (at, value) in of.iter().zip(division.seats) {
            seats[*at] = value;
        }
        left -= take;
    }
    let pending = super::pending(left, || "no overflow tier has room for the rest".to_owned());
    Division { seats, pending, refused: None }
}
