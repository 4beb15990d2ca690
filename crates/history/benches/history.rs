//! Measures how fast decisions are recorded, how far history lags behind, and the latency of queries among many rows.
//!
//! The database first gets `--rows N` (default 1,000,000) decisions over 90 days; then `--ingest N` (default 200,000)
//! go through the recorder, in addition to those for the lag; `--members N` (default 100); `--only sqlite|postgres`;
//! `--parts` selects from `questions,queries,ingest,sweep`, separated by commas (default all). PostgreSQL needs
//! `ATOLL_TEST_POSTGRES`, which `cargo xtask bench history` sets; its database is created and dropped. `--keep FOLDER`
//! keeps the filled data for the next run: the file in this folder, and the database `bench_history` of the server,
//! which must then be your own.
#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use atoll_api::binding::{DecisionRecord, Mode, ObjectReference, Outcome, TargetCluster, Trigger};
use atoll_history::{
    BindingRef, Detail, Filter, PostgresStore, QueueFull, RETENTION, Record, Recorder,
    RecorderOptions, Scope, SqliteStore, Store,
};
use jiff::Timestamp;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqliteConnection};
use tokio_util::sync::CancellationToken;

/// Decisions per binding in the initial rows.
const PER_BINDING: u64 = 100;
const QUESTIONS: usize = 400;
const DAYS: u64 = 90;

struct Options {
    rows: u64,
    ingest: u64,
    members: u64,
    only: Option<String>,
    parts: Option<String>,
    keep: Option<PathBuf>,
}

impl Options {
    fn part(&self, name: &str) -> bool {
        self.parts.as_deref().is_none_or(|parts| parts.split(',').any(|part| part == name))
    }
}

fn options() -> Options {
    let (only, parts, keep) = (None, None, None);
    let mut options = Options { rows: 1_000_000, ingest: 200_000, members: 100, only, parts, keep };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|n| n.parse().ok()).expect("a number follows");
        match arg.as_str() {
            "--rows" => options.rows = number(),
            "--ingest" => options.ingest = number(),
            "--members" => options.members = number(),
            "--only" => options.only = args.next(),
            "--parts" => options.parts = args.next(),
            "--keep" => options.keep = args.next().map(PathBuf::from),
            // Passed by cargo.
            "--bench" => {}
            other => panic!("unknown option {other}"),
        }
    }
    options
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let options = options();
    let wanted = |name: &str| options.only.as_deref().is_none_or(|only| only == name);
    if wanted("sqlite") {
        sqlite(&options).await;
    }
    if wanted("postgres") {
        match std::env::var("ATOLL_TEST_POSTGRES") {
            Ok(server) => postgres(&server, &options).await,
            Err(_) => println!("PostgreSQL: left out, ATOLL_TEST_POSTGRES is not set"),
        }
    }
}

async fn sqlite(options: &Options) {
    let folder = tempfile::tempdir().unwrap();
    let path = options.keep.as_deref().unwrap_or(folder.path()).join("history.db");
    let store = Arc::new(SqliteStore::open(&path).await.unwrap());
    if options.rows > 0 {
        if store.last().await.unwrap() == 0 {
            fill_sqlite(&path, options).await;
        }
        write_down("SQLite", &*store).await;
        if options.part("questions") {
            questions("SQLite", &*store, options).await;
        }
        let mut reader = SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
        for query in queries("sqlite").into_iter().filter(|_| options.part("queries")) {
            let began = Instant::now();
            let rows = reader.fetch_all(query).await.unwrap().len();
            say_query("SQLite", query, began.elapsed(), rows);
        }
    }
    if options.part("ingest") {
        ingest("SQLite", store.clone(), options).await;
    }
    if options.rows > 0 && options.part("sweep") {
        sweep("SQLite", &*store).await;
    }
    store.close().await;
}

