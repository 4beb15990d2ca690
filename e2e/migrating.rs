//! `atoll migrate karmada` from an API server with Karmada's objects to the federation of `atoll up`: workloads that
//! Karmada runs on the members become Atoll's, and their pods run on. A task of the test stands for Karmada's binding
//! controller.

#![expect(clippy::unwrap_used, reason = "a panic is the report of a test")]
#![expect(
    clippy::print_stdout,
    reason = "what a test leaves out, and what its processes say, is for its reader"
)]

mod support;

use std::path::Path;

use kube::Client;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use support::cli::{fail, run};
use support::federation::{Federation, deployments, free_ports, namespace, objects};
use support::karmada::install;
use support::process::Process;
use support::servers::ApiServer;
use support::wait::until;

/// Ports that `atoll up` takes with three members: hub, agents' address, and one a member.
const PORTS: u16 = 5;
/// Field manager of Karmada's writes on members.
const KARMADA: &str = "karmada-controller-manager";
const ID: &str = "3f0c1e2a";

fn api(client: &Client, object: &Value) -> Api<DynamicObject> {
    let (group, version) =
        object["apiVersion"].as_str().unwrap().rsplit_once('/').unwrap_or(("", "v1"));
    let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
    let resource = ApiResource::from_gvk(&kind);
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

async fn create(client: &Client, object: Value) {
    let params = PostParams { field_manager: Some(KARMADA.to_owned()), ..PostParams::default() };
    let api = api(client, &object);
    api.create(&params, &serde_json::from_value(object).unwrap()).await.unwrap();
}

fn template() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "labels": {
            "app": "web", "propagationpolicy.karmada.io/permanent-id": ID}},
        "spec": {
            "replicas": 5,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "registry.example.com/web:1"}]},
            },
        },
    })
}

/// What Karmada applies: the template as its API server has it, and its override of the image on member2.
async fn manifest(karmada: &Client, member: &str, replicas: i64) -> Value {
    let stored = deployments(karmada, "shop").get("web").await.unwrap();
    let mut object = template();
    object["spec"] = stored.data["spec"].clone();
    object["metadata"]["labels"] = json!({"app": "web", "karmada.io/managed": "true"});
    object["metadata"]["annotations"] = json!({
        "work.karmada.io/name": "web-687f", "work.karmada.io/namespace": format!("karmada-es-{member}"),
        "resourcetemplate.karmada.io/uid": "t-1", "work.karmada.io/conflict-resolution": "abort",
    });
    object["spec"]["replicas"] = json!(replicas);
    if member == "member2" {
        object["spec"]["template"]["spec"]["containers"][0]["image"] =
            json!("mirror.example.com/web:1");
    }
    object
}

fn work(member: &str, name: &str, manifest: Value) -> Value {
    json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"name": name, "namespace": format!("karmada-es-{member}"), "finalizers": ["karmada.io/execution-controller"],
            "labels": {"resourcebinding.karmada.io/permanent-id": ID}},
        "spec": {"workload": {"manifests": [manifest]}},
        "status": {"conditions": [{"type": "Applied", "status": "True"}]}})
}

const SHARES: [(&str, i64); 2] = [("member1", 4), ("member2", 1)];

/// Karmada's control plane: a Deployment with 4 and 1 replicas of equal weights, which no scheduler would choose now.
async fn control_plane(karmada: &Client) {
    install(karmada).await;
    for member in ["member1", "member2", "member3"] {
        create(karmada, namespace(&format!("karmada-es-{member}"))).await;
        create(karmada, json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": member}, "spec": {"syncMode": "Push", "apiEndpoint": "https://192.0.2.1:6443"}})).await;
    }
    create(karmada, namespace("shop")).await;
    create(karmada, template()).await;
    create(karmada, json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"propagationpolicy.karmada.io/permanent-id": ID}},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web"}],
            "conflictResolution": "Abort", "preemption": "Never", "priority": 0, "schedulerName": "default-scheduler",
            "placement": {"clusterTolerations": [], "replicaScheduling": {
                "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"}}}})).await;
    create(karmada, json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"name": "mirror", "namespace": "shop"},
        "spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}], "overrideRules": [{
            "targetCluster": {"clusterNames": ["member2"]},
            "overriders": {"imageOverrider": [{"component": "Registry", "operator": "replace", "value": "mirror.example.com"}]}}]}})).await;
    let clusters: Vec<Value> =
        SHARES.iter().map(|(name, replicas)| json!({"name": name, "replicas": replicas})).collect();
    create(karmada, json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": "web-deployment", "namespace": "shop",
            "labels": {"resourcebinding.karmada.io/permanent-id": ID},
            "annotations": {"propagationpolicy.karmada.io/name": "web", "propagationpolicy.karmada.io/namespace": "shop"}},
        "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web"},
            "replicas": 5, "conflictResolution": "Abort", "schedulerName": "default-scheduler", "clusters": clusters}})).await;
    for (member, replicas) in SHARES {
        let manifest = manifest(karmada, member, replicas).await;
        create(karmada, work(member, "web-687f", manifest)).await;
        create(karmada, work(member, "shop", namespace("shop"))).await;
    }
}

