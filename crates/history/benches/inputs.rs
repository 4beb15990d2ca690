//! What it costs to record what decisions read: 10,000 decisions over a day with 50 clusters that report every minute, with
//! and without their inputs in the same run. `cargo xtask bench inputs [-- DECISIONS]`.
//!
//! Bytes are those of the database's files; time is CPU of this process, which decides, encodes and, with SQLite, is the
//! database. PostgreSQL needs `ATOLL_TEST_POSTGRES`, which `cargo xtask bench inputs` sets.
#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

#[allow(dead_code, reason = "tests use the rest")]
#[path = "../tests/history/federation.rs"]
mod federation;
#[allow(dead_code, reason = "tests use the rest")]
#[path = "../tests/history/support.rs"]
mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use atoll_history::{
    PostgresStore, Receipt, RecordState, Recorder, RecorderOptions, SqliteStore, Store,
};
use jiff::Timestamp;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tokio_util::sync::CancellationToken;

use crate::federation::Federation;

const DECISIONS: i64 = 10_000;
const DAY: i64 = 24 * 60 * 60 * 1000;
const MINUTE: i64 = 60_000;
const MEMBERS: usize = 50;
/// Decisions between two waits for the database.
const BATCH: i64 = 100;
/// Clock ticks of `/proc/self/stat` in a second, on every Linux of today.
const TICKS: f64 = 100.0;

/// What a day cost.
#[derive(Clone, Copy)]
struct Cost {
    bytes: u64,
    /// CPU of the process, without what members' reports cost.
    cpu: f64,
    /// Time of the thread that decides: decision and hand-over.
    deciding: Duration,
}

/// CPU time of this process, in seconds.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit(')').next().unwrap().split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum();
    ticks as f64 / TICKS
}

/// Plays a day. Returns CPU time and the time of the thread that decides.
async fn a_day(decisions: i64, store: Arc<dyn Store>, with_inputs: bool) -> (f64, Duration) {
    let mut federation = Federation::new(MEMBERS, 1);
    let token = CancellationToken::new();
    let (recorder, writer) = Recorder::new(store, RecorderOptions::default());
    let writing = tokio::spawn(writer.run(token.clone()));
    // Each member reports every minute, at a time of its own.
    let mut next: Vec<i64> = (0..MEMBERS as i64).map(|m| m * MINUTE / MEMBERS as i64).collect();
    let (mut elapsed, mut deciding, mut reporting) = (0, Duration::ZERO, Duration::ZERO);
    let (began, mut receipts) = (cpu(), Vec::<Receipt>::new());
    for n in 1..=decisions {
        let at = n * DAY / DECISIONS;
        let start = Instant::now();
        federation.run_what_was_decided();
        for (member, next) in next.iter_mut().enumerate() {
            while *next <= at {
                federation.report(member);
                *next += MINUTE;
            }
        }
        federation.wait(at - elapsed);
        elapsed = at;
        reporting += start.elapsed();
        let start = Instant::now();
        let (record, inputs) = federation.decide_with(with_inputs);
        receipts.push(match inputs {
            Some(inputs) => recorder.record_with(record, Some(Box::new(inputs))).unwrap(),
            None => recorder.record(record).unwrap(),
        });
        deciding += start.elapsed();
        if n % BATCH == 0 || n == decisions {
            for mut receipt in receipts.drain(..) {
                assert_eq!(receipt.settled().await, RecordState::Recorded);
            }
        }
    }
    assert_eq!(recorder.progress().borrow().inputs_dropped, 0);
    drop(recorder);
    assert_eq!(writing.await.unwrap().left, 0);
    (cpu() - began - reporting.as_secs_f64(), deciding)
}

async fn sqlite(folder: &Path, decisions: i64, with_inputs: bool) -> Cost {
    let path = folder.join(format!("{with_inputs}.db"));
    let store = Arc::new(SqliteStore::open(&path).await.unwrap());
    let (cpu, deciding) = a_day(decisions, store.clone(), with_inputs).await;
    store.close().await;
    Cost { bytes: std::fs::metadata(&path).unwrap().len(), cpu, deciding }
}

async fn postgres(server: &str, decisions: i64, with_inputs: bool) -> Cost {
    let mut admin = PgConnection::connect(server).await.unwrap();
    let name = format!("bench_inputs_{}_{with_inputs}", std::process::id());
    let mut run = async |statement: String| {
        admin.execute(sqlx::raw_sql(AssertSqlSafe(statement))).await.unwrap();
    };
    run(format!("CREATE DATABASE {name}")).await;
    let url = format!("{}/{name}", server.rsplit_once('/').unwrap().0);
    let store = Arc::new(PostgresStore::new(&url).unwrap());
    store.prepare(Timestamp::now()).await.unwrap();
    let (cpu, deciding) = a_day(decisions, store.clone(), with_inputs).await;
    let mut reader = PgConnection::connect(&url).await.unwrap();
    let size = "SELECT pg_database_size(current_database())";
    let bytes: i64 = sqlx::query_scalar(size).fetch_one(&mut reader).await.unwrap();
    reader.close().await.unwrap();
    store.close().await;
    run(format!("DROP DATABASE {name} WITH (FORCE)")).await;
    Cost { bytes: u64::try_from(bytes).unwrap(), cpu, deciding }
}

fn say(name: &str, decisions: i64, with: Cost, without: Cost) {
    let count = decisions as f64;
    let (inputs, all) = (with.bytes.saturating_sub(without.bytes), with.bytes);
    let each = |seconds: f64| seconds * 1e6 / count;
    let (deciding, bare) = (with.deciding.as_secs_f64(), without.deciding.as_secs_f64());
    println!(
        "{name:<11} {:>10.0} {:>10.0} {:>10.1} {:>10.1} {:>7.2} {:>10.1} {:>10.1} {:>7.2}",
        inputs as f64 / count,
        all as f64 / count,
        each(bare),
        each(deciding),
        deciding / bare,
        each(without.cpu),
        each(with.cpu),
        with.cpu / without.cpu,
    );
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let given: Vec<i64> = arguments.map(|argument| argument.parse().unwrap()).collect();
    let decisions = given.first().copied().unwrap_or(DECISIONS);
    println!(
        "{decisions} decisions at {DECISIONS} a day, {MEMBERS} clusters that report every minute; bytes and us of one decision"
    );
    println!(
        "{:<11} {:>10} {:>10} {:>10} {:>10} {:>7} {:>10} {:>10} {:>7}",
        "", "of inputs", "of a row", "decide", "+ inputs", "ratio", "CPU", "+ inputs", "ratio"
    );
    let folder = tempfile::tempdir().unwrap();
    let without = sqlite(folder.path(), decisions, false).await;
    let with = sqlite(folder.path(), decisions, true).await;
    say("SQLite", decisions, with, without);
    match std::env::var("ATOLL_TEST_POSTGRES") {
        Ok(server) => {
            let without = postgres(&server, decisions, false).await;
            let with = postgres(&server, decisions, true).await;
            say("PostgreSQL", decisions, with, without);
        }
        Err(_) => println!("PostgreSQL: left out, ATOLL_TEST_POSTGRES is not set"),
    }
}
