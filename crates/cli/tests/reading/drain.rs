//! `atoll drain`: what it would move and what it leaves, and how it follows the controller's reports.

use std::time::Duration;

use atoll_api::Cluster;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::{Value, json};

use crate::served::Hub;

const POLICY: &str = "policy.atoll.dev/v1alpha1";
const BINDING: &str = "work.atoll.dev/v1alpha1";
/// Longest wait for a report of the test's controller to be seen.
const LIMIT: Duration = Duration::from_secs(30);

fn member(name: &str) -> Value {
    json!({
        "apiVersion": "cluster.atoll.dev/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name, "labels": {"zone": name}}, "spec": {},
        "status": {
            "session": {"state": "Connected", "epoch": 1},
            "apiEnablements": [
                {"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]},
                {"groupVersion": "v1", "resources": [{"name": "configmaps", "kind": "ConfigMap"}]},
            ],
            "conditions": [{"type": "Ready", "status": "True", "reason": "MemberReady",
                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    })
}

pub(crate) fn divided(extra: Value) -> Value {
    let weights: Vec<Value> = ["member1", "member2", "member3"]
        .map(|name| json!({"targetCluster": {"clusterNames": [name]}, "weight": 1}))
        .into();
    let mut placement = json!({"replicaScheduling": {
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": {"staticWeightList": weights},
    }});
    for (field, value) in extra.as_object().unwrap() {
        placement[field] = value.clone();
    }
    placement
}

/// Creates an object in namespace `shop`; returns its uid.
async fn put(hub: &Hub, api_version: &str, kind: &str, object: Value) -> String {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = Api::namespaced_with(hub.client(), "shop", &resource);
    let mut object = object;
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    let params = PatchParams::apply("test").force();
    let made = api.patch(&name, &params, &Patch::Apply(&object)).await.unwrap();
    made.metadata.uid.unwrap()
}

/// Creates a workload with its policy and the binding of its last decision. Without replicas it is a ConfigMap.
pub(crate) async fn workload(
    hub: &Hub,
    name: &str,
    placement: Value,
    shares: &[(&str, i64)],
    divided: bool,
) {
    let kind = if divided { ("apps/v1", "Deployment") } else { ("v1", "ConfigMap") };
    let total: i64 = shares.iter().map(|(_, replicas)| replicas).sum();
    let template = if divided {
        json!({"metadata": {"name": name}, "spec": {
            "replicas": total, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "nginx"}]}},
        }})
    } else {
        json!({"metadata": {"name": name}, "data": {"a": "b"}})
    };
    let uid = put(hub, kind.0, kind.1, template).await;
    let policy = json!({"metadata": {"name": name}, "spec": {
        "resourceSelectors": [{"apiVersion": kind.0, "kind": kind.1, "name": name}],
        "placement": placement,
    }});
    let policy_uid = put(hub, POLICY, "PropagationPolicy", policy).await;
    let clusters: Vec<Value> =
        shares.iter().map(|(name, n)| json!({"name": name, "replicas": n})).collect();
    let mut spec = json!({
        "resource": {"apiVersion": kind.0, "kind": kind.1, "namespace": "shop", "name": name,
            "uid": uid},
        "clusters": clusters, "placement": placement,
        "decision": {"id": "00", "trigger": "First", "mode": "Steady", "outcome": "Placed",
            "desired": total, "at": "2026-01-01T00:00:00Z", "term": 1},
    });
    if divided {
        spec["replicas"] = total.into();
    }
    let binding = json!({
        "metadata": {
            "name": format!("{name}-{}", kind.1.to_lowercase()),
            "labels": {"policy.atoll.dev/uid": policy_uid},
            "annotations": {
                "policy.atoll.dev/name": name,
                "policy.atoll.dev/namespace": "shop",
            },
        },
        "spec": spec,
    });
    put(hub, BINDING, "ResourceBinding", binding).await;
}

