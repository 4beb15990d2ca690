//! What retention deletes, and what stays. Time is simulated.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use atoll_api::binding::{TargetCluster, Trigger};
use atoll_api::{Clock, DecisionId};
use atoll_history::{
    Event, Filter, Keeper, MemberEvent, MemberEventKind, MemberFilter, MemoryStore, Milestone,
    PostgresStore, RETENTION, Record, Resident, SqliteStore, Stage, Store, Withdrawal,
};
use jiff::Timestamp;
use sqlx::{Connection, Executor, SqliteConnection};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::database::Database;
use crate::faulty::Faulty;
use crate::support::{ids, record, shares};

const DAY: i64 = 24 * 60 * 60;
/// Number of standings, of valid ones, and of those with shares.
const STANDINGS: &str = "SELECT count(*), count(*) FILTER (WHERE valid), \
     (SELECT count(DISTINCT at) FROM standing_shares) FROM standings";
const CLUSTERS: [&str; 4] = ["a", "b", "c", "d"];

/// A Monday.
fn day(day: i64) -> Timestamp {
    let first: Timestamp = "2026-01-05T00:00:00Z".parse().unwrap();
    Timestamp::from_second(first.as_second() + day * DAY).unwrap()
}

/// Pseudo-random numbers, equal in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// 200 days of 30 bindings: some stay unchanged for months, some move every few days, some end.
fn history(seed: u64) -> Vec<Record> {
    let mut numbers = Numbers(seed);
    let mut records = Vec::new();
    let mut last: BTreeMap<u32, (DecisionId, Vec<TargetCluster>)> = BTreeMap::new();
    for hour in 0..200 * 24 {
        let binding = u32::try_from(numbers.below(if hour < 24 * 20 { 60 } else { 600 })).unwrap();
        // Most hours are without decisions; low-numbered bindings stay unchanged, high ones end and restart under
        // another uid.
        if binding >= 30 || (binding < 8 && hour > 24 * 20) {
            continue;
        }
        let (parent, before) = last.get(&binding).cloned().unzip();
        let mut made = record(&format!("{hour:05}"), binding, &format!("web{binding}"), 0);
        made.record.at = Timestamp::from_second(day(0).as_second() + hour * 3600).unwrap().into();
        made.record.parent = parent;
        made.before = Some(before.unwrap_or_default());
        let after: Vec<(&str, i64)> = CLUSTERS
            .into_iter()
            .filter_map(|cluster| Some((cluster, i64::try_from(numbers.below(5)).ok()?)))
            .filter(|(_, replicas)| *replicas > 1)
            .collect();
        made.after = shares(&after);
        if binding >= 20 && made.record.parent.is_some() && numbers.below(3) == 0 {
            made.record.trigger = Trigger::Withdrawn;
            made.after.clear();
            made.withdrawal =
                Some(Withdrawal { clusters: vec!["a".into()], unconfirmed: vec!["a".into()] });
        }
        let ended = made.record.trigger == Trigger::Withdrawn;
        last.insert(binding, (made.record.id.clone(), made.after.clone()));
        records.push(made);
        if ended {
            last.remove(&binding);
        }
    }
    // A restarted binding counts as another one.
    let mut generation: BTreeMap<String, u32> = BTreeMap::new();
    for made in &mut records {
        let uid = made.binding.uid.clone();
        let number = generation.entry(uid.to_string()).or_default();
        made.binding.uid = format!("{uid}.{number}").into();
        *number += u32::from(made.record.trigger == Trigger::Withdrawn);
    }
    records
}

fn events(records: &[Record], from: i64, to: i64) -> Vec<Event> {
    let mut events: Vec<Event> = records
        .iter()
        .map(|made| {
            Event::Milestone(Milestone::of(
                &made.record,
                Some("a"),
                Stage::Applied,
                made.decided_at(),
            ))
        })
        .collect();
    events.extend((from..to).map(|n| {
        Event::Member(MemberEvent {
            cluster: "a".into(),
            uid: None,
            at: day(n),
            kind: MemberEventKind::Ready,
            reason: String::new(),
            message: String::new(),
        })
    }));
    events
}

