//! Verbs that need no hub (schedule, lint, render, interpret, convert) with the real binary: tables, JSON, batches, exit codes.

#![expect(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod convert;
mod customized;
mod plan;
mod render;

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
    atoll_with(args, input, &[])
}

fn atoll_with(args: &[&str], input: &str, env: &[(&str, &str)]) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_atoll"))
        .args(args)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .env_remove("RUST_LOG")
        .env_remove("COLUMNS")
        .envs(env.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || {
        // A program that refuses its arguments does not read stdin.
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

/// Each says in its head comment what it does; the linter has nothing to add, and the comments are true.
#[test]
fn the_examples_of_policies_have_no_problems_and_do_what_they_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/policies");
    let mut placed = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(root).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let file = format!("examples/policies/{name}");
        let linted = atoll(&["lint", "-f", CLUSTERS, "-f", &file], "");
        assert_eq!((linted.code, linted.stdout.trim()), (Some(0), "No problems found."), "{name}");
        let ran = atoll(&["schedule", "-f", CLUSTERS, "-f", &file, "-o", "json"], "");
        if ran.stderr.contains("nothing to schedule") {
            continue; // rules about members only
        }
        assert_eq!(ran.code, Some(0), "{name}: {}", ran.stderr);
        let answer: Value = serde_json::from_str(&ran.stdout).unwrap();
        for item in answer["items"].as_array().into_iter().flatten() {
            // The input has objects that no policy selects.
            let template = &item["decision"]["template"];
            let Some((kind, template)) = template["kind"].as_str().zip(template["name"].as_str())
            else {
                continue;
            };
            let shares = item["clusters"].as_array().into_iter().flatten();
            let shares: Vec<String> = shares
                .map(|share| format!("{} {}", share["name"].as_str().unwrap(), share["replicas"]))
                .collect();
            placed.insert(format!("{name}: {kind} {template}"), shares.join(", "));
        }
    }
    insta::assert_snapshot!(
        "examples-policies",
        placed.iter().map(|(of, on)| format!("{of}: {on}\n")).collect::<String>()
    );
    let config = ["--config", "examples/configuration/preemption.yaml"];
    let args =
        [&["schedule", "-f", CLUSTERS, "-f", "examples/01-nginx.yaml"], &config[..]].concat();
    let ran = atoll(&args, "");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
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
    let line = 1 + input.lines().position(|line| line == "kind: Deployment").unwrap();
    assert!(ran.stderr.contains(&format!("stdin:{line}:1: apiVersion")), "{}", ran.stderr);
    let answer = ran.json();
    assert_eq!(answer["items"][0]["clusters"].as_array().unwrap().len(), 3, "{answer}");
    assert_eq!(answer["errors"][0]["origin"], format!("stdin:{line}:1"));
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
    assert!(ran.stderr.contains("of 5 cases, 2 could not be read"), "{}", ran.stderr);
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
    // Replicas that do not all fit are placed in part by default, and refused by profile karmada.
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
    assert_eq!((fine.code, fine.stdout.trim()), (Some(0), "No problems found."));
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
        (with_cpu("1e30", 2), "resourceRequest.cpu: quantity 1e30 is too large"),
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

/// A policy with a misspelt field in line 6, and a workload with one in line 11.
const MISSPELT: &str = "apiVersion: policy.atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: p}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]
  placment: {clusterAffinity: {clusterNames: [member1]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {replica: 3}
";

#[test]
fn what_is_not_understood_is_an_error_with_line_and_column() {
    for verb in ["lint", "schedule"] {
        let ran = atoll(&[verb, "-f", CLUSTERS, "-f", "-"], MISSPELT);
        assert_eq!(ran.code, Some(1), "{verb}: {}", ran.stdout);
        for error in [
            "stdin:6:3: PropagationPolicy p: spec.placment: unknown field; did you mean \"placement\"?",
            "stdin:11:8: Deployment web: spec.replica: unknown field; did you mean \"replicas\"?",
        ] {
            assert!(ran.stderr.contains(error), "{verb}: {}", ran.stderr);
        }
        let kind = MISSPELT.replace("placment", "placement").replace("replica:", "replicas:");
        let kind = kind.replace("kind: PropagationPolicy\n", "kind: PropagationPolcy\n");
        let ran = atoll(&[verb, "-f", CLUSTERS, "-f", "-"], &kind);
        let error = "stdin:2:1: PropagationPolcy p: kind: unknown kind \"PropagationPolcy\" of policy.atoll.dev/v1alpha1; \
                     did you mean PropagationPolicy?";
        assert!(ran.code == Some(1) && ran.stderr.contains(error), "{}", ran.stderr);
    }
    let warned = atoll(&["lint", "-f", CLUSTERS, "-f", "-", "--validate=warn"], MISSPELT);
    assert_eq!(warned.code, Some(0), "{}", warned.stderr);
    assert!(warned.stderr.contains("warning: stdin:6:3: "), "{}", warned.stderr);
    let ignored = atoll(&["schedule", "-f", CLUSTERS, "-f", "-", "--validate=ignore"], MISSPELT);
    assert_eq!((ignored.code, &*ignored.stderr), (Some(0), ""));
    let twice = MISSPELT.replace("placment: ", "resourceSelectors: ");
    assert_eq!(atoll(&["lint", "-f", "-"], &twice).code, Some(1), "a field that is there twice");

    let wrong = case(json!(1), json!(4)).replace("\"placement\"", "\"placment\"");
    let ran = atoll(&["schedule", "--batch", "-"], &wrong);
    assert_eq!(ran.code, Some(1));
    let detail = ran.lines()[0]["detail"].clone();
    assert_eq!(detail, "line 1: policy.spec.placment: unknown field; did you mean \"placement\"?");
    let unknown = case(json!(1), json!(4)).replacen("{\"", "{\"polices\":1,\"", 1);
    let detail = atoll(&["schedule", "--batch", "-"], &unknown).lines()[0]["detail"].clone();
    assert!(detail.as_str().unwrap().contains("polices: unknown field"), "{detail}");
}

#[test]
fn empty_input_is_an_error_that_says_what_to_give() {
    for (args, input, error) in [
        (&["schedule", "-f", "-"][..], "", "no objects in -f -: give YAML or JSON"),
        (&["schedule", "-f", "-"], "---\n# nothing\n", "no objects in -f -"),
        (&["schedule", "-f", CLUSTERS], "", "no workload and no binding"),
        (&["schedule", "--batch", "-"], "\n", "--batch -: it holds no case"),
        (&["lint", "-f", "-"], "", "no objects in -f -"),
    ] {
        let ran = atoll(args, input);
        assert_eq!((ran.code, &*ran.stdout), (Some(1), ""), "{args:?}");
        assert!(ran.stderr.contains(error), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn tables_and_help_are_as_wide_as_the_terminal() {
    let widest = |args: &[&str], columns: &str| {
        let ran = atoll_with(args, "", &[("COLUMNS", columns)]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.stdout.lines().map(|line| line.chars().count()).max().unwrap()
    };
    let table = ["schedule", "-f", CLUSTERS, "-f", "crates/cli/tests/offline/refused.yaml"];
    for args in [&table[..], &["drain", "--help"]] {
        let (narrow, wide) = (widest(args, "80"), widest(args, "160"));
        assert!(narrow <= 80 && (101..=160).contains(&wide), "{args:?}: {narrow}, {wide}");
    }
}

#[test]
fn control_characters_in_names_do_not_reach_the_terminal() {
    let objects = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: \"web\\e[2J\\u009b31m\"}\nspec: {replicas: 1}\n";
    for output in ["table", "wide", "json", "yaml"] {
        let ran = atoll(&["schedule", "-f", CLUSTERS, "-f", "-", "-o", output], objects);
        let shown = format!("{}{}", ran.stdout, ran.stderr);
        assert!(shown.contains("web"), "{output}: {shown}");
        let control = shown.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(control, None, "{output}: {shown:?}");
        if output == "json" {
            assert_eq!(ran.json()["items"][0]["object"]["name"], "web\u{1b}[2J\u{9b}31m");
        }
    }
}

#[test]
fn an_agent_does_not_take_the_hubs_kubeconfig_for_its_members() {
    let env = [("KUBECONFIG", ".atoll/kubeconfig")];
    let ran = atoll_with(&["agent", "--address", "127.0.0.1:1"], "", &env);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("which member is this agent for?"), "{}", ran.stderr);
    assert!(ran.stderr.contains("--kubeconfig FILE"), "{}", ran.stderr);
}

#[test]
fn a_controller_that_cannot_start_names_the_flag_and_the_fix() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let config = |authority: &str| {
        format!(
            "{{apiVersion: v1, kind: Config, current-context: hub, contexts: [{{name: hub, context: {{cluster: c, user: u}}}}],
              clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1'{authority}}}}}], users: [{{name: u}}]}}"
        )
    };
    let good = file("good", &config(""));
    let bad_authority = file("bad-authority", &config(", certificate-authority-data: '!'"));
    let no_yaml = file("no-yaml", "apiVersion: [");
    let no_profiles = file("no-profiles", "kind: SchedulerConfiguratoin\n");
    let no_database = file("no-database", &"no database ".repeat(100));
    let history = folder.path().join("history.db").display().to_string();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let free = "127.0.0.1:0";
    for (kubeconfig, flags, named, fix) in [
        ("/absent", &[][..], "--kubeconfig /absent", "give a kubeconfig file"),
        (&no_yaml, &[], &*no_yaml, "give a kubeconfig file"),
        (
            &bad_authority,
            &[],
            &*bad_authority,
            "correct it, or name another file with --kubeconfig",
        ),
        (&good, &["--listen", &taken], "--listen", "choose another port"),
        (
            &good,
            &["--listen", free, "--history", &no_database],
            "--history",
            "move a damaged one away",
        ),
        (&good, &["--scheduler-config", &no_profiles], "--scheduler-config", "correct the file"),
    ] {
        let mut args = vec!["controller", "--kubeconfig", kubeconfig];
        args.extend(flags);
        if !flags.contains(&"--history") {
            args.extend(["--history", &history]);
        }
        if !flags.contains(&"--listen") {
            args.extend(["--listen", free]);
        }
        let ran = atoll(&args, "");
        assert_eq!(ran.code, Some(1), "{args:?}");
        assert!(ran.stderr.contains(named) && ran.stderr.contains(fix), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn reserved_namespaces_count_offline_as_in_the_controller() {
    let text = "apiVersion: policy.atoll.dev/v1alpha1\nkind: PropagationPolicy\nmetadata: {name: p, namespace: infra}\nspec:\n  \
         resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: a}]\n  placement: {}\n---\n\
         apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: infra}\n---\n\
         apiVersion: cluster.atoll.dev/v1alpha1\nkind: Cluster\nmetadata: {name: m1}\nspec: {}\n";
    let outcome = |flags: &[&str]| {
        let ran = atoll(&[&["schedule", "-f", "-", "-o", "json"], flags].concat(), text);
        ran.json()["items"][0]["outcome"].clone()
    };
    assert_ne!(outcome(&[]), "NotClaimed");
    assert_eq!(outcome(&["--reserved-namespaces", "inf*"]), "NotClaimed");
    let lint = atoll(&["lint", "-f", "-", "--reserved-namespaces", "infra"], text);
    assert!(lint.stdout.contains("its namespace is reserved"), "{}", lint.stdout);
    for verb in ["lint", "schedule"] {
        let wrong = atoll(&[verb, "-f", "-", "--reserved-namespaces", "*"], text);
        assert_eq!(wrong.code, Some(1));
        assert!(wrong.stderr.contains("--reserved-namespaces"), "{}", wrong.stderr);
    }
}
