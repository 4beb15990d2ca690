//! History in PostgreSQL (14 or later): the database of a production controller.
//!
//! Stored: decisions, the shares that each changed, unconfirmed withdrawals, events. All of this is primary data. The
//! database may be unreachable at start: the first write that reaches it migrates the schema. Writers are serialised by
//! a lock in the database, so that row numbers follow commit order.

mod batch;
mod copy;
mod events;
mod open;
mod sql;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use sqlx::postgres::{PgArguments, PgPool, PgRow};
use sqlx::{Connection, PgConnection, Postgres};
use tokio::sync::{OnceCell, watch};

use crate::events::Event;
use crate::sql::{OPERATION, PooledConnection, SqlDatabase, Statements, Value, within};
use crate::store::Maintained;
use crate::weeks::{MOST_STANDINGS, STANDING_LAG, begin, week};
use crate::{Durability, Record, StoreError};

/// Weeks of partitions created in advance: a month without the permission to create tables loses nothing.
const WEEKS_AHEAD: i64 = 4;
/// SQLSTATE of a duplicate key: the next attempt looks for existing rows.
const THERE_ALREADY: &str = "23505";
/// Latest time that the tables accept, in microseconds: the end of the year 9999.
const LATEST: i64 = 253_402_300_799_000_000;

/// History in a PostgreSQL database.
#[derive(Debug)]
pub struct PostgresStore {
    address: open::Address,
    operation: Duration,
    writer: PgPool,
    flushers: PgPool,
    readers: PgPool,
    migrated: OnceCell<()>,
    /// Weeks, counted from the first Monday of 1970, that are known to have partitions.
    weeks: Mutex<BTreeSet<i64>>,
    /// Whether the next batch may contain existing rows.
    look: AtomicBool,
    written: watch::Sender<u64>,
    connections: open::Connections,
}

impl PostgresStore {
    /// The database at `postgres://user:password@host:port/database`. Does not connect yet. Over a network the default
    /// is TLS with a verified certificate; `?sslmode=` and `&sslrootcert=FILE` change that, as for psql.
    ///
    /// # Errors
    /// When the address cannot be parsed.
    pub fn new(url: &str) -> Result<Self, StoreError> {
        Self::within(url, OPERATION)
    }

    /// Like [`PostgresStore::new`], with another time limit per operation.
    ///
    /// # Errors
    /// When the address cannot be parsed.
    pub fn within(url: &str, operation: Duration) -> Result<Self, StoreError> {
        let address = open::Address::parse(url)?;
        let connections = open::Connections::default();
        let open::Pools { writer, flushers, readers } = address.pools(operation, &connections);
        Ok(Self {
            address,
            operation,
            writer,
            flushers,
            readers,
            migrated: OnceCell::new(),
            weeks: Mutex::default(),
            look: AtomicBool::new(true),
            written: watch::Sender::new(0),
            connections,
        })
    }

    /// Migrates the schema to this version and creates the partitions of the coming weeks. Inserts migrate by
    /// themselves; a call at start reports permanent errors early.
    ///
    /// # Errors
    /// When the database is unreachable or rejects it; [`StoreError::Migrate`] for the database of a later version.
    pub async fn prepare(&self, now: Timestamp) -> Result<(), StoreError> {
        self.migrate().await?;
        let this = week(now.as_second());
        let weeks: BTreeSet<i64> = (this..=this + WEEKS_AHEAD).collect();
        let work = async {
            let mut transaction = self.writer.begin_with(sql::BEGIN).await?;
            make_partitions(&mut transaction, &weeks).await?;
            transaction.commit().await
        };
        self.bounded("make partitions of", work).await?;
        self.weeks().extend(weeks);
        Ok(())
    }

