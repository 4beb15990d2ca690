//! Divides by a WorkloadPolicy: one sequence of next replicas, and its reverse.
//!
//! Domains compete by the distance from their targets, which counts all bindings. Within a domain its clusters compete.
//! Only this binding's own replicas are placed or taken back. Without rules of the placement the replicas are dealt in
//! bulk (`bulk`); with rules seat by seat, and in bulk where the rules do not interfere.

mod bulk;

use std::cmp::Reverse;

use super::allocation::{Allocation, CandidateQueue, RemovalKey, StepBudget};
use super::bulk::{fits_down, fits_up, until_a_rule_blocks};
use super::input::{Division, DivisionInput, Ties, UNBOUNDED};
use super::seat_key::SeatKey;
use super::{Start, to_u64};

/// A listed domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// Value of the topology key.
    pub name: String,
    /// Its target.
    pub target: i64,
    /// Replicas of other counted bindings.
    pub others: i64,
    /// Its candidates.
    pub members: Vec<usize>,
}

/// The input of the division.
#[derive(Debug, Clone, Copy)]
pub struct DomainRules<'a> {
    /// The domains, in the order of the list.
    pub domains: &'a [Domain],
    /// allocationType Required.
    pub required: bool,
    /// allocationMethod Fill.
    pub fill: bool,
    /// Desired replicas.
    pub desired: i64,
    /// Whether to keep running replicas.
    pub start: Start,
    /// Whether replicas beyond the targets move back into domains below their targets.
    pub recover: bool,
}

/// Divides the replicas.
#[must_use]
pub fn divide(input: &DivisionInput, rules: &DomainRules<'_>) -> Division {
    let seats = match rules.start {
        Start::Running => input.seats.clone(),
        Start::Zero => vec![0; input.len()],
    };
    let caps = (0..input.len()).map(|index| input.room(index)).collect();
    let mut divider = DomainDivider::new(input, rules, Allocation::new(input, seats, caps));
    #[cfg(test)]
    {
        // Divides small instances in bulk too.
        divider.allocation.min_bulk = 0;
    }
    let running = divider.allocation.total();
    if running > rules.desired {
        // The total must shrink: rules choose which replicas go, but cannot prevent it.
        let left = divider.take_back(running - rules.desired);
        divider.bulk_back(left);
        return Division { seats: divider.allocation.seats, ..Division::default() };
    }
    if rules.recover {
        divider.take_back(divider.misplaced());
    }
    let left = divider.deal(rules.desired - divider.allocation.total());
    let pending = super::pending(left, || divider.why());
    Division { seats: divider.allocation.seats, pending, refused: None }
}

/// Why a domain is below its target.
#[must_use]
pub fn blocked(domain: &Domain, room: Option<i64>) -> Option<String> {
    if domain.members.is_empty() {
        Some("no cluster of the domain passes the filters".to_owned())
    } else if room == Some(0) {
        Some("its clusters have no room for one more".to_owned())
    } else {
        None
    }
}

struct DomainDivider<'a> {
    input: &'a DivisionInput,
    rules: &'a DomainRules<'a>,
    allocation: Allocation,
    /// This binding's replicas by domain.
    own: Vec<i64>,
    /// Domain of each candidate; `None` = outside all domains.
    of: Vec<Option<usize>>,
    /// Tie-break rank of each candidate.
    ties: Ties,
}

impl<'a> DomainDivider<'a> {
    fn new(input: &'a DivisionInput, rules: &'a DomainRules<'a>, allocation: Allocation) -> Self {
        let mut of = vec![None; input.len()];
        let mut own = vec![0; rules.domains.len()];
        for (at, domain) in rules.domains.iter().enumerate() {
            for index in &domain.members {
                of[*index] = Some(at);
                own[at] += allocation.seats[*index];
            }
        }
        // Dealing seat by seat looks up ranks often; bulk dealing rarely does.
        let ties = match allocation.limits.is_empty() {
            true => input.ties.clone(),
            false => Ties::Given(input.ties.all(input.len())),
        };
        Self { input, rules, allocation, own, of, ties }
    }

    /// Replicas in a domain, of all counted bindings.
    fn count(&self, domain: usize) -> i64 {
        self.rules.domains[domain].others.saturating_add(self.own[domain])
    }

