//! The tables behind `tenancy` and `guards`: what administrators allow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_api::{ClusterSet, FederatedResourceQuota};
use atoll_scheduler::state::cluster_sets::ClusterSets;

use super::guard_rules::Guard;
use super::key::NamespacedName;
use super::rows::Namespace;

/// Namespaces with their ClusterSets and FederatedResourceQuotas, and ChangeGuards. `rules` is a function of namespaces
/// and sets.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Tenancy {
    pub(super) namespaces: BTreeMap<String, Namespace>,
    pub(super) sets: BTreeMap<String, Arc<ClusterSet>>,
    pub(super) rules: Arc<ClusterSets>,
    pub(super) quotas: BTreeMap<NamespacedName, Arc<FederatedResourceQuota>>,
    pub(super) guards: BTreeMap<String, Arc<Guard>>,
}

/// What a change of namespaces, ClusterSets, FederatedResourceQuotas or ChangeGuards touches.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TenancyTouched {
    /// ClusterSets whose status may change.
    pub sets: BTreeSet<String>,
    /// Whether the rules changed.
    pub rules: bool,
    /// FederatedResourceQuotas that changed or were deleted.
    pub quotas: BTreeSet<NamespacedName>,
    /// ChangeGuards that changed or were deleted.
    pub guards: BTreeSet<String>,
}

impl TenancyTouched {
    pub(super) fn merge(&mut self, other: Self) {
        self.sets.extend(other.sets);
        self.rules |= other.rules;
        self.quotas.extend(other.quotas);
        self.guards.extend(other.guards);
    }
}