/// Copies a binding's suspension to its Works, as Karmada's binding controller does.
async fn follow(karmada: Client) {
    let bindings = objects(&karmada, "work.karmada.io", "v1alpha2", "ResourceBinding", "shop");
    let suspended = |binding: Option<&DynamicObject>| {
        binding.is_some_and(|binding| binding.data["spec"]["suspension"]["dispatching"] == true)
    };
    await_condition(bindings, "web-deployment", suspended).await.unwrap();
    for (member, _) in SHARES {
        let works = objects(
            &karmada,
            "work.karmada.io",
            "v1alpha1",
            "Work",
            &format!("karmada-es-{member}"),
        );
        let patch =
            json!({"spec": {"suspendDispatching": true, "preserveResourcesOnDeletion": true}});
        works.patch("web-687f", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
}

/// Name and uid of each pod, with the hash of its template among its labels.
async fn pods(member: &Client) -> Vec<Value> {
    let list = objects(member, "", "v1", "Pod", "shop").list(&ListParams::default()).await.unwrap();
    let mut pods: Vec<Value> = list
        .items
        .into_iter()
        .map(|pod| json!([pod.metadata.name, pod.metadata.uid, pod.metadata.labels]))
        .collect();
    pods.sort_by_key(Value::to_string);
    pods
}

async fn on_members(federation: &Federation, karmada: &Client) -> Vec<(Client, Vec<Value>)> {
    let mut members = Vec::new();
    for (name, replicas) in SHARES {
        let member = federation.client(name).await;
        create(&member, namespace("shop")).await;
        create(&member, manifest(karmada, name, replicas).await).await;
        until(&deployments(&member, "shop"), "web", "ready", |d| {
            d["status"]["readyReplicas"] == replicas
        })
        .await;
        let before = pods(&member).await;
        members.push((member, before));
    }
    members
}

fn migrate(federation: &Federation, karmada: &Path, args: &[&str]) -> std::process::Command {
    let from = karmada.to_str().unwrap();
    federation.atoll(&[&["migrate", "karmada"], args, &["--from", from]].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn workloads_of_karmada_become_atolls_where_they_are_and_no_pod_starts_again() {
    let data = tempfile::tempdir().unwrap();
    let federation = Federation::start(&data.path().join("atoll"), free_ports(PORTS));
    let karmada = ApiServer::hub(data.path()).await;
    control_plane(&karmada.client).await;
    let members = on_members(&federation, &karmada.client).await;
    let hub = federation.client("hub").await;
    let from = karmada.kubeconfig.clone();

    // Too early, and a member that differs.
    let early = fail(&mut migrate(&federation, &from, &["switch"]));
    assert!(early.contains("run `atoll migrate karmada prepare` first"), "{early}");
    let zone = json!({"spec": {"provider": "elsewhere"}});
    let theirs =
        json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {}});
    api(&karmada.client, &theirs)
        .patch("member1", &PatchParams::default(), &Patch::Merge(zone))
        .await
        .unwrap();
    let unlike = fail(&mut migrate(&federation, &from, &["check"]));
    assert!(unlike.contains("blocks the migration"), "{unlike}");
    let back = json!({"spec": {"provider": null}});
    api(&karmada.client, &theirs)
        .patch("member1", &PatchParams::default(), &Patch::Merge(back))
        .await
        .unwrap();

    let checked = run(&mut migrate(&federation, &from, &["check", "-n", "shop"]));
    assert!(checked.contains("1 object in namespace shop would move"), "{checked}");
    let planned = run(&mut migrate(&federation, &from, &["prepare", "--dry-run"]));
    assert!(planned.contains("kind: OverridePolicy"), "{planned}");
    run(&mut migrate(&federation, &from, &["prepare"]));
    let status = run(&mut migrate(&federation, &from, &["status"]));
    assert!(status.contains("NotSwitched"), "{status}");

    // Killed while it waits for the Works: everything in Karmada is suspended, and nothing is Atoll's yet.
    let mut killed = Process::spawn("switch", &mut migrate(&federation, &from, &["switch"]));
    let bindings =
        objects(&karmada.client, "work.karmada.io", "v1alpha2", "ResourceBinding", "shop");
    until(&bindings, "web-deployment", "suspended", |b| {
        b["spec"]["suspension"]["scheduling"] == true
    })
    .await;
    killed.child().kill().unwrap();
    killed.child().wait().unwrap();
    let waits = fail(&mut migrate(&federation, &from, &["switch", "--timeout", "1"]));
    assert!(
        waits.contains("the Work of Deployment.apps shop/web on member1 is not suspended"),
        "{waits}"
    );
    assert!(deployments(&hub, "shop").get_opt("web").await.unwrap().is_none(), "too early");
    let status = run(&mut migrate(&federation, &from, &["status"]));
    assert!(status.contains("Switching"), "{status}");

    let following = tokio::spawn(follow(karmada.client.clone()));
    run(&mut migrate(&federation, &from, &["switch"]));
    following.await.unwrap();
    let verified = run(&mut migrate(&federation, &from, &["verify"]));
    assert!(verified.contains("no differences"), "{verified}");
    for ((member, before), (name, replicas)) in members.iter().zip(SHARES) {
        assert_eq!(pods(member).await, *before, "the pods of {name}");
        let object = deployments(member, "shop").get("web").await.unwrap();
        let object = serde_json::to_value(&object).unwrap();
        assert_eq!(object["spec"]["replicas"], replicas, "{name}");
        let labels = &object["metadata"]["labels"];
        assert_eq!(
            (&labels["atoll.dev/managed-by"], &labels["karmada.io/managed"]),
            (&json!("atoll"), &json!("true"))
        );
    }
    let again = run(&mut migrate(&federation, &from, &["switch"]));
    assert!(again.contains("0 now"), "{again}");
    let status = run(&mut migrate(&federation, &from, &["status", "-o", "json"]));
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["namespaces"][0]["phase"], "Switched");

    // Back to Karmada, and forth again.
    let back = run(&mut migrate(&federation, &from, &["rollback"]));
    assert!(back.contains("released 1 object"), "{back}");
    let binding = bindings.get("web-deployment").await.unwrap();
    assert!(binding.data["spec"]["suspension"]["scheduling"].is_null(), "{binding:?}");
    for ((member, before), (name, _)) in members.iter().zip(SHARES) {
        assert_eq!(pods(member).await, *before, "the pods of {name}");
        let labels = deployments(member, "shop").get("web").await.unwrap().metadata.labels.unwrap();
        assert!(!labels.contains_key("atoll.dev/managed-by"), "{labels:?}");
        assert_eq!(labels["karmada.io/managed"], "true");
    }
    run(&mut migrate(&federation, &from, &["rollback"]));
    run(&mut migrate(&federation, &from, &["switch"]));
    run(&mut migrate(&federation, &from, &["verify"]));

    // A change on one side only is a difference, and in the way of a rollback.
    let image = |name: &str| json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": name}]}}}});
    let paused = json!({"spec": {"paused": true}});
    deployments(&karmada.client, "shop")
        .patch("web", &PatchParams::default(), &Patch::Merge(paused))
        .await
        .unwrap();
    let differs = fail(&mut migrate(&federation, &from, &["verify", "--timeout", "1"]));
    assert!(differs.contains("Atoll and Karmada differ"), "{differs}");
    let refused = fail(&mut migrate(&federation, &from, &["rollback"]));
    assert!(refused.contains("make the same change in Karmada"), "{refused}");
    let refused = fail(&mut migrate(&federation, &from, &["finish"]));
    assert!(refused.contains("spec.paused"), "{refused}");
    let resumed = json!({"spec": {"paused": null}});
    deployments(&karmada.client, "shop")
        .patch("web", &PatchParams::default(), &Patch::Merge(resumed))
        .await
        .unwrap();

    run(&mut migrate(&federation, &from, &["finish"]));
    for ((member, before), (name, _)) in members.iter().zip(SHARES) {
        assert_eq!(pods(member).await, *before, "the pods of {name}");
        let object = deployments(member, "shop").get("web").await.unwrap();
        let text =
            serde_json::to_string(&json!([object.metadata.labels, object.metadata.annotations]))
                .unwrap();
        assert!(!text.contains("karmada") && text.contains("atoll.dev/managed-by"), "{text}");
    }
    let on_hub = serde_json::to_value(deployments(&hub, "shop").get("web").await.unwrap()).unwrap();
    let annotations = on_hub["metadata"]["annotations"].to_string();
    assert!(
        !annotations.contains("migrate.atoll.dev") && !annotations.contains("work.atoll.dev"),
        "{annotations}"
    );
    let status = run(&mut migrate(&federation, &from, &["status"]));
    assert!(status.contains("Finished"), "{status}");
    let refused = fail(&mut migrate(&federation, &from, &["rollback"]));
    assert!(refused.contains("no way back"), "{refused}");
    run(&mut migrate(&federation, &from, &["finish"]));

    // The template on the hub is the one that counts now.
    deployments(&hub, "shop")
        .patch(
            "web",
            &PatchParams::default(),
            &Patch::Strategic(image("registry.example.com/web:2")),
        )
        .await
        .unwrap();
    for ((member, _), (name, _)) in members.iter().zip(SHARES) {
        until(&deployments(member, "shop"), "web", name, |d| {
            let image = &d["spec"]["template"]["spec"]["containers"][0]["image"];
            image.as_str().is_some_and(|image| image.ends_with("/web:2"))
        })
        .await;
    }
}
