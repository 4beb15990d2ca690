//! Bulk division: applies the result of many single steps to an [`Allocation`] at once, where it is certain.
//!
//! A bulk step ends in a state that dealing seat by seat would pass through. The remaining seats are dealt one by one.
//! Two cases are certain.
//!
//! *One skew rule.* The seats of one domain have a fixed order; other domains only decide when its next seat becomes
//! free, and a free seat stays free until it is taken. So for each threshold on the quotient there is one state in
//! which all free seats above it are taken, and dealing passes through it: a domain with N seats above the threshold
//! has min(N, least N of all domains + maxSkew). Scaling down is the mirror image. When no seat is free, a soft rule
//! raises domains level by level from the lowest count.
//!
//! *Any rules.* If the result without rules violates none, they did not interfere: counts only grow, so a rule that
//! holds at the end held at every step.

use super::allocation::Allocation;
use super::claims::Claims;
use super::limits::{Limits, NONE, Skew};
use super::webster::{denominator_bits, seats_above};
use super::{to_i64, to_u64};

/// Deals many seats at once. Returns the number dealt, at most `take`.
pub fn up(allocation: &mut Allocation, claims: &Claims, take: i64) -> i64 {
    if allocation.limits.skews.len() == 1 {
        let dealt = OneSkewUp::new(allocation, claims).advance(allocation, take);
        if dealt > 0 || allocation.limits.skews[0].hard {
            return dealt;
        }
        return levels_up(allocation, claims, take);
    }
    let all: Vec<usize> = (0..allocation.seats.len()).collect();
    until_a_rule_blocks(allocation, take, fits_up, |seats, caps, count| {
        claims.deal(seats, caps, &all, count)
    })
}

/// Takes back many seats at once. Returns the number taken, at most `take`.
pub fn down(allocation: &mut Allocation, claims: &Claims, take: i64) -> i64 {
    if allocation.limits.skews.len() == 1 {
        let taken = OneSkewDown::new(allocation, claims).advance(allocation, take);
        if taken > 0 || allocation.limits.skews[0].hard {
            return taken;
        }
        return levels_down(allocation, claims, take);
    }
    let all: Vec<usize> = (0..allocation.seats.len()).collect();
    let floors = floors(allocation);
    until_a_rule_blocks(allocation, take, fits_down, |seats, _, count| {
        claims.take_back(seats, &floors, &all, count)
    })
}

/// Moves as many of `take` seats as `step` can without rules, up to the point where a rule would have stopped it.
pub fn until_a_rule_blocks(
    allocation: &mut Allocation,
    take: i64,
    fits: fn(&Limits, &[i64], &[i64]) -> bool,
    step: impl Fn(&mut [i64], &[i64], i64) -> i64,
) -> i64 {
    let caps = caps(allocation);
    let after = |count: i64| {
        let mut seats = allocation.seats.clone();
        let left = step(&mut seats, &caps, count);
        fits(&allocation.limits, &allocation.seats, &seats).then_some((seats, count - left))
    };
    let Some(count) = greatest(take, |count| after(count).is_some()) else { return 0 };
    let Some((seats, moved)) = after(count) else { return 0 };
    allocation.set_seats(seats);
    moved
}

/// The greatest number up to `most` that satisfies a monotone condition.
fn greatest(most: i64, holds: impl Fn(i64) -> bool) -> Option<i64> {
    if most <= 0 || !holds(1) {
        return None;
    }
    let (mut low, mut high) = (1, most);
    while low < high {
        let middle = low + (high - low) / 2 + (high - low) % 2;
        if holds(middle) { low = middle } else { high = middle - 1 }
    }
    Some(low)
}

/// Whether no rule would have blocked adding these seats one by one.
pub fn fits_up(limits: &Limits, before: &[i64], after: &[i64]) -> bool {
    let grown = |of: &[u32], domain: u32| {
        (0..before.len()).any(|at| of[at] == domain && after[at] > before[at])
    };
    let skews = limits.skews.iter().all(|skew| {
        let counts = shifted(skew, before, after);
        !grown(&skew.of, NONE)
            && (0..counts.len()).all(|domain| {
                counts[domain] == skew.counts[domain]
                    || counts[domain].saturating_sub(skew.low) <= skew.max
            })
    });
    skews && is_bounded(limits, before, after)
}

