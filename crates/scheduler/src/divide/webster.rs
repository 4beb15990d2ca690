//! Webster's method in bulk: O(N log N), independent of the number of seats.
//!
//! The seats of all clusters form one sequence, ordered by [`SeatKey`]. A threshold 1/μ on the quotient admits a prefix
//! of it. A search finds a μ whose prefix is close to the wanted number, and a heap deals the remaining seats exactly.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::seat_key::SeatKey;

/// Maximum bits of the denominator of μ: fine enough that the heap deals about one seat per cluster, whatever the
/// weights.
const MAX_DENOMINATOR_BITS: u32 = 80;

/// Seats per party up to which only the heap is used, because the search costs about as much.
const FEW: u128 = 4;

/// One cluster in a division.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Party {
    /// Weight. 0 = it gets no seat.
    pub weight: u64,
    /// Current seats.
    pub seats: u64,
    /// Maximum seats when dealing.
    pub cap: u64,
    /// Minimum seats when taking back.
    pub floor: u64,
    /// Tie-break rank.
    pub tie: u64,
}

/// Bits of the denominator for this number of seats: a weight times μ must fit 128 bits.
#[must_use]
pub fn denominator_bits(seats: u128) -> u32 {
    let bits = u128::BITS - seats.saturating_mul(2).saturating_add(2).leading_zeros();
    MAX_DENOMINATOR_BITS.min(118_u32.saturating_sub(bits))
}

/// Seats of a party with a quotient of at least 1/μ, with μ = p / 2^bits.
#[must_use]
pub fn seats_above(weight: u64, p: u128, bits: u32) -> u64 {
    // weight / (2s + 1) >= 2^bits / p  <=>  2s + 1 <= weight * p / 2^bits
    let limit = u128::from(weight).saturating_mul(p) >> bits;
    u64::try_from(limit.div_ceil(2)).unwrap_or(u64::MAX)
}

/// Deals up to `take` further seats. Returns the number that no party can take.
pub fn deal(parties: &mut [Party], take: u64) -> u64 {
    let start: u128 = parties.iter().map(|party| u128::from(party.seats)).sum();
    let room: u128 = parties
        .iter()
        .filter(|party| party.weight > 0)
        .map(|party| u128::from(party.cap.saturating_sub(party.seats)))
        .sum();
    let dealt = u128::from(take).min(room);
    let target = start + dealt;
    let bits = denominator_bits(target);
    let seats_at = |party: &Party, p: u128| {
        if party.weight == 0 {
            party.seats
        } else {
            seats_above(party.weight, p, bits).min(party.cap).max(party.seats)
        }
    };
    if dealt > parties.len() as u128 * FEW {
        let total = |p: u128| parties.iter().map(|x| u128::from(seats_at(x, p))).sum::<u128>();
        if let Some(p) = search(parties, target, bits, total) {
            parties.iter_mut().for_each(|party| party.seats = seats_at(party, p));
        }
    }
    let now: u128 = parties.iter().map(|party| u128::from(party.seats)).sum();
    let open = (0..).zip(parties.iter());
    let open = open.filter(|(_, party)| party.weight > 0 && party.seats < party.cap);
    let mut heap = TurnHeap::new(open.map(|(index, party)| party.turn(index)).collect(), parties);
    for _ in now..target {
        let Some(Turn { index, .. }) = heap.first() else { break };
        let party = &mut parties[index as usize];
        party.seats += 1;
        heap.settle((party.seats < party.cap).then(|| party.turn(index)), parties);
    }
    take - u64::try_from(dealt).unwrap_or(take)
}

/// Takes back the last `take` seats, down to the floors. Returns the number that could not be taken. Weights must be
/// above 0.
pub fn take_back(parties: &mut [Party], take: u64) -> u64 {
    let start: u128 = parties.iter().map(|party| u128::from(party.seats)).sum();
    let least: u128 = parties.iter().map(|party| u128::from(party.floor.min(party.seats))).sum();
    let taken = u128::from(take).min(start - least);
    let target = start - taken;
    let bits = denominator_bits(start);
    let seats_at = |party: &Party, p: u128| {
        seats_above(party.weight, p, bits).max(party.floor).min(party.seats)
    };
    if taken > parties.len() as u128 * FEW {
        let total = |p: u128| parties.iter().map(|x| u128::from(seats_at(x, p))).sum::<u128>();
        // The smallest prefix of at least the target: one step beyond the largest of at most the target.
        if let Some(p) = search_above(parties, target, bits, total) {
            parties.iter_mut().for_each(|party| party.seats = seats_at(party, p));
        }
    }
    let now: u128 = parties.iter().map(|party| u128::from(party.seats)).sum();
    let mut heap: BinaryHeap<Reverse<SeatKey>> = (0..)
        .zip(parties.iter())
        .filter(|(_, party)| party.seats > party.floor)
        .map(|(index, party)| Reverse(party.key(index, party.seats - 1)))
        .collect();
    for _ in target..now {
        let Some(mut top) = heap.peek_mut() else { break };
        let index = top.0.index;
        let party = &mut parties[index as usize];
        party.seats -= 1;
        if party.seats > party.floor {
            *top = Reverse(party.key(index, party.seats - 1));
        } else {
            std::collections::binary_heap::PeekMut::pop(top);
        }
    }
    take - u64::try_from(taken).unwrap_or(take)
}

