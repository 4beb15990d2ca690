//! watch, through raw frames and through kube's watcher.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api as KubeApi,
    runtime::{watcher, watcher::Event},
};
use serde_json::json;

use crate::common::{Api, CONFIG_MAPS, PODS, config_map, pod, version};

#[tokio::test(start_paused = true)]
async fn a_watch_follows_changes_in_order_and_deletion_carries_its_own_version() {
    let api = Api::new();
    let start = version(&api.get(CONFIG_MAPS).await.ok());
    let mut frames = api.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={start}")).await;
    assert!(frames.is_quiet().await);
    let made = api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    api.merge(&format!("{CONFIG_MAPS}/a"), &json!({"data": {"v": "2"}})).await.ok();
    api.delete(&format!("{CONFIG_MAPS}/a")).await.ok();
    let added = frames.next().await.unwrap();
    assert_eq!((added["type"].as_str(), &added["object"]), (Some("ADDED"), &made));
    assert_eq!(frames.short().await, "MODIFIED a");
    let deleted = frames.next().await.unwrap();
    assert_eq!(deleted["type"], "DELETED");
    assert_eq!(deleted["object"]["data"]["v"], "2");
    assert_eq!(version(&deleted["object"]), version(&made) + 2);
    assert!(frames.is_quiet().await);
}

#[tokio::test(start_paused = true)]
async fn selector_transitions_become_added_and_deleted() {
    let api = Api::new();
    let mut frames = api.watch(&format!("{PODS}?watch=1&labelSelector=tier%3Dweb")).await;
    api.post(PODS, &pod("p")).await.ok();
    let tier = |value: serde_json::Value| json!({"metadata": {"labels": {"tier": value}}});
    let path = format!("{PODS}/p");
    api.merge(&path, &tier(json!("web"))).await.ok();
    api.merge(&path, &json!({"metadata": {"annotations": {"a": "b"}}})).await.ok();
    let left = api.merge(&path, &tier(json!("db"))).await.ok();
    assert_eq!(frames.short().await, "ADDED p");
    assert_eq!(frames.short().await, "MODIFIED p");
    let deleted = frames.next().await.unwrap();
    assert_eq!(deleted["type"], "DELETED");
    assert_eq!(deleted["object"]["metadata"]["labels"]["tier"], "web");
    assert_eq!(version(&deleted["object"]), version(&left));
    api.delete(&path).await.ok();
    assert!(frames.is_quiet().await);
}

