//! PostgreSQL beyond the contract: outages, and how the recorder handles them.

use std::sync::Arc;
use std::time::Duration;

use atoll_api::Backoff;
use atoll_history::{
    Filter, PostgresStore, RecordState, Recorder, RecorderOptions, Store, StoreError,
};
use jiff::Timestamp;
use sqlx::{Connection, Executor};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::database::Database;
use crate::support::{ids, record, shares};

async fn refused_with(database: &Database, store: &PostgresStore, sqlstate: &str) -> StoreError {
    let trigger = format!(
        "CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE EXCEPTION 'as told' USING ERRCODE = '{sqlstate}'; END $$; \
         CREATE OR REPLACE TRIGGER fail BEFORE INSERT ON unconfirmed FOR EACH STATEMENT EXECUTE FUNCTION fail();"
    );
    database.run(&trigger).await;
    let mut withdrawn = record("w", 1, "web", 10);
    withdrawn.withdrawal = Some(atoll_history::Withdrawal {
        clusters: vec!["a".into()],
        unconfirmed: vec!["a".into()],
    });
    store.insert(&[withdrawn]).await.unwrap_err()
}

#[tokio::test]
async fn what_may_get_better_is_tried_again_and_what_will_not_is_refused() {
    let Some(database) = Database::make("classes").await else { return };
    let store = PostgresStore::new(&database.url).unwrap();
    store.insert(&[record("one", 1, "web", 10)]).await.unwrap();
    for (sqlstate, transient) in [
        ("53100", true),  // disk full
        ("25006", true),  // read-only
        ("57014", true),  // statement timeout
        ("57P01", true),  // restarting
        ("40P01", true),  // deadlock
        ("42501", true),  // missing permission
        ("23514", true),  // no partition
        ("22P05", false), // a character that text cannot hold
        ("54000", false), // too large
    ] {
        let error = refused_with(&database, &store, sqlstate).await;
        assert_eq!(error.is_transient(), transient, "{sqlstate}: {error:?}");
    }
    // A failed batch leaves no rows.
    let all = store.page(&Filter::default(), 10, None).await.unwrap();
    assert_eq!(ids(&all.rows), ["one"]);
    // A real rejection: NUL cannot be stored as text.
    let mut nul = record("nul", 1, "web", 11);
    nul.reason = Some("a\0b".to_owned());
    assert!(!store.insert(&[nul]).await.unwrap_err().is_transient());
    store.close().await;
    database.drop().await;
}

#[tokio::test]
async fn a_read_only_database_and_cut_connections_delay_rows() {
    let Some(database) = Database::make("read_only").await else { return };
    let store = Arc::new(PostgresStore::new(&database.url).unwrap());
    store.insert(&[record("one", 1, "web", 10)]).await.unwrap();
    let set = |value: &str| {
        format!("ALTER DATABASE {} SET default_transaction_read_only = {value}", database.name())
    };
    database.run(&set("on")).await;
    database.cut_connections().await;
    let retry = Backoff { first: Duration::from_millis(5), ..RecorderOptions::default().retry };
    let options = RecorderOptions { retry, ..RecorderOptions::default() };
    let (recorder, writer) = Recorder::new(store.clone(), options);
    let token = CancellationToken::new();
    let writing = tokio::spawn(writer.run(token.clone()));
    let mut receipt = recorder.record(record("two", 1, "web", 11)).unwrap();
    let mut progress = recorder.progress();
    let limit = Duration::from_secs(60);
    let failing = progress.wait_for(|progress| {
        progress.failing.as_ref().is_some_and(|why| why.contains("read-only"))
    });
    tokio::time::timeout(limit, failing).await.unwrap().unwrap();
    assert_eq!(receipt.state(), RecordState::Queued);
    let mut back = database.connect().await;
    back.execute("SET default_transaction_read_only = off").await.unwrap();
    back.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(set("off")))).await.unwrap();
    back.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    .await
    .unwrap();
    let settled = tokio::time::timeout(limit, receipt.settled()).await.unwrap();
    assert_eq!(settled, RecordState::Recorded);
    token.cancel();
    assert_eq!(writing.await.unwrap().left, 0);
    let all = store.page(&Filter::default(), 10, None).await.unwrap();
    assert_eq!(ids(&all.rows), ["two", "one"]);
    back.close().await.unwrap();
    store.close().await;
    database.drop().await;
}

