//! Where a binding runs after a decision. Stored as rows of the snapshot until a caller needs names.

use std::ops::Deref;
use std::sync::OnceLock;

use atoll_api::binding::TargetCluster;

use crate::clusters::Names;

/// Shares, ordered by name.
#[derive(Debug, Clone)]
pub struct Shares {
    /// (row, replicas) pairs over a table of names. `None` = only `listed` is set.
    rows: Option<(Names, Vec<(u32, i64)>)>,
    listed: OnceLock<Vec<TargetCluster>>,
}

impl Shares {
    /// Creates shares from rows in ascending order.
    #[must_use]
    pub fn of_rows(names: Names, rows: Vec<(u32, i64)>) -> Self {
        Self { rows: Some((names, rows)), listed: OnceLock::new() }
    }

    /// Name and replicas of each share, without building a list.
    pub fn each(&self) -> impl Iterator<Item = (&str, i64)> {
        let (names, rows) = match &self.rows {
            Some((names, rows)) => (&names[..], rows.as_slice()),
            None => (&[][..], &[][..]),
        };
        let rows = rows.iter().map(|(row, replicas)| (&*names[*row as usize], *replicas));
        let listed = if self.rows.is_some() { &[][..] } else { self.list() };
        rows.chain(listed.iter().map(|share| (share.name.as_str(), share.replicas)))
    }

    /// Number of clusters, without building a list.
    #[must_use]
    pub fn count(&self) -> usize {
        self.rows.as_ref().map_or_else(|| self.list().len(), |(_, rows)| rows.len())
    }

    fn list(&self) -> &[TargetCluster] {
        self.listed.get_or_init(|| {
            let (names, rows) = self.rows.as_ref().map_or((&[][..], &[][..]), |(n, r)| (n, r));
            rows.iter()
                .map(|(row, replicas)| TargetCluster {
                    name: names[*row as usize].to_string(),
                    replicas: *replicas,
                })
                .collect()
        })
    }
}

impl From<Vec<TargetCluster>> for Shares {
    fn from(listed: Vec<TargetCluster>) -> Self {
        Self { rows: None, listed: OnceLock::from(listed) }
    }
}

impl Deref for Shares {
    type Target = [TargetCluster];

    fn deref(&self) -> &[TargetCluster] {
        self.list()
    }
}

impl PartialEq for Shares {
    fn eq(&self, other: &Self) -> bool {
        self.count() == other.count() && self.each().eq(other.each())
    }
}

impl PartialEq<Vec<TargetCluster>> for Shares {
    fn eq(&self, other: &Vec<TargetCluster>) -> bool {
        let listed = other.iter().map(|share| (share.name.as_str(), share.replicas));
        self.count() == other.len() && self.each().eq(listed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_lists_are_the_same_shares() {
        let names: Names = ["a", "b", "c"].map(Into::into).into();
        let rows = Shares::of_rows(names, vec![(0, 2), (2, 5)]);
        let share = |name: &str, replicas| TargetCluster { name: name.into(), replicas };
        let list = vec![share("a", 2), share("c", 5)];
        assert_eq!(rows, list);
        assert_eq!(rows, Shares::from(list.clone()));
        assert_ne!(rows, Shares::from(vec![share("a", 2)]));
        assert_eq!(rows[..], list[..]);
    }
}
