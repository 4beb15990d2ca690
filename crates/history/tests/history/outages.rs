//! A real PostgreSQL that stops, crashes, fills up, slows down and loses data, under load. In every case: exactly one
//! row for every decision, each after its parent, and deciding never waits.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use atoll_api::{Backoff, DecisionId};
use atoll_history::{
    Detail, Filter, PostgresStore, Receipt, Record, RecordState, Recorder, RecorderOptions, Store,
};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::server::Server;
use crate::support::record;

/// Longest wait for any condition.
const LIMIT: Duration = Duration::from_secs(120);
const BINDINGS: u32 = 10;

/// Decides continuously, like a controller.
struct Load {
    recorder: Recorder,
    store: Arc<PostgresStore>,
    receipts: Vec<Receipt>,
    records: Vec<Record>,
    detail: Option<Detail>,
    writing: JoinHandle<atoll_history::Drained>,
    token: CancellationToken,
}

impl Load {
    fn on(server: &Server) -> Self {
        let store = PostgresStore::within(&server.url(), Duration::from_secs(2)).unwrap();
        let store = Arc::new(store);
        let options = RecorderOptions {
            retry: Backoff { first: Duration::from_millis(10), most: Duration::from_millis(100) },
            batch: 50,
            ..RecorderOptions::default()
        };
        let (recorder, writer) = Recorder::new(store.clone(), options);
        let token = CancellationToken::new();
        let writing = tokio::spawn(writer.run(token.clone()));
        let (receipts, records) = (Vec::new(), Vec::new());
        Self { recorder, store, receipts, records, detail: None, writing, token }
    }

    /// Makes `rounds` decisions for every binding. Must never wait: that is what the tests show.
    fn decide(&mut self, rounds: usize) {
        for _ in 0..rounds {
            let n = self.records.len() / BINDINGS as usize;
            for binding in 0..BINDINGS {
                let mut made = record(&format!("{binding}-{n:05}"), binding, "web", 1_790_000_000);
                made.record.parent = n.checked_sub(1).map(|n| format!("{binding}-{n:05}").into());
                made.detail = self.detail.clone();
                self.receipts.push(self.recorder.record(made.clone()).unwrap());
                self.records.push(made);
            }
        }
    }

    async fn all_recorded(&mut self) {
        for receipt in &mut self.receipts {
            let state = tokio::time::timeout(LIMIT, receipt.settled()).await.unwrap();
            assert_eq!(state, RecordState::Recorded);
        }
    }

    async fn until_failing(&self, why: &[&str]) {
        let mut progress = self.recorder.progress();
        let failing = progress.wait_for(|progress| {
            let failing = progress.failing.as_deref().unwrap_or_default();
            why.iter().any(|why| failing.contains(why))
        });
        let seen = tokio::time::timeout(LIMIT, failing).await;
        if seen.is_err() {
            panic!("{why:?} is not said: {:?}", *self.recorder.progress().borrow());
        }
    }

    /// All rows are present once and in order, the backlog is empty, and no failure is reported.
    async fn end(mut self) {
        self.all_recorded().await;
        let rows = self.store.tail(&Filter::default(), 0, 1_000_000).await.unwrap();
        let mut last: BTreeMap<String, DecisionId> = BTreeMap::new();
        for row in &rows {
            let found = row.entry.record().unwrap();
            let before = last.insert(found.binding.uid.to_string(), found.record.id.clone());
            assert_eq!(before, found.record.parent, "row {} of {}", row.seq, found.record.id);
        }
        assert_eq!(rows.len(), self.records.len());
        let progress = self.recorder.progress().borrow().clone();
        assert_eq!((progress.queued, progress.refused, progress.oldest), (0, 0, None));
        assert_eq!(progress.failing, None);
        self.token.cancel();
        assert_eq!(self.writing.await.unwrap().left, 0);
        self.store.close().await;
    }
}

#[tokio::test]
async fn a_server_that_stops_and_one_that_dies_come_back_to_every_row() {
    let Some(mut server) = Server::start("") else { return };
    let mut load = Load::on(&server);
    load.decide(20);
    load.all_recorded().await;
    load.decide(50);
    server.down();
    load.decide(50);
    load.until_failing(&["connect", "No such file", "shutting down", "terminat", "closed"]).await;
    let progress = load.recorder.progress().borrow().clone();
    assert!(progress.queued >= 500 && progress.oldest.is_some(), "{progress:?}");
    server.up();
    load.all_recorded().await;
    // During a write.
    load.decide(200);
    server.die();
    load.decide(50);
    server.up();
    load.end().await;
}

#[tokio::test]
async fn a_server_that_is_killed_again_and_again_in_mid_batch_gets_every_row_once() {
    let Some(mut server) = Server::start("") else { return };
    let mut load = Load::on(&server);
    load.decide(1);
    load.all_recorded().await;
    // Make a batch slow enough to be interrupted.
    let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS \
                $$ BEGIN PERFORM pg_sleep(0.05); RETURN NULL; END $$; \
                CREATE TRIGGER slow AFTER INSERT ON decisions FOR EACH STATEMENT EXECUTE FUNCTION slow();";
    let mut admin = PgConnection::connect(&server.url()).await.unwrap();
    admin.execute(sqlx::raw_sql(slow)).await.unwrap();
    drop(admin);
    for _ in 0..4 {
        load.decide(30);
        let recorded = load.recorder.progress().borrow().recorded;
        let mut progress = load.recorder.progress();
        // Once one batch is written, the next is in progress.
        let moved = progress.wait_for(|progress| progress.recorded > recorded);
        tokio::time::timeout(LIMIT, moved).await.unwrap().unwrap();
        server.die();
        server.up();
    }
    load.end().await;
}

