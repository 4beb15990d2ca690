//! The redb file behind a store. One thread owns it: it takes all waiting writes and commits them as one
//! transaction, so that many writers share one fsync, then notifies them and the watches.
//!
//! A failed commit (disk full) is retried every [`RETRY`] with the same writes; meanwhile writers get the disk's
//! error, because their write may still become durable and must not be reported as refused.

use std::{
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use atoll_apimachinery::ApiError;
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};
use serde_json::Value;
use tokio::sync::watch;

use super::record::{ObjectKey, Record, TableId};
use crate::options::OpenError;

const OBJECTS: TableDefinition<'_, (&str, &str, &str), (u64, &[u8])> =
    TableDefinition::new("objects");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// Raised when the layout changes in a way that an older binary must not touch.
const FORMAT: u64 = 1;

/// Maximum writes waiting for the disk. Beyond it writers get 429: 16384 objects of some KiB are tens of MiB, and a
/// longer queue would not help such a slow disk.
const MAX_WAITING: usize = 16_384;
/// Pause before a failed commit is retried.
const RETRY: Duration = Duration::from_secs(1);

/// One write on its way to the disk; without a record it is a removal.
pub(super) struct DiskOp {
    pub(super) table: TableId,
    pub(super) key: ObjectKey,
    pub(super) revision: u64,
    pub(super) record: Option<Arc<Record>>,
    pub(super) signal: watch::Sender<u64>,
}

/// The content of the file.
pub(super) struct Loaded {
    pub(super) revision: u64,
    pub(super) opening: u64,
    pub(super) objects: Vec<(TableId, ObjectKey, u64, Value)>,
}

/// Progress of the disk, the only state that waiters and readers look at.
#[derive(Clone, Default)]
struct Progress {
    durable: u64,
    /// Set while commits fail.
    failure: Option<Arc<str>>,
}

/// Writes that are not in a transaction yet, in order of revision.
#[derive(Default)]
struct Queue {
    waiting: Vec<DiskOp>,
    closed: bool,
}

/// State shared by the thread and the store.
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    progress: watch::Sender<Progress>,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates an empty file that only its owner can read, or restricts an existing one: it contains Secrets.
fn private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    const OWNER_ONLY: u32 = 0o600;
    let mut options = std::fs::File::options();
    match options.write(true).create_new(true).mode(OWNER_ONLY).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let found = std::fs::metadata(path)?.permissions().mode();
            if found & 0o077 == 0 {
                return Ok(());
            }
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(OWNER_ONLY))
        }
        Err(error) => Err(error),
    }
}

/// The writer's side of the file. Dropping it writes the waiting operations and releases the file's lock.
pub(super) struct Disk {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Disk {
    pub(super) fn open(
        path: &Path,
        signal: watch::Sender<u64>,
    ) -> Result<(Disk, Loaded), OpenError> {
        let fail = |source: redb::Error| OpenError::Open {
            path: path.to_owned(),
            source: Box::new(source),
        };
        private(path).map_err(|source| fail(redb::Error::Io(source)))?;
        let database = match Database::create(path) {
            Ok(database) => database,
            Err(DatabaseError::DatabaseAlreadyOpen) => {
                return Err(OpenError::InUse { path: path.to_owned() });
            }
            Err(other) => return Err(fail(other.into())),
        };
        mark_opened(&database, path)?;
        let loaded = load(&database, path)?;
        let progress = Progress { durable: loaded.revision, failure: None };
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            progress: watch::Sender::new(progress),
        });
        let thread = std::thread::Builder::new()
            .name("atoll-store".to_owned())
            .spawn({
                let (shared, path) = (shared.clone(), path.to_owned());
                move || write_loop(&database, &shared, &signal, &path)
            })
            .map_err(|e| fail(redb::Error::Io(e)))?;
        Ok((Disk { shared, thread: Some(thread) }, loaded))
    }

    pub(super) fn durable(&self) -> u64 {
        self.shared.progress.borrow().durable
    }

    /// Refuses a write while the queue is full or the disk fails.
    pub(super) fn admit(&self) -> Result<(), ApiError> {
        if let Some(why) = &self.shared.progress.borrow().failure {
            return Err(ApiError::internal(format_args!(
                "the object store cannot be written: {why}"
            )));
        }
        if self.shared.queue().waiting.len() >= MAX_WAITING {
            return Err(ApiError::too_many_requests("the object store is behind on writes", 1));
        }
        Ok(())
    }

    /// Queues writes. Called under the store's lock, so that the queue is in order of revisions; this never blocks.
    pub(super) fn push(&self, ops: Vec<DiskOp>) {
        self.shared.queue().waiting.extend(ops);
        self.shared.wake.notify_one();
    }

    /// Waits until a revision is on the disk. An error means that the outcome is unknown: the write is still retried.
    pub(super) async fn wait(&self, revision: u64) -> Result<(), ApiError> {
        let mut progress = self.shared.progress.subscribe();
        let state = progress
            .wait_for(|p| p.durable >= revision || p.failure.is_some())
            .await
            .map_err(|_| ApiError::internal("the object store was closed"))?;
        match &state.failure {
            Some(why) if state.durable < revision => Err(ApiError::internal(format_args!(
                "the object store cannot be written, it is not known whether this was kept: {why}"
            ))),
            _ => Ok(()),
        }
    }
}

