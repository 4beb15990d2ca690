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
        (&["--scale", "web"], 1, "[KIND/]NAMESPACE/NAME=N"),
        (&["--taint", "member1=a:Evict"], 1, "no such effect; there are NoSchedule"),
        (&["--taint", "member1=a:NoExecute-"], 1, "member1 has no such taint; it has none"),
        (&["--witout", "member1"], 1, "unexpected argument '--witout'"),
        (&["--without", "member1", "-n", "shop"], 1, "plan --against"),
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

/// A Secret that a policy places on member1, and an override that changes it.
const SECRET: &str = r#"apiVersion: v1
kind: Secret
metadata:
  name: db
  namespace: shop
  annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"data":{"password":"b2xk"}}'}
data: {password: b2xk, user: c2hvcA==}
---
apiVersion: policy.atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: db, namespace: shop}
spec:
  resourceSelectors: [{apiVersion: v1, kind: Secret, name: db}]
  placement: {clusterAffinity: {clusterNames: [member1]}}
"#;

#[test]
fn values_of_secrets_are_hidden_also_where_they_change() {
    let files = Files::new();
    let clusters = cluster("member1", "0").replace(
        "apiEnablements: [",
        "apiEnablements: [{groupVersion: v1, resources: [{name: secrets, kind: Secret}]}, ",
    );
    files.write("base.yaml", &format!("{SECRET}{clusters}"));
    let change = files.write("change.yaml", &SECRET.replace("password: b2xk,", "password: bmV3,"));
    for format in ["table", "markdown", "json", "yaml"] {
        let ran = files.plan(&["-f", &change, "--diff", "-o", format]);
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        for secret in ["b2xk", "bmV3", "c2hvcA"] {
            assert!(!ran.stdout.contains(secret), "{format}: {}", ran.stdout);
        }
        assert!(ran.stdout.contains("*** (before)") && ran.stdout.contains("*** (after)"));
    }
}

#[test]
fn folders_are_compared_with_their_subfolders_on_both_sides() {
    let files = Files::new();
    let clusters = [cluster("member1", "2"), cluster("member2", "1")].concat();
    files.write("clusters.yaml", &clusters);
    files.write("main/team/app.yaml", APP);
    files.write("branch/team/app.yaml", APP);
    let against = format!("{},{}", files.path("main"), files.path("clusters.yaml"));
    let branch = files.path("branch");
    let run = |more: &[&str]| {
        let args = ["plan", "-R", "-f", &branch, "--against", &against, "--now", NOW];
        atoll(&[&args[..], more].concat(), "")
    };
    let same = run(&[]);
    assert_eq!((same.code, same.stderr.as_str()), (Some(0), ""), "{}", same.stdout);

    // A file of the main branch that the branch deletes.
    files.write("main/team/other.yaml", &APP.replace("web", "old"));
    let kept = run(&[]);
    assert_eq!(kept.code, Some(0), "{}", kept.stdout);
    assert!(
        kept.stderr.contains("2 objects of --against are not in the given files"),
        "{}",
        kept.stderr
    );
    let pruned = run(&["--prune", "-o", "json"]);
    assert_eq!((pruned.code, pruned.stderr.as_str()), (Some(2), ""), "{}", pruned.stdout);
    let change = pruned.json()["changes"][0].clone();
    assert_eq!(
        (&change["object"], &change["outcome"]),
        (&"Deployment.apps shop/old".into(), &"Deleted".into())
    );
    assert_eq!(change["after"], serde_json::json!([]));
    let gone = pruned.json()["manifests"].as_array().unwrap().len();
    assert_eq!(gone, 2, "{}", pruned.stdout);
}

#[test]
fn other_requests_change_what_is_used_of_members() {
    let files = Files::new();
    let bound = r#"---
apiVersion: work.atoll.dev/v1alpha1
kind: ResourceBinding
metadata: {name: web-deployment, namespace: shop}
spec:
  resource: {apiVersion: apps/v1, kind: Deployment, namespace: shop, name: web}
  clusters: [{name: member1, replicas: 3}, {name: member2, replicas: 3}]
"#;
    files.write("bound.yaml", bound);
    let against = format!("{},{}", files.path("base.yaml"), files.path("bound.yaml"));
    let change = files.write("change.yaml", &APP.replace("cpu: \"1\"", "cpu: \"2\""));
    let ran =
        atoll(&["plan", "-f", &change, "--against", &against, "--now", NOW, "-o", "json"], "");
    assert_eq!(ran.code, Some(2), "{}{}", ran.stdout, ran.stderr);
    let member = ran.json()["members"].as_array().unwrap()[0].clone();
    let cpu = &member["used"]["cpu"];
    let (before, after) = (cpu["before"].as_i64().unwrap(), cpu["after"].as_i64().unwrap());
    assert!(after > before, "{member:#}");
}

#[test]
fn a_member_keeps_what_cannot_be_rendered() {
    let files = Files::new();
    let policy = "apiVersion: policy.atoll.dev/v1alpha1\nkind: OverridePolicy\nmetadata: {name: broken, namespace: shop}\n\
        spec:\n  overrideRules:\n  - targetCluster: {clusterNames: [member1]}\n    overriders:\n      \
        plaintext: [{path: /spec/none/field, operator: replace, value: 1}]\n";
    let change = files.write("broken.yaml", policy);
    let ran = files.plan(&["-f", &change, "-o", "json"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    let plan = ran.json();
    assert_eq!(plan["manifests"], serde_json::json!([]), "{plan:#}");
    assert!(plan["problems"][0].as_str().unwrap().contains("on member1: "), "{plan:#}");
}

#[test]
fn what_a_workload_refers_to_follows_it() {
    let files = Files::new();
    let attached = r#"---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop}
data: {a: b}
---
apiVersion: work.atoll.dev/v1alpha1
kind: ResourceBinding
metadata: {name: settings-configmap, namespace: shop}
spec:
  resource: {apiVersion: v1, kind: ConfigMap, namespace: shop, name: settings}
  requiredBy: [{namespace: shop, name: web-deployment, clusters: [{name: member1}, {name: member2}]}]
"#;
    let base = std::fs::read_to_string(files.path("base.yaml")).unwrap();
    files.write("base.yaml", &format!("{base}{attached}"));
    let base = files.path("base.yaml");
    assert_eq!(files.plan(&["-f", &base]).code, Some(0));
    let ran = files.plan(&["--without", "member2", "-o", "json"]);
    let changes = ran.json()["changes"].as_array().unwrap().clone();
    let map = changes.iter().find(|c| c["object"] == "ConfigMap shop/settings");
    let map = map.unwrap_or_else(|| panic!("{}", ran.stdout));
    let on: Vec<_> = map["after"].as_array().unwrap().iter().map(|s| s["name"].clone()).collect();
    assert_eq!((on, &map["outcome"]), (vec!["member1".into()], &"Attached".into()));
}
