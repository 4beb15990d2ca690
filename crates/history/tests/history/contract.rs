//! Behaviour required of every store, run on each of them.

use std::sync::Arc;

use crate::database::Database;
use crate::support::{ids, record, shares};
use atoll_api::binding::{Outcome, PendingReplicas, Trigger};
use atoll_history::inputs::{Chain, MissingInputs, State, chain};
use atoll_history::{
    ApprovedPlan, Detail, Event, Filter, Gap, LastChange, MemberEvent, MemberEventKind,
    MemberFilter, MemoryStore, Milestone, Position, PostgresStore, Provenance, Record, Resident,
    Row, Scope, SourceObject, SqliteStore, Stage, Store, StoredRecord, Withdrawal,
};
use atoll_history::{Inputs, Recorder, RecorderOptions};
use serde_json::json;
use tokio_util::sync::CancellationToken;

async fn written(store: &dyn Store, records: &[Record]) {
    store.insert(records).await.unwrap();
}

async fn listed(store: &dyn Store, filter: Filter) -> Vec<String> {
    ids(&store.page(&filter, 100, None).await.unwrap().rows)
}

fn full(row: Option<Row>) -> Record {
    match row {
        Some(Row { entry: StoredRecord::Record(record), .. }) => *record,
        other => panic!("no record: {other:?}"),
    }
}

async fn a_record_comes_back_whole_and_is_written_once(store: &dyn Store) {
    let mut first = record("one", 1, "web", 10);
    first.record.parent = Some("zero".into());
    first.record.affinity_name = Some("primary".to_owned());
    first.record.pending =
        vec![PendingReplicas { replicas: 2, reason: "no \"room\" é".to_owned() }];
    first.before = Some(shares(&[("a", 1)]));
    first.after = shares(&[("a", 2), ("b", 0)]);
    first.reason = Some("scaled".to_owned());
    first.gap = Some(Gap { from: "zero-and-a-half".into(), count: 3 });
    first.provenance = Some(Provenance {
        version: "0.1.0".to_owned(),
        profile: "default".to_owned(),
        sources: vec![SourceObject {
            kind: "PropagationPolicy".to_owned(),
            name: "web".to_owned(),
            generation: Some(7),
            changed: Some(LastChange {
                manager: "kubectl".to_owned(),
                operation: "Apply".to_owned(),
                at: Some(at("2026-01-31T10:00:00Z")),
            }),
            ..SourceObject::default()
        }],
        approved: Some(ApprovedPlan { plan: "5f0c".to_owned(), by: "jane".to_owned() }),
    });
    first.detail = Some(Detail::encode(&json!({"rejections": ["taint"]})));
    written(store, std::slice::from_ref(&first)).await;
    assert_eq!(full(store.get("one").await.unwrap()), first);

    // Again, and with other content under the same id: the row stays unchanged.
    let mut other = first.clone();
    other.record.desired = 99;
    written(store, &[other, first.clone()]).await;
    assert_eq!(full(store.get("one").await.unwrap()), first);
    let page = store.page(&Filter::default(), 10, None).await.unwrap();
    let listed = StoredRecord::Record(Box::new(Record { detail: None, ..first }));
    assert_eq!(page.rows, [Row { seq: page.rows[0].seq, entry: listed }]);
    assert_eq!(store.get("absent").await.unwrap(), None);
    assert_eq!(store.get("' OR 1=1 --").await.unwrap(), None);
}

