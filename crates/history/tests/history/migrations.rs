//! Migrations from every earlier schema version to this one, with data.

use atoll_history::{Filter, PostgresStore, RETENTION, SqliteStore, Store, StoreError};
use jiff::Timestamp;
use sqlx::migrate::Migrator;
use sqlx::{Connection, Executor, SqliteConnection};

use crate::database::Database;
use crate::support::{ids, record, shares};

/// Limit of each wait.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(60);

/// The rows that a program of this schema version writes for a decision, with `{id}`, `{seq}` and the time `{t}` to
/// fill in.
fn rows_of(version: i64) -> Vec<&'static str> {
    let mut rows = vec![
        "INSERT INTO decisions (seq, id, decided_at, trigger_name, mode, outcome, desired, pending, term, binding_kind, \
         namespace, binding_name, binding_uid, workload_group, workload_version, workload_kind, workload_name, \
         before_clusters, after_clusters) VALUES ({seq}, '{id}', {t}, 'Scale', 'Steady', 'Placed', 3, '[]', 1, \
         'ResourceBinding', 'shop', 'web-deployment', 'uid-{id}', 'apps', 'v1', 'Deployment', 'web', '[]', \
         '[{\"name\":\"a\",\"replicas\":3}]')",
        "INSERT INTO unconfirmed (cluster, binding_uid) VALUES ('a', 'uid-{id}')",
    ];
    if version >= 3 {
        rows.push("UPDATE decisions SET provenance = '{\"version\":\"0.1.0\"}' WHERE id = '{id}'");
        rows.push("INSERT INTO milestones (decision, decided_at, cluster, stage, at) VALUES ('{id}', {t}, '', 'Committed', {t})");
        rows.push(
            "INSERT INTO member_events (cluster, cluster_uid, at, kind, reason, message) \
             VALUES ('a', '', {t}, 'Ready', '{id}', '')",
        );
    }
    if version >= 4 {
        rows.push("UPDATE decisions SET rejections = '{\"TaintToleration\":2}' WHERE id = '{id}'");
    }
    rows
}

fn fill(row: &str, id: &str, seq: i64, time: &str) -> String {
    row.replace("{id}", id).replace("{seq}", &seq.to_string()).replace("{t}", time)
}

/// The migrations up to a version.
fn up_to(all: &Migrator, version: i64) -> Migrator {
    let some = all.iter().filter(|migration| migration.version <= version).cloned().collect();
    Migrator { migrations: some, ..Migrator::DEFAULT }
}

fn head(all: &Migrator) -> i64 {
    all.iter().map(|migration| migration.version).max().unwrap()
}

/// The migrated database has its old content, and works.
async fn assert_upgraded(store: &dyn Store, version: i64) {
    let all = store.page(&Filter::default(), 10, None).await.unwrap();
    assert_eq!(ids(&all.rows), ["old"], "from version {version}");
    let row = store.get("old").await.unwrap().unwrap();
    let old = row.entry.record().unwrap_or_else(|| panic!("from version {version}: {row:?}"));
    assert_eq!((old.after.as_slice(), old.record.desired), (shares(&[("a", 3)]).as_slice(), 3));
    assert_eq!(old.provenance.is_some(), version >= 3);
    assert_eq!(old.rejections.is_some(), version >= 4);
    assert_eq!(store.unconfirmed("a").await.unwrap(), ["uid-old"]);
    assert_eq!(store.milestones(&["old".into()]).await.unwrap().len(), usize::from(version >= 3));
    let events = store.member_events(&Default::default(), 10, None).await.unwrap().events;
    assert_eq!(events.len(), usize::from(version >= 3));
    let at = Timestamp::from_second(2_000_000_000).unwrap();
    let residents = store.residents("a", at).await.unwrap();
    let residents: Vec<_> = residents.iter().map(|r| (r.decision.as_str(), r.replicas)).collect();
    assert_eq!(residents, [("old", 3)], "from version {version}");
    let mut new = record("new", 2, "api", 1_790_000_100);
    new.after = shares(&[("a", 1)]);
    store.insert(&[new]).await.unwrap();
    assert_eq!(store.residents("a", at).await.unwrap().len(), 2);
    store.maintain(at, RETENTION).await.unwrap();
}

#[tokio::test]
async fn sqlite_is_brought_up_from_every_version() {
    let migrations = atoll_history::migrations::sqlite();
    let changes = |version| match version {
        ..3 => {
            "INSERT INTO changes (cluster, decided_at, seq, replicas_after) VALUES ('a', {t}, {seq}, 3)"
        }
        _ => {
            "INSERT INTO changes (cluster, decided_at, seq, replicas_after, binding_uid) \
             VALUES ('a', {t}, {seq}, 3, 'uid-{id}')"
        }
    };
    for version in 1..=head(&migrations) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.db");
        let name = format!("sqlite://{}?mode=rwc", path.display());
        let mut connection = SqliteConnection::connect(&name).await.unwrap();
        up_to(&migrations, version).run_direct(None, &mut connection, false).await.unwrap();
        let mut rows = rows_of(version);
        rows.push(changes(version));
        for row in &rows {
            let sql = sqlx::AssertSqlSafe(fill(row, "old", 1, "1790000000000000"));
            connection.execute(sqlx::raw_sql(sql)).await.unwrap();
        }
        connection.close().await.unwrap();
        let store = SqliteStore::open(&path).await.unwrap();
        assert_upgraded(&store, version).await;
        store.close().await;
    }
}

