//! Merged answers, with members and a hub of the test's own making. Time is simulated.

use std::sync::Mutex;
use std::time::Duration;

use atoll_controller::members::Chunks;
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body as HubBody;
use serde_json::{Value, json};

use super::*;

mod watches;

/// What a member does with a path and query.
enum Does {
    Answers(u16, Value),
    /// Sends these chunks, and then nothing more.
    Streams(Vec<String>),
    /// Sends these chunks, and then fails.
    Breaks(Vec<String>),
    Ends(Vec<String>),
    Hangs,
    Refuses(ProxyError),
}

type Behaviour = dyn Fn(&str, &str) -> Does + Send + Sync;

/// Members that do what a function says, and what they were asked.
struct Members {
    does: Box<Behaviour>,
    asked: Mutex<Vec<String>>,
}

impl Reach for Members {
    fn ask<'a>(
        &'a self,
        member: &'a str,
        request: MemberRequest,
    ) -> BoxFuture<'a, Result<MemberAnswer, ProxyError>> {
        assert_eq!((request.method, request.user.name.as_str()), (Method::GET, "jane"));
        self.asked.lock().unwrap().push(format!("{member} {}", request.path));
        let does = (self.does)(member, request.path.as_str());
        let chunks = |parts: Vec<String>| stream::iter(parts).map(|part| Ok(Bytes::from(part)));
        let lost = ProxyError::Lost { member: member.to_owned(), why: "cut".to_owned() };
        let answer = |status: u16, body: Chunks<ProxyError>| {
            let status = StatusCode::from_u16(status).unwrap();
            Ok(MemberAnswer { status, headers: HeaderMap::new(), body })
        };
        async move {
            match does {
                Does::Answers(code, value) => answer(code, chunks(vec![value.to_string()]).boxed()),
                Does::Streams(parts) => answer(200, chunks(parts).chain(stream::pending()).boxed()),
                Does::Breaks(parts) => {
                    answer(200, chunks(parts).chain(stream::iter([Err(lost)])).boxed())
                }
                Does::Ends(parts) => answer(200, chunks(parts).boxed()),
                Does::Hangs => std::future::pending().await,
                Does::Refuses(error) => Err(error),
            }
        }
        .boxed()
    }
}

/// A hub with Clusters, on which jane may reach those named in `allowed`; `*` = all.
#[derive(Clone)]
struct Hub {
    clusters: Arc<Mutex<Vec<&'static str>>>,
    allowed: Arc<Mutex<Vec<&'static str>>>,
    reviews: Arc<Mutex<Vec<String>>>,
}

impl Hub {
    fn with(clusters: &[&'static str], allowed: &[&'static str]) -> Self {
        Self {
            clusters: Arc::new(Mutex::new(clusters.to_vec())),
            allowed: Arc::new(Mutex::new(allowed.to_vec())),
            reviews: Arc::default(),
        }
    }

    fn client(&self) -> Client {
        let hub = self.clone();
        let service = tower::service_fn(move |request: Request<HubBody>| {
            let hub = hub.clone();
            async move {
                let (parts, body) = request.into_parts();
                let sent: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap())
                    .unwrap_or_default();
                let (code, answer) = hub.answer(&parts, &sent);
                let response = Response::builder().status(code);
                let body = HubBody::from(answer.to_string().into_bytes());
                Ok::<_, std::convert::Infallible>(response.body(body).unwrap())
            }
        });
        Client::new(service, "default")
    }

    fn answer(&self, parts: &Parts, sent: &Value) -> (u16, Value) {
        if parts.method == Method::POST {
            let attributes = &sent["spec"]["resourceAttributes"];
            assert_eq!(attributes["subresource"], "proxy");
            let name = attributes["name"].as_str().unwrap_or("*").to_owned();
            let allowed = self.allowed.lock().unwrap().iter().any(|known| *known == name);
            self.reviews.lock().unwrap().push(name);
            return (
                201,
                json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                    "metadata": {}, "spec": {}, "status": {"allowed": allowed}}),
            );
        }
        if parts.uri.query().unwrap_or_default().contains("labelSelector=%2F") {
            return (
                400,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": 400, "reason": "BadRequest", "message": "no selector"}),
            );
        }
        let clusters = self.clusters.lock().unwrap();
        let items: Vec<_> = clusters
            .iter()
            .map(|name| json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": name}}))
            .collect();
        (
            200,
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": items}),
        )
    }
}

