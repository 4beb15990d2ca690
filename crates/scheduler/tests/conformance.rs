//! Profile `karmada` agrees with the recorded answers of Karmada's own scheduler core.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::path::Path;

use atoll_scheduler::Profiles;
use atoll_scheduler::offline::case::CaseAnswer;
use atoll_scheduler::offline::{Case, Settings};
use serde_json::Value;

#[test]
fn profile_karmada_agrees_with_every_vector() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let profiles = Profiles::default();
    let settings = Settings { profile: None, now: "2026-08-21T12:00:00Z".parse().unwrap() };
    let (mut cases, mut wrong) = (0, Vec::new());
    for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "jsonl")) {
        for line in std::fs::read_to_string(file).unwrap().lines() {
            let mut case = Case::read(line, &settings).unwrap();
            let decision = case.decide(&profiles);
            let mut got = serde_json::to_value(CaseAnswer::of(case.id, &decision)).unwrap();
            let got = got.as_object_mut().unwrap();
            let id = got.remove("id").unwrap();
            got.remove("pending");
            if got.contains_key("error") {
                assert_eq!(got.remove("clusters"), Some(Value::Array(Vec::new())));
            }
            let expect = serde_json::from_str::<Value>(line).unwrap()["expect"].take();
            cases += 1;
            if Value::Object(got.clone()) != expect {
                wrong.push(format!("{id}: expected {expect}, got {got:?}"));
            }
        }
    }
    assert_eq!(cases, 660);
    assert!(wrong.is_empty(), "{} disagreements:\n{}", wrong.len(), wrong.join("\n"));
}