#[tokio::test(start_paused = true)]
async fn a_watch_by_name_sees_its_object_only() {
    let api = Api::new();
    let mut frames =
        api.watch(&format!("{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name%3Db")).await;
    let mut legacy = api.watch("/api/v1/watch/namespaces/default/configmaps/b").await;
    for name in ["a", "b"] {
        api.post(CONFIG_MAPS, &config_map(name)).await.ok();
    }
    assert_eq!(frames.short().await, "ADDED b");
    assert_eq!(legacy.short().await, "ADDED b");
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_version_starts_with_what_is_there() {
    let api = Api::new();
    api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    for query in ["watch=1", "watch=1&resourceVersion=0"] {
        let mut frames = api.watch(&format!("{CONFIG_MAPS}?{query}")).await;
        assert_eq!(frames.short().await, "ADDED a");
        assert!(frames.is_quiet().await);
    }
}

#[tokio::test(start_paused = true)]
async fn send_initial_events_ends_them_with_a_marked_bookmark() {
    let api = Api::new();
    api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=0";
    let mut frames = api.watch(&format!("{CONFIG_MAPS}?{query}")).await;
    assert_eq!(frames.short().await, "ADDED a");
    let mark = frames.next().await.unwrap();
    assert_eq!(mark["type"], "BOOKMARK");
    assert_eq!(mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(mark["object"]["kind"], "ConfigMap");
    api.post(CONFIG_MAPS, &config_map("b")).await.ok();
    assert_eq!(frames.short().await, "ADDED b");
    let bad = format!("{CONFIG_MAPS}?watch=1&sendInitialEvents=true");
    api.get(&bad).await.refused(422, "Invalid");
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_now_and_then_and_at_the_timeout_which_ends_the_watch() {
    let api = Api::new();
    let mut frames = api
        .watch(&format!("{CONFIG_MAPS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=90"))
        .await;
    let begin = tokio::time::Instant::now();
    // Another kind's writes move the bookmark's version.
    api.post(PODS, &pod("p")).await.ok();
    let mark = frames.next().await.unwrap();
    assert_eq!((mark["type"].as_str(), begin.elapsed().as_secs()), (Some("BOOKMARK"), 60));
    let current = version(&api.get(CONFIG_MAPS).await.ok());
    assert_eq!(version(&mark["object"]), current);
    assert_eq!(frames.short().await, "BOOKMARK");
    assert_eq!(frames.short().await, "end");
    assert_eq!(begin.elapsed().as_secs(), 90);
    let mut plain = api.watch(&format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=90")).await;
    assert_eq!(plain.short().await, "end");
}

/// Writes and waits until the first changes are no longer in the table's log.
async fn outlive_the_log(api: &Api, path: &str) {
    for n in 0..1100 {
        api.merge(path, &json!({"data": {"v": n.to_string()}})).await.ok();
    }
    tokio::time::advance(Duration::from_secs(600)).await;
    api.merge(path, &json!({"data": {"v": "last"}})).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_before_the_log_is_410_expired() {
    let api = Api::new();
    let first = version(&api.post(CONFIG_MAPS, &config_map("a")).await.ok());
    let path = format!("{CONFIG_MAPS}/a");
    outlive_the_log(&api, &path).await;
    let answer = api.get(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={first}")).await;
    answer.refused(410, "Expired");
    // Another kind's log is not affected.
    let mut frames = api.watch(&format!("{PODS}?watch=1&resourceVersion={first}")).await;
    assert!(frames.is_quiet().await);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_falls_behind_the_log_gets_an_error_frame() {
    let api = Api::new();
    let start = version(&api.post(CONFIG_MAPS, &config_map("a")).await.ok());
    let mut frames = api.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={start}")).await;
    let path = format!("{CONFIG_MAPS}/a");
    outlive_the_log(&api, &path).await;
    let frame = frames.next().await.unwrap();
    assert_eq!((frame["type"].as_str(), &frame["object"]["code"]), (Some("ERROR"), &json!(410)));
    assert_eq!(frames.short().await, "end");
}

#[tokio::test(start_paused = true)]
async fn kube_watchers_follow_by_list_and_by_streaming_list() {
    let api = Api::new();
    let client: KubeApi<ConfigMap> = KubeApi::default_namespaced(api.server.client());
    for name in ["a", "b"] {
        api.post(CONFIG_MAPS, &config_map(name)).await.ok();
    }
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let mut events = watcher(client.clone(), config).boxed();
        let mut seen = Vec::new();
        loop {
            match events.try_next().await.unwrap().unwrap() {
                Event::Init => {}
                Event::InitApply(object) => seen.push(object.metadata.name.unwrap()),
                Event::InitDone => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(seen, ["a", "b"]);
        // Across several watch timeouts nothing is lost and nothing comes twice.
        tokio::time::sleep(Duration::from_secs(1000)).await;
        api.post(CONFIG_MAPS, &config_map("c")).await.ok();
        match events.try_next().await.unwrap().unwrap() {
            Event::Apply(object) => assert_eq!(object.metadata.name.as_deref(), Some("c")),
            other => panic!("{other:?}"),
        }
        api.delete(&format!("{CONFIG_MAPS}/c")).await.ok();
        match events.try_next().await.unwrap().unwrap() {
            Event::Delete(object) => assert_eq!(object.metadata.name.as_deref(), Some("c")),
            other => panic!("{other:?}"),
        }
    }
}
