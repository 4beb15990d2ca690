//! How candidates compete where a strategy orders them by rank and weight, and what that gives when no rule interferes.

use super::ground::Ties;
use super::key::Key;
use super::webster::{self, Party};
use super::{to_i64, to_u64};

/// What one candidate competes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Precedence over every quotient.
    pub rank: i64,
    /// Weight, at least 1.
    pub weight: u64,
    /// Seats that its quotient does not count; 0 on the way down.
    pub base: i64,
}

/// The claims of all candidates; who has none gets nothing and gives nothing back.
#[derive(Debug, Clone, Default)]
pub struct Claims {
    list: Vec<Option<Claim>>,
    ties: Ties,
    ranks: Vec<i64>,
}

impl Claims {
    /// The claims, with the places of candidates among equals.
    #[must_use]
    pub fn new(list: Vec<Option<Claim>>, ties: Ties) -> Self {
        let mut ranks: Vec<i64> = list.iter().flatten().map(|claim| claim.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        Self { list, ties, ranks }
    }

    /// Claims by weight; a weight of 0 gets nothing. `base` are the seats that quotients do not count.
    #[must_use]
    pub fn up(weights: &[u64], base: &[i64], ties: Ties) -> Self {
        let claim = |(weight, base): (&u64, &i64)| {
            (*weight > 0).then_some(Claim { rank: 0, weight: *weight, base: *base })
        };
        Self::new(weights.iter().zip(base).map(claim).collect(), ties)
    }

    /// Claims by weight on the way down; a weight of 0 gives its seats back before every other.
    #[must_use]
    pub fn down(weights: &[u64], ties: Ties) -> Self {
        let claim = |weight: &u64| {
            Some(Claim { rank: i64::from(*weight > 0), weight: (*weight).max(1), base: 0 })
        };
        Self::new(weights.iter().map(claim).collect(), ties)
    }

    /// The claim of a candidate.
    #[must_use]
    pub fn of(&self, index: usize) -> Option<Claim> {
        self.list.get(index).copied().flatten()
    }

    /// The ranks that occur, ascending.
    #[must_use]
    pub fn ranks(&self) -> &[i64] {
        &self.ranks
    }

    /// The same claims, of some candidates only.
    #[must_use]
    pub fn among(&self, who: &[usize]) -> Self {
        let mut list = vec![None; self.list.len()];
        who.iter().for_each(|index| list[*index] = self.of(*index));
        Self::new(list, self.ties.clone())
    }

    /// The key of a candidate that has so many seats.
    #[must_use]
    pub fn key(&self, index: usize, seats: i64) -> Option<Key> {
        self.of(index).map(|claim| Key {
            rank: (claim.rank, 0),
            weight: claim.weight,
            seats: to_u64(seats - claim.base),
            tie: self.ties.get(index),
            index: index as u32,
        })
    }

    /// The key of the seat that a candidate got last.
    #[must_use]
    pub fn last(&self, index: usize, seats: i64) -> Option<Key> {
        if seats > 0 { self.key(index, seats - 1) } else { None }
    }

    fn parties(
        &self,
        rank: i64,
        among: &[usize],
        party: impl Fn(usize, Claim) -> Option<Party>,
    ) -> (Vec<usize>, Vec<Party>) {
        let of_rank = |index: &usize| {
            let claim = self.of(*index).filter(|claim| claim.rank == rank)?;
            party(*index, claim).map(|party| (*index, party))
        };
        among.iter().filter_map(of_rank).unzip()
    }

    /// Deals up to `take` seats to some candidates, ascending, as if there were no rules; returns what found no place.
    pub fn deal(&self, seats: &mut [i64], caps: &[i64], among: &[usize], take: i64) -> i64 {
        let mut left = to_u64(take);
        for rank in self.ranks.iter().rev() {
            if left == 0 {
                break;
            }
            let (who, mut parties) = self.parties(*rank, among, |index, claim| {
                (seats[index] < caps[index]).then(|| Party {
                    weight: claim.weight,
                    seats: to_u64(seats[index] - claim.base),
                    cap: to_u64(caps[index].saturating_sub(claim.base)),
                    floor: 0,
                    tie: self.ties.get(index),
                })
            });
            left = webster::deal(&mut parties, left);
            for (index, party) in who.into_iter().zip(parties) {
                let base = self.of(index).map_or(0, |claim| claim.base);
                seats[index] = to_i64(party.seats).saturating_add(base);
            }
        }
        to_i64(left)
    }

    /// Takes up to `take` seats back from some candidates, ascending, none below its floor, as if there were no rules;
    /// returns how many there were not.
    pub fn take_back(&self, seats: &mut [i64], floors: &[i64], among: &[usize], take: i64) -> i64 {
        let mut left = to_u64(take);
        for rank in &self.ranks {
            if left == 0 {
                break;
            }
            let (who, mut parties) = self.parties(*rank, among, |index, claim| {
                (seats[index] > floors[index]).then(|| Party {
                    weight: claim.weight,
                    seats: to_u64(seats[index]),
                    cap: u64::MAX,
                    floor: to_u64(floors[index]),
                    tie: self.ties.get(index),
                })
            });
            left = webster::take_back(&mut parties, left);
            for (index, party) in who.into_iter().zip(parties) {
                seats[index] = to_i64(party.seats);
            }
        }
        to_i64(left)
    }
}
