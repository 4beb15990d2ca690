//! Columns over the clusters that many decisions share: which rows match a selector, how many replicas fit.
//!
//! A column is computed once per key. Then it is patched row by row, as long as the snapshot's log of changed rows
//! reaches back far enough. When clusters join or leave, it is recomputed. The cache never changes the result of a
//! decision.

use std::sync::Arc;

use atoll_api::binding::ReplicaRequirements;
use atoll_api::placement::ClusterAffinity;
use k8s_openapi::api::core::v1::Toleration;

use super::cluster_sets::SetColumn;
use super::domains::{DomainColumn, Domains};
use super::needs::Needs;
use super::row::Row;
use super::snapshot::Snapshot;
use super::supply::Estimate;
use super::weights::WeightColumn;
use crate::cycle::parsed_placement::ParsedPlacements;
use crate::framework::scores::MAX;
use atoll_decision::{BitSet, Text, UNKNOWN};

/// Number of cached columns per kind.
const KEPT: usize = 128;

/// One value per cluster.
pub trait CachedColumn: Clone + std::fmt::Debug {
    /// Whether a value depends on the capacity of its row, which changes with every decision.
    const READS_ROOM: bool = false;
    /// What the values depend on, in addition to the row.
    type Key: PartialEq + Clone + std::fmt::Debug;
    /// A column for `rows` rows, without values.
    fn new(key: &Self::Key, rows: usize) -> Self;
    /// Sets the value of one row.
    fn set(&mut self, key: &Self::Key, at: usize, row: &Row);
    /// Called after values were set, with a number that increases with every call for this kind of column.
    fn stamp(&mut self, _: u64) {}
}

/// A small cache of recent entries. Entries that are used often move to the front, where lookups find them first.
#[derive(Debug)]
pub struct RecentlyUsed<T> {
    list: Vec<T>,
    most: usize,
}

impl<T> RecentlyUsed<T> {
    /// A cache of at most `most` entries.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { list: Vec::new(), most }
    }

    /// Returns the entry that matches, or inserts a new one.
    pub fn find(&mut self, is: impl Fn(&T) -> bool, make: impl FnOnce() -> T) -> &mut T {
        let at = match self.list.iter().position(is) {
            Some(at) => {
                self.list.swap(at, at / 2);
                at / 2
            }
            None => {
                if self.list.len() >= self.most {
                    self.list.pop();
                }
                // Not at the end, where the next insertion would evict it.
                let at = self.list.len() / 2;
                self.list.insert(at, make());
                at
            }
        };
        &mut self.list[at]
    }
}

#[derive(Debug)]
struct ColumnEntry<C: CachedColumn> {
    key: C::Key,
    membership: u64,
    version: u64,
    column: Arc<C>,
}

/// Columns of one kind.
#[derive(Debug)]
pub struct ColumnStore<C: CachedColumn> {
    entries: RecentlyUsed<ColumnEntry<C>>,
    clock: u64,
}

impl<C: CachedColumn> Default for ColumnStore<C> {
    fn default() -> Self {
        Self { entries: RecentlyUsed::new(KEPT), clock: 0 }
    }
}

impl<C: CachedColumn> ColumnStore<C> {
    /// The column of a key on a snapshot.
    pub fn get(&mut self, snapshot: &Snapshot, key: &C::Key) -> Arc<C> {
        self.get_by(snapshot, |have| have == key, || key.clone())
    }

    /// Like [`ColumnStore::get`], but creates the key only on a miss.
    pub fn get_by(
        &mut self,
        snapshot: &Snapshot,
        is: impl Fn(&C::Key) -> bool,
        key: impl FnOnce() -> C::Key,
    ) -> Arc<C> {
        let clock = &mut self.clock;
        let mut anew = |key: &C::Key| {
            let mut column = full::<C>(snapshot, key);
            *clock += 1;
            column.stamp(*clock);
            Arc::new(column)
        };
        let entry = self.entries.find(
            |entry| is(&entry.key),
            || {
                let key = key();
                let column = anew(&key);
                let (membership, version) = (snapshot.membership(), snapshot.version());
                ColumnEntry { key, membership, version, column }
            },
        );
        if entry.membership != snapshot.membership() || entry.version > snapshot.version() {
            entry.column = anew(&entry.key);
        } else if entry.version != snapshot.version() {
            match snapshot.changed_since(entry.version, C::READS_ROOM) {
                None => entry.column = anew(&entry.key),
                Some(mut rows) => {
                    if let Some(first) = rows.next() {
                        let column = Arc::make_mut(&mut entry.column);
                        std::iter::once(first)
                            .chain(rows)
                            .for_each(|at| column.set(&entry.key, at, snapshot.row(at)));
                        *clock += 1;
                        column.stamp(*clock);
                    }
                }
            }
        }
        entry.membership = snapshot.membership();
        entry.version = snapshot.version();
        entry.column.clone()
    }
}

