//! History in one file: the default of `atoll up` and of a single controller.
//!
//! Stored: decisions, the shares that each changed, unconfirmed withdrawals, events. All of this is primary data. One
//! connection writes while a few read (write-ahead log). A write is on the disk before it is acknowledged, because
//! bindings drop acknowledged decisions.

mod events;
mod open;
mod sql;
mod standing;
mod sweep;

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use sqlx::sqlite::{SqliteArguments, SqlitePool, SqliteRow};
use sqlx::{Connection, Sqlite, SqliteConnection};
use tokio::sync::watch;

use crate::events::{Event, MemberFilter, MemberPage, Milestone, Resident};
use crate::pooled::PooledConnection;
use crate::record::changes;
use crate::rows;
use crate::store::Maintained;
use crate::{BoxFuture, Detail, Filter, Newest, Page, Position, Record, Row, Store, StoreError};

/// Time limit of one operation. A batch takes milliseconds; an operation that takes this long is stuck.
const OPERATION: Duration = Duration::from_secs(10);
/// SQLite's result codes for values that are rejected permanently: too big, constraint, type mismatch.
const NEVER: [i32; 3] = [18, 19, 20];

/// History in a file.
#[derive(Debug)]
pub struct SqliteStore {
    writer: SqlitePool,
    readers: SqlitePool,
    written: watch::Sender<u64>,
}

impl SqliteStore {
    /// Opens the file, creates it if missing, and migrates its schema to this version.
    ///
    /// # Errors
    /// When the file cannot be written or was written by a later version.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let (writer, readers) = open::open(path).await?;
        Ok(Self { writer, readers, written: watch::Sender::new(0) })
    }

    /// Closes the connections after their current operations, and merges the write-ahead log into the file.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }

    async fn rows(
        &self,
        doing: &'static str,
        statement: &'static str,
        bind: impl FnOnce(Query) -> Query,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        bounded(doing, bind(sqlx::query(statement)).fetch_all(&self.readers)).await
    }
}

type Query = sqlx::query::Query<'static, Sqlite, SqliteArguments>;

/// Runs an operation within [`OPERATION`].
async fn bounded<T>(
    doing: &'static str,
    operation: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(OPERATION, operation).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(classify(doing, error)),
        Err(_) => Err(StoreError::TimedOut { doing, after: OPERATION }),
    }
}

fn classify(doing: &'static str, error: sqlx::Error) -> StoreError {
    let primary = match &error {
        sqlx::Error::Database(error) => error.code().and_then(|code| code.parse::<i32>().ok()),
        _ => None,
    };
    // The low byte is the primary code, the rest adds detail.
    match primary.map(|code| code & 0xff) {
        Some(code) if NEVER.contains(&code) => {
            StoreError::Refused { doing, source: Box::new(error) }
        }
        _ => StoreError::Unavailable { doing, source: Box::new(error) },
    }
}

/// Binds $1 to $11 of a filter.
fn bind_filter(query: Query, filter: &Filter) -> Query {
    let (namespace, only_namespaced) = filter.scope.columns();
    query
        .bind(namespace.map(str::to_owned))
        .bind(only_namespaced)
        .bind(filter.binding_uid.clone())
        .bind(filter.workload_group.clone())
        .bind(filter.workload_kind.clone())
        .bind(filter.workload_name.clone())
        .bind(filter.cluster.clone())
        .bind(filter.trigger.map(|trigger| rows::name(&trigger)))
        .bind(filter.outcome.map(|outcome| rows::name(&outcome)))
        .bind(filter.since.map(|since| since.as_microsecond()))
        .bind(filter.until.map(|until| until.as_microsecond()))
}

/// The statement whose index leaves the fewest rows to scan.
fn page_statement(filter: &Filter) -> &'static str {
    if filter.binding_uid.is_some() {
        sql::PAGE_OF_BINDING
    } else if filter.workload_name.is_some() {
        sql::PAGE_OF_WORKLOAD
    } else if filter.cluster.is_some() {
        sql::PAGE_OF_CLUSTER
    } else if filter.scope.columns().0.is_some() {
        sql::PAGE_OF_NAMESPACE
    } else {
        sql::PAGE
    }
}

