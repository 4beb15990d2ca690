//! A kind that only users' rules know, with processes: rules of a customization, and a webhook over TLS.

use std::sync::{Arc, Mutex};

use kube::api::{Api, DynamicObject};
use serde_json::{Value, json};

use super::Processes;
use crate::support::cli::{root, run};
use crate::support::federation::{bindings, cluster_objects, cluster_scoped, objects};
use crate::support::process::Process;
use crate::support::servers::ApiServer;
use crate::support::wait::until;
use crate::support::webhook::Webhook;

const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: webapps.apps.example.io}
spec:
  group: apps.example.io
  names: {kind: WebApp, plural: webapps, singular: webapp, listKind: WebAppList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
"#;
/// What the controller may do with the kind.
const RIGHTS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: atoll-controller-webapps, labels: {rbac.atoll.dev/aggregate-to-controller: "true"}}
rules:
- {apiGroups: [apps.example.io], resources: [webapps], verbs: [get, list, watch]}
- {apiGroups: [apps.example.io], resources: [webapps/status], verbs: [patch]}
"#;
const POLICY: &str = r#"
apiVersion: policy.atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: apps, namespace: shop}
spec:
  resourceSelectors: [{apiVersion: apps.example.io/v1, kind: WebApp}]
  placement: {replicaScheduling: {replicaSchedulingType: Divided}}
"#;

/// The rules of the kind, with this script for its replicas.
fn customization(replicas: &str) -> String {
    json!({
        "apiVersion": "config.atoll.dev/v1alpha1", "kind": "ResourceInterpreterCustomization",
        "metadata": {"name": "webapp"},
        "spec": {"target": {"apiVersion": "apps.example.io/v1", "kind": "WebApp"}, "customizations": {
            "replicaResource": {"luaScript": replicas},
            "replicaRevision": {"luaScript":
                "function ReviseReplica(object, n) object.spec.size = n return object end"},
            "healthInterpretation": {"cel": "object.spec.size < 3"},
        }},
    })
    .to_string()
}

fn app(size: i64) -> String {
    json!({
        "apiVersion": "apps.example.io/v1", "kind": "WebApp",
        "metadata": {"name": "web", "namespace": "shop"}, "spec": {"size": size},
    })
    .to_string()
}

fn config(hub: &ApiServer, kind: &str) -> Api<DynamicObject> {
    cluster_scoped(&hub.client, "config.atoll.dev", "v1alpha1", kind)
}

/// A hub and two members that serve the kind, with a policy that divides its replicas.
struct Estate {
    federation: Processes,
    members: [ApiServer; 2],
    _processes: [Process; 3],
}

impl Estate {
    async fn start() -> Self {
        let (federation, controller) = Processes::started().await;
        let rights = ["--rights", "all"];
        let (first, one) = federation.joined_with("member1", &rights).await;
        let (second, two) = federation.joined_with("member2", &rights).await;
        for server in [&federation.hub, &first, &second] {
            server.apply(DEFINITION).await;
        }
        // Workloads are not moved to a member that serves their kind later.
        let clusters = cluster_objects(&federation.hub.client);
        let serves = |cluster: &Value| {
            let enabled = cluster["status"]["apiEnablements"].as_array();
            enabled.is_some_and(|all| {
                all.iter().any(|one| one["groupVersion"] == "apps.example.io/v1")
            })
        };
        for member in ["member1", "member2"] {
            until(&clusters, member, "its new kind", serves).await;
        }
        federation.hub.apply(RIGHTS).await;
        federation.hub.apply(POLICY).await;
        Self { federation, members: [first, second], _processes: [controller, one, two] }
    }

    async fn until_sizes(&self, size: i64) {
        for member in &self.members {
            let apps = objects(&member.client, "apps.example.io", "v1", "WebApp", "shop");
            until(&apps, "web", &format!("size {size}"), |app| app["spec"]["size"] == size).await;
        }
    }

