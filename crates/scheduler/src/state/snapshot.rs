//! An immutable, versioned view of all cluster and policy state that a decision uses.
//!
//! Rows are clusters, ordered by name. They are stored in chunks of 64, one word of a [`BitSet`] each. A changed
//! cluster copies one chunk; all other chunks are shared with the previous snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::{WorkloadPolicy, WorkloadSpread};

use super::affinity_group::{AffinityGroup, GroupMembers, Violation};
use super::cluster_sets::ClusterSets;
use super::member_quotas::MemberQuotas;
use super::namespace::Namespace;
use super::quotas::Quotas;
use super::row::Row;
use super::standing::Claim;
use super::tables::BindingFacts;
use atoll_decision::{BindingKey, BitSet};

/// Rows per chunk.
pub(super) const CHUNK: usize = 64;
/// Length of the log of row changes, from which cached columns are patched instead of recomputed.
pub(super) const LOG: usize = 256;

/// A change of a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Logged {
    pub(super) version: u64,
    pub(super) row: u32,
    /// Whether only the remaining capacity changed.
    pub(super) room_only: bool,
}

pub use atoll_decision::Names;

/// An immutable view of the tables.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    pub(super) version: u64,
    /// Changes when a cluster joins or leaves, because row numbers change then.
    pub(super) membership: u64,
    pub(super) names: Option<Names>,
    pub(super) chunks: Vec<Arc<[Arc<Row>]>>,
    /// The latest changes, ordered by version.
    pub(super) log: Vec<Logged>,
    /// The log is complete for changes after this version.
    pub(super) log_from: u64,
    pub(super) namespaces: Arc<BTreeMap<Arc<str>, Arc<Namespace>>>,
    pub(super) workload_policies: Arc<BTreeMap<(String, String), Arc<WorkloadPolicy>>>,
    pub(super) workload_spreads: Arc<BTreeMap<(String, String), Arc<WorkloadSpread>>>,
    pub(super) cluster_sets: Arc<ClusterSets>,
    /// Room that bindings of higher priority took, by the binding that loses it.
    pub(super) claims: Arc<BTreeMap<BindingKey, Vec<Claim>>>,
    pub(super) member_quotas: Arc<MemberQuotas>,
}

/// The content of a snapshot as one decision read it.
pub(crate) struct ReadContent {
    pub(crate) version: u64,
    /// In the order of their names.
    pub(crate) rows: Vec<Arc<Row>>,
    pub(crate) bindings: Vec<Arc<BindingFacts>>,
    pub(crate) quotas: Option<(String, Quotas)>,
    pub(crate) workload_policy: Option<WorkloadPolicy>,
    pub(crate) workload_spread: Option<WorkloadSpread>,
    pub(crate) cluster_sets: ClusterSets,
    pub(crate) claims: BTreeMap<BindingKey, Vec<Claim>>,
    pub(crate) member_quotas: MemberQuotas,
}

impl Snapshot {
    /// A snapshot with this content only.
    pub(crate) fn restored(content: ReadContent) -> Self {
        let key = |meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
            (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
        };
        let mut by_namespace: BTreeMap<Arc<str>, Vec<Arc<BindingFacts>>> = BTreeMap::new();
        for facts in content.bindings {
            let namespace = facts.key.namespace().unwrap_or_default().into();
            by_namespace.entry(namespace).or_default().push(facts);
        }
        let mut quotas = content.quotas;
        if let Some((namespace, _)) = &quotas {
            by_namespace.entry(namespace.as_str().into()).or_default();
        }
        let namespaces = by_namespace.into_iter().map(|(name, bindings)| {
            let own = quotas.take_if(|(of, _)| **of == *name).map(|(_, quotas)| quotas);
            (name, Arc::new(Namespace::restored(bindings.into_iter(), own)))
        });
        let namespaces = namespaces.collect();
        let policies = content.workload_policy.into_iter();
        let spreads = content.workload_spread.into_iter();
        Self {
            version: content.version,
            membership: 1,
            names: Some(content.rows.iter().map(|row| row.name.clone()).collect()),
            chunks: content.rows.chunks(CHUNK).map(Arc::from).collect(),
            log: Vec::new(),
            log_from: content.version,
            namespaces: Arc::new(namespaces),
            workload_policies: Arc::new(
                policies.map(|policy| (key(&policy.metadata), Arc::new(policy))).collect(),
            ),
            workload_spreads: Arc::new(
                spreads.map(|spread| (key(&spread.metadata), Arc::new(spread))).collect(),
            ),
            cluster_sets: Arc::new(content.cluster_sets),
            claims: Arc::new(content.claims),
            member_quotas: Arc::new(content.member_quotas),
        }
    }

    /// The rows in chunks, which share what did not change with earlier snapshots.
    pub(crate) fn chunks(&self) -> &[Arc<[Arc<Row>]>] {
        &self.chunks
    }

    /// All claims.
    pub(crate) fn all_claims(&self) -> &BTreeMap<BindingKey, Vec<Claim>> {
        &self.claims
    }

    /// The quotas of a namespace, shared.
    pub(crate) fn shared_quotas(&self, namespace: &str) -> Option<Arc<Quotas>> {
        self.namespaces.get(namespace)?.shared_quotas()
    }

    /// The ClusterSets, shared.
    pub(crate) fn shared_cluster_sets(&self) -> Arc<ClusterSets> {
        self.cluster_sets.clone()
    }
    /// Version of this view. Within one set of tables, equal versions have equal content.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Version of the set of clusters.
    #[must_use]
    pub fn membership(&self) -> u64 {
        self.membership
    }

