//! The first division of a workload that runs nowhere, without rules on groups. The result equals that of the full
//! division, but only candidates that can get a replica are examined. In a large fleet those are few.

use super::input::{Division, Ties, UNBOUNDED};
use super::webster::{self, Party};
use super::{pending, to_i64, to_u64};

/// The claim of a candidate.
#[derive(Debug, Clone, Copy)]
pub struct WeightAndCap {
    /// Weight of its seats. 0 = it gets none.
    pub weight: u64,
    /// Maximum replicas.
    pub cap: i64,
}

impl WeightAndCap {
    /// The claim by capacity. Unknown capacity weighs one replica and sets no limit.
    #[must_use]
    pub fn by_room(more: Option<i64>) -> Self {
        match more {
            Some(more) => Self { weight: to_u64(more), cap: more },
            None => Self { weight: 1, cap: UNBOUNDED },
        }
    }
}

/// Scans over all candidates before they are sorted. Usually one cluster has room for all replicas.
const UNSORTED: u32 = 4;

/// A candidate that can get a replica: its weight, its index, and its tie-break rank once computed.
pub(super) type Contender = (u64, u32, Option<u64>);

/// Divides `desired` replicas by Webster over the claims of `n` candidates. `why` gives the reason for replicas that
/// are not placed.
pub fn divide(
    n: usize,
    claim: impl Fn(usize) -> WeightAndCap,
    ties: &Ties,
    desired: i64,
    why: impl FnOnce() -> String,
) -> Division {
    let mut who: Vec<Contender> = Vec::with_capacity(n);
    for index in 0..n {
        let WeightAndCap { weight, cap } = claim(index);
        if weight > 0 && cap > 0 {
            who.push((weight, index as u32, None));
        }
    }
    // A candidate behind `desired` others gets nothing: all their first seats precede its own.
    let first = keep_first(&mut who, usize::try_from(desired).unwrap_or(0), ties);
    who.truncate(first);
    deal(n, who, claim, ties, desired, why)
}

/// Divides over the shortest prefix of the candidates that holds `desired`: most room first, unknown room last.
pub fn aggregate(
    n: usize,
    more: impl Fn(usize) -> Option<i64>,
    ties: &Ties,
    desired: i64,
    why: impl FnOnce() -> String,
) -> Division {
    let mut rest: Vec<Contender> = Vec::with_capacity(n);
    for index in 0..n {
        // Unknown room sorts after the smallest room.
        match more(index) {
            None => rest.push((0, index as u32, None)),
            Some(more) if more > 0 => rest.push((to_u64(more), index as u32, None)),
            Some(_) => {}
        }
    }
    let (mut prefix, mut held) = (Vec::new(), 0_i64);
    let mut levels = 0;
    while held < desired && !rest.is_empty() {
        // Handles all candidates with the most room at once.
        let mut level: Vec<Contender> = Vec::new();
        levels += 1;
        if levels == UNSORTED {
            rest.sort_unstable();
        }
        let most = if levels < UNSORTED {
            let most = rest.iter().map(|(room, ..)| *room).max().unwrap_or(0);
            rest.retain(|contender| {
                let best = contender.0 == most;
                if best {
                    level.push(*contender);
                }
                !best
            });
            most
        } else {
            let most = rest.last().map_or(0, |(room, ..)| *room);
            level = rest.split_off(rest.partition_point(|(room, ..)| *room < most));
            most
        };
        let each = if most == 0 { i64::MAX } else { to_i64(most) };
        let missing = desired - held;
        let needed = missing / each + i64::from(missing % each > 0);
        let first = keep_first(&mut level, usize::try_from(needed).unwrap_or(usize::MAX), ties);
        level.truncate(first);
        held = held.saturating_add(each.saturating_mul(level.len() as i64));
        prefix.append(&mut level);
    }
    let claim = |index| WeightAndCap::by_room(more(index));
    prefix.iter_mut().for_each(|(weight, index, _)| *weight = claim(*index as usize).weight);
    deal(n, prefix, claim, ties, desired, why)
}

