//! Divides by a WorkloadPolicy: one sequence of next replicas, and its reverse.
//!
//! Domains compete by the distance from their targets, which counts all bindings. Within a domain its clusters compete.
//! Only this binding's own replicas are placed or taken back. Without rules of the placement the replicas are dealt in
//! bulk (`bulk`); with rules seat by seat, with leaps where the rules do not interfere.

mod bulk;

use std::cmp::Reverse;

use super::board::{Back, Board, Lane, Pace};
use super::ground::{Division, Ground, Ties, UNBOUNDED};
use super::key::Key;
use super::{Start, leap, to_u64};

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
pub struct Question<'a> {
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
pub fn divide(ground: &Ground, question: &Question<'_>) -> Division {
    let seats = match question.start {
        Start::Running => ground.seats.clone(),
        Start::Zero => vec![0; ground.len()],
    };
    let caps = (0..ground.len()).map(|index| ground.room(index)).collect();
    let mut run = Run::new(ground, question, Board::new(ground, seats, caps));
    #[cfg(test)]
    {
        // Makes small instances leap too.
        run.board.patch = 0;
    }
    let running = run.board.total();
    if running > question.desired {
        // The total must shrink: rules choose which replicas go, but cannot prevent it.
        let left = run.take_back(running - question.desired);
        run.bulk_back(left);
        return Division { seats: run.board.seats, ..Division::default() };
    }
    if question.recover {
        run.take_back(run.misplaced());
    }
    let left = run.deal(question.desired - run.board.total());
    let pending = super::pending(left, || run.why());
    Division { seats: run.board.seats, pending, refused: None }
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

struct Run<'a> {
    ground: &'a Ground,
    question: &'a Question<'a>,
    board: Board,
    /// This binding's replicas by domain.
    own: Vec<i64>,
    /// Domain of each candidate; `None` = outside all domains.
    of: Vec<Option<usize>>,
    /// Tie-break rank of each candidate.
    ties: Ties,
}

impl<'a> Run<'a> {
    fn new(ground: &'a Ground, question: &'a Question<'a>, board: Board) -> Self {
        let mut of = vec![None; ground.len()];
        let mut own = vec![0; question.domains.len()];
        for (at, domain) in question.domains.iter().enumerate() {
            for index in &domain.members {
                of[*index] = Some(at);
                own[at] += board.seats[*index];
            }
        }
        // Dealing seat by seat looks up ranks often; bulk dealing rarely does.
        let ties = match board.limits.is_empty() {
            true => ground.ties.clone(),
            false => Ties::Given(ground.ties.all(ground.len())),
        };
        Self { ground, question, board, own, of, ties }
    }

    /// Replicas in a domain, of all counted bindings.
    fn count(&self, domain: usize) -> i64 {
        self.question.domains[domain].others.saturating_add(self.own[domain])
    }

    fn target(&self, domain: usize) -> i64 {
        #[cfg(test)]
        if crate::mutants::is(crate::mutants::Mutant::TargetRaised) {
            return self.question.domains[domain].target + 1;
        }
        self.question.domains[domain].target
    }

    /// The claim of a candidate within its domain, with this number of replicas.
    fn key(&self, index: usize, seats: i64) -> Key {
        let tie = self.ties.get(index);
        let index_32 = index as u32;
        if self.question.fill && self.of[index].is_some() {
            // Fill uses one cluster after the other: in use first, then the larger room, unknown room last.
            let room = match self.ground.room(index) {
                UNBOUNDED => -1,
                room => room,
            };
            return Key {
                rank: (i64::from(seats > 0), room),
                weight: 1,
                seats: 0,
                tie,
                index: index_32,
            };
        }
        Key { rank: (0, 0), weight: 1, seats: to_u64(seats), tie, index: index_32 }
    }

    /// Sets the seats.
    fn settle(&mut self, seats: Vec<i64>) {
        self.board.settle(seats);
        self.recount();
    }

    fn recount(&mut self) {
        let seats = &self.board.seats;
        let own = |domain: &Domain| domain.members.iter().map(|index| seats[*index]).sum();
        self.own = self.question.domains.iter().map(own).collect();
    }