    /// Checks that the database is reachable and may be written by this version. Changes nothing: the leader migrates.
    ///
    /// # Errors
    /// When the database is unreachable or rejects it; [`StoreError::Migrate`] for the database of a later version that
    /// this one must not write.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.bounded("check", sqlx::query("SELECT 1").execute(&self.readers)).await?;
        self.address.check(&self.readers, self.operation).await
    }

    /// Drops the weeks that ended before the retention, and takes the standings that are due.
    async fn sweep(&self, now: Timestamp, retention: Duration) -> Result<Maintained, StoreError> {
        let age = i64::try_from(retention.as_micros()).unwrap_or(i64::MAX);
        let before = now.as_microsecond().saturating_sub(age);
        let mut done = Maintained::default();
        let keeper = self.address.keeper().await?;
        let work = async {
            // One more than the weeks in a century: the loop ends whatever the database returns.
            for _ in 0..5_300 {
                let dropped: bool =
                    sqlx::query_scalar(sql::SWEEP).bind(before).fetch_one(&keeper).await?;
                if !dropped {
                    break;
                }
                done.weeks += 1;
            }
            let latest = now.as_microsecond().saturating_sub(STANDING_LAG);
            for _ in 0..MOST_STANDINGS {
                let taken: bool =
                    sqlx::query_scalar(sql::TAKE_STANDING).bind(latest).fetch_one(&keeper).await?;
                if !taken {
                    break;
                }
            }
            Ok(())
        };
        let swept = tokio::time::timeout(open::MIGRATION, work).await;
        keeper.close().await;
        match swept {
            Ok(Ok(())) => Ok(done),
            Ok(Err(error)) => Err(Self::classify("sweep", error)),
            Err(_) => Err(StoreError::TimedOut { doing: "sweep", after: open::MIGRATION }),
        }
    }

    /// Its location, without user and password.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.address.shown
    }

    /// Closes the connections after their current operations.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
        self.flushers.close().await;
    }

    async fn migrate(&self) -> Result<(), StoreError> {
        self.migrated.get_or_try_init(|| self.address.migrate()).await.copied()
    }

    /// Weeks of these times (in seconds) that may lack partitions.
    fn unknown_weeks(&self, seconds: impl Iterator<Item = i64>) -> BTreeSet<i64> {
        let known = self.weeks();
        seconds.map(week).filter(|week| !known.contains(week)).collect()
    }

    /// Notes the weeks after a successful write. After a failure a partition may be missing: the next attempt checks.
    fn learn<T>(&self, weeks: BTreeSet<i64>, written: &Result<T, StoreError>) {
        match written {
            Ok(_) => self.weeks().extend(weeks),
            Err(_) => self.weeks().clear(),
        }
    }

    fn weeks(&self) -> std::sync::MutexGuard<'_, BTreeSet<i64>> {
        // A set of numbers is consistent even if another thread panicked.
        self.weeks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn write_once(
        &self,
        begin: &'static str,
        records: &[Record],
        weeks: &BTreeSet<i64>,
    ) -> Result<Written, sqlx::Error> {
        let mut connection = PooledConnection::acquire(&self.writer).await?;
        if self.connections.is_another() {
            connection.mark_sound();
            return Ok(Written::Reconnected);
        }
        // Rows already exist when a reply was lost or another leader wrote them. One such row is followed by more.
        let look = self.look.load(Ordering::Relaxed);
        let mut written = write_on(connection.get(), begin, records, weeks, look).await;
        if !look && written.as_ref().is_err_and(is_there_already) {
            written = write_on(connection.get(), begin, records, weeks, true).await;
        }
        self.look.store(!matches!(written, Ok(false)), Ordering::Relaxed);
        // After an error reported by the server, the connection is still in sync.
        if matches!(written, Ok(_) | Err(sqlx::Error::Database(_))) {
            connection.mark_sound();
        }
        written.map(|_| Written::Done)
    }

    /// Writes records in a transaction started with `begin`.
    async fn write_from(&self, begin: &'static str, records: &[Record]) -> Result<(), StoreError> {
        self.migrate().await?;
        let weeks = self.unknown_weeks(records.iter().map(|r| r.decided_at().as_second()));
        let written = self.bounded("write", self.write_once(begin, records, &weeks)).await;
        if let Ok(Written::Reconnected) = written {
            return Err(StoreError::Reconnected { doing: "write" });
        }
        self.learn(weeks, &written);
        written.map(|_| ())
    }

    /// Runs an operation within its time limit.
    async fn bounded<T>(
        &self,
        doing: &'static str,
        operation: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, StoreError> {
        within::<Self, T>(self.operation, doing, operation).await
    }
}

