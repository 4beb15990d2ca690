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

#[test]
fn absurd_numbers_are_refused_by_field_and_value_in_batches_files_and_by_lint() {
    let with_cpu = |cpu: &str, replicas: i64| {
        case(json!(cpu), json!(replicas)).replace(
            &format!("\"spec\":{{\"replicas\":{replicas}}}"),
            &format!(
                "\"spec\":{{\"replicas\":{replicas},\"template\":{{\"spec\":{{\"containers\":[{{\"name\":\"c\",\
                 \"resources\":{{\"requests\":{{\"cpu\":\"{cpu}\"}}}}}}]}}}}}}"
            ),
        )
    };
    let expected = [
        (case(json!(1), json!("three")), "spec.replicas: \"three\" must be a whole number"),
        (case(json!(2), json!(2.5)), "spec.replicas: 2.5 must be a whole number"),
        (case(json!(3), json!(-1)), "spec.replicas: -1 must be within"),
        (with_cpu("1e30", 2), "resourceRequest.cpu: quantity 1e30 is more than can be counted"),
        (with_cpu("1e99", 2), "resourceRequest.cpu: quantity \"1e99\" is out of range"),
        (
            with_cpu("9e12", 1_000_000),
            "resourceRequest.cpu: quantity 9000000000000 for each of 1000000 replicas",
        ),
    ];
    let input: Vec<&str> = expected.iter().map(|(line, _)| line.as_str()).collect();
    let ran = atoll(&["schedule", "--batch", "-"], &input.join("\n"));
    assert_eq!(ran.code, Some(1));
    for (line, (_, why)) in ran.lines().iter().zip(&expected) {
        let detail = line["detail"].as_str().unwrap();
        assert!(detail.contains(why) && line["clusters"] == json!([]), "{line}");
    }

    let objects = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: big}\nspec: {replicas: -7, template: {spec: {containers: \
                   [{name: c, resources: {requests: {cpu: 1e30}}}]}}}\n";
    let linted = atoll(&["lint", "-f", "-", "-o", "json"], objects);
    assert_eq!(linted.code, Some(1));
    let findings = linted.json()["findings"].clone();
    let fields: Vec<&str> =
        findings.as_array().unwrap().iter().map(|f| f["field"].as_str().unwrap()).collect();
    assert!(fields.contains(&"spec.replicas"), "{findings}");
    assert!(fields.contains(&"replicaRequirements.resourceRequest.cpu"), "{findings}");
}

#[test]
fn files_are_given_as_kubectl_takes_them_and_what_is_missing_is_said() {
    let two = format!("{CLUSTERS}/clusters.yaml,examples/06-workload-policy.yaml");
    let ran = atoll(&["schedule", "-f", &two, "-o", "json"], "");
    assert!(!ran.json()["items"].as_array().unwrap().is_empty(), "{}", ran.stderr);
    let nothing = atoll(&["schedule"], "");
    assert!(nothing.stderr.contains("--filename"), "{}", nothing.stderr);
    assert!(nothing.stderr.contains("--batch"), "{}", nothing.stderr);
    for verb in ["schedule", "lint"] {
        let broken = atoll(&[verb, "-f", "-"], "metadata: {name: web");
        assert_eq!((broken.code, &*broken.stdout), (Some(1), ""), "nothing is said to be well");
        let missing = atoll(&[verb, "-f", "nowhere.yaml"], "");
        assert_eq!(missing.code, Some(1));
        assert!(missing.stderr.contains("-f nowhere.yaml: No such file"), "{}", missing.stderr);
    }
    assert_eq!(atoll(&["lint", "-o", "json"], "").code, Some(1), "nothing to look at");
}