fn full<C: CachedColumn>(snapshot: &Snapshot, key: &C::Key) -> C {
    let mut column = C::new(key, snapshot.len());
    snapshot.rows().for_each(|(at, row)| column.set(key, at, row));
    column
}

/// Distinct reasons kept per test. Further ones share the test's general reason.
const REASONS: usize = 32;

/// Rows grouped by the result of a test.
#[derive(Debug, Clone)]
pub struct RowClasses {
    /// Rows that pass.
    pub pass: BitSet,
    /// Rows that fail, by reason.
    pub refused: Vec<(Text, BitSet)>,
}

impl RowClasses {
    /// A value for `rows` rows without results.
    #[must_use]
    pub fn new(rows: usize) -> Self {
        Self { pass: BitSet::empty(rows), refused: Vec::new() }
    }

    /// Sets the result of one row. `general` replaces the reason if there are too many different ones.
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
pub struct AffinityColumn(pub RowClasses);

impl CachedColumn for AffinityColumn {
    type Key = ClusterAffinity;

    fn new(_: &ClusterAffinity, rows: usize) -> Self {
        Self(RowClasses::new(rows))
    }

    fn set(&mut self, key: &ClusterAffinity, at: usize, row: &Row) {
        self.0.set(at, super::affinity::matches(key, row), "does not match clusterAffinity");
    }
}

/// Rows that serve a kind.
#[derive(Debug, Clone)]
pub struct ApiColumn(pub RowClasses);

impl CachedColumn for ApiColumn {
    type Key = (String, String);

    fn new(_: &(String, String), rows: usize) -> Self {
        Self(RowClasses::new(rows))
    }

    fn set(&mut self, key: &(String, String), at: usize, row: &Row) {
        let serves = row.apis.serves(&key.0, &key.1);
        let answer =
            if serves { Ok(()) } else { Err(format!("does not serve {} {}", key.0, key.1)) };
        self.0.set(at, answer, "");
    }
}

/// Effect of taints on each row, given some tolerations.
#[derive(Debug, Clone)]
pub struct TaintColumn {
    /// Rows rejected for NoSchedule or a lost session.
    pub no_schedule: RowClasses,
    /// Rows with an untolerated NoExecute taint.
    pub no_execute: RowClasses,
    /// Rows with a NoExecute taint that is tolerated for a limited time.
    pub expiring: Vec<(usize, jiff::Timestamp, String)>,
    /// Untolerated PreferNoSchedule taints, by row.
    pub prefer_not: Vec<u32>,
    /// Rows with untolerated PreferNoSchedule taints.
    pub any_prefer_not: BitSet,
    /// Clusters that are being deleted.
    pub deleting: BitSet,
}

impl CachedColumn for TaintColumn {
    type Key = Vec<Toleration>;