impl Drop for Disk {
    /// Writes the waiting operations and releases the file.
    fn drop(&mut self) {
        self.shared.queue().closed = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the object store's writer ended by a panic");
        }
    }
}

/// Checks the layout and counts this opening, before anything else is read.
fn mark_opened(database: &Database, path: &Path) -> Result<(), OpenError> {
    let fail =
        |source: redb::Error| OpenError::Open { path: path.to_owned(), source: Box::new(source) };
    let write = || -> Result<Option<u64>, redb::Error> {
        let txn = database.begin_write()?;
        let found = {
            let mut meta = txn.open_table(META)?;
            let found = meta.get("format")?.map(|v| v.value());
            if found.is_none_or(|f| f == FORMAT) {
                meta.insert("format", FORMAT)?;
                let opening = meta.get("opening")?.map_or(0, |v| v.value());
                meta.insert("opening", opening + 1)?;
                if meta.get("revision")?.is_none() {
                    meta.insert("revision", 1)?;
                }
                txn.open_table(OBJECTS)?;
            }
            found
        };
        txn.commit()?;
        Ok(found)
    };
    match write().map_err(fail)? {
        Some(found) if found != FORMAT => Err(OpenError::Format {
            path: path.to_owned(),
            reason: format!("its layout is number {found}, this program reads {FORMAT}"),
        }),
        _ => Ok(()),
    }
}

/// Reads every object. Invalid JSON is reported with its key, never repaired silently.
fn load(database: &Database, path: &Path) -> Result<Loaded, OpenError> {
    let fail =
        |source: redb::Error| OpenError::Open { path: path.to_owned(), source: Box::new(source) };
    type Rows = (Loaded, Option<String>);
    let read = || -> Result<Rows, redb::Error> {
        let txn = database.begin_read()?;
        let meta = txn.open_table(META)?;
        let number =
            |key: &str| -> Result<u64, redb::Error> { Ok(meta.get(key)?.map_or(0, |v| v.value())) };
        let mut loaded = Loaded {
            revision: number("revision")?,
            opening: number("opening")?,
            objects: Vec::new(),
        };
        for row in txn.open_table(OBJECTS)?.iter()? {
            let (key, value) = row?;
            let ((table, namespace, name), (revision, json)) = (key.value(), value.value());
            match serde_json::from_slice(json) {
                Ok(value) => loaded.objects.push((
                    TableId(table.into()),
                    ObjectKey::new(namespace, name),
                    revision,
                    value,
                )),
                Err(e) => {
                    return Ok((
                        loaded,
                        Some(format!("{table} {namespace}/{name} is not JSON: {e}")),
                    ));
                }
            }
        }
        Ok((loaded, None))
    };
    match read().map_err(fail)? {
        (_, Some(reason)) => Err(OpenError::Format { path: path.to_owned(), reason }),
        (loaded, None) => Ok(loaded),
    }
}