    /// Waits until the binding has these replicas, and shows this health on both members.
    async fn until_bound(&self, replicas: i64, health: &str) -> Value {
        let all = bindings(&self.federation.hub.client, "shop");
        let name = atoll_api::names::binding_name("web", "WebApp", "apps.example.io");
        until(&all, &name, &format!("{replicas} replicas, {health}"), |binding| {
            let items = binding["status"]["aggregatedStatus"].as_array();
            binding["spec"]["replicas"] == replicas
                && items.is_some_and(|items| {
                    items.len() == 2 && items.iter().all(|item| item["health"] == health)
                })
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_a_customization_reads_and_revises_is_divided_over_two_members() {
    const SCRIPT: &str = "function GetReplicas(object) return object.spec.size, nil end";
    let estate = Estate::start().await;
    let hub = &estate.federation.hub;
    hub.apply(&customization(SCRIPT)).await;
    hub.apply(&app(4)).await;
    estate.until_sizes(2).await;
    estate.until_bound(4, "Healthy").await;
    let explained = run(&mut estate.federation.atoll(&["explain", "webapp/web", "-n", "shop"]));
    for part in ["member1", "member2", "2"] {
        assert!(explained.contains(part), "{part}: {explained}");
    }

    // A rule that never ends is shown, and nothing moves.
    hub.apply(&customization("function GetReplicas(object) while true do end end")).await;
    let customizations = config(hub, "ResourceInterpreterCustomization");
    let fails = |o: &Value| o["status"]["lastError"]["name"] == "web";
    let failing = until(&customizations, "webapp", "the failure", fails).await;
    let message = failing["status"]["lastError"]["message"].as_str().unwrap();
    assert!(message.contains("stopped"), "{message}");
    estate.until_sizes(2).await;

    hub.apply(&customization(SCRIPT)).await;
    hub.apply(&app(6)).await;
    estate.until_sizes(3).await;
    let binding = estate.until_bound(6, "Unhealthy").await;
    let reason = &binding["status"]["aggregatedStatus"][0]["healthReason"];
    assert_eq!(reason, "HealthInterpretation");
    let mended = |o: &Value| o["status"]["lastError"].is_null();
    until(&customizations, "webapp", "no failure", mended).await;
}

/// The example of docs/interpreters.md, for a server on this machine.
fn example(webhook: &Webhook) -> String {
    let page = std::fs::read_to_string(root().join("docs/interpreters.md")).unwrap();
    let from = page.find("kind: ResourceInterpreterWebhookConfiguration").unwrap();
    let start = page[..from].rfind("```yaml").unwrap() + "```yaml".len();
    let example = page[start..].split("```").next().unwrap();
    let mut object: Value = serde_saphyr::from_str(example).unwrap();
    object["webhooks"][0]["clientConfig"] =
        json!({"url": webhook.url(), "caBundle": webhook.authority()});
    object.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_a_webhook_reads_and_revises_stays_while_the_webhook_is_away() {
    let is_up = Arc::new(Mutex::new(true));
    let up = is_up.clone();
    let webhook = Webhook::start(move |question| {
        let size = question["object"]["spec"]["size"].as_i64()?;
        let up = *up.lock().unwrap();
        up.then(|| match question["operation"].as_str().unwrap() {
            "InterpretReplica" => json!({"replicas": size}),
            "ReviseReplica" => {
                let value = &question["replicas"];
                let patch = json!([{"op": "replace", "path": "/spec/size", "value": value}]);
                let patch = k8s_openapi::ByteString(patch.to_string().into_bytes());
                json!({"patchType": "JSONPatch", "patch": patch})
            }
            "InterpretHealth" => json!({"healthy": size < 3}),
            other => panic!("{other} was not asked for"),
        })
    })
    .await;
    let estate = Estate::start().await;
    let hub = &estate.federation.hub;
    hub.apply(&example(&webhook)).await;
    hub.apply(&app(4)).await;
    estate.until_sizes(2).await;
    estate.until_bound(4, "Healthy").await;
    let configurations = config(hub, "ResourceInterpreterWebhookConfiguration");
    let condition = |object: &Value, kind: &str| {
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|held| held["type"] == kind).unwrap_or_default()
    };
    let valid = |o: &Value| condition(o, "Valid")["status"] == "True";
    until(&configurations, "webapps", "valid", valid).await;

    *is_up.lock().unwrap() = false;
    hub.apply(&app(6)).await;
    let away = |o: &Value| condition(o, "Failing")["reason"] == "WebhookUnreachable";
    until(&configurations, "webapps", "unreachable", away).await;
    estate.until_sizes(2).await;
    estate.until_bound(4, "Healthy").await;

    *is_up.lock().unwrap() = true;
    estate.until_sizes(3).await;
    let binding = estate.until_bound(6, "Unhealthy").await;
    let reason = &binding["status"]["aggregatedStatus"][0]["healthReason"];
    assert_eq!(reason, "HealthInterpretation");
    let back = |o: &Value| condition(o, "Failing")["status"] == "False";
    until(&configurations, "webapps", "reachable", back).await;
}