    fn target(&self, domain: usize) -> i64 {
        self.rules.domains[domain].target
    }

    /// The claim of a candidate within its domain, with this number of replicas.
    fn key(&self, index: usize, seats: i64) -> SeatKey {
        let tie = self.ties.get(index);
        let index_32 = index as u32;
        if self.rules.fill && self.of[index].is_some() {
            // Fill uses one cluster after the other: in use first, then the larger room, unknown room last.
            let room = match self.input.room(index) {
                UNBOUNDED => -1,
                room => room,
            };
            return SeatKey {
                rank: (i64::from(seats > 0), room),
                weight: 1,
                seats: 0,
                tie,
                index: index_32,
            };
        }
        SeatKey { rank: (0, 0), weight: 1, seats: to_u64(seats), tie, index: index_32 }
    }

    /// Sets the seats.
    fn set_seats(&mut self, seats: Vec<i64>) {
        self.allocation.set_seats(seats);
        self.recount();
    }

    fn recount(&mut self) {
        let seats = &self.allocation.seats;
        let own = |domain: &Domain| domain.members.iter().map(|index| seats[*index]).sum();
        self.own = self.rules.domains.iter().map(own).collect();
    }

    fn deal(&mut self, take: i64) -> i64 {
        if self.allocation.limits.is_empty() {
            let mut seats = self.allocation.seats.clone();
            let left = self.bulk_up(&mut seats, take);
            self.set_seats(seats);
            return left;
        }
        let mut budget = StepBudget::new(self.allocation.min_bulk);
        let mut left = take;
        while left > 0 {
            let in_bulk =
                if budget.allows_bulk(left) { self.bulk_up_within_rules(left) } else { 0 };
            left -= in_bulk;
            let steps = budget.steps(in_bulk, left);
            let stepped = self.deal_stepwise(steps);
            left -= stepped;
            if stepped < steps {
                break;
            }
            if budget.is_exhausted() {
                self.allocation.exhausted = left > 0;
                break;
            }
        }
        left
    }

    fn bulk_up_within_rules(&mut self, take: i64) -> i64 {
        let mut allocation = self.allocation.clone();
        let step = |seats: &mut [i64], _: &[i64], count: i64| self.bulk_up(seats, count);
        let dealt = until_a_rule_blocks(&mut allocation, take, fits_up, step);
        self.allocation = allocation;
        self.recount();
        dealt
    }

    /// Deals seat by seat. Returns the number dealt.
    fn deal_stepwise(&mut self, take: i64) -> i64 {
        let mut queues: Vec<CandidateQueue<SeatKey>> = self
            .rules
            .domains
            .iter()
            .map(|domain| {
                let keys = domain.members.iter().map(|i| self.key(*i, self.allocation.seats[*i]));
                CandidateQueue::new(&self.allocation, keys.collect::<Vec<_>>())
            })
            .collect();
        let outsiders = (0..self.input.len()).filter(|index| self.of[*index].is_none());
        let keys: Vec<SeatKey> = outsiders.map(|i| self.key(i, self.allocation.seats[i])).collect();
        let mut outside = CandidateQueue::<SeatKey>::new(&self.allocation, keys);
        let mut dealt = 0;
        while dealt < take {
            let mut found = None;
            let mut tried = vec![true; queues.len()];
            while found.is_none() {
                let Some(domain) = self.next_domain(&tried) else { break };
                match queues[domain].next(&self.allocation) {
                    Some(index) => found = Some((Some(domain), index)),
                    None => tried[domain] = false,
                }
            }
            if found.is_none() && !self.rules.required {
                found = outside.next(&self.allocation).map(|index| (None, index));
            }
            let Some((domain, index)) = found else { break };
            self.allocation.add(index);
            let key = self.key(index, self.allocation.seats[index]);
            match domain {
                Some(domain) => {
                    self.own[domain] += 1;
                    queues[domain].requeue(&self.allocation, index, Some(key));
                }
                None => outside.requeue(&self.allocation, index, Some(key)),
            }
            dealt += 1;
        }
        dealt
    }

