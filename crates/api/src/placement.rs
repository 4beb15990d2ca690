//! `placement`: which clusters may be selected, and how replicas are divided over them.
//!
//! The scheduler defines the exact semantics; ARCHITECTURE.md names the modules.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::workload_affinity::WorkloadAffinity;

/// Which clusters may run a workload, and how it is divided. An empty placement means all clusters.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.clusterAffinity) && has(self.clusterAffinities))",
    "message": "clusterAffinity and clusterAffinities exclude each other: keep one"
}]))]
pub struct Placement {
    /// Clusters that may be selected. Absent = all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_affinity: Option<ClusterAffinity>,
    /// Ordered alternatives. The first term that fits is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["affinityName"])
    )]
    pub cluster_affinities: Option<Vec<ClusterAffinityTerm>>,
    /// Cluster taints that the workload tolerates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub cluster_tolerations: Vec<Toleration>,
    /// Minimum and maximum number of groups of clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub spread_constraints: Vec<SpreadConstraint>,
    /// How evenly replicas must be spread over domains of clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Which other workloads of the namespace to run next to, and which to keep away from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_affinity: Option<WorkloadAffinity>,
    /// How replicas are divided. Absent = Duplicated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_scheduling: Option<ReplicaScheduling>,
    /// Changes that may move a placed workload. Default: PolicyChange, ReplicasChange, ClusterFailure; for Duplicated
    /// and for objects without replicas also ClusterChange.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 6))]
    pub reschedule_on: Option<Vec<RescheduleOn>>,
    /// How long replicas may be unschedulable on a member before they move to members with room, in seconds. Only if
    /// `rescheduleOn` has Unschedulable. Default 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub unschedulable_after_seconds: Option<i64>,
    /// Whether a placed workload stays where it is, even if clusters fail, until a rebalance is requested. Default
    /// false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sticky: bool,
}

/// Selects clusters. All given fields must match.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAffinity {
    /// By labels of the Cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// By fields of the Cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_selector: Option<FieldSelector>,
    /// By name. Empty = any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub cluster_names: Vec<String>,
    /// Excluded clusters.
    #[serde(default, rename = "exclude", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub exclude_clusters: Vec<String>,
}

/// Selects clusters by `provider`, `region` or `zone`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldSelector {
    /// All requirements must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub match_expressions: Vec<FieldRequirement>,
}

/// One requirement on a field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldRequirement {
    /// `provider`, `region` or `zone`.
    pub key: ClusterField,
    /// How to compare the values.
    pub operator: FieldOperator,
    /// Values; none for Exists and DoesNotExist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub values: Vec<String>,
}

/// A field for selectors.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum ClusterField {
    /// `spec.provider`.
    Provider,
    /// `spec.region`.
    Region,
    /// `spec.zones`: In and Exists match if one zone matches; NotIn and DoesNotExist match if none does.
    Zone,
}

/// How to compare values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FieldOperator {
    /// One of the values.
    In,
    /// None of the values.
    NotIn,
    /// The field is set.
    Exists,
    /// The field is not set.
    DoesNotExist,
}

/// One of the ordered alternatives.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAffinityTerm {
    /// Name of the term. The binding reports the name of the term in force.
    #[schemars(length(min = 1, max = 32))]
    pub affinity_name: String,
    /// The clusters of the term.
    #[serde(flatten)]
    pub affinity: ClusterAffinity,
    /// Tiers that are added in order while the earlier clusters do not have room for all replicas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub overflow_affinities: Vec<OverflowAffinity>,
}

/// A tier of clusters for replicas that do not fit the earlier ones.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverflowAffinity {
    /// Name of the tier.
    #[schemars(length(min = 1, max = 32))]
    pub affinity_name: String,
    /// The clusters of the tier.
    #[serde(flatten)]
    pub affinity: ClusterAffinity,
}

/// Minimum and maximum number of groups of clusters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.spreadByField) != has(self.spreadByLabel)",
        "message": "exactly one of spreadByField and spreadByLabel is needed"
    },
    {
        "rule": "!has(self.maxGroups) || self.maxGroups == 0 || !has(self.minGroups) || self.minGroups <= self.maxGroups",
        "message": "minGroups must not be above maxGroups"
    }
]))]
pub struct SpreadConstraint {
    /// Field that groups the clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_by_field: Option<SpreadField>,
    /// Label whose values group the clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_by_label: Option<String>,
    /// Minimum number of groups with replicas. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_groups: Option<i64>,
    /// Maximum number of groups with replicas. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_groups: Option<i64>,
}

/// A field that groups clusters.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum SpreadField {
    /// Every cluster is its own group.
    Cluster,
    /// By `spec.region`.
    Region,
    /// By `spec.zones`.
    Zone,
    /// By `spec.provider`.
    Provider,
}

/// `topologySpreadConstraints` of a Pod, for clusters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.matchLabelKeys) || has(self.labelSelector)",
    "message": "matchLabelKeys narrows labelSelector, which is missing"
}]))]
pub struct TopologySpreadConstraint {
    /// Maximum difference between the replicas of a domain and of the smallest domain.
    #[schemars(range(min = 1))]
    pub max_skew: i64,
    /// A label of Clusters, `topology.kubernetes.io/region`, `topology.kubernetes.io/zone`, or one of the short names
    /// `cluster`, `region`, `zone`, `provider`.
    #[schemars(length(min = 1))]
    pub topology_key: String,
    /// What to do with a replica that would violate the skew.
    #[serde(default)]
    pub when_unsatisfiable: WhenUnsatisfiable,
    /// If there are fewer eligible domains than this, the minimum counts as 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub min_domains: Option<i64>,
    /// Selects other workloads in the namespace that count. Default: only this workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Keys of pod labels. Of the workloads that `labelSelector` selects, only those count whose pods have the same
    /// values as this workload's. Keys that its pods lack are ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 317)))]
    pub match_label_keys: Vec<String>,
    /// Whether clusters that the placement does not select count as domains. Default Honor: they do not.
    #[serde(default = "honor")]
    pub cluster_affinity_policy: InclusionPolicy,
    /// Whether clusters with untolerated taints count as domains. Default Ignore: they do.
    #[serde(default = "ignore")]
    pub cluster_taints_policy: InclusionPolicy,
    /// Whether a domain without room still counts for the minimum, as in Kubernetes. Default true.
    #[serde(default = "yes")]
    pub count_full_domains: bool,
}

