//! The reading verbs against an embedded API server.

use std::sync::Arc;

use atoll_api::binding::{DecisionRecord, Mode, ObjectReference, Outcome, TargetCluster, Trigger};
use atoll_apiserver::{Options, Server};
use atoll_history::{BindingRef, Detail, MemoryStore, Record, Store};
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::{Value, json};

use super::decisions::{self as read, Fields};
use super::explain;
use super::workload::resolve;
use crate::hub::Hub;

#[path = "../up/decisions.rs"]
mod decisions;

fn hub(server: &Server) -> Hub {
    Hub { client: server.client(), namespace: "default".to_owned(), found: "test".to_owned() }
}

fn decision(id: &str, trigger: Trigger, at: i64, shares: &[(&str, i64)]) -> Record {
    let share = |(name, replicas): &(&str, i64)| TargetCluster {
        name: (*name).to_owned(),
        replicas: *replicas,
    };
    Record {
        record: DecisionRecord {
            id: id.to_owned(),
            parent: None,
            trigger,
            mode: Mode::Steady,
            outcome: Outcome::Placed,
            desired: shares.iter().map(|(_, replicas)| replicas).sum(),
            pending: vec![],
            affinity_name: None,
            at: jiff::Timestamp::from_second(at).unwrap().into(),
            term: 1,
        },
        binding: BindingRef {
            kind: "ResourceBinding".to_owned(),
            namespace: Some("default".to_owned()),
            name: "nginx-deployment".to_owned(),
            uid: "binding".to_owned(),
        },
        workload: ObjectReference {
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            namespace: Some("default".to_owned()),
            name: "nginx".to_owned(),
            uid: Some("template".to_owned()),
        },
        before: None,
        after: shares.iter().map(share).collect(),
        reason: Some(format!("because of {id}")),
        gap: None,
        withdrawal: None,
        detail: Some(Detail::encode(&json!({}))),
    }
}