struct Fleet {
    api: FleetApi,
    members: Arc<Members>,
}

impl Fleet {
    fn of(hub: &Hub, does: impl Fn(&str, &str) -> Does + Send + Sync + 'static) -> Self {
        let members = Arc::new(Members { does: Box::new(does), asked: Mutex::default() });
        Self { api: FleetApi::new(hub.client(), members.clone()), members }
    }

    async fn get(&self, path: &str, accept: &str) -> Response<Body> {
        let parts = Request::get("/").header(ACCEPT, accept).body(()).unwrap().into_parts().0;
        let jane = Identity::user("jane", []);
        self.api.answer(jane, &parts, path).await
    }

    async fn json(&self, path: &str) -> (u16, Vec<String>, Value) {
        let answer = self.get(path, "application/json").await;
        let warnings = warnings(&answer);
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (code, warnings, serde_json::from_slice(&body).unwrap())
    }
}

fn warnings(answer: &Response<Body>) -> Vec<String> {
    let all = answer.headers().get_all("warning").iter();
    all.map(|value| value.to_str().unwrap().to_owned()).collect()
}

fn pods(names: &[&str], next: Option<&str>) -> Value {
    let items: Vec<_> = names.iter().map(|name| json!({"metadata": {"name": name}})).collect();
    json!({"kind": "PodList", "apiVersion": "v1", "items": items,
        "metadata": {"resourceVersion": "7", "continue": next.unwrap_or_default()}})
}

/// Member and name of each object.
fn found(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| {
            let cluster = &item["metadata"]["annotations"]["cluster.atoll.dev/name"];
            format!("{}/{}", cluster.as_str().unwrap(), item["metadata"]["name"].as_str().unwrap())
        })
        .collect()
}

const PODS: &str = "/api/v1/pods";

#[tokio::test(start_paused = true)]
async fn lists_of_members_are_one_list_and_silent_members_are_named() {
    let hub = Hub::with(&["m3", "m1", "m2", "m4", "m5"], &["*"]);
    let fleet = Fleet::of(&hub, |member, _| match member {
        "m1" => Does::Answers(200, pods(&["a", "b"], None)),
        "m2" => Does::Hangs,
        "m3" => Does::Refuses(ProxyError::NotConnected("m3".to_owned())),
        "m4" => Does::Answers(403, json!({"kind": "Status", "code": 403, "message": "no\nway"})),
        _ => Does::Answers(200, pods(&["c"], None)),
    });
    let (code, warnings, list) = fleet.json(&format!("{PODS}?labelSelector=app%3Dweb")).await;
    assert_eq!((code, found(&list)), (200, ["m1/a", "m1/b", "m5/c"].map(str::to_owned).to_vec()));
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("PodList"), &json!("v1")));
    let texts = ["m2: no answer within 3 s", "m3: member m3 is not connected", r"m4: no\\nway"];
    assert_eq!(warnings, texts.map(|text| format!("299 - \"{text}\"")));
    let asked = fleet.members.asked.lock().unwrap()[0].clone();
    assert!(asked.contains("labelSelector=app%3Dweb") && asked.contains("limit=500"), "{asked}");

    // Nobody answers: the caller hears why.
    let fleet = Fleet::of(&hub, |_, _| Does::Answers(404, json!({"code": 404, "message": "none"})));
    assert_eq!(fleet.json(PODS).await.0, 404);
    let fleet = Fleet::of(&hub, |_, _| Does::Hangs);
    let (code, _, status) = fleet.json(PODS).await;
    assert!(
        code == 503 && status["message"].as_str().unwrap().contains("m1: no answer"),
        "{status}"
    );
    let fleet = Fleet::of(&hub, |_, _| Does::Answers(200, json!({"kind": "Pod", "metadata": {}})));
    assert_eq!(fleet.json("/api/v1/namespaces/x/pods/y").await.0, 400);
    let (code, _, _) = fleet.json(&format!("{PODS}?clusterSelector=%2F")).await;
    assert_eq!(code, 400, "the hub refuses the selector");
    assert_eq!(fleet.json("/api/../secrets").await.0, 400);
    // Documents about the API come from one member.
    let fleet = Fleet::of(&hub, |member, _| match member {
        "m1" => Does::Hangs,
        _ => Does::Answers(200, json!({"kind": "APIVersions"})),
    });
    assert_eq!(fleet.json("/api").await.2, json!({"kind": "APIVersions"}));
}

