//! Divides by a WorkloadSpread: ordered subsets of clusters, each up to its limit.

use atoll_api::workload_spread::{ScheduleStrategyType, WorkloadSpreadSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::allocation::{self, Allocation};
use super::claims::{Claims, SeatClaim};
use super::input::{Division, DivisionInput, UNBOUNDED};
use super::webster::{self, Party};
use super::{to_i64, to_u64};
use crate::cycle::check::percent;

/// A subset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subset {
    /// Its name.
    pub name: String,
    /// Maximum replicas.
    pub limit: i64,
    /// Whether members recently reported unschedulable replicas there.
    pub marked: bool,
    /// Its candidates with their preference score.
    pub members: Vec<(usize, i64)>,
}

/// How the division proceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// Keep running replicas and deal the difference.
    Continue,
    /// Like `Continue`, but first take back replicas above the limits.
    Trim,
    /// Like `Continue`, but also move replicas back to earlier subsets that have room.
    Recover,
    /// Divide from zero.
    Anew,
}

/// The input of the division.
#[derive(Debug, Clone, Copy)]
pub struct SubsetRules<'a> {
    /// The subsets, in order.
    pub subsets: &'a [Subset],
    /// Whether replicas that a subset cannot take go to the next one.
    pub adaptive: bool,
    /// Desired replicas.
    pub desired: i64,
    /// Replicas of the last decision: running plus pending.
    pub accounted: i64,
    /// How to proceed.
    pub plan: Plan,
    /// Whether it is a StatefulSet. Its ordinals are contiguous in list order, so that only the end grows and shrinks.
    pub ordinal: bool,
}

/// The division, with the pending replicas of each subset.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubsetDivision {
    /// The division.
    pub division: Division,
    /// Pending replicas, by subset.
    pub waiting: Vec<i64>,
}

/// Limits of the subsets for the desired replicas. Numbers are used as they are. Percentages are divided by Webster
/// with ties in list order; the open subset weighs the rest of 100 %.
#[must_use]
pub fn limits(spec: &WorkloadSpreadSpec, desired: i64) -> Vec<i64> {
    let percents: Vec<Option<i64>> = spec
        .subsets
        .iter()
        .map(|subset| match &subset.max_replicas {
            Some(IntOrString::String(text)) => percent(text),
            _ => None,
        })
        .collect();
    let sum: i64 = percents.iter().flatten().sum();
    let adaptive = spec.schedule_strategy.type_ == ScheduleStrategyType::Adaptive;
    let shares = if sum > 0 { by_percent(&percents, sum, desired) } else { Vec::new() };
    let own: Vec<i64> = spec
        .subsets
        .iter()
        .enumerate()
        .map(|(at, subset)| match &subset.max_replicas {
            Some(IntOrString::Int(max)) => i64::from(*max),
            Some(IntOrString::String(_)) => shares.get(at).copied().unwrap_or(0),
            // The open subset of percentages has a fair share. With Adaptive it has no limit, because it takes what
            // others cannot.
            None if sum > 0 && !adaptive => shares.get(at).copied().unwrap_or(UNBOUNDED),
            None => UNBOUNDED,
        })
        .collect();
    // A member's copy has one pod template, so subsets that share clusters have one limit.
    (0..own.len())
        .map(|at| match spec.shares_clusters(at) {
            true => 0,
            false => {
                let shared = own[at..].iter().take(spec.sharing(at).len());
                shared.fold(0, |sum: i64, limit| sum.saturating_add(*limit))
            }
        })
        .collect()
}

fn by_percent(percents: &[Option<i64>], sum: i64, desired: i64) -> Vec<i64> {
    let mut parties: Vec<Party> = percents
        .iter()
        .enumerate()
        .map(|(at, percent)| Party {
            weight: to_u64(percent.unwrap_or(100 - sum)),
            seats: 0,
            cap: u64::MAX,
            floor: 0,
            tie: u64::MAX - at as u64,
        })
        .collect();
    webster::deal(&mut parties, to_u64(desired));
    parties.iter().map(|party| to_i64(party.seats)).collect()
}

