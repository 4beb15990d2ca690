//! The table behind `tenancy`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_api::ClusterSet;
use atoll_scheduler::state::cluster_sets::ClusterSets;

use super::rows::Namespace;

/// Namespaces and ClusterSets. `rules` is a function of the others.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Tenancy {
    pub(super) namespaces: BTreeMap<String, Namespace>,
    pub(super) sets: BTreeMap<String, Arc<ClusterSet>>,
    pub(super) rules: Arc<ClusterSets>,
}

/// What a change of namespaces or ClusterSets touches.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TenancyTouched {
    /// ClusterSets whose status may change.
    pub sets: BTreeSet<String>,
    /// Whether the rules changed.
    pub rules: bool,
}

impl TenancyTouched {
    pub(super) fn merge(&mut self, other: Self) {
        self.sets.extend(other.sets);
        self.rules |= other.rules;
    }
}