async fn inputs_are_stored_beside_their_decision_and_build_on_each_other(store: &dyn Store) {
    let id = |n: u32| format!("{n:032x}");
    let rooms = ["room for 10 replicas", "room for 11 replicas", "room for 12 replicas"];
    // The recorder makes the frames; here they go to the store under test.
    let made = Arc::new(MemoryStore::default());
    let (handle, writer) = Recorder::new(made.clone(), RecorderOptions::default());
    for (n, room) in (1..).zip(rooms) {
        let record = record(&id(n), n, "web", 10);
        handle.record_with(record, Some(Box::new(Room(room)))).unwrap();
    }
    drop(handle);
    writer.run(CancellationToken::new()).await;
    let mut records = Vec::new();
    for n in 1..=3 {
        let inputs = made.inputs(&id(n)).await.unwrap().unwrap();
        assert!(inputs.is_some());
        records.push(Record { inputs, ..record(&id(n), n, "web", 10) });
    }
    records.push(record("without", 4, "web", 10));
    written(store, &records).await;
    for (n, room) in (1..).zip(rooms) {
        let Chain::Frames(links) = chain(store, &id(n), None).await.unwrap() else { panic!("{n}") };
        assert_eq!(links.len(), n as usize);
        let mut state = State::default();
        links.iter().for_each(|link| state.apply(&link.frame).unwrap());
        assert_eq!(state.objects().collect::<Vec<_>>(), [("room", room.as_bytes())]);
    }
    // A reader that has the second frame needs the third only.
    let Chain::Frames(links) = chain(store, &id(3), Some(&id(2))).await.unwrap() else { panic!() };
    assert_eq!(links.iter().map(|link| link.decision.clone()).collect::<Vec<_>>(), [id(3)]);
    let missing = chain(store, "without", None).await.unwrap();
    assert_eq!(missing, Chain::Missing(MissingInputs::NotStored));
    assert_eq!(chain(store, "nobody", None).await.unwrap(), Chain::NoDecision);
    // The same with a hole.
    let (mut late, hole) = (records[2].clone(), records[1].record.id.clone());
    late.record.id = id(9).into();
    let alone = MemoryStore::default();
    alone.insert(&[late]).await.unwrap();
    assert_eq!(
        chain(&alone, &id(9), None).await.unwrap(),
        Chain::Missing(MissingInputs::Base(hole.into()))
    );
}