/// A party that waits for its next seat.
#[derive(Debug, Clone, Copy)]
struct Turn {
    quotient: f64,
    index: u32,
}

/// Floating point quotients that differ by more than this factor are in the exact order: their relative error is below
/// 2^-50.
const CLEAR: f64 = 1.0 + 1e-14;

/// A heap of parties in the order of [`SeatKey`]. Floating point quotients decide unless they are too close.
struct TurnHeap {
    heap: Vec<Turn>,
}

impl TurnHeap {
    fn new(heap: Vec<Turn>, parties: &[Party]) -> Self {
        let mut heap = Self { heap };
        (0..heap.heap.len() / 2).rev().for_each(|at| heap.sink(at, parties));
        heap
    }

    fn first(&self) -> Option<Turn> {
        self.heap.first().copied()
    }

    /// Updates the first party after it got a seat: it waits for the next one, or leaves.
    fn settle(&mut self, turn: Option<Turn>, parties: &[Party]) {
        match turn {
            Some(turn) => self.heap[0] = turn,
            None => {
                self.heap.swap_remove(0);
            }
        }
        self.sink(0, parties);
    }

    fn sink(&mut self, mut at: usize, parties: &[Party]) {
        loop {
            let mut child = 2 * at + 1;
            let Some(mut best) = self.heap.get(child).copied() else { return };
            if let Some(other) = self.heap.get(child + 1)
                && other.is_before(best, parties)
            {
                (child, best) = (child + 1, *other);
            }
            if !best.is_before(self.heap[at], parties) {
                return;
            }
            self.heap.swap(at, child);
            at = child;
        }
    }
}

impl Turn {
    fn is_before(self, other: Self, parties: &[Party]) -> bool {
        if self.quotient > other.quotient * CLEAR {
            return true;
        }
        if other.quotient > self.quotient * CLEAR {
            return false;
        }
        let key = |turn: Self| {
            let party = &parties[turn.index as usize];
            party.key(turn.index, party.seats)
        };
        key(self) > key(other)
    }
}

impl Party {
    fn turn(&self, index: u32) -> Turn {
        Turn { quotient: self.weight as f64 / (2.0 * self.seats as f64 + 1.0), index }
    }

    fn key(&self, index: u32, seats: u64) -> SeatKey {
        SeatKey { rank: (0, 0), weight: self.weight, seats, tie: self.tie, index }
    }
}

/// A bracket of μ: `total(low) <= target < total(high)`, narrowed until the low side lacks at most half a seat per
/// party.
fn bracket(
    parties: &[Party],
    target: u128,
    bits: u32,
    total: impl Fn(u128) -> u128,
) -> Option<(u128, Option<u128>)> {
    let weights: u128 = parties.iter().map(|party| u128::from(party.weight)).sum();
    if weights == 0 {
        return None;
    }
    let (mut low, mut high) = (0, None);
    let mut guess = (target.saturating_mul(2).saturating_mul(1 << bits) / weights).max(1);
    let near = parties.len() as u128 / 2;
    // 256 halvings exhaust any 128-bit bracket, so the loop always ends by another condition.
    for _ in 0..256 {
        let sum = total(guess);
        if sum <= target {
            low = guess;
            if target - sum <= near {
                break;
            }
        } else {
            high = Some(guess);
        }
        guess = match high {
            None => low.saturating_mul(2),
            Some(high) if high - low <= 1 => break,
            Some(high) => low + (high - low) / 2,
        };
        if guess == low {
            break;
        }
    }
    Some((low, high))
}

fn search(
    parties: &[Party],
    target: u128,
    bits: u32,
    total: impl Fn(u128) -> u128,
) -> Option<u128> {
    bracket(parties, target, bits, total).map(|(low, _)| low)
}

