//! `atoll schedule` and `atoll lint` on the real binary: tables as people see them, JSON, batches, exit codes.

#![expect(clippy::unwrap_used, reason = "a panic is the report of a test")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ran {
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout))
    }

    fn lines(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Runs the binary at the root of the repository.
fn atoll(args: &[&str], input: &str) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_atoll"))
        .args(args)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .env_remove("RUST_LOG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || {
        // A program that refuses its arguments reads nothing.
        let _ = stdin.write_all(input.as_bytes());
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

const CLUSTERS: &str = "examples/offline";

#[test]
fn tables_show_the_examples_as_people_see_them() {
    for (name, file) in [
        ("static-weights", "examples/01-nginx.yaml"),
        ("workload-policy-preferred-balance", "examples/06-workload-policy.yaml"),
        ("workload-policy-required-fill", "examples/07-workload-policy-required.yaml"),
        ("workload-spread-fixed", "crates/cli/tests/offline/workload-spread.yaml"),
        ("refused-clusters", "crates/cli/tests/offline/refused.yaml"),
    ] {
        let ran = atoll(&["schedule", "-f", CLUSTERS, "-f", file], "");
        assert_eq!(ran.code, Some(0), "{name}: {}", ran.stderr);
        assert!(ran.stdout.lines().all(|line| line.chars().count() <= 100), "{}", ran.stdout);
        insta::assert_snapshot!(name, ran.stdout);
    }
}

#[test]
fn wide_and_explain_say_more() {
    let file = "examples/07-workload-policy-required.yaml";
    let ran = atoll(&["schedule", "-f", CLUSTERS, "-f", file, "-o", "wide", "--explain"], "");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for expected in ["STRATEGY", "WorkloadPolicy workload-test/workload-policy-test", "Group"] {
        assert!(ran.stdout.contains(expected), "{expected}: {}", ran.stdout);
    }
}

#[test]
fn json_and_yaml_hold_shares_and_the_whole_decision() {
    let args = ["schedule", "-f", CLUSTERS, "-f", "examples/01-nginx.yaml", "--now"];
    let args = [&args[..], &["2026-08-21T12:00:00Z", "-o"]].concat();
    let ran = atoll(&[&args[..], &["json"]].concat(), "");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let item = &ran.json()["items"][0];
    assert_eq!(item["outcome"], "Placed");
    assert_eq!(
        item["clusters"],
        json!([{"name": "member1", "replicas": 2}, {"name": "member2", "replicas": 1}])
    );
    assert_eq!(item["decision"]["now"], "2026-08-21T12:00:00Z");
    let yaml = atoll(&[&args[..], &["yaml"]].concat(), "");
    assert!(yaml.stdout.contains("outcome: Placed"), "{}", yaml.stdout);
}

#[test]
fn stdin_lists_and_a_broken_document_beside_good_ones() {
    let input = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/offline/clusters.yaml"),
    )
    .unwrap()
        + "---\nkind: Deployment\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, labels: {app: web}}\n\
           spec: {replicas: 3}\n---\napiVersion: policy.karmada.io/v1alpha1\nkind: ClusterPropagationPolicy\nmetadata: {name: all}\n\
           spec: {resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}], schedulerName: default,\n  placement: {replicaScheduling: \
           {replicaSchedulingType: Divided}}}\n";
    let ran = atoll(&["schedule", "-f", "-", "-o", "json"], &input);
    assert_eq!(ran.code, Some(1), "a document that cannot be read is no success");
    assert!(ran.stderr.contains("stdin#2: apiVersion"), "{}", ran.stderr);
    let answer = ran.json();
    assert_eq!(answer["items"][0]["clusters"].as_array().unwrap().len(), 3, "{answer}");
    assert_eq!(answer["errors"][0]["origin"], "stdin#2");
}

fn case(id: Value, replicas: Value) -> String {
    let cluster = |name: &str| {
        json!({"apiVersion": "cluster.atoll.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": name}, "spec": {},
            "status": {"apiEnablements": [{"groupVersion": "apps/v1", "resources": [{"kind": "Deployment", "name": "deployments"}]}],
                "resourceSummary": {"allocatable": {"pods": "3"}}}})
    };
    json!({"id": id, "clusters": [cluster("a"), cluster("b")],
        "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": replicas}},
        "policy": {"kind": "PropagationPolicy", "metadata": {"name": "p"}, "spec": {"placement": {"replicaScheduling":
            {"replicaSchedulingType": "Divided", "weightPreference": {"dynamicWeight": "AvailableReplicas"}}}}}})
    .to_string()
}

