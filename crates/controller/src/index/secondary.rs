//! The secondary indexes.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::{BindingUid, ClusterName, Few};
use kube::core::Version;
use serde_json::Value;

use super::key::{BindingKey, GroupKind, NamespacedName, PolicyKey, TemplateKey};

/// Kinds checked for the label of a WorkloadPolicy, while there is a WorkloadPolicy.
pub(super) const LABELLED_KINDS: [(&str, &str); 4] = [
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "Job"),
];

/// The secondary indexes. Each is a function of the rows alone.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Secondary {
    pub(super) policies_by_kind: BTreeMap<GroupKind, BTreeSet<PolicyKey>>,
    /// Policies with a selector for every kind, by namespace.
    pub(super) policies_for_every_kind: BTreeMap<String, BTreeSet<PolicyKey>>,
    /// Mostly one each.
    pub(super) templates_by_binding: BTreeMap<BindingKey, Few<TemplateKey>>,
    pub(super) templates_by_workload_policy: BTreeMap<NamespacedName, BTreeSet<TemplateKey>>,
    pub(super) spreads_by_target: BTreeMap<TemplateKey, BTreeSet<String>>,
    pub(super) bindings_by_uid: BTreeMap<BindingUid, BindingKey>,
    pub(super) bindings_by_cluster: BTreeMap<ClusterName, BTreeSet<BindingKey>>,
    pub(super) bindings_by_policy: BTreeMap<PolicyKey, BTreeSet<BindingKey>>,
    /// Kinds and versions that bindings are for, with the number of bindings: read whenever a binding is created or
    /// deleted.
    pub(super) kinds_of_bindings: BTreeMap<(GroupKind, String), usize>,
    /// Node label keys in the pods of placed templates, with the number of bindings that use them.
    pub(super) node_labels: BTreeMap<String, usize>,
    /// Bindings that a new or changed cluster may affect although they have no share there.
    pub(super) bindings_following_clusters: BTreeSet<BindingKey>,
}

pub(super) fn add<K: Ord, V: Ord>(map: &mut BTreeMap<K, BTreeSet<V>>, key: K, value: V) {
    map.entry(key).or_default().insert(value);
}

pub(super) fn remove<K: Ord, V: Ord>(map: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(values) = map.get_mut(key) {
        values.remove(value);
        if values.is_empty() {
            map.remove(key);
        }
    }
}

/// Increments or decrements a count; removes it at zero.
pub(super) fn count<K: Ord + Clone>(map: &mut BTreeMap<K, usize>, key: K, present: bool) {
    let count = map.entry(key.clone()).or_default();
    *count = if present { *count + 1 } else { count.saturating_sub(1) };
    if *count == 0 {
        map.remove(&key);
    }
}

/// `(namespace, name)` of an object.
pub(super) fn name_of(object: &Value) -> (Option<String>, String) {
    let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
    (text("namespace").filter(|n| !n.is_empty()), text("name").unwrap_or_default())
}

/// Whether a version comes before the other one in Kubernetes' order.
pub(super) fn newer_version(candidate: &str, held: &str) -> bool {
    Version::parse(candidate).priority() > Version::parse(held).priority()
}