#[tokio::test]
async fn a_stuck_database_is_given_up_in_time() {
    let Some(database) = Database::make("stuck").await else { return };
    let store = PostgresStore::within(&database.url, Duration::from_secs(1)).unwrap();
    store.insert(&[record("one", 1, "web", 10)]).await.unwrap();
    let mut other = database.connect().await;
    other.execute("BEGIN; LOCK TABLE decisions").await.unwrap();
    for error in [
        store.insert(&[record("two", 1, "web", 11)]).await.unwrap_err(),
        store.page(&Filter::default(), 1, None).await.unwrap_err(),
    ] {
        assert!(error.is_transient(), "{error:?}");
    }
    other.execute("ROLLBACK").await.unwrap();
    store.insert(&[record("two", 1, "web", 11)]).await.unwrap();
    assert_eq!(
        store.last().await.unwrap(),
        store.tail(&Filter::default(), 0, 9).await.unwrap()[1].seq
    );
    store.close().await;
    database.drop().await;
}

/// An aborted copy leaves responses behind, which the next one must not read as its own.
#[tokio::test]
async fn a_batch_that_is_given_up_half_way_leaves_nothing_behind() {
    let Some(database) = Database::make("given_up").await else { return };
    let limit = Duration::from_millis(900);
    let store = PostgresStore::within(&database.url, limit).unwrap();
    let made = |id: &str| {
        let mut made = record(id, 1, "web", 10);
        made.after = shares(&[("a", 1)]);
        made
    };
    store.insert(&[made("one")]).await.unwrap();
    // Each statement finishes before the server's limit, both together exceed ours.
    let slow = |table: &str| {
        format!(
            "CREATE OR REPLACE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN PERFORM pg_sleep(0.46); RETURN NULL; END $$; \
             CREATE TRIGGER slow AFTER INSERT ON {table} FOR EACH STATEMENT EXECUTE FUNCTION slow();"
        )
    };
    database.run(&(slow("decisions") + &slow("changes"))).await;
    let error = store.insert(&[made("two")]).await.unwrap_err();
    assert!(matches!(error, StoreError::TimedOut { .. }), "{error:?}");
    database.run("DROP TRIGGER slow ON decisions; DROP TRIGGER slow ON changes").await;
    // Returned once, so that recently acknowledged records are written again first.
    let error = store.insert(&[made("two")]).await.unwrap_err();
    assert!(matches!(error, StoreError::Reconnected { .. }), "{error:?}");
    for id in ["two", "three", "four"] {
        store.insert(&[made(id)]).await.unwrap();
    }
    let all = store.page(&Filter::default(), 10, None).await.unwrap();
    assert_eq!(ids(&all.rows), ["four", "three", "two", "one"]);
    store.close().await;
    database.drop().await;
}

#[tokio::test]
async fn a_database_that_is_away_at_the_start_is_migrated_when_it_is_there() {
    let Some(database) = Database::make("late").await else { return };
    let (base, query) = database.url.split_once('?').unwrap();
    let elsewhere = format!("{base}_later?{query}");
    let store = PostgresStore::new(&elsewhere).unwrap();
    assert!(store.prepare(Timestamp::UNIX_EPOCH).await.unwrap_err().is_transient());
    assert!(store.insert(&[record("one", 1, "web", 10)]).await.unwrap_err().is_transient());
    database.run(&format!("CREATE DATABASE {}_later", database.name())).await;
    store.insert(&[record("one", 1, "web", 10)]).await.unwrap();
    assert_eq!(store.last().await.unwrap(), 1);
    store.close().await;
    database.run(&format!("DROP DATABASE {}_later", database.name())).await;
    database.drop().await;
}