async fn write_on(
    connection: &mut PgConnection,
    begin: &'static str,
    records: &[Record],
    weeks: &BTreeSet<i64>,
    look: bool,
) -> Result<bool, sqlx::Error> {
    let mut transaction = connection.begin_with(begin).await?;
    make_partitions(&mut transaction, weeks).await?;
    let found = batch::insert(&mut transaction, records, look).await?;
    transaction.commit().await?;
    Ok(found)
}

fn is_there_already(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).as_deref() == Some(THERE_ALREADY)
}

/// Creates missing partitions of these weeks. The transaction was started with [`sql::BEGIN`].
async fn make_partitions(
    transaction: &mut PgConnection,
    weeks: &BTreeSet<i64>,
) -> Result<(), sqlx::Error> {
    for week in weeks {
        let begin = begin(*week);
        sqlx::query(sql::MAKE_PARTITIONS)
            .bind(begin)
            .bind(begin)
            .execute(&mut *transaction)
            .await?;
    }
    Ok(())
}

/// Result of a write that was not rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    Done,
    /// Nothing was written, because the connection is new.
    Reconnected,
}

type Query = sqlx::query::Query<'static, Postgres, PgArguments>;

impl SqlDatabase for PostgresStore {
    type Row = PgRow;
    const STATEMENTS: Statements = sql::STATEMENTS;

    /// An error caused by the values themselves is permanent; any other may pass by itself or by an administrator's
    /// action: unreachable, starting, read-only, full, locked, slow, missing permission, missing table.
    fn classify(doing: &'static str, error: sqlx::Error) -> StoreError {
        let code = match &error {
            sqlx::Error::Database(error) => error.code().map(std::borrow::Cow::into_owned),
            _ => None,
        };
        let code = code.as_deref().unwrap_or_default();
        // A missing partition is reported as a check violation too: it was dropped, and the next attempt creates it
        // again.
        const NO_PARTITION: &str = "23514";
        // Classes of SQLSTATE: data exceptions, constraints, limits of the server such as the length of a row.
        const NEVER: [&str; 3] = ["22", "23", "54"];
        let never = ![NO_PARTITION, THERE_ALREADY].contains(&code)
            && NEVER.iter().any(|class| code.starts_with(class));
        if never {
            StoreError::Refused { doing, source: Box::new(error) }
        } else {
            StoreError::Unavailable { doing, source: Box::new(error) }
        }
    }

    /// No decision is older than 1970: an earlier limit has no effect.
    fn nearest_time(microseconds: i64) -> i64 {
        microseconds.clamp(0, LATEST)
    }

    async fn fetch(
        &self,
        doing: &'static str,
        statement: &'static str,
        values: Vec<Value<'_>>,
    ) -> Result<Vec<PgRow>, StoreError> {
        let query: Query = sqlx::query(statement);
        let query = values.into_iter().fold(query, |query, value| match value {
            Value::Text(text) => query.bind(text),
            Value::Number(number) => query.bind(number),
            Value::Flag(flag) => query.bind(flag),
            Value::Texts(texts) => query.bind(texts),
        });
        self.bounded(doing, query.fetch_all(&self.readers)).await
    }

    async fn insert_records(&self, records: &[Record]) -> Result<(), StoreError> {
        self.write_from(sql::BEGIN, records).await
    }

    async fn write_records(&self, records: &[Record]) -> Result<Durability, StoreError> {
        // Connected before the write, so it would notice a server restart that lost rows.
        let mut flusher = self.bounded("write", PooledConnection::acquire(&self.flushers)).await?;
        self.write_from(sql::BEGIN_LATER, records).await?;
        let limit = self.operation;
        let durability: Durability = Box::pin(async move {
            let flush = sqlx::query(sql::FLUSH).execute(flusher.get());
            within::<Self, _>(limit, "write", flush).await?;
            flusher.mark_sound();
            Ok(())
        });
        Ok(durability)
    }