/// Maintenance at day 60, 130 and 200 with a retention of 90 days; `slack` is how much more a store may keep, in days.
async fn gives_up_what_is_old_and_keeps_what_stands(store: &dyn Store, slack: i64) {
    let records = history(7);
    let whole = MemoryStore::default();
    whole.insert(&records).await.unwrap();
    let mut maintained = 0;
    for now in [60, 130, 200] {
        let new: Vec<Record> = records
            .iter()
            .filter(|made| made.decided_at() >= day(maintained) && made.decided_at() < day(now))
            .cloned()
            .collect();
        store.insert(&new).await.unwrap();
        store.note(&events(&new, maintained, now)).await.unwrap();
        let done = store.maintain(day(now), RETENTION).await.unwrap();
        assert_eq!(done.weeks + done.decisions > 0, now > 90, "day {now}: {done:?}");
        // A second run right away deletes nothing more.
        let again = store.maintain(day(now), RETENTION).await.unwrap();
        assert_eq!((again.weeks, again.decisions), (0, 0), "day {now}");
        maintained = now;
    }
    // Everything since then is present, in write order.
    let since = Filter { since: Some(day(110)), ..Filter::default() };
    let (kept, all) = (store.tail(&since, 0, 9999), whole.tail(&since, 0, 9999));
    assert_eq!(ids(&kept.await.unwrap()), ids(&all.await.unwrap()));
    // The shares are known for every time since then.
    for time in (110..=200).step_by(3).map(day) {
        for cluster in CLUSTERS {
            let text = |found: Vec<Resident>| -> Vec<String> {
                found
                    .iter()
                    .map(|r| format!("{} {} {}", r.binding_uid, r.replicas, r.decision))
                    .collect()
            };
            let kept = text(store.residents(cluster, time).await.unwrap());
            assert_eq!(
                kept,
                text(whole.residents(cluster, time).await.unwrap()),
                "{cluster} {time}"
            );
        }
    }
    // Decisions in effect stay; no other is older than the retention.
    let mut last: BTreeMap<&str, &Record> = BTreeMap::new();
    for made in &records {
        last.insert(&made.binding.uid, made);
    }
    let mut rested = 0;
    for made in last.values().filter(|made| made.record.trigger != Trigger::Withdrawn) {
        let found = store.get(&made.record.id).await.unwrap();
        assert!(found.is_some(), "{} of {} is gone", made.record.id, made.binding.uid);
        let milestones = store.milestones(std::slice::from_ref(&made.record.id)).await.unwrap();
        assert_eq!(milestones.len(), 1);
        rested += i32::from(made.decided_at() < day(100));
    }
    assert!(rested >= 5, "{rested}: the test has no binding that rested");
    let old = Filter { until: Some(day(110 - slack)), ..Filter::default() };
    let old = store.page(&old, 9999, None).await.unwrap();
    let before = records.iter().filter(|made| made.decided_at() < day(110 - slack)).count();
    assert!(old.rows.len() < before / 4, "{} of {before} old rows are left", old.rows.len());
    for row in &old.rows {
        let left = row.entry.record().unwrap();
        assert_ne!(left.record.trigger, Trigger::Withdrawn);
    }
    let gone = records.iter().find(|made| made.record.trigger == Trigger::Withdrawn).unwrap();
    assert_eq!(store.milestones(std::slice::from_ref(&gone.record.id)).await.unwrap(), []);
    assert!(
        store.unconfirmed("a").await.unwrap().iter().any(|uid| gone.binding.uid == *uid),
        "the proof is gone"
    );
    let told = store.member_events(&MemberFilter::default(), 9999, None).await.unwrap().events;
    assert!(
        told.len() >= 90 && told.len() <= 90 + usize::try_from(slack).unwrap(),
        "{}",
        told.len()
    );
    // A new leader offers what bindings hold: existing rows stay unchanged, missing ones return once.
    let count = async || store.tail(&Filter::default(), 0, 9999).await.unwrap().len();
    let before = count().await;
    let standing: Vec<Record> = last
        .values()
        .filter(|made| made.record.trigger != Trigger::Withdrawn)
        .map(|made| (*made).clone())
        .collect();
    store.insert(&standing).await.unwrap();
    assert_eq!(count().await, before);
    let late = record("late", 99, "late", day(3).as_second());
    store.insert(std::slice::from_ref(&late)).await.unwrap();
    store.insert(&[late]).await.unwrap();
    assert_eq!(count().await, before + 1);
}

