//! Inputs of a manifest that few workloads have.

use std::collections::BTreeMap;

use atoll_render::NodeRules;
use atoll_render::overrides::ClusterProperties;
use serde_json::Value;

/// What makes a manifest differ from its template by more than the replicas.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Special {
    /// The override policies that may concern it, and the cluster's properties.
    pub overrides: Option<(u64, ClusterProperties)>,
    /// The user's rule that writes the replicas: its hash, and whether it did.
    pub revising: Option<(u64, bool)>,
    /// The patch of the cluster's subset.
    pub patch: Option<Value>,
    /// The nodes of the cluster's subset.
    pub nodes: Option<NodeRules>,
    /// Labels added to the template's.
    pub labels: BTreeMap<String, String>,
    /// Replicas of the clusters before it in the order of the subsets.
    pub ordinals: Option<i64>,
}

impl Special {
    pub(super) fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}
