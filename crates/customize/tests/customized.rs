//! The recorded answers of Karmada's declarative interpreter.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use atoll_api::ResourceInterpreterCustomization;
use atoll_customize::{Customizations, Request};
use atoll_vectors::Case;
use serde_json::{Value, json};

fn customizations() -> BTreeMap<String, ResourceInterpreterCustomization> {
    let path = atoll_vectors::folder().join("objects/customizations.json");
    let text = std::fs::read_to_string(path).unwrap();
    let all: Vec<ResourceInterpreterCustomization> = serde_json::from_str(&text).unwrap();
    all.into_iter().map(|one| (one.metadata.name.clone().unwrap(), one)).collect()
}

fn answer(all: &BTreeMap<String, ResourceInterpreterCustomization>, case: &Case) -> Value {
    let names = case.input["customizations"].as_array().unwrap().iter();
    let named = names.map(|name| {
        let name = name.as_str().unwrap();
        (name, &all[name].spec)
    });
    let set = Customizations::new(named);
    match set.answer(&Request::from_json(&case.input).unwrap()) {
        None => json!({"error": "no rule"}),
        Some(Ok(response)) => response.to_json(),
        Some(Err(failure)) => json!({"error": failure.to_string()}),
    }
}

#[test]
fn customized_kinds_are_answered_as_recorded() {
    let all = customizations();
    atoll_vectors::check("customized", |_, value| value, |case| answer(&all, case));
}

#[test]
fn the_recorded_customizations_are_valid_and_only_the_broken_one_does_not_compile() {
    for (name, customization) in customizations() {
        assert_eq!(customization.spec.problems(), [], "{name}");
        let problems = atoll_customize::compile_problems(&name, &customization.spec);
        assert_eq!(problems.len(), usize::from(name == "fault-syntax"), "{name}: {problems:?}");
    }
}
