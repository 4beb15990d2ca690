//! Namespace deletion and garbage collection.

use std::time::Duration;

use atoll_apiserver::Options;
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api as KubeApi,
    api::DeleteParams,
    runtime::finalizer::{Event, finalizer},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::common::{Api, CONFIG_MAPS, DEPLOYMENTS, PODS, config_map, deployment, pod};

/// A server with its controllers running.
async fn running(options: Options) -> (Api, CancellationToken) {
    let api = Api::with(options);
    let token = CancellationToken::new();
    let (server, stop) = (api.server.clone(), token.clone());
    tokio::spawn(async move { server.run_controllers(stop).await });
    (api, token)
}

/// Waits until a GET returns `code`, in paused time.
async fn until(api: &Api, path: &str, code: u16) -> Value {
    for _ in 0..1000 {
        let answer = api.get(path).await;
        if answer.code == code {
            return answer.body;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{path} never answered {code}: {:#?}", api.get(path).await);
}

/// Runs the controllers until they are idle.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(5)).await;
}

fn owned(mut object: Value, owner: &Value, blocks: bool) -> Value {
    let reference = json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": blocks,
    });
    let slot = &mut object["metadata"]["ownerReferences"];
    if slot.is_null() {
        *slot = json!([]);
    }
    slot.as_array_mut().unwrap().push(reference);
    object
}

