//! From committed decisions to the orders for each member.
//!
//! The desired set of a member is a function of bindings and templates in the hub; none of it is stored. [`plan`]
//! computes what a binding wants on each member; [`Sent`] stores what was passed to `members`, so that only differences
//! are sent; [`verdicts`] decides about objects that a member holds although no binding wants them there. `members`
//! handles sessions, queues per member and the protocol.

pub mod outlet;
pub mod plan;
pub mod verdicts;

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::binding::TargetCluster;
use atoll_api::selector::Selector;
use atoll_api::{Cluster, WorkloadSpread};
use atoll_render::{RenderError, Rendered, Share};
use serde_json::Value;

use crate::index::key::BindingKey;
use crate::index::rows::{Binding, Template};
use plan::Presence;

/// Number of recent hashes under which a member's report is still matched.
const REMEMBERED_HASHES: usize = 4;

/// What was last sent for a binding on a member.
#[derive(Debug, Clone, PartialEq)]
pub struct Handed {
    /// Hash of the manifest.
    pub hash: String,
    /// Replicas in it.
    pub replicas: Option<i64>,
    /// Whether the object outlives its binding.
    pub preserve: bool,
    /// Whether it may replace an object that Atoll does not manage.
    pub overwrite: bool,
    /// What it was rendered from.
    inputs: Inputs,
    /// The template revision that each recent hash was last rendered from, newest hash last.
    revisions: Vec<(String, i64)>,
}

impl Handed {
    /// uid of the binding.
    #[must_use]
    pub fn claim(&self) -> &str {
        &self.inputs.claim
    }

    /// The newest template revision that renders to this hash here; `None` for an older hash.
    #[must_use]
    pub fn revision(&self, hash: &str) -> Option<i64> {
        self.revisions.iter().find(|(held, _)| held == hash).map(|(_, revision)| *revision)
    }
}

/// Everything that a member's order is computed from: equal inputs give equal orders.
#[derive(Debug, Clone, PartialEq)]
pub struct Inputs {
    /// Version of the template's content.
    pub source: u64,
    /// uid of the binding.
    pub claim: String,
    /// Labels of the hub's namespace.
    pub namespace: Option<Value>,
    /// The patch of the cluster's subset.
    pub patch: Option<Value>,
    /// Labels added to the template's.
    pub labels: BTreeMap<String, String>,
    /// Replicas of the clusters before it in the order of the subsets.
    pub ordinals: Option<i64>,
    /// The share.
    pub presence: Presence,
    /// Whether the object outlives its binding.
    pub preserve: bool,
    /// Whether it may replace an object that Atoll does not manage.
    pub overwrite: bool,
}

/// What was sent, by binding and member.
#[derive(Debug, Default)]
pub struct Sent {
    handed: BTreeMap<BindingKey, BTreeMap<String, Handed>>,
    /// The template that each binding was last rendered from, and the version of its content.
    sources: BTreeMap<BindingKey, (Arc<Value>, u64)>,
    versions: u64,
}

impl Sent {
    /// The version of a template's content. It changes with everything that a manifest or a report of its revision may
    /// show, but not with the status in the hub.
    pub fn source(&mut self, key: &BindingKey, template: &Template) -> u64 {
        if let Some((held, version)) = self.sources.get_mut(key)
            && same_content(held, template)
        {
            held.clone_from(&template.object);
            return *version;
        }
        self.versions += 1;
        self.sources.insert(key.clone(), (template.object.clone(), self.versions));
        self.versions
    }

    /// Whether a member was sent the result of these inputs, so that it need not be rendered again.
    #[must_use]
    pub fn is_current(&self, key: &BindingKey, cluster: &str, inputs: &Inputs) -> bool {
        self.get(key, cluster).is_some_and(|handed| handed.inputs == *inputs)
    }

    /// Everything sent for a binding.
    pub fn of(&self, key: &BindingKey) -> impl Iterator<Item = (&String, &Handed)> {
        self.handed.get(key).into_iter().flatten()
    }

    /// What a member was sent for a binding.
    #[must_use]
    pub fn get(&self, key: &BindingKey, cluster: &str) -> Option<&Handed> {
        self.handed.get(key)?.get(cluster)
    }

    /// Stores what is sent and returns whether it differs from before.
    pub fn hand(
        &mut self,
        key: &BindingKey,
        cluster: &str,
        order: &Order,
        inputs: Inputs,
        revision: i64,
    ) -> bool {
        let handed = self.handed.entry(key.clone()).or_default();
        let hash = order.object.hash.clone();
        let before = handed.get(cluster);
        let same = before.is_some_and(|before| {
            before.hash == hash
                && before.preserve == order.preserve
                && before.overwrite == order.overwrite
        });
        let mut revisions = before.map(|before| before.revisions.clone()).unwrap_or_default();
        revisions.retain(|(held, _)| *held != hash);
        revisions.push((hash.clone(), revision));
        if revisions.len() > REMEMBERED_HASHES {
            revisions.remove(0);
        }
        let fresh = Handed {
            hash,
            replicas: order.replicas,
            preserve: order.preserve,
            overwrite: order.overwrite,
            inputs,
            revisions,
        };
        handed.insert(cluster.to_owned(), fresh);
        !same
    }

    /// A member must no longer hold an object of the binding.
    pub fn take_back(&mut self, key: &BindingKey, cluster: &str) {
        if let Some(handed) = self.handed.get_mut(key) {
            handed.remove(cluster);
            if handed.is_empty() {
                self.handed.remove(key);
            }
        }
    }

