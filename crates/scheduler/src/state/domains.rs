//! Domains of topology keys, by row.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cache::{CachedColumn, put};
use super::row::Row;
use atoll_decision::BitSet;

/// Marks a row without a domain.
pub const NO_DOMAIN: u32 = u32::MAX;

/// Domains of a topology key, by row.
#[derive(Debug, Clone)]
pub struct DomainColumn {
    /// Domain by row, as an index into `names`; [`NO_DOMAIN`] = the row lacks the key.
    pub of: Vec<u32>,
    /// Values of the key. A value may no longer have any row.
    pub names: Vec<Arc<str>>,
    /// Rows that lack the key.
    pub without: BitSet,
    index: BTreeMap<Arc<str>, u32>,
    pub(super) stamp: u64,
}

/// The domains of a topology key that have a cluster of a set, numbered in the order of the rows.
#[derive(Debug, Clone)]
pub struct Domains {
    /// Domain by row, of all rows; [`NO_DOMAIN`] = none, or one without a cluster of the set.
    pub of: Arc<[u32]>,
    /// Number of domains.
    pub count: u32,
}

impl CachedColumn for DomainColumn {
    type Key = String;

    fn new(_: &String, rows: usize) -> Self {
        Self {
            of: vec![NO_DOMAIN; rows],
            names: Vec::new(),
            without: BitSet::empty(rows),
            index: BTreeMap::new(),
            stamp: 0,
        }
    }

    fn stamp(&mut self, stamp: u64) {
        self.stamp = stamp;
    }

    fn set(&mut self, key: &String, at: usize, row: &Row) {
        self.of[at] = match row.domain(key) {
            None => NO_DOMAIN,
            Some(value) => match self.index.get(&*value) {
                Some(known) => *known,
                None => {
                    let (name, next): (Arc<str>, _) = ((*value).into(), self.names.len() as u32);
                    self.names.push(name.clone());
                    self.index.insert(name, next);
                    next
                }
            },
        };
        put(&mut self.without, at, self.of[at] == NO_DOMAIN);
    }
}

impl DomainColumn {
    /// The domains that have a cluster among `rows`.
    pub(super) fn among(&self, rows: &BitSet) -> Domains {
        let mut numbers = vec![NO_DOMAIN; self.names.len()];
        let mut count = 0;
        for row in rows.iter().filter(|row| self.of[*row] != NO_DOMAIN) {
            let number = &mut numbers[self.of[row] as usize];
            if *number == NO_DOMAIN {
                *number = count;
                count += 1;
            }
        }
        let number = |domain: &u32| match *domain {
            NO_DOMAIN => NO_DOMAIN,
            domain => numbers[domain as usize],
        };
        Domains { of: self.of.iter().map(number).collect(), count }
    }

    /// The domain with that name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<u32> {
        self.index.get(name).copied()
    }
}
