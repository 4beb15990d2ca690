//! Every statement has a time limit, whatever blocks it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use atoll_history::{
    Event, Filter, MemberEvent, MemberEventKind, MemberFilter, Milestone, PostgresStore, RETENTION,
    Record, Stage, Store, StoreError,
};
use jiff::Timestamp;
use sqlx::Executor;
use tokio::task::JoinSet;

use crate::database::Database;
use crate::support::record;

/// Limit of one operation here; the server cancels half a second earlier.
const LIMIT: Duration = Duration::from_secs(1);
/// Longest that an operation may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
const EVERYTHING: &str = "BEGIN; LOCK TABLE decisions, changes, milestones, member_events, unconfirmed, standings, \
     standing_shares, history_bounds IN ACCESS EXCLUSIVE MODE";

/// All operations of a store, by name.
const DOES: [&str; 15] = [
    "insert",
    "write",
    "page",
    "get",
    "tail",
    "last",
    "unconfirmed",
    "newest",
    "note",
    "milestones",
    "member_events",
    "maintain",
    "residents",
    "prepare",
    "check",
];

async fn does(store: &PostgresStore, what: &str) -> Result<(), StoreError> {
    let now: Timestamp = "2026-11-20T12:00:00Z".parse().unwrap();
    let made: Record = record("one", 1, "web", 1_790_000_000);
    let events = [
        Event::Milestone(Milestone::of(&made.record, Some("a"), Stage::Applied, now)),
        Event::Member(MemberEvent {
            cluster: "a".into(),
            uid: None,
            at: now,
            kind: MemberEventKind::Ready,
            reason: String::new(),
            message: String::new(),
        }),
    ];
    let (filter, members) = (Filter::default(), MemberFilter::default());
    let records = std::slice::from_ref(&made);
    match what {
        "insert" => store.insert(records).await,
        "write" => store.write(records).await?.await,
        "page" => store.page(&filter, 10, None).await.map(drop),
        "get" => store.get("one").await.map(drop),
        "tail" => store.tail(&filter, 0, 10).await.map(drop),
        "last" => store.last().await.map(drop),
        "unconfirmed" => store.unconfirmed("a").await.map(drop),
        "newest" => store.newest(&["binding-1".to_owned()]).await.map(drop),
        "note" => store.note(&events).await,
        "milestones" => store.milestones(&["one".into()]).await.map(drop),
        "member_events" => store.member_events(&members, 10, None).await.map(drop),
        "maintain" => store.maintain(now, RETENTION).await.map(drop),
        "residents" => store.residents("a", now).await.map(drop),
        "prepare" => store.prepare(now).await,
        "check" => store.check().await,
        other => panic!("{other} is nothing that a store does"),
    }
}

#[tokio::test]
async fn nothing_that_a_store_does_waits_for_longer_than_its_limit() {
    let Some(database) = Database::make("limits").await else { return };
    let store = Arc::new(PostgresStore::within(&database.url, LIMIT).unwrap());
    for what in DOES {
        // The first operation on a new connection may return `Reconnected`.
        let done = match does(&store, what).await {
            Err(StoreError::Reconnected { .. }) => does(&store, what).await,
            done => done,
        };
        done.unwrap_or_else(|error| panic!("{what}: {error:?}"));
    }
    let mut blocker = database.connect().await;
    blocker.execute(sqlx::raw_sql(EVERYTHING)).await.unwrap();
    let mut asked = JoinSet::new();
    for what in DOES {
        let store = Arc::clone(&store);
        asked.spawn(async move {
            let began = Instant::now();
            let done = tokio::time::timeout(PATIENCE, does(&store, what)).await;
            (what, done, began.elapsed())
        });
    }
    while let Some(answer) = asked.join_next().await {
        let (what, done, took) = answer.unwrap();
        let done = done.unwrap_or_else(|_| panic!("{what}: no answer in {took:?}"));
        let error = done.err().unwrap_or_else(|| panic!("{what}: nothing held it up"));
        assert!(error.is_transient(), "{what}: {error:?}");
    }
    blocker.execute("ROLLBACK").await.unwrap();
    for what in DOES {
        let done = match does(&store, what).await {
            Err(StoreError::Reconnected { .. }) => does(&store, what).await,
            done => done,
        };
        done.unwrap_or_else(|error| panic!("{what}, afterwards: {error:?}"));
    }
    store.close().await;
    database.drop().await;
}

/// The server acknowledges rows, and stops before they are on its disk.
#[tokio::test]
async fn what_may_be_lost_is_said_to_be() {
    let Some(database) = Database::make("unsafe").await else { return };
    let store = PostgresStore::new(&database.url).unwrap();
    let now: Timestamp = "2026-11-20T12:00:00Z".parse().unwrap();
    store.prepare(now).await.unwrap();
    let records = [record("one", 1, "web", 1_790_000_000)];
    let durability = store.write(&records).await.unwrap();
    // The task that waits for the disk has lost its connection to the server that accepted the rows.
    database.cut_connections().await;
    let error = durability.await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    assert!(matches!(store.write(&records).await, Err(StoreError::Reconnected { .. })));
    store.write(&records).await.unwrap().await.unwrap();
    assert_eq!(store.tail(&Filter::default(), 0, 10).await.unwrap().len(), 1);
    store.close().await;
    database.drop().await;
}
