//! `atoll interpret` with rules of users.

use serde_json::{Value, json};

use crate::atoll;

const RULES: &str = "
apiVersion: config.atoll.dev/v1alpha1
kind: ResourceInterpreterCustomization
metadata: {name: webapp}
spec:
  target: {apiVersion: apps.example.io/v1, kind: WebApp}
  customizations:
    replicaResource:
      luaScript: |
        local kube = require('kube')
        function GetReplicas(object) return object.spec.replicas, kube.accuratePodRequirements(object.spec.template) end
    replicaRevision: {jsonPointer: /spec/replicas}
    retention: {paths: [/spec/window]}
    healthInterpretation: {cel: has(object.status) && object.status.ready >= object.spec.replicas}
";

const OBJECT: &str = "
apiVersion: apps.example.io/v1
kind: WebApp
metadata: {name: web, namespace: shop}
spec:
  replicas: 3
  template: {spec: {containers: [{name: c, resources: {requests: {cpu: 500m}}}]}}
status: {ready: 3}
";

fn file(folder: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn a_customization_is_tried_on_an_object() {
    let folder = tempfile::tempdir().unwrap();
    let (rules, object) = (file(&folder, "rules.yaml", RULES), file(&folder, "web.yaml", OBJECT));
    let run = |more: &[&str]| {
        let mut args = vec!["interpret", "-f", &rules, "--object", &object, "-o", "json"];
        args.extend(more);
        atoll(&args, "")
    };
    let replicas = run(&["--operation", "replicas"]).json();
    let expected = json!({"replicas": 3, "requirements": {"resourceRequest": {"cpu": "500m"}}});
    assert_eq!(replicas, expected);
    assert_eq!(run(&["--operation", "health"]).json(), json!({"healthy": true}));
    let revised = run(&["--operation", "replicas", "--replicas", "5"]).json();
    assert_eq!(revised["object"]["spec"]["replicas"], 5);
    let observed = file(&folder, "member.yaml", &OBJECT.replace("replicas: 3", "window: night"));
    let retained = run(&["--operation", "retain", "--observed", &observed]).json();
    assert_eq!(retained["object"]["spec"]["window"], "night");
    let missing = run(&["--operation", "reflect"]);
    assert_eq!(missing.code, Some(1));
    assert!(missing.stderr.contains("no customization has statusReflection"), "{}", missing.stderr);
}

#[test]
fn check_compiles_every_rule_and_names_the_field_of_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let rules = file(&folder, "rules.yaml", RULES);
    let fine = atoll(&["interpret", "--check", "-f", &rules], "");
    assert_eq!((fine.code, fine.stdout.as_str()), (Some(0), "No problems found in 4 rules.\n"));
    let broken =
        RULES.replace("return object.spec", "retrun object.spec").replace("/spec/window", "spec");
    let wrong = atoll(&["interpret", "--check", "-f", "-"], &broken);
    assert_eq!(wrong.code, Some(1), "{}", wrong.stderr);
    for part in ["spec.customizations.replicaResource", "does not compile", "retention.paths[0]"] {
        assert!(wrong.stdout.contains(part), "{part}: {}", wrong.stdout);
    }
}