    fn deal(&mut self, take: i64) -> i64 {
        if self.board.limits.is_empty() {
            let mut seats = self.board.seats.clone();
            let left = self.bulk_up(&mut seats, take);
            self.settle(seats);
            return left;
        }
        let mut pace = Pace::new(self.board.patch);
        let mut left = take;
        while left > 0 {
            let leapt = if pace.leaps(left) { self.leap_up(left) } else { 0 };
            left -= leapt;
            let steps = pace.steps(leapt, left);
            let walked = self.walk(steps);
            left -= walked;
            if walked < steps {
                break;
            }
            if pace.is_exhausted() {
                self.board.exhausted = left > 0;
                break;
            }
        }
        left
    }

    fn leap_up(&mut self, take: i64) -> i64 {
        let mut board = self.board.clone();
        let step = |seats: &mut [i64], _: &[i64], count: i64| self.bulk_up(seats, count);
        let dealt = leap::free(&mut board, take, leap::fits_up, step);
        self.board = board;
        self.recount();
        dealt
    }

    /// Deals seat by seat. Returns the number dealt.
    fn walk(&mut self, take: i64) -> i64 {
        let mut lanes: Vec<Lane<Key>> = self
            .question
            .domains
            .iter()
            .map(|domain| {
                let keys = domain.members.iter().map(|i| self.key(*i, self.board.seats[*i]));
                Lane::new(&self.board, keys.collect::<Vec<_>>())
            })
            .collect();
        let outsiders = (0..self.ground.len()).filter(|index| self.of[*index].is_none());
        let keys: Vec<Key> = outsiders.map(|i| self.key(i, self.board.seats[i])).collect();
        let mut outside = Lane::<Key>::new(&self.board, keys);
        let mut dealt = 0;
        while dealt < take {
            let mut found = None;
            let mut tried = vec![true; lanes.len()];
            while found.is_none() {
                let Some(domain) = self.next_domain(&tried) else { break };
                match lanes[domain].next(&self.board) {
                    Some(index) => found = Some((Some(domain), index)),
                    None => tried[domain] = false,
                }
            }
            if found.is_none() && !self.question.required {
                found = outside.next(&self.board).map(|index| (None, index));
            }
            let Some((domain, index)) = found else { break };
            self.board.add(index);
            let key = self.key(index, self.board.seats[index]);
            match domain {
                Some(domain) => {
                    self.own[domain] += 1;
                    lanes[domain].settle(&self.board, index, Some(key));
                }
                None => outside.settle(&self.board, index, Some(key)),
            }
            dealt += 1;
        }
        dealt
    }

