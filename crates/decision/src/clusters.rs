//! Sets of cluster names that stay small on the wire: `member-{001,003-120}` stands for 119 names.

use std::sync::Arc;

use atoll_api::ClusterName;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::bits::BitSet;

/// Names of clusters in ascending order, shared by the decisions that refer to them.
pub type Names = Arc<[ClusterName]>;

/// A set of clusters, as rows of a table of names. Several sets share the table.
#[derive(Debug, Clone)]
pub struct ClusterSet {
    names: Names,
    /// `None` = all of them.
    rows: Option<Arc<BitSet>>,
}

impl ClusterSet {
    /// A set of rows of a shared table.
    #[must_use]
    pub fn new(names: Names, rows: impl Into<Arc<BitSet>>) -> Self {
        Self { names, rows: Some(rows.into()) }
    }

    /// The same for a set that is kept for long: a few names of its own take less room than a bit for each of many clusters.
    #[must_use]
    pub fn lasting(names: Names, rows: BitSet) -> Self {
        match rows.count() * size_of::<ClusterName>() < rows.capacity() / 8 {
            true => Self {
                names: rows.iter().filter_map(|row| names.get(row).cloned()).collect(),
                rows: None,
            },
            false => Self::new(names, rows),
        }
    }

    /// A set with its own table.
    #[must_use]
    pub fn of<S: Into<ClusterName>>(names: impl IntoIterator<Item = S>) -> Self {
        let mut names: Vec<ClusterName> = names.into_iter().map(Into::into).collect();
        names.sort_unstable();
        names.dedup();
        Self { names: names.into(), rows: None }
    }

    /// The names, ascending.
    pub fn iter(&self) -> impl Iterator<Item = &ClusterName> {
        let some = self.rows.iter().flat_map(|rows| rows.iter());
        let all = if self.rows.is_none() { &*self.names } else { &[] };
        some.filter_map(|row| self.names.get(row)).chain(all)
    }

    /// Number of clusters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.as_ref().map_or(self.names.len(), |rows| rows.count())
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.as_ref().map_or(self.names.is_empty(), |rows| rows.is_empty())
    }

    /// Whether the set contains the cluster.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.position(name).is_some()
    }

    /// Index of the cluster among the names of the set.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        let row = self.names.binary_search_by(|have| (**have).cmp(name)).ok()?;
        match &self.rows {
            Some(rows) => rows.contains(row).then(|| rows.rank(row)),
            None => Some(row),
        }
    }

    /// The set in its short form.
    #[must_use]
    pub fn short(&self) -> Vec<String> {
        shorten(self.iter().map(|name| &**name))
    }
}

impl PartialEq for ClusterSet {
    fn eq(&self, other: &Self) -> bool {
        (Arc::ptr_eq(&self.names, &other.names) && self.rows == other.rows)
            || self.iter().eq(other.iter())
    }
}

impl Serialize for ClusterSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.short())
    }
}

impl<'de> Deserialize<'de> for ClusterSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let short = Vec::<String>::deserialize(deserializer)?;
        let names = lengthen(&short).map_err(serde::de::Error::custom)?;
        Ok(Self::of(names))
    }
}

/// Most names that one short form may expand to, so that a stored decision cannot exhaust memory.
const MAX_NAMES: usize = 1_000_000;

/// Splits a name into prefix and trailing digits. At most 18 digits are split off.
fn split(name: &str) -> (&str, &str) {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count().min(18);
    name.split_at(name.len() - digits)
}

fn plain(name: &str) -> bool {
    !name.contains(['{', '}', ',']) && !name.starts_with('=')
}

fn shorten<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut entries = Vec::new();
    let mut names = names.peekable();
    while let Some(name) = names.next() {
        let (prefix, digits) = split(name);
        if !plain(name) {
            entries.push(format!("={name}"));
            continue;
        }
        if digits.is_empty() || names.peek().is_none_or(|next| split(next).0 != prefix) {
            entries.push(name.to_owned());
            continue;
        }
        let mut entry = format!("{prefix}{{{digits}");
        let (mut last, mut run) = (digits, 0_u32);
        let follows = |a: &str, b: &str| {
            a.len() == b.len() && a.parse::<u64>().ok().map(|n| n + 1) == b.parse::<u64>().ok()
        };
        while let Some(next) = names.next_if(|next| {
            let (p, d) = split(next);
            p == prefix && !d.is_empty()
        }) {
            let digits = split(next).1;
            if follows(last, digits) {
                run += 1;
            } else {
                close_run(&mut entry, last, run);
                entry.push(',');
                entry.push_str(digits);
                run = 0;
            }
            last = digits;
        }
        close_run(&mut entry, last, run);
        entry.push('}');
        entries.push(entry);
    }
    entries
}

fn close_run(entry: &mut String, last: &str, run: u32) {
    if run > 0 {
        entry.push('-');
        entry.push_str(last);
    }
}

fn lengthen(entries: &[String]) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for entry in entries {
        if let Some(name) = entry.strip_prefix('=') {
            names.push(name.to_owned());
        } else if let Some((prefix, list)) =
            entry.strip_suffix('}').and_then(|rest| rest.split_once('{'))
        {
            for part in list.split(',') {
                let (from, to) = part.split_once('-').unwrap_or((part, part));
                let number = |text: &str| {
                    text.parse::<u64>().map_err(|_| format!("{entry:?}: {text:?} is not a number"))
                };
                for n in number(from)?..=number(to)? {
                    names.push(format!("{prefix}{n:0width$}", width = from.len()));
                    if names.len() > MAX_NAMES {
                        return Err(format!("{entry:?} stands for more than {MAX_NAMES} names"));
                    }
                }
            }
        } else {
            names.push(entry.clone());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_forms_come_back_whole() {
        for names in [
            vec![],
            vec!["host"],
            vec!["a1", "a2", "a3", "b"],
            vec!["m-001", "m-002", "m-004", "m-1", "m-9", "m-10"],
            vec!["=x", "a{b", "c,d", "e}"],
            vec!["1", "2", "99999999999999999999999"],
            vec!["r9z1", "r9z2", "r9z3"],
        ] {
            let set = ClusterSet::of(names.clone());
            let json = serde_json::to_string(&set).unwrap();
            let back: ClusterSet = serde_json::from_str(&json).unwrap();
            assert_eq!(set, back, "{json}");
        }
        let set = ClusterSet::of((0..5000).map(|n| format!("member-{n:04}")));
        let mut rows = BitSet::empty(5000);
        for row in 0..100 {
            rows.insert(row * 7);
            let shared = ClusterSet::new(set.names.clone(), rows.clone());
            let lasting = ClusterSet::lasting(set.names.clone(), rows.clone());
            assert_eq!((lasting.rows.is_none(), &lasting), (row < 39, &shared));
            assert_eq!(lasting.position("member-0014"), shared.position("member-0014"));
            assert_eq!((lasting.len(), lasting.is_empty()), (row + 1, false));
        }
        assert_eq!(set.short(), ["member-{0000-4999}"]);
        assert_eq!(set.position("member-0017"), Some(17));
    }
}