impl TopologySpreadConstraint {
    /// Selects the pods of other workloads that count, given the labels of this workload's pods. `None` = no others.
    #[must_use]
    pub fn counted(&self, pod_labels: &BTreeMap<String, String>) -> Option<LabelSelector> {
        let mut selector = self.label_selector.clone()?;
        let same = self.match_label_keys.iter().filter_map(|key| {
            let values = Some(vec![pod_labels.get(key)?.clone()]);
            Some(LabelSelectorRequirement { key: key.clone(), operator: "In".to_owned(), values })
        });
        let same: Vec<_> = same.collect();
        if !same.is_empty() {
            selector.match_expressions.get_or_insert_default().extend(same);
        }
        Some(selector)
    }
}

fn honor() -> InclusionPolicy {
    InclusionPolicy::Honor
}

fn ignore() -> InclusionPolicy {
    InclusionPolicy::Ignore
}

fn yes() -> bool {
    true
}

/// What to do with a replica that would violate the skew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum WhenUnsatisfiable {
    /// The replica is pending.
    #[default]
    DoNotSchedule,
    /// The replica goes where it violates the skew least.
    ScheduleAnyway,
}

/// Whether clusters that fail a rule count as domains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InclusionPolicy {
    /// Clusters that fail the rule do not count.
    Honor,
    /// All clusters count.
    Ignore,
}

/// How replicas are divided.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.replicaSync) || self.replicaSchedulingType == 'Divided'",
    "message": "replicaSync needs replicaSchedulingType Divided: with Duplicated every cluster has all replicas",
    "fieldPath": ".replicaSync"
}]))]
pub struct ReplicaScheduling {
    /// `Divided` (default here) or `Duplicated`.
    #[serde(default)]
    pub replica_scheduling_type: ReplicaSchedulingType,
    /// For Divided: `Weighted` (default) or `Aggregated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_division_preference: Option<ReplicaDivisionPreference>,
    /// For Weighted: the weights. Absent = equal weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_preference: Option<ClusterPreferences>,
    /// What to do with replicas that fit nowhere. Default PlacePartially.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insufficient_capacity: Option<InsufficientCapacity>,
    /// Minimum and maximum replicas of clusters or groups of clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub bounds: Vec<ReplicaBound>,
    /// Whether static weights give a cluster at most what fits. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub respect_capacity: bool,
    /// For Divided: whether replica counts that members' autoscalers set flow back to the template. It applies to
    /// Deployments with the label `resourcetemplate.atoll.dev/retain-replicas: "true"`. Absent = no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_sync: Option<ReplicaSync>,
}

/// Where the number of replicas of a template comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReplicaSync {
    /// The sum of the members' counts is written to `spec.replicas` of the template, and the shares follow them.
    FromMembers,
}

/// All replicas on every cluster, or divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum ReplicaSchedulingType {
    /// Every cluster gets all replicas.
    Duplicated,
    /// The replicas are divided.
    #[default]
    Divided,
}

/// How to divide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReplicaDivisionPreference {
    /// As few clusters as possible.
    Aggregated,
    /// In proportion to weights.
    Weighted,
}

/// The source of weights.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPreferences {
    /// Static weights. A cluster gets the largest matching weight.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub static_weight_list: Vec<StaticClusterWeight>,
    /// Weights from the clusters' reports. Takes precedence over the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic_weight: Option<DynamicWeight>,
}

/// A static weight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaticClusterWeight {
    /// The clusters that get the weight.
    pub target_cluster: ClusterAffinity,
    /// The weight.
    #[schemars(range(min = 1, max = 2147483647))]
    pub weight: i64,
}

/// A source of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DynamicWeight {
    /// How many replicas fit.
    AvailableReplicas,
}

/// What to do with replicas that fit nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InsufficientCapacity {
    /// Replicas that fit are placed, the others are pending.
    PlacePartially,
    /// Nothing is placed unless all replicas fit.
    Refuse,
}

/// Minimum and maximum replicas of a cluster or group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.min) || !has(self.max) || self.min <= self.max",
    "message": "min must not be above max"
}]))]
pub struct ReplicaBound {
    /// The clusters. The bound applies to the sum of their replicas.
    pub target_cluster: ClusterAffinity,
    /// Minimum number of replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min: Option<i64>,
    /// Maximum number of replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max: Option<i64>,
}

/// A kind of change that may move a placed workload.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum RescheduleOn {
    /// The policy's placement changed.
    PolicyChange,
    /// The number of replicas changed.
    ReplicasChange,
    /// A cluster failed.
    ClusterFailure,
    /// A cluster joined, left or changed its labels.
    ClusterChange,
    /// A preferred cluster, subset or term is available again.
    Recovery,
    /// Replicas stayed unschedulable on their member for `unschedulableAfterSeconds`.
    Unschedulable,
}
