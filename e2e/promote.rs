//! `atoll promote` on the members of `atoll up`: an object that a member had before becomes the hub's, and its pods run on.

use serde_json::{Value, json};

use crate::support::cli::{fail, run};
use crate::support::federation::{Federation, deployments, free_ports, objects};
use crate::support::wait::until;

/// Ports that `atoll up` takes with three members: hub, agents' address, and one a member.
const PORTS: u16 = 5;

fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "nginx"}]},
            },
        },
    })
}

/// Name, uid and labels of each pod: the template's hash is one of the labels.
async fn pods(member: &kube::Client, name: &str) -> Vec<Value> {
    let params = kube::api::ListParams::default().labels(&format!("app={name}"));
    let list = objects(member, "", "v1", "Pod", "default").list(&params).await.unwrap();
    let mut pods: Vec<Value> = list
        .items
        .into_iter()
        .map(|pod| json!([pod.metadata.name, pod.metadata.uid, pod.metadata.labels]))
        .collect();
    pods.sort_by_key(Value::to_string);
    pods
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_workload_is_the_hubs_and_no_pod_starts_again() {
    let data = tempfile::tempdir().unwrap();
    let federation = Federation::start(&data.path().join("atoll"), free_ports(PORTS));
    let hub = federation.client("hub").await;
    let member = federation.client("member2").await;
    let on_member = deployments(&member, "default");
    for name in ["old", "older"] {
        let object = serde_json::from_value(deployment(name)).unwrap();
        on_member.create(&Default::default(), &object).await.unwrap();
        until(&on_member, name, "2 of 2 ready", |d| d["status"]["readyReplicas"] == 2).await;
    }
    let before = [pods(&member, "old").await, pods(&member, "older").await];
    let template = on_member.get("old").await.unwrap().data["spec"]["template"].clone();

    for (args, part) in [
        (
            &["promote", "deploy/old", "--from", "member1"][..],
            "member1 has no deployment.apps default/old",
        ),
        (&["promote", "deploy/old", "--from", "moon"], "moon"),
        (&["promote", "deploy/old", "--from", "member2", "-n", "kube-system"], "reserved"),
        (&["promote", "--all", "--from", "member2"], "--namespace"),
    ] {
        let refused = fail(&mut federation.atoll(args));
        assert!(refused.contains(part), "{args:?}: {refused}");
    }
    let pod = before[0][0][0].as_str().unwrap();
    let refused =
        fail(&mut federation.atoll(&["promote", &format!("pod/{pod}"), "--from", "member2"]));
    assert!(refused.contains("cannot be promoted"), "{refused}");

    let planned =
        run(&mut federation.atoll(&["promote", "deploy/old", "--from", "member2", "--dry-run"]));
    assert!(
        planned.contains("kind: PropagationPolicy") && planned.contains("member2"),
        "{planned}"
    );
    let on_hub = deployments(&hub, "default");
    assert!(on_hub.get_opt("old").await.unwrap().is_none(), "a dry run creates nothing");

    run(&mut federation.atoll(&["promote", "deploy/old", "--from", "member2"]));
    let all = ["promote", "--all", "-n", "default", "--from", "member2"];
    let all = run(&mut federation.atoll(&all));
    assert!(all.contains("default/older") && !all.contains("default/old "), "{all}");
    for (name, before) in ["old", "older"].into_iter().zip(&before) {
        until(&on_hub, name, "the member's status on the hub", |d| {
            d["status"]["readyReplicas"] == 2
        })
        .await;
        until(&on_member, name, "Atoll's label", |d| {
            d["metadata"]["labels"]["atoll.dev/managed-by"] == "atoll"
        })
        .await;
        assert_eq!(pods(&member, name).await, *before, "the same pods, of the same template");
    }
    // The generation of a Deployment changes with its annotations too.
    let now = on_member.get("old").await.unwrap().data["spec"]["template"].clone();
    assert_eq!(now, template, "the template of the pods did not change");
    let again = fail(&mut federation.atoll(&["promote", "deploy/old", "--from", "member2"]));
    assert!(again.contains("Atoll manages it already"), "{again}");
}
