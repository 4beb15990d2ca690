//! Every recorded answer of Karmada's scheduler stays the same when the case is written with Karmada's groups and
//! converted.

#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

use std::path::Path;

use atoll_convert::{Class, Converter, Options, Purpose};
use atoll_scheduler::Profiles;
use atoll_scheduler::offline::case::CaseAnswer;
use atoll_scheduler::offline::{Case, Settings};
use serde_json::{Value, json};

/// The object as Karmada writes it.
fn as_karmada(object: &mut Value) {
    let text = object["apiVersion"].as_str().unwrap().replace(".atoll.dev/", ".karmada.io/");
    object["apiVersion"] =
        text.replace("work.karmada.io/v1alpha1", "work.karmada.io/v1alpha2").into();
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        let keys: Vec<_> =
            annotations.keys().filter(|key| key.contains("atoll.dev")).cloned().collect();
        for key in keys {
            let value = annotations.remove(&key).unwrap();
            annotations.insert(key.replace("atoll.dev", "karmada.io"), value);
        }
    }
    if object["spec"]["schedulerName"] == "karmada" {
        object["spec"]["schedulerName"] = "default-scheduler".into();
    }
}

/// Converts an object and checks that every part of it has an equivalent.
fn converted(converter: &Converter, mut object: Value) -> Value {
    as_karmada(&mut object);
    let converted = converter.convert(object);
    let lacking = converted.lines.iter().find(|line| line.class == Class::NoEquivalent);
    assert!(lacking.is_none(), "{lacking:#?}");
    converted.object.unwrap()
}

/// The binding with placement and profile of a policy that went through the converter.
fn case_by_policy(converter: &Converter, mut case: Value) -> Value {
    let spec = &case["binding"]["spec"];
    let policy = json!({"apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
            "placement": spec["placement"], "schedulerName": "karmada"}});
    let policy = converted(converter, policy);
    let binding = case["binding"].take();
    let mut binding = converted(converter, binding);
    if !policy["spec"]["placement"].is_null() {
        binding["spec"]["placement"] = policy["spec"]["placement"].clone();
    }
    binding["spec"]["schedulerName"] = policy["spec"]["schedulerName"].clone();
    case["binding"] = binding;
    for cluster in case["clusters"].as_array_mut().unwrap() {
        *cluster = converted(converter, cluster.take());
    }
    case
}

#[test]
fn converted_policies_place_as_karmada_does_in_every_vector() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let converter = Converter::new(Options::new(Purpose::Offline)).unwrap();
    let profiles = Profiles::default();
    let settings = Settings { profile: None, now: "2026-08-21T12:00:00Z".parse().unwrap() };
    let mut cases = 0;
    let mut files: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.push(folder.join("further/cases.jsonl"));
    for file in files.iter().filter(|file| file.extension().is_some_and(|ending| ending == "jsonl"))
    {
        for line in std::fs::read_to_string(file).unwrap().lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let expected = case["expect"].clone();
            let text = case_by_policy(&converter, case).to_string();
            let mut case = Case::read(&text, &settings).unwrap();
            let decision = case.decide(&profiles);
            let answer = serde_json::to_value(CaseAnswer::of(case.id, &decision)).unwrap();
            for field in ["clusters", "error", "detail"] {
                let given = if field == "clusters" && answer.get("error").is_some() {
                    None
                } else {
                    answer.get(field)
                };
                assert_eq!(given, expected.get(field), "{}: {field}", answer["id"]);
            }
            cases += 1;
        }
    }
    // 60 of each of the 11 files, and the further ones.
    assert!(cases >= 728, "{cases} cases");
}