#[test]
fn a_bad_line_of_a_batch_is_answered_and_stops_nothing() {
    let input = [
        case(json!("fits"), json!(4)),
        "{not json".to_owned(),
        case(json!(2), json!(8)),
        r#"{"id":"lost","clusters":[]}"#.to_owned(),
        case(json!("none"), json!(4)).replace(
            "\"spec\":{}",
            "\"spec\":{\"taints\":[{\"key\":\"k\",\"effect\":\"NoSchedule\"}]}",
        ),
    ]
    .join("\n");
    let ran = atoll(&["schedule", "--batch", "-"], &input);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("of 5 cases 2 could not be read"), "{}", ran.stderr);
    let lines = ran.lines();
    assert_eq!(
        lines[0],
        json!({"id": "fits", "clusters": [{"name": "a", "replicas": 2}, {"name": "b", "replicas": 2}], "pending": 0})
    );
    assert_eq!((&lines[1]["error"], &lines[1]["id"]), (&json!("BadCase"), &Value::Null));
    assert!(lines[1]["detail"].as_str().unwrap().starts_with("line 2: not JSON"), "{}", lines[1]);
    assert_eq!((&lines[2]["id"], &lines[2]["pending"]), (&json!(2), &json!(2)));
    assert_eq!((&lines[3]["id"], &lines[3]["error"]), (&json!("lost"), &json!("BadCase")));
    assert!(lines[3]["detail"].as_str().unwrap().contains("binding"), "{}", lines[3]);
    assert_eq!((&lines[4]["error"], &lines[4]["pending"]), (&json!("NoClusterFit"), &json!(4)));
    assert_eq!(atoll(&["schedule", "--batch", "-"], &case(json!(1), json!(4))).code, Some(0));
}

#[test]
fn the_profile_flag_wins_and_an_unknown_one_is_refused() {
    // What does not fit is placed in part by default, and refused by profile karmada.
    let karmada =
        atoll(&["schedule", "--batch", "-", "--profile", "karmada"], &case(json!(1), json!(8)));
    assert_eq!(karmada.code, Some(0), "{}", karmada.stderr);
    assert_eq!(karmada.lines()[0]["error"], "Unschedulable");
    let unknown = atoll(&["schedule", "--batch", "-", "--profile", "x"], "");
    assert_eq!(unknown.code, Some(1));
    assert!(
        unknown.stderr.contains("--profile x") && unknown.stderr.contains("karmada"),
        "{}",
        unknown.stderr
    );
    assert_eq!(atoll(&["schedule"], "").code, Some(2), "nothing to schedule");
}

#[test]
fn lint_names_field_and_fix_and_fails_on_errors_only() {
    let wrong = "apiVersion: policy.atoll.dev/v1alpha1\nkind: PropagationPolicy\nmetadata: {name: p}\nspec:\n  resourceSelectors: \
                 [{apiVersion: apps/v1, kind: Deployment}]\n  placement: {clusterAffinity: {clusterNames: [member9]}}\n";
    let ran = atoll(&["lint", "-f", CLUSTERS, "-f", "-"], wrong);
    assert_eq!(ran.code, Some(1));
    insta::assert_snapshot!("lint", ran.stdout);
    let json = atoll(&["lint", "-f", CLUSTERS, "-f", "-", "-o", "json"], wrong).json();
    assert_eq!(json["findings"][0]["field"], "spec.placement.clusterAffinity");
    let warned = wrong.replace("[member9]", "[member1, member9]");
    assert_eq!(atoll(&["lint", "-f", CLUSTERS, "-f", "-"], &warned).code, Some(0));
    let fine = atoll(&["lint", "-f", CLUSTERS, "-f", "examples/06-workload-policy.yaml"], "");
    assert_eq!((fine.code, fine.stdout.trim()), (Some(0), "Nothing is wrong."));
}
