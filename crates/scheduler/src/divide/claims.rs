//! How candidates compete when a strategy orders them by rank and weight, and the result if no rule interferes.

use super::input::Ties;
use super::seat_key::SeatKey;
use super::webster::{self, Party};
use super::{to_i64, to_u64};

/// The claim of one candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeatClaim {
    /// Precedence. Takes priority over the quotient.
    pub rank: i64,
    /// Weight, at least 1.
    pub weight: u64,
    /// Seats that the quotient does not count; 0 when scaling down.
    pub base: i64,
}

/// The claims of all candidates. A candidate without a claim gets nothing and loses nothing.
#[derive(Debug, Clone, Default)]
pub struct Claims {
    list: Vec<Option<SeatClaim>>,
    ties: Ties,
    ranks: Vec<i64>,
}

impl Claims {
    /// Creates claims with the tie-break ranks of the candidates.
    #[must_use]
    pub fn new(list: Vec<Option<SeatClaim>>, ties: Ties) -> Self {
        let mut ranks: Vec<i64> = list.iter().flatten().map(|claim| claim.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        Self { list, ties, ranks }
    }

    /// Claims by weight. A weight of 0 gets nothing. `base` are the seats that quotients do not count.
    #[must_use]
    pub fn up(weights: &[u64], base: &[i64], ties: Ties) -> Self {
        let claim = |(weight, base): (&u64, &i64)| {
            (*weight > 0).then_some(SeatClaim { rank: 0, weight: *weight, base: *base })
        };
        Self::new(weights.iter().zip(base).map(claim).collect(), ties)
    }

    /// Claims by weight for scaling down. A weight of 0 loses its seats first.
    #[must_use]
    pub fn down(weights: &[u64], ties: Ties) -> Self {
        let claim = |weight: &u64| {
            Some(SeatClaim { rank: i64::from(*weight > 0), weight: (*weight).max(1), base: 0 })
        };
        Self::new(weights.iter().map(claim).collect(), ties)
    }

    /// The claim of a candidate.
    #[must_use]
    pub fn of(&self, index: usize) -> Option<SeatClaim> {
        self.list.get(index).copied().flatten()
    }

    /// The distinct ranks, ascending.
    #[must_use]
    pub fn ranks(&self) -> &[i64] {
        &self.ranks
    }

    /// The claims of some candidates only.
    #[must_use]
    pub fn among(&self, who: &[usize]) -> Self {
        let mut list = vec![None; self.list.len()];
        who.iter().for_each(|index| list[*index] = self.of(*index));
        Self::new(list, self.ties.clone())
    }

    /// The key of a candidate with this number of seats.
    #[must_use]
    pub fn key(&self, index: usize, seats: i64) -> Option<SeatKey> {
        self.key_before_ties(index, seats).map(|key| self.with_tie(key))
    }

    /// The key without its tie-break rank, which takes a hash to compute.
    #[must_use]
    pub fn key_before_ties(&self, index: usize, seats: i64) -> Option<SeatKey> {
        self.of(index).map(|claim| SeatKey {
            rank: (claim.rank, 0),
            weight: claim.weight,
            seats: to_u64(seats - claim.base),
            tie: 0,
            index: index as u32,
        })
    }

    /// A key with its tie-break rank.
    #[must_use]
    pub fn with_tie(&self, key: SeatKey) -> SeatKey {
        SeatKey { tie: self.ties.get(key.index as usize), ..key }
    }

    /// The key of a candidate's last seat.
    #[must_use]
    pub fn last(&self, index: usize, seats: i64) -> Option<SeatKey> {
        if seats > 0 { self.key(index, seats - 1) } else { None }
    }

    fn parties(
        &self,
        rank: i64,
        among: &[usize],
        party: impl Fn(usize, SeatClaim) -> Option<Party>,
    ) -> (Vec<usize>, Vec<Party>) {
        let of_rank = |index: &usize| {
            let claim = self.of(*index).filter(|claim| claim.rank == rank)?;
            party(*index, claim).map(|party| (*index, party))
        };
        among.iter().filter_map(of_rank).unzip()
    }

    /// Deals up to `take` seats to the candidates `among`, ascending, without rules. Returns the number that could not
    /// be placed.
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

    /// Takes back up to `take` seats from the candidates `among`, ascending, down to their floors, without rules.
    /// Returns the number that could not be taken.
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
