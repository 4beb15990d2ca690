//! The first division of a workload that runs nowhere, under topologySpreadConstraints. Only the first candidates of each
//! group of domains can get a replica: the division examines those, with the same result as for all of them.

use super::first::{Contender, WeightAndCap, break_ties, keep_first};
use super::input::{Division, DivisionInput, Ties};
use super::limits::{Limits, Skew};
use std::sync::Arc;

/// Most combinations of domains. More of them have about one candidate each, so that none could be left out.
const MOST_CELLS: usize = 1 << 14;

/// The candidates of a first division, ordered by name.
#[derive(Debug, Clone, Copy)]
pub struct Candidates<'a> {
    /// Row of each candidate.
    pub rows: &'a [u32],
    /// Tie-break ranks.
    pub ties: &'a Ties,
    /// The constraints; domains by row.
    pub skews: &'a [Skew],
}

/// Divides `desired` replicas over the candidates that can get one. `division` divides over some candidates, given as the
/// input and their indices. `None` if all candidates must be examined.
pub fn divide(
    candidates: Candidates<'_>,
    claim: impl Fn(usize) -> WeightAndCap,
    more: impl Fn(usize) -> Option<i64>,
    desired: i64,
    division: impl FnOnce(&DivisionInput, &[usize]) -> Division,
) -> Option<Division> {
    let who = contenders(candidates, claim, desired)?;
    let of = |skew: &Skew| -> Arc<[u32]> {
        who.iter().map(|(_, at, _)| skew.of[candidates.rows[*at as usize] as usize]).collect()
    };
    let skews = candidates.skews.iter().map(|skew| Skew { of: of(skew), ..skew.clone() });
    let input = DivisionInput {
        seats: vec![0; who.len()],
        more: who.iter().map(|(_, at, _)| more(*at as usize)).collect(),
        frozen: vec![false; who.len()],
        ties: Ties::Given(who.iter().map(|(_, _, tie)| tie.unwrap_or(0)).collect()),
        limits: Limits { skews: skews.collect(), ..Limits::default() },
    };
    let who: Vec<usize> = who.iter().map(|(_, at, _)| *at as usize).collect();
    let part = division(&input, &who);
    let mut seats = vec![0; candidates.rows.len()];
    who.iter().zip(&part.seats).for_each(|(at, replicas)| seats[*at] = *replicas);
    Some(Division { seats, ..part })
}

/// The candidates that can get one of `desired` replicas, ascending.
///
/// Candidates with the same domains are blocked together, so that each of them gets its first replica before any that
/// follows it. One more than can get a replica is kept, so that no domain becomes full that was not.
fn contenders(
    candidates: Candidates<'_>,
    claim: impl Fn(usize) -> WeightAndCap,
    desired: i64,
) -> Option<Vec<Contender>> {
    let Candidates { rows, ties, skews } = candidates;
    let cells = skews.iter().try_fold(1_usize, |cells, skew| {
        cells.checked_mul(skew.counts.len() + 1).filter(|cells| *cells <= MOST_CELLS)
    })?;
    let domain = |skew: &Skew, row: u32| (skew.of[row as usize] as usize).min(skew.counts.len());
    let mut all: Vec<(u32, Contender)> = Vec::with_capacity(rows.len());
    let mut rooms: Vec<Vec<i64>> =
        skews.iter().map(|skew| vec![0; skew.counts.len() + 1]).collect();
    let mut ends = vec![0_u32; cells];
    for (index, row) in rows.iter().enumerate() {
        let WeightAndCap { weight, cap } = claim(index);
        if cap <= 0 {
            continue;
        }
        if weight == 0 {
            // It gets no replica, but keeps its domain from being full.
            return None;
        }
        let mut cell = 0;
        for (skew, room) in skews.iter().zip(&mut rooms) {
            let domain = domain(skew, *row);
            cell = cell * room.len() + domain;
            room[domain] = room[domain].saturating_add(cap);
        }
        ends[cell] += 1;
        all.push((cell as u32, (weight, index as u32, None)));
    }
    let mut by_cell = sorted_by_cell(&all, &mut ends);
    let alone = skews.len() == 1;
    let limits: Vec<Vec<i64>> =
        skews.iter().zip(&rooms).map(|(skew, room)| most(skew, room, alone, desired)).collect();
    let (mut start, mut kept) = (0, 0);
    for end in ends.into_iter().map(|end| end as usize) {
        if end == start {
            continue;
        }
        let row = rows[by_cell[start].1 as usize];
        let of_domain = |(skew, most): (&Skew, &Vec<i64>)| most[domain(skew, row)];
        let most = skews.iter().zip(&limits).map(of_domain).min().unwrap_or(desired);
        let most = usize::try_from(most).unwrap_or(0).saturating_add(1);
        for at in start..start + keep_first(&mut by_cell[start..end], most, ties) {
            by_cell[kept] = by_cell[at];
            kept += 1;
        }
        start = end;
    }
    by_cell.truncate(kept);
    break_ties(&mut by_cell, ties);
    Some(by_cell)
}

