//! History as Kubernetes objects.

use std::sync::Arc;

use atoll_api::DecisionId;
use atoll_api::binding::PendingReplicas;
use atoll_history::api::{self, Kind, LABEL_CLUSTER, Query};
use atoll_history::{
    Detail, Event, MemberEvent, MemberEventKind, MemoryStore, Milestone, Row, Stage, Store,
    StoredRecord, outbox,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::{record, shares};

const ID: &str = "0123456789abcdef0123456789abcdef";

async fn store() -> Arc<dyn Store> {
    let store = MemoryStore::default();
    let mut scaled = record(ID, 1, "web", 100);
    scaled.before = Some(shares(&[("member1", 2), ("member2", 1)]));
    scaled.after = shares(&[("member1", 4), ("member2", 2)]);
    scaled.record.pending = vec![PendingReplicas { replicas: 3, reason: "no room".to_owned() }];
    scaled.reason = Some("replicas went from 3 to 9".to_owned());
    scaled.detail = Some(Detail::encode(&json!({"verdicts": []})));
    let mut config = record("config", 2, "settings", 50);
    config.binding.namespace = Some("bank".to_owned());
    let mut role = record("role", 3, "admin", 60);
    role.binding.namespace = None;
    role.before = None;
    store.insert(&[config, role, scaled]).await.unwrap();
    Arc::new(store)
}

#[tokio::test]
async fn a_decision_is_an_object_with_its_detail_and_a_line_in_a_table() {
    let store = store().await;
    let get = api::get(&*store, Kind::Decision, Some("shop"), ID).await.unwrap().unwrap();
    assert_eq!(get["apiVersion"], "history.atoll.dev/v1alpha1");
    assert_eq!(get["kind"], "Decision");
    assert_eq!(
        get["metadata"],
        json!({
            "name": ID, "namespace": "shop", "uid": "01234567-89ab-cdef-0123-456789abcdef",
            "resourceVersion": "3", "creationTimestamp": "1970-01-01T00:01:40Z",
            "labels": {
                "history.atoll.dev/trigger": "Scale", "history.atoll.dev/outcome": "Placed",
                "history.atoll.dev/workload-kind": "Deployment", "history.atoll.dev/workload": "web"
            }
        })
    );
    assert_eq!(
        get["spec"]["moves"],
        json!([{"to": "member1", "count": 2}, {"to": "member2", "count": 1}])
    );
    assert_eq!(get["spec"]["detail"], json!({"verdicts": []}));
    let now = Timestamp::from_second(160).unwrap();
    assert_eq!(
        api::cells(&get, now)[..9],
        [
            json!(ID),
            json!("60s"),
            json!("deployment/web"),
            json!("Scale"),
            json!("Placed"),
            json!("member1 2, member2 1 -> member1 4, member2 2"),
            json!("replicas went from 3 to 9; 3 pending: no room"),
            json!(3),
            json!(3)
        ]
    );
    // The same id is not found under another namespace or kind.
    assert_eq!(api::get(&*store, Kind::Decision, Some("bank"), ID).await.unwrap(), None);
    assert_eq!(api::get(&*store, Kind::ClusterDecision, None, ID).await.unwrap(), None);
    let role = api::get(&*store, Kind::ClusterDecision, None, "role").await.unwrap().unwrap();
    assert_eq!(role["kind"], "ClusterDecision");
    assert!(role["spec"].get("before").is_none() && role["spec"].get("moves").is_none());
    assert!(role["spec"]["detailMissing"].as_str().unwrap().contains("not stored"));
}

#[tokio::test]
async fn lists_select_page_and_keep_to_their_kind() {
    let store = store().await;
    let names = |list: &api::List| -> Vec<String> {
        let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
        list.items.iter().map(name).collect()
    };
    let list = async |query: &Query, limit, token: Option<&str>| {
        api::list(&*store, query, limit, token).await.unwrap()
    };
    let all = Query::new(Kind::Decision, None);
    let first = list(&all, 1, None).await;
    assert_eq!((names(&first), first.resource_version.as_str()), (vec![ID.to_owned()], "3"));
    assert!(first.items[0]["spec"].get("detail").is_none());
    let second = list(&all, 1, first.continue_token.as_deref()).await;
    assert_eq!((names(&second), second.continue_token), (vec!["config".to_owned()], None));
    assert_eq!(names(&list(&Query::new(Kind::ClusterDecision, None), 0, None).await), ["role"]);
    let mut of_cluster = Query::new(Kind::Decision, None);
    of_cluster.label(LABEL_CLUSTER, "member1").unwrap();
    assert_eq!(names(&list(&of_cluster, 0, None).await), [ID]);
    let mut named = Query::new(Kind::Decision, Some("shop"));
    named.field("metadata.name", "config").unwrap();
    assert_eq!(names(&list(&named, 0, None).await), Vec::<String>::new());
    let error = api::list(&*store, &all, 0, Some("1 OR 1=1")).await.unwrap_err();
    assert!(matches!(&error, api::ApiError::Request(e) if e.field == "continue"), "{error}");
}

#[tokio::test]
async fn followers_get_what_matches_after_their_version() {
    let store = store().await;
    let query = Query::new(Kind::Decision, Some("shop"));
    let mut from_start = api::follow(store.clone(), &query, Some("1")).await.unwrap();
    assert_eq!(from_start.next().await.unwrap().unwrap()["metadata"]["name"], ID);
    let mut from_now = api::follow(store.clone(), &query, None).await.unwrap();
    let waiting = tokio::spawn(async move { from_now.next().await.unwrap().unwrap() });
    let mut other = record("other", 4, "x", 200);
    other.binding.namespace = Some("bank".to_owned());
    store.insert(&[other]).await.unwrap();
    store.insert(&[record("mine", 5, "y", 201)]).await.unwrap();
    assert_eq!(waiting.await.unwrap()["metadata"]["name"], "mine");
    assert_eq!(from_start.next().await.unwrap().unwrap()["metadata"]["name"], "mine");
    assert!(api::follow(store, &query, Some("x")).await.is_err());
}

#[tokio::test]
async fn what_followed_is_the_status_and_holes_are_no_times() {
    let store = store().await;
    let of = record(ID, 1, "web", 100).record;
    let step = |cluster: Option<&str>, stage, millis: i64| {
        let at = Timestamp::from_millisecond(100_000 + millis).unwrap();
        Event::Milestone(Milestone::of(&of, cluster, stage, at))
    };
    store
        .note(&[
            step(None, Stage::Committed, 20),
            step(Some("member1"), Stage::Dispatched, 30),
            step(Some("member1"), Stage::Applied, 200),
            step(Some("member1"), Stage::Healthy, 1_520),
            step(Some("member2"), Stage::Applied, 520),
        ])
        .await
        .unwrap();
    let get = api::get(&*store, Kind::Decision, Some("shop"), ID).await.unwrap().unwrap();
    assert_eq!(
        get["status"],
        json!({
            "committed": "1970-01-01T00:01:40.02Z",
            "applied": "1970-01-01T00:01:40.52Z",
            "notKnownHealthy": ["member2"],
            "members": [
                {"name": "member1", "dispatched": "1970-01-01T00:01:40.03Z",
                 "applied": "1970-01-01T00:01:40.2Z", "healthy": "1970-01-01T00:01:41.52Z"},
                {"name": "member2", "applied": "1970-01-01T00:01:40.52Z"},
            ],
        })
    );
    let now = Timestamp::from_second(160).unwrap();
    assert_eq!(api::cells(&get, now)[11..], [json!("0.5s"), json!("-")]);
    store.note(&[step(Some("member2"), Stage::Healthy, 3_020)]).await.unwrap();
    let list = api::list(&*store, &Query::new(Kind::Decision, None), 0, None).await.unwrap();
    assert_eq!(list.items[0]["status"]["healthy"], "1970-01-01T00:01:43.02Z");
    assert_eq!(list.items[0]["status"]["slowest"], "member2");
    assert_eq!(api::cells(&list.items[0], now)[11..], [json!("0.5s"), json!("3s")]);
    // No event was recorded for this one.
    assert_eq!(list.items[1]["status"], json!({}));
    assert_eq!(api::cells(&list.items[1], now)[11..], [json!("-"), json!("-")]);
}

#[tokio::test]
async fn what_happened_to_members_is_listed_got_and_followed() {
    let store = store().await;
    let event = |cluster: &str, second, kind, reason: &str| {
        Event::Member(MemberEvent {
            cluster: cluster.into(),
            uid: None,
            at: Timestamp::from_second(second).unwrap(),
            kind,
            reason: reason.to_owned(),
            message: "for people".to_owned(),
        })
    };
    let lost = event("member1", 20, MemberEventKind::Lost, "Silent");
    let tainted = event("member1", 20, MemberEventKind::Tainted, "atoll.dev/unreachable");
    store
        .note(&[event("member1", 10, MemberEventKind::Joined, "Enrolled"), lost, tainted])
        .await
        .unwrap();
    let used = event("member1", 18, MemberEventKind::Used, "cpu=50");
    store.note(&[event("member2", 15, MemberEventKind::Ready, "x"), used]).await.unwrap();
    let events = |list: &api::List| -> Vec<String> {
        list.items.iter().map(|i| i["spec"]["event"].as_str().unwrap().to_owned()).collect()
    };
    let mut query = Query::new(Kind::MemberEvent, None);
    let all = api::list(&*store, &query, 0, None).await.unwrap();
    assert_eq!(all.items.len(), 4);
    for item in &all.items {
        let name = item["metadata"]["name"].as_str().unwrap();
        let got = api::get(&*store, Kind::MemberEvent, None, name).await.unwrap();
        assert_eq!(got.as_ref(), Some(item), "{name}");
        assert_eq!(
            api::cells(item, Timestamp::UNIX_EPOCH).len(),
            Kind::MemberEvent.columns().len()
        );
    }
    assert_eq!(api::get(&*store, Kind::MemberEvent, None, "member1.zz-x").await.unwrap(), None);
    let mut samples = Query::new(Kind::MemberEvent, None);
    samples.field("spec.event", "Used").unwrap();
    let error = samples.field("spec.event", "Lost").unwrap_err().to_string();
    assert!(error.contains("contradicts"), "{error}");
    let samples = api::list(&*store, &samples, 0, None).await.unwrap();
    assert_eq!(events(&samples), ["Used"]);
    let name = samples.items[0]["metadata"]["name"].as_str().unwrap();
    let got = api::get(&*store, Kind::MemberEvent, None, name).await.unwrap();
    assert_eq!(got.as_ref(), Some(&samples.items[0]));
    query.label(LABEL_CLUSTER, "member1").unwrap();
    query.field("since", "1970-01-01T00:00:15Z").unwrap();
    let mut some = events(&api::list(&*store, &query, 0, None).await.unwrap());
    some.sort();
    assert_eq!(some, ["Lost", "Tainted"]);
    let first = api::list(&*store, &query, 1, None).await.unwrap();
    let second = api::list(&*store, &query, 1, first.continue_token.as_deref()).await.unwrap();
    assert_eq!((first.items.len(), second.items.len(), second.continue_token), (1, 1, None));
    for field in ["spec.trigger", "spec.workload.name"] {
        let error = query.field(field, "Scale").unwrap_err().to_string();
        assert!(error.contains("fields are spec.cluster"), "{error}");
    }
    let version = all.resource_version.as_str();
    assert_eq!(version, "20000000");
    let mut follower = api::follow(store.clone(), &query, Some(version)).await.unwrap();
    store
        .note(&[
            event("member2", 30, MemberEventKind::Left, "x"),
            event("member1", 30, MemberEventKind::Ready, "x"),
        ])
        .await
        .unwrap();
    assert_eq!(follower.next().await.unwrap().unwrap()["spec"]["event"], "Ready");
}

#[test]
fn an_unreadable_row_and_a_damaged_detail_say_so() {
    let entry = StoredRecord::Unreadable {
        id: "x".into(),
        namespace: Some("shop".to_owned()),
        at: Timestamp::from_second(100).unwrap(),
        error: "column mode: unknown variant `Wild`".to_owned(),
    };
    let object = api::object(&Row { seq: 1, entry }, true);
    let cells = api::cells(&object, Timestamp::from_second(100).unwrap());
    assert_eq!(cells.len(), Kind::Decision.columns().len());
    assert!(cells[6].as_str().unwrap().contains("unknown variant `Wild`"), "{cells:?}");
    let mut damaged = record("y", 1, "web", 100);
    damaged.detail = Some(Detail::from_bytes(vec![1, 2, 3]));
    let row = Row { seq: 2, entry: StoredRecord::Record(Box::new(damaged)) };
    let object = api::object(&row, true);
    assert!(object["spec"]["detailMissing"].as_str().unwrap().contains("unpack"), "{object}");
    assert_eq!(
        api::cells(&object, Timestamp::from_second(100).unwrap()).len(),
        Kind::Decision.columns().len()
    );
}

#[test]
fn the_schema_knows_every_field_of_an_object() {
    let mut full = record(ID, 1, "web", 100);
    full.record.parent = Some("p".into());
    full.record.affinity_name = Some("a".to_owned());
    full.gap = Some(atoll_history::Gap { from: "f".into(), count: 2 });
    full.detail = Some(Detail::encode(&json!({})));
    let object = api::object(&Row { seq: 1, entry: StoredRecord::Record(Box::new(full)) }, true);
    let schema = api::schema(Kind::Decision);
    for field in object["spec"].as_object().unwrap().keys() {
        assert!(schema["properties"]["spec"]["properties"].get(field).is_some(), "{field}");
    }
}

#[test]
fn a_binding_holds_its_records_in_order() {
    let of = record("x", 1, "web", 0);
    let decision = |id: &str, parent: Option<&str>| {
        let mut decision = of.record.clone();
        (decision.id, decision.parent) = (id.into(), parent.map(DecisionId::from));
        decision
    };
    let spec: atoll_api::binding::ResourceBindingSpec = serde_json::from_value(json!({
        "resource": of.workload,
        "clusters": [{"name": "a", "replicas": 3}],
        "decision": decision("4", Some("3")),
        "unrecorded": [
            {"decision": decision("1", None), "clusters": [{"name": "a", "replicas": 1}]},
            {"decision": decision("3", Some("2")), "clusters": [{"name": "a", "replicas": 2}], "count": 2, "from": "2"},
        ],
    }))
    .unwrap();
    let records = outbox::records(&of.binding, &spec);
    let ids: Vec<_> = records.iter().map(|record| record.record.id.as_str()).collect();
    assert_eq!(ids, ["1", "3", "4"]);
    assert_eq!(records[0].before, Some(vec![]));
    // The shares of the decision before the last one of a gap are unknown.
    assert_eq!(records[1].before, None);
    assert_eq!(records[1].gap.as_ref().unwrap().count, 2);
    assert_eq!(records[2].before, Some(shares(&[("a", 2)])));
    assert_eq!(records[2].after, shares(&[("a", 3)]));
    assert_eq!(records[2].binding, of.binding);
}