    /// The domain that gets the next replica: below target by the method, then (Preferred) by Webster.
    fn next_domain(&self, open: &[bool]) -> Option<usize> {
        let all = || (0..open.len()).filter(|domain| open[*domain]);
        let mut below = all().filter(|domain| self.count(*domain) < self.target(*domain));
        let first = if self.rules.fill {
            below.next()
        } else {
            // Smallest x/t (Adams), compared as a product; ties by list order.
            below.min_by(|a, b| {
                let left = i128::from(self.count(*a)) * i128::from(self.target(*b));
                let right = i128::from(self.count(*b)) * i128::from(self.target(*a));
                left.cmp(&right).then(a.cmp(b))
            })
        };
        if first.is_some() || self.rules.required {
            return first;
        }
        // Greatest t / (2x + 1); ties: fewer replicas, then list order.
        all().min_by(|a, b| {
            let part = |x: usize, y: usize| {
                i128::from(self.target(x)) * (2 * i128::from(self.count(y)) + 1)
            };
            part(*b, *a).cmp(&part(*a, *b)).then(self.count(*a).cmp(&self.count(*b))).then(a.cmp(b))
        })
    }

    /// Takes back the replicas that the rules release. Returns the number that the rules keep.
    fn take_back(&mut self, take: i64) -> i64 {
        if self.allocation.limits.is_empty() {
            return self.bulk_back(take);
        }
        let mut budget = StepBudget::new(self.allocation.min_bulk);
        let mut left = take;
        while left > 0 {
            let in_bulk =
                if budget.allows_bulk(left) { self.bulk_down_within_rules(left) } else { 0 };
            left -= in_bulk;
            let steps = budget.steps(in_bulk, left);
            let stepped = self.take_back_stepwise(steps);
            left -= stepped;
            if stepped < steps || budget.is_exhausted() {
                break;
            }
        }
        left
    }

    /// Takes back replicas regardless of the rules. Returns the number that could not be taken.
    fn bulk_back(&mut self, take: i64) -> i64 {
        let mut seats = self.allocation.seats.clone();
        let left = self.bulk_down(&mut seats, take);
        self.set_seats(seats);
        left
    }

    fn bulk_down_within_rules(&mut self, take: i64) -> i64 {
        let mut allocation = self.allocation.clone();
        let step = |seats: &mut [i64], _: &[i64], count: i64| self.bulk_down(seats, count);
        let taken = until_a_rule_blocks(&mut allocation, take, fits_down, step);
        self.allocation = allocation;
        self.recount();
        taken
    }

    /// Takes back seat by seat. Returns the number taken.
    fn take_back_stepwise(&mut self, take: i64) -> i64 {
        let last = |divider: &Self, index: usize| {
            let seats = divider.allocation.seats[index];
            // With Fill, only the fill order decides which cluster was last.
            (seats > 0).then(|| match divider.key(index, seats - 1) {
                key if divider.rules.fill => SeatKey { rank: (0, key.rank.1), ..key },
                key => key,
            })
        };
        let mut queues: Vec<CandidateQueue<RemovalKey>> = self
            .rules
            .domains
            .iter()
            .map(|domain| {
                let keys = domain.members.iter().filter_map(|index| last(self, *index));
                CandidateQueue::new(&self.allocation, keys.collect::<Vec<_>>())
            })
            .collect();
        let outsiders = (0..self.input.len()).filter(|index| self.of[*index].is_none());
        let keys: Vec<SeatKey> = outsiders.filter_map(|index| last(self, index)).collect();
        let mut outside = CandidateQueue::<RemovalKey>::new(&self.allocation, keys);
        let mut taken = 0;
        while taken < take {
            let mut found = outside.next(&self.allocation).map(|index| (None, index));
            let mut tried = vec![true; queues.len()];
            while found.is_none() {
                let Some(domain) = self.last_domain(&tried) else { break };
                match queues[domain].next(&self.allocation) {
                    Some(index) => found = Some((Some(domain), index)),
                    None => tried[domain] = false,
                }
            }
            let Some((domain, index)) = found else { break };
            self.allocation.remove(index);
            let key = last(self, index);
            match domain {
                Some(domain) => {
                    self.own[domain] -= 1;
                    queues[domain].requeue(&self.allocation, index, key);
                }
                None => outside.requeue(&self.allocation, index, key),
            }
            taken += 1;
        }
        taken
    }