/// The contenders in the order of their cells. `ends`: how many each cell has; afterwards where it ends.
fn sorted_by_cell(all: &[(u32, Contender)], ends: &mut [u32]) -> Vec<Contender> {
    let mut end = 0;
    for size in ends.iter_mut() {
        // Where the cell begins. It moves on with each of its contenders.
        (*size, end) = (end, end + *size);
    }
    let mut sorted = vec![(0, 0, None); all.len()];
    for (cell, contender) in all {
        let at = &mut ends[*cell as usize];
        sorted[*at as usize] = *contender;
        *at += 1;
    }
    sorted
}

/// Most replicas that the candidates of each domain can get, and at the end those without a domain. `room`: how many fit
/// there.
fn most(skew: &Skew, room: &[i64], alone: bool, desired: i64) -> Vec<i64> {
    let domains = skew.counts.len();
    let any = || vec![desired; domains + 1];
    // A domain without room does not count for the minimum, unless `count_full`.
    let counted: Vec<usize> =
        (0..domains).filter(|domain| skew.count_full || room[*domain] > 0).collect();
    if counted.is_empty() {
        return any();
    }
    // No counted domain becomes full, so that the minimum stays that of all of them.
    let roomy = counted.iter().all(|domain| room[*domain] > desired);
    // A soft rule yields when it blocks everything. It never does if the emptiest domain always has room.
    let holds = if skew.hard { skew.count_full || roomy } else { alone && roomy && !skew.zero };
    if !holds {
        return any();
    }
    // The minimum is at most the mean once all are placed, and no domain gets further above it than maxSkew.
    let sum = counted.iter().map(|domain| skew.counts[*domain]).fold(desired, i64::saturating_add);
    let minimum = if skew.zero { 0 } else { sum / counted.len() as i64 };
    let highest = minimum.saturating_add(skew.max);
    let most = |count: &i64| highest.saturating_sub(*count).clamp(0, desired);
    skew.counts.iter().map(most).chain([0]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::divide::input::UNBOUNDED;
    use crate::divide::limits::NONE;
    use crate::divide::{Start, dynamic_weight, static_weight};
    use crate::hash::splitmix64;

    #[test]
    fn the_first_of_each_domain_get_what_they_get_if_all_candidates_are_examined() {
        let mut left_out = 0;
        for seed in 0..20_000_u64 {
            let random = |at: u64, below: u64| splitmix64(seed * 1_000_003 + at) % below;
            let n = 1 + random(0, 60);
            let skew = |which: u64| {
                let at = 10_000 * (which + 1);
                let domains = 1 + random(at, 6);
                let of = |index: u64| match random(at + 100 + index, 20) {
                    0 => NONE,
                    domain => (domain % domains) as u32,
                };
                Skew {
                    max: 1 + random(at + 1, 3) as i64,
                    hard: random(at + 2, 3) > 0,
                    zero: random(at + 3, 8) == 0,
                    count_full: random(at + 4, 2) == 0,
                    of: (0..n).map(of).collect(),
                    counts: (0..domains).map(|d| random(at + 10 + d, 4) as i64 / 2).collect(),
                    ..Skew::default()
                }
            };
            let skews: Vec<Skew> = (0..1 + random(1, 2)).map(skew).collect();
            let most = 1 + random(2, 40);
            let more: Vec<Option<i64>> = (0..n)
                .map(|at| (random(at + 300, 9) > 0).then(|| random(at + 400, most) as i64))
                .collect();
            let weights: Vec<u64> = (0..n).map(|at| 1 + random(at + 500, 3)).collect();
            let ties = Ties::Given((0..n).map(|at| random(at + 600, 5)).collect());
            let desired = random(3, 1 + n / 2) as i64;
            let rows: Vec<u32> = (0..n as u32).collect();
            let candidates = Candidates { rows: &rows, ties: &ties, skews: &skews };
            let input = DivisionInput {
                seats: vec![0; rows.len()],
                more: more.clone(),
                frozen: vec![false; rows.len()],
                ties: ties.clone(),
                limits: Limits { skews: skews.clone(), ..Limits::default() },
            };
            let by_room = |index: usize| WeightAndCap::by_room(more[index]);
            let short = divide(
                candidates,
                by_room,
                |at| more[at],
                desired,
                |input, who| {
                    left_out += rows.len() - who.len();
                    dynamic_weight::divide(input, desired, Start::Zero)
                },
            );
            let long = dynamic_weight::divide(&input, desired, Start::Zero);
            assert_eq!(
                short,
                Some(long),
                "seed {seed}: dynamic, {desired} over {more:?}, {skews:?}"
            );
            let by_weight = |index: usize| WeightAndCap { weight: weights[index], cap: UNBOUNDED };
            let short = divide(
                candidates,
                by_weight,
                |at| more[at],
                desired,
                |input, who| {
                    let weights: Vec<u64> = who.iter().map(|at| weights[*at]).collect();
                    static_weight::divide(input, &weights, desired, Start::Zero, false)
                },
            );
            let long = static_weight::divide(&input, &weights, desired, Start::Zero, false);
            assert_eq!(short, Some(long), "seed {seed}: {desired} by {weights:?}, {skews:?}");
        }
        assert!(left_out > 100_000, "only {left_out} candidates were left out");
    }
}