/// Divides the replicas.
#[must_use]
pub fn divide(input: &DivisionInput, rules: &SubsetRules<'_>) -> SubsetDivision {
    let mut divider = SubsetDivider::new(input, rules);
    match rules.plan {
        Plan::Continue | Plan::Anew => {}
        Plan::Trim => {
            for subset in (0..rules.subsets.len()).rev() {
                let above = divider.own(subset) - rules.subsets[subset].limit;
                divider.take_back(subset, above);
            }
        }
        Plan::Recover => divider.give_back(),
    }
    if !rules.adaptive && rules.accounted > rules.desired && rules.plan == Plan::Continue {
        divider.shrink_waiting();
    }
    let running = divider.allocation.total();
    if running > rules.desired {
        divider.shrink(running - rules.desired);
        return divider.answer(Vec::new());
    }
    let take = rules.desired - running;
    divider.grow(take)
}

struct SubsetDivider<'a> {
    input: &'a DivisionInput,
    rules: &'a SubsetRules<'a>,
    allocation: Allocation,
    rank: Vec<i64>,
}

impl<'a> SubsetDivider<'a> {
    fn new(input: &'a DivisionInput, rules: &'a SubsetRules<'a>) -> Self {
        let seats =
            if rules.plan == Plan::Anew { vec![0; input.len()] } else { input.seats.clone() };
        let caps = (0..input.len()).map(|index| input.room(index)).collect();
        let mut rank = vec![0; input.len()];
        for (index, score) in rules.subsets.iter().flat_map(|subset| &subset.members) {
            rank[*index] = *score;
        }
        Self { input, rules, allocation: Allocation::new(input, seats, caps), rank }
    }

    fn own(&self, subset: usize) -> i64 {
        let members = &self.rules.subsets[subset].members;
        members.iter().map(|(index, _)| self.allocation.seats[*index]).fold(0, i64::saturating_add)
    }

    fn room(&self, subset: usize) -> i64 {
        let members = &self.rules.subsets[subset].members;
        let free = |index: usize| match self.allocation.caps[index] {
            UNBOUNDED => UNBOUNDED,
            cap => (cap - self.allocation.seats[index]).max(0),
        };
        members.iter().map(|(index, _)| free(*index)).fold(0, i64::saturating_add)
    }

    /// Higher preference first, then fewest replicas.
    fn claims(&self, subset: usize) -> Claims {
        let mut list = vec![None; self.input.len()];
        for (index, _) in &self.rules.subsets[subset].members {
            list[*index] = Some(SeatClaim { rank: self.rank[*index], weight: 1, base: 0 });
        }
        Claims::new(list, self.input.ties.clone())
    }

    fn take_back(&mut self, subset: usize, count: i64) -> i64 {
        if count <= 0 {
            return 0;
        }
        let claims = self.claims(subset);
        count - allocation::take_back(&mut self.allocation, count, &claims)
    }

    /// Scales down: first replicas above the limits, then the rest, each from the last subset to the first. A
    /// StatefulSet gives back its highest ordinals, which are in the last subset.
    fn shrink(&mut self, mut count: i64) {
        let last_to_first = || (0..self.rules.subsets.len()).rev();
        if !self.rules.ordinal {
            for subset in last_to_first() {
                let above = self.own(subset).saturating_sub(self.rules.subsets[subset].limit);
                count -= self.take_back(subset, above.min(count));
            }
        }
        for subset in last_to_first() {
            count -= self.take_back(subset, self.own(subset).min(count));
        }
        // Replicas outside all subsets go last, because nothing else may replace them.
        if count > 0 {
            let equal = vec![1; self.input.len()];
            allocation::take_back(
                &mut self.allocation,
                count,
                &Claims::down(&equal, self.input.ties.clone()),
            );
        }
    }

