//! The input of every division: the candidates, their running replicas, their capacity, and the rules on the result.

use std::sync::Arc;

use super::limits::Limits;
use crate::hash::TieHash;
use crate::state::snapshot::Names;

/// Marks room without a known limit.
pub const UNBOUNDED: i64 = i64::MAX;

/// Tie-break ranks. Hashes are computed only for candidates that tie, which is rare.
#[derive(Debug, Clone, Default)]
pub enum Ties {
    /// All ranks are equal: the order of names decides.
    #[default]
    Same,
    /// One rank per candidate.
    Given(Vec<u64>),
    /// By hash of template and name.
    Hashed {
        /// The template's hash.
        hash: TieHash,
        /// Names by row.
        names: Names,
        /// Row of each candidate.
        rows: Arc<[u32]>,
    },
    /// By preference, then by hash of template and name.
    Preferred {
        /// Score of each candidate, 0 to 100.
        scores: Arc<[i64]>,
        /// The template's hash.
        hash: TieHash,
        /// Names by row.
        names: Names,
        /// Row of each candidate.
        rows: Arc<[u32]>,
    },
}

/// Bits of a rank that a score of 0 to 100 takes.
const SCORE_BITS: u32 = 7;

impl Ties {
    /// The rank of a candidate.
    #[must_use]
    pub fn get(&self, index: usize) -> u64 {
        match self {
            Self::Same => 0,
            Self::Given(ties) => ties[index],
            Self::Hashed { hash, names, rows } => hash.rank(&names[rows[index] as usize]),
            Self::Preferred { scores, hash, names, rows } => {
                let score = u64::try_from(scores[index]).unwrap_or(0);
                let rank = hash.rank(&names[rows[index] as usize]);
                (score << (u64::BITS - SCORE_BITS)) | (rank >> SCORE_BITS)
            }
        }
    }

    /// The ranks of the first `len` candidates, for callers that need all of them repeatedly.
    #[must_use]
    pub fn all(&self, len: usize) -> Vec<u64> {
        (0..len).map(|index| self.get(index)).collect()
    }

    /// The ranks of some candidates.
    #[must_use]
    pub fn part(&self, indices: &[usize]) -> Self {
        match self {
            Self::Same => Self::Same,
            Self::Given(ties) => Self::Given(indices.iter().map(|index| ties[*index]).collect()),
            Self::Hashed { hash, names, rows } => Self::Hashed {
                hash: *hash,
                names: names.clone(),
                rows: indices.iter().map(|index| rows[*index]).collect(),
            },
            Self::Preferred { scores, hash, names, rows } => Self::Preferred {
                scores: indices.iter().map(|index| scores[*index]).collect(),
                hash: *hash,
                names: names.clone(),
                rows: indices.iter().map(|index| rows[*index]).collect(),
            },
        }
    }
}

/// The candidates of a division, ordered by name. Each list has one entry per candidate.
#[derive(Debug, Clone, Default)]
pub struct DivisionInput {
    /// Replicas that run there.
    pub seats: Vec<i64>,
    /// Additional replicas that fit. `None` = unknown.
    pub more: Vec<Option<i64>>,
    /// Clusters that keep their replicas and never grow.
    pub frozen: Vec<bool>,
    /// Tie-break ranks; the greatest comes first.
    pub ties: Ties,
    /// Rules on groups of candidates.
    pub limits: Limits,
}

impl DivisionInput {
    /// Number of candidates.
    #[must_use]
    pub fn len(&self) -> usize {
        self.seats.len()
    }

    /// Whether there are no candidates.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    /// Maximum replicas of a candidate: running replicas plus remaining capacity. Unknown capacity is no limit.
    #[must_use]
    #[inline]
    pub fn room(&self, index: usize) -> i64 {
        if self.frozen[index] {
            return self.seats[index];
        }
        match self.more[index] {
            Some(more) => self.seats[index].saturating_add(more.max(0)),
            None => UNBOUNDED,
        }
    }

    /// Maximum replicas of a candidate if capacity is ignored.
    #[must_use]
    pub fn ceiling(&self, index: usize) -> i64 {
        if self.frozen[index] { self.seats[index] } else { UNBOUNDED }
    }

    /// Running replicas on all candidates.
    #[must_use]
    pub fn running(&self) -> i64 {
        self.seats.iter().fold(0, |sum, seats| sum.saturating_add(*seats))
    }
}

/// The result of a division.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Division {
    /// Replicas by candidate.
    pub seats: Vec<i64>,
    /// Replicas that are not placed: how many, and why.
    pub pending: Vec<(i64, String)>,
    /// Why nothing may be placed at all, if so.
    pub refused: Option<String>,
}

impl Division {
    /// A division that must not be applied.
    pub fn refuse(reason: impl Into<String>) -> Self {
        Self { refused: Some(reason.into()), ..Self::default() }
    }
}
