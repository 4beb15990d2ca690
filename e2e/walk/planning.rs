//! `atoll plan` on a running federation: what is planned is what happens, and planning writes nothing.

use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::{PORTS, shares, without_kubectl};
use crate::support::cli::{example, run};
use crate::support::federation::{Federation, bindings, cluster_objects, free_ports, objects};
use crate::support::wait::until;

/// Exit code of a plan with changes.
const CHANGES: i32 = 2;

/// Runs `atoll plan -o json`; its exit code and what it printed.
fn plan(federation: &Federation, args: &[&str]) -> (Option<i32>, Value) {
    let output = federation.atoll(&[&["plan", "-o", "json"], args].concat()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let plan = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{error}: {text}\n{}", String::from_utf8_lossy(&output.stderr))
    });
    (output.status.code(), plan)
}

/// The shares that a plan gives a workload; as they are if it does not change them.
fn planned(plan: &Value, object: &str) -> Vec<(String, i64)> {
    let changes = plan["changes"].as_array().unwrap();
    let change = changes.iter().find(|change| change["object"] == object);
    let change = change.unwrap_or_else(|| panic!("{object} does not change: {plan:#}"));
    shares(&json!({"spec": {"clusters": change["after"]}}))
}

async fn apply(federation: &Federation, file: &str) {
    let hub = federation.client("hub").await;
    for document in std::fs::read_to_string(file).unwrap().split("\n---\n") {
        let object: Value = serde_saphyr::from_str(document).unwrap();
        let (group, version) =
            object["apiVersion"].as_str().unwrap().split_once('/').expect("a group and a version");
        let api: Api<DynamicObject> =
            objects(&hub, group, version, object["kind"].as_str().unwrap(), "default");
        let params = PatchParams::apply("kubectl").force();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        api.patch(&name, &params, &Patch::Apply(&object)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_planned_is_what_happens() {
    let data = tempfile::tempdir().unwrap();
    let federation = Federation::start(&data.path().join("atoll"), free_ports(PORTS));
    without_kubectl(&federation).await;
    let hub = federation.client("hub").await;
    let binding = bindings(&hub, "default");
    let nginx = "Deployment.apps default/nginx";

    // The same objects again change nothing.
    let (code, nothing) = plan(&federation, &["-f", &example("01-nginx.yaml")]);
    assert_eq!(code, Some(0), "{nothing:#}");
    assert_eq!((&nothing["changes"], &nothing["manifests"]), (&json!([]), &json!([])));
    assert!(nothing["snapshot"].is_string(), "the leader computes it: {nothing:#}");

    // More replicas, then another policy: each plan is what the controller decides afterwards.
    let scaled = std::fs::read_to_string(example("01-nginx.yaml")).unwrap();
    let scaled = scaled.replace("replicas: 3", "replicas: 9");
    let file = data.path().join("scaled.yaml");
    std::fs::write(&file, scaled).unwrap();
    for (file, trigger, moved) in
        [(file.to_str().unwrap(), "Scale", 0), (&example("03-add-member3.yaml"), "Reconcile", 2)]
    {
        let before = serde_json::to_value(binding.get("nginx-deployment").await.unwrap()).unwrap();
        let (code, plan) = plan(&federation, &["-f", file]);
        assert_eq!(code, Some(CHANGES), "{plan:#}");
        assert!(plan["snapshot"].is_string(), "the leader computes it: {plan:#}");
        assert_eq!(plan["changes"][0]["trigger"], trigger, "{plan:#}");
        assert_eq!(plan["summary"]["movedReplicas"], moved, "{plan:#}");
        let held = serde_json::to_value(binding.get("nginx-deployment").await.unwrap()).unwrap();
        assert_eq!(held["spec"], before["spec"], "planning changes nothing");
        let (_, again) = self::plan(&federation, &["-f", file]);
        assert_eq!(
            plan["id"], again["id"],
            "the id does not depend on what the hub adds to objects"
        );
        let expected = planned(&plan, nginx);
        assert_ne!(expected, shares(&before), "{plan:#}");
        apply(&federation, file).await;
        until(&binding, "nginx-deployment", "the planned shares", |b| shares(b) == expected).await;
    }

    // A lost member: what would move, without harm to it.
    let (code, lost) = plan(&federation, &["--without", "member1"]);
    assert_eq!(code, Some(CHANGES), "{lost:#}");
    assert_eq!(lost["changes"][0]["trigger"], "Failover", "{lost:#}");
    let on: Vec<String> = planned(&lost, nginx).into_iter().map(|(name, _)| name).collect();
    assert_eq!(on, ["member2", "member3"], "{lost:#}");
    let members = cluster_objects(&hub);
    let member1 = serde_json::to_value(members.get("member1").await.unwrap()).unwrap();
    assert!(member1["spec"]["taints"].as_array().is_none_or(Vec::is_empty), "{member1:#}");

    // A drain, planned and done.
    let (_, drained) = plan(&federation, &["--drain", "member2"]);
    assert!(drained["snapshot"].is_string(), "the leader computes it: {drained:#}");
    let expected = planned(&drained, nginx);
    assert!(expected.iter().all(|(name, _)| name != "member2"), "{drained:#}");
    run(&mut federation.atoll(&["drain", "member2"]));
    until(&binding, "nginx-deployment", "the planned shares", |b| shares(b) == expected).await;
    run(&mut federation.atoll(&["uncordon", "member2"]));

    // What the hub would refuse is an error of the plan.
    let bad = data.path().join("bad.yaml");
    let policy = std::fs::read_to_string(example("03-add-member3.yaml")).unwrap();
    std::fs::write(&bad, policy.replace("namespace: default", "namespace: missing")).unwrap();
    let (code, refused) = plan(&federation, &["-f", bad.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{refused:#}");
    assert!(refused["problems"][0].as_str().unwrap().contains("missing"), "{refused:#}");
}