#[tokio::test]
async fn two_writers_that_start_together_migrate_once_and_number_rows_in_the_order_of_commits() {
    let Some(database) = Database::make("two").await else { return };
    // With any default isolation, a writer sees what was committed before its turn.
    let isolation = format!(
        "ALTER DATABASE {} SET default_transaction_isolation = 'serializable'",
        database.name()
    );
    database.run(&isolation).await;
    let stores: Vec<_> =
        (0..2).map(|_| Arc::new(PostgresStore::new(&database.url).unwrap())).collect();
    let batch = |writer: u32, n: u32| -> Vec<_> {
        let one = |i| {
            let mut record = record(&format!("{writer}-{n}-{i}"), writer, "web", i64::from(n));
            record.after = shares(&[("a", i64::from(i))]);
            record
        };
        (0..20).map(one).collect()
    };
    let writing: Vec<_> = (0..2_u32)
        .zip(stores.iter().cloned())
        .map(|(writer, store)| {
            let batches: Vec<_> = (0..20).map(|n| batch(writer, n)).collect();
            tokio::spawn(async move {
                for batch in batches {
                    store.insert(&batch).await.unwrap();
                }
            })
        })
        .collect();
    // A concurrent follower must never find rows out of order.
    let (mut seen, mut after) = (0, 0);
    let limit = tokio::time::Instant::now() + Duration::from_secs(60);
    while seen < 800 {
        assert!(tokio::time::Instant::now() < limit, "{seen} of 800 rows seen");
        let rows = match stores[0].tail(&Filter::default(), after, 50).await {
            Ok(rows) => rows,
            // No table yet.
            Err(error) if seen == 0 && error.is_transient() => Vec::new(),
            Err(error) => panic!("{error:?}"),
        };
        after = rows.last().map_or(after, |row| row.seq);
        seen += rows.len();
    }
    for writing in writing {
        writing.await.unwrap();
    }
    assert_eq!(stores[1].last().await.unwrap(), after);
    for store in stores {
        store.close().await;
    }
    database.drop().await;
}

#[tokio::test]
async fn partitions_are_weeks_and_made_ahead() {
    let Some(database) = Database::make("weeks").await else { return };
    let store = PostgresStore::new(&database.url).unwrap();
    store.prepare("2026-11-20T12:00:00Z".parse().unwrap()).await.unwrap();
    let mut connection = database.connect().await;
    let parts: Vec<String> = sqlx::query_scalar(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'decisions'::regclass ORDER BY 1",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    let weeks = ["20261116", "20261123", "20261130", "20261207", "20261214"];
    let mut expected = weeks.map(|week| format!("decisions_{week}")).to_vec();
    expected.push("decisions_kept".to_owned());
    assert_eq!(parts, expected);
    // The last second of a week and the first of the next are in different partitions.
    let (last, first) = ("2026-11-22T23:59:59Z", "2026-11-23T00:00:00Z");
    let at = |time: &str| time.parse::<Timestamp>().unwrap().as_second();
    store.insert(&[record("a", 1, "w", at(last)), record("b", 1, "w", at(first))]).await.unwrap();
    let part: String =
        sqlx::query_scalar("SELECT tableoid::regclass::text FROM decisions WHERE id = 'a'")
            .fetch_one(&mut connection)
            .await
            .unwrap();
    assert_eq!(part, "decisions_20261116");
    connection.close().await.unwrap();
    store.close().await;
    database.drop().await;
}

#[tokio::test]
async fn over_a_network_a_server_without_tls_is_not_trusted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // Like a server built without TLS: it answers the TLS request with N.
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = [0; 8];
        tokio::io::AsyncReadExt::read_exact(&mut stream, &mut asked).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"N").await.unwrap();
        let mut rest = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest).await.unwrap();
        rest
    });
    let store = PostgresStore::new(&format!("postgres://me:secret@127.0.0.1:{port}/h")).unwrap();
    let error = store.prepare(Timestamp::UNIX_EPOCH).await.unwrap_err();
    let text = format!("{error:?} {error}");
    assert!(text.contains("TLS") && !text.contains("secret"), "{text}");
    assert_eq!(server.await.unwrap(), b"", "nothing was said in the clear");
    let bad = PostgresStore::new("postgres://me:secret@host:port/h").unwrap_err();
    assert!(!format!("{bad:?}").contains("secret"), "{bad:?}");
}
