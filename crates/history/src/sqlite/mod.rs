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
mod transaction;

use std::path::Path;
use std::time::Duration;

use atoll_api::binding::TargetCluster;
use jiff::Timestamp;
use serde::Serialize;
use sqlx::sqlite::{SqliteArguments, SqlitePool, SqliteRow};
use sqlx::{Sqlite, SqliteConnection};
use tokio::sync::watch;

use self::transaction::WriteTransaction;
use crate::events::Event;
use crate::record::changes;
use crate::sql::{
    ColumnWriter, OPERATION, SqlDatabase, Statements, Value, rows, within, write_decision,
};
use crate::store::Maintained;
use crate::{Record, StoreError};

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
}

type Query = sqlx::query::Query<'static, Sqlite, SqliteArguments>;

/// Runs an operation within its time limit.
async fn bounded<T>(
    doing: &'static str,
    operation: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, StoreError> {
    within::<SqliteStore, T>(OPERATION, doing, operation).await
}

impl ColumnWriter for Query {
    fn text(self, text: &str) -> Self {
        self.bind(text)
    }

    fn number(self, number: i64) -> Self {
        self.bind(number)
    }

    fn time(self, microseconds: i64) -> Self {
        self.bind(microseconds)
    }

    fn json(self, value: &impl Serialize) -> Self {
        self.bind(rows::json(value))
    }

    fn bytes(self, bytes: &[u8]) -> Self {
        self.bind(bytes)
    }

    fn null(self) -> Self {
        self.bind(None::<String>)
    }
}

async fn insert(connection: &mut SqliteConnection, record: &Record) -> Result<(), sqlx::Error> {
    let before = shares_before(connection, record).await?;
    let statement = write_decision(sqlx::query(sql::INSERT), record, before.as_deref());
    if statement.execute(&mut *connection).await?.rows_affected() == 0 {
        return Ok(());
    }
    if let Some(frame) = &record.inputs {
        sqlx::query(sql::INSERT_INPUTS)
            .bind(record.record.id.as_str())
            .bind(frame.as_bytes())
            .execute(&mut *connection)
            .await?;
    }
    for (cluster, (before, after)) in changes(before.as_deref().unwrap_or_default(), &record.after)
    {
        sqlx::query(sql::INSERT_CHANGE)
            .bind(record.record.id.as_str())
            .bind(cluster)
            .bind(before)
            .bind(after)
            .execute(&mut *connection)
            .await?;
    }
    for cluster in record.withdrawal.iter().flat_map(|withdrawal| &withdrawal.unconfirmed) {
        sqlx::query(sql::INSERT_UNCONFIRMED)
            .bind(cluster.as_str())
            .bind(record.binding.uid.as_str())
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// The shares before a decision: its own, or its parent's `after`. If the parent's row is missing or cannot be read,
/// they stay unknown.
async fn shares_before(
    connection: &mut SqliteConnection,
    record: &Record,
) -> Result<Option<Vec<TargetCluster>>, sqlx::Error> {
    let (None, Some(parent)) = (&record.before, &record.record.parent) else {
        return Ok(record.before.clone());
    };
    let after: Option<String> =
        sqlx::query_scalar(sql::AFTER_OF).bind(parent.as_str()).fetch_optional(connection).await?;
    Ok(after.and_then(|json| serde_json::from_str(&json).ok()))
}

impl SqlDatabase for SqliteStore {
    type Row = SqliteRow;
    const STATEMENTS: Statements = sql::STATEMENTS;

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

    async fn fetch(
        &self,
        doing: &'static str,
        statement: &'static str,
        values: Vec<Value<'_>>,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        let query: Query = sqlx::query(statement);
        let query = values.into_iter().fold(query, |query, value| match value {
            Value::Text(text) => query.bind(text),
            Value::Number(number) => query.bind(number),
            Value::Flag(flag) => query.bind(flag),
            // SQLite has no arrays.
            Value::Texts(texts) => query.bind(rows::json(&texts)),
        });
        bounded(doing, query.fetch_all(&self.readers)).await
    }

    async fn insert_records(&self, records: &[Record]) -> Result<(), StoreError> {
        bounded("write", async {
            let mut transaction = WriteTransaction::begin(&self.writer).await?;
            for record in records {
                insert(transaction.connection(), record).await?;
            }
            transaction.commit().await
        })
        .await
    }

    async fn insert_events(&self, events: &[Event]) -> Result<(), StoreError> {
        bounded("write", async {
            let mut transaction = WriteTransaction::begin(&self.writer).await?;
            for event in events {
                events::insert(transaction.connection(), event).await?;
            }
            transaction.commit().await
        })
        .await
    }

    async fn run_maintenance(
        &self,
        now: Timestamp,
        retention: Duration,
    ) -> Result<Maintained, StoreError> {
        let done = sweep::sweep(self, now, retention).await?;
        standing::take(self, now).await?;
        Ok(done)
    }

    fn writes(&self) -> &watch::Sender<u64> {
        &self.written
    }
}

#[cfg(test)]
mod tests {
    use sqlx::{Executor, Row as _, SqlSafeStr};

    use super::*;
    use crate::{Detail, Filter, Row, Store, StoredRecord};

    #[tokio::test]
    async fn every_statement_is_accepted_by_the_database() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("history.db")).await.unwrap();
        for statement in sql::ALL.into_iter().chain(sql::STATEMENTS.all()) {
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
            sql::STATEMENTS.page,
            sql::STATEMENTS.page_of_namespace,
            sql::STATEMENTS.page_of_binding,
            sql::STATEMENTS.page_of_workload,
            sql::STATEMENTS.page_of_name,
            sql::STATEMENTS.page_of_cluster,
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
            uid: "u".into(),
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