#[test]
fn the_example_in_the_documentation_compiles() {
    let page = include_str!("../../../../docs/customizations.md");
    let example = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let ran = atoll(&["interpret", "--check", "-f", "-"], example);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (Some(0), "No problems found in 4 rules.\n"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_batch_of_recorded_cases_is_answered_in_order() {
    let file = "tests/vectors/objects/customized.jsonl";
    let rules = "tests/vectors/objects/customizations.json";
    let args =
        ["interpret", "--operation", "customized", "--customizations", rules, "--batch", file];
    let ran = atoll(&args, "");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let answers = ran.lines();
    assert_eq!(answers.len(), 120);
    let of = |id: &str| answers.iter().find(|answer| answer["id"] == id).unwrap();
    assert_eq!(of("customized-0003")["result"], json!({"replicas": 2, "requirements": null}));
    let failed = of("customized-0007")["result"]["error"].as_str().unwrap_or_default();
    assert!(failed.contains("fault-loop, healthInterpretation: stopped"), "{failed}");
    let unknown = json!({"id": "x", "input": {"customizations": ["none"]}}).to_string();
    let ran = atoll(&[&args[..6], &["-"]].concat(), &unknown);
    let result: Value = ran.lines()[0]["result"]["error"].clone();
    assert!(
        result.as_str().is_some_and(|error| error.contains("no customization \"none\"")),
        "{result}"
    );
    let without = atoll(&["interpret", "--operation", "customized", "--batch", file], "");
    assert!(without.stderr.contains("--customizations"), "{}", without.stderr);
}

/// Members that serve the kind, a policy that divides its replicas over two of them, and the object.
fn federation(folder: &tempfile::TempDir) -> Vec<String> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let clusters = std::fs::read_to_string(root.join("examples/offline/clusters.yaml")).unwrap();
    let apps = "    - groupVersion: apps/v1\n";
    let kind = "    - groupVersion: apps.example.io/v1\n      resources:\n      - {name: webapps, kind: WebApp}\n";
    let policy = "
apiVersion: policy.atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: apps, namespace: shop}
spec:
  resourceSelectors: [{apiVersion: apps.example.io/v1, kind: WebApp}]
  placement:
    clusterAffinity: {clusterNames: [member1, member2]}
    replicaScheduling: {replicaSchedulingType: Divided}
";
    let object = OBJECT.replace("replicas: 3", "size: 4");
    vec![
        file(folder, "clusters.yaml", &clusters.replace(apps, &format!("{kind}{apps}"))),
        file(folder, "policy.yaml", policy),
        file(folder, "web.yaml", &object),
    ]
}

const SIZES: &str = "
apiVersion: config.atoll.dev/v1alpha1
kind: ResourceInterpreterCustomization
metadata: {name: webapp}
spec:
  target: {apiVersion: apps.example.io/v1, kind: WebApp}
  customizations:
    replicaResource: {cel: object.spec.size}
    replicaRevision: {jsonPointer: /spec/size}
";

#[test]
fn schedule_and_render_use_the_customizations_of_the_input_and_no_webhooks() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = federation(&folder).join(",");
    files.push_str(&format!(",{}", file(&folder, "rules.yaml", SIZES)));
    let decided = atoll(&["schedule", "-f", &files, "-o", "json"], "");
    assert_eq!(decided.code, Some(0), "{}", decided.stderr);
    let rendered = atoll(&["render", "-f", &files, "-o", "json"], "");
    assert_eq!(rendered.code, Some(0), "{}", rendered.stderr);
    let items = rendered.json()["items"].as_array().unwrap().clone();
    let sizes: Vec<_> = items.iter().map(|item| item["manifest"]["spec"]["size"].clone()).collect();
    assert_eq!(sizes, [json!(2), json!(2)], "{}", decided.stdout);

    // A rule that fails is an error, and the built-in rule answers.
    file(&folder, "rules.yaml", &SIZES.replace("object.spec.size", "object.spec.missing"));
    let failing = atoll(&["schedule", "-f", &files], "");
    assert_eq!(failing.code, Some(1));
    let named = "WebApp shop/web: customization webapp, replicaResource: ";
    assert!(failing.stderr.contains(named), "{}", failing.stderr);

    let webhook = "
apiVersion: config.atoll.dev/v1alpha1
kind: ResourceInterpreterWebhookConfiguration
metadata: {name: remote}
webhooks:
- name: meaning
  clientConfig: {url: 'https://localhost:1/', caBundle: cGVt}
  rules: [{operations: ['*'], apiGroups: [apps.example.io], apiVersions: [v1], kinds: [WebApp]}]
  interpreterContextVersions: [v1alpha1]
";
    file(&folder, "rules.yaml", webhook);
    let away = atoll(&["schedule", "-f", &files], "");
    assert!(away.stderr.contains("remote: webhooks are not called offline"), "{}", away.stderr);
    assert_eq!(away.code, Some(0), "{}", away.stderr);
}
