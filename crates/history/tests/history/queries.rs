//! The views, and the documented queries on them: each runs, and each returns rows.

use atoll_api::binding::{Outcome, PendingReplicas};
use atoll_history::{
    Event, MemberEvent, MemberEventKind, Milestone, PostgresStore, Provenance, Record,
    SourceObject, SqliteStore, Stage, Store,
};
use jiff::Timestamp;
use sqlx::{Connection, Executor, Row as _, SqliteConnection};

use crate::database::Database;
use crate::support::{record, shares};

const PAGE: &str = include_str!("../../../../docs/history-queries.md");
const ROLES: &str = include_str!("../../../../deploy/postgres/roles.sql");
const PLACED: &str = "SELECT cluster || ' ' || replicas || ' ' || (valid_until IS NULL) AS share \
    FROM placements_over_time ORDER BY valid_from, cluster";
const MOVED: &str =
    "SELECT decision || ' ' || cluster || ' ' || change AS move FROM moves ORDER BY at, cluster";

/// The documented queries of one dialect.
fn queries(language: &str) -> Vec<&'static str> {
    let blocks = PAGE.split("```").skip(1).step_by(2);
    blocks
        .filter_map(|block| block.split_once('\n'))
        .filter(|(marked, _)| *marked == language)
        .map(|(_, query)| query)
        .collect()
}

/// A workload that moved back and forth within the last half hour.
fn restless() -> Vec<Record> {
    let now = Timestamp::now().as_second();
    let made = |id: &str, minutes: i64, before: &[(&str, i64)], after: &[(&str, i64)]| {
        let mut record = record(id, 1, "web", now - minutes * 60);
        record.before = Some(shares(before));
        record.after = shares(after);
        record
    };
    let mut last = made("d", 1, &[("member1", 3)], &[("member1", 2)]);
    last.record.outcome = Outcome::Partial;
    last.record.pending = vec![PendingReplicas { replicas: 1, reason: "no room".to_owned() }];
    last.rejections = Some([("TaintToleration".to_owned(), 2), ("Affinity".to_owned(), 1)].into());
    last.provenance = Some(Provenance {
        sources: vec![SourceObject { kind: "Deployment".to_owned(), ..SourceObject::default() }],
        ..Provenance::default()
    });
    vec![
        made("a", 30, &[], &[("member1", 3)]),
        made("b", 20, &[("member1", 3)], &[("member1", 1), ("member2", 2)]),
        made("c", 5, &[("member1", 1), ("member2", 2)], &[("member1", 3)]),
        last,
    ]
}

/// Events of that workload: the second decision was slow on member2. And events of a member.
fn life(records: &[Record]) -> Vec<Event> {
    let step = |record: &Record, cluster: Option<&str>, stage, seconds: i64| {
        let at = Timestamp::from_second(record.decided_at().as_second() + seconds).unwrap();
        Event::Milestone(Milestone::of(&record.record, cluster, stage, at))
    };
    vec![
        step(&records[0], Some("member1"), Stage::Applied, 1),
        step(&records[0], Some("member1"), Stage::Healthy, 5),
        step(&records[1], None, Stage::Committed, 1),
        step(&records[1], Some("member1"), Stage::Applied, 2),
        step(&records[1], Some("member2"), Stage::Applied, 3),
        step(&records[1], Some("member1"), Stage::Healthy, 20),
        step(&records[1], Some("member2"), Stage::Healthy, 90),
        Event::Member(MemberEvent {
            cluster: "member1".into(),
            uid: None,
            at: records[0].decided_at(),
            kind: MemberEventKind::Lost,
            reason: "Silent".to_owned(),
            message: "nothing was heard".to_owned(),
        }),
        Event::Member(MemberEvent {
            cluster: "member9".into(),
            uid: None,
            at: records[0].decided_at(),
            kind: MemberEventKind::Exec,
            reason: "Opened".to_owned(),
            message: "jane: pod shop/web-0: HTTP 101".to_owned(),
        }),
        Event::Member(MemberEvent {
            cluster: "member1".into(),
            uid: None,
            at: records[0].decided_at(),
            kind: MemberEventKind::Used,
            reason: "cpu=54,pods=3".to_owned(),
            message: "requested: cpu 54 %, pods 3 %".to_owned(),
        }),
    ]
}

