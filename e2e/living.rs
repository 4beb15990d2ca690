//! `atoll migrate karmada` from a living Karmada: its controllers run while the estate moves, goes back, and moves again.
//! `verify` and `finish` read members through the aggregated API, which this federation does not serve; `migrating.rs` has
//! them.

use std::process::Command;

use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::Processes;
use crate::support::cli::{fail, run};
use crate::support::federation::{cluster_objects, deployments, objects};
use crate::support::living::{self, Karmada};
use crate::support::servers::ApiServer;
use crate::support::wait::until;
use crate::taking::{push_member, token};

/// What application teams gave to Karmada: a Deployment by static weights with a ConfigMap that follows it and an override
/// for one member, one by the members' free room, and a cluster-scoped object.
const ESTATE: &str = r#"
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: shop}, data: {a: b}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {app: web}}
spec:
  replicas: 5
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: main
        image: registry.example.com/web:1
        envFrom: [{configMapRef: {name: web}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: api, namespace: shop, labels: {app: api}}
spec:
  replicas: 3
  selector: {matchLabels: {app: api}}
  template:
    metadata: {labels: {app: api}}
    spec:
      containers:
      - {name: main, image: registry.example.com/api:1, resources: {requests: {cpu: 100m, memory: 64Mi}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: shop-reader}
rules: [{apiGroups: [""], resources: [pods], verbs: [get, list]}]
---
apiVersion: policy.karmada.io/v1alpha1
kind: OverridePolicy
metadata: {name: mirror, namespace: shop}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]
  overrideRules:
  - targetCluster: {clusterNames: [member2]}
    overriders:
      imageOverrider: [{component: Registry, operator: replace, value: mirror.example.com}]
---
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: shop}
spec:
  propagateDeps: true
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]
  placement:
    clusterAffinity: {clusterNames: [member1, member2]}
    replicaScheduling:
      replicaSchedulingType: Divided
      replicaDivisionPreference: Weighted
      weightPreference:
        staticWeightList:
        - {targetCluster: {clusterNames: [member1]}, weight: 4}
        - {targetCluster: {clusterNames: [member2]}, weight: 1}
---
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: api, namespace: shop}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: api}]
  placement:
    clusterAffinity: {clusterNames: [member1, member2]}
    replicaScheduling:
      replicaSchedulingType: Divided
      replicaDivisionPreference: Weighted
      weightPreference: {dynamicWeight: AvailableReplicas}
---
apiVersion: policy.karmada.io/v1alpha1
kind: ClusterPropagationPolicy
metadata: {name: reader}
spec:
  resourceSelectors: [{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, name: shop-reader}]
  placement: {clusterAffinity: {clusterNames: [member1, member2]}}
"#;

/// The controller reads a kind that is not among those of its manifest after a platform team has granted it.
const GRANT: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: atoll-controller-clusterroles
  labels: {rbac.atoll.dev/aggregate-to-controller: "true"}
rules: [{apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], verbs: [get, list, watch]}]
"#;

/// What may not change on a member while its owner changes: uids of the objects, and every pod.
async fn running(member: &ApiServer) -> Vec<Value> {
    let mut all = Vec::new();
    for (group, kind) in [("", "Pod"), ("apps", "Deployment"), ("", "ConfigMap")] {
        let list = objects(&member.client, group, "v1", kind, "shop");
        for object in list.list(&ListParams::default()).await.unwrap() {
            // A Pod of the rollout before.
            if object.metadata.deletion_timestamp.is_some() {
                continue;
            }
            all.push(json!([
                kind,
                object.metadata.name,
                object.metadata.uid,
                object.data["spec"]["replicas"]
            ]));
        }
    }
    all.push(json!(role(member).await.metadata.uid));
    all.sort_by_key(Value::to_string);
    all
}

async fn role(member: &ApiServer) -> DynamicObject {
    cluster_scoped(member, "rbac.authorization.k8s.io", "v1", "ClusterRole")
        .get("shop-reader")
        .await
        .unwrap()
}

fn cluster_scoped(
    server: &ApiServer,
    group: &str,
    version: &str,
    kind: &str,
) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::all_with(server.client.clone(), &resource)
}

/// The replicas of a Deployment on a member, once its rollout is complete.
async fn ready(
    member: &ApiServer,
    name: &str,
    replicas: impl Fn(i64) -> bool + Send + Sync,
) -> i64 {
    let api = deployments(&member.client, "shop");
    let found = until(&api, name, "ready", |d| {
        let status = &d["status"];
        let settled = status["observedGeneration"] == d["metadata"]["generation"]
            && ["replicas", "updatedReplicas", "readyReplicas"]
                .iter()
                .all(|count| status[*count] == d["spec"]["replicas"]);
        settled && d["spec"]["replicas"].as_i64().is_some_and(&replicas)
    });
    found.await["spec"]["replicas"].as_i64().unwrap()
}