/// Whether no bound would have blocked adding these seats.
fn is_bounded(limits: &Limits, before: &[i64], after: &[i64]) -> bool {
    limits.bounds.iter().all(|bound| bound.sum.max(bound.max) >= sum(bound, before, after))
}

/// Whether no rule would have blocked removing these seats one by one.
pub fn fits_down(limits: &Limits, before: &[i64], after: &[i64]) -> bool {
    let skews = limits.skews.iter().all(|skew| {
        let counts = shifted(skew, before, after);
        let floor = skew.low.min(skew.high.saturating_sub(skew.max));
        (0..counts.len()).all(|at| counts[at] == skew.counts[at] || counts[at] >= floor)
    });
    skews && keeps_groups(limits, before, after)
}

/// Whether no minimum and no bound would have blocked removing these seats.
fn keeps_groups(limits: &Limits, before: &[i64], after: &[i64]) -> bool {
    let minimums = limits.minimums.iter().all(|minimum| {
        let mut counts = minimum.counts.clone();
        for at in (0..before.len()).filter(|at| minimum.of[*at] != NONE) {
            counts[minimum.of[at] as usize] += after[at] - before[at];
        }
        counts.iter().zip(&minimum.counts).all(|(now, was)| *now >= 1 || now == was)
    });
    minimums && limits.bounds.iter().all(|b| b.sum.min(b.min) <= sum(b, before, after))
}

fn sum(bound: &super::limits::Bound, before: &[i64], after: &[i64]) -> i64 {
    let members = (0..before.len()).filter(|at| bound.member[*at]);
    members.fold(bound.sum, |sum, at| sum.saturating_add(after[at] - before[at]))
}

fn shifted(skew: &Skew, before: &[i64], after: &[i64]) -> Vec<i64> {
    let mut counts = skew.counts.clone();
    for at in (0..before.len()).filter(|at| skew.of[*at] != NONE) {
        let count = &mut counts[skew.of[at] as usize];
        *count = count.saturating_add(after[at] - before[at]);
    }
    counts
}

/// Maximum seats of each candidate. At its current seats if a bound is reached.
fn caps(allocation: &Allocation) -> Vec<i64> {
    let closed = |at: usize| {
        allocation.limits.bounds.iter().any(|bound| bound.member[at] && bound.sum >= bound.max)
    };
    let cap = |at: usize| if closed(at) { allocation.seats[at] } else { allocation.caps[at] };
    (0..allocation.seats.len()).map(cap).collect()
}

/// Minimum seats of each candidate. At its current seats if a bound is reached or a group needs it.
fn floors(allocation: &Allocation) -> Vec<i64> {
    let limits = &allocation.limits;
    let needed = |at: usize| {
        limits.minimums.iter().any(|minimum| {
            let group = minimum.of[at];
            group != NONE && minimum.counts[group as usize] <= 1 && minimum.used <= minimum.groups
        }) || limits.bounds.iter().any(|bound| bound.member[at] && bound.sum <= bound.min)
    };
    (0..allocation.seats.len())
        .map(|at| if needed(at) { allocation.seats[at] } else { 0 })
        .collect()
}

/// Candidates by domain. Candidates without the key come last.
fn members(skew: &Skew) -> Vec<Vec<usize>> {
    let mut members = vec![Vec::new(); skew.counts.len() + 1];
    for (at, domain) in skew.of.iter().enumerate() {
        members[(*domain as usize).min(skew.counts.len())].push(at);
    }
    members
}

/// A threshold: all seats of higher ranks, and the seats of this rank whose quotient is at least 2^bits / p.
#[derive(Debug, Clone, Copy)]
struct Threshold {
    rank: i64,
    p: u128,
}

/// Computes the seats above a threshold.
struct ThresholdCounter<'a> {
    claims: &'a Claims,
    bits: u32,
}

impl<'a> ThresholdCounter<'a> {
    fn new(claims: &'a Claims, allocation: &Allocation, take: i64) -> Self {
        let running: u128 = allocation.seats.iter().map(|seats| u128::from(to_u64(*seats))).sum();
        Self { claims, bits: denominator_bits(running + u128::from(to_u64(take))) }
    }