/// Rows of the newer views as text, equal on both databases.
const NEWER: [(&str, &[&str]); 4] = [
    (
        "SELECT cluster || ' ' || resource || ' ' || percent FROM member_use ORDER BY resource",
        &["member1 cpu 54", "member1 pods 3"],
    ),
    (
        "SELECT decision || ' ' || rule || ' ' || clusters FROM rejections ORDER BY rule",
        &["d Affinity 1", "d TaintToleration 2"],
    ),
    (
        "SELECT decision || ' ' || CAST(seconds_to_commit AS integer) || ' ' || CAST(seconds_to_apply AS integer) \
         || ' ' || CAST(seconds_to_healthy AS integer) || ' ' || slowest_member FROM slow_decisions",
        &["b 1 3 90 member2"],
    ),
    (
        "SELECT what || ' ' || COALESCE(decision, reason) FROM member_timeline \
         WHERE cluster = 'member1' ORDER BY at, what",
        &["Lost Silent: nothing was heard", "Share a", "Share b", "Share c", "Share d"],
    ),
];

fn assert_views(placed: &[String], moved: &[String], yes: &str, no: &str) {
    let share = |share: &str, holds: bool| format!("{share} {}", if holds { yes } else { no });
    let expected = [
        ("member1 3", false),
        ("member1 1", false),
        ("member2 2", false),
        ("member1 3", false),
        ("member1 2", true),
    ];
    assert_eq!(placed, expected.map(|(text, holds)| share(text, holds)));
    let expected = [
        "a member1 3",
        "b member1 -2",
        "b member2 2",
        "c member1 2",
        "c member2 -2",
        "d member1 -1",
    ];
    assert_eq!(moved, expected);
}

#[tokio::test]
async fn every_query_of_the_page_finds_something_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let records = restless();
    store.insert(&records).await.unwrap();
    store.note(&life(&records)).await.unwrap();
    let mut reader = SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
    let placed = sqlx::query_scalar(PLACED).fetch_all(&mut reader).await.unwrap();
    let moved = sqlx::query_scalar(MOVED).fetch_all(&mut reader).await.unwrap();
    assert_views(&placed, &moved, "1", "0");
    for (query, expected) in NEWER {
        let found: Vec<String> = sqlx::query_scalar(query).fetch_all(&mut reader).await.unwrap();
        assert_eq!(found, expected, "{query}");
    }
    let queries = queries("sqlite");
    assert_eq!(queries.len(), 8);
    for query in queries {
        let rows = reader.fetch_all(query).await.unwrap_or_else(|e| panic!("{query}: {e}"));
        assert!(!rows.is_empty(), "{query} finds nothing");
    }
}

#[tokio::test]
async fn every_query_of_the_page_finds_something_in_postgres_and_readers_only_read() {
    let Some(database) = Database::make("queries").await else { return };
    // Twice: an administrator may run it again after an upgrade.
    database.run(ROLES).await;
    database.run(ROLES).await;
    let as_role = |role: &str| {
        let separator = if database.url.ends_with('?') { "" } else { "&" };
        format!("{}{separator}options[role]={role}", database.url)
    };
    let store = PostgresStore::new(&as_role("atoll_writer")).unwrap();
    let records = restless();
    store.insert(&records).await.unwrap();
    store.note(&life(&records)).await.unwrap();
    let mut reader = sqlx::PgConnection::connect(&as_role("atoll_reader")).await.unwrap();
    let placed = sqlx::query_scalar(PLACED).fetch_all(&mut reader).await.unwrap();
    let moved = sqlx::query_scalar(MOVED).fetch_all(&mut reader).await.unwrap();
    assert_views(&placed, &moved, "true", "false");
    for (query, expected) in NEWER {
        let found: Vec<String> = sqlx::query_scalar(query).fetch_all(&mut reader).await.unwrap();
        assert_eq!(found, expected, "{query}");
    }
    let queries = queries("sql");
    assert_eq!(queries.len(), 14);
    for query in queries {
        let rows = reader.fetch_all(query).await.unwrap_or_else(|e| panic!("{query}: {e}"));
        assert!(!rows.is_empty(), "{query} finds nothing");
    }
    for write in ["DELETE FROM decisions", "INSERT INTO unconfirmed VALUES ('a', 'b')"] {
        let error = reader.execute(write).await.unwrap_err().to_string();
        assert!(error.contains("permission denied"), "{write}: {error}");
    }
    let owner = reader.fetch_one("SELECT tableowner FROM pg_tables WHERE tablename = 'decisions'");
    assert_eq!(owner.await.unwrap().get::<String, _>(0), "atoll_writer");
    reader.close().await.unwrap();
    store.close().await;
    database.drop().await;
}