fn search_above(
    parties: &[Party],
    target: u128,
    bits: u32,
    total: impl Fn(u128) -> u128,
) -> Option<u128> {
    let (mut low, high) = bracket(parties, target, bits, &total)?;
    let mut high = match high {
        Some(high) => high,
        // The low side was already close enough before a high side was found.
        None if total(low) == target => return Some(low),
        None => {
            let mut high = low.max(1);
            while total(high) < target && high < u128::MAX {
                low = high;
                high = high.saturating_mul(2);
            }
            high
        }
    };
    let near = parties.len() as u128 / 2;
    while high - low > 1 && total(high) - target > near {
        let middle = low + (high - low) / 2;
        if total(middle) < target { low = middle } else { high = middle }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::splitmix64;

    /// The reference implementation, one seat at a time.
    fn slow(parties: &mut [Party], take: u64) -> u64 {
        for left in (1..=take).rev() {
            let best = (0..)
                .zip(parties.iter())
                .filter(|(_, p)| p.weight > 0 && p.seats < p.cap)
                .map(|(i, p)| p.key(i, p.seats))
                .max();
            let Some(best) = best else { return left };
            parties[best.index as usize].seats += 1;
        }
        0
    }

    fn slow_back(parties: &mut [Party], take: u64) -> u64 {
        for left in (1..=take).rev() {
            let last = (0..)
                .zip(parties.iter())
                .filter(|(_, p)| p.seats > p.floor)
                .map(|(i, p)| p.key(i, p.seats - 1))
                .min();
            let Some(last) = last else { return left };
            parties[last.index as usize].seats -= 1;
        }
        0
    }

    #[test]
    fn billions_of_seats_take_no_longer_than_a_few() {
        let weights = [1, 3, u64::MAX / 5, u64::MAX / 7, 1 << 33, 7, 7, 7];
        let party = |weight| Party { weight, seats: 0, cap: u64::MAX, floor: 0, tie: 0 };
        for same in [false, true] {
            let mut parties: Vec<Party> =
                weights.map(|weight| party(if same { 7 } else { weight })).to_vec();
            let all = i32::MAX as u64;
            assert_eq!(deal(&mut parties, all), 0);
            assert_eq!(parties.iter().map(|party| party.seats).sum::<u64>(), all);
            assert_eq!(take_back(&mut parties, all - 1), 0);
            assert_eq!(parties.iter().map(|party| party.seats).sum::<u64>(), 1);
        }
    }

    #[test]
    fn bulk_is_the_definition_and_down_is_the_reverse_of_up() {
        for seed in 0..2000_u64 {
            let random = |n: u64, below: u64| splitmix64(seed * 1009 + n) % below;
            let n = 1 + random(0, 12);
            let huge = if seed % 7 == 0 { u64::MAX / 64 } else { 20 };
            let mut parties: Vec<Party> = (0..n)
                .map(|i| {
                    let seats = random(i * 10 + 1, 8) * random(i * 10 + 2, 2);
                    Party {
                        weight: random(i * 10 + 3, huge),
                        seats,
                        cap: if random(i * 10 + 4, 3) == 0 {
                            seats + random(i * 10 + 5, 9)
                        } else {
                            u64::MAX
                        },
                        floor: 0,
                        tie: random(i * 10 + 6, 3),
                    }
                })
                .collect();
            let start = parties.clone();
            let take = random(7, 300);
            let (mut bulk, mut one) = (parties.clone(), parties.clone());
            let left = deal(&mut bulk, take);
            assert_eq!(left, slow(&mut one, take), "seed {seed}: {start:?} take {take}");
            assert_eq!(bulk, one, "seed {seed}: {start:?} take {take}");
            // Starts from zero, so that dealing produces the sequence itself.
            parties.iter_mut().for_each(|party| party.seats = 0);
            let mut high = parties.clone();
            deal(&mut high, take);
            let back = random(8, take + 1);
            let total: u64 = high.iter().map(|party| party.seats).sum();
            take_back(&mut high, back.min(total));
            deal(&mut parties, total - back.min(total));
            assert_eq!(high, parties, "seed {seed}: back {back} of {total}");
            // Starts above other seats, which is not a prefix of the sequence, and goes down to floors.
            let mut high: Vec<Party> = (0..)
                .zip(&one)
                .filter(|(_, party)| party.weight > 0)
                .map(|(i, party)| Party { floor: random(i * 10 + 9, party.seats + 1), ..*party })
                .collect();
            let mut low = high.clone();
            let left = take_back(&mut high, take);
            assert_eq!(left, slow_back(&mut low, take), "seed {seed}: back {take} of {one:?}");
            assert_eq!(high, low, "seed {seed}: back {take} of {one:?}");
        }
    }
}
