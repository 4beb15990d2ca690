//! Columns over the clusters that many decisions share: which rows pass a selector, how many replicas fit.
//!
//! A column is computed once for its key and patched row by row while the snapshot's log of changed rows reaches back;
//! when clusters join or leave it starts again. Answers never depend on what the cache holds.

use std::sync::Arc;

use atoll_api::placement::ClusterAffinity;
use k8s_openapi::api::core::v1::Toleration;

use super::bits::BitSet;
use super::needs::Needs;
use super::row::Row;
use super::snapshot::Snapshot;
use super::supply::Estimate;

/// Columns of one kind that are kept; the least recently used goes first.
const KEPT: usize = 128;

/// One value per cluster.
pub trait Column: Clone + std::fmt::Debug {
    /// What the values depend on beside the row.
    type Key: PartialEq + Clone + std::fmt::Debug;
    /// A column of so many rows without values.
    fn new(key: &Self::Key, rows: usize) -> Self;
    /// Sets the value of one row.
    fn set(&mut self, key: &Self::Key, at: usize, row: &Row);
}

#[derive(Debug)]
struct Entry<C: Column> {
    key: C::Key,
    membership: u64,
    version: u64,
    used: u64,
    column: Arc<C>,
}

/// Columns of one kind.
#[derive(Debug)]
pub struct Store<C: Column> {
    entries: Vec<Entry<C>>,
    clock: u64,
}

impl<C: Column> Default for Store<C> {
    fn default() -> Self {
        Self { entries: Vec::new(), clock: 0 }
    }
}

impl<C: Column> Store<C> {
    /// The column of a key on a snapshot.
    pub fn get(&mut self, snapshot: &Snapshot, key: &C::Key) -> Arc<C> {
        self.clock += 1;
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.key == *key) else {
            let column: Arc<C> = Arc::new(full(snapshot, key));
            if self.entries.len() >= KEPT {
                let oldest = (0..self.entries.len()).min_by_key(|at| self.entries[*at].used);
                self.entries.swap_remove(oldest.unwrap_or(0));
            }
            self.entries.push(Entry {
                key: key.clone(),
                membership: snapshot.membership(),
                version: snapshot.version(),
                used: self.clock,
                column: column.clone(),
            });
            return column;
        };
        entry.used = self.clock;
        if entry.membership != snapshot.membership() || entry.version > snapshot.version() {
            entry.column = Arc::new(full(snapshot, key));
        } else if entry.version != snapshot.version() {
            match snapshot.changed_since(entry.version) {
                None => entry.column = Arc::new(full(snapshot, key)),
                Some(rows) => {
                    let column = Arc::make_mut(&mut entry.column);
                    rows.for_each(|at| column.set(key, at, snapshot.row(at)));
                }
            }
        }
        entry.membership = snapshot.membership();
        entry.version = snapshot.version();
        entry.column.clone()
    }
}

fn full<C: Column>(snapshot: &Snapshot, key: &C::Key) -> C {
    let mut column = C::new(key, snapshot.len());
    snapshot.rows().for_each(|(at, row)| column.set(key, at, row));
    column
}

/// Reasons of one test that are told apart; further ones share the test's general reason.
const REASONS: usize = 32;

/// Rows by the answer of a test.
#[derive(Debug, Clone)]
pub struct Classes {
    /// Rows that pass.
    pub pass: BitSet,
    /// Rows that do not, by reason.
    pub refused: Vec<(Arc<str>, BitSet)>,
}

impl Classes {
    /// All rows, none of them judged.
    #[must_use]
    pub fn new(rows: usize) -> Self {
        Self { pass: BitSet::empty(rows), refused: Vec::new() }
    }

    /// Sets the answer of one row. `general` names the test where there are too many different reasons.
    pub fn set(&mut self, at: usize, answer: Result<(), String>, general: &str) {
        self.pass.remove(at);
        self.refused.iter_mut().for_each(|(_, rows)| rows.remove(at));
        let Err(reason) = answer else { return self.pass.insert(at) };
        let known = self.refused.iter().position(|(have, _)| **have == *reason);
        let (reason, known) = match known {
            None if self.refused.len() >= REASONS => {
                let general = general.to_owned();
                let known = self.refused.iter().position(|(have, _)| **have == *general);
                (general, known)
            }
            known => (reason, known),
        };
        match known {
            Some(class) => self.refused[class].1.insert(at),
            None => {
                let mut rows = BitSet::empty(self.pass.capacity());
                rows.insert(at);
                self.refused.push((reason.into(), rows));
            }
        }
    }
}

/// Rows by a [`ClusterAffinity`].
#[derive(Debug, Clone)]
pub struct AffinityColumn(pub Classes);

impl Column for AffinityColumn {
    type Key = ClusterAffinity;

    fn new(_: &ClusterAffinity, rows: usize) -> Self {
        Self(Classes::new(rows))
    }

    fn set(&mut self, key: &ClusterAffinity, at: usize, row: &Row) {
        self.0.set(at, super::affinity::matches(key, row), "does not match clusterAffinity");
    }
}

/// Rows by the kind that they serve.
#[derive(Debug, Clone)]
pub struct ApiColumn(pub Classes);

impl Column for ApiColumn {
    type Key = (String, String);

    fn new(_: &(String, String), rows: usize) -> Self {
        Self(Classes::new(rows))
    }