async fn insert(connection: &mut SqliteConnection, record: &Record) -> Result<(), sqlx::Error> {
    let mut before = record.before.clone();
    if let (None, Some(parent)) = (&before, &record.record.parent) {
        let after: Option<String> =
            sqlx::query_scalar(sql::AFTER_OF).bind(parent).fetch_optional(&mut *connection).await?;
        // If the parent's row cannot be read, `before` of this one stays unknown.
        before = after.and_then(|json| serde_json::from_str(&json).ok());
    }
    let decision = &record.record;
    let inserted = sqlx::query(sql::INSERT)
        .bind(&decision.id)
        .bind(&decision.parent)
        .bind(record.decided_at().as_microsecond())
        .bind(rows::name(&decision.trigger))
        .bind(rows::name(&decision.mode))
        .bind(rows::name(&decision.outcome))
        .bind(decision.desired)
        .bind(rows::json(&decision.pending))
        .bind(&decision.affinity_name)
        .bind(decision.term)
        .bind(&record.binding.kind)
        .bind(record.binding.namespace.as_deref().unwrap_or(""))
        .bind(&record.binding.name)
        .bind(&record.binding.uid)
        .bind(record.workload.group())
        .bind(record.workload.version())
        .bind(&record.workload.kind)
        .bind(&record.workload.name)
        .bind(&record.workload.uid)
        .bind(before.as_ref().map(rows::json))
        .bind(rows::json(&record.after))
        .bind(&record.reason)
        .bind(record.gap.as_ref().map(rows::json))
        .bind(record.withdrawal.as_ref().map(rows::json))
        .bind(record.provenance.as_ref().map(rows::json))
        .bind(record.rejections.as_ref().map(rows::json))
        .bind(record.detail.as_ref().map(Detail::as_bytes))
        .execute(&mut *connection)
        .await?;
    if inserted.rows_affected() == 0 {
        return Ok(());
    }
    for (cluster, (before, after)) in changes(before.as_deref().unwrap_or_default(), &record.after)
    {
        sqlx::query(sql::INSERT_CHANGE)
            .bind(&decision.id)
            .bind(cluster)
            .bind(before)
            .bind(after)
            .execute(&mut *connection)
            .await?;
    }
    for cluster in record.withdrawal.iter().flat_map(|withdrawal| &withdrawal.unconfirmed) {
        sqlx::query(sql::INSERT_UNCONFIRMED)
            .bind(cluster)
            .bind(&record.binding.uid)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

impl Store for SqliteStore {
    fn insert<'a>(&'a self, records: &'a [Record]) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            bounded("write", async {
                // Take the write lock at the start: a transaction that begins with a read could not upgrade to it.
                let mut connection = PooledConnection::acquire(&self.writer).await?;
                let mut transaction = connection.get().begin_with("BEGIN IMMEDIATE").await?;
                for record in records {
                    insert(&mut transaction, record).await?;
                }
                transaction.commit().await?;
                connection.mark_sound();
                Ok(())
            })
            .await?;
            self.written.send_modify(|writes| *writes += 1);
            Ok(())
        })
    }

    fn page<'a>(
        &'a self,
        filter: &'a Filter,
        limit: usize,
        after: Option<Position>,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        Box::pin(async move {
            let after = after.unwrap_or(Position { decided_at: i64::MAX, seq: i64::MAX });
            // One more than requested tells whether there is a next page.
            let wanted = rows::limit(limit).saturating_add(1);
            let rows = self
                .rows("list", page_statement(filter), |query| {
                    bind_filter(query, filter).bind(after.decided_at).bind(after.seq).bind(wanted)
                })
                .await?;
            rows::page(&rows, limit).map_err(|error| classify("list", error))
        })
    }

    fn get<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Row>, StoreError>> {
        Box::pin(async move {
            let id = id.to_owned();
            let rows = self.rows("read", sql::GET, |query| query.bind(id)).await?;
            let Some(row) = rows.first() else { return Ok(None) };
            rows::read_whole(row).map(Some).map_err(|error| classify("read", error))
        })
    }

    fn tail<'a>(
        &'a self,
        filter: &'a Filter,
        seq: i64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Row>, StoreError>> {
        Box::pin(async move {
            let limit = rows::limit(limit);
            let rows = self
                .rows("follow", sql::TAIL, |query| bind_filter(query, filter).bind(seq).bind(limit))
                .await?;
            rows.iter()
                .map(|row| rows::read(row, None).map_err(|error| classify("follow", error)))
                .collect()
        })
    }

    fn last(&self) -> BoxFuture<'_, Result<i64, StoreError>> {
        Box::pin(async move {
            let row = sqlx::query_scalar(sql::LAST).fetch_one(&self.readers);
            bounded("read", row).await
        })
    }

    fn written(&self) -> watch::Receiver<u64> {
        self.written.subscribe()
    }

    fn unconfirmed<'a>(
        &'a self,
        cluster: &'a str,
    ) -> BoxFuture<'a, Result<Vec<String>, StoreError>> {
        Box::pin(async move {
            let uids = sqlx::query_scalar(sql::UNCONFIRMED).bind(cluster).fetch_all(&self.readers);
            bounded("read", uids).await
        })
    }

    fn newest<'a>(
        &'a self,
        bindings: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Newest>, StoreError>> {
        Box::pin(async move {
            let bindings = rows::json(&bindings);
            let rows = self.rows("read", sql::NEWEST, |query| query.bind(bindings)).await?;
            rows::newest(&rows).map_err(|error| classify("read", error))
        })
    }

    fn note<'a>(&'a self, events: &'a [Event]) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            events::note(self, events).await?;
            self.written.send_modify(|writes| *writes += 1);
            Ok(())
        })
    }

    fn milestones<'a>(
        &'a self,
        decisions: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Milestone>, StoreError>> {
        Box::pin(events::milestones(self, decisions))
    }

    fn member_events<'a>(
        &'a self,
        filter: &'a MemberFilter,
        limit: usize,
        after: Option<Position>,
    ) -> BoxFuture<'a, Result<MemberPage, StoreError>> {
        Box::pin(events::member_events(self, filter, limit, after))
    }

    fn maintain(
        &self,
        now: Timestamp,
        retention: Duration,
    ) -> BoxFuture<'_, Result<Maintained, StoreError>> {
        Box::pin(async move {
            let done = sweep::sweep(self, now, retention).await?;
            standing::take(self, now).await?;
            Ok(done)
        })
    }

    fn residents<'a>(
        &'a self,
        cluster: &'a str,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<Resident>, StoreError>> {
        Box::pin(events::residents(self, cluster, at))
    }
}

