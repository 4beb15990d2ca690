//! `atoll render` with the real binary: manifests, differences, JSON, batches, exit codes.

use std::io::Write;

use serde_json::{Value, json};

use super::{CLUSTERS, atoll};

const OVERRIDES: &str = "crates/cli/tests/offline/overrides.yaml";

#[test]
fn manifests_and_differences_are_printed_for_each_member() {
    for (name, flags) in [
        ("render-yaml", &[][..]),
        ("render-diff", &["-o", "diff"]),
        ("render-one-member", &["-o", "json", "--cluster", "member2"]),
    ] {
        let ran = atoll(&[&["render", "-f", CLUSTERS, "-f", OVERRIDES], flags].concat(), "");
        assert_eq!(ran.code, Some(0), "{name}: {}", ran.stderr);
        insta::assert_snapshot!(name, ran.stdout);
    }
    let lint = atoll(&["lint", "-f", CLUSTERS, "-f", OVERRIDES], "");
    assert_eq!(lint.code, Some(0), "{}{}", lint.stdout, lint.stderr);
}

/// An additional policy that fails on member1 only.
const FAILING: &str = "---\napiVersion: policy.atoll.dev/v1alpha1\nkind: OverridePolicy\n\
    metadata: {name: broken, namespace: shop}\nspec:\n  overrideRules:\n  - targetCluster: {clusterNames: [member1]}\n    \
    overriders: {plaintext: [{path: /spec/replicas, operator: replace, value: 9}]}\n";

#[test]
fn an_override_that_cannot_be_applied_holds_back_its_member_only() {
    let ran = atoll(&["render", "-f", CLUSTERS, "-f", OVERRIDES, "-f", "-", "-o", "json"], FAILING);
    assert_eq!(ran.code, Some(1));
    let field = "OverridePolicy shop/broken: spec.overrideRules[0].overriders.plaintext[0].path: spec.replicas";
    assert!(ran.stderr.contains(field), "{}", ran.stderr);
    let items = &ran.json()["items"];
    assert!(items[0]["error"].as_str().unwrap().starts_with(field), "{items}");
    assert_eq!(items[1]["cluster"], "member2");
    assert_eq!(items[1]["manifest"]["spec"]["replicas"], 2);
}

#[test]
fn wrong_arguments_and_objects_without_a_member_are_errors() {
    let ran = atoll(&["render", "-f", CLUSTERS, "-f", OVERRIDES, "--cluster", "member9"], "");
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("member1, member2, member3"), "{}", ran.stderr);
    let alone = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\n";
    let ran = atoll(&["render", "-f", CLUSTERS, "-f", "-"], alone);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("ConfigMap shop/a: no policy selects it"), "{}", ran.stderr);
    assert_eq!(atoll(&["render"], "").code, Some(2));
    assert_eq!(atoll(&["render", "--batch", "-", "--cluster", "a"], "").code, Some(2));
}

#[test]
fn mistakes_in_override_policies_are_findings() {
    let policy = "apiVersion: policy.karmada.io/v1alpha1\nkind: OverridePolicy\nmetadata: {name: p, namespace: shop}\n\
        spec:\n  overrideRules:\n  - overriders:\n      imageOverrider: [{component: Tag, operator: replace, value: v2}]\n      \
        plaintext: [{path: /spec/paused, operator: add}]\n---\n\
        apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: c, namespace: shop}\nspec:\n  schedule: '* * * * *'\n  \
        jobTemplate: {spec: {template: {spec: {containers: [{name: c, image: busybox}]}}}}\n";
    let ran = atoll(&["lint", "-f", "-", "-o", "json"], policy);
    assert_eq!(ran.code, Some(1));
    let findings = ran.json()["findings"].clone();
    let has = |severity: &str, field: &str| {
        let mut findings = findings.as_array().unwrap().iter();
        findings.any(|f| {
            f["severity"] == severity
                && f["field"] == field
                && f["object"] == "OverridePolicy shop/p"
        })
    };
    assert!(has("Error", "spec.overrideRules[0].overriders.plaintext[0].value"), "{findings}");
    assert!(
        has("Warning", "spec.overrideRules[0].overriders.imageOverrider[0].scope"),
        "{findings}"
    );
}

#[test]
fn a_batch_answers_every_recorded_case() {
    let ran = atoll(&["render", "--batch", "tests/vectors/objects/overrides.jsonl"], "");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let cases: Vec<Value> = recorded_cases();
    let answers = ran.lines();
    assert_eq!(answers.len(), cases.len());
    for (case, answer) in cases.iter().zip(&answers) {
        assert_eq!(case["id"], answer["id"]);
        let result = answer["result"].as_object().unwrap();
        let whole = result.contains_key("manifest") && result.contains_key("applied");
        assert!(whole != result.contains_key("error") && result.len() <= 2, "{answer}");
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let case = json!({"id": 1, "input": {"template": {}, "cluster": {}}});
    writeln!(file, "{case}\n").unwrap();
    let ran = atoll(&["render", "--batch", &file.path().display().to_string()], "");
    assert_eq!(ran.code, Some(0));
    let error = ran.lines()[0]["result"]["error"].as_str().unwrap().to_owned();
    assert!(error.contains("metadata"), "{error}");
}

fn recorded_cases() -> Vec<Value> {
    let text = include_str!("../../../../tests/vectors/objects/overrides.jsonl");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