/// Joins the members to Karmada, and waits until it has placed the estate and its pods run.
async fn placed(karmada: &Karmada, members: &[ApiServer; 2]) {
    for (member, name) in members.iter().zip(["member1", "member2"]) {
        let token = token(member).await;
        for object in push_member(name, member, &token) {
            karmada.server.apply(&object.to_string()).await;
        }
    }
    let clusters = cluster_scoped(&karmada.server, "cluster.karmada.io", "v1alpha1", "Cluster");
    for name in ["member1", "member2"] {
        until(&clusters, name, "Ready in Karmada", |cluster| {
            let conditions = cluster["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
                && cluster["status"]["resourceSummary"].is_object()
        })
        .await;
    }
    karmada.server.apply(ESTATE).await;
    let api = until(
        &objects(&karmada.server.client, "work.karmada.io", "v1alpha2", "ResourceBinding", "shop"),
        "api-deployment",
        "placed",
        |binding| binding["spec"]["clusters"].is_array(),
    )
    .await;
    for (member, (name, web)) in members.iter().zip([("member1", 4), ("member2", 1)]) {
        ready(member, "web", |replicas| replicas == web).await;
        let clusters = api["spec"]["clusters"].as_array().unwrap();
        if clusters.iter().any(|cluster| cluster["name"] == name) {
            ready(member, "api", |_| true).await;
        }
        until(&objects(&member.client, "", "v1", "ConfigMap", "shop"), "web", "its copy", |_| true)
            .await;
        until(
            &cluster_scoped(member, "rbac.authorization.k8s.io", "v1", "ClusterRole"),
            "shop-reader",
            "its copy",
            |_| true,
        )
        .await;
    }
}

impl Processes {
    fn migrate(&self, karmada: &Karmada, args: &[&str]) -> Command {
        let mut command = self.atoll(&["migrate", "karmada"]);
        command.args(args).args(["--timeout", "60"]).arg("--from").arg(&karmada.server.kubeconfig);
        command
    }
}

async fn assert_same(members: &[ApiServer; 2], before: &[Vec<Value>; 2], when: &str) {
    for (member, before) in members.iter().zip(before) {
        assert_eq!(running(member).await, *before, "{when}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_living_karmada_hands_its_workloads_over() {
    let Some(assets) = living::assets() else { return };
    let (federation, _controller) = Processes::started().await;
    let karmada = Karmada::start(&assets, &federation.folder().join("karmada")).await;
    let members = [
        ApiServer::member("member1", federation.folder()).await,
        ApiServer::member("member2", federation.folder()).await,
    ];
    federation.hub.apply(GRANT).await;
    placed(&karmada, &members).await;
    let before = [running(&members[0]).await, running(&members[1]).await];

    let early = fail(&mut federation.migrate(&karmada, &["check"]));
    assert!(early.contains("2 findings block the migration"), "{early}");
    run(&mut federation.migrate(&karmada, &["prepare", "--take-credentials"]));
    let clusters = cluster_objects(&federation.hub.client);
    for name in ["member1", "member2"] {
        until(&clusters, name, "its kinds", |c| c["status"]["apiEnablements"].is_array()).await;
    }
    let checked = run(&mut federation.migrate(&karmada, &["check"]));
    assert!(checked.contains("would move"), "{checked}");
    assert_same(&members, &before, "after prepare").await;

    run(&mut federation.migrate(&karmada, &["switch"]));
    assert_same(&members, &before, "after switch").await;

    run(&mut federation.migrate(&karmada, &["rollback"]));
    assert_same(&members, &before, "after rollback").await;
    // Karmada leads again: a new image reaches both members, and the override still holds.
    image(&karmada.server, "registry.example.com/web:2").await;
    for (member, registry) in members.iter().zip(["registry", "mirror"]) {
        has_image(member, &format!("{registry}.example.com/web:2")).await;
        ready(member, "web", |_| true).await;
    }
    let before = [running(&members[0]).await, running(&members[1]).await];
    run(&mut federation.migrate(&karmada, &["switch"]));
    assert_same(&members, &before, "after the second switch").await;
    // Atoll leads: Karmada's controllers run, and leave the members' objects alone.
    image(&federation.hub, "registry.example.com/web:3").await;
    for (member, registry) in members.iter().zip(["registry", "mirror"]) {
        has_image(member, &format!("{registry}.example.com/web:3")).await;
    }
}

async fn image(server: &ApiServer, image: &str) {
    let patch =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}});
    let api = deployments(&server.client, "shop");
    api.patch("web", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
}

async fn has_image(member: &ApiServer, image: &str) {
    until(&deployments(&member.client, "shop"), "web", image, |d| {
        d["spec"]["template"]["spec"]["containers"][0]["image"] == image
    })
    .await;
}
