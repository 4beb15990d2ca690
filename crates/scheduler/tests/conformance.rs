//! Profile `karmada` agrees with the recorded answers of Karmada's own scheduler core.
//!
//! `ATOLL_VECTORS=DIR` runs the cases of the `.jsonl` files of another folder instead.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::path::{Path, PathBuf};

use atoll_scheduler::Profiles;
use atoll_scheduler::offline::case::CaseAnswer;
use atoll_scheduler::offline::{Case, Settings};
use serde_json::Value;

/// Runs the case files of a folder. Returns the number of cases and the disagreements.
fn run(folder: &Path) -> (usize, Vec<String>) {
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
    (cases, wrong)
}

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

#[test]
fn profile_karmada_agrees_with_every_vector() {
    let other = std::env::var_os("ATOLL_VECTORS").map(PathBuf::from);
    let (cases, wrong) = run(&other.clone().unwrap_or_else(vectors));
    assert!(cases == 660 || (other.is_some() && cases > 0), "{cases} cases");
    assert!(wrong.is_empty(), "{} disagreements:\n{}", wrong.len(), wrong.join("\n"));
}

/// Cases that the vectors do not cover: modeled nodes, overflow tiers with other strategies, several failing terms, an
/// unchanged total, constraints with weights, missing targets, missing figures.
#[test]
fn profile_karmada_agrees_beyond_the_vectors() {
    let (cases, wrong) = run(&vectors().join("further"));
    assert!(cases > 50, "{cases} cases");
    assert!(wrong.is_empty(), "{} disagreements:\n{}", wrong.len(), wrong.join("\n"));
}
