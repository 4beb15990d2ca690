//! Every kind that the manifests grant, from the hub to a member and back, while users edit, delete and add finalizers.

use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::Processes;
use crate::support::cli::root;
use crate::support::federation::{bindings, objects};
use crate::support::servers::ApiServer;
use crate::support::wait::{until, until_gone};

/// Label of the objects that the policy selects.
const ALONG: &str = "along";

fn pod(name: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "nginx:1.27"}]},
    })
}

/// One object of each kind, with a second version that a member's API server accepts.
fn all() -> Vec<(Value, Value)> {
    let selected = |name: &str| json!({"matchLabels": {"app": name}});
    let once = |mut pod: Value| {
        pod["spec"]["restartPolicy"] = json!("Never");
        pod
    };
    let rule = |host: &str| {
        json!([{"host": host, "http": {"paths": [{
            "path": "/", "pathType": "Prefix",
            "backend": {"service": {"name": "service", "port": {"number": 80}}},
        }]}}])
    };
    let storage = |size: &str| {
        json!({"spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}},
        }})
    };
    let object = |version: &str, kind: &str, rest: Value| {
        let mut object = json!({
            "apiVersion": version, "kind": kind,
            "metadata": {
                "name": kind.to_lowercase(), "namespace": "shop", "labels": {ALONG: "yes"},
            },
        });
        for (field, value) in rest.as_object().unwrap() {
            object[field] = value.clone();
        }
        object
    };
    [
        ("v1", "ConfigMap", json!({"data": {"a": "1", "gone": "1"}}), json!({"data": {"a": "2"}})),
        (
            "v1",
            "Secret",
            json!({"stringData": {"a": "1"}}),
            json!({"stringData": {"a": "2"}}),
        ),
        ("v1", "ServiceAccount", json!({}), json!({"automountServiceAccountToken": false})),
        (
            "v1",
            "Service",
            json!({"spec": {"selector": {"app": "deployment"}, "ports": [{"port": 80}]}}),
            json!({"spec": {"selector": {"app": "deployment"}, "type": "NodePort", "ports": [{"port": 81}]}}),
        ),
        ("v1", "PersistentVolumeClaim", storage("1Gi"), storage("1Gi")),
        (
            "v1",
            "LimitRange",
            json!({"spec": {"limits": [{"type": "Container", "default": {"cpu": "100m"}}]}}),
            json!({"spec": {"limits": [{"type": "Container", "default": {"cpu": "200m"}}]}}),
        ),
        (
            "v1",
            "ResourceQuota",
            json!({"spec": {"hard": {"services": "10"}}}),
            json!({"spec": {"hard": {"services": "11"}}}),
        ),
        (
            "v1",
            "Pod",
            json!({"spec": pod("")["spec"]}),
            json!({"spec": pod("")["spec"]}),
        ),
        (
            "v1",
            "ReplicationController",
            json!({"spec": {"replicas": 0, "selector": {"app": "rc"}, "template": pod("rc")}}),
            json!({"spec": {"replicas": 0, "minReadySeconds": 1, "selector": {"app": "rc"}, "template": pod("rc")}}),
        ),
        (
            "apps/v1",
            "Deployment",
            json!({"spec": {"replicas": 1, "selector": selected("deployment"), "template": pod("deployment")}}),
            json!({"spec": {"replicas": 2, "selector": selected("deployment"), "template": pod("deployment")}}),
        ),
        (
            "apps/v1",
            "ReplicaSet",
            json!({"spec": {"replicas": 1, "selector": selected("replicaset"), "template": pod("replicaset")}}),
            json!({"spec": {"replicas": 2, "selector": selected("replicaset"), "template": pod("replicaset")}}),
        ),
        (
            "apps/v1",
            "StatefulSet",
            json!({"spec": {"serviceName": "s", "replicas": 1, "selector": selected("statefulset"), "template": pod("statefulset")}}),
            json!({"spec": {"serviceName": "s", "replicas": 2, "selector": selected("statefulset"), "template": pod("statefulset")}}),
        ),
        (
            "apps/v1",
            "DaemonSet",
            json!({"spec": {"selector": selected("daemonset"), "template": pod("daemonset")}}),
            json!({"spec": {"minReadySeconds": 1, "selector": selected("daemonset"), "template": pod("daemonset")}}),
        ),
        (
            "batch/v1",
            "Job",
            json!({"spec": {"template": once(json!({"spec": pod("")["spec"]}))}}),
            json!({"spec": {"activeDeadlineSeconds": 600, "template": once(json!({"spec": pod("")["spec"]}))}}),
        ),
        (
            "batch/v1",
            "CronJob",
            json!({"spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": once(pod("cron"))}}}}),
            json!({"spec": {"schedule": "0 1 1 1 *", "jobTemplate": {"spec": {"template": once(pod("cron"))}}}}),
        ),
        (
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            json!({"spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}}}),
            json!({"spec": {"maxReplicas": 4, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}}}),
        ),
        (
            "networking.k8s.io/v1",
            "Ingress",
            json!({"spec": {"rules": rule("a.example")}}),
            json!({"spec": {"rules": rule("b.example")}}),
        ),
        (
            "networking.k8s.io/v1",
            "NetworkPolicy",
            json!({"spec": {"podSelector": {}, "policyTypes": ["Ingress"]}}),
            json!({"spec": {"podSelector": {}, "policyTypes": ["Egress"]}}),
        ),
        (
            "policy/v1",
            "PodDisruptionBudget",
            json!({"spec": {"minAvailable": 1, "selector": selected("deployment")}}),
            json!({"spec": {"minAvailable": 2, "selector": selected("deployment")}}),
        ),
    ]
    .into_iter()
    .map(|(version, kind, first, mut second)| {
        second["metadata"] = json!({
            "name": kind.to_lowercase(), "namespace": "shop",
            "labels": {ALONG: "yes", "edition": "second"},
        });
        (object(version, kind, first), object(version, kind, second))
    })
    .collect()
}