/// Moves the first `most` contenders, by weight, then by tie-break rank, to the front. Returns their number.
pub(super) fn keep_first(who: &mut [Contender], most: usize, ties: &Ties) -> usize {
    if most == 0 || most >= who.len() {
        return most.min(who.len());
    }
    let (_, last, _) = who.select_nth_unstable_by(most - 1, |a, b| b.0.cmp(&a.0));
    let least = last.0;
    // Those that weigh as much as the last one are moved together, between the heavier and the lighter ones.
    let (mut start, mut end) = (0, most);
    for at in 0..most {
        if who[at].0 > least {
            who.swap(start, at);
            start += 1;
        }
    }
    for at in most..who.len() {
        if who[at].0 == least {
            who.swap(end, at);
            end += 1;
        }
    }
    if end > most {
        let equals = &mut who[start..end];
        equals.iter_mut().for_each(|(_, at, tie)| *tie = Some(ties.get(*at as usize)));
        equals.select_nth_unstable_by(most - start - 1, |a, b| b.2.cmp(&a.2).then(a.1.cmp(&b.1)));
    }
    most
}

/// Computes the tie-break ranks that are needed: those of contenders with the same weight. Then sorts by index.
pub(super) fn break_ties(who: &mut [Contender], ties: &Ties) {
    who.sort_unstable_by_key(|(weight, ..)| *weight);
    for run in who.chunk_by_mut(|a, b| a.0 == b.0).filter(|run| run.len() > 1) {
        for (_, index, tie) in run {
            tie.get_or_insert_with(|| ties.get(*index as usize));
        }
    }
    // The order of the candidates breaks the remaining ties.
    who.sort_unstable_by_key(|(_, index, _)| *index);
}

fn deal(
    n: usize,
    mut who: Vec<Contender>,
    claim: impl Fn(usize) -> WeightAndCap,
    ties: &Ties,
    desired: i64,
    why: impl FnOnce() -> String,
) -> Division {
    break_ties(&mut who, ties);
    let party = |(weight, index, tie): &Contender| Party {
        weight: *weight,
        seats: 0,
        floor: 0,
        cap: to_u64(claim(*index as usize).cap),
        tie: tie.unwrap_or(0),
    };
    let mut parties: Vec<Party> = who.iter().map(party).collect();
    let left = webster::deal(&mut parties, to_u64(desired));
    let mut seats = vec![0; n];
    for ((_, index, _), party) in who.iter().zip(&parties) {
        seats[*index as usize] = to_i64(party.seats);
    }
    Division { seats, pending: pending(to_i64(left), why), refused: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::divide::input::DivisionInput;
    use crate::divide::{Start, aggregated, dynamic_weight, static_weight};
    use crate::hash::splitmix64;

    #[test]
    fn the_short_way_is_the_long_way() {
        for seed in 0..4_000_u64 {
            let random = |at: u64, below: u64| splitmix64(seed * 1_000_003 + at) % below;
            let n = 1 + random(0, 40) as usize;
            let most = 1 + random(1, 60);
            let more: Vec<Option<i64>> = (0..n as u64)
                .map(|at| (random(at + 100, 9) > 0).then(|| random(at + 200, most) as i64))
                .collect();
            let weights: Vec<u64> = (0..n as u64).map(|at| random(at + 300, 4)).collect();
            let ties = Ties::Given((0..n as u64).map(|at| random(at + 400, 5)).collect());
            let desired = random(2, 1 + 2 * n as u64) as i64;
            let input = DivisionInput {
                seats: vec![0; n],
                more: more.clone(),
                frozen: vec![false; n],
                ties: ties.clone(),
                ..DivisionInput::default()
            };
            let why = || "no candidate has room for one more".to_owned();
            let room = |index: usize| more[index];
            let short = divide(n, |index| WeightAndCap::by_room(more[index]), &ties, desired, why);
            let long = dynamic_weight::divide(&input, desired, Start::Running);
            assert_eq!(short, long, "seed {seed}: dynamic, {desired} over {more:?}");
            let short = aggregate(n, room, &ties, desired, why);
            let tie = |index| ties.get(index);
            let long = aggregated::divide(&input, &tie, desired, Start::Running);
            assert_eq!(short, long, "seed {seed}: aggregated, {desired} over {more:?}");
            let claim = |index: usize| WeightAndCap {
                weight: weights[index],
                cap: more[index].unwrap_or(UNBOUNDED),
            };
            let short = divide(n, claim, &ties, desired, why);
            let long = static_weight::divide(&input, &weights, desired, Start::Zero, true);
            assert_eq!(short, long, "seed {seed}: static, {desired} by {weights:?} in {more:?}");
        }
    }
}