/// The thread: takes the waiting writes, commits them as one transaction, notifies waiters, then watches.
fn write_loop(database: &Database, shared: &Shared, signal: &watch::Sender<u64>, path: &Path) {
    let mut batch = Vec::new();
    loop {
        let closed = {
            let mut queue = shared.queue();
            while batch.is_empty() && queue.waiting.is_empty() && !queue.closed {
                queue = shared.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            batch.append(&mut queue.waiting);
            queue.closed
        };
        let Some(last) = batch.last().map(|op| op.revision) else { return };
        match commit(database, &batch, last) {
            Ok(()) => {
                shared.progress.send_replace(Progress { durable: last, failure: None });
                for op in batch.drain(..) {
                    op.signal.send_replace(op.revision);
                }
                signal.send_replace(last);
            }
            Err(error) => {
                let why = error.to_string();
                tracing::error!(path = %path.display(), error = %why, "object store: commit failed");
                if closed {
                    return;
                }
                shared.progress.send_modify(|p| p.failure = Some(why.as_str().into()));
                let queue = shared.queue();
                // Woken early only when the store closes or by writes admitted before the failure.
                drop(
                    shared.wake.wait_timeout(queue, RETRY).unwrap_or_else(PoisonError::into_inner),
                );
            }
        }
    }
}

/// One transaction: the objects and the new revision of the store.
fn commit(database: &Database, batch: &[DiskOp], revision: u64) -> Result<(), redb::Error> {
    let txn = database.begin_write()?;
    {
        let mut objects = txn.open_table(OBJECTS)?;
        for op in batch {
            let key = (op.table.as_str(), op.key.namespace.as_str(), op.key.name.as_str());
            match &op.record {
                Some(record) => objects.insert(key, (op.revision, record.json().as_ref()))?,
                None => objects.remove(key)?,
            };
        }
        txn.open_table(META)?.insert("revision", revision)?;
    }
    txn.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Changes, Store};
    use super::*;

    fn object(name: &str, data: u64) -> Value {
        json!({"metadata": {"name": name}, "data": data})
    }

    async fn put(store: &Store, table: &TableId, name: &str, data: u64) -> u64 {
        let record = store
            .step(|s| {
                Ok::<_, ApiError>(s.put(table, &ObjectKey::new("", name), object(name, data)))
            })
            .unwrap();
        store.durable(record.revision).await.unwrap();
        record.revision
    }

    #[tokio::test]
    async fn a_reopened_store_continues_revisions_and_expires_old_watches() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("objects.redb");
        let table = TableId::new("", "things");
        let store = Store::open(&path).unwrap();
        let first = put(&store, &table, "a", 1).await;
        let last = put(&store, &table, "b", 2).await;
        assert!(matches!(Store::open(&path), Err(OpenError::InUse { .. })));
        drop(store);

        let store = Store::open(&path).unwrap();
        assert_eq!(store.revision(), last);
        assert_eq!(store.opening(), 2);
        let (_, records) = store.list(&table, None);
        assert_eq!(records.len(), 2);
        assert_eq!(records[0].revision, first);
        assert!(
            matches!(store.changes(&table, first, 10), Changes::Expired(floor) if floor == last)
        );
        assert!(matches!(store.changes(&table, last, 10), Changes::Batch(b, _) if b.is_empty()));
        assert_eq!(put(&store, &table, "a", 3).await, last + 1);
    }

    #[tokio::test]
    async fn concurrent_writers_share_commits_and_all_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("objects.redb");
        let table = TableId::new("", "things");
        let store = Store::open(&path).unwrap();
        let names: Vec<String> = (0..200).map(|n| format!("o{n}")).collect();
        let writes = names.iter().map(|name| put(&store, &table, name, 1));
        futures::future::join_all(writes).await;
        drop(store);
        let store = Store::open(&path).unwrap();
        assert_eq!(store.list(&table, None).1.len(), names.len());
    }
}