fn group_version(object: &Value) -> (&str, &str) {
    let version = object["apiVersion"].as_str().unwrap();
    version.split_once('/').unwrap_or(("", version))
}

/// The API of the object's kind.
fn api(server: &ApiServer, object: &Value) -> Api<DynamicObject> {
    let (group, version) = group_version(object);
    objects(&server.client, group, version, object["kind"].as_str().unwrap(), "shop")
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

fn binding_of(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap();
    atoll_api::names::binding_name(name(object), kind, group_version(object).0)
}

/// Applies an object as a user, forcing conflicts.
async fn apply(server: &ApiServer, object: &Value) {
    let params = PatchParams::apply("kubectl").force();
    let applied = api(server, object).patch(name(object), &params, &Patch::Apply(object)).await;
    applied.unwrap_or_else(|error| panic!("{object}: {error}"));
}

async fn edit(api: &Api<DynamicObject>, name: &str, patch: Value) -> DynamicObject {
    let params = PatchParams { field_manager: Some("somebody".into()), ..Default::default() };
    api.patch(name, &params, &Patch::Merge(patch)).await.unwrap()
}

/// What the binding reports about member1.
fn reported(binding: &Value) -> &Value {
    binding["status"]["aggregatedStatus"].get(0).unwrap_or(&Value::Null)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_goes_to_a_member_and_away_with_the_rights_of_the_manifests() {
    let (federation, _controller) = Processes::started().await;
    let hub = &federation.hub;
    let rights = root().join("deploy/controller/secrets.yaml");
    hub.apply(&std::fs::read_to_string(rights).unwrap()).await;
    let (member, _agent) = federation.joined("member1").await;
    hub.apply("{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {team: a}}}").await;

    // One name is taken on the member already: that object stays unchanged and does not block the others.
    member.apply("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}").await;
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "theirs", "namespace": "shop", "labels": {ALONG: "yes"}},
        "data": {"whose": "theirs"},
    });
    apply(&member, &theirs).await;
    let mut ours = theirs.clone();
    ours["data"]["whose"] = json!("ours");
    apply(hub, &ours).await;

    let all = all();
    for (first, _) in &all {
        apply(hub, first).await;
    }
    let selectors: Vec<_> = all
        .iter()
        .map(|(object, _)| {
            json!({
                "apiVersion": object["apiVersion"], "kind": object["kind"],
                "labelSelector": {"matchLabels": {ALONG: "yes"}},
            })
        })
        .collect();
    let policy = json!({
        "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "along", "namespace": "shop"},
        "spec": {"resourceSelectors": selectors},
    });
    apply(hub, &policy).await;
    for (first, _) in &all {
        until(&api(&member, first), name(first), "there", |_| true).await;
    }
    let binding = bindings(&hub.client, "shop");
    let refused = until(&binding, "theirs-configmap", "a conflict", |b| {
        reported(b)["appliedMessage"].is_string()
    })
    .await;
    assert_eq!(reported(&refused)["applied"], false, "{refused:#}");
    let why = reported(&refused)["appliedMessage"].as_str().unwrap();
    for part in ["Conflict", "ConfigMap shop/theirs", "field manager: kubectl"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let configs = api(&member, &theirs);
    assert_eq!(configs.get("theirs").await.unwrap().data["data"]["whose"], "theirs");

    // The second version of each, over fields that member and controllers have set.
    for (first, second) in &all {
        if first != second {
            apply(hub, second).await;
        }
    }
    for (_, second) in &all {
        let edition = |o: &Value| o["metadata"]["labels"]["edition"] == "second";
        until(&api(&member, second), name(second), "the second version", edition).await;
        until(&binding, &binding_of(second), "applied", |b| reported(b)["applied"] == true).await;
    }
    let config = configs.get("configmap").await.unwrap();
    assert_eq!(config.data["data"], json!({"a": "2"}), "what is dropped goes");

    // Users edit and delete on the member: both are reverted.
    edit(&configs, "configmap", json!({"data": {"a": "3"}})).await;
    until(&configs, "configmap", "put right", |o| o["data"]["a"] == "2").await;
    let services = objects(&member.client, "", "v1", "Service", "shop");
    let uid = services.get("service").await.unwrap().metadata.uid.unwrap();
    services.delete("service", &DeleteParams::default()).await.unwrap();
    until(&services, "service", "made again", |o| o["metadata"]["uid"] != uid.as_str()).await;

    // An object with a finalizer does not block the others.
    edit(&configs, "configmap", json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    for (object, _) in &all {
        api(hub, object).delete(name(object), &DeleteParams::background()).await.unwrap();
    }
    for (object, _) in all.iter().filter(|(object, _)| object["kind"] != "ConfigMap") {
        until_gone(&api(&member, object), name(object)).await;
    }
    let held = configs.get("configmap").await.unwrap();
    assert!(held.metadata.deletion_timestamp.is_some());
    edit(&configs, "configmap", json!({"metadata": {"finalizers": null}})).await;
    until_gone(&configs, "configmap").await;
    for (object, _) in &all {
        until_gone(&binding, &binding_of(object)).await;
    }
    assert_eq!(configs.get("theirs").await.unwrap().data["data"]["whose"], "theirs");

    // The user's annotation lets Atoll take it over.
    ours["metadata"]["annotations"] = json!({"work.atoll.dev/conflict-resolution": "overwrite"});
    apply(hub, &ours).await;
    until(&configs, "theirs", "taken over", |o| o["data"]["whose"] == "ours").await;
}
