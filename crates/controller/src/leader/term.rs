//! The term of a leader: a number that grows with every election.

use std::fmt;

/// Limit of the step by which a term read from a binding or reported by members raises ours. Elections raise it by one,
/// so a larger step is a damaged or forged value; accepting it would exhaust the counter.
pub const LARGEST_TERM_STEP: u64 = 1 << 32;

/// The term of one leadership. Every decision and every message to a member carries it; agents and the hub refuse a
/// lower one than they accepted before. Zero: no election took place yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaderTerm(u64);

impl LeaderTerm {
    /// The term with this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number, for messages and annotations.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The term in a binding's `spec.decision` or in a row of history. A negative number counts as zero.
    #[must_use]
    pub fn from_record(number: i64) -> Self {
        Self(number.max(0).unsigned_abs())
    }

    /// Its number as bindings and history store it, in 63 bits.
    #[must_use]
    pub fn to_record(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }

    /// The lowest term above this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Whether this term is too far above `ours` to result from elections.
    #[must_use]
    pub const fn is_out_of_range(self, ours: Self) -> bool {
        self.0.saturating_sub(ours.0) > LARGEST_TERM_STEP
    }
}

impl fmt::Display for LeaderTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
