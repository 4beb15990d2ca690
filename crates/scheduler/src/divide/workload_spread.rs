//! Divides by a WorkloadSpread: ordered subsets of clusters, each up to its limit.

use atoll_api::workload_spread::{ScheduleStrategyType, WorkloadSpreadSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::board::{self, Board};
use super::claims::{Claim, Claims};
use super::ground::{Division, Ground, UNBOUNDED};
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
pub struct Question<'a> {
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
pub struct Answer {
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
    spec.subsets
        .iter()
        .enumerate()
        .map(|(at, subset)| match &subset.max_replicas {
            #[cfg(test)]
            Some(IntOrString::Int(max))
                if crate::mutants::is(crate::mutants::Mutant::LimitRaised) =>
            {
                i64::from(*max) + 1
            }
            Some(IntOrString::Int(max)) => i64::from(*max),
            Some(IntOrString::String(_)) => shares.get(at).copied().unwrap_or(0),
            // The open subset of percentages has a fair share. With Adaptive it has no limit, because it takes what
            // others cannot.
            None if sum > 0 && !adaptive => shares.get(at).copied().unwrap_or(UNBOUNDED),
            None => UNBOUNDED,
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
pub fn divide(ground: &Ground, question: &Question<'_>) -> Answer {
    let mut run = Run::new(ground, question);
    match question.plan {
        Plan::Continue | Plan::Anew => {}
        Plan::Trim => {
            for subset in (0..question.subsets.len()).rev() {
                let above = run.own(subset) - question.subsets[subset].limit;
                run.take_back(subset, above);
            }
        }
        Plan::Recover => run.give_back(),
    }
    if !question.adaptive
        && question.accounted > question.desired
        && question.plan == Plan::Continue
    {
        run.shrink_waiting();
    }
    let running = run.board.total();
    if running > question.desired {
        run.shrink(running - question.desired);
        return run.answer(Vec::new());
    }
    let take = question.desired - running;
    run.grow(take)
}

struct Run<'a> {
    ground: &'a Ground,
    question: &'a Question<'a>,
    board: Board,
    rank: Vec<i64>,
}

impl<'a> Run<'a> {
    fn new(ground: &'a Ground, question: &'a Question<'a>) -> Self {
        let seats =
            if question.plan == Plan::Anew { vec![0; ground.len()] } else { ground.seats.clone() };
        let caps = (0..ground.len()).map(|index| ground.room(index)).collect();
        let mut rank = vec![0; ground.len()];
        for (index, score) in question.subsets.iter().flat_map(|subset| &subset.members) {
            rank[*index] = *score;
        }
        Self { ground, question, board: Board::new(ground, seats, caps), rank }
    }

    fn own(&self, subset: usize) -> i64 {
        let members = &self.question.subsets[subset].members;
        members.iter().map(|(index, _)| self.board.seats[*index]).fold(0, i64::saturating_add)
    }

    fn room(&self, subset: usize) -> i64 {
        let members = &self.question.subsets[subset].members;
        let free = |index: usize| match self.board.caps[index] {
            UNBOUNDED => UNBOUNDED,
            cap => (cap - self.board.seats[index]).max(0),
        };
        members.iter().map(|(index, _)| free(*index)).fold(0, i64::saturating_add)
    }

    /// Higher preference first, then fewest replicas.
    fn claims(&self, subset: usize) -> Claims {
        let mut list = vec![None; self.ground.len()];
        for (index, _) in &self.question.subsets[subset].members {
            list[*index] = Some(Claim { rank: self.rank[*index], weight: 1, base: 0 });
        }
        Claims::new(list, self.ground.ties.clone())
    }

    fn take_back(&mut self, subset: usize, count: i64) -> i64 {
        if count <= 0 {
            return 0;
        }
        let claims = self.claims(subset);
        count - board::take_back(&mut self.board, count, &claims)
    }

    /// Scales down: first replicas above the limits, then the rest, each from the last subset to the first. A
    /// StatefulSet gives back its highest ordinals, which are in the last subset.
    fn shrink(&mut self, mut count: i64) {
        let last_to_first = || (0..self.question.subsets.len()).rev();
        if !self.question.ordinal {
            for subset in last_to_first() {
                let above = self.own(subset).saturating_sub(self.question.subsets[subset].limit);
                count -= self.take_back(subset, above.min(count));
            }
        }
        for subset in last_to_first() {
            count -= self.take_back(subset, self.own(subset).min(count));
        }
        // Replicas outside all subsets go last, because nothing else may replace them.
        if count > 0 {
            let equal = vec![1; self.ground.len()];
            board::take_back(
                &mut self.board,
                count,
                &Claims::down(&equal, self.ground.ties.clone()),
            );
        }
    }

    /// With Fixed, pending replicas belong to a subset. Scaling down passes over pending replicas like over running
    /// ones, and takes back only what a subset then has too many.
    fn shrink_waiting(&mut self) {
        let count = self.question.subsets.len();
        let limit = |subset: usize| self.question.subsets[subset].limit;
        let mut due: Vec<i64> = (0..count).map(|subset| self.own(subset)).collect();
        let mut waits = self.question.accounted.saturating_sub(self.board.total());
        for (subset, due) in due.iter_mut().enumerate() {
            let more = limit(subset).saturating_sub(*due).clamp(0, waits.max(0));
            *due = due.saturating_add(more);
            waits -= more;
        }
        let fewer = self.question.accounted - self.question.desired;
        let mut left = (fewer - waits.max(0)).max(0);
        for pass in 0..2 {
            for (subset, due) in due.iter_mut().enumerate().rev() {
                let above = if pass == 0 { due.saturating_sub(limit(subset)) } else { *due };
                let less =
                    if pass == 0 && self.question.ordinal { 0 } else { above.clamp(0, left) };
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
        for subset in 0..self.question.subsets.len() {
            if self.question.subsets[subset].marked {
                continue;
            }
            let limit = self.question.subsets[subset].limit;
            let mut wants = limit.saturating_sub(self.own(subset)).min(self.room(subset)).max(0);
            for later in (subset + 1..self.question.subsets.len()).rev() {
                let taken = self.take_back(later, wants.min(self.own(later)));
                wants -= taken;
                let claims = self.claims(subset);
                board::deal(&mut self.board, taken, &claims);
            }
        }
    }

    /// Scales up in list order, each subset to its limit.
    fn grow(mut self, take: i64) -> Answer {
        let count = self.question.subsets.len();
        let from = if self.question.ordinal {
            (0..count).rev().find(|subset| self.own(*subset) > 0).unwrap_or(0)
        } else {
            0
        };
        let mut waiting = vec![0; count];
        let mut left = take;
        for (subset, waits) in waiting.iter_mut().enumerate().skip(from) {
            let of = &self.question.subsets[subset];
            let mut share = left.min(of.limit.saturating_sub(self.own(subset)).max(0));
            if self.question.adaptive {
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
            let missed = board::deal(&mut self.board, share, &claims);
            if self.question.adaptive {
                left -= share - missed;
            } else {
                *waits = missed;
                left -= share;
            }
        }
        let mut pending = Vec::new();
        for (of, missed) in self.question.subsets.iter().zip(&waiting).filter(|(_, n)| **n > 0) {
            let why = if of.members.is_empty() {
                "no cluster of the subset passes the filters"
            } else if self.board.exhausted {
                &super::too_many()
            } else {
                "its clusters have no room for one more"
            };
            pending.push((*missed, format!("subset {}: {why}", of.name)));
        }
        if left > 0 {
            let why = if self.board.exhausted {
                &super::too_many()
            } else if self.question.adaptive {
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

    fn answer(self, mut waiting: Vec<i64>) -> Answer {
        waiting.resize(self.question.subsets.len(), 0);
        let division = Division { seats: self.board.seats, ..Division::default() };
        Answer { division, waiting }
    }
}
