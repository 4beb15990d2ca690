//! Profile `karmada` agrees with the recorded answers of Karmada's own scheduler core.

use std::collections::BTreeMap;
use std::path::Path;

use atoll_api::Cluster;
use atoll_api::binding::Outcome;
use atoll_scheduler::request::objects::{read_binding, read_cluster};
use atoll_scheduler::{Existing, LiveCluster, Profiles, Request, Scheduler, Tables};
use serde_json::Value;

fn answer(case: &Value) -> Value {
    let mut tables = Tables::default();
    for cluster in case["clusters"].as_array().unwrap() {
        let cluster: Cluster = read_cluster(cluster.clone()).unwrap();
        let live = LiveCluster::from_status(&cluster);
        tables.upsert_cluster(&cluster, live);
    }
    let binding = read_binding(case["binding"].clone()).unwrap();
    let existing = Existing {
        metadata: &binding.metadata,
        spec: &binding.spec,
        status: binding.status.as_ref(),
    };
    let now = "2026-08-21T12:00:00Z".parse().unwrap();
    let request = Request::from_binding(existing, BTreeMap::new(), now).unwrap();
    let decision = Scheduler::new(Profiles::default()).decide(&tables.snapshot(), &request);
    match decision.outcome() {
        Outcome::NoFit => serde_json::json!({"error": "NoClusterFit"}),
        Outcome::Unschedulable if decision.reason.contains("SpreadConstraints") => {
            serde_json::json!({"error": "Unschedulable", "detail": "SpreadConstraints"})
        }
        Outcome::Unschedulable => serde_json::json!({"error": "Unschedulable"}),
        _ => {
            let mut shares: Vec<_> =
                decision.clusters().iter().filter(|share| share.replicas > 0).collect();
            shares.sort_by(|a, b| a.name.cmp(&b.name));
            serde_json::json!({ "clusters": shares })
        }
    }
}

#[test]
fn profile_karmada_agrees_with_every_vector() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let (mut cases, mut wrong) = (0, Vec::new());
    for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "jsonl")) {
        for line in std::fs::read_to_string(file).unwrap().lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let got = answer(&case);
            cases += 1;
            if got != case["expect"] {
                wrong.push(format!("{}: expected {}, got {got}", case["id"], case["expect"]));
            }
        }
    }
    assert_eq!(cases, 660);
    assert!(wrong.is_empty(), "{} disagreements:\n{}", wrong.len(), wrong.join("\n"));
}
