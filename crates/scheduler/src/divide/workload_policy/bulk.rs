//! Deals many replicas of a WorkloadPolicy at once if no other rule applies: first the number per domain, then per
//! cluster. The result equals that of dealing replica by replica.

use std::cmp::Reverse;

use super::DomainDivider;
use crate::divide::claims::{Claims, SeatClaim};
use crate::divide::webster::{self, Party};
use crate::divide::{to_i64, to_u64};

/// Bits of the denominator of the threshold on x/t. No domain has two replicas between two adjacent thresholds.
const FINE: u32 = 64;

/// The state of a listed domain during dealing.
#[derive(Debug, Clone, Copy)]
struct DomainCount {
    at: usize,
    target: i64,
    /// Replicas of all counted bindings.
    count: i64,
    /// Maximum when scaling up; minimum when scaling down.
    end: i64,
}

impl DomainCount {
    /// Number of replicas x with x/t below the threshold.
    fn below(&self, p: u128) -> i64 {
        let part = (u128::from(to_u64(self.target)) * p).div_ceil(1 << FINE);
        i64::try_from(part).unwrap_or(i64::MAX)
    }

    /// Compares x/t of two domains.
    fn by_part(a: (&Self, i64), b: (&Self, i64)) -> std::cmp::Ordering {
        let left = i128::from(a.1) * i128::from(b.0.target);
        left.cmp(&(i128::from(b.1) * i128::from(a.0.target)))
    }
}

/// The greatest threshold that satisfies a monotone condition, which holds at 0.
fn threshold(holds: impl Fn(u128) -> bool) -> u128 {
    let (mut low, mut high) = (0, 1 << (FINE + 1));
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if holds(middle) { low = middle } else { high = middle }
    }
    low
}

