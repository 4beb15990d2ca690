//! `atoll plan` on files, with the real binary: tables, Markdown, differences, exit codes.

use std::path::Path;

use serde_json::Value;

use super::{Ran, atoll};

const NOW: &str = "2026-01-01T00:00:00Z";

/// A Deployment of six replicas that are divided between two members.
const APP: &str = r#"apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 6
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: nginx, resources: {requests: {cpu: "1", memory: 1Gi}}}]}
---
apiVersion: policy.atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: shop}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]
  placement:
    clusterAffinity: {clusterNames: [member1, member2]}
    replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Weighted}
"#;

fn cluster(name: &str, taken: &str) -> String {
    format!(
        r#"---
apiVersion: cluster.atoll.dev/v1alpha1
kind: Cluster
metadata: {{name: {name}}}
spec: {{}}
status:
  apiEnablements: [{{groupVersion: apps/v1, resources: [{{name: deployments, kind: Deployment}}]}}]
  conditions: [{{type: Ready, status: "True", reason: Ok, message: "", lastTransitionTime: "{NOW}"}}]
  resourceSummary: {{allocatable: {{cpu: "8", memory: 16Gi, pods: "100"}}, allocated: {{cpu: "{taken}", memory: 4Gi}}}}
"#
    )
}

/// The base and a file with a change, in a folder.
struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clusters = [cluster("member1", "2"), cluster("member2", "1")].concat();
        std::fs::write(folder.path().join("base.yaml"), format!("{APP}{clusters}")).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    fn plan(&self, args: &[&str]) -> Ran {
        let base = self.path("base.yaml");
        atoll(&[&["plan", "--against", &base, "--now", NOW], args].concat(), "")
    }
}

fn only_member2() -> String {
    APP.replace("[member1, member2]", "[member2]")
}

#[test]
fn a_plan_is_printed_for_people_and_for_pull_requests() {
    let files = Files::new();
    let change = files.write("change.yaml", &only_member2());
    for (name, flags) in [
        ("plan-table", &[][..]),
        ("plan-wide", &["-o", "wide"]),
        ("plan-markdown", &["-o", "markdown", "--diff"]),
        ("plan-without", &["--without", "member2"]),
    ] {
        let with = [&["-f", &change], flags].concat();
        let args = if name == "plan-without" { flags } else { &with[..] };
        let ran = files.plan(args);
        assert_eq!(ran.code, Some(2), "{name}: {}", ran.stderr);
        insta::assert_snapshot!(name, ran.stdout);
    }
}

#[test]
fn what_changes_nothing_ends_with_0_and_has_the_same_id() {
    let files = Files::new();
    let base = files.path("base.yaml");
    let ran = files.plan(&["-f", &base]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert!(ran.stdout.starts_with("No workload moves. Plan "), "{}", ran.stdout);
    assert_eq!(ran.stdout, files.plan(&["-f", &base]).stdout);
    let change = files.write("change.yaml", &only_member2());
    let id = |ran: &Ran| ran.json()["id"].as_str().unwrap().to_owned();
    let first = files.plan(&["-f", &change, "-o", "json"]);
    assert_eq!(first.stdout, files.plan(&["-f", &change, "-o", "json"]).stdout);
    let other = files.plan(&["--scale", "shop/web=7", "-o", "json"]);
    assert_ne!(id(&first), id(&other));
}

#[test]
fn members_that_fail_fill_drain_or_join_are_planned_without_files() {
    let files = Files::new();
    let item = |ran: &Ran| -> Value { ran.json()["changes"][0].clone() };
    let on = |change: &Value| -> Vec<(String, i64)> {
        let shares = change["after"].as_array().unwrap().iter();
        let share =
            |s: &Value| (s["name"].as_str().unwrap().to_owned(), s["replicas"].as_i64().unwrap());
        shares.map(share).collect()
    };
    let one = |name: &str, replicas: i64| vec![(name.to_owned(), replicas)];
    let lost = files.plan(&["--without", "member2", "-o", "json"]);
    assert_eq!(on(&item(&lost)), one("member1", 6));
    assert_eq!(lost.json()["summary"]["full"], serde_json::json!(["member1"]));
    let drained = files.plan(&["--drain", "member1", "-o", "json"]);
    assert_eq!(on(&item(&drained)), one("member2", 6));
    let tainted = files.plan(&["--taint", "member1=gpu=broken:NoExecute", "-o", "json"]);
    assert_eq!(on(&item(&tainted)), one("member2", 6));
    let joined = files.write("member3.yaml", &cluster("member3", "0"));
    let wider = files
        .write("wider.yaml", &APP.replace("[member1, member2]", "[member1, member2, member3]"));
    let ran = files.plan(&["--with-cluster", &joined, "-f", &wider, "-o", "json"]);
    assert_eq!(on(&item(&ran)).len(), 3, "{}", ran.stdout);
}

#[test]
fn manifests_that_an_override_changes_are_in_the_plan_though_nothing_moves() {
    let files = Files::new();
    let policy = "apiVersion: policy.atoll.dev/v1alpha1\nkind: OverridePolicy\nmetadata: {name: mirror, namespace: shop}\n\
        spec:\n  overrideRules:\n  - targetCluster: {clusterNames: [member1]}\n    overriders:\n      \
        imageOverrider: [{component: Registry, operator: add, value: mirror.example.com}]\n";
    let path = files.write("nested/below/override.yaml", policy);
    let folder = files.path("nested");
    let ran = files.plan(&["-R", "-f", &folder, "-o", "json", "--diff"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    let plan = ran.json();
    assert_eq!(plan["changes"], serde_json::json!([]));
    assert_eq!(plan["manifests"].as_array().unwrap().len(), 1, "{plan:#}");
    assert_eq!(plan["manifests"][0]["cluster"], "member1");
    let image =
        &plan["manifests"][0]["after"]["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(image, "mirror.example.com/nginx");
    assert_eq!(files.plan(&["-f", &folder]).code, Some(1), "without -R the folder has no file");
    assert_eq!(files.plan(&["-f", &path]).code, Some(2));
}

#[test]
fn mistakes_name_the_flag_and_the_fix() {
    let files = Files::new();
    for (args, code, part) in [
        (&[][..], 1, "nothing to plan: give the change with -f"),
        (&["--without", "member9"], 1, "--without member9: there is no member of that name"),
        (&["--scale", "shop/none=3"], 1, "no workload of that name"),
        (&["--scale", "web"], 2, "[KIND/]NAMESPACE/NAME=N"),
        (&["--taint", "member1=a:Evict"], 2, "no such effect; there are NoSchedule"),
    ] {
        let ran = files.plan(args);
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(part), "{args:?}: {}", ran.stderr);
    }
    let typo = files.write("typo.yaml", &APP.replace("replicas: 6", "replica: 6"));
    let ran = files.plan(&["-f", &typo]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("spec.replica: unknown field"), "{}", ran.stderr);
}
