//! Divides replicas over candidates: one file per strategy, on one engine with exact integers.

pub mod aggregated;
pub mod allocation;
pub mod bulk;
#[cfg(test)]
mod bulk_tests;
pub mod claims;
pub mod dynamic_weight;
pub mod first;
pub mod first_within;
pub mod input;
pub mod karmada;
pub mod limits;
pub mod mend;
pub mod seat_key;
pub mod static_weight;
pub mod webster;
pub mod workload_policy;
pub mod workload_spread;

use self::claims::Claims;
use self::input::{Division, DivisionInput, Ties};
use self::limits::Limits;
use self::webster::Party;

/// How a division treats running replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Keep them and deal the difference.
    Running,
    /// Divide from zero.
    Zero,
}

/// Deals `take` replicas by Webster over `weights`, on top of `seats`. Quotients do not count the seats in
/// `quotient_base`. Uses the bulk method if there are no rules on groups.
pub(crate) fn up(
    input: &DivisionInput,
    weights: &[u64],
    seats: Vec<i64>,
    caps: Vec<i64>,
    quotient_base: &[i64],
    take: i64,
) -> Dealt {
    let counted = |index: usize, seats: i64| to_u64(seats - quotient_base[index]);
    if input.limits.is_empty() {
        let who = contenders(weights, &seats, &caps, quotient_base, take);
        let mut parties: Vec<Party> = who
            .iter()
            .map(|index| Party {
                weight: weights[*index],
                seats: counted(*index, seats[*index]),
                cap: counted(*index, caps[*index].max(seats[*index])),
                floor: 0,
                tie: input.ties.get(*index),
            })
            .collect();
        let left = webster::deal(&mut parties, to_u64(take));
        let mut seats = seats;
        for (index, party) in who.into_iter().zip(parties) {
            seats[index] = to_i64(party.seats).saturating_add(quotient_base[index]);
        }
        return Dealt::new(seats, to_i64(left));
    }
    let mut allocation = allocation::Allocation::new(input, seats, caps);
    // A few seats need few ranks, many seats need each of them often.
    let ties = match usize::try_from(take) {
        Ok(few) if few < input.len() => input.ties.clone(),
        _ => Ties::Given(input.ties.all(input.len())),
    };
    let claims = Claims::up(weights, quotient_base, ties);
    let left = allocation::deal(&mut allocation, take, &claims);
    Dealt { seats: allocation.seats, left, exhausted: allocation.exhausted }
}

/// The result of dealing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dealt {
    /// Replicas by candidate.
    pub seats: Vec<i64>,
    /// Replicas that could not be placed.
    pub left: i64,
    /// Whether dealing stopped at the step limit, so that more might fit.
    pub exhausted: bool,
}

impl Dealt {
    /// A result that did not reach the step limit.
    pub(crate) fn new(seats: Vec<i64>, left: i64) -> Self {
        Self { seats, left, exhausted: false }
    }
}

/// Candidates that can get one of the next `take` seats. If quotients count no seats yet, a candidate with less weight
/// than `take` others gets none: all their first seats precede its own.
fn contenders(
    weights: &[u64],
    seats: &[i64],
    caps: &[i64],
    quotient_base: &[i64],
    take: i64,
) -> Vec<usize> {
    let fits = |index: &usize| weights[*index] > 0 && seats[*index] < caps[*index];
    let mut who: Vec<usize> = (0..weights.len()).filter(fits).collect();
    let take = usize::try_from(take).unwrap_or(0);
    let fresh = || who.iter().all(|index| seats[*index] == quotient_base[*index]);
    if (1..who.len()).contains(&take) && fresh() {
        let mut heaviest: Vec<u64> = who.iter().map(|index| weights[*index]).collect();
        let (_, least, _) = heaviest.select_nth_unstable_by(take - 1, |a, b| b.cmp(a));
        let least = *least;
        who.retain(|index| weights[*index] >= least);
    }
    who
}

/// Takes back the last `take` seats of Webster's sequence over `weights`.
pub(crate) fn down(
    input: &DivisionInput,
    weights: &[u64],
    seats: Vec<i64>,
    caps: Vec<i64>,
    take: i64,
) -> Vec<i64> {
    let mut allocation = allocation::Allocation::new(input, seats, caps);
    let ties = Ties::Given(input.ties.all(input.len()));
    allocation::take_back(&mut allocation, take, &Claims::down(weights, ties));
    allocation.seats
}

/// The replicas that are left over with their reason, if there are any.
pub(crate) fn pending(left: i64, reason: impl FnOnce() -> String) -> Vec<(i64, String)> {
    if left > 0 { vec![(left, reason())] } else { Vec::new() }
}

pub(crate) fn to_u64(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

pub(crate) fn to_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The reason for pending replicas when dealing stopped at the step limit.
pub(crate) fn too_many() -> String {
    format!(
        "at most {} replicas can be placed at once under this combination of rules: use a single \
         entry in topologySpreadConstraints, and no WorkloadPolicy",
        allocation::MOST_STEPS
    )
}

/// The reason for replicas that no candidate may take.
pub(crate) fn why_left(limits: &Limits, caps_bind: bool) -> String {
    let skewed =
        limits.skews.iter().filter(|skew| skew.hard).map(|skew| {
            format!("topologySpreadConstraints: maxSkew {} over {}", skew.max, skew.key)
        });
    let bounded = limits.bounds.iter().map(|bound| format!("{}.max {}", bound.field, bound.max));
    let mut parts: Vec<String> =
        skewed.chain(bounded.filter(|b| !b.ends_with(&i64::MAX.to_string()))).collect();
    if caps_bind {
        parts.insert(0, "no candidate has room for one more".to_owned());
    }
    if parts.is_empty() { "no candidate may take one more".to_owned() } else { parts.join("; ") }
}

impl Division {
    pub(crate) fn of(dealt: Dealt, why: impl FnOnce() -> String) -> Self {
        let reason = || if dealt.exhausted { too_many() } else { why() };
        Self { seats: dealt.seats, pending: pending(dealt.left, reason), refused: None }
    }
}