    fn set(&mut self, key: &(String, String), at: usize, row: &Row) {
        let serves = row.apis.serves(&key.0, &key.1);
        let answer =
            if serves { Ok(()) } else { Err(format!("does not serve {} {}", key.0, key.1)) };
        self.0.set(at, answer, "");
    }
}

/// Rows by what their taints mean under some tolerations.
#[derive(Debug, Clone)]
pub struct TaintColumn {
    /// NoSchedule, or no session.
    pub no_schedule: Classes,
    /// NoExecute without any toleration.
    pub no_execute: Classes,
    /// NoExecute that is tolerated until a time.
    pub expiring: Vec<(usize, jiff::Timestamp, String)>,
    /// Untolerated PreferNoSchedule taints, by row.
    pub prefer_not: Vec<u32>,
    /// Rows with such taints.
    pub any_prefer_not: BitSet,
    /// Clusters that are being deleted.
    pub deleting: BitSet,
}

impl Column for TaintColumn {
    type Key = Vec<Toleration>;

    fn new(_: &Self::Key, rows: usize) -> Self {
        Self {
            no_schedule: Classes::new(rows),
            no_execute: Classes::new(rows),
            expiring: Vec::new(),
            prefer_not: vec![0; rows],
            any_prefer_not: BitSet::empty(rows),
            deleting: BitSet::empty(rows),
        }
    }

    fn set(&mut self, key: &Self::Key, at: usize, row: &Row) {
        let judged = super::taints::judge(key, row);
        self.no_schedule.set(at, judged.no_schedule, "has an untolerated NoSchedule taint");
        self.no_execute.set(at, judged.no_execute, "has an untolerated NoExecute taint");
        self.expiring.retain(|(of, _, _)| *of != at);
        if let Some((until, reason)) = judged.expires {
            let place = self.expiring.partition_point(|(of, _, _)| *of < at);
            self.expiring.insert(place, (at, until, reason));
        }
        self.prefer_not[at] = judged.prefer_not;
        put(&mut self.any_prefer_not, at, judged.prefer_not > 0);
        put(&mut self.deleting, at, row.terminating);
    }
}

fn put(rows: &mut BitSet, at: usize, member: bool) {
    if member { rows.insert(at) } else { rows.remove(at) }
}

/// How many more replicas fit, by row.
#[derive(Debug, Clone)]
pub struct CapacityColumn {
    /// More replicas; `None` = unknown.
    pub more: Vec<Option<i64>>,
    /// What bounds them, by row, as an index into `bounds`.
    pub bounded: Vec<u8>,
    /// Texts of `bounded`.
    pub bounds: Vec<String>,
    /// Clusters with figures that cannot be read.
    pub unreadable: BitSet,
}

/// Key of a [`CapacityColumn`]: requests, node claim, and whose estimate.
#[derive(Debug, Clone, PartialEq)]
pub struct CapacityKey {
    /// What one replica needs.
    pub needs: Needs,
    /// Whether Karmada's rules of estimation hold.
    pub as_karmada: bool,
}

impl Column for CapacityColumn {
    type Key = CapacityKey;

    fn new(_: &CapacityKey, rows: usize) -> Self {
        Self {
            more: vec![None; rows],
            bounded: vec![0; rows],
            bounds: vec![String::new()],
            unreadable: BitSet::empty(rows),
        }
    }

    fn set(&mut self, key: &CapacityKey, at: usize, row: &Row) {
        let Estimate { more, bound } = if key.as_karmada {
            row.supply.estimate_as_karmada(&key.needs)
        } else {
            row.supply.estimate(&key.needs, &row.reserved)
        };
        self.more[at] = more;
        put(&mut self.unreadable, at, !row.problems.is_empty());
        let known = self.bounds.iter().position(|have| *have == *bound);
        let place = known.unwrap_or_else(|| {
            // A column knows few bounds: the resources asked for, and a handful of texts.
            if self.bounds.len() > usize::from(u8::MAX) {
                return 0;
            }
            self.bounds.push(bound.clone().into_owned());
            self.bounds.len() - 1
        });
        self.bounded[at] = u8::try_from(place).unwrap_or(0);
    }
}

/// No domain.
pub const NO_DOMAIN: u32 = u32::MAX;

/// Domains of a topology key, by row.
#[derive(Debug, Clone)]
pub struct DomainColumn {
    /// Domain by row, as an index into `names`; [`NO_DOMAIN`] = the row lacks the key.
    pub of: Vec<u32>,
    /// Values of the key. Some may have no row any more.
    pub names: Vec<Arc<str>>,
    /// Rows that lack the key.
    pub without: BitSet,
    index: std::collections::BTreeMap<Arc<str>, u32>,
}

impl Column for DomainColumn {
    type Key = String;

    fn new(_: &String, rows: usize) -> Self {
        Self {
            of: vec![NO_DOMAIN; rows],
            names: Vec::new(),
            without: BitSet::empty(rows),
            index: Default::default(),
        }
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
    /// The domain of that name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<u32> {
        self.index.get(name).copied()
    }
}

/// Everything that is kept between decisions.
#[derive(Debug, Default)]
pub struct Cache {
    /// By affinity.
    pub affinity: Store<AffinityColumn>,
    /// By kind.
    pub api: Store<ApiColumn>,
    /// By tolerations.
    pub taints: Store<TaintColumn>,
    /// By needs.
    pub capacity: Store<CapacityColumn>,
    /// By topology key.
    pub domains: Store<DomainColumn>,
}
