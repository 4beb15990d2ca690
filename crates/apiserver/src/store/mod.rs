//! The objects: one lock around ordered tables, one increasing revision for all of them, a bounded log of changes
//! for each table that watches read, and (with a file) a thread that makes writes durable.
//!
//! In memory: every object as JSON text, recently written ones also parsed, and the last minutes of changes of each
//! table. On disk: every object and the revision. Logs are not on disk, so a watch from before a restart expires.
//! Readers see only durable state.
//!
//! The store does not know about kinds: callers pass table and key.

mod disk;
mod outline;
mod page;
mod record;

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use atoll_apimachinery::ApiError;
use serde_json::Value;
use tokio::{sync::watch, time::Instant};

use self::disk::{Disk, DiskOp};
pub(crate) use self::{
    outline::{Content, Unread},
    page::Continue,
    record::{ObjectKey, Record, TableId},
};
use crate::options::OpenError;

/// Changes that a table's log always keeps. A watch that lags further behind, or starts before the log, gets 410 and
/// lists again.
const LOG_KEPT: usize = 1024;
/// Further changes are kept for this long: a client that lost its connection is back by then.
const LOG_AGE: Duration = Duration::from_secs(300);
/// Maximum changes in a log. It covers a burst of some ten thousand writes while slow readers catch up; each change
/// holds one version of its object in memory.
const LOG_MAX: usize = 16_384;

/// Records that are also kept parsed: the latest written ones, which controllers and the next write use. A parsed value
/// takes about ten times the memory of its text, and parsing takes about ten microseconds.
const APART: usize = 1024;

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeType {
    Added,
    Modified,
    Deleted,
}

/// One entry of a table's log.
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) kind: ChangeType,
    key: ObjectKey,
    /// The object after the change; for a deletion, its last state with the deletion's own revision.
    pub(crate) object: Arc<Record>,
    /// The object before the change.
    pub(crate) previous: Option<Arc<Record>>,
    at: Instant,
}

struct Table {
    objects: BTreeMap<ObjectKey, Arc<Record>>,
    log: VecDeque<Arc<Change>>,
    /// The log is complete from this revision on.
    floor: u64,
    /// Latest revision of this table that readers may see. Dropped with the table, which ends its watches.
    signal: watch::Sender<u64>,
}

impl Table {
    fn new(floor: u64) -> Self {
        let signal = watch::Sender::new(floor);
        Table { objects: BTreeMap::new(), log: VecDeque::new(), floor, signal }
    }

    /// Objects after `start` (exclusive) in one namespace or in all.
    fn range(
        &self,
        namespace: Option<&str>,
        start: Option<&ObjectKey>,
    ) -> impl Iterator<Item = (&ObjectKey, &Arc<Record>)> {
        let first = ObjectKey::new(namespace.unwrap_or(""), "");
        let lower = match start {
            Some(start) if *start >= first => Bound::Excluded(start.clone()),
            _ => Bound::Included(first),
        };
        self.objects
            .range((lower, Bound::Unbounded))
            .take_while(move |(key, _)| namespace.is_none_or(|ns| key.namespace == ns))
    }

    fn record(&mut self, change: Change) {
        self.log.push_back(Arc::new(change));
        while self.log.len() > LOG_KEPT
            && let Some(oldest) = self.log.front()
            && (self.log.len() > LOG_MAX || oldest.at.elapsed() > LOG_AGE)
        {
            self.floor = oldest.revision;
            self.log.pop_front();
        }
    }
}

struct Inner {
    revision: u64,
    /// Records that are kept parsed, oldest first.
    apart: VecDeque<Arc<Record>>,
    tables: BTreeMap<TableId, Table>,
    /// Start of the logs of existing tables: the revision at which the store was opened.
    floor: u64,
    /// Dropped tables, with the revision: their earlier changes are forgotten.
    dropped: BTreeMap<TableId, u64>,
}

impl Inner {
    fn new(revision: u64, floor: u64, tables: BTreeMap<TableId, Table>) -> Self {
        Inner { revision, apart: VecDeque::new(), tables, floor, dropped: BTreeMap::new() }
    }

    /// Keeps a new record parsed, and the oldest one no longer: its parsed value is for the caller to drop.
    fn remember(&mut self, record: Arc<Record>) -> Option<Arc<Value>> {
        self.apart.push_back(record);
        if self.apart.len() > APART { self.apart.pop_front()?.fold() } else { None }
    }

    fn table(&mut self, id: &TableId) -> &mut Table {
        let floor = self.dropped.get(id).copied().unwrap_or(self.floor);
        self.tables.entry(id.clone()).or_insert_with(|| Table::new(floor))
    }
}