async fn postgres(server: &str, options: &Options) {
    let kept = options.keep.is_some();
    let name =
        if kept { "bench_history".to_owned() } else { format!("bench_{}", std::process::id()) };
    let mut admin = PgConnection::connect(server).await.unwrap();
    let there: Option<i32> = sqlx::query_scalar("SELECT 1 FROM pg_database WHERE datname = $1")
        .bind(&name)
        .fetch_optional(&mut admin)
        .await
        .unwrap();
    if there.is_none() {
        let create = format!("CREATE DATABASE {name}");
        admin.execute(sqlx::raw_sql(AssertSqlSafe(create))).await.unwrap();
    }
    let url = format!("{}/{name}", server.rsplit_once('/').unwrap().0);
    let store = Arc::new(PostgresStore::new(&url).unwrap());
    store.prepare(Timestamp::now()).await.unwrap();
    if options.rows > 0 {
        let mut reader = PgConnection::connect(&url).await.unwrap();
        if store.last().await.unwrap() == 0 {
            fill_postgres(&url, options).await;
        }
        write_down("PostgreSQL", &*store).await;
        reader.execute("VACUUM ANALYZE standing_shares").await.unwrap();
        if options.part("questions") {
            questions("PostgreSQL", &*store, options).await;
        }
        for query in queries("sql").into_iter().filter(|_| options.part("queries")) {
            let began = Instant::now();
            let rows = reader.fetch_all(query).await.unwrap().len();
            say_query("PostgreSQL", query, began.elapsed(), rows);
        }
    }
    if options.part("ingest") {
        ingest("PostgreSQL", store.clone(), options).await;
    }
    if options.rows > 0 && options.part("sweep") {
        sweep("PostgreSQL", &*store).await;
    }
    store.close().await;
    if !kept {
        let drop = format!("DROP DATABASE {name} WITH (FORCE)");
        admin.execute(sqlx::raw_sql(AssertSqlSafe(drop))).await.unwrap();
    }
}

/// The maintenance that a leader would have done each hour.
async fn write_down(name: &str, store: &dyn Store) {
    let began = Instant::now();
    store.maintain(Timestamp::now(), RETENTION + Duration::from_hours(48)).await.unwrap();
    println!(
        "{name}: writing down who stood where, for 90 days: {:.1} s",
        began.elapsed().as_secs_f64()
    );
}

/// The queries of one dialect in the documentation.
fn queries(language: &str) -> Vec<&'static str> {
    let page = include_str!("../../../docs/history-queries.md");
    let blocks = page.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    blocks.filter(|(marked, _)| *marked == language).map(|(_, query)| query).collect()
}

fn say_query(name: &str, query: &str, time: Duration, rows: usize) {
    let first = query.lines().find(|line| line.contains("FROM")).unwrap_or_default().trim();
    println!("{name}: query of {rows} rows: {:.0} ms ({first})", ms(time));
}

