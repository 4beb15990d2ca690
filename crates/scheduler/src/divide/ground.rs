//! What every division starts from: the candidates, what they run, what they can take, and the rules on the result.

use std::sync::Arc;

use super::limits::Limits;
use crate::hash::TieHash;
use crate::state::snapshot::Names;

/// Room without a known bound.
pub const UNBOUNDED: i64 = i64::MAX;

/// Places among equals. Hashes are computed when two candidates are equal, which most never are.
#[derive(Debug, Clone, Default)]
pub enum Ties {
    /// All the same: the order of names decides.
    #[default]
    Same,
    /// One each.
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
}

impl Ties {
    /// The place of a candidate.
    #[must_use]
    pub fn get(&self, index: usize) -> u64 {
        match self {
            Self::Same => 0,
            Self::Given(ties) => ties[index],
            Self::Hashed { hash, names, rows } => hash.rank(&names[rows[index] as usize]),
        }
    }

    /// The places of the first `len` candidates, where all of them are needed, and more than once.
    #[must_use]
    pub fn all(&self, len: usize) -> Vec<u64> {
        (0..len).map(|index| self.get(index)).collect()
    }

    /// The places of some candidates.
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
        }
    }
}

/// The candidates of a division, in ascending order of name, one entry a candidate in each list.
#[derive(Debug, Clone, Default)]
pub struct Ground {
    /// Replicas that the binding has there.
    pub seats: Vec<i64>,
    /// How many more fit. `None` = unknown.
    pub more: Vec<Option<i64>>,
    /// Clusters that keep what they have and never grow.
    pub frozen: Vec<bool>,
    /// Places among equals; the greatest comes first.
    pub ties: Ties,
    /// Rules on groups of candidates.
    pub limits: Limits,
}

impl Ground {
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

    /// Most replicas that a candidate may have: what it runs and what still fits. Unknown capacity does not bind.
    #[must_use]
    pub fn room(&self, index: usize) -> i64 {
        if self.frozen[index] {
            return self.seats[index];
        }
        match self.more[index] {
            Some(more) => self.seats[index].saturating_add(more.max(0)),
            None => UNBOUNDED,
        }
    }

    /// Most replicas of a candidate where capacity does not count.
    #[must_use]
    pub fn ceiling(&self, index: usize) -> i64 {
        if self.frozen[index] { self.seats[index] } else { UNBOUNDED }
    }

    /// Replicas that run on candidates.
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
    /// Replicas without a place: how many, and why.
    pub pending: Vec<(i64, String)>,
    /// Set when nothing at all may be placed: the reason.
    pub refused: Option<String>,
}

impl Division {
    /// A division that must not be carried out.
    pub fn refuse(reason: impl Into<String>) -> Self {
        Self { refused: Some(reason.into()), ..Self::default() }
    }
}
