//! `atoll guards` and `atoll approve` on a running federation.

use atoll_api::ChangeGuard;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{PORTS, are, shares, without_kubectl};
use crate::support::cli::{fail, run};
use crate::support::federation::{Federation, bindings, free_ports, objects};
use crate::support::wait::until;

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_above_a_guard_waits_for_its_approval() {
    let data = tempfile::tempdir().unwrap();
    let federation = Federation::start(&data.path().join("atoll"), free_ports(PORTS));
    without_kubectl(&federation).await;
    let hub = federation.client("hub").await;
    let binding = bindings(&hub, "default");
    let guards: Api<DynamicObject> =
        Api::all_with(hub.clone(), &ApiResource::erase::<ChangeGuard>(&()));
    let guard = json!({"metadata": {"name": "all"}, "spec": {"maxWorkloads": 0},
        "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "ChangeGuard"});
    guards.create(&PostParams::default(), &serde_json::from_value(guard).unwrap()).await.unwrap();
    until(&guards, "all", "the guard is read", |guard| {
        guard["status"]["observedGeneration"].is_i64()
    })
    .await;
    let atoll = |args: &[&str]| run(&mut federation.atoll(args));
    assert!(atoll(&["guards"]).contains("0 replicas of 0 workloads moved in 1h"));

    let policies = objects(&hub, "policy.atoll.dev", "v1alpha1", "PropagationPolicy", "default");
    let policy = policies.list(&Default::default()).await.unwrap().items.remove(0);
    let name = policy.metadata.name.clone();
    let weights = json!([{"targetCluster": {"clusterNames": ["member3"]}, "weight": 1}]);
    let only = json!({"spec": {"placement": {
        "clusterAffinity": {"clusterNames": ["member3"]},
        "replicaScheduling": {"weightPreference": {"staticWeightList": weights}},
    }}});
    let mut edited = serde_json::to_value(&policy).unwrap();
    edited["apiVersion"] = json!("policy.atoll.dev/v1alpha1");
    edited["kind"] = json!("PropagationPolicy");
    edited["spec"]["placement"] = only["spec"]["placement"].clone();
    edited["metadata"] = json!({"name": name, "namespace": "default"});
    let file = data.path().join("edited.json");
    std::fs::write(&file, edited.to_string()).unwrap();
    let planned = federation.atoll(&["plan", "-f", file.to_str().unwrap()]).output().unwrap();
    let text = String::from_utf8(planned.stdout).unwrap();
    assert_eq!(planned.status.code(), Some(2), "{text}");
    assert!(
        text.contains("It would wait for an approval. ChangeGuard all: 1 workload would move; it allows 0 in 1h."),
        "{text}"
    );
    let (params, only) = (PatchParams::default(), Patch::Merge(&only));
    policies.patch(&name.unwrap(), &params, &only).await.unwrap();
    let guard =
        until(&guards, "all", "it is held", |guard| guard["status"]["heldWorkloads"] == 1).await;
    let plan = guard["status"]["held"][0]["plan"].as_str().unwrap();
    let table = atoll(&["guards"]);
    assert!(table.contains(plan) && table.contains("1 workload would move"), "{table}");
    let list: Value = serde_json::from_str(&atoll(&["guards", "-o", "json"])).unwrap();
    assert_eq!(list["items"][0]["status"]["held"][0]["plan"], plan, "{list:#}");
    let now = serde_json::to_value(binding.get("nginx-deployment").await.unwrap()).unwrap();
    assert!(are(&now, &[("member1", 2), ("member2", 1)]), "nothing moves: {:?}", shares(&now));

    let wrong = fail(&mut federation.atoll(&["approve", "beef"]));
    assert!(wrong.contains("no ChangeGuard holds plan beef") && wrong.contains(plan), "{wrong}");
    let done = atoll(&["approve", plan]);
    assert_eq!(
        done.trim(),
        format!("Plan {plan} is approved (all): 3 replicas of 1 workload move now.")
    );
    until(&binding, "nginx-deployment", "it moved", |b| are(b, &[("member3", 3)])).await;
}
