//! Makes of two trials what callers compare: the objects that were looked at, with the decisions on them.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::{ResourceBinding, hex};
use atoll_scheduler::offline::{Answer, Document, Fate, World};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::trial::Trial;
use super::types::{Known, Planned, Side};
use crate::index::Index;
use crate::index::key::BindingKey;
use crate::index::rows::Binding;

/// Hexadecimal digits of the id of a snapshot.
const DIGITS: usize = 16;

pub(super) fn planned(known: &Known, before: Trial, after: Trial) -> Planned {
    let keys: Vec<&BindingKey> = after.order.iter().collect();
    let shown: BTreeSet<&BindingKey> = keys.iter().copied().collect();
    let mut elsewhere: BTreeMap<String, i64> = BTreeMap::new();
    for binding in known.index.bindings().filter(|binding| !shown.contains(&binding.key)) {
        for share in &binding.spec.clusters {
            let replicas = elsewhere.entry(share.name.clone()).or_default();
            *replicas = replicas.saturating_add(share.replicas);
        }
    }
    let new = keys.iter().filter(|key| known.index.binding(key).is_none()).count();
    let mut problems = after.problems.clone();
    problems
        .extend(before.problems.iter().filter(|known| !after.problems.contains(known)).cloned());
    let held_by = after.moves.held_by(&after.index, after.now);
    let before = side(known, &before, &keys, &mut problems);
    let after = side(known, &after, &keys, &mut problems);
    Planned {
        before,
        after,
        workloads: known.index.bindings().count() + new,
        elsewhere,
        held_by,
        problems,
        snapshot: snapshot(known),
    }
}

/// The objects and answers of one trial. Bindings are those of the hub: a plan compares with what is in force.
fn side(known: &Known, trial: &Trial, keys: &[&BindingKey], problems: &mut Vec<String>) -> Side {
    let index = &trial.index;
    let mut world = rules(index);
    let mut answers = Vec::new();
    for key in keys {
        let Some(seen) = trial.seen.get(*key) else { continue };
        answers.push(Answer { object: seen.object.clone(), fate: seen.fate.clone() });
        let Some(template) = index.template(&seen.object) else { continue };
        let object = (*template.object()).clone();
        if let Err(error) = world.add(Document { origin: String::new(), object }) {
            problems.push(format!("{}: {}", seen.object, error.problem));
        }
        let Some(binding) = known.index.binding(key) else { continue };
        add(&mut world, binding);
        // Attached objects are where their parents are.
        if matches!(seen.fate, Fate::Attached(_)) {
            for by in &binding.spec.required_by {
                let parent = BindingKey { namespace: by.namespace.clone(), name: by.name.clone() };
                known.index.binding(&parent).into_iter().for_each(|row| add(&mut world, row));
            }
        }
    }
    world.attach(&mut answers);
    Side { world, answers }
}

fn add(world: &mut World, binding: &Binding) {
    world.bindings.entry(binding.key.clone()).or_insert_with(|| ResourceBinding {
        metadata: binding.metadata.clone(),
        spec: binding.spec.clone(),
        status: Some(binding.status.clone()),
    });
}

/// A world with everything but workloads and bindings.
fn rules(index: &Index) -> World {
    let mut world = World::new(index.reserved().clone());
    for (name, cluster) in index.clusters() {
        world.clusters.insert(name.to_string(), (**cluster).clone());
    }
    for policy in index.policies() {
        world.policies.insert(policy.key.clone(), policy.clone());
    }
    for key in index.spreads() {
        if let Some(spread) = index.spread(key) {
            world.workload_spreads.insert(key.clone(), (**spread).clone());
        }
    }
    world.overrides = index.override_objects().map(|object| (**object).clone()).collect();
    for name in index.customizations() {
        let Some(row) = index.customization(name) else { continue };
        world.interpreters.push(json!({
            "apiVersion": "config.atoll.dev/v1alpha1",
            "kind": "ResourceInterpreterCustomization",
            "metadata": {"name": name},
            "spec": *row.spec,
        }));
    }
    for (name, labels) in index.all_namespace_labels() {
        world.know_namespace(name, labels);
    }
    world
}

/// The id of what a plan is computed from: objects by their versions, and the members' room.
fn snapshot(known: &Known) -> String {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update(text);
        hash.update([0]);
    };
    for binding in known.index.bindings() {
        add(&binding.uid);
        add(binding.resource_version());
        if let Some(template) = known.index.template(&binding.template()) {
            add(&template.resource_version);
        }
    }
    for policy in known.index.policies() {
        add(&format!("{} {} {:?}", policy.key, policy.uid, policy.generation));
    }
    for (name, cluster) in known.index.clusters() {
        let version = cluster.metadata.resource_version.as_deref().unwrap_or_default();
        add(&format!("{name} {version} {:?}", known.live.get(name)));
    }
    let mut text = hex::encode(&hash.finalize());
    text.truncate(DIGITS);
    text
}