#[tokio::test]
async fn postgres_is_brought_up_from_every_version_and_the_version_before_goes_on_writing() {
    let migrations = atoll_history::migrations::postgres();
    for version in 1..=head(&migrations) {
        let Some(database) = Database::make(&format!("from_{version}")).await else { return };
        let mut connection = database.connect().await;
        up_to(&migrations, version).run_direct(None, &mut connection, false).await.unwrap();
        let mut rows = rows_of(version);
        rows.insert(0, "SELECT atoll_make_partitions({t}, {t})");
        rows.push(
            "INSERT INTO changes (cluster, decided_at, seq, binding_uid, replicas_after) \
             VALUES ('a', {t}, {seq}, 'uid-{id}', 3)",
        );
        let write = async |connection: &mut sqlx::PgConnection, id: &str, seq, seconds: i64| {
            for row in &rows {
                let row = fill(row, id, seq, &format!("to_timestamp({seconds})"));
                let done =
                    connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(row.clone()))).await;
                done.unwrap_or_else(|error| panic!("version {version}: {row}: {error}"));
            }
        };
        write(&mut connection, "old", 1, 1_790_000_000).await;
        // In production the sequence numbers the rows.
        connection.execute("SELECT setval('decisions_seq', 10)").await.unwrap();
        let store = PostgresStore::new(&database.url).unwrap();
        store.prepare("2026-11-20T12:00:00Z".parse().unwrap()).await.unwrap();
        assert_upgraded(&store, version).await;
        // The old leader still runs, and writes into a week without partitions.
        write(&mut connection, "late", 1000, 1_990_000_000).await;
        assert!(store.get("late").await.unwrap().unwrap().entry.record().is_some());
        connection.close().await.unwrap();
        store.close().await;
        database.drop().await;
    }
}

#[tokio::test]
async fn a_migration_that_deadlocks_with_a_reader_runs_again() {
    let Some(database) = Database::make("deadlock").await else { return };
    let migrations = atoll_history::migrations::postgres();
    let mut reader = database.connect().await;
    // Version 6 changes both tables that the reader reads.
    up_to(&migrations, 5).run_direct(None, &mut reader, false).await.unwrap();
    // So the server ends the migration, not the reader.
    reader.execute("SET deadlock_timeout = '5min'").await.unwrap();
    reader.execute("BEGIN").await.unwrap();
    reader.execute("SELECT FROM decisions").await.unwrap();
    let store = std::sync::Arc::new(PostgresStore::new(&database.url).unwrap());
    let migrating = tokio::spawn({
        let store = store.clone();
        async move { store.prepare("2026-11-20T12:00:00Z".parse().unwrap()).await }
    });
    let mut other = database.connect().await;
    let waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'decisions'::regclass)";
    let until_it_waits = async {
        while !sqlx::query_scalar::<_, bool>(waits).fetch_one(&mut other).await.unwrap() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, until_it_waits).await.unwrap();
    // The migration has this table, until the server ends it.
    tokio::time::timeout(LIMIT, reader.execute("SELECT FROM changes")).await.unwrap().unwrap();
    reader.execute("COMMIT").await.unwrap();
    tokio::time::timeout(LIMIT, migrating).await.unwrap().unwrap().unwrap();
    store.insert(&[record("new", 1, "web", 1_790_000_000)]).await.unwrap();
    assert!(store.get("new").await.unwrap().is_some());
    reader.close().await.unwrap();
    other.close().await.unwrap();
    store.close().await;
    database.drop().await;
}

#[tokio::test]
async fn a_later_version_that_took_something_away_says_so_and_one_that_only_added_does_not() {
    let Some(database) = Database::make("later").await else { return };
    let first = PostgresStore::new(&database.url).unwrap();
    first.insert(&[record("one", 1, "web", 10)]).await.unwrap();
    let later = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                 VALUES (9999, 'later', TRUE, '\\x00', 0)";
    database.run(later).await;
    // Like a restarted controller that takes over.
    let second = PostgresStore::new(&database.url).unwrap();
    second.check().await.unwrap();
    second.insert(&[record("two", 1, "web", 11)]).await.unwrap();
    database.run("UPDATE history_bounds SET oldest_writer = 9999").await;
    let third = PostgresStore::new(&database.url).unwrap();
    for error in [
        third.check().await.unwrap_err(),
        third.insert(&[record("three", 1, "web", 12)]).await.unwrap_err(),
    ] {
        assert!(matches!(error, StoreError::Migrate { .. }), "{error:?}");
        // The rows wait for a program that may write them: they are not dropped.
        assert!(!error.is_refusal());
        let why = std::error::Error::source(&error).unwrap().to_string();
        assert!(why.contains("9999") && why.contains("run a later one"), "{why}");
    }
    for store in [first, second, third] {
        store.close().await;
    }
    database.drop().await;
}
