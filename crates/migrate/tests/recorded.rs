//! The objects of a real Karmada control plane, as they were recorded: nothing is in the way of a migration, and each step shows
//! in them.

#![expect(clippy::unwrap_used, reason = "a panic is the report of a test")]

use atoll_convert::{Converter, Options, Purpose};
use atoll_migrate::check::{self, Severity};
use atoll_migrate::estate::{Binding, Estate, ObjectRef, Work};
use atoll_migrate::karmada::{self, Part};
use atoll_migrate::meaning::Meaning;
use atoll_migrate::{FROM, hub};
use serde_json::{Value, json};

/// `before` or `suspended`.
fn recorded(part: &str) -> Vec<Value> {
    let text = include_str!("../../../tests/karmada/estate.json");
    let mut all: Value = serde_json::from_str(text).unwrap();
    serde_json::from_value(all[part].take()).unwrap()
}

fn of_group<'a>(objects: &'a [Value], group: &'a str) -> impl Iterator<Item = &'a Value> {
    let starts = move |object: &&Value| object["apiVersion"].as_str().unwrap().starts_with(group);
    objects.iter().filter(starts)
}

fn bindings(objects: &[Value]) -> Vec<Binding> {
    let all = of_group(objects, "work.karmada.io/v1alpha2").cloned();
    all.map(|object| Binding::read(object).unwrap()).collect()
}

/// The estate, as the command line reads it.
fn estate() -> Estate {
    let before = recorded("before");
    let kinds = |kinds: &[&str]| -> Vec<Value> {
        let is = |object: &&Value| kinds.contains(&object["kind"].as_str().unwrap());
        of_group(&before, "policy.karmada.io")
            .chain(of_group(&before, "config.karmada.io"))
            .filter(is)
            .cloned()
            .collect()
    };
    let users =
        before.iter().filter(|object| !object["apiVersion"].to_string().contains("karmada.io"));
    Estate {
        namespace: None,
        clusters: of_group(&before, "cluster.karmada.io").cloned().collect(),
        policies: kinds(&["PropagationPolicy", "ClusterPropagationPolicy"]),
        overrides: kinds(&["OverridePolicy", "ClusterOverridePolicy"]),
        bindings: bindings(&before),
        works: of_group(&before, "work.karmada.io/v1alpha1")
            .cloned()
            .filter_map(Work::read)
            .collect(),
        extras: kinds(&[
            "FederatedResourceQuota",
            "ClusterTaintPolicy",
            "ResourceInterpreterCustomization",
        ]),
        templates: users.map(|object| (ObjectRef::of(object).unwrap(), object.clone())).collect(),
    }
}

fn converter() -> Converter {
    Converter::new(Options::new(Purpose::Hub)).unwrap()
}

/// What the recorded customization says, in our own words.
struct OfGadgets;

impl Meaning for OfGadgets {
    fn replicas(&self, object: &Value) -> Result<Option<i64>, String> {
        Ok(object["spec"]["size"].as_i64().or_else(|| object["spec"]["replicas"].as_i64()))
    }

    fn revised(&self, object: &Value, replicas: i64) -> Result<Option<Value>, String> {
        let mut revised = object.clone();
        revised["spec"]["size"] = json!(replicas);
        Ok((object["kind"] == "Gadget").then_some(revised))
    }
}

#[test]
fn atoll_would_apply_what_the_works_hold() {
    let estate = estate();
    assert!(estate.moving().count() >= 5 && estate.works.len() >= 10, "{estate:?}");
    let found = check::findings(&converter(), &estate, &OfGadgets);
    let blocking: Vec<_> = found.iter().filter(|one| one.severity == Severity::Blocks).collect();
    assert!(blocking.is_empty(), "{blocking:#?}");
    // Every policy and every rule has an equivalent.
    let lacking: Vec<_> =
        found.iter().filter(|one| one.problem.contains("no equivalent")).collect();
    assert!(lacking.is_empty(), "{lacking:#?}");
}

#[test]
fn the_hub_gets_every_part_without_karmadas_marks() {
    let estate = estate();
    let converter = converter();
    let prepared = hub::prepared(&converter, &estate).objects;
    assert_eq!(
        prepared.len(),
        estate.policies.len() + estate.overrides.len() + estate.extras.len()
    );
    let templates = estate.moving().map(|binding| {
        hub::template(&converter, binding, &estate.templates[&binding.of]).0.unwrap()
    });
    for object in prepared.into_iter().chain(templates) {
        let metadata = object["metadata"].to_string();
        assert!(!metadata.contains("karmada.io") && metadata.contains(FROM), "{metadata}");
    }
}

#[test]
fn a_suspension_shows_in_the_works_that_karmadas_controllers_made_of_it() {
    let suspended = recorded("suspended");
    let works = of_group(&suspended, "work.karmada.io/v1alpha1").cloned();
    let works: Vec<Work> = works.filter_map(Work::read).collect();
    assert_eq!(works.len(), estate().works.len());
    for work in &works {
        assert!(work.is_still(), "{} on {}", work.of, work.cluster);
    }
    for binding in bindings(&suspended) {
        assert!(karmada::is_suspended(&binding.object, Part::Binding), "{}", binding.of);
        // What it was before is in its mark.
        let before = estate();
        let before = before.bindings.iter().find(|before| before.of == binding.of).unwrap();
        let original = karmada::original(&binding.object);
        assert_eq!(original["spec"]["clusters"], before.object["spec"]["clusters"]);
        assert!(!karmada::is_suspended(&original, Part::Binding), "{}", binding.of);
    }
}
