//! A policy names only a Deployment: with `propagateDeps`, everything that its pods need goes along, with the rights of
//! the manifests, and goes away with it.

use kube::api::{Api, DeleteParams, DynamicObject};
use serde_json::json;

use super::Processes;
use crate::support::cli::root;
use crate::support::federation::{bindings, deployments, objects};
use crate::support::servers::ApiServer;
use crate::support::wait::{until, until_gone};

/// The objects, as a user writes them. `unrelated` is referred to by nothing.
const SHOP: &str = r#"
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}, data: {colour: blue}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: unrelated, namespace: shop}, data: {colour: red}}
---
{apiVersion: v1, kind: Secret, metadata: {name: password, namespace: shop}, stringData: {password: hunter2}}
---
{apiVersion: v1, kind: Secret, metadata: {name: pull, namespace: shop}, type: kubernetes.io/dockerconfigjson,
 stringData: {.dockerconfigjson: '{"auths": {}}'}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: runner, namespace: shop}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: shop},
 spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      serviceAccountName: runner
      imagePullSecrets: [{name: pull}]
      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
      containers:
      - name: main
        image: nginx:1.27
        envFrom: [{configMapRef: {name: settings}}]
        env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: password, key: password}}}]
"#;
const POLICY: &str = r#"
{apiVersion: policy.atoll.dev/v1alpha1, kind: PropagationPolicy, metadata: {name: web, namespace: shop},
 spec: {propagateDeps: true, resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]}}
"#;
/// Everything that goes along.
const NEEDED: [(&str, &str); 5] = [
    ("ConfigMap", "settings"),
    ("Secret", "password"),
    ("Secret", "pull"),
    ("ServiceAccount", "runner"),
    ("PersistentVolumeClaim", "data"),
];

fn core(server: &ApiServer, kind: &str) -> Api<DynamicObject> {
    objects(&server.client, "", "v1", kind, "shop")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_for_a_deployment_brings_what_its_pods_need_and_takes_it_away() {
    let (federation, _controller) = Processes::started().await;
    let hub = &federation.hub;
    let (member, _agent) = federation.joined("member1").await;
    let rights = root().join("deploy/controller/secrets.yaml");
    hub.apply(&std::fs::read_to_string(rights).unwrap()).await;
    hub.apply(SHOP).await;
    hub.apply(POLICY).await;

    let web = "web-deployment";
    let binding = bindings(&hub.client, "shop");
    let reason = |b: &serde_json::Value| {
        let conditions = b["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.into_iter().find(|held| held["type"] == "DependenciesPropagated");
        found.map(|held| held["reason"].clone()).unwrap_or_default()
    };
    for (kind, name) in NEEDED {
        until(&core(&member, kind), name, "there", |_| true).await;
    }
    until(&binding, web, "everything", |b| reason(b) == "Propagated").await;
    let config = core(&member, "ConfigMap");
    assert_eq!(config.get("settings").await.unwrap().data["data"], json!({"colour": "blue"}));
    assert!(config.get_opt("unrelated").await.unwrap().is_none());

    let hubs = deployments(&hub.client, "shop");
    hubs.delete("web", &DeleteParams::background()).await.unwrap();
    until_gone(&deployments(&member.client, "shop"), "web").await;
    for (kind, name) in NEEDED {
        until_gone(&core(&member, kind), name).await;
        assert!(core(hub, kind).get_opt(name).await.unwrap().is_some(), "{kind} {name} on the hub");
    }
}