/// Some decisions are recorded weeks late, as after a restore from a backup.
async fn who_was_where_is_known_whatever_came_late(store: &dyn Store) {
    let mut numbers = Numbers(11);
    let whole = MemoryStore::default();
    let mut late: Vec<Record> = Vec::new();
    let records = history(13);
    let mut records = records.into_iter().peekable();
    let text = |found: Vec<Resident>| -> Vec<String> {
        let each = found
            .iter()
            .map(|r| format!("{} {} {} {}", r.binding_uid, r.replicas, r.decision, r.since));
        each.collect()
    };
    for now in (7..=84).step_by(7) {
        let mut batch = Vec::new();
        while let Some(made) = records.next_if(|made| made.decided_at() < day(now)) {
            if numbers.below(10) == 0 { late.push(made) } else { batch.push(made) }
        }
        while late.len() > 8 {
            batch.push(late.swap_remove(usize::try_from(numbers.below(8)).unwrap()));
        }
        store.insert(&batch).await.unwrap();
        whole.insert(&batch).await.unwrap();
        // Once before the standings account for the late rows, and once after.
        for _ in 0..2 {
            for time in (1..=now).step_by(6).map(day) {
                for cluster in CLUSTERS {
                    let found = text(store.residents(cluster, time).await.unwrap());
                    let expected = text(whole.residents(cluster, time).await.unwrap());
                    assert_eq!(found, expected, "{cluster} at {time}, day {now}");
                }
            }
            store.maintain(day(now), RETENTION).await.unwrap();
        }
    }
}

#[tokio::test]
async fn sqlite_knows_who_was_where_whatever_came_late() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("history.db")).await.unwrap();
    who_was_where_is_known_whatever_came_late(&store).await;
    let name = format!("sqlite://{}", folder.path().join("history.db").display());
    let mut connection = SqliteConnection::connect(&name).await.unwrap();
    let counts: (i64, i64, i64) =
        sqlx::query_as(STANDINGS).fetch_one(&mut connection).await.unwrap();
    assert_eq!(counts, (11, 11, 11));
}

/// Decisions of two days, three seconds apart: enough for a standing to be due before the week ends.
const MANY: &str = "INSERT INTO decisions (id, decided_at, trigger_name, mode, outcome, desired, pending, term, binding_kind, \
     namespace, binding_name, binding_uid, workload_group, workload_version, workload_kind, workload_name, \
     after_clusters) SELECT 'd' || i, {at}, 'Scale', 'Steady', 'Placed', 1, '[]', 1, 'ResourceBinding', 'shop', 'web', \
     'u', 'apps', 'v1', 'Deployment', 'web', '[]' FROM {rows}";

#[tokio::test]
async fn who_stood_where_is_written_down_sooner_where_much_happens() {
    let (begin, due) = (day(0).as_microsecond(), day(0).as_second() + 50_000 * 3);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let name = format!("sqlite://{}", path.display());
    let mut connection = SqliteConnection::connect(&name).await.unwrap();
    let rows = MANY.replace("{at}", &format!("{begin} + i * 3000000")).replace(
        "{rows}",
        "(WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 55000) SELECT i FROM n)",
    );
    connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(rows))).await.unwrap();
    store.maintain(day(3), RETENTION).await.unwrap();
    let at: Vec<i64> = sqlx::query_scalar("SELECT at / 1000000 FROM standings WHERE valid")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    assert_eq!(at, [due]);

    let Some(database) = Database::make("busy").await else { return };
    let store = PostgresStore::new(&database.url).unwrap();
    store.prepare(day(0)).await.unwrap();
    let rows = MANY
        .replace("{at}", &format!("to_timestamp({begin} / 1000000 + i * 3)"))
        .replace("{rows}", "generate_series(0, 55000) AS i");
    database.run(&rows).await;
    store.maintain(day(3), RETENTION).await.unwrap();
    let mut connection = database.connect().await;
    let seconds = "SELECT extract(epoch FROM at)::bigint FROM standings WHERE valid";
    let at: Vec<i64> = sqlx::query_scalar(seconds).fetch_all(&mut connection).await.unwrap();
    assert_eq!(at, [due]);
    drop(connection);
    store.close().await;
    database.drop().await;
}