/// The nth decision, of one of 20,000 bindings; like most, it moves replicas between two clusters.
fn decision(n: u64, members: u64, detail: &Detail) -> Record {
    let (binding, round) = (n % 20_000, n / 20_000);
    let cluster = |k: u64, replicas: i64| TargetCluster {
        name: format!("member-{:04}", (binding + k * 37) % members),
        replicas,
    };
    let shares = |round: u64| {
        let more = i64::from(round.is_multiple_of(2));
        vec![cluster(0, 5 + more), cluster(1, 6 - more), cluster(2, 4)]
    };
    let namespace = Some(format!("team-{}", binding % 100));
    Record {
        record: DecisionRecord {
            id: format!("{:016x}{n:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into(),
            parent: (round > 0).then(|| format!("{:032x}", n - 20_000).into()),
            trigger: Trigger::Scale,
            mode: Mode::Steady,
            outcome: Outcome::Placed,
            reason: None,
            full_clusters: Vec::new(),
            desired: 15,
            pending: Vec::new(),
            affinity_name: None,
            at: Timestamp::now().into(),
            term: 1,
        },
        binding: BindingRef {
            kind: "ResourceBinding".to_owned(),
            namespace: namespace.clone(),
            name: format!("web-{binding}-deployment"),
            uid: format!("{binding:032x}").into(),
        },
        workload: ObjectReference {
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            namespace,
            name: format!("web-{binding}"),
            uid: Some(format!("{binding:032x}")),
        },
        before: Some(shares(round + 1)),
        after: shares(round),
        reason: Some("15 wanted, 14 placed".to_owned()),
        gap: None,
        withdrawal: None,
        provenance: None,
        rejections: Some([("TaintToleration".to_owned(), 3)].into()),
        detail: Some(detail.clone()),
        inputs: None,
    }
}

/// Through the recorder, like the controller: first as fast as it accepts them, then at a steady pace for the lag.
async fn ingest(name: &str, store: Arc<dyn Store>, options: &Options) {
    // As long as the detail of a decision over a hundred clusters.
    let verdicts: Vec<_> = (0..100)
        .map(|n| json!({"cluster": format!("member-{n}"), "score": n * 7919 % 100}))
        .collect();
    let detail = Detail::encode(&json!({"verdicts": verdicts}));
    let (recorder, writer) = Recorder::new(store, RecorderOptions::default());
    let token = CancellationToken::new();
    let writing = tokio::spawn(writer.run(token.clone()));
    // Created in advance: the benchmark measures writing.
    let records: Vec<Record> =
        (0..options.ingest).map(|n| decision(n, options.members, &detail)).collect();
    let began = Instant::now();
    let mut last = None;
    for mut record in records {
        loop {
            match recorder.record(record.clone()) {
                Ok(receipt) => break last = Some(receipt),
                Err(QueueFull) => {
                    let room = RecorderOptions::default().queue / 2;
                    let mut progress = recorder.progress();
                    progress.wait_for(|progress| progress.queued < room).await.unwrap();
                    record.record.at = Timestamp::now().into();
                }
            }
        }
    }
    last.unwrap().settled().await;
    let seconds = began.elapsed().as_secs_f64();
    // The counters are updated shortly after the receipts.
    let mut progress = recorder.progress();
    let done = progress.wait_for(|progress| progress.recorded == options.ingest).await.unwrap();
    assert_eq!(done.details_dropped, 0);
    drop(done);
    let rate = options.ingest as f64 / seconds;
    println!(
        "{name}: ingest {rate:.0} decisions/s, {:.0} rows/s (detail {} bytes)",
        rate * 3.0,
        detail.as_bytes().len()
    );

    let mut n = options.ingest;
    for pace in [1_000_u64, 5_000, 20_000] {
        let (sender, mut receipts) = tokio::sync::mpsc::unbounded_channel();
        let collector = tokio::spawn(async move {
            let mut lags = Vec::new();
            while let Some((since, receipt)) = receipts.recv().await {
                let (since, mut receipt): (Instant, atoll_history::Receipt) = (since, receipt);
                receipt.settled().await;
                lags.push(since.elapsed());
            }
            lags
        });
        let mut tick = tokio::time::interval(Duration::from_millis(10));
        let mut full = 0;
        for _ in 0..500 {
            tick.tick().await;
            for _ in 0..pace / 100 {
                match recorder.record(decision(n, options.members, &detail)) {
                    Ok(receipt) => sender.send((Instant::now(), receipt)).unwrap(),
                    Err(QueueFull) => full += 1,
                }
                n += 1;
            }
        }
        drop(sender);
        let mut lags = collector.await.unwrap();
        lags.sort_unstable();
        println!(
            "{name}: lag at {pace} decisions/s for 5 s: p50 {:.1} ms, p99 {:.1} ms, longest {:.1} ms{}",
            ms(lags[lags.len() / 2]),
            ms(lags[lags.len() * 99 / 100]),
            ms(lags[lags.len() - 1]),
            if full > 0 { format!(", {full} refused by the full queue") } else { String::new() }
        );
    }
    token.cancel();
    assert_eq!(writing.await.unwrap().left, 0);
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// The initial rows, as one statement per part: `{from}` and `{to}` number decisions; each binding has three clusters,
/// and its decisions move replicas between two of them in turn.
async fn fill_postgres(url: &str, options: &Options) {
    let bindings = (options.rows / PER_BINDING).max(1);
    let mut connection = PgConnection::connect(url).await.unwrap();
    let began = Instant::now();
    let step = DAYS * 86_400_000_000 / options.rows;
    let first = Timestamp::now().as_microsecond() - i64::try_from(DAYS * 86_400_000_000).unwrap();
    let setup = format!("SELECT atoll_make_partitions(to_timestamp({first} / 1000000.0), now());");
    connection.execute(sqlx::raw_sql(AssertSqlSafe(setup))).await.unwrap();
    // Rare checkpoints while filling, which only a superuser may set; indexes are created afterwards.
    for setting in ["SET max_wal_size = '4GB'", "SET checkpoint_timeout = '1h'"] {
        let setting = format!("ALTER SYSTEM {setting}");
        connection.execute(sqlx::raw_sql(AssertSqlSafe(setting))).await.unwrap();
    }
    connection.execute("SELECT pg_reload_conf()").await.unwrap();
    let indexes: Vec<(String, String)> = sqlx::query_as(
        "SELECT c.relname::text, replace(pg_get_indexdef(i.indexrelid), ' ON ONLY ', ' ON ') \
         FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
         WHERE i.indrelid IN ('decisions'::regclass, 'changes'::regclass) AND NOT i.indisprimary",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    for (index, _) in &indexes {
        let drop = format!("DROP INDEX {index}");
        connection.execute(sqlx::raw_sql(AssertSqlSafe(drop))).await.unwrap();
    }
    let half = options.rows / 2;
    tokio::join!(
        fill_part(url, 0..half, first, step, options),
        fill_part(url, half..options.rows, first, step, options)
    );
    sqlx::query("SELECT setval('decisions_seq', $1)")
        .bind(i64::try_from(options.rows).unwrap())
        .execute(&mut connection)
        .await
        .unwrap();
    let (some, others) = indexes.split_at(indexes.len() / 2);
    tokio::join!(make_indexes(url, some), make_indexes(url, others));
    connection.execute(sqlx::raw_sql("VACUUM ANALYZE")).await.unwrap();
    for reset in ["ALTER SYSTEM RESET max_wal_size", "ALTER SYSTEM RESET checkpoint_timeout"] {
        connection.execute(reset).await.unwrap();
    }
    connection.execute("SELECT pg_reload_conf()").await.unwrap();
    let size: i64 = sqlx::query_scalar("SELECT pg_database_size(current_database())")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    println!(
        "PostgreSQL: filled with {} decisions of {bindings} workloads on {} members, {:.1} GB, in {:.0} s",
        options.rows,
        options.members,
        size as f64 / 1e9,
        began.elapsed().as_secs_f64()
    );
}

/// A connection for filling: fast, and not durable.
async fn filling(url: &str) -> PgConnection {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let setup = "SET synchronous_commit = off; SET maintenance_work_mem = '512MB'; \
                 SET max_parallel_maintenance_workers = 0";
    connection.execute(sqlx::raw_sql(setup)).await.unwrap();
    connection
}

async fn make_indexes(url: &str, indexes: &[(String, String)]) {
    let mut connection = filling(url).await;
    for (_, index) in indexes {
        connection.execute(sqlx::raw_sql(AssertSqlSafe(index.clone()))).await.unwrap();
    }
}

async fn fill_part(
    url: &str,
    part: std::ops::Range<u64>,
    first: i64,
    step: u64,
    options: &Options,
) {
    let mut connection = filling(url).await;
    let bindings = (options.rows / PER_BINDING).max(1);
    for from in part.clone().step_by(100_000) {
        let to = (from + 100_000).min(part.end);
        let members = options.members;
        let rows = format!(
            "CREATE TEMP TABLE part AS SELECT i, i + 1 AS seq, i % {bindings} AS b, i / {bindings} AS r,
                 to_timestamp(({first} + i * {step}) / 1000000.0) AS at FROM generate_series({from}::bigint, {to} - 1) AS i;
             INSERT INTO decisions (seq, id, parent, decided_at, trigger_name, mode, outcome, desired, pending, term,
                 binding_kind, namespace, binding_name, binding_uid, workload_group, workload_version, workload_kind,
                 workload_name, workload_uid, before_clusters, after_clusters, reason, rejections, detail)
             SELECT seq, md5(i::text), CASE WHEN r > 0 THEN md5((i - {bindings})::text) END, at, 'Scale', 'Steady', 'Placed',
                 15, '[]', 1, 'ResourceBinding', 'team-' || b % 100, 'web-' || b || '-deployment', md5('b' || b), 'apps',
                 'v1', 'Deployment', 'web-' || b, md5('t' || b), '[]',
                 jsonb_build_array(jsonb_build_object('name', 'member-' || lpad((b % {members})::text, 4, '0'), 'replicas', 5)),
                 '15 wanted, 14 placed', '{{\"TaintToleration\": 3}}', decode(repeat(md5(i::text), 8), 'hex') FROM part;
             INSERT INTO changes (cluster, decided_at, seq, binding_uid, replicas_before, replicas_after, decision, namespace,
                 workload_kind, workload_name)
             SELECT 'member-' || lpad(((b + (r + k) % 3 * 37) % {members})::text, 4, '0'), at, seq, md5('b' || b), 5, 5 + k,
                 md5(i::text), 'team-' || b % 100, 'Deployment', 'web-' || b
             FROM part CROSS JOIN generate_series(0, 1) AS k;
             DROP TABLE part;"
        );
        connection.execute(sqlx::raw_sql(AssertSqlSafe(rows))).await.unwrap();
    }
}

async fn fill_sqlite(path: &Path, options: &Options) {
    let bindings = (options.rows / PER_BINDING).max(1);
    let mut connection = SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
    let began = Instant::now();
    let step = DAYS * 86_400_000_000 / options.rows;
    let first = Timestamp::now().as_microsecond() - i64::try_from(DAYS * 86_400_000_000).unwrap();
    connection.execute("PRAGMA synchronous = OFF; PRAGMA cache_size = -524288").await.unwrap();
    // Indexes are created afterwards.
    let indexes: Vec<(String, String)> = sqlx::query_as(
        "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    for (index, _) in &indexes {
        let drop = format!("DROP INDEX {index}");
        connection.execute(sqlx::raw_sql(AssertSqlSafe(drop))).await.unwrap();
    }
    for from in (0..options.rows).step_by(100_000) {
        let to = (from + 100_000).min(options.rows);
        let members = options.members;
        let rows = format!(
            "BEGIN;
             CREATE TEMP TABLE part AS WITH RECURSIVE n (i) AS (SELECT {from} UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {to})
                 SELECT i, i + 1 AS seq, i % {bindings} AS b, i / {bindings} AS r, {first} + i * {step} AS at FROM n;
             INSERT INTO decisions (seq, id, decided_at, trigger_name, mode, outcome, desired, pending, term,
                 binding_kind, namespace, binding_name, binding_uid, workload_group, workload_version, workload_kind,
                 workload_name, workload_uid, before_clusters, after_clusters, reason, rejections, detail)
             SELECT seq, printf('%032x', i), at, 'Scale', 'Steady', 'Placed', 15, '[]', 1, 'ResourceBinding',
                 'team-' || (b % 100), 'web-' || b || '-deployment', printf('%032d', b), 'apps', 'v1', 'Deployment',
                 'web-' || b, printf('%032d', b), '[]', '[{{\"name\":\"member\",\"replicas\":5}}]', '15 wanted, 14 placed',
                 '{{\"TaintToleration\": 3}}', randomblob(128) FROM part;
             INSERT INTO changes (cluster, decided_at, seq, binding_uid, replicas_before, replicas_after, decision, namespace,
                 workload_kind, workload_name)
             SELECT printf('member-%04d', (b + (r + k) % 3 * 37) % {members}), at, seq, printf('%032d', b), 5, 5 + k,
                 printf('%032x', i), 'team-' || (b % 100), 'Deployment', 'web-' || b
             FROM part CROSS JOIN (SELECT 0 AS k UNION ALL SELECT 1) ORDER BY 1, 2, 3;
             DROP TABLE part;
             COMMIT;"
        );
        connection.execute(sqlx::raw_sql(AssertSqlSafe(rows))).await.unwrap();
    }
    for (_, index) in indexes {
        connection.execute(sqlx::raw_sql(AssertSqlSafe(index))).await.unwrap();
    }
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").await.unwrap();
    let size = std::fs::metadata(path).unwrap().len();
    println!(
        "SQLite: filled with {} decisions of {bindings} workloads on {} members, {:.1} GB, in {:.0} s",
        options.rows,
        options.members,
        size as f64 / 1e9,
        began.elapsed().as_secs_f64()
    );
}

/// Typical user queries, one after the other.
async fn questions(name: &str, store: &dyn Store, options: &Options) {
    let bindings = (options.rows / PER_BINDING).max(1);
    let mut numbers = 0x2545_f491_4f6c_dd1d_u64;
    let mut below = move |limit: u64| {
        numbers ^= numbers << 13;
        numbers ^= numbers >> 7;
        numbers ^= numbers << 17;
        numbers % limit
    };
    let mut ids = Vec::new();
    let mut found = 0;
    let mut times = Vec::new();
    for _ in 0..QUESTIONS {
        let workload = below(bindings);
        let filter = Filter {
            scope: Scope::Namespace(format!("team-{}", workload % 100)),
            workload_group: Some("apps".to_owned()),
            workload_kind: Some("Deployment".to_owned()),
            workload_name: Some(format!("web-{workload}")),
            ..Filter::default()
        };
        let began = Instant::now();
        let page = store.page(&filter, 50, None).await.unwrap();
        times.push(began.elapsed());
        found += page.rows.len();
        ids.push(
            page.rows[usize::try_from(below(page.rows.len() as u64)).unwrap()]
                .entry
                .id()
                .to_owned(),
        );
    }
    say(name, "a workload's last 50", times, found);
    let (mut times, mut found) = (Vec::new(), 0);
    for id in &ids {
        let began = Instant::now();
        found += usize::from(store.get(id).await.unwrap().is_some());
        times.push(began.elapsed());
    }
    say(name, "one decision", times, found);
    let (mut times, mut found) = (Vec::new(), 0);
    for _ in 0..QUESTIONS {
        let cluster = format!("member-{:04}", below(options.members));
        let ago = i64::try_from(below(DAYS * 86_400)).unwrap();
        let at = Timestamp::from_second(Timestamp::now().as_second() - ago).unwrap();
        let began = Instant::now();
        found += store.residents(&cluster, at).await.unwrap().len();
        times.push(began.elapsed());
    }
    say(name, "who was on a member at a time", times, found);
}

fn say(name: &str, question: &str, mut times: Vec<Duration>, found: usize) {
    times.sort_unstable();
    println!(
        "{name}: {question}: p50 {:.2} ms, p99 {:.2} ms ({} answers of {} rows on average)",
        ms(times[times.len() / 2]),
        ms(times[times.len() * 99 / 100]),
        times.len(),
        found / times.len()
    );
}

/// Drops the oldest week during writes: how long it takes, and how long the writer waits for it.
async fn sweep(name: &str, store: &dyn Store) {
    let writing = async {
        let mut longest = Duration::ZERO;
        let detail = Detail::encode(&json!({}));
        for n in 0.. {
            let began = Instant::now();
            let mut record = decision(n, 100, &detail);
            record.record.id = format!("swept-{n}").into();
            match store.insert(std::slice::from_ref(&record)).await {
                Ok(()) => longest = longest.max(began.elapsed()),
                Err(error) => panic!("{error:?}"),
            }
            LONGEST.store(u64::try_from(longest.as_micros()).unwrap(), Ordering::Relaxed);
        }
    };
    let began = Instant::now();
    let retention = RETENTION - Duration::from_secs(8 * 86_400);
    let done = tokio::select! {
        done = store.maintain(Timestamp::now(), retention) => done.unwrap(),
        () = writing => unreachable!("it writes for ever"),
    };
    println!(
        "{name}: giving up {} week(s) or {} decisions one by one took {:.1} s; a writer waited for {:.0} ms at most",
        done.weeks,
        done.decisions,
        began.elapsed().as_secs_f64(),
        LONGEST.load(Ordering::Relaxed) as f64 / 1000.0
    );
}

/// Longest wait of the writer during the sweep, in microseconds.
static LONGEST: AtomicU64 = AtomicU64::new(0);
