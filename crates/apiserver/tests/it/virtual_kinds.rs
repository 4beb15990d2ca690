//! Mounted kinds, whose objects are stored elsewhere.

use std::sync::Arc;

use atoll_apimachinery::{
    ApiError,
    read_only::{
        Column, VirtualEvent, VirtualKind, VirtualList, VirtualQuery, VirtualResource,
        VirtualStream,
    },
    selector::SelectableField,
};
use futures::{
    StreamExt,
    future::{BoxFuture, FutureExt, ready},
    stream,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::common::Api;

struct Decisions;

const DECISIONS: &str = "/apis/history.example.com/v1/namespaces/shop/decisions";

fn decision(name: &str, cluster: &str) -> Value {
    json!({
        "apiVersion": "history.example.com/v1", "kind": "Decision",
        "metadata": {"name": name, "namespace": "shop", "resourceVersion": "7", "labels": {"c": cluster}},
        "spec": {"cluster": cluster},
    })
}

impl VirtualResource for Decisions {
    fn kind(&self) -> VirtualKind {
        VirtualKind {
            group: "history.example.com".to_owned(),
            version: "v1".to_owned(),
            kind: "Decision".to_owned(),
            plural: "decisions".to_owned(),
            singular: "decision".to_owned(),
            short_names: vec!["dec".to_owned()],
            categories: Vec::new(),
            namespaced: true,
            selectable: vec![SelectableField::path("spec.cluster")],
            columns: vec![Column::text("Name"), Column::text("Cluster").wide()],
            schema: None,
        }
    }

    fn cells(&self, object: &Value, _: Timestamp) -> Vec<Value> {
        vec![object["metadata"]["name"].clone(), object["spec"]["cluster"].clone()]
    }

    fn get<'a>(
        &'a self,
        namespace: Option<&'a str>,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, ApiError>> {
        assert_eq!(namespace, Some("shop"));
        ready(Ok((name == "one").then(|| decision("one", "east")))).boxed()
    }

    fn list(&self, query: VirtualQuery) -> BoxFuture<'_, Result<VirtualList, ApiError>> {
        let selectable = self.kind().selectable;
        let all = [decision("one", "east"), decision("two", "west")];
        let mut items: Vec<Value> =
            all.into_iter().filter(|d| query.selectors.matches(d, &selectable)).collect();
        let more = query.limit == 1 && items.len() > 1 && query.continue_token.is_none();
        if more {
            items.truncate(1);
        }
        ready(Ok(VirtualList {
            items,
            resource_version: "7".to_owned(),
            continue_token: more.then(|| "next".to_owned()),
            remaining: None,
        }))
        .boxed()
    }

    fn watch(&self, query: VirtualQuery) -> BoxFuture<'_, Result<VirtualStream, ApiError>> {
        if query.resource_version.as_deref() == Some("1") {
            return ready(Err(ApiError::expired("too old"))).boxed();
        }
        let events = [
            VirtualEvent::Added(decision("one", "east")),
            VirtualEvent::Bookmark("8".to_owned()),
            VirtualEvent::Deleted(decision("one", "east")),
        ];
        ready(Ok(stream::iter(events.map(Ok)).boxed())).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_mounted_kind_is_read_like_any_other_and_not_written() {
    let api = Api::new();
    api.get(DECISIONS).await.refused(404, "NotFound");
    api.server.mount(Arc::new(Decisions));
    let one = api.get(&format!("{DECISIONS}/one")).await.ok();
    assert_eq!(one["spec"]["cluster"], "east");
    api.get(&format!("{DECISIONS}/none")).await.refused(404, "NotFound");
    let list = api.get(&format!("{DECISIONS}?limit=1")).await.ok();
    assert_eq!(
        (&list["kind"], &list["metadata"]["continue"]),
        (&json!("DecisionList"), &json!("next"))
    );
    let list = api.get(&format!("{DECISIONS}?fieldSelector=spec.cluster%3Dwest")).await.ok();
    assert_eq!(list["items"][0]["metadata"]["name"], "two");
    let unknown = api.get(&format!("{DECISIONS}?fieldSelector=spec.other%3Dx")).await;
    let message = unknown.refused(400, "BadRequest");
    assert!(message.contains("spec.other; fields are metadata.name, "), "{message}");
    assert!(message.contains("spec.cluster"), "{message}");
    let table = api.table(DECISIONS).await;
    assert_eq!(table["rows"][1]["cells"], json!(["two", "west"]));
    api.post(DECISIONS, &decision("x", "y")).await.refused(405, "MethodNotAllowed");
    api.delete(&format!("{DECISIONS}/one")).await.refused(405, "MethodNotAllowed");

    let mut frames = api.watch(&format!("{DECISIONS}?watch=1&allowWatchBookmarks=true")).await;
    for expected in ["ADDED one", "BOOKMARK", "DELETED one", "end"] {
        assert_eq!(frames.short().await, expected);
    }
    api.get(&format!("{DECISIONS}?watch=1&resourceVersion=1")).await.refused(410, "Expired");
    // The kind's versions are not the server's.
    let later =
        "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=999";
    assert_eq!(api.watch(&format!("{DECISIONS}?{later}")).await.short().await, "ADDED one");
    let unmatched = "watch=1&sendInitialEvents=true";
    api.get(&format!("{DECISIONS}?{unmatched}")).await.refused(422, "Invalid");
    let resources = api.get("/apis/history.example.com/v1").await.ok();
    assert_eq!(resources["resources"][0]["verbs"], json!(["get", "list", "watch"]));
    api.get("/openapi/v3/apis/history.example.com/v1").await.ok();
}