    /// Seats of a candidate above the threshold, within `low..=high`.
    fn seats(&self, at: usize, threshold: Threshold, low: i64, high: i64) -> i64 {
        let Some(claim) = self.claims.of(at) else { return low };
        match claim.rank.cmp(&threshold.rank) {
            std::cmp::Ordering::Greater => high.max(low),
            std::cmp::Ordering::Less => low,
            std::cmp::Ordering::Equal => {
                let seats = to_i64(seats_above(claim.weight, threshold.p, self.bits));
                seats.saturating_add(claim.base).min(high).max(low)
            }
        }
    }

    /// A threshold that admits at least this many seats of every weight.
    fn end(&self, seats: i64) -> u128 {
        (2 * u128::from(to_u64(seats)) + 2) << self.bits
    }
}

/// Bisects between two thresholds for the one closest to `far` that has a state. Thresholds near `near` have one, those
/// beyond a point do not. `None` = none in between has a state.
fn closest<S>(near: u128, far: u128, state: impl Fn(u128) -> Option<S>) -> Option<S> {
    let (mut near, mut far, mut best) = (near, far, None);
    while near.abs_diff(far) > 1 {
        let middle = near.min(far) + near.abs_diff(far) / 2;
        match state(middle) {
            Some(found) => (near, best) = (middle, Some(found)),
            None => far = middle,
        }
    }
    best
}

/// The furthest state across the ranks. Each rank is passed from its near to its far end; the search stops at the first
/// rank whose far end has no state. `None` = not even the first threshold has one.
fn furthest<'r, S>(
    ranks: impl IntoIterator<Item = &'r i64>,
    near: u128,
    far: u128,
    state: impl Fn(Threshold) -> Option<S>,
) -> Option<S> {
    let mut best = None;
    for rank in ranks {
        let at = |p: u128| state(Threshold { rank: *rank, p });
        match at(far) {
            Some(passed) => best = Some(passed),
            None => return closest(near, far, at).or(best),
        }
    }
    best
}

/// Scaling up under one skew rule.
struct OneSkewUp<'a> {
    claims: &'a Claims,
    members: Vec<Vec<usize>>,
    caps: Vec<i64>,
    /// Replicas of a domain when all its candidates are full.
    full: Vec<i64>,
}

impl<'a> OneSkewUp<'a> {
    fn new(allocation: &Allocation, claims: &'a Claims) -> Self {
        let skew = &allocation.limits.skews[0];
        let members = members(skew);
        let room = |at: &usize| allocation.caps[*at].saturating_sub(allocation.seats[*at]).max(0);
        let full = (0..skew.counts.len())
            .map(|d| members[d].iter().map(room).fold(skew.counts[d], i64::saturating_add))
            .collect();
        Self { claims, members, caps: caps(allocation), full }
    }

    fn advance(&self, allocation: &mut Allocation, take: i64) -> i64 {
        let counter = ThresholdCounter::new(self.claims, allocation, take);
        let seats = |threshold: Threshold| self.state(allocation, &counter, threshold, take);
        let end =
            counter.end(allocation.seats.iter().copied().max().unwrap_or(0).saturating_add(take));
        let best = furthest(self.claims.ranks().iter().rev(), 0, end, seats);
        let Some((seats, dealt)) = best else { return 0 };
        if dealt > 0 {
            allocation.set_seats(seats);
        }
        dealt
    }