#[tokio::test(start_paused = true)]
async fn only_members_that_the_caller_may_reach_are_asked_and_decisions_are_kept_for_30_seconds() {
    let hub = Hub::with(&["m1", "m2", "m3"], &["m1", "m3"]);
    let fleet = Fleet::of(&hub, |_, _| Does::Answers(200, pods(&["a"], None)));
    let two = ["m1/a", "m3/a"].map(str::to_owned).to_vec();
    assert_eq!(found(&fleet.json(PODS).await.2), two);
    assert_eq!(*hub.reviews.lock().unwrap(), ["*", "m1", "m2", "m3"], "unnamed first");
    *hub.allowed.lock().unwrap() = vec![];
    assert_eq!(found(&fleet.json(PODS).await.2), two);
    assert_eq!(hub.reviews.lock().unwrap().len(), 4);
    tokio::time::advance(Duration::from_secs(31)).await;
    let (code, _, status) = fleet.json(PODS).await;
    assert_eq!((code, &status["reason"]), (403, &json!("Forbidden")));
    assert_eq!(fleet.members.asked.lock().unwrap().len(), 4, "nobody else was asked");
}

/// A page of `all` after the place that the path names.
fn page_of(all: &[&str], path: &str) -> Value {
    let value = |name: &str| {
        let (_, rest) = path.split_once(&format!("{name}="))?;
        rest.split('&').next()?.parse::<usize>().ok()
    };
    let (from, limit) = (value("continue").unwrap_or(0), value("limit").unwrap());
    let end = all.len().min(from + limit);
    let next = (end < all.len()).then(|| end.to_string());
    pods(&all[from..end], next.as_deref())
}