#[cfg(test)]
mod tests {
    use sqlx::{Executor, Row as _, SqlSafeStr};

    use super::*;
    use crate::StoredRecord;

    #[tokio::test]
    async fn every_statement_is_accepted_by_the_database() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("history.db")).await.unwrap();
        for statement in sql::ALL {
            store
                .writer
                .prepare(statement.into_sql_str())
                .await
                .unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
    }

    #[tokio::test]
    async fn lists_are_read_in_the_order_of_an_index() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("history.db")).await.unwrap();
        for statement in [
            sql::PAGE,
            sql::PAGE_OF_NAMESPACE,
            sql::PAGE_OF_BINDING,
            sql::PAGE_OF_WORKLOAD,
            sql::PAGE_OF_CLUSTER,
        ] {
            let explain = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
            let plan = sqlx::query(explain).fetch_all(&store.writer).await.unwrap();
            let plan: Vec<String> = plan.iter().map(|row| row.get("detail")).collect();
            assert!(plan.iter().all(|step| !step.contains("TEMP B-TREE")), "{statement}\n{plan:?}");
            assert!(plan.iter().all(|step| !step.starts_with("SCAN")), "{statement}\n{plan:?}");
        }
    }

    #[tokio::test]
    async fn a_row_that_cannot_be_read_is_shown_as_such() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("history.db")).await.unwrap();
        let row = "INSERT INTO decisions (id, decided_at, trigger_name, mode, outcome, desired, pending, term, \
            binding_kind, namespace, binding_name, binding_uid, workload_group, workload_version, workload_kind, \
            workload_name, after_clusters) VALUES ('x', 0, 'Teleport', 'Steady', 'Placed', 1, '[]', 1, \
            'ResourceBinding', 'shop', 'b', 'u', 'apps', 'v1', 'Deployment', 'web', '[]')";
        sqlx::query(row).execute(&store.writer).await.unwrap();
        let page = store.page(&Filter::default(), 10, None).await.unwrap();
        let [Row { entry: StoredRecord::Unreadable { id, namespace, error, .. }, .. }] =
            page.rows.as_slice()
        else {
            panic!("{page:?}");
        };
        assert_eq!((id.as_str(), namespace.as_deref()), ("x", Some("shop")));
        assert!(error.contains("trigger_name") && error.contains("Teleport"), "{error}");
    }

    #[tokio::test]
    async fn a_file_without_room_takes_rows_when_there_is_some() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("history.db")).await.unwrap();
        let binding = crate::BindingRef {
            kind: "ResourceBinding".to_owned(),
            namespace: None,
            name: "b".to_owned(),
            uid: "u".to_owned(),
        };
        let withdrawal = crate::Withdrawal { clusters: vec![], unconfirmed: vec![] };
        let (workload, at) = (Default::default(), Timestamp::UNIX_EPOCH);
        let mut big = Record::withdrawn(binding, workload, None, vec![], withdrawal, at, 1);
        big.detail = Some(Detail::from_bytes(vec![7; 1 << 20]));
        let pages: i64 =
            sqlx::query_scalar("PRAGMA page_count").fetch_one(&store.writer).await.unwrap();
        let room = |pages: i64| sqlx::AssertSqlSafe(format!("PRAGMA max_page_count = {pages}"));
        sqlx::query(room(pages + 10)).execute(&store.writer).await.unwrap();
        let records = [big];
        let error = store.insert(&records).await.unwrap_err();
        assert!(error.is_transient(), "{error:?}");
        assert!(store.get(&records[0].record.id).await.unwrap().is_none(), "half of it is there");
        // The limit was a setting of the closed connection.
        store.insert(&records).await.unwrap();
        assert!(store.get(&records[0].record.id).await.unwrap().is_some());
    }
}