/// The changes after a watch's cursor.
pub(crate) enum Changes {
    /// The changes, and the revision up to which they are complete.
    Batch(Vec<Arc<Change>>, u64),
    /// The log no longer reaches back to the cursor; it starts after the revision given.
    Expired(u64),
    /// The table was dropped.
    Gone,
}

/// See the module documentation.
pub(crate) struct Store {
    inner: Mutex<Inner>,
    disk: Option<Disk>,
    /// How often the file has been opened, 0 in memory.
    opening: u64,
    /// The latest revision of any table that readers may see.
    signal: watch::Sender<u64>,
}

/// Reads and staged writes of one atomic step. The writes take effect together when the step's closure returns `Ok`;
/// the step's own reads do not see them.
pub(crate) struct Step<'a> {
    inner: &'a Inner,
    staged: Vec<Staged>,
}

struct Staged {
    table: TableId,
    key: ObjectKey,
    record: Arc<Record>,
    removed: bool,
}

impl Step<'_> {
    pub(crate) fn get(&self, table: &TableId, key: &ObjectKey) -> Option<&Arc<Record>> {
        self.inner.tables.get(table)?.objects.get(key)
    }

    /// Objects of a table, of one namespace or all.
    pub(crate) fn list(
        &self,
        table: &TableId,
        namespace: Option<&str>,
    ) -> impl Iterator<Item = &Arc<Record>> {
        self.inner
            .tables
            .get(table)
            .into_iter()
            .flat_map(move |t| t.range(namespace, None).map(|(_, record)| record))
    }

    /// The tables that have an object in `namespace`.
    pub(crate) fn tables_with(&self, namespace: &str) -> Vec<TableId> {
        let used = |t: &Table| t.range(Some(namespace), None).next().is_some();
        self.inner.tables.iter().filter(|(_, t)| used(t)).map(|(id, _)| id.clone()).collect()
    }

    fn stage(
        &mut self,
        table: &TableId,
        key: &ObjectKey,
        content: Content<'_>,
        removed: bool,
    ) -> Arc<Record> {
        let revision = self.inner.revision + 1 + self.staged.len() as u64;
        let record = Record::new(content, revision);
        self.staged.push(Staged {
            table: table.clone(),
            key: key.clone(),
            record: record.clone(),
            removed,
        });
        record
    }

    /// Creates or replaces an object.
    pub(crate) fn put<'a>(
        &mut self,
        table: &TableId,
        key: &ObjectKey,
        content: impl Into<Content<'a>>,
    ) -> Arc<Record> {
        self.stage(table, key, content.into(), false)
    }

    /// Removes an object; `last` is the state that watches see in the DELETED event.
    pub(crate) fn remove<'a>(
        &mut self,
        table: &TableId,
        key: &ObjectKey,
        last: impl Into<Content<'a>>,
    ) -> Arc<Record> {
        self.stage(table, key, last.into(), true)
    }
}

impl Store {
    /// A store in memory.
    pub(crate) fn memory() -> Self {
        Store {
            inner: Mutex::new(Inner::new(1, 0, BTreeMap::new())),
            disk: None,
            opening: 0,
            signal: watch::Sender::new(1),
        }
    }

    /// A store in memory with the objects and the revision of this one. As after a restore from a backup, there is no
    /// log: earlier watches expire.
    pub(crate) fn copy(&self) -> Self {
        let inner = self.lock();
        let revision = inner.revision;
        let tables = inner.tables.iter().map(|(id, table)| {
            let mut copy = Table::new(revision);
            copy.objects = table.objects.clone();
            (id.clone(), copy)
        });
        Store {
            inner: Mutex::new(Inner::new(revision, revision, tables.collect())),
            disk: None,
            opening: self.opening + 1,
            signal: watch::Sender::new(revision),
        }
    }