    /// The binding was deleted.
    pub fn forget(&mut self, key: &BindingKey) {
        self.sources.remove(key);
        self.handed.remove(key);
    }

    /// Leadership lost: drop all records of what was sent.
    pub fn clear(&mut self) {
        self.sources.clear();
        self.handed.clear();
    }
}

/// Whether two versions of a template have the same content.
fn same_content(held: &Arc<Value>, template: &Template) -> bool {
    if Arc::ptr_eq(held, &template.object) {
        return true;
    }
    // Kinds without a generation show their resourceVersion as revision.
    let passing: &[&str] = if template.generation > 0 {
        &["resourceVersion", "managedFields"]
    } else {
        &["managedFields"]
    };
    same_but(&held["metadata"], &template.object["metadata"], passing)
        && same_but(held, &template.object, &["metadata", "status"])
}

/// Whether two objects have the same fields, except for the fields in `but`.
fn same_but(a: &Value, b: &Value, but: &[&str]) -> bool {
    let field = |name: &&String| !but.contains(&name.as_str());
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return a == b };
    a.keys().filter(field).eq(b.keys().filter(field))
        && a.keys().filter(field).all(|name| a.get(name) == b.get(name))
}

/// What one member must hold of a binding.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// The namespace that the object needs, and the object.
    pub objects: Vec<Arc<Rendered>>,
    /// The object.
    pub object: Arc<Rendered>,
    /// Replicas in it.
    pub replicas: Option<i64>,
    /// Whether it outlives its binding.
    pub preserve: bool,
    /// Whether it may replace an object that Atoll does not manage.
    pub overwrite: bool,
}

/// A cluster's subset: the first whose selector matches it.
#[must_use]
pub fn subset_of(spread: &WorkloadSpread, cluster: &Cluster) -> Option<usize> {
    let labels = cluster.metadata.labels.clone().unwrap_or_default();
    spread.spec.subsets.iter().position(|subset| {
        let required = subset.required_cluster_selector.as_ref();
        // An invalid selector matches nothing, as in the scheduler.
        required.is_none_or(|s| Selector::parse(s).is_ok_and(|s| s.matches(&labels)))
    })
}

/// The number of replicas on the clusters before each of these, subset by subset in order and by name within one: the
/// start of the StatefulSet's ordinals there. Clusters of no subset come last.
#[must_use]
pub fn ordinals_before<'a>(
    shares: &'a [TargetCluster],
    clusters: impl IntoIterator<Item = &'a str>,
    subset: impl Fn(&str) -> Option<usize>,
) -> BTreeMap<&'a str, i64> {
    let place = |name: &'a str| (subset(name).unwrap_or(usize::MAX), name);
    let mut order: Vec<_> =
        shares.iter().map(|share| (place(&share.name), share.replicas)).collect();
    order.sort_unstable();
    // Total replicas of each prefix.
    let mut before = vec![0_i64];
    for (_, replicas) in &order {
        before.push(before[before.len() - 1].saturating_add(*replicas));
    }
    let begins = |name: &'a str| {
        let own = place(name);
        before[order.partition_point(|(place, _)| *place < own)]
    };
    clusters.into_iter().map(|name| (name, begins(name))).collect()
}

/// Labels of a cluster's copy in addition to the template's: the preserved state of a copy that failed elsewhere.
#[must_use]
pub fn labels_for(binding: &Binding, cluster: &str) -> BTreeMap<String, String> {
    let state = binding.spec.preserved_state.as_ref();
    let state = state.filter(|state| state.clusters.iter().any(|name| name == cluster));
    state.map(|state| state.labels.clone()).unwrap_or_default()
}

/// Renders what a member must hold.
///
/// # Errors
/// When the template cannot be rendered; the error names the field.
pub fn order(
    binding: &Binding,
    template: &Template,
    namespace: Option<&Value>,
    patch: Option<&Value>,
    ordinals: Option<i64>,
    cluster: &str,
    presence: Presence,
) -> Result<Option<Order>, RenderError> {
    let Presence::Want { replicas, before } = presence else { return Ok(None) };
    let preserve = binding.spec.preserve_resources_on_deletion;
    let share = Share {
        cluster: cluster.to_owned(),
        replicas,
        before,
        ordinals,
        claim: binding.uid().to_owned(),
        preserve,
        patch: patch.cloned(),
        labels: labels_for(binding, cluster),
    };
    let object = Arc::new(atoll_render::render(&template.object, &share)?);
    let mut objects = Vec::with_capacity(2);
    if let Some(name) = &template.key.namespace {
        objects.push(Arc::new(atoll_render::namespace(name, namespace)));
    }
    objects.push(object.clone());
    let overwrite =
        binding.spec.conflict_resolution == atoll_api::policy::ConflictResolution::Overwrite;
    Ok(Some(Order { objects, object, replicas, preserve, overwrite }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinals_go_on_from_subset_to_subset_and_by_name_within_one() {
        let share = |name: &str, replicas| TargetCluster { name: name.to_owned(), replicas };
        let shares = [share("a", 1), share("b", 2), share("c", 4), share("d", 8)];
        // b and d are in the first subset, c in the second, a in none; e holds a kept copy and has no share.
        let subset = |name: &str| match name {
            "b" | "d" | "e" => Some(0),
            "c" => Some(1),
            _ => None,
        };
        let begins = ordinals_before(&shares, ["a", "b", "c", "d", "e"], subset);
        let begins: Vec<_> = begins.into_iter().collect();
        assert_eq!(begins, [("a", 14), ("b", 0), ("c", 10), ("d", 2), ("e", 10)]);
    }
}
