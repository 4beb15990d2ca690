//! Makes of two trials what callers compare: the objects that were looked at, with the decisions on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::{ResourceBinding, hex};
use atoll_scheduler::offline::{Answer, Fate, World};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::trial::Trial;
use super::types::{Known, Planned, Side};
use crate::index::Index;
use crate::index::key::BindingKey;
use crate::index::rows::Binding;

/// Hexadecimal digits of the id of a snapshot.
const DIGITS: usize = 16;

pub(super) fn planned(known: &Known, mut before: Trial, mut after: Trial) -> Planned {
    let keys = std::mem::take(&mut after.order);
    let elsewhere = elsewhere(&known.index, &keys);
    let new = keys.iter().filter(|key| known.index.binding(key).is_none()).count();
    let mut problems = after.problems.clone();
    problems
        .extend(before.problems.iter().filter(|known| !after.problems.contains(known)).cloned());
    let held_by = after.moves.held_by(&after.index, after.now);
    let without = side(known, &mut before, &keys, None, &mut problems);
    let shared = Some((&*before.index, &without.world));
    let with = side(known, &mut after, &keys, shared, &mut problems);
    Planned {
        before: without,
        after: with,
        workloads: known.index.bindings().count() + new,
        elsewhere,
        held_by,
        problems,
        snapshot: snapshot(known),
    }
}

/// Replicas on each member of all bindings but these.
fn elsewhere(index: &Index, keys: &[BindingKey]) -> BTreeMap<String, i64> {
    let mut all: BTreeMap<String, i64> = BTreeMap::new();
    for share in index.bindings().flat_map(|binding| &binding.spec.clusters) {
        match all.get_mut(&share.name) {
            Some(replicas) => *replicas = replicas.saturating_add(share.replicas),
            None => drop(all.insert(share.name.clone(), share.replicas)),
        }
    }
    let shown = keys.iter().filter_map(|key| index.binding(key));
    for share in shown.flat_map(|binding| &binding.spec.clusters) {
        if let Some(replicas) = all.get_mut(&share.name) {
            *replicas = replicas.saturating_sub(share.replicas);
        }
    }
    all
}

/// The objects and answers of one trial, which it gives away. Bindings are those of the hub: a plan compares with what is in
/// force. Workloads that are the same in another index and its world are shared: there may be many.
fn side(
    known: &Known,
    trial: &mut Trial,
    keys: &[BindingKey],
    other: Option<(&Index, &World)>,
    problems: &mut Vec<String>,
) -> Side {
    let index = &trial.index;
    let mut world = rules(index);
    let mut answers = Vec::with_capacity(keys.len());
    for key in keys {
        let Some(seen) = trial.seen.remove(key) else { continue };
        let is_attached = matches!(seen.fate, Fate::Attached(_));
        answers.push(Answer { object: seen.object.clone(), fate: seen.fate });
        let Some(template) = index.template(&seen.object) else { continue };
        let same = other.and_then(|(index, world)| {
            let known = index.template(&seen.object)?;
            world.workload(&seen.object).filter(|_| Arc::ptr_eq(known, template))
        });
        if let Some(same) = same {
            world.share(same);
        } else {
            if let Err(problem) = world.add_template(seen.object.clone(), template.object()) {
                problems.push(format!("{}: {problem}", seen.object));
            }
        }
        let Some(binding) = known.index.binding(key) else { continue };
        add(&mut world, binding);
        // Attached objects are where their parents are.
        if is_attached {
            for by in &binding.spec.required_by {
                let parent = BindingKey::of(by.namespace.as_deref(), &by.name);
                known.index.binding(&parent).into_iter().for_each(|row| add(&mut world, row));
            }
        }
    }
    world.attach(&mut answers);
    Side { world, answers }
}

fn add(world: &mut World, binding: &Binding) {
    world.bindings.entry(binding.key.clone()).or_insert_with(|| ResourceBinding {
        metadata: binding.metadata(),
        spec: binding.spec.clone(),
        status: Some(binding.status.read()),
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
    }
    for template in known.index.templates() {
        add(&template.uid);
        add(&template.resource_version);
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