#[tokio::test(start_paused = true)]
async fn pages_go_through_all_members_and_have_each_object_once() {
    let names: Vec<String> = (0..30).map(|number| format!("m{number:02}")).collect();
    let names: Vec<&'static str> = names.into_iter().map(|name| &*name.leak()).collect();
    let hub = Hub::with(&names, &["*"]);
    let has = |member: &str| -> &[&str] {
        match member.as_bytes()[2] {
            b'0' => &["a", "b", "c", "d", "e", "f", "g"],
            b'1' | b'2' => &[],
            _ => &["a", "b"],
        }
    };
    let fleet = Fleet::of(&hub, move |member, path| match member {
        "m13" => Does::Refuses(ProxyError::NotConnected(member.to_owned())),
        _ => Does::Answers(200, page_of(has(member), path)),
    });
    let expected: Vec<String> = names
        .iter()
        .filter(|member| **member != "m13")
        .flat_map(|member| has(member).iter().map(move |name| format!("{member}/{name}")))
        .collect();
    for limit in [1, 3, 7, 500] {
        let (mut all, mut next, mut warned) = (Vec::new(), String::new(), 0);
        loop {
            let path = format!("{PODS}?limit={limit}&continue={next}");
            let (code, warnings, list) = fleet.json(&path).await;
            assert_eq!(code, 200, "{list}");
            warned += warnings.len();
            let page = found(&list);
            assert!(page.len() <= limit);
            all.extend(page);
            next = list["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            if next.is_empty() {
                break;
            }
        }
        assert_eq!(all, expected, "limit {limit}");
        assert!(warned > 0, "m13 is named");
    }
    assert_eq!(found(&fleet.json(PODS).await.2), expected, "without a limit");

    // A member whose pages do not end, and one that fails after its first page.
    // Their entries are taken back while the header is not sent.
    let fails = |member: &'static str, later: fn() -> Does| {
        Fleet::of(&hub, move |found, path| match (found == member, path.contains("continue")) {
            (false, _) => Does::Answers(200, pods(&["a"], None)),
            (true, false) => Does::Answers(200, pods(&["x"], Some("more"))),
            (true, true) => later(),
        })
    };
    let gone = || Does::Answers(410, json!({"code": 410, "message": "too old"}));
    let more = || Does::Answers(200, pods(&[], Some("more")));
    for (member, later, why) in [
        ("m00", gone as fn() -> Does, "too old"),
        ("m05", gone, "too old"),
        ("m29", more, "does not end"),
        ("m00", || Does::Hangs, "no answer within 3 s"),
    ] {
        let (code, warnings, list) = fails(member, later).json(PODS).await;
        assert_eq!((code, found(&list).len()), (200, 29), "{member}: {list}");
        assert!(!found(&list).iter().any(|name| name.starts_with(member)), "{list}");
        assert!(warnings.len() == 1 && warnings[0].contains(why), "{warnings:?}");
    }
    // A client that has its first page begins again.
    let fleet = fails("m00", gone);
    let (_, _, list) = fleet.json(&format!("{PODS}?limit=1")).await;
    let next = list["metadata"]["continue"].as_str().unwrap();
    assert_eq!(fleet.json(&format!("{PODS}?limit=1&continue={next}")).await.0, 410);
    assert_eq!(fleet.json(&format!("{PODS}?continue=x")).await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn a_long_list_is_streamed_and_names_silent_members_first() {
    let hub = Hub::with(&["m1", "m2", "m3", "m4", "m5"], &["*"]);
    let long = "x".repeat(3 << 20);
    let fleet = Fleet::of(&hub, move |member, _| match member {
        "m5" => Does::Hangs,
        _ => {
            let mut page = pods(&["a"], None);
            page["items"][0]["data"] = long.as_str().into();
            Does::Answers(200, page)
        }
    });
    // All fit into what is held back but the last.
    let (_, warnings, list) = fleet.json(PODS).await;
    assert_eq!((found(&list).len(), warnings.len()), (4, 1));

    let long = "x".repeat(3 << 20);
    let fleet = Fleet::of(&hub, move |member, path| match member {
        "m4" if path.contains("limit=500") => Does::Breaks(vec!["{".to_owned()]),
        "m5" => Does::Hangs,
        _ => {
            let next = (!path.contains("continue") && member != "m4").then_some("1");
            let mut page = pods(&["a"], next);
            page["items"][0]["data"] = long.as_str().into();
            Does::Answers(200, page)
        }
    });
    let answer = fleet.get(PODS, "*/*").await;
    assert!(super::tests::warnings(&answer)[0].contains("m5"));
    let body = answer.into_body().collect().await;
    assert!(body.is_err(), "an answer that lacks a member's objects is not complete");
}

#[tokio::test(start_paused = true)]
async fn tables_have_a_first_column_for_the_member() {
    let hub = Hub::with(&["m1", "m2"], &["*"]);
    let fleet = Fleet::of(&hub, |member, _| {
        let columns: &[&str] =
            if member == "m1" { &["Name", "Ready"] } else { &["Name", "New", "Ready"] };
        let cells = if member == "m1" { json!(["a", "1/1"]) } else { json!(["b", 4, Value::Null]) };
        let columns: Vec<_> =
            columns.iter().map(|name| json!({"name": name, "type": "string"})).collect();
        Does::Answers(
            200,
            json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {},
            "columnDefinitions": columns,
            "rows": [{"cells": cells, "object": {"metadata": {"name": "n"}}}]}),
        )
    });
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let answer = fleet.get(PODS, accept).await.into_body().collect().await.unwrap().to_bytes();
    let table: Value = serde_json::from_slice(&answer).unwrap();
    let columns = table["columnDefinitions"].as_array().unwrap();
    let columns: Vec<_> = columns.iter().map(|column| column["name"].as_str().unwrap()).collect();
    assert_eq!(columns, ["Cluster", "Name", "Ready"]);
    let cells: Vec<_> = (0..2).map(|row| table["rows"][row]["cells"].to_string()).collect();
    assert_eq!(cells, [r#"["m1","a","1/1"]"#, r#"["m2","b",""]"#]);
    let mark = "/rows/1/object/metadata/annotations/cluster.atoll.dev~1name";
    assert_eq!(table.pointer(mark), Some(&json!("m2")));
}

#[tokio::test(start_paused = true)]
async fn a_list_asks_each_member_twice_at_most_and_once_more_for_each_further_page() {
    let names: Vec<String> = (0..40).map(|number| format!("m{number:02}")).collect();
    let names: Vec<&'static str> = names.into_iter().map(|name| &*name.leak()).collect();
    let hub = Hub::with(&names, &["*"]);
    let all: Vec<String> = (0..2_600).map(|number| format!("p{number}")).collect();
    let fleet = Fleet::of(&hub, move |_, path| {
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        Does::Answers(200, page_of(&all, path))
    });
    assert_eq!(found(&fleet.json(PODS).await.2).len(), 40 * 2_600);
    // Six pages of each, and one question whether it answers. The first pages of seven others are asked for in vain once.
    let asked = fleet.members.asked.lock().unwrap().len();
    assert!(asked <= 40 * (6 + 1) + 7, "{asked}");
}

#[tokio::test(start_paused = true)]
async fn many_silent_members_cost_seconds_together_and_limits_of_rates_make_a_list_wait() {
    let names: Vec<String> = (0..100).map(|number| format!("m{number:02}")).collect();
    let names: Vec<&'static str> = names.into_iter().map(|name| &*name.leak()).collect();
    let hub = Hub::with(&names, &["*"]);
    let fleet = Fleet::of(&hub, |member, _| match member {
        "m50" => Does::Answers(200, pods(&["a"], None)),
        _ => Does::Hangs,
    });
    let began = tokio::time::Instant::now();
    let (_, warnings, list) = fleet.json(PODS).await;
    assert_eq!((found(&list).len(), warnings.len()), (1, 21), "20 names, and how many more");
    assert!(began.elapsed() < Duration::from_secs(7), "{:?}", began.elapsed());

    let busy_until = began + began.elapsed() + Duration::from_secs(2);
    let hub = Hub::with(&["m1"], &["*"]);
    let fleet = Fleet::of(&hub, move |_, _| match tokio::time::Instant::now() < busy_until {
        true => Does::Refuses(ProxyError::Busy("too many requests".to_owned())),
        false => Does::Answers(200, pods(&["a"], None)),
    });
    assert_eq!(found(&fleet.json(PODS).await.2), ["m1/a"]);
    let fleet = Fleet::of(&hub, |_, _| Does::Refuses(ProxyError::Busy("too many".to_owned())));
    assert_eq!(fleet.json(PODS).await.0, 503);
}

#[tokio::test(start_paused = true)]
async fn every_page_of_a_list_has_the_versions_of_all_members() {
    let hub = Hub::with(&["m1", "m2", "m3"], &["*"]);
    let fleet = Fleet::of(&hub, |member, path| match path.contains("watch=true") {
        true => Does::Streams(vec![match path.contains("resourceVersion=7") {
            true => event("DELETED", "a", 8),
            false => event("ADDED", member, 1),
        }]),
        false => Does::Answers(200, page_of(&["a", "b"], path)),
    });
    let (mut next, mut pages) = (String::new(), 0);
    loop {
        let (_, _, list) = fleet.json(&format!("{PODS}?limit=2&continue={next}")).await;
        let version = list["metadata"]["resourceVersion"].as_str().unwrap();
        let path = format!("{PODS}?watch=1&resourceVersion={version}");
        let mut body = fleet.get(&path, "*/*").await.into_body();
        let seen = events(&mut body, 3).await;
        assert_eq!(seen, ["DELETED m1/a", "DELETED m2/a", "DELETED m3/a"], "page {pages}");
        pages += 1;
        next = list["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if next.is_empty() {
            break;
        }
    }
    assert_eq!(pages, 3);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_reads_ends_and_frees_its_memory() {
    let hub = Hub::with(&["m1", "m2", "m3", "m4"], &["*"]);
    let long = "x".repeat(3 << 20);
    let fleet = Fleet::of(&hub, move |_, path| {
        let mut page = pods(&["a"], (!path.contains("continue")).then_some("1"));
        page["items"][0]["data"] = long.as_str().into();
        Does::Answers(200, page)
    });
    let mut body = fleet.get(PODS, "*/*").await.into_body();
    body.frame().await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(200)).await;
    // What was on its way arrives, and then the error.
    let mut end = Ok(());
    while let Some(frame) = body.frame().await {
        end = frame.map(drop).map_err(|error| error.to_string());
    }
    assert_eq!(end, Err("not read for 60 s".to_owned()));
    let read = fleet.get(PODS, "*/*").await.into_body().collect().await.unwrap().to_bytes();
    assert!(read.len() > 20 << 20);
}

fn event(kind: &str, name: &str, version: u32) -> String {
    let object =
        json!({"kind": "Pod", "metadata": {"name": name, "resourceVersion": version.to_string()}});
    format!("{}\n", json!({"type": kind, "object": object}))
}

/// The next events, as `TYPE member/name`.
async fn events(body: &mut Body, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    while all.len() < count {
        let Some(frame) = body.frame().await else { break };
        let line = frame.unwrap().into_data().unwrap();
        let event: Value = serde_json::from_slice(&line).unwrap();
        let kind = event["type"].as_str().unwrap();
        if kind == "ERROR" {
            all.push(format!("ERROR {}", event["object"]["code"]));
            continue;
        }
        let found = found(&json!({"items": [event["object"]]}));
        all.push(format!("{kind} {}", found[0]));
    }
    all.sort();
    all
}

#[tokio::test(start_paused = true)]
async fn a_member_that_answers_with_another_shape_affects_only_its_own_lines() {
    let hub = Hub::with(&["m1", "m2"], &["*"]);
    let many: Vec<_> = (0..400_000).map(|_| json!({})).collect();
    for hostile in [
        json!([]),
        json!(5),
        json!({"kind": "PodList", "items": [5]}),
        json!({"kind": "PodList", "items": "all"}),
        json!({"kind": "PodList", "items": many}),
        json!({"kind": "Table", "rows": [5]}),
        json!({"kind": "Table", "rows": [{"object": 5}]}),
    ] {
        let answer = hostile.clone();
        let fleet = Fleet::of(&hub, move |member, _| match member {
            "m1" => Does::Answers(200, answer.clone()),
            _ => Does::Answers(200, pods(&["a"], None)),
        });
        let (code, warnings, list) = fleet.json(PODS).await;
        let hostile: String = hostile.to_string().chars().take(80).collect();
        // A table of one row is a table: the other member's list does not fit into it.
        if hostile.contains("object") {
            assert!(warnings[0].contains("m2: "), "{hostile}: {warnings:?}");
            continue;
        }
        assert_eq!((code, found(&list).len()), (200, 1), "{hostile}: {list}");
        assert!(warnings[0].contains("m1: "), "{hostile}: {warnings:?}");
    }
}