#[tokio::test]
async fn what_a_failover_lost_is_written_again() {
    let Some(mut server) = Server::start("") else { return };
    let mut load = Load::on(&server);
    load.decide(10);
    load.all_recorded().await;
    server.down();
    server.copy();
    server.up();
    // Acknowledged, and then lost with the server: the replica does not have them.
    load.decide(30);
    load.all_recorded().await;
    server.die();
    server.fail_over();
    server.up();
    load.decide(10);
    load.end().await;
}

#[tokio::test]
async fn a_server_that_does_not_sync_its_log_and_dies_loses_nothing_for_good() {
    let Some(mut server) = Server::start("-c synchronous_commit=off -c wal_writer_delay=10s")
    else {
        return;
    };
    let mut load = Load::on(&server);
    load.decide(10);
    load.all_recorded().await;
    server.die();
    server.up();
    load.decide(1);
    load.end().await;
}

/// The failure comes from the operating system, in the middle of a page, not from a trigger.
#[tokio::test]
async fn a_disk_without_room_delays_rows_until_there_is_some() {
    let Some(mut server) = Server::start("") else { return };
    server.down();
    // A segment of the log needs 16 MiB.
    server.set_room(Some((18 << 20) + 4096));
    server.up();
    let mut load = Load::on(&server);
    load.decide(10);
    load.all_recorded().await;
    load.detail = Some(Detail::from_bytes(vec![7; 10_000]));
    load.decide(250);
    load.until_failing(&["could not extend file"]).await;
    // Existing rows can be read, and deciding continues.
    assert!(load.store.page(&Filter::default(), 10, None).await.unwrap().rows.len() == 10);
    load.decide(10);
    server.down();
    server.set_room(None);
    server.up();
    load.end().await;
}

/// A disk that is really full, if the machine allows a test to mount one; otherwise the file size limit above stands
/// for it.
#[tokio::test]
async fn a_full_disk_delays_rows_until_there_is_room() {
    let Some(mut server) = Server::start("") else { return };
    if !server.set_disk(16) {
        let note = "LEFT OUT a full disk: mounting is not allowed here, a limit on file size stands for it\n";
        std::io::stderr().write_all(note.as_bytes()).unwrap();
        return;
    }
    server.down();
    server.up();
    let mut admin = PgConnection::connect(&server.url()).await.unwrap();
    let small = format!("CREATE TABLESPACE small LOCATION '{}/small'", server.path().display());
    admin.execute(sqlx::raw_sql(AssertSqlSafe(small))).await.unwrap();
    admin.execute("ALTER DATABASE postgres SET default_tablespace = small").await.unwrap();
    let mut load = Load::on(&server);
    load.decide(10);
    load.all_recorded().await;
    load.detail = Some(Detail::from_bytes(vec![7; 10_000]));
    load.decide(250);
    load.until_failing(&["No space left on device"]).await;
    assert!(load.store.page(&Filter::default(), 10, None).await.unwrap().rows.len() == 10);
    load.decide(10);
    server.grow_disk(256);
    load.end().await;
}

#[tokio::test]
async fn a_disk_that_is_said_to_be_full_and_a_read_only_server_delay_rows() {
    let Some(server) = Server::start("") else { return };
    let mut load = Load::on(&server);
    load.decide(10);
    load.all_recorded().await;
    let mut admin = PgConnection::connect(&server.url()).await.unwrap();
    let full = "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS \
                $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' \
                USING ERRCODE = 'disk_full'; END $$; \
                CREATE TRIGGER full_disk BEFORE INSERT ON decisions FOR EACH ROW EXECUTE FUNCTION full_disk();";
    admin.execute(sqlx::raw_sql(full)).await.unwrap();
    load.decide(30);
    load.until_failing(&["No space left"]).await;
    admin.execute("DROP TRIGGER full_disk ON decisions").await.unwrap();
    load.all_recorded().await;

    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE application_name = 'atoll' AND pid <> pg_backend_pid()";
    admin.execute("ALTER DATABASE postgres SET default_transaction_read_only = on").await.unwrap();
    admin.execute(cut).await.unwrap();
    load.decide(30);
    load.until_failing(&["read-only"]).await;
    admin.execute("ALTER DATABASE postgres SET default_transaction_read_only = off").await.unwrap();
    admin.execute(cut).await.unwrap();
    admin.close().await.unwrap();
    load.end().await;
}

#[tokio::test]
async fn a_server_that_is_a_hundred_times_slower_falls_behind_and_catches_up() {
    let Some(server) = Server::start("") else { return };
    let mut load = Load::on(&server);
    load.decide(10);
    load.all_recorded().await;
    let mut admin = PgConnection::connect(&server.url()).await.unwrap();
    // Without this a batch takes some 3 ms.
    let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS \
                $$ BEGIN PERFORM pg_sleep(0.3); RETURN NULL; END $$; \
                CREATE TRIGGER slow AFTER INSERT ON decisions FOR EACH STATEMENT EXECUTE FUNCTION slow();";
    admin.execute(sqlx::raw_sql(slow)).await.unwrap();
    load.decide(50);
    let progress = load.recorder.progress().borrow().clone();
    assert!(progress.queued >= 400, "{progress:?}");
    admin.execute("DROP TRIGGER slow ON decisions").await.unwrap();
    admin.close().await.unwrap();
    load.end().await;
}
