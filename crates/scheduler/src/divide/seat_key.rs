//! The order of seats: which cluster gets the next replica and, in reverse, which loses the last one.

use std::cmp::Ordering;

/// The claim of one cluster to its next seat. The greatest key gets it.
///
/// A higher rank comes first. Within a rank the highest quotient weight / (2·seats + 1) wins (Webster), compared
/// exactly. Ties go to fewer seats, then to the greater tie value, then to the lower index, which is the smaller name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeatKey {
    /// Precedence. Takes priority over the quotient.
    pub rank: (i64, i64),
    /// Weight of the cluster.
    pub weight: u64,
    /// Seats that the quotient counts.
    pub seats: u64,
    /// Tie-break rank.
    pub tie: u64,
    /// The cluster, as an index into the candidates.
    pub index: u32,
}

impl SeatKey {
    /// The order before ties are broken.
    #[must_use]
    pub fn claim_cmp(&self, other: &Self) -> Ordering {
        self.rank
            .cmp(&other.rank)
            .then_with(|| {
                // Below 2^31 the products fit 64 bits, which is nearly always the case.
                if (self.weight | other.weight | self.seats | other.seats) >> 31 == 0 {
                    let quotient = |a: &Self, b: &Self| a.weight * (2 * b.seats + 1);
                    return quotient(self, other).cmp(&quotient(other, self));
                }
                let quotient = |a: &Self, b: &Self| {
                    u128::from(a.weight).saturating_mul(2 * u128::from(b.seats) + 1)
                };
                quotient(self, other).cmp(&quotient(other, self))
            })
            .then_with(|| other.seats.cmp(&self.seats))
    }
}

impl Ord for SeatKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.claim_cmp(other)
            .then_with(|| self.tie.cmp(&other.tie))
            .then_with(|| other.index.cmp(&self.index))
    }
}

impl PartialOrd for SeatKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