    /// A store that lives in the redb file at `path`, with everything read into memory.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let signal = watch::Sender::new(0);
        let (disk, loaded) = Disk::open(path, signal.clone())?;
        let mut tables: BTreeMap<TableId, Table> = BTreeMap::new();
        for (table, key, revision, value) in loaded.objects {
            let table = tables.entry(table).or_insert_with(|| Table::new(loaded.revision));
            let record = Record::new(value.into(), revision);
            record.fold();
            table.objects.insert(key, record);
        }
        Ok(Store {
            inner: Mutex::new(Inner::new(loaded.revision, loaded.revision, tables)),
            disk: Some(disk),
            opening: loaded.opening,
            signal,
        })
    }

    pub(crate) fn opening(&self) -> u64 {
        self.opening
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic under the lock would be a bug in this module; the tables are changed last, so their state is
        // consistent, and continuing is better than failing every request.
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The revision up to which everything is durable, given the latest one.
    fn visible(&self, revision: u64) -> u64 {
        self.disk.as_ref().map_or(revision, |disk| disk.durable().min(revision))
    }

    /// The newest revision that readers may see.
    pub(crate) fn revision(&self) -> u64 {
        let revision = self.lock().revision;
        self.visible(revision)
    }

    /// Waits until `revision` is durable. In memory that is at once.
    pub(crate) async fn durable(&self, revision: u64) -> Result<(), ApiError> {
        match &self.disk {
            None => Ok(()),
            Some(disk) => disk.wait(revision).await,
        }
    }

    /// Runs one atomic step. Its writes are visible to later steps at once, and to readers when they are durable, which
    /// the caller awaits with [`Store::durable`].
    pub(crate) fn step<T, E: From<ApiError>>(
        &self,
        work: impl FnOnce(&mut Step<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        // Declared before the lock: dropping large values must not delay other writes.
        let mut forgotten = Vec::new();
        let mut inner = self.lock();
        if let Some(disk) = &self.disk {
            disk.admit()?;
        }
        let mut step = Step { inner: &inner, staged: Vec::new() };
        let result = work(&mut step)?;
        let staged = step.staged;
        if staged.is_empty() {
            return Ok(result);
        }
        let now = Instant::now();
        let mut ops = Vec::with_capacity(staged.len());
        for Staged { table: id, key, record, removed } in staged {
            let revision = record.revision;
            forgotten.extend(inner.remember(record.clone()));
            let table = inner.table(&id);
            let previous = if removed {
                table.objects.remove(&key)
            } else {
                table.objects.insert(key.clone(), record.clone())
            };
            let kind = match (removed, &previous) {
                (true, _) => ChangeType::Deleted,
                (false, None) => ChangeType::Added,
                (false, Some(_)) => ChangeType::Modified,
            };
            let signal = table.signal.clone();
            table.record(Change {
                revision,
                kind,
                key: key.clone(),
                object: record.clone(),
                previous,
                at: now,
            });
            inner.revision = revision;
            ops.push(DiskOp {
                table: id,
                key,
                revision,
                record: (!removed).then_some(record),
                signal,
            });
        }
        match &self.disk {
            None => {
                for op in &ops {
                    op.signal.send_replace(op.revision);
                }
                self.signal.send_replace(inner.revision);
            }
            // Under the lock, so that the queue is in order of revisions.
            Some(disk) => disk.push(ops),
        }
        Ok(result)
    }

    /// One object, as of the latest write; the caller waits for durability.
    pub(crate) fn get(&self, table: &TableId, key: &ObjectKey) -> Option<Arc<Record>> {
        self.lock().tables.get(table)?.objects.get(key).cloned()
    }

    /// All objects of a table, with the revision of the read.
    pub(crate) fn list(&self, table: &TableId, namespace: Option<&str>) -> (u64, Vec<Arc<Record>>) {
        let inner = self.lock();
        let records = inner
            .tables
            .get(table)
            .map(|t| t.range(namespace, None).map(|(_, r)| r.clone()).collect())
            .unwrap_or_default();
        (inner.revision, records)
    }

    /// All tables.
    pub(crate) fn tables(&self) -> Vec<TableId> {
        self.lock().tables.keys().cloned().collect()
    }

    /// A receiver that changes when any table has new visible changes.
    pub(crate) fn subscribe_all(&self) -> watch::Receiver<u64> {
        self.signal.subscribe()
    }

    /// A receiver that changes when the table has new visible changes, and closes when the table is dropped. The table
    /// is created if missing, so that a watch can wait for its first object.
    pub(crate) fn subscribe(&self, table: &TableId) -> watch::Receiver<u64> {
        self.lock().table(table).signal.subscribe()
    }

    /// At most `limit` durable changes after `cursor`.
    pub(crate) fn changes(&self, table: &TableId, cursor: u64, limit: usize) -> Changes {
        let inner = self.lock();
        let Some(t) = inner.tables.get(table) else { return Changes::Gone };
        if cursor < t.floor {
            return Changes::Expired(t.floor);
        }
        let visible = self.visible(inner.revision);
        let from = t.log.partition_point(|c| c.revision <= cursor);
        let batch: Vec<_> = t
            .log
            .range(from..)
            .take_while(|c| c.revision <= visible)
            .take(limit)
            .cloned()
            .collect();
        let upto = match batch.last() {
            Some(last) if batch.len() == limit => last.revision,
            _ => visible.max(cursor),
        };
        Changes::Batch(batch, upto)
    }

    /// Drops an empty table, which ends its watches. Tables with objects stay.
    pub(crate) fn drop_table(&self, table: &TableId) {
        let mut inner = self.lock();
        if inner.tables.get(table).is_some_and(|t| t.objects.is_empty()) {
            inner.tables.remove(table);
            let revision = inner.revision;
            inner.dropped.insert(table.clone(), revision);
        }
    }
}