    /// With Fixed, pending replicas belong to a subset. Scaling down passes over pending replicas like over running
    /// ones, and takes back only what a subset then has too many.
    fn shrink_waiting(&mut self) {
        let count = self.rules.subsets.len();
        let limit = |subset: usize| self.rules.subsets[subset].limit;
        let mut due: Vec<i64> = (0..count).map(|subset| self.own(subset)).collect();
        let mut waits = self.rules.accounted.saturating_sub(self.allocation.total());
        for (subset, due) in due.iter_mut().enumerate() {
            let more = limit(subset).saturating_sub(*due).clamp(0, waits.max(0));
            *due = due.saturating_add(more);
            waits -= more;
        }
        let fewer = self.rules.accounted - self.rules.desired;
        let mut left = (fewer - waits.max(0)).max(0);
        for pass in 0..2 {
            for (subset, due) in due.iter_mut().enumerate().rev() {
                let above = if pass == 0 { due.saturating_sub(limit(subset)) } else { *due };
                let less = if pass == 0 && self.rules.ordinal { 0 } else { above.clamp(0, left) };
                *due -= less;
                left -= less;
            }
        }
        for (subset, due) in due.into_iter().enumerate() {
            self.take_back(subset, self.own(subset) - due);
        }
    }

    /// Moves replicas from later subsets to earlier ones that have room.
    fn give_back(&mut self) {
        for subset in 0..self.rules.subsets.len() {
            if self.rules.subsets[subset].marked {
                continue;
            }
            let limit = self.rules.subsets[subset].limit;
            let mut wants = limit.saturating_sub(self.own(subset)).min(self.room(subset)).max(0);
            for later in (subset + 1..self.rules.subsets.len()).rev() {
                let taken = self.take_back(later, wants.min(self.own(later)));
                wants -= taken;
                let claims = self.claims(subset);
                allocation::deal(&mut self.allocation, taken, &claims);
            }
        }
    }

    /// Scales up in list order, each subset to its limit.
    fn grow(mut self, take: i64) -> SubsetDivision {
        let count = self.rules.subsets.len();
        let from = if self.rules.ordinal {
            (0..count).rev().find(|subset| self.own(*subset) > 0).unwrap_or(0)
        } else {
            0
        };
        let mut waiting = vec![0; count];
        let mut left = take;
        for (subset, waits) in waiting.iter_mut().enumerate().skip(from) {
            let of = &self.rules.subsets[subset];
            let mut share = left.min(of.limit.saturating_sub(self.own(subset)).max(0));
            if self.rules.adaptive {
                let last = subset + 1 == count;
                if of.marked && !last {
                    continue;
                }
                share = share.min(self.room(subset));
            }
            if share <= 0 {
                continue;
            }
            let claims = self.claims(subset);
            let missed = allocation::deal(&mut self.allocation, share, &claims);
            if self.rules.adaptive {
                left -= share - missed;
            } else {
                *waits = missed;
                left -= share;
            }
        }
        let mut pending = Vec::new();
        for (of, missed) in self.rules.subsets.iter().zip(&waiting).filter(|(_, n)| **n > 0) {
            let why = if of.members.is_empty() {
                "no cluster of the subset passes the filters"
            } else if self.allocation.exhausted {
                &super::too_many()
            } else {
                "its clusters have no room for one more"
            };
            pending.push((*missed, format!("subset {}: {why}", of.name)));
        }
        if left > 0 {
            let why = if self.allocation.exhausted {
                &super::too_many()
            } else if self.rules.adaptive {
                "no subset has room for one more within its maxReplicas"
            } else {
                "every subset is at its maxReplicas"
            };
            pending.push((left, why.to_owned()));
        }
        let mut answer = self.answer(waiting);
        answer.division.pending = pending;
        answer
    }

    fn answer(self, mut waiting: Vec<i64>) -> SubsetDivision {
        waiting.resize(self.rules.subsets.len(), 0);
        let division = Division { seats: self.allocation.seats, ..Division::default() };
        SubsetDivision { division, waiting }
    }
}
