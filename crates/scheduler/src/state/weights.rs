//! A list of static weights in a single column. A list with a rule for every cluster then costs a decision no more than
//! a list with one rule.

use std::sync::Arc;

use atoll_api::placement::StaticClusterWeight;

use super::affinity;
use super::cache::CachedColumn;
use super::row::Row;
use atoll_decision::BitSet;

/// Weights by row.
#[derive(Debug, Clone)]
pub struct WeightColumn {
    /// The largest weight among matching rules; 0 if no rule matches.
    pub weight: Vec<u64>,
    /// Rows that match a rule.
    pub matched: BitSet,
}

impl CachedColumn for WeightColumn {
    type Key = Arc<[StaticClusterWeight]>;

    fn new(_: &Self::Key, rows: usize) -> Self {
        Self { weight: vec![0; rows], matched: BitSet::empty(rows) }
    }

    fn set(&mut self, rules: &Self::Key, at: usize, row: &Row) {
        let matching =
            rules.iter().filter(|rule| affinity::matches(&rule.target_cluster, row).is_ok());
        let largest = matching.map(|rule| u64::try_from(rule.weight).unwrap_or(0)).max();
        self.weight[at] = largest.unwrap_or(0);
        match largest {
            Some(_) => self.matched.insert(at),
            None => self.matched.remove(at),
        }
    }
}