    async fn insert_events(&self, events: &[Event]) -> Result<(), StoreError> {
        events::insert(self, events).await
    }

    async fn run_maintenance(
        &self,
        now: Timestamp,
        retention: Duration,
    ) -> Result<Maintained, StoreError> {
        self.prepare(now).await?;
        let swept = self.sweep(now, retention).await;
        // Weeks may be dropped: late rows for them create them again, or go to the retained rows.
        self.weeks().clear();
        swept
    }

    fn writes(&self) -> &watch::Sender<u64> {
        &self.written
    }
}

#[cfg(test)]
#[path = "../../tests/history/database.rs"]
#[allow(dead_code, reason = "shared with the integration tests, which use more of it")]
mod database;

#[cfg(test)]
mod tests {
    use sqlx::{Executor, Row as _, SqlSafeStr};

    use super::database::Database;
    use super::*;

    #[tokio::test]
    async fn every_statement_is_accepted_by_the_database() {
        let Some(database) = Database::make("prepare").await else { return };
        let store = PostgresStore::new(&database.url).unwrap();
        store.prepare(Timestamp::UNIX_EPOCH).await.unwrap();
        for statement in sql::ALL.into_iter().chain(sql::STATEMENTS.all()) {
            store
                .writer
                .prepare(statement.into_sql_str())
                .await
                .unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
        // Readers cannot write, whatever statement they run.
        let error = sqlx::query("DELETE FROM decisions").execute(&store.readers).await.unwrap_err();
        assert!(error.to_string().contains("read-only"), "{error}");
        store.close().await;
        database.drop().await;
    }

    #[tokio::test]
    async fn lists_are_read_in_the_order_of_an_index() {
        let Some(database) = Database::make("plans").await else { return };
        let store = PostgresStore::new(&database.url).unwrap();
        store.prepare(Timestamp::UNIX_EPOCH).await.unwrap();
        let mut connection = store.writer.acquire().await.unwrap();
        // Tables this small are scanned sequentially unless that is disabled.
        connection.execute("SET enable_seqscan = off").await.unwrap();
        connection.execute("SET plan_cache_mode = force_generic_plan").await.unwrap();
        for (statement, index) in [
            (sql::STATEMENTS.page, "decided_at_seq_idx"),
            (sql::STATEMENTS.page_of_namespace, "namespace_decided_at_seq_idx"),
            (sql::STATEMENTS.page_of_binding, "binding_uid_decided_at_seq_idx"),
            (sql::STATEMENTS.page_of_workload, "workload_name_namespace_decided_at_seq_idx"),
            (sql::STATEMENTS.page_of_cluster, "changes_"),
            (sql::STATEMENTS.tail, "seq_idx"),
        ] {
            let prepare = sqlx::AssertSqlSafe(format!("PREPARE it AS {statement}"));
            connection.execute(sqlx::raw_sql(prepare)).await.unwrap();
            let parameters = if statement == sql::STATEMENTS.tail { 13 } else { 14 };
            // Column values do not matter to a generic plan; a position of NULL would leave no partition.
            let mut values = vec!["NULL"; parameters];
            values[11] = "100000000";
            let values = values.join(", ");
            let explain = sqlx::AssertSqlSafe(format!("EXPLAIN (COSTS OFF) EXECUTE it({values})"));
            let plan = connection.fetch_all(sqlx::raw_sql(explain)).await.unwrap();
            let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
            let plan = plan.join("\n");
            assert!(plan.contains(index), "{statement}\n{plan}");
            assert!(!plan.contains("->  Sort"), "{statement}\n{plan}");
            connection.execute("DEALLOCATE it").await.unwrap();
        }
        drop(connection);
        store.close().await;
        database.drop().await;
    }
}
