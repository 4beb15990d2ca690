//! `atoll migrate karmada` from a living Karmada: its controllers run while the estate moves, goes back, moves again, and stays,
//! and while Karmada's part of it is deleted.

use std::process::Command;

use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::Processes;
use super::taking::{found, grants, push_member, token};
use crate::support::aggregation;
use crate::support::cli::run;
use crate::support::federation::{
    cluster_objects, cluster_scoped, deployments, free_ports, objects,
};
use crate::support::living::{self, Karmada};
use crate::support::recording::{self, Recording};
use crate::support::servers::ApiServer;
use crate::support::wait::{until, until_gone};

/// What application teams gave to Karmada: a Deployment by static weights with a ConfigMap that follows it and an override
/// for one member, one by the members' free room, an object of a kind that only a customization can divide, and a
/// cluster-scoped object. And what the platform team added: a quota and taints.
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
apiVersion: config.karmada.io/v1alpha1
kind: ResourceInterpreterCustomization
metadata: {name: gadgets}
spec:
  target: {apiVersion: example.com/v1, kind: Gadget}
  customizations:
    replicaResource:
      luaScript: |
        function GetReplicas(obj)
          return obj.spec.size, nil
        end
    replicaRevision:
      luaScript: |
        function ReviseReplica(obj, desired)
          obj.spec.size = desired
          return obj
        end
---
{apiVersion: example.com/v1, kind: Gadget, metadata: {name: gear, namespace: shop}, spec: {size: 4}}
---
apiVersion: policy.karmada.io/v1alpha1
kind: FederatedResourceQuota
metadata: {name: shop, namespace: shop}
spec: {overall: {cpu: "10", memory: 10Gi}}
---
apiVersion: policy.karmada.io/v1alpha1
kind: ClusterTaintPolicy
metadata: {name: unready}
spec:
  addOnConditions: [{conditionType: Ready, operator: In, statusValues: ["False"]}]
  removeOnConditions: [{conditionType: Ready, operator: In, statusValues: ["True"]}]
  taints: [{key: example.com/unready, effect: NoSchedule}]
---
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: gear, namespace: shop}
spec:
  resourceSelectors: [{apiVersion: example.com/v1, kind: Gadget, name: gear}]
  placement:
    clusterAffinity: {clusterNames: [member1, member2]}
    replicaScheduling:
      replicaSchedulingType: Divided
      replicaDivisionPreference: Weighted
      weightPreference:
        staticWeightList:
        - {targetCluster: {clusterNames: [member1]}, weight: 3}
        - {targetCluster: {clusterNames: [member2]}, weight: 1}
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

/// What may not change on a member while its owner changes: uids of the objects, and every pod.
async fn running(member: &ApiServer) -> Vec<Value> {
    let mut all = Vec::new();
    let kinds = [("", "Pod"), ("apps", "Deployment"), ("", "ConfigMap"), ("example.com", "Gadget")];
    for (group, kind) in kinds {
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
                object.data["spec"]["replicas"],
                object.data["spec"]["size"]
            ]));
        }
    }
    all.push(json!(role(member).await.metadata.uid));
    all.sort_by_key(Value::to_string);
    all
}