    /// The state in which all free seats above the threshold are taken. `None` if that exceeds `take`, violates a
    /// bound, or fills a domain on the way.
    fn state(
        &self,
        allocation: &Allocation,
        counter: &ThresholdCounter<'_>,
        threshold: Threshold,
        take: i64,
    ) -> Option<(Vec<i64>, i64)> {
        let skew = &allocation.limits.skews[0];
        let above = |at: usize| {
            counter.seats(
                at,
                threshold,
                allocation.seats[at],
                self.caps[at].max(allocation.seats[at]),
            )
        };
        let more = |at: &usize| above(*at).saturating_sub(allocation.seats[*at]);
        let count = |domain: usize| {
            self.members[domain].iter().map(more).fold(skew.counts[domain], i64::saturating_add)
        };
        let counts: Vec<i64> = (0..skew.counts.len()).map(count).collect();
        let counted = (0..counts.len()).filter(|d| skew.count_full || skew.open[*d] > 0);
        let low = match counted.map(|domain| counts[domain]).min() {
            _ if skew.zero => 0,
            Some(low) => low,
            // No candidate has room.
            None => return Some((allocation.seats.clone(), 0)),
        };
        let target = |domain: usize| {
            counts[domain].min(low.saturating_add(skew.max)).max(skew.counts[domain])
        };
        let mut dealt = 0_i64;
        for (domain, count) in skew.counts.iter().enumerate() {
            let target = target(domain);
            let fills = skew.open[domain] > 0 && target >= self.full[domain];
            if fills && !skew.count_full {
                return None;
            }
            dealt = dealt.saturating_add(target - count);
        }
        if dealt > take {
            return None;
        }
        let mut seats = allocation.seats.clone();
        for (domain, count) in counts.iter().enumerate() {
            let members = &self.members[domain];
            if target(domain) == *count {
                members.iter().for_each(|at| seats[*at] = above(*at));
            } else {
                let more = target(domain) - skew.counts[domain];
                self.claims.deal(&mut seats, &self.caps, members, more);
            }
        }
        is_bounded(&allocation.limits, &allocation.seats, &seats).then_some((seats, dealt))
    }
}

/// Scales up under a soft rule when no seat is free: domains rise level by level; candidates without the key come last.
fn levels_up(allocation: &mut Allocation, claims: &Claims, take: i64) -> i64 {
    let skew = &allocation.limits.skews[0];
    let (members, caps) = (members(skew), caps(allocation));
    let room = |at: &usize| match claims.of(*at) {
        Some(_) => caps[*at].saturating_sub(allocation.seats[*at]).max(0),
        None => 0,
    };
    let domains = skew.counts.len();
    let most: Vec<i64> =
        members.iter().map(|of| of.iter().map(room).fold(0, i64::saturating_add)).collect();
    let all = |at: &usize| allocation.caps[*at].saturating_sub(allocation.seats[*at]).max(0);
    let fills: Vec<i64> =
        members.iter().map(|of| of.iter().map(all).fold(0, i64::saturating_add)).collect();
    let more = |domain: usize, level: i64| {
        if domain == domains {
            return 0;
        }
        level.saturating_sub(skew.counts[domain]).clamp(0, most[domain])
    };
    let after = |more: &dyn Fn(usize) -> i64| {
        let mut seats = allocation.seats.clone();
        let mut dealt = 0_i64;
        for (domain, of) in members.iter().enumerate() {
            let count = more(domain);
            // A domain that becomes full may change the minimum.
            let moves = count > 0 && count >= fills[domain] && domain < domains;
            if moves && !skew.count_full {
                return None;
            }
            dealt = dealt.saturating_add(count);
            if dealt > take {
                return None;
            }
            claims.deal(&mut seats, &caps, of, count);
        }
        is_bounded(&allocation.limits, &allocation.seats, &seats).then_some((seats, dealt))
    };
    let blocked = |domain: usize| {
        most[domain] == 0
            || skew.counts[domain].saturating_add(1).saturating_sub(skew.low) > skew.max
    };
    if !(0..domains).all(blocked) {
        return 0;
    }
    let result = if most[..domains].iter().all(|room| *room == 0) {
        let last = |count: i64| after(&|domain| if domain == domains { count } else { 0 });
        greatest(take.min(most[domains]), |count| last(count).is_some()).and_then(last)
    } else {
        let open = (0..domains).filter(|domain| most[*domain] > 0);
        let base = open.map(|domain| skew.counts[domain]).min().unwrap_or(0);
        let level = |rise: i64| after(&|domain| more(domain, base.saturating_add(rise)));
        greatest(take, |rise| level(rise).is_some()).and_then(level)
    };
    let Some((seats, dealt)) = result else { return 0 };
    allocation.set_seats(seats);
    dealt
}

/// Scaling down under one skew rule.
struct OneSkewDown<'a> {
    claims: &'a Claims,
    members: Vec<Vec<usize>>,
    floors: Vec<i64>,
}