fn ids(items: &[Value]) -> Vec<&str> {
    items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

async fn served() -> Server {
    let server = Server::open(Options::memory()).unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let first = decision("0000aaaa", Trigger::First, 100, &[("member1", 2), ("member2", 1)]);
    let mut second = decision("0000bbbb", Trigger::Scale, 200, &[("member1", 6), ("member2", 3)]);
    second.record.parent = Some("0000aaaa".to_owned());
    let mut other = decision("cccc", Trigger::First, 300, &[("member1", 1)]);
    other.workload.name = "other".to_owned();
    second.detail = Some(Detail::encode(&json!({
        "id": "0000bbbb", "binding": {"namespace": "default", "name": "nginx-deployment"},
        "template": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": "nginx"},
        "profile": "default", "trigger": "Scale", "mode": "Steady", "outcome": "Placed", "strategy": "Static weights",
        "verdicts": [
            {"clusters": ["member1", "member2"], "standing": "Selected", "before": [2, 1], "after": [6, 3],
             "capacity": [40, null], "bounds": ["cpu"], "bounded": [0, null], "scores": {"Locality": [100, 50]}},
            {"clusters": ["member3"], "standing": "Refused", "rejections": [
                {"plugin": "ClusterAffinity", "code": "Unschedulable", "reason": "not in clusterNames"}]},
        ],
        "snapshot": 1, "now": "2026-01-01T00:00:00Z", "appliedPlacement": {},
    })));
    let mut done =
        decision("0000dddd", Trigger::EvictionDone, 250, &[("member1", 6), ("member2", 3)]);
    done.detail = None;
    store.insert(&[first, second, done, other]).await.unwrap();
    decisions::Decisions::all(&store).into_iter().for_each(|kind| server.mount(kind));
    server
}

#[tokio::test]
async fn history_is_read_from_the_hub_newest_first() {
    let hub = hub(&served().await);
    for words in [&["deploy/nginx"][..], &["deployments.apps/nginx"], &["Deployment", "nginx"]] {
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        let workload = resolve(&hub, &words).await.unwrap();
        assert!(workload.decisions_served);
        let all = read::list(&hub, &workload, &Fields::new(), 10).await.unwrap();
        assert_eq!((ids(&all.items), all.more), (vec!["0000dddd", "0000bbbb", "0000aaaa"], false));
        let one = read::list(&hub, &workload, &Fields::new(), 1).await.unwrap();
        assert_eq!((ids(&one.items), one.more), (vec!["0000dddd"], true));
        let first = vec![("spec.trigger", "First".to_owned())];
        assert_eq!(
            ids(&read::list(&hub, &workload, &first, 10).await.unwrap().items),
            ["0000aaaa"]
        );
        let wrong = vec![("spec.trigger", "Whim".to_owned())];
        let error = read::list(&hub, &workload, &wrong, 10).await.err().unwrap();
        assert!(format!("{error:#}").contains("one of `First`"), "{error:#}");
    }
    let unknown = resolve(&hub, &["gizmo/nginx".to_owned()]).await.unwrap_err().to_string();
    assert!(unknown.contains("gizmo") && unknown.contains("api-resources"), "{unknown}");
}

#[tokio::test]
async fn a_hub_without_history_shows_what_the_binding_holds() {
    let server = Server::open(Options::memory()).unwrap();
    let hub = hub(&server);
    let crds: Api<DynamicObject> = Api::all_with(
        server.client(),
        &kube::api::ApiResource::erase::<
            k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
        >(&()),
    );
    for crd in atoll_api::crds::all() {
        let crd = serde_json::from_value(serde_json::to_value(crd).unwrap()).unwrap();
        crds.create(&PostParams::default(), &crd).await.unwrap();
    }
    let workload = resolve(&hub, &["deploy/nginx".to_owned()]).await.unwrap();
    assert!(!workload.decisions_served);
    assert!(read::list(&hub, &workload, &Fields::new(), 10).await.unwrap().items.is_empty());

    let held = decision("held", Trigger::Failover, 100, &[("member2", 3)]);
    let binding: atoll_api::ResourceBinding = serde_json::from_value(json!({
        "apiVersion": "work.atoll.dev/v1alpha1", "kind": "ResourceBinding",
        "metadata": {"name": "nginx-deployment", "namespace": "default"},
        "spec": {"resource": held.workload, "clusters": held.after, "decision": held.record},
    }))
    .unwrap();
    let bindings: Api<atoll_api::ResourceBinding> = Api::namespaced(server.client(), "default");
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    let list = read::list(&hub, &workload, &Fields::new(), 10).await.unwrap();
    assert_eq!(ids(&list.items), ["held"]);
    assert_eq!(list.items[0]["spec"]["after"], json!([{"name": "member2", "replicas": 3}]));
    let scale = vec![("spec.trigger", "Scale".to_owned())];
    assert!(read::list(&hub, &workload, &scale, 10).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn explain_finds_the_decision_and_says_what_is_not_known() {
    let hub = hub(&served().await);
    let workload = resolve(&hub, &["deploy/nginx".to_owned()]).await.unwrap();
    // By default the last one that weighed clusters, with what came after it.
    let (shown, later) = explain::find(&hub, &workload, None).await.unwrap();
    assert_eq!(shown["metadata"]["name"], "0000bbbb");
    assert!(later.len() == 1 && later[0].contains("EvictionDone"), "{later:?}");
    let whole = explain::explained(&shown, None).unwrap();
    for member in ["member1", "member2", "member3"] {
        assert!(whole.contains(member), "{whole}");
    }
    let one = explain::explained(&shown, Some("member1")).unwrap();
    for part in
        ["member1: selected", "replicas: 2 -> 6", "40 more, bounded by cpu", "Locality: 100"]
    {
        assert!(one.contains(part), "{part}: {one}");
    }
    let refused = explain::explained(&shown, Some("member3")).unwrap();
    assert!(refused.contains("ClusterAffinity: not in clusterNames"), "{refused}");
    let error = explain::explained(&shown, Some("moon")).unwrap_err().to_string();
    assert!(error.contains("--cluster \"moon\""), "{error}");

    let (named, later) = explain::find(&hub, &workload, Some("0000d")).await.unwrap();
    assert!(later.is_empty());
    let text = explain::explained(&named, None).unwrap();
    assert!(text.contains("EvictionDone") && text.contains("not known"), "{text}");
    for (id, part) in [("0000", "several"), ("ffff", "no decision"), ("cccc", "no decision")] {
        let error = explain::find(&hub, &workload, Some(id)).await.unwrap_err().to_string();
        assert!(error.contains("--decision") && error.contains(part), "{error}");
    }
}