pub(crate) async fn federation() -> Hub {
    let hub = Hub::without_history().await;
    hub.install_crds().await;
    for name in ["member1", "member2", "member3"] {
        hub.create_cluster(member(name)).await;
    }
    hub.create_namespace("shop").await;
    hub
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_lists_what_moves_where_and_what_stays_and_why() {
    let hub = federation().await;
    let on = [("member1", 2), ("member2", 2)];
    workload(&hub, "web", divided(json!({})), &on, true).await;
    let one = json!({"clusterAffinity": {"clusterNames": ["member1"]}});
    workload(&hub, "pinned", divided(one), &[("member1", 3)], true).await;
    let tolerant = json!({"clusterTolerations": [{"operator": "Exists"}]});
    workload(&hub, "tolerant", divided(tolerant), &on, true).await;
    workload(&hub, "sticky", divided(json!({"sticky": true})), &on, true).await;
    let held = json!({"rescheduleOn": ["PolicyChange"]});
    workload(&hub, "held", divided(held), &on, true).await;
    let single = json!({"spreadConstraints": [
        {"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1},
    ]});
    workload(&hub, "settings", single, &[("member1", 0)], false).await;
    workload(&hub, "elsewhere", divided(json!({})), &[("member2", 2), ("member3", 2)], true).await;

    let answer = hub.atoll("drain", &["member1", "--dry-run"]).await;
    let said = answer.stderr.clone();
    assert!(said.contains("2 would move and 4 would stay"), "{said}");
    assert!(said.contains("--eviction-rate"), "the pace is named: {said}");
    insta::assert_snapshot!("drain-dry-run", answer.ok());

    let list = hub.atoll("drain", &["member1", "--dry-run", "-o", "json"]).await.json();
    assert_eq!((&list["moving"], &list["staying"]), (&json!(2), &json!(4)));
    let of = |name: &str| {
        let items = list["items"].as_array().unwrap();
        let found = items.iter().find(|item| item["object"].as_str().unwrap().ends_with(name));
        found.unwrap_or_else(|| panic!("no {name} in {list:#}")).clone()
    };
    assert_eq!(of("web")["moves"], json!([{"to": "member3", "replicas": 2}]));
    assert_eq!(of("web")["decision"]["trigger"], "Failover");
    assert_eq!(of("pinned")["moves"], json!([]));
    assert!(of("pinned")["stays"].is_string());
    // Nothing was changed.
    let clusters: Api<Cluster> = Api::all(hub.client());
    assert!(clusters.get("member1").await.unwrap().spec.taints.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_names_what_it_cannot_read_and_what_does_not_hold_the_drain() {
    let hub = federation().await;
    let one = json!({"clusterAffinity": {"clusterNames": ["member1"]}});
    workload(&hub, "settings", one, &[("member1", 0)], false).await;
    let cluster_policy = json!({
        "apiVersion": POLICY, "kind": "ClusterPropagationPolicy", "metadata": {"name": "all"},
        "spec": {"resourceSelectors": [{"apiVersion": "v1", "kind": "Secret"}], "placement": {}},
    });
    let gvk = GroupVersionKind::gvk("policy.atoll.dev", "v1alpha1", "ClusterPropagationPolicy");
    let policies: Api<DynamicObject> = Api::all_with(hub.client(), &ApiResource::from_gvk(&gvk));
    let params = PatchParams::apply("test");
    policies.patch("all", &params, &Patch::Apply(&cluster_policy)).await.unwrap();

    let answer = hub.atoll("drain", &["member1", "--dry-run=server", "-o", "json"]).await;
    assert!(
        !answer.stderr.contains("error"),
        "cluster-scoped policies are read: {}",
        answer.stderr
    );
    let without = "0 would move and 1 would stay, 1 of them without blocking the drain";
    assert!(answer.stderr.contains(without), "{}", answer.stderr);
    let list = answer.json();
    assert_eq!(list["items"][0]["object"], "ConfigMap shop/settings");
    assert_eq!(list["items"][0]["holds"], false);

    let gadget = json!({"metadata": {"name": "g-gadget"}, "spec": {
        "resource": {"apiVersion": "example.com/v1", "kind": "Gadget", "namespace": "shop", "name": "g"},
        "clusters": [{"name": "member1"}],
    }});
    put(&hub, BINDING, "ResourceBinding", gadget).await;
    let error = hub.atoll("drain", &["member1", "--dry-run"]).await.failed(1);
    let named = "error: Gadget shop/g: the hub serves no Gadget of example.com/v1 any more";
    assert!(error.contains(named), "{error}");
    let clusters: Api<Cluster> = Api::all(hub.client());
    assert!(clusters.get("member1").await.unwrap().spec.taints.is_empty(), "nothing was touched");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_is_not_to_ignore_daemon_sets_names_them_and_changes_nothing() {
    let hub = federation().await;
    let logs = json!({"metadata": {"name": "logs-daemonset"}, "spec": {
        "resource": {"apiVersion": "apps/v1", "kind": "DaemonSet", "namespace": "shop", "name": "logs"},
        "clusters": [{"name": "member1"}],
    }});
    put(&hub, BINDING, "ResourceBinding", logs).await;
    let error = hub.atoll("drain", &["member1", "--ignore-daemonsets=false"]).await.failed(1);
    assert!(error.contains("it has DaemonSets") && error.contains("shop/logs"), "{error}");
    let clusters: Api<Cluster> = Api::all(hub.client());
    assert!(clusters.get("member1").await.unwrap().spec.taints.is_empty());
    let go = ["member1", "--ignore-daemonsets", "--no-wait"];
    assert!(hub.atoll("drain", &go).await.ok().contains("Draining "));
}

/// Reports the progress of member1 as the controller would.
async fn say(hub: &Hub, status: &str, reason: &str, message: &str) {
    let clusters: Api<Cluster> = Api::all(hub.client());
    let patch = json!({"status": {"conditions": [{"type": "Emptied", "status": status,
        "reason": reason, "message": message,
        "lastTransitionTime": jiff::Timestamp::now().to_string()}]}});
    let params = PatchParams::default();
    clusters.patch_status("member1", &params, &Patch::Merge(patch)).await.unwrap();
}

/// Waits until the verb has set its taint.
async fn until_drained(hub: &Hub) {
    let clusters: Api<Cluster> = Api::all(hub.client());
    let drained = async {
        loop {
            let taints = clusters.get("member1").await.unwrap().spec.taints;
            if taints.iter().any(|taint| taint.effect == "NoExecute") {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, drained).await.expect("no taint");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_says_how_far_it_is_and_ends_when_the_member_is_empty() {
    let hub = federation().await;
    let mut verb = hub.follow_errors(&["drain", "member1", "-o", "json"]).await;
    until_drained(&hub).await;
    assert!(verb.line().await.contains("Draining member1"));
    say(&hub, "False", "Paced", "2 of 3 bindings waiting for the eviction rate (1 a second)").await;
    assert!(verb.line().await.contains("2 of 3 bindings waiting for the eviction rate"));
    say(&hub, "False", "Moving", "1 of 3 bindings is moving").await;
    assert!(verb.line().await.contains("1 of 3 bindings is moving"));
    say(&hub, "True", "Emptied", "nothing runs there").await;
    let (code, printed) = verb.end().await;
    assert_eq!(code, Some(0), "{printed}");
    let printed: Value = serde_json::from_str(&printed).unwrap();
    let expected = json!({"member": "member1", "emptied": true, "reason": "Emptied",
        "message": "nothing runs there"});
    assert_eq!(printed, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_a_policy_holds_up_ends_with_what_stays() {
    let hub = federation().await;
    let mut verb = hub.follow_errors(&["drain", "member1", "-o", "json"]).await;
    until_drained(&hub).await;
    assert!(verb.line().await.contains("Draining "));
    say(&hub, "False", "PolicyKeeps", "1 binding stays: its policy is sticky").await;
    assert!(verb.line().await.contains("its policy is sticky"));
    let (code, printed) = verb.end().await;
    assert_eq!(code, Some(1));
    let printed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&printed["emptied"], &printed["reason"]), (&json!(false), &json!("PolicyKeeps")));
}