    /// Number of clusters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.as_ref().map_or(0, |names| names.len())
    }

    /// Whether there are no clusters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Names by row, ascending.
    #[must_use]
    pub fn names(&self) -> Names {
        self.names.clone().unwrap_or_else(|| Arc::from([]))
    }

    /// The cluster of a row below [`Snapshot::len`].
    #[must_use]
    pub fn row(&self, row: usize) -> &Arc<Row> {
        &self.chunks[row / CHUNK][row % CHUNK]
    }

    /// All clusters with their rows.
    pub fn rows(&self) -> impl Iterator<Item = (usize, &Arc<Row>)> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).enumerate()
    }

    /// The row of a cluster, by name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        self.names.as_ref()?.binary_search_by(|have| (**have).cmp(name)).ok()
    }

    /// The set of all rows.
    #[must_use]
    pub fn all(&self) -> BitSet {
        BitSet::full(self.len())
    }

    /// Rows that changed after a version. Changes of capacity alone count only if `room`. `None` if the log does not
    /// reach back that far.
    #[must_use]
    pub fn changed_since(
        &self,
        version: u64,
        room: bool,
    ) -> Option<impl Iterator<Item = usize> + '_> {
        let from = self.log.partition_point(|logged| logged.version <= version);
        let counts = move |logged: &&Logged| room || !logged.room_only;
        (version >= self.log_from)
            .then(|| self.log[from..].iter().filter(counts).map(|logged| logged.row as usize))
    }

    /// A WorkloadPolicy, by namespace and name.
    #[must_use]
    pub fn workload_policy(&self, namespace: &str, name: &str) -> Option<&Arc<WorkloadPolicy>> {
        self.workload_policies.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// The WorkloadSpread of a workload: the oldest one, then the smaller name. The others are `Conflicted`.
    #[must_use]
    pub fn workload_spread(
        &self,
        namespace: &str,
        group: &str,
        kind: &str,
        name: &str,
    ) -> Option<&Arc<WorkloadSpread>> {
        if self.workload_spreads.is_empty() {
            return None;
        }
        self.workload_spreads
            .range((namespace.to_owned(), String::new())..)
            .take_while(|((of, _), _)| of == namespace)
            .map(|(_, spread)| spread)
            .filter(|spread| {
                let target = &spread.spec.target_ref;
                let of = target.api_version.split_once('/').map_or("", |(group, _)| group);
                target.kind == kind && target.name == name && of == group
            })
            .min_by_key(|spread| {
                let at = spread.metadata.creation_timestamp.as_ref().map(|time| time.0);
                (at, spread.metadata.name.clone())
            })
    }

    /// Which clusters namespaces may use.
    #[must_use]
    pub fn cluster_sets(&self) -> &ClusterSets {
        &self.cluster_sets
    }

    /// What ResourceQuotas on members leave to namespaces.
    #[must_use]
    pub fn member_quotas(&self) -> &MemberQuotas {
        &self.member_quotas
    }

    /// All WorkloadPolicies.
    pub fn workload_policies(&self) -> impl Iterator<Item = &Arc<WorkloadPolicy>> {
        self.workload_policies.values()
    }

    /// All WorkloadSpreads.
    pub fn workload_spreads(&self) -> impl Iterator<Item = &Arc<WorkloadSpread>> {
        self.workload_spreads.values()
    }

    /// Bindings of a namespace. The order is by a hash of their names.
    pub fn bindings(&self, namespace: &str) -> impl Iterator<Item = &Arc<BindingFacts>> {
        self.namespaces.get(namespace).into_iter().flat_map(|namespace| namespace.bindings())
    }

    /// The FederatedResourceQuotas of a namespace. `None` if it has none.
    #[must_use]
    pub fn quotas(&self, namespace: &str) -> Option<&Quotas> {
        self.namespaces.get(namespace)?.quotas()
    }

    /// The bindings of all namespaces.
    pub fn all_bindings(&self) -> impl Iterator<Item = &Arc<BindingFacts>> {
        self.namespaces.values().flat_map(|namespace| namespace.bindings())
    }

    /// Room of a binding that others took.
    #[must_use]
    pub fn claims(&self, key: &BindingKey) -> &[Claim] {
        self.claims.get(key).map_or(&[], Vec::as_slice)
    }

    /// A binding, by key.
    #[must_use]
    pub fn binding(&self, key: &BindingKey) -> Option<&Arc<BindingFacts>> {
        self.namespaces.get(key.namespace().unwrap_or_default())?.get(key)
    }

    /// The workloads of a group of a namespace. `None` if there are none.
    #[must_use]
    pub fn affinity_group(
        &self,
        namespace: &str,
        group: &AffinityGroup,
    ) -> Option<&Arc<GroupMembers>> {
        self.namespaces.get(namespace)?.group(group)
    }

    /// The required rules of `placement.workloadAffinity` that a binding's clusters violate. `None` if it has no such
    /// rules.
    #[must_use]
    pub fn affinity_violations(&self, key: &BindingKey) -> Option<Vec<Violation>> {
        let facts = self.binding(key)?;
        let namespace = key.namespace().unwrap_or_default();
        let required: Vec<_> = facts.groups.iter().filter(|of| of.required).collect();
        if required.is_empty() {
            return None;
        }
        let clusters: Vec<&str> = facts.shares.iter().map(|share| share.name.as_str()).collect();
        let violated = required.into_iter().filter_map(|of| {
            self.affinity_group(namespace, &of.group)?.violated(&of.group, key, &clusters)
        });
        Some(violated.collect())
    }
}