    fn new(_: &Self::Key, rows: usize) -> Self {
        Self {
            no_schedule: RowClasses::new(rows),
            no_execute: RowClasses::new(rows),
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

pub(super) fn put(rows: &mut BitSet, at: usize, member: bool) {
    if member { rows.insert(at) } else { rows.remove(at) }
}

/// How many more replicas fit, by row.
#[derive(Debug, Clone)]
pub struct CapacityColumn {
    /// Additional replicas; [`UNKNOWN`] = unknown.
    pub more: Arc<[i64]>,
    /// What limits them, by row, as an index into `bounds`.
    pub bounded: Arc<[u8]>,
    /// Texts for `bounded`, with the rows of each.
    pub bounds: Vec<(Text, BitSet)>,
    /// Clusters with unreadable figures.
    pub unreadable: BitSet,
    /// Rows where a ResourceQuota on the member allows the fewest, for a capacity within such quotas.
    pub by_quota: Option<BitSet>,
    stamp: u64,
}

impl CapacityColumn {
    /// Additional replicas that fit on a row; `None` = unknown.
    #[must_use]
    pub fn more(&self, row: usize) -> Option<i64> {
        Some(self.more[row]).filter(|more| *more != UNKNOWN)
    }

    /// The column with another number of additional replicas on a row.
    pub fn set_more(&mut self, row: usize, more: Option<i64>) {
        Arc::make_mut(&mut self.more)[row] = more.unwrap_or(UNKNOWN);
    }
}

/// Stamp of a column that belongs to one decision: its scores are not cached.
const NOT_SHARED: u64 = u64::MAX;

/// Key of a [`CapacityColumn`]: requests, node claim and estimation rules.
#[derive(Debug, Clone)]
pub struct CapacityKey {
    /// What one replica needs.
    pub needs: Arc<Needs>,
    /// Whether to estimate by Karmada's rules.
    pub as_karmada: bool,
}

impl PartialEq for CapacityKey {
    fn eq(&self, other: &Self) -> bool {
        self.as_karmada == other.as_karmada
            && (Arc::ptr_eq(&self.needs, &other.needs) || self.needs == other.needs)
    }
}

impl CachedColumn for CapacityColumn {
    const READS_ROOM: bool = true;
    type Key = CapacityKey;

    fn new(_: &CapacityKey, rows: usize) -> Self {
        Self {
            more: vec![UNKNOWN; rows].into(),
            bounded: vec![0; rows].into(),
            bounds: vec![("".into(), BitSet::empty(rows))],
            unreadable: BitSet::empty(rows),
            by_quota: None,
            stamp: 0,
        }
    }

    fn set(&mut self, key: &CapacityKey, at: usize, row: &Row) {
        let Estimate { more, bound } = if key.as_karmada {
            row.supply.estimate_as_karmada(&key.needs)
        } else {
            row.supply.estimate(&key.needs, &row.reserved)
        };
        Arc::make_mut(&mut self.more)[at] = more.unwrap_or(UNKNOWN);
        put(&mut self.unreadable, at, !row.problems.is_empty());
        self.set_bound(at, &bound);
    }

    fn stamp(&mut self, stamp: u64) {
        self.stamp = stamp;
    }
}

impl CapacityColumn {
    /// Lowers the capacity of a row; returns whether it was higher. The column is no longer shared by decisions.
    pub(super) fn lower(&mut self, at: usize, most: i64, bound: &str) -> bool {
        self.stamp = NOT_SHARED;
        if self.more(at).is_some_and(|more| more <= most) {
            return false;
        }
        Arc::make_mut(&mut self.more)[at] = most;
        self.set_bound(at, bound);
        true
    }

    fn set_bound(&mut self, at: usize, bound: &str) {
        let known = self.bounds.iter().position(|(have, _)| **have == *bound);
        let place = known.unwrap_or_else(|| {
            // A column has few bounds: the requested resources and a handful of texts.
            if self.bounds.len() > usize::from(u8::MAX) {
                return 0;
            }
            self.bounds.push((bound.into(), BitSet::empty(self.unreadable.capacity())));
            self.bounds.len() - 1
        });
        let bounded = &mut Arc::make_mut(&mut self.bounded)[at];
        self.bounds[usize::from(*bounded)].1.remove(at);
        *bounded = u8::try_from(place).unwrap_or(0);
        self.bounds[usize::from(*bounded)].1.insert(at);
    }
}

/// The cache between decisions.
#[derive(Debug)]
pub struct Cache {
    /// By affinity.
    pub affinity: ColumnStore<AffinityColumn>,
    /// By a list of static weights.
    pub weights: ColumnStore<WeightColumn>,
    /// By ClusterSets.
    pub sets: ColumnStore<SetColumn>,
    /// By kind.
    pub api: ColumnStore<ApiColumn>,
    /// By tolerations.
    pub taints: ColumnStore<TaintColumn>,
    /// By needs.
    pub capacity: ColumnStore<CapacityColumn>,
    /// By topology key.
    pub domains: ColumnStore<DomainColumn>,
    /// By placement.
    pub placements: ParsedPlacements,
    domains_of: RecentlyUsed<KnownDomains>,
    needs: RecentlyUsed<ParsedNeeds>,
    rows: RecentlyUsed<(Arc<BitSet>, Arc<[u32]>)>,
    scores: RecentlyUsed<RoomScores>,
}

/// Parsed requirements, or the invalid resource and its problem.
#[derive(Debug)]
struct ParsedNeeds {
    given: Option<ReplicaRequirements>,
    needs: Result<Arc<Needs>, (String, String)>,
}

/// Scores by room, for the rows of a set.
#[derive(Debug)]
struct RoomScores {
    stamp: u64,
    most_allocated: bool,
    rows: Arc<BitSet>,
    /// `None` = no row has room.
    scores: Option<Arc<[i64]>>,
}

/// The domains of a topology key among some rows.
#[derive(Debug)]
struct KnownDomains {
    stamp: u64,
    rows: BitSet,
    domains: Domains,
}

/// Number of cached row lists and of score lists. Each is as long as the number of clusters.
const LISTS: usize = 16;

impl Default for Cache {
    fn default() -> Self {
        Self {
            affinity: ColumnStore::default(),
            weights: ColumnStore::default(),
            sets: ColumnStore::default(),
            api: ColumnStore::default(),
            taints: ColumnStore::default(),
            capacity: ColumnStore::default(),
            domains: ColumnStore::default(),
            placements: ParsedPlacements::default(),
            domains_of: RecentlyUsed::new(LISTS),
            needs: RecentlyUsed::new(KEPT),
            rows: RecentlyUsed::new(LISTS),
            scores: RecentlyUsed::new(LISTS),
        }
    }
}

impl Cache {
    /// Requirements of one replica.
    ///
    /// # Errors
    /// See [`Needs::read`].
    pub fn needs(
        &mut self,
        given: Option<&ReplicaRequirements>,
    ) -> Result<Arc<Needs>, (String, String)> {
        let make =
            || ParsedNeeds { given: given.cloned(), needs: Needs::read(given).map(Arc::new) };
        self.needs.find(|known| known.given.as_ref() == given, make).needs.clone()
    }

    /// The domains of a topology key that have a cluster among `rows`.
    pub fn domains_of(&mut self, snapshot: &Snapshot, key: &String, rows: &BitSet) -> Domains {
        let column = self.domains.get(snapshot, key);
        let is = |known: &KnownDomains| known.stamp == column.stamp && known.rows == *rows;
        let make = || KnownDomains {
            stamp: column.stamp,
            rows: rows.clone(),
            domains: column.among(rows),
        };
        self.domains_of.find(is, make).domains.clone()
    }

    /// The rows of a set, as a shared set and as a list.
    pub fn rows(&mut self, set: &BitSet) -> (Arc<BitSet>, Arc<[u32]>) {
        let make = || (Arc::new(set.clone()), set.iter().map(|row| row as u32).collect());
        self.rows.find(|(known, _)| **known == *set, make).clone()
    }

    /// Scores of rows by their room: 100 for the most, or for the least. `None` = no row has room.
    pub fn room_scores(
        &mut self,
        column: &CapacityColumn,
        rows: &Arc<BitSet>,
        most_allocated: bool,
    ) -> Option<Arc<[i64]>> {
        if column.stamp == NOT_SHARED {
            return room_scores(column, rows, most_allocated);
        }
        let is = |known: &RoomScores| {
            known.stamp == column.stamp
                && known.most_allocated == most_allocated
                && (Arc::ptr_eq(&known.rows, rows) || known.rows == *rows)
        };
        let make = || RoomScores {
            stamp: column.stamp,
            most_allocated,
            rows: rows.clone(),
            scores: room_scores(column, rows, most_allocated),
        };
        self.scores.find(is, make).scores.clone()
    }
}

/// Up to this room, floating point division is exact: products and quotients fit its precision.
const EXACT: i64 = 1 << 40;

fn room_scores(column: &CapacityColumn, rows: &BitSet, most_allocated: bool) -> Option<Arc<[i64]>> {
    let mut scores: Vec<i64> = rows.iter().map(|row| column.more[row].max(0)).collect();
    let most = scores.iter().copied().max().filter(|most| *most > 0)?;
    if most < EXACT {
        // Equals integer division, but avoids one integer division per row.
        scores.iter_mut().for_each(|more| *more = ((*more * MAX) as f64 / most as f64) as i64);
    } else {
        // Scaled down where the product would overflow. Scores do not need that precision.
        scores.iter_mut().for_each(|more| {
            *more = match more.checked_mul(MAX) {
                Some(product) => product / most,
                None => *more / (most / MAX),
            }
        });
    }
    if most_allocated {
        scores.iter_mut().for_each(|score| *score = MAX - *score);
    }
    Some(scores.into())
}