async fn delete(api: &Api, path: &str, policy: &str) {
    let body = json!({"propagationPolicy": policy}).to_string();
    api.send(Method::DELETE, path, &[], body).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_deleted_namespace_empties_itself_and_goes() {
    let (api, _token) = running(Options::memory()).await;
    api.post("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await.ok();
    let maps = "/api/v1/namespaces/shop/configmaps";
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    for object in [config_map("a"), held] {
        api.post(maps, &object).await.ok();
    }
    api.post("/api/v1/namespaces/shop/pods", &pod("p")).await.ok();
    let marked = api.delete("/api/v1/namespaces/shop").await.ok();
    assert_eq!(marked["status"]["phase"], "Terminating");
    until(&api, &format!("{maps}/a"), 404).await;
    settle().await;
    let waiting = api.get("/api/v1/namespaces/shop").await.ok();
    let conditions = waiting["status"]["conditions"].as_array().unwrap();
    assert_eq!(
        conditions[0]["message"],
        "Some resources are remaining: configmaps has 1 resource instances"
    );
    assert!(conditions[1]["message"].as_str().unwrap().contains("example.com/hold in 1"));
    let refused = api.post(maps, &config_map("late")).await;
    refused.refused(403, "Forbidden");
    assert_eq!(refused.body["details"]["causes"][0]["reason"], "NamespaceTerminating");
    api.merge(&format!("{maps}/held"), &json!({"metadata": {"finalizers": null}})).await.ok();
    until(&api, "/api/v1/namespaces/shop", 404).await;
    api.post("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await.ok();
}

#[tokio::test(start_paused = true)]
async fn background_deletion_takes_dependents_and_theirs() {
    let (api, _token) = running(Options::memory()).await;
    let owner = api.post(DEPLOYMENTS, &deployment("d", 1)).await.ok();
    let middle = api.post(CONFIG_MAPS, &owned(config_map("m"), &owner, true)).await.ok();
    api.post(PODS, &owned(pod("p"), &middle, true)).await.ok();
    let second = api.post(CONFIG_MAPS, &config_map("second")).await.ok();
    let shared = owned(owned(config_map("shared"), &owner, false), &second, false);
    api.post(CONFIG_MAPS, &shared).await.ok();
    delete(&api, &format!("{DEPLOYMENTS}/d"), "Background").await;
    until(&api, &format!("{PODS}/p"), 404).await;
    until(&api, &format!("{CONFIG_MAPS}/m"), 404).await;
    settle().await;
    // One owner is left: the object stays and loses the other reference.
    let shared = api.get(&format!("{CONFIG_MAPS}/shared")).await.ok();
    let references = shared["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!((references.len(), &references[0]["name"]), (1, &json!("second")));
}

#[tokio::test(start_paused = true)]
async fn foreground_deletion_waits_for_blocking_dependents() {
    let (api, _token) = running(Options::memory()).await;
    let owner = api.post(DEPLOYMENTS, &deployment("d", 1)).await.ok();
    let mut blocking = owned(config_map("blocking"), &owner, true);
    blocking["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.post(CONFIG_MAPS, &blocking).await.ok();
    api.post(CONFIG_MAPS, &owned(config_map("other"), &owner, false)).await.ok();
    delete(&api, &format!("{DEPLOYMENTS}/d"), "Foreground").await;
    until(&api, &format!("{CONFIG_MAPS}/other"), 404).await;
    settle().await;
    let waiting = api.get(&format!("{DEPLOYMENTS}/d")).await.ok();
    assert_eq!(waiting["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    let path = format!("{CONFIG_MAPS}/blocking");
    api.merge(&path, &json!({"metadata": {"finalizers": null}})).await.ok();
    until(&api, &format!("{DEPLOYMENTS}/d"), 404).await;
    api.get(&path).await.refused(404, "NotFound");
}

#[tokio::test(start_paused = true)]
async fn orphaning_cuts_dependents_loose() {
    let (api, _token) = running(Options::memory()).await;
    let owner = api.post(DEPLOYMENTS, &deployment("d", 1)).await.ok();
    api.post(CONFIG_MAPS, &owned(config_map("m"), &owner, true)).await.ok();
    delete(&api, &format!("{DEPLOYMENTS}/d"), "Orphan").await;
    until(&api, &format!("{DEPLOYMENTS}/d"), 404).await;
    settle().await;
    let kept = api.get(&format!("{CONFIG_MAPS}/m")).await.ok();
    assert_eq!(kept["metadata"]["ownerReferences"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_never_was_or_is_elsewhere_does_not_hold() {
    let (api, _token) = running(Options::memory()).await;
    let ghost = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "g", "uid": "no-such"}});
    api.post(CONFIG_MAPS, &owned(config_map("a"), &ghost, false)).await.ok();
    until(&api, &format!("{CONFIG_MAPS}/a"), 404).await;
    let elsewhere =
        api.post("/api/v1/namespaces/kube-public/configmaps", &config_map("x")).await.ok();
    api.post(CONFIG_MAPS, &owned(config_map("b"), &elsewhere, false)).await.ok();
    until(&api, &format!("{CONFIG_MAPS}/b"), 404).await;
}

#[tokio::test(start_paused = true)]
async fn without_garbage_collection_owned_objects_stay_and_policies_do_not_hang() {
    let (api, _token) = running(Options { garbage_collection: false, ..Options::memory() }).await;
    let owner = api.post(DEPLOYMENTS, &deployment("d", 1)).await.ok();
    api.post(CONFIG_MAPS, &owned(config_map("m"), &owner, true)).await.ok();
    delete(&api, &format!("{DEPLOYMENTS}/d"), "Foreground").await;
    api.get(&format!("{DEPLOYMENTS}/d")).await.refused(404, "NotFound");
    settle().await;
    api.get(&format!("{CONFIG_MAPS}/m")).await.ok();
}

#[tokio::test(start_paused = true)]
async fn namespaces_have_a_default_service_account_again_and_again() {
    let (api, _token) = running(Options::memory()).await;
    let path = "/api/v1/namespaces/default/serviceaccounts/default";
    let first = until(&api, path, 200).await;
    api.delete(path).await.ok();
    settle().await;
    let second = api.get(path).await.ok();
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    api.post("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await.ok();
    until(&api, "/api/v1/namespaces/shop/serviceaccounts/default", 200).await;
    api.delete("/api/v1/namespaces/shop").await.ok();
    until(&api, "/api/v1/namespaces/shop", 404).await;
}

#[tokio::test(start_paused = true)]
async fn events_expire_an_hour_after_their_last_write() {
    let (api, _token) = running(Options::memory()).await;
    let events = "/api/v1/namespaces/default/events";
    let event = |name: &str| json!({"metadata": {"name": name}, "involvedObject": {"namespace": "default"}});
    for name in ["old", "renewed"] {
        api.post(events, &event(name)).await.ok();
    }
    api.pass(1800);
    let renewed = json!({"lastTimestamp": "2026-01-01T00:30:00Z"});
    api.merge(&format!("{events}/renewed"), &renewed).await.ok();
    api.pass(1900);
    tokio::time::sleep(Duration::from_secs(700)).await;
    api.get(&format!("{events}/old")).await.refused(404, "NotFound");
    api.get(&format!("{events}/renewed")).await.ok();
}

#[tokio::test(start_paused = true)]
async fn controllers_stop_when_told() {
    let api = Api::new();
    let token = CancellationToken::new();
    token.cancel();
    api.server.run_controllers(token).await;
}

#[tokio::test(start_paused = true)]
async fn kubes_finalizer_helper_applies_and_cleans_up() {
    let (api, _token) = running(Options::memory()).await;
    let maps: KubeApi<ConfigMap> = KubeApi::default_namespaced(api.server.client());
    api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    let mut seen = Vec::new();
    for round in 0..4 {
        let Some(object) = maps.get_opt("a").await.unwrap() else { break };
        if round == 2 {
            maps.delete("a", &DeleteParams::default()).await.unwrap();
        }
        let object = if round == 2 { maps.get("a").await.unwrap() } else { object };
        finalizer(&maps, "example.com/f", std::sync::Arc::new(object), |event| {
            seen.push(matches!(event, Event::Apply(_)));
            futures::future::ready(Ok::<_, std::convert::Infallible>(
                kube::runtime::controller::Action::await_change(),
            ))
        })
        .await
        .unwrap();
    }
    // The first round only adds the finalizer.
    assert_eq!(seen, [true, false]);
    assert!(maps.get_opt("a").await.unwrap().is_none());
}