impl<'a> OneSkewDown<'a> {
    fn new(allocation: &Allocation, claims: &'a Claims) -> Self {
        Self { claims, members: members(&allocation.limits.skews[0]), floors: floors(allocation) }
    }

    fn advance(&self, allocation: &mut Allocation, take: i64) -> i64 {
        let counter = ThresholdCounter::new(self.claims, allocation, 0);
        let seats = |threshold: Threshold| self.state(allocation, &counter, threshold, take);
        let end = counter.end(allocation.seats.iter().copied().max().unwrap_or(0));
        let Some((seats, taken)) = furthest(self.claims.ranks(), end, 0, seats) else { return 0 };
        if taken > 0 {
            allocation.set_seats(seats);
        }
        taken
    }

    /// The state in which all free seats below the threshold are taken back.
    fn state(
        &self,
        allocation: &Allocation,
        counter: &ThresholdCounter<'_>,
        threshold: Threshold,
        take: i64,
    ) -> Option<(Vec<i64>, i64)> {
        let skew = &allocation.limits.skews[0];
        let above = |at: usize| match self.claims.of(at) {
            Some(_) => counter.seats(at, threshold, self.floors[at], allocation.seats[at]),
            None => allocation.seats[at],
        };
        let fewer = |at: &usize| allocation.seats[*at] - above(*at);
        let less: Vec<i64> = self
            .members
            .iter()
            .map(|of| of.iter().map(fewer).fold(0, i64::saturating_add))
            .collect();
        let domains = skew.counts.len();
        let count = |domain: usize| skew.counts[domain].saturating_sub(less[domain]);
        let high = (0..domains).map(count).max().unwrap_or(0);
        let floor = skew.low.min(high.saturating_sub(skew.max));
        let target = |domain: usize| count(domain).max(skew.counts[domain].min(floor));
        let removed = |domain: usize| {
            if domain == domains { less[domain] } else { skew.counts[domain] - target(domain) }
        };
        let taken = (0..=domains).map(removed).fold(0, i64::saturating_add);
        if taken > take {
            return None;
        }
        let mut seats = allocation.seats.clone();
        for (domain, members) in self.members.iter().enumerate() {
            if removed(domain) == less[domain] {
                members.iter().for_each(|at| seats[*at] = above(*at));
            } else {
                self.claims.take_back(&mut seats, &self.floors, members, removed(domain));
            }
        }
        keeps_groups(&allocation.limits, &allocation.seats, &seats).then_some((seats, taken))
    }
}

/// Scales down under a soft rule when no seat is free: domains sink level by level.
fn levels_down(allocation: &mut Allocation, claims: &Claims, take: i64) -> i64 {
    let skew = &allocation.limits.skews[0];
    let (members, floors) = (members(skew), floors(allocation));
    let domains = skew.counts.len();
    let gives = |at: &usize| match claims.of(*at) {
        Some(_) => (allocation.seats[*at] - floors[*at]).max(0),
        None => 0,
    };
    let most: Vec<i64> =
        members.iter().map(|of| of.iter().map(gives).fold(0, i64::saturating_add)).collect();
    // A full domain that is not counted would start to count. Candidates without the key are always free.
    let plain = skew.count_full || skew.open.iter().all(|open| *open > 0);
    let level = |domain: &usize| most[*domain] == 0 || skew.counts[*domain] == skew.low;
    if !plain || skew.zero || most[domains] > 0 || !(0..domains).all(|domain| level(&domain)) {
        return 0;
    }
    let after = |sink: i64| {
        let mut seats = allocation.seats.clone();
        let mut taken = 0_i64;
        for domain in 0..domains {
            let count = sink.min(most[domain]);
            taken = taken.saturating_add(count);
            if taken > take {
                return None;
            }
            claims.take_back(&mut seats, &floors, &members[domain], count);
        }
        keeps_groups(&allocation.limits, &allocation.seats, &seats).then_some((seats, taken))
    };
    let deepest = most.iter().copied().max().unwrap_or(0).min(take);
    let Some(state) = greatest(deepest, |sink| after(sink).is_some()).and_then(after) else {
        return 0;
    };
    allocation.set_seats(state.0);
    state.1
}
