//! `atoll migrate karmada` from an API server with the objects of a real Karmada control plane (`tests/karmada`) to the
//! federation of `atoll up`, whose members have what Karmada's members had: the workloads become Atoll's, and their pods run
//! on. A task of the test does what Karmada's controllers were recorded to do.

use std::path::Path;

use kube::Client;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};

use crate::support::cli::{fail, run};
use crate::support::federation::{Federation, cluster_objects, deployments, free_ports, objects};
use crate::support::karmada::install;
use crate::support::process::Process;
use crate::support::recording::{Recording, control_plane, define, store};
use crate::support::servers::ApiServer;
use crate::support::wait::until;

/// Ports that `atoll up` takes with three members: hub, agents' address, and one a member.
const PORTS: u16 = 5;

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

/// Follows a suspension as Karmada's controllers did: what they made of the bindings, and their Works.
async fn follow(karmada: Client, recording: Recording) {
    let bindings = objects(&karmada, "work.karmada.io", "v1alpha2", "ResourceBinding", "shop");
    let suspended = |binding: Option<&DynamicObject>| {
        binding.is_some_and(|binding| binding.data["spec"]["suspension"]["dispatching"] == true)
    };
    await_condition(bindings, "web-deployment", suspended).await.unwrap();
    for work in recording.suspended.iter().filter(|object| object["kind"] == "Work") {
        let name = work["metadata"]["name"].as_str().unwrap();
        let patch = json!({"spec": work["spec"], "status": work["status"]});
        let works = api(&karmada, work);
        works.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
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

/// A member with its pods, and the replicas of `web` there.
struct Running {
    client: Client,
    pods: Vec<Value>,
    web: i64,
}

/// The members as Karmada had them, with their pods ready.
async fn on_members(federation: &Federation, recording: &Recording) -> Vec<Running> {
    let shares = recording.shares("Deployment", "web");
    let mut members = Vec::new();
    for copies in &recording.members {
        let client = federation.client(&copies.member).await;
        define(&client).await;
        for object in &copies.objects {
            store(&client, object).await;
        }
        for object in copies.objects.iter().filter(|object| object["kind"] == "Deployment") {
            let name = object["metadata"]["name"].as_str().unwrap();
            until(&deployments(&client, "shop"), name, "ready", |d| {
                d["status"]["readyReplicas"] == d["spec"]["replicas"]
            })
            .await;
        }
        let (_, web) = shares.iter().find(|(name, _)| *name == copies.member).unwrap();
        let pods = pods(&client).await;
        members.push(Running { client, pods, web: *web });
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
    let recording = Recording::read();
    let hub = federation.client("hub").await;
    for client in [&hub, &karmada.client] {
        define(client).await;
    }
    install(&karmada.client).await;
    control_plane(&karmada.client, &recording).await;
    let members = on_members(&federation, &recording).await;
    let from = karmada.kubeconfig.clone();

    // Too early: policies select members by what Atoll's Clusters do not have yet.
    let output = migrate(&federation, &from, &["check", "-o", "json"]).output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = answer["findings"].as_array().unwrap().iter();
    let blocking: Vec<_> = findings.filter(|one| one["severity"] == "Blocks").collect();
    let is_unlike = |one: &&Value| {
        let problem = one["problem"].as_str().unwrap();
        problem.contains("lacks the label tier=1") || problem.contains("spec.region is")
    };
    assert!(
        blocking.len() == 4 && blocking.iter().copied().all(|one| is_unlike(&one)),
        "{blocking:#?}"
    );
    let clusters = cluster_objects(&hub);
    for copies in &recording.members {
        let theirs = recording.find("Cluster", &copies.member);
        let patch = json!({"metadata": {"labels": theirs["metadata"]["labels"]}, "spec": {"region": theirs["spec"]["region"]}});
        let params = PatchParams::default();
        clusters.patch(&copies.member, &params, &Patch::Merge(patch)).await.unwrap();
    }
    let early = fail(&mut migrate(&federation, &from, &["switch"]));
    assert!(early.contains("run `atoll migrate karmada prepare` first"), "{early}");

    let checked = run(&mut migrate(&federation, &from, &["check", "-n", "shop"]));
    assert!(checked.contains("4 objects in namespace shop would move"), "{checked}");
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
    assert!(waits.contains("is not suspended"), "{waits}");
    assert!(deployments(&hub, "shop").get_opt("web").await.unwrap().is_none(), "too early");
    let status = run(&mut migrate(&federation, &from, &["status"]));
    assert!(status.contains("Switching"), "{status}");

    let following = tokio::spawn(follow(karmada.client.clone(), recording.clone()));
    run(&mut migrate(&federation, &from, &["switch"]));
    following.await.unwrap();
    let verified = run(&mut migrate(&federation, &from, &["verify"]));
    assert!(verified.contains("no differences"), "{verified}");
    for member in &members {
        assert_eq!(pods(&member.client).await, member.pods);
        let object = deployments(&member.client, "shop").get("web").await.unwrap();
        let object = serde_json::to_value(&object).unwrap();
        assert_eq!(object["spec"]["replicas"], member.web);
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
    assert!(back.contains("released 5 objects"), "{back}");
    let binding = bindings.get("web-deployment").await.unwrap();
    assert!(binding.data["spec"]["suspension"]["scheduling"].is_null(), "{binding:?}");
    for member in &members {
        assert_eq!(pods(&member.client).await, member.pods);
        let labels =
            deployments(&member.client, "shop").get("web").await.unwrap().metadata.labels.unwrap();
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
    for member in &members {
        assert_eq!(pods(&member.client).await, member.pods);
        let object = deployments(&member.client, "shop").get("web").await.unwrap();
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
    for member in &members {
        until(&deployments(&member.client, "shop"), "web", "the new image", |d| {
            let image = &d["spec"]["template"]["spec"]["containers"][0]["image"];
            image.as_str().is_some_and(|image| image.ends_with("/web:2"))
        })
        .await;
    }
}