    /// The domain that got the last replica, among those where this binding has any.
    fn last_domain(&self, open: &[bool]) -> Option<usize> {
        let holds = || (0..open.len()).filter(|d| open[*d] && self.own[*d] > 0);
        let above =
            holds().filter(|domain| self.count(*domain) > self.target(*domain)).min_by(|a, b| {
                // Greatest (2x - 1)/t; ties go to more replicas, then to the later entry.
                let part = |x: usize, y: usize| {
                    (2 * i128::from(self.count(x)) - 1) * i128::from(self.target(y))
                };
                part(*b, *a)
                    .cmp(&part(*a, *b))
                    .then(self.count(*b).cmp(&self.count(*a)))
                    .then(Reverse(*a).cmp(&Reverse(*b)))
            });
        if above.is_some() {
            return above;
        }
        if self.rules.fill {
            return holds().next_back();
        }
        // Greatest (x - 1)/t; ties go to the later entry.
        holds().min_by(|a, b| {
            let part =
                |x: usize, y: usize| (i128::from(self.count(x)) - 1) * i128::from(self.target(y));
            part(*b, *a).cmp(&part(*a, *b)).then(Reverse(*a).cmp(&Reverse(*b)))
        })
    }

    /// Own replicas outside the domains or beyond targets, for which domains below their targets have room.
    fn misplaced(&self) -> i64 {
        let all = || 0..self.rules.domains.len();
        let outside: i64 = (0..self.input.len())
            .filter(|index| self.of[*index].is_none())
            .map(|index| self.allocation.seats[index])
            .sum();
        let beyond: i64 =
            all().map(|d| (self.count(d) - self.target(d)).clamp(0, self.own[d].max(0))).sum();
        let wanting: i64 = all()
            .map(|d| {
                let members = &self.rules.domains[d].members;
                let room = members
                    .iter()
                    .map(|i| {
                        self.allocation.caps[*i].saturating_sub(self.allocation.seats[*i]).max(0)
                    })
                    .fold(0, i64::saturating_add);
                (self.target(d) - self.count(d)).clamp(0, room)
            })
            .fold(0, i64::saturating_add);
        outside.saturating_add(beyond).min(wanting)
    }

    fn why(&self) -> String {
        if self.allocation.exhausted {
            return super::too_many();
        }
        let all = 0..self.rules.domains.len();
        let reasons: Vec<String> = all
            .map(|domain| {
                let of = &self.rules.domains[domain];
                let full = of
                    .members
                    .iter()
                    .all(|i| self.allocation.seats[*i] >= self.allocation.caps[*i]);
                if self.rules.required && self.count(domain) >= self.target(domain) {
                    return format!("{} has its target of {}", of.name, of.target);
                }
                let room = if full { Some(0) } else { None };
                let why =
                    blocked(of, room).unwrap_or_else(|| super::why_left(&self.input.limits, false));
                format!("{} has {} of {}: {why}", of.name, self.count(domain), of.target)
            })
            .collect();
        reasons.join("; ")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The reference implementation: [`divide`] one seat at a time.
    pub(in crate::divide) fn step_by_step(
        input: &DivisionInput,
        rules: &DomainRules<'_>,
    ) -> Division {
        let seats = match rules.start {
            Start::Running => input.seats.clone(),
            Start::Zero => vec![0; input.len()],
        };
        let caps = (0..input.len()).map(|index| input.room(index)).collect();
        let mut divider = DomainDivider::new(input, rules, Allocation::new(input, seats, caps));
        let running = divider.allocation.total();
        if running > rules.desired {
            let fewer = running - rules.desired;
            let taken = divider.take_back_stepwise(fewer);
            divider.allocation = Allocation::new(
                &DivisionInput { limits: Default::default(), ..input.clone() },
                divider.allocation.seats.clone(),
                divider.allocation.caps.clone(),
            );
            divider.take_back_stepwise(fewer - taken);
            return Division { seats: divider.allocation.seats, ..Division::default() };
        }
        if rules.recover {
            divider.take_back_stepwise(divider.misplaced());
        }
        let take = rules.desired - divider.allocation.total();
        let left = take - divider.deal_stepwise(take);
        let pending = crate::divide::pending(left, || divider.why());
        Division { seats: divider.allocation.seats, pending, refused: None }
    }
}