async fn role(member: &ApiServer) -> DynamicObject {
    cluster_scoped(&member.client, "rbac.authorization.k8s.io", "v1", "ClusterRole")
        .get("shop-reader")
        .await
        .unwrap()
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
    let clusters =
        cluster_scoped(&karmada.server.client, "cluster.karmada.io", "v1alpha1", "Cluster");
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
    for (member, (name, web, gear)) in members.iter().zip([("member1", 4, 3), ("member2", 1, 1)]) {
        ready(member, "web", |replicas| replicas == web).await;
        let gadgets = objects(&member.client, "example.com", "v1", "Gadget", "shop");
        until(&gadgets, "gear", "its share", |gadget| gadget["spec"]["size"] == gear).await;
        let clusters = api["spec"]["clusters"].as_array().unwrap();
        if clusters.iter().any(|cluster| cluster["name"] == name) {
            ready(member, "api", |_| true).await;
        }
        until(&objects(&member.client, "", "v1", "ConfigMap", "shop"), "web", "its copy", |_| true)
            .await;
        until(
            &cluster_scoped(&member.client, "rbac.authorization.k8s.io", "v1", "ClusterRole"),
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

/// What a hub lacks before an estate can move is found before anything waits for it: rights on kinds, and the way to
/// members. Both are there afterwards.
async fn granted(federation: &Processes, karmada: &Karmada, api: u16) {
    let early = found(&mut federation.migrate(karmada, &["check"]));
    let text = json!(early).to_string();
    for part in [
        "Atoll's controller may not get clusterroles.rbac.authorization.k8s.io",
        "Atoll's controller may not get gadgets.example.com",
        "the aggregated API is not installed",
        "it has not joined Atoll",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let grants = grants(&early);
    assert_eq!(grants.len(), 2, "{grants:?}");
    for grant in grants {
        federation.hub.apply(&grant).await;
    }
    federation.hub.apply(&aggregation::manifest_to(api)).await;
    let services =
        cluster_scoped(&federation.hub.client, "apiregistration.k8s.io", "v1", "APIService");
    until(&services, "v1alpha1.proxy.atoll.dev", "Available", |service| {
        let conditions = service["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|c| c["type"] == "Available" && c["status"] == "True")
    })
    .await;
    let later = json!(found(&mut federation.migrate(karmada, &["check"]))).to_string();
    assert!(!later.contains("may not") && !later.contains("aggregated"), "{later}");
}

/// No label or annotation of Karmada is left on a member.
async fn is_clean(member: &ApiServer) {
    let namespaces = cluster_scoped(&member.client, "", "v1", "Namespace");
    let mut all = vec![role(member).await, namespaces.get("shop").await.unwrap()];
    for (group, kind) in [("apps", "Deployment"), ("", "ConfigMap"), ("example.com", "Gadget")] {
        let list = objects(&member.client, group, "v1", kind, "shop");
        all.extend(list.list(&ListParams::default()).await.unwrap().items);
    }
    for object in all {
        let marks = json!([object.metadata.labels, object.metadata.annotations]).to_string();
        assert!(!marks.contains("karmada.io"), "{:?}: {marks}", object.metadata.name);
    }
}

/// Deletes everything that Karmada has of the estate, while its controllers run, and waits until it is gone. Karmada may have put
/// its finalizer on Works again since `finish` removed it, and does not take it off: docs/from-karmada.md says so.
async fn removed(karmada: &ApiServer) {
    let client = &karmada.client;
    let policy = |kind| objects(client, "policy.karmada.io", "v1alpha1", kind, "shop");
    let of_cluster = |kind| cluster_scoped(&karmada.client, "policy.karmada.io", "v1alpha1", kind);
    let bindings = objects(client, "work.karmada.io", "v1alpha2", "ResourceBinding", "shop");
    let cluster_bindings =
        cluster_scoped(&karmada.client, "work.karmada.io", "v1alpha2", "ClusterResourceBinding");
    let works = ["member1", "member2"].map(|member| {
        objects(client, "work.karmada.io", "v1alpha1", "Work", &format!("karmada-es-{member}"))
    });
    let templates =
        [deployments(client, "shop"), objects(client, "example.com", "v1", "Gadget", "shop")];
    let all = [
        policy("PropagationPolicy"),
        policy("OverridePolicy"),
        policy("FederatedResourceQuota"),
        of_cluster("ClusterPropagationPolicy"),
    ];
    for api in all.into_iter().chain(templates).chain([bindings, cluster_bindings]).chain(works) {
        let objects = api.list(&ListParams::default()).await.unwrap().items;
        for object in objects {
            let name = object.metadata.name.unwrap();
            match api.delete(&name, &DeleteParams::default()).await {
                // Its controllers were faster.
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                deleted => drop(deleted.unwrap()),
            }
            if object.data["spec"]["workload"].is_object() {
                let free = json!({"metadata": {"finalizers": null}});
                match api.patch(&name, &PatchParams::default(), &Patch::Merge(free)).await {
                    Err(kube::Error::Api(status)) if status.is_not_found() => {}
                    patched => drop(patched.unwrap()),
                }
            }
            until_gone(&api, &name).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_living_karmada_hands_its_workloads_over() {
    let Some(assets) = living::assets() else { return };
    let api = free_ports(1);
    let address = format!("127.0.0.1:{api}");
    let (federation, _controller) = Processes::started_with(&["--api-address", &address]).await;
    let karmada = Karmada::start(&assets, &federation.folder().join("karmada")).await;
    let members = [
        ApiServer::member("member1", federation.folder()).await,
        ApiServer::member("member2", federation.folder()).await,
    ];
    for server in [&federation.hub, &karmada.server, &members[0], &members[1]] {
        recording::define(&server.client).await;
    }
    placed(&karmada, &members).await;
    let before = [running(&members[0]).await, running(&members[1]).await];
    let before_it = recording::of_karmada(&karmada.server.client, "shop").await;
    let mut recording = Recording { before: before_it, ..Recording::default() };
    for (member, name) in members.iter().zip(["member1", "member2"]) {
        let copies = recording::of_member(&member.client, name, &recording.before).await;
        recording.members.push(copies);
    }

    granted(&federation, &karmada, api).await;
    run(&mut federation.migrate(&karmada, &["prepare", "--take-credentials"]));
    let clusters = cluster_objects(&federation.hub.client);
    for name in ["member1", "member2"] {
        until(&clusters, name, "its kinds", |c| c["status"]["apiEnablements"].is_array()).await;
    }
    let checked = run(&mut federation.migrate(&karmada, &["check"]));
    assert!(checked.contains("would move"), "{checked}");
    assert_same(&members, &before, "after prepare").await;

    run(&mut federation.migrate(&karmada, &["switch"]));
    recording.suspended = recording::of_work(&karmada.server.client, "shop").await;
    let verified = run(&mut federation.migrate(&karmada, &["verify"]));
    assert!(verified.contains("no differences"), "{verified}");
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
    run(&mut federation.migrate(&karmada, &["verify"]));
    assert_same(&members, &before, "after the second switch").await;

    run(&mut federation.migrate(&karmada, &["finish"]));
    assert_same(&members, &before, "after finish").await;
    removed(&karmada.server).await;
    assert_same(&members, &before, "after Karmada's objects were deleted").await;
    for member in &members {
        is_clean(member).await;
    }
    // Atoll leads, and Karmada's controllers, which still run, leave the members' objects alone.
    image(&federation.hub, "registry.example.com/web:3").await;
    for (member, registry) in members.iter().zip(["registry", "mirror"]) {
        has_image(member, &format!("{registry}.example.com/web:3")).await;
    }
    if recording::records() {
        recording.write();
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