/// Inputs of one object.
#[derive(Debug)]
struct Room(&'static str);

impl Inputs for Room {
    fn differences(&self, _: Option<&dyn Inputs>) -> Vec<(String, Option<Vec<u8>>)> {
        vec![("room".to_owned(), Some(self.0.as_bytes().to_vec()))]
    }
}

async fn before_is_taken_from_the_parents_row(store: &dyn Store) {
    let mut first = record("p1", 1, "web", 10);
    first.after = shares(&[("a", 3)]);
    let child = |id: &str, parent: &str| {
        let mut child = record(id, 1, "web", 11);
        child.record.parent = Some(parent.into());
        child.before = None;
        child.after = shares(&[("a", 3), ("b", 1)]);
        child
    };
    written(store, &[first, child("p2", "p1"), child("p3", "nowhere")]).await;
    assert_eq!(full(store.get("p2").await.unwrap()).before, Some(shares(&[("a", 3)])));
    assert_eq!(full(store.get("p3").await.unwrap()).before, None);
    let on = |cluster: &str| Filter { cluster: Some(cluster.into()), ..Filter::default() };
    // p2 did not change a's share; for p3 the previous share is unknown.
    assert_eq!(listed(store, on("a")).await, ["p3", "p1"]);
    assert_eq!(listed(store, on("b")).await, ["p3", "p2"]);
}

async fn pages_are_newest_first_and_complete(store: &dyn Store) {
    // Two per second, so that the order within a second matters.
    let records: Vec<_> =
        (0..25).map(|n| record(&format!("{n:02}"), 1, "web", 100 + i64::from(n / 2))).collect();
    written(store, &records).await;
    let all: Vec<String> = (0..25).rev().map(|n| format!("{n:02}")).collect();
    for limit in [1, 4, 5, 24, 25, 26] {
        let (mut found, mut after, mut pages) = (Vec::new(), None::<Position>, 0);
        loop {
            let page = store.page(&Filter::default(), limit, after).await.unwrap();
            assert!(page.rows.len() <= limit);
            found.extend(ids(&page.rows));
            pages += 1;
            match page.next {
                // In the form that a client passes back.
                Some(next) => after = Some(next.to_string().parse().unwrap()),
                None => break,
            }
        }
        assert_eq!(found, all, "limit {limit}");
        assert_eq!(pages, 25_usize.div_ceil(limit), "limit {limit}");
    }
    // Rows written while a reader pages sort before its position: nothing is returned twice, nothing missed.
    let page = store.page(&Filter::default(), 10, None).await.unwrap();
    written(store, &[record("new", 1, "web", 200)]).await;
    let rest = store.page(&Filter::default(), 100, page.next).await.unwrap();
    assert_eq!([ids(&page.rows), ids(&rest.rows)].concat(), all);
}

async fn filters_select(store: &dyn Store) {
    let mut one = record("1", 1, "web", 100);
    one.record.trigger = Trigger::First;
    one.before = Some(vec![]);
    one.after = shares(&[("a", 2), ("b", 1)]);
    let mut two = record("2", 1, "web", 200);
    two.before = Some(shares(&[("a", 2), ("b", 1)]));
    two.after = shares(&[("a", 4), ("b", 1)]);
    let mut three = record("3", 2, "web", 300);
    three.binding.namespace = Some("bank".to_owned());
    three.workload.namespace = Some("bank".to_owned());
    three.record.outcome = Outcome::Partial;
    let mut four = record("4", 3, "config", 400);
    four.workload.api_version = "v1".to_owned();
    four.workload.kind = "ConfigMap".to_owned();
    let mut five = record("5", 4, "admin", 500);
    five.binding.kind = "ClusterResourceBinding".to_owned();
    (five.binding.namespace, five.workload.namespace) = (None, None);
    five.workload.api_version = "rbac.authorization.k8s.io/v1".to_owned();
    five.workload.kind = "ClusterRole".to_owned();
    written(store, &[one, two, three, four, five.clone()]).await;
    assert_eq!(full(store.get("5").await.unwrap()), five);

    let scope = |scope| Filter { scope, ..Filter::default() };
    assert_eq!(listed(store, scope(Scope::Any)).await, ["5", "4", "3", "2", "1"]);
    assert_eq!(listed(store, scope(Scope::Namespaced)).await, ["4", "3", "2", "1"]);
    assert_eq!(listed(store, scope(Scope::Namespace("bank".to_owned()))).await, ["3"]);
    assert_eq!(listed(store, scope(Scope::Cluster)).await, ["5"]);
    for (fields, expected) in [
        (&[("spec.workload.name", "web")][..], &["3", "2", "1"][..]),
        (&[("spec.workload.group", "")], &["4"]),
        (
            &[("spec.workload.group", "apps"), ("spec.workload.kind", "Deployment")],
            &["3", "2", "1"],
        ),
        (&[("spec.workload.kind", "ClusterRole")], &["5"]),
        (&[("spec.binding.uid", "binding-1")], &["2", "1"]),
        (&[("spec.trigger", "First")], &["1"]),
        (&[("spec.outcome", "Partial")], &["3"]),
        (&[("spec.cluster", "a")], &["2", "1"]),
        (&[("spec.cluster", "b")], &["1"]),
        (
            &[("spec.cluster", "a"), ("spec.binding.uid", "binding-1"), ("spec.trigger", "Scale")],
            &["2"],
        ),
        (&[("since", "1970-01-01T00:03:20Z"), ("until", "1970-01-01T00:06:40Z")], &["3", "2"]),
        (&[("spec.workload.name", "web"), ("since", "1970-01-01T00:03:21Z")], &["3"]),
        (&[("spec.workload.name", "' OR '1'='1")], &[]),
        (&[("spec.workload.name", "%")], &[]),
    ] {
        let mut filter = Filter::default();
        fields.iter().for_each(|(field, value)| filter.set(field, value).unwrap());
        assert_eq!(listed(store, filter.clone()).await, expected, "{fields:?}");
        let tail = store.tail(&filter, 0, 100).await.unwrap();
        let mut tail: Vec<_> = tail.iter().map(|row| row.entry.id().to_owned()).collect();
        tail.reverse();
        assert_eq!(tail, expected, "tail {fields:?}");
    }
}

async fn followers_see_every_row_once_in_order(store: &dyn Store) {
    let mut news = store.written();
    assert_eq!(store.last().await.unwrap(), 0);
    // An older decision that is recorded late is last in write order, and first in no list.
    let records: Vec<_> =
        [30, 10, 20].iter().map(|at| record(&at.to_string(), 1, "web", *at)).collect();
    written(store, &records).await;
    assert!(news.has_changed().unwrap());
    news.mark_unchanged();
    let (mut after, mut seen) = (0, Vec::new());
    loop {
        let next = store.tail(&Filter::default(), after, 2).await.unwrap();
        let Some(last) = next.last() else { break };
        after = last.seq;
        seen.extend(ids(&next));
    }
    assert_eq!(seen, ["30", "10", "20"]);
    assert_eq!(store.last().await.unwrap(), after);
    assert!(!news.has_changed().unwrap());
}

async fn withdrawals_name_who_has_not_confirmed(store: &dyn Store) {
    let withdrawn = |uid: u32, unconfirmed: &[&str]| {
        let of = record("x", uid, "web", 1);
        let names = |names: &[&str]| {
            names.iter().map(|n| (*n).into()).collect::<Vec<atoll_api::ClusterName>>()
        };
        let withdrawal =
            Withdrawal { clusters: names(&["a", "b"]), unconfirmed: names(unconfirmed) };
        let before = shares(&[("a", 1), ("b", 1)]);
        Record::withdrawn(of.binding, of.workload, None, before, withdrawal, of.record.at.0, 1)
    };
    let first = withdrawn(1, &["a"]);
    written(store, &[first.clone(), withdrawn(2, &["a", "b"]), withdrawn(3, &[])]).await;
    // Recorded again by a restarted controller, when fewer confirmations are missing: the first row stays.
    written(store, &[withdrawn(1, &[])]).await;
    assert_eq!(full(store.get(&first.record.id).await.unwrap()), first);
    assert_eq!(store.unconfirmed("a").await.unwrap(), ["binding-1", "binding-2"]);
    assert_eq!(store.unconfirmed("b").await.unwrap(), ["binding-2"]);
    assert_eq!(store.unconfirmed("c").await.unwrap(), Vec::<String>::new());
}

async fn the_newest_row_of_a_binding_is_the_one_written_last(store: &dyn Store) {
    let mut second = record("late", 1, "web", 50);
    second.record.parent = Some("early".into());
    second.record.term = 7;
    // The second leader's clock is behind: by time, its decision is the older one.
    written(store, &[record("early", 1, "web", 100), second, record("other", 2, "api", 60)]).await;
    let gone = record("x", 3, "db", 1);
    let withdrawal = Withdrawal { clusters: vec!["a".into()], unconfirmed: Vec::new() };
    let at = gone.record.at.0;
    let gone = Record::withdrawn(gone.binding, gone.workload, None, vec![], withdrawal, at, 1);
    written(store, &[record("third", 3, "db", 200), gone]).await;
    let bindings = ["binding-1", "binding-3", "binding-9"].map(str::to_owned);
    let mut newest = store.newest(&bindings).await.unwrap();
    newest.sort_by(|a, b| a.binding_uid.cmp(&b.binding_uid));
    let [first, third] = newest.as_slice() else { panic!("{newest:?}") };
    assert_eq!((first.decision.as_str(), first.term, first.withdrawn), ("late", 7, false));
    assert_eq!((third.binding_uid.as_str(), third.withdrawn), ("binding-3", true));
}

async fn milestones_keep_their_first_time(store: &dyn Store) {
    let mut one = record("one", 1, "web", 100);
    one.record.at = at("1970-01-01T00:01:40.7Z").into();
    let step = |cluster, stage: Stage, time: &str| {
        Event::Milestone(Milestone::of(&one.record, cluster, stage, at(time)))
    };
    let other = record("other", 1, "web", 200).record;
    let first = [
        step(None, Stage::Decided, "1970-01-01T00:01:40.7Z"),
        step(Some("a"), Stage::Applied, "1970-01-01T00:01:42.000001Z"),
        step(Some("b"), Stage::Applied, "1970-01-01T00:01:43Z"),
        Event::Milestone(Milestone::of(&other, None, Stage::Decided, at("1970-01-01T00:03:20Z"))),
    ];
    store.note(&first).await.unwrap();
    // Recorded again by a new leader, with a stage of a later version.
    let again = [
        step(Some("a"), Stage::Applied, "1970-01-01T00:05:00Z"),
        step(Some("a"), Stage::Other("Celebrated".to_owned()), "1970-01-01T00:06:00Z"),
    ];
    store.note(&again).await.unwrap();
    written(store, &[one.clone()]).await;
    let found = store.milestones(&["one".into(), "absent".into()]).await.unwrap();
    let text = |step: &Milestone| {
        assert_eq!((step.decision.as_str(), step.decided_at), ("one", one.decided_at()));
        format!("{} {} {}", step.cluster.as_deref().unwrap_or("-"), step.stage, step.at)
    };
    let found: Vec<_> = found.iter().map(text).collect();
    let expected = [
        "- Decided 1970-01-01T00:01:40.7Z",
        "a Applied 1970-01-01T00:01:42.000001Z",
        "b Applied 1970-01-01T00:01:43Z",
        "a Celebrated 1970-01-01T00:06:00Z",
    ];
    assert_eq!(found, expected);
}

async fn events_of_members_are_paged_newest_first_and_kept_once(store: &dyn Store) {
    let event = |cluster: &str, seconds: i64, kind: MemberEventKind, uid: Option<&str>| {
        Event::Member(MemberEvent {
            cluster: cluster.into(),
            uid: uid.map(str::to_owned),
            at: jiff::Timestamp::from_second(seconds).unwrap(),
            kind,
            reason: "because".to_owned(),
            message: format!("{cluster} at {seconds}"),
        })
    };
    let events = [
        event("a", 10, MemberEventKind::Joined, Some("uid-a")),
        event("b", 10, MemberEventKind::Joined, None),
        event("a", 20, MemberEventKind::Ready, Some("uid-a")),
        event("a", 30, MemberEventKind::Lost, Some("uid-a")),
        event("a", 25, MemberEventKind::Used, Some("uid-a")),
    ];
    store.note(&events).await.unwrap();
    store.note(&events).await.unwrap();
    let text =
        |event: &MemberEvent| format!("{} {} {}", event.cluster, event.kind, event.at.as_second());
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.member_events(&MemberFilter::default(), 3, after).await.unwrap();
        found.extend(page.events.iter().map(text));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(found, ["a Lost 30", "a Ready 20", "b Joined 10", "a Joined 10"]);
    let of = MemberFilter {
        cluster: Some("a".into()),
        since: Some(jiff::Timestamp::from_second(20).unwrap()),
        until: Some(jiff::Timestamp::from_second(30).unwrap()),
        kind: None,
    };
    // Samples of use are listed only where they are asked for.
    for (kind, wanted) in [
        (None, Some(&events[2])),
        (Some(MemberEventKind::Ready), Some(&events[2])),
        (Some(MemberEventKind::Used), Some(&events[4])),
        (Some(MemberEventKind::Joined), None),
    ] {
        let filter = MemberFilter { kind, ..of.clone() };
        let page = store.member_events(&filter, 10, None).await.unwrap();
        let wanted: Vec<MemberEvent> =
            wanted.map(|event| member(event).clone()).into_iter().collect();
        assert_eq!((page.events, page.next), (wanted, None), "{filter:?}");
    }
}

fn member(event: &Event) -> &MemberEvent {
    match event {
        Event::Member(event) => event,
        Event::Milestone(step) => panic!("{step:?}"),
    }
}

async fn who_was_on_a_member_is_known_for_every_time(store: &dyn Store) {
    let made =
        |id: &str, binding: u32, seconds: i64, before: &[(&str, i64)], after: &[(&str, i64)]| {
            let mut made = record(id, binding, &format!("web{binding}"), seconds);
            (made.before, made.after) = (Some(shares(before)), shares(after));
            made
        };
    written(
        store,
        &[
            made("1", 1, 10, &[], &[("a", 2)]),
            made("2", 2, 20, &[], &[("a", 5), ("b", 1)]),
            // Only b changes: a's share is still the one of decision 2.
            made("3", 2, 30, &[("a", 5), ("b", 1)], &[("a", 5), ("b", 3)]),
            made("4", 1, 40, &[("a", 2)], &[("b", 2)]),
            // Two within a second: the later row wins.
            made("5", 3, 50, &[], &[("a", 1)]),
            made("6", 3, 50, &[("a", 1)], &[("a", 4)]),
        ],
    )
    .await;
    for (cluster, seconds, expected) in [
        ("a", 9, &[][..]),
        ("a", 10, &["web1 2 1"]),
        ("a", 39, &["web1 2 1", "web2 5 2"]),
        ("a", 40, &["web2 5 2"]),
        ("a", 50, &["web2 5 2", "web3 4 6"]),
        ("b", 50, &["web1 2 4", "web2 3 3"]),
        ("c", 50, &[]),
    ] {
        let time = jiff::Timestamp::from_second(seconds).unwrap();
        let found = store.residents(cluster, time).await.unwrap();
        let text = |r: &Resident| format!("{} {} {}", r.workload_name, r.replicas, r.decision);
        assert_eq!(found.iter().map(text).collect::<Vec<_>>(), expected, "{cluster} at {seconds}");
    }
}

fn at(time: &str) -> jiff::Timestamp {
    time.parse().unwrap()
}

/// One test for each store and rule.
macro_rules! contract {
    ($($rule:ident),* $(,)?) => {
        mod memory {
            use super::*;
            $(#[tokio::test] async fn $rule() { super::$rule(&MemoryStore::default()).await; })*
        }
        mod sqlite {
            use super::*;
            $(#[tokio::test] async fn $rule() {
                let folder = tempfile::tempdir().unwrap();
                let store = SqliteStore::open(&folder.path().join("history.db")).await.unwrap();
                super::$rule(&store).await;
            })*
        }
        mod postgres {
            use super::*;
            $(#[tokio::test] async fn $rule() {
                let Some(database) = Database::make(stringify!($rule)).await else { return };
                let store = PostgresStore::new(&database.url).unwrap();
                store.prepare(jiff::Timestamp::UNIX_EPOCH).await.unwrap();
                super::$rule(&store).await;
                store.close().await;
                database.drop().await;
            })*
        }
    };
}

contract!(
    a_record_comes_back_whole_and_is_written_once,
    inputs_are_stored_beside_their_decision_and_build_on_each_other,
    before_is_taken_from_the_parents_row,
    pages_are_newest_first_and_complete,
    filters_select,
    followers_see_every_row_once_in_order,
    withdrawals_name_who_has_not_confirmed,
    the_newest_row_of_a_binding_is_the_one_written_last,
    milestones_keep_their_first_time,
    events_of_members_are_paged_newest_first_and_kept_once,
    who_was_on_a_member_is_known_for_every_time,
);

#[tokio::test]
async fn a_file_keeps_what_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.db");
    let store = SqliteStore::open(&path).await.unwrap();
    written(&store, &[record("one", 1, "web", 10)]).await;
    // Not closed, as after a kill: a second process opens the same file.
    let again: Arc<dyn Store> = Arc::new(SqliteStore::open(&path).await.unwrap());
    assert_eq!(listed(&*again, Filter::default()).await, ["one"]);
    written(&*again, &[record("two", 1, "web", 11)]).await;
    store.close().await;
    assert_eq!(listed(&*again, Filter::default()).await, ["two", "one"]);
}