    /// The domain that gets the next replica: below target by the method, then (Preferred) by Webster.
    fn next_domain(&self, open: &[bool]) -> Option<usize> {
        let all = || (0..open.len()).filter(|domain| open[*domain]);
        let mut below = all().filter(|domain| self.count(*domain) < self.target(*domain));
        let first = if self.question.fill {
            below.next()
        } else {
            // Smallest x/t (Adams), compared as a product; ties by list order.
            below.min_by(|a, b| {
                let left = i128::from(self.count(*a)) * i128::from(self.target(*b));
                let right = i128::from(self.count(*b)) * i128::from(self.target(*a));
                left.cmp(&right).then(a.cmp(b))
            })
        };
        if first.is_some() || self.question.required {
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
        if self.board.limits.is_empty() {
            return self.bulk_back(take);
        }
        let mut pace = Pace::new(self.board.patch);
        let mut left = take;
        while left > 0 {
            let leapt = if pace.leaps(left) { self.leap_down(left) } else { 0 };
            left -= leapt;
            let steps = pace.steps(leapt, left);
            let walked = self.walk_back(steps);
            left -= walked;
            if walked < steps || pace.is_exhausted() {
                break;
            }
        }
        left
    }

    /// Takes back replicas regardless of the rules. Returns the number that could not be taken.
    fn bulk_back(&mut self, take: i64) -> i64 {
        let mut seats = self.board.seats.clone();
        let left = self.bulk_down(&mut seats, take);
        self.settle(seats);
        left
    }

    fn leap_down(&mut self, take: i64) -> i64 {
        let mut board = self.board.clone();
        let step = |seats: &mut [i64], _: &[i64], count: i64| self.bulk_down(seats, count);
        let taken = leap::free(&mut board, take, leap::fits_down, step);
        self.board = board;
        self.recount();
        taken
    }

    /// Takes back seat by seat. Returns the number taken.
    fn walk_back(&mut self, take: i64) -> i64 {
        let last = |run: &Self, index: usize| {
            let seats = run.board.seats[index];
            // With Fill, only the fill order decides which cluster was last.
            (seats > 0).then(|| match run.key(index, seats - 1) {
                key if run.question.fill => Key { rank: (0, key.rank.1), ..key },
                key => key,
            })
        };
        let mut lanes: Vec<Lane<Back>> = self
            .question
            .domains
            .iter()
            .map(|domain| {
                let keys = domain.members.iter().filter_map(|index| last(self, *index));
                Lane::new(&self.board, keys.collect::<Vec<_>>())
            })
            .collect();
        let outsiders = (0..self.ground.len()).filter(|index| self.of[*index].is_none());
        let keys: Vec<Key> = outsiders.filter_map(|index| last(self, index)).collect();
        let mut outside = Lane::<Back>::new(&self.board, keys);
        let mut taken = 0;
        while taken < take {
            let mut found = outside.next(&self.board).map(|index| (None, index));
            let mut tried = vec![true; lanes.len()];
            while found.is_none() {
                let Some(domain) = self.last_domain(&tried) else { break };
                match lanes[domain].next(&self.board) {
                    Some(index) => found = Some((Some(domain), index)),
                    None => tried[domain] = false,
                }
            }
            let Some((domain, index)) = found else { break };
            self.board.remove(index);
            let key = last(self, index);
            match domain {
                Some(domain) => {
                    self.own[domain] -= 1;
                    lanes[domain].settle(&self.board, index, key);
                }
                None => outside.settle(&self.board, index, key),
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
        if self.question.fill {
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
        let all = || 0..self.question.domains.len();
        let outside: i64 = (0..self.ground.len())
            .filter(|index| self.of[*index].is_none())
            .map(|index| self.board.seats[index])
            .sum();
        let beyond: i64 =
            all().map(|d| (self.count(d) - self.target(d)).clamp(0, self.own[d].max(0))).sum();
        let wanting: i64 = all()
            .map(|d| {
                let members = &self.question.domains[d].members;
                let room = members
                    .iter()
                    .map(|i| self.board.caps[*i].saturating_sub(self.board.seats[*i]).max(0))
                    .fold(0, i64::saturating_add);
                (self.target(d) - self.count(d)).clamp(0, room)
            })
            .fold(0, i64::saturating_add);
        outside.saturating_add(beyond).min(wanting)
    }

    fn why(&self) -> String {
        if self.board.exhausted {
            return super::too_many();
        }
        let all = 0..self.question.domains.len();
        let reasons: Vec<String> = all
            .map(|domain| {
                let of = &self.question.domains[domain];
                let full = of.members.iter().all(|i| self.board.seats[*i] >= self.board.caps[*i]);
                if self.question.required && self.count(domain) >= self.target(domain) {
                    return format!("{} has its target of {}", of.name, of.target);
                }
                let room = if full { Some(0) } else { None };
                let why = blocked(of, room)
                    .unwrap_or_else(|| super::why_left(&self.ground.limits, false));
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
    pub(in crate::divide) fn step_by_step(ground: &Ground, question: &Question<'_>) -> Division {
        let seats = match question.start {
            Start::Running => ground.seats.clone(),
            Start::Zero => vec![0; ground.len()],
        };
        let caps = (0..ground.len()).map(|index| ground.room(index)).collect();
        let mut run = Run::new(ground, question, Board::new(ground, seats, caps));
        let running = run.board.total();
        if running > question.desired {
            let fewer = running - question.desired;
            let taken = run.walk_back(fewer);
            run.board = Board::new(
                &Ground { limits: Default::default(), ..ground.clone() },
                run.board.seats.clone(),
                run.board.caps.clone(),
            );
            run.walk_back(fewer - taken);
            return Division { seats: run.board.seats, ..Division::default() };
        }
        if question.recover {
            run.walk_back(run.misplaced());
        }
        let take = question.desired - run.board.total();
        let left = take - run.walk(take);
        let pending = crate::divide::pending(left, || run.why());
        Division { seats: run.board.seats, pending, refused: None }
    }
}