impl DomainDivider<'_> {
    fn counts(&self, seats: &[i64]) -> Vec<DomainCount> {
        let domains = self.rules.domains.iter().enumerate();
        domains
            .map(|(at, domain)| {
                let own = domain.members.iter().map(|i| seats[*i]).fold(0, i64::saturating_add);
                let count = domain.others.saturating_add(own);
                DomainCount { at, target: self.target(at), count, end: count }
            })
            .collect()
    }

    /// Deals up to `take` replicas. Returns the number that could not be placed.
    pub(super) fn bulk_up(&self, seats: &mut [i64], take: i64) -> i64 {
        let mut left = take;
        let mut counts = self.counts(seats);
        let free =
            |index: &usize| self.allocation.caps[*index].saturating_sub(seats[*index]).max(0);
        let rooms: Vec<i64> = self
            .rules
            .domains
            .iter()
            .map(|domain| domain.members.iter().map(free).fold(0, i64::saturating_add))
            .collect();
        let starts: Vec<i64> = counts.iter().map(|domain_count| domain_count.count).collect();
        for (domain_count, room) in counts.iter_mut().zip(&rooms) {
            let wants = domain_count.target.saturating_sub(domain_count.count).clamp(0, *room);
            domain_count.end = domain_count.count.saturating_add(wants);
        }
        left -=
            if self.rules.fill { fill_up(&mut counts, left) } else { adams_up(&mut counts, left) };
        if left > 0 && !self.rules.required {
            let mut parties: Vec<Party> = counts
                .iter()
                .map(|domain_count| Party {
                    weight: to_u64(domain_count.target),
                    seats: to_u64(domain_count.count),
                    cap: to_u64(starts[domain_count.at].saturating_add(rooms[domain_count.at])),
                    floor: 0,
                    tie: u64::MAX - domain_count.at as u64,
                })
                .collect();
            left = to_i64(webster::deal(&mut parties, to_u64(left)));
            for (domain_count, party) in counts.iter_mut().zip(parties) {
                domain_count.count = to_i64(party.seats);
            }
        }
        for domain_count in &counts {
            self.spread_up(seats, domain_count.at, domain_count.count - starts[domain_count.at]);
        }
        if left > 0 && !self.rules.required {
            let outside: Vec<usize> =
                (0..seats.len()).filter(|index| self.of[*index].is_none()).collect();
            left = self.deal_evenly(seats, &outside, left);
        }
        left
    }

    /// Takes back up to `take` replicas. Returns the number that could not be taken.
    pub(super) fn bulk_down(&self, seats: &mut [i64], take: i64) -> i64 {
        let floors = vec![0; seats.len()];
        let outside: Vec<usize> =
            (0..seats.len()).filter(|index| self.of[*index].is_none()).collect();
        let mut left = self.equal().take_back(seats, &floors, &outside, take);
        let mut counts = self.counts(seats);
        let starts: Vec<i64> = counts.iter().map(|domain_count| domain_count.count).collect();
        // Replicas above the targets: greatest (2x - 1)/t first; ties go to more replicas, then to the later entry.
        let mut parties: Vec<Party> = counts
            .iter()
            .map(|domain_count| Party {
                weight: to_u64(domain_count.target),
                seats: to_u64(domain_count.count),
                cap: u64::MAX,
                floor: to_u64(
                    domain_count
                        .target
                        .max(self.rules.domains[domain_count.at].others)
                        .min(domain_count.count),
                ),
                tie: u64::MAX - domain_count.at as u64,
            })
            .collect();
        left = to_i64(webster::take_back(&mut parties, to_u64(left)));
        for (domain_count, party) in counts.iter_mut().zip(parties) {
            domain_count.count = to_i64(party.seats);
            domain_count.end = self.rules.domains[domain_count.at].others.min(domain_count.count);
        }
        left -= if self.rules.fill {
            fill_down(&mut counts, left)
        } else {
            adams_down(&mut counts, left)
        };
        for domain_count in &counts {
            self.spread_down(seats, domain_count.at, starts[domain_count.at] - domain_count.count);
        }
        left
    }

    /// Deals to the candidates with the fewest replicas first. Returns the number that could not be placed.
    fn deal_evenly(&self, seats: &mut [i64], among: &[usize], take: i64) -> i64 {
        let caps = &self.allocation.caps;
        let open = among.iter().copied().filter(|index| seats[*index] < caps[*index]);
        let open: Vec<usize> = open.collect();
        let few = usize::try_from(take).is_ok_and(|take| (1..open.len()).contains(&take));
        if !few || open.iter().any(|index| seats[*index] > 0) {
            return self.equal().deal(seats, caps, &open, take);
        }
        // No candidate has a replica, and there are fewer replicas than candidates: the first by tie-break rank get one
        // each.
        let place = |index: usize| (Reverse(self.ties.get(index)), index);
        let mut places: Vec<_> = open.into_iter().map(place).collect();
        let (first, last, _) = places.select_nth_unstable(take as usize - 1);
        first.iter().chain([&*last]).for_each(|(_, index)| seats[*index] += 1);
        0
    }

    /// Claims that prefer the fewest replicas.
    fn equal(&self) -> Claims {
        let one = Some(SeatClaim { rank: 0, weight: 1, base: 0 });
        Claims::new(vec![one; self.input.len()], self.input.ties.clone())
    }

    /// The order of Fill, one cluster after the other: larger room first, unknown room last.
    fn fill_order(&self, index: usize) -> (i64, u64, Reverse<usize>) {
        let key = self.key(index, 0);
        (key.rank.1, key.tie, Reverse(index))
    }

    fn spread_up(&self, seats: &mut [i64], domain: usize, mut count: i64) {
        let members = &self.rules.domains[domain].members;
        if !self.rules.fill {
            self.deal_evenly(seats, members, count);
            return;
        }
        let mut members = members.clone();
        members.sort_by_cached_key(|index| Reverse((seats[*index] > 0, self.fill_order(*index))));
        for index in members {
            let more = self.allocation.caps[index].saturating_sub(seats[index]).clamp(0, count);
            seats[index] += more;
            count -= more;
        }
    }

    fn spread_down(&self, seats: &mut [i64], domain: usize, mut count: i64) {
        let mut members = self.rules.domains[domain].members.clone();
        if !self.rules.fill {
            let floors = vec![0; seats.len()];
            self.equal().take_back(seats, &floors, &members, count);
            return;
        }
        members.sort_by_cached_key(|index| self.fill_order(*index));
        for index in members {
            let fewer = seats[index].clamp(0, count);
            seats[index] -= fewer;
            count -= fewer;
        }
    }
}