#[tokio::test]
async fn postgres_knows_who_was_where_whatever_came_late_and_writes_it_down_each_week() {
    let Some(database) = Database::make("standings").await else { return };
    let store = PostgresStore::new(&database.url).unwrap();
    who_was_where_is_known_whatever_came_late(&store).await;
    let mut connection = database.connect().await;
    let counts: (i64, i64, i64) =
        sqlx::query_as(STANDINGS).fetch_one(&mut connection).await.unwrap();
    // The start of every week but the first, up to some time ago.
    assert_eq!(counts, (11, 11, 11));
    drop(connection);
    store.close().await;
    database.drop().await;
}

#[tokio::test]
async fn sqlite_gives_up_what_is_old_and_keeps_what_stands() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("history.db")).await.unwrap();
    gives_up_what_is_old_and_keeps_what_stands(&store, 0).await;
}

#[tokio::test]
async fn postgres_gives_up_whole_weeks_and_keeps_what_stands() {
    let Some(database) = Database::make("retention").await else { return };
    let store = PostgresStore::new(&database.url).unwrap();
    gives_up_what_is_old_and_keeps_what_stands(&store, 7).await;
    // The late row created its week's partition again; the next run drops it.
    store.maintain(day(200), RETENTION).await.unwrap();
    let mut connection = database.connect().await;
    let parts = |base: &str| {
        sqlx::query_scalar::<_, String>(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = $1::text::regclass ORDER BY 1",
        )
        .bind(base.to_owned())
    };
    for base in ["decisions", "changes", "milestones"] {
        let parts: Vec<String> = parts(base).fetch_all(&mut connection).await.unwrap();
        // The week that contains day 110, and those created ahead of day 200.
        assert_eq!(parts.first().unwrap(), &format!("{base}_20260420"));
        assert!(parts.contains(&format!("{base}_20260817")), "{parts:?}");
        assert_eq!(parts.last().unwrap(), &format!("{base}_kept"));
    }
    let first: String = parts("member_events").fetch_one(&mut connection).await.unwrap();
    assert_eq!(first, "member_events_20260420");
    drop(connection);
    store.close().await;
    database.drop().await;
}

/// With very many tables the planner reads all their names before it filters by owner.
#[tokio::test]
async fn postgres_gives_weeks_up_whatever_the_planner_does_first() {
    let Some(database) = Database::make("names").await else { return };
    for setting in ["enable_nestloop", "jit"] {
        database.run(&format!("ALTER DATABASE {} SET {setting} = off", database.name())).await;
    }
    let store = PostgresStore::new(&database.url).unwrap();
    store.insert(&[record("old", 1, "web", day(0).as_second())]).await.unwrap();
    let done = store.maintain(day(200), RETENTION).await.unwrap();
    assert_eq!(done.weeks, 1);
    store.close().await;
    database.drop().await;
}

#[tokio::test(start_paused = true)]
async fn the_leader_keeps_house_every_hour_and_sooner_after_a_failure() {
    let store = Arc::new(Faulty::default());
    let clock = Clock::from_fn(|| day(0));
    let (lead, leading) = watch::channel(None);
    let token = CancellationToken::new();
    let keeper = Keeper::new(store.clone(), clock, RETENTION);
    let running = tokio::spawn(keeper.run(leading, token.clone()));
    let after = async |hours: f32| {
        tokio::time::sleep(Duration::from_secs_f32(hours * 3600.0 + 1.0)).await;
        store.maintained()
    };
    assert_eq!(after(10.0).await, 0, "a follower keeps no house");
    lead.send_replace(Some(1));
    assert_eq!(after(0.0).await, 1, "a new leader does at once");
    assert_eq!(after(3.0).await, 4);
    store.set_away(true);
    let failed = after(1.0).await;
    let failing = after(0.5).await - failed;
    assert!((29..=31).contains(&failing), "{failing}: once a minute while it fails");
    store.set_away(false);
    after(0.1).await;
    lead.send_replace(None);
    let before = after(0.0).await;
    assert_eq!(after(10.0).await, before);
    token.cancel();
    running.await.unwrap();
}
