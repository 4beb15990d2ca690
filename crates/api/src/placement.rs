//! `placement`: which clusters may be selected, and how replicas are divided over them.
//!
//! The scheduler defines the exact semantics; ARCHITECTURE.md names the modules.

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a workload may run and how it is divided. The empty placement means all clusters.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.clusterAffinity) && has(self.clusterAffinities))",
    "message": "clusterAffinity and clusterAffinities exclude each other: keep one"
}]))]
pub struct Placement {
    /// Which clusters may be chosen. Absent = all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_affinity: Option<ClusterAffinity>,
    /// Ordered alternatives: the first term that fits is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["affinityName"])
    )]
    pub cluster_affinities: Option<Vec<ClusterAffinityTerm>>,
    /// Taints of clusters that the workload bears.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub cluster_tolerations: Vec<Toleration>,
    /// How many groups of clusters must and may be used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub spread_constraints: Vec<SpreadConstraint>,
    /// How evenly replicas must lie over domains of clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// How replicas are divided. Absent = Duplicated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_scheduling: Option<ReplicaScheduling>,
    /// Which changes may move a placed workload. Default: PolicyChange, ReplicasChange, ClusterFailure; for Duplicated and
    /// for objects without replicas also ClusterChange.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 5))]
    pub reschedule_on: Option<Vec<RescheduleOn>>,
    /// Once placed it stays, whatever fails, until a rebalance is asked for. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sticky: bool,
}

/// A choice of clusters. Everything that is given must hold.
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
    /// Never these.
    #[serde(default, rename = "exclude", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub exclude_clusters: Vec<String>,
}

/// A choice by `provider`, `region` or `zone`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldSelector {
    /// All must hold.
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
    /// How the values are compared.
    pub operator: FieldOperator,
    /// Values; none for Exists and DoesNotExist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub values: Vec<String>,
}

/// A field that selectors know.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum ClusterField {
    /// `spec.provider`.
    Provider,
    /// `spec.region`.
    Region,
    /// `spec.zones`: matches when one of them does; NotIn and DoesNotExist when none does.
    Zone,
}

/// How values are compared.
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
    /// Name, by which the binding says which term is in force.
    #[schemars(length(min = 1, max = 32))]
    pub affinity_name: String,
    /// The choice.
    #[serde(flatten)]
    pub affinity: ClusterAffinity,
    /// Tiers that are added, in order, while the term's own clusters do not hold all replicas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub overflow_affinities: Vec<OverflowAffinity>,
}

/// A tier of clusters for what does not fit into the earlier ones.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverflowAffinity {
    /// Name of the tier.
    #[schemars(length(min = 1, max = 32))]
    pub affinity_name: String,
    /// The choice.
    #[serde(flatten)]
    pub affinity: ClusterAffinity,
}

/// Groups of clusters that must and may be used.
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
    /// At least so many groups get replicas. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_groups: Option<i64>,
    /// At most so many groups are used. Default: no limit.
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
pub struct TopologySpreadConstraint {
    /// Largest allowed difference between a domain's replicas and the smallest domain's.
    #[schemars(range(min = 1))]
    pub max_skew: i64,
    /// A label of Clusters, `topology.kubernetes.io/region`, `topology.kubernetes.io/zone`, or one of the short names
    /// `cluster`, `region`, `zone`, `provider`.
    #[schemars(length(min = 1))]
    pub topology_key: String,
    /// What to do with a replica that would break the skew.
    #[serde(default)]
    pub when_unsatisfiable: WhenUnsatisfiable,
    /// With fewer eligible domains than this the smallest counts as 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub min_domains: Option<i64>,
    /// Which other workloads of the namespace count. Default: only this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Whether clusters that the placement does not select count as domains. Default Honor: they do not.
    #[serde(default = "honor")]
    pub cluster_affinity_policy: InclusionPolicy,
    /// Whether clusters with untolerated taints count as domains. Default Ignore: they do.
    #[serde(default = "ignore")]
    pub cluster_taints_policy: InclusionPolicy,
    /// Whether a domain without room still holds the minimum down, as in Kubernetes. Default true.
    #[serde(default = "yes")]
    pub count_full_domains: bool,
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

/// What to do with a replica that would break the skew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum WhenUnsatisfiable {
    /// It waits.
    #[default]
    DoNotSchedule,
    /// It goes where it breaks the skew least.
    ScheduleAnyway,
}

/// Whether a rule is respected when domains are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InclusionPolicy {
    /// Clusters that fail the rule are no domains.
    Honor,
    /// All clusters count.
    Ignore,
}

/// How replicas are divided.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaScheduling {
    /// `Divided` (default here) or `Duplicated`.
    #[serde(default)]
    pub replica_scheduling_type: ReplicaSchedulingType,
    /// For Divided: `Weighted` (default) or `Aggregated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_division_preference: Option<ReplicaDivisionPreference>,
    /// For Weighted: by which weights. Absent = equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_preference: Option<ClusterPreferences>,
    /// What happens with replicas that fit nowhere. Default PlacePartially.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insufficient_capacity: Option<InsufficientCapacity>,
    /// Least and most replicas of clusters or groups of clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub bounds: Vec<ReplicaBound>,
    /// Static weights give no cluster more than fits. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub respect_capacity: bool,
}

/// One copy everywhere, or parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum ReplicaSchedulingType {
    /// Every cluster gets all replicas.
    Duplicated,
    /// The replicas are divided.
    #[default]
    Divided,
}

/// What division prefers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReplicaDivisionPreference {
    /// As few clusters as possible.
    Aggregated,
    /// In proportion to weights.
    Weighted,
}

/// Where weights come from.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPreferences {
    /// Given weights; a cluster's is the largest that matches it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub static_weight_list: Vec<StaticClusterWeight>,
    /// Weights from what the clusters report. Wins over the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic_weight: Option<DynamicWeight>,
}

/// A given weight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaticClusterWeight {
    /// The clusters that it is for.
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

/// What happens with replicas that fit nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InsufficientCapacity {
    /// What fits is placed, the rest waits.
    PlacePartially,
    /// Nothing is placed until all fit.
    Refuse,
}

/// Least and most replicas of a cluster or group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.min) || !has(self.max) || self.min <= self.max",
    "message": "min must not be above max"
}]))]
pub struct ReplicaBound {
    /// The clusters that it is for; their sum is bounded.
    pub target_cluster: ClusterAffinity,
    /// At least so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min: Option<i64>,
    /// At most so many.
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
    /// A cluster came, went or changed its labels.
    ClusterChange,
    /// Something preferred is back.
    Recovery,
}