/// Fills the domains in list order, each to its end. Returns the number dealt.
fn fill_up(counts: &mut [DomainCount], take: i64) -> i64 {
    let mut left = take;
    for domain_count in counts {
        let more = (domain_count.end - domain_count.count).clamp(0, left);
        domain_count.count += more;
        left -= more;
    }
    take - left
}

/// Empties the domains in reverse list order, each to its end. Returns the number taken.
fn fill_down(counts: &mut [DomainCount], take: i64) -> i64 {
    let mut left = take;
    for domain_count in counts.iter_mut().rev() {
        let fewer = (domain_count.count - domain_count.end).clamp(0, left);
        domain_count.count -= fewer;
        left -= fewer;
    }
    take - left
}

/// Smallest x/t first, ties by list order (Adams). Returns the number dealt.
fn adams_up(counts: &mut [DomainCount], take: i64) -> i64 {
    let open: i64 = counts
        .iter()
        .map(|domain_count| domain_count.end - domain_count.count)
        .fold(0, i64::saturating_add);
    let take = take.min(open);
    let reach = |domain_count: &DomainCount, p: u128| {
        domain_count.below(p).min(domain_count.end).max(domain_count.count)
    };
    let dealt = |counts: &[DomainCount], p: u128| {
        counts
            .iter()
            .map(|domain_count| reach(domain_count, p) - domain_count.count)
            .fold(0, i64::saturating_add)
    };
    let p = threshold(|p| dealt(counts, p) <= take);
    let mut left = take - dealt(counts, p);
    counts.iter_mut().for_each(|domain_count| domain_count.count = reach(domain_count, p));
    // Between this threshold and the next there is at most one replica per domain.
    let mut next: Vec<usize> =
        (0..counts.len()).filter(|at| counts[*at].count < counts[*at].end).collect();
    next.sort_by(|a, b| {
        let (a, b) = (&counts[*a], &counts[*b]);
        DomainCount::by_part((a, a.count), (b, b.count)).then(a.at.cmp(&b.at))
    });
    for at in next {
        let more = left.min(1);
        counts[at].count += more;
        left -= more;
    }
    take
}

/// Greatest (x - 1)/t first, ties to the later entry. Returns the number taken.
fn adams_down(counts: &mut [DomainCount], take: i64) -> i64 {
    let open: i64 = counts
        .iter()
        .map(|domain_count| domain_count.count - domain_count.end)
        .fold(0, i64::saturating_add);
    let take = take.min(open);
    if take == 0 {
        return 0;
    }
    let reach = |domain_count: &DomainCount, p: u128| {
        domain_count.below(p).max(domain_count.end).min(domain_count.count)
    };
    let taken = |counts: &[DomainCount], p: u128| {
        counts
            .iter()
            .map(|domain_count| domain_count.count - reach(domain_count, p))
            .fold(0, i64::saturating_add)
    };
    // The smallest threshold that takes at most `take` is one above the greatest that takes more.
    let p = match taken(counts, 0) <= take {
        true => 0,
        false => threshold(|p| taken(counts, p) > take) + 1,
    };
    let mut left = take - taken(counts, p);
    counts.iter_mut().for_each(|domain_count| domain_count.count = reach(domain_count, p));
    let mut next: Vec<usize> =
        (0..counts.len()).filter(|at| counts[*at].count > counts[*at].end).collect();
    next.sort_by(|a, b| {
        let (a, b) = (&counts[*a], &counts[*b]);
        DomainCount::by_part((b, b.count - 1), (a, a.count - 1)).then(b.at.cmp(&a.at))
    });
    for at in next {
        let fewer = left.min(1);
        counts[at].count -= fewer;
        left -= fewer;
    }
    take
}
