//! On which clusters an object is needed by the bindings whose templates refer to it.
//!
//! `spec.requiredBy` is committed state: a parent is sent to a cluster only after each object that it refers to is
//! committed there, and an object leaves a cluster only after the removal of its last parent there was confirmed.

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_api::binding::{NamedCluster, RequiringBinding};
use atoll_api::policy::ConflictResolution;

use super::{Placements, Removal};
use crate::commit::draft::Required;
use crate::detect::dependencies::stays_home;
use crate::index::Index;
use crate::index::key::{BindingKey, TemplateKey};
use crate::index::rows::Binding;

/// Limit of parents that a binding names, as in its schema.
const MOST_PARENTS: usize = 2_000;

/// What the parents of an object want of it. `held` is its binding: what it names stays for parents whose templates
/// are not known now.
#[must_use]
pub(crate) fn required(
    index: &Index,
    placements: &Placements,
    object: &TemplateKey,
    held: Option<&Binding>,
) -> Required {
    let mut required = Required::default();
    if index.template(object).is_some_and(|template| stays_home(template)) {
        return required;
    }
    // An object stays where its parents are, but goes to no cluster that its own namespace may not use.
    let held_on: BTreeSet<&str> = held.iter().flat_map(|held| held.required_on()).collect();
    let namespace = object.namespace();
    let parents = index.parents(object).filter_map(|key| index.binding(key));
    for parent in parents.take(MOST_PARENTS) {
        let mut clusters = clusters_of(index, placements, parent);
        clusters.retain(|cluster| {
            held_on.contains(cluster.name.as_str()) || index.may_use(namespace, &cluster.name)
        });
        add(&mut required, parent, clusters);
    }
    for entry in held.iter().flat_map(|held| &held.spec.required_by) {
        let key = BindingKey::of(entry.namespace.as_deref(), &entry.name);
        let unknown = |parent: &&Arc<Binding>| {
            parent.spec.propagate_deps && index.needs(&parent.key).is_none()
        };
        if let Some(parent) = index.binding(&key).filter(unknown) {
            add(&mut required, parent, entry.clusters.clone());
        }
    }
    required.by.sort_unstable();
    required
}

fn add(required: &mut Required, parent: &Binding, clusters: Vec<NamedCluster>) {
    if clusters.is_empty() {
        return;
    }
    if parent.spec.conflict_resolution == ConflictResolution::Overwrite {
        required.conflict = ConflictResolution::Overwrite;
    }
    required.preserve |= parent.spec.preserve_resources_on_deletion;
    let (namespace, name) = (parent.key.namespace(), parent.key.name().to_owned());
    let namespace = namespace.map(str::to_owned);
    required.by.push(RequiringBinding { namespace, name, clusters });
}

/// The clusters of a parent: those of its decision, of its eviction tasks, and those that have not confirmed the
/// removal of its copy.
fn clusters_of(index: &Index, placements: &Placements, parent: &Binding) -> Vec<NamedCluster> {
    let held = placements
        .of(&parent.key)
        .filter(|(_, placement)| placement.sent.is_some() || placement.removal == Removal::Ordered);
    let confirmed = |cluster: &str| {
        let placement = placements.get(&parent.key, cluster);
        placement.is_some_and(|placement| placement.removal == Removal::Confirmed)
    };
    let tasks = parent.spec.graceful_eviction_tasks.iter();
    let leaving = tasks.map(|task| &task.from_cluster).filter(|cluster| !confirmed(cluster));
    let targets = parent.spec.clusters.iter().map(|target| &target.name);
    let held = held.map(|(cluster, _)| cluster.to_string());
    let all: BTreeSet<String> = targets.chain(leaving).cloned().chain(held).collect();
    // A cluster that left the federation holds nothing.
    let present = all.into_iter().filter(|cluster| index.cluster(cluster).is_some());
    present.map(|name| NamedCluster { name }).collect()
}
