//! `PropagationPolicy` and `ClusterPropagationPolicy`: which objects are propagated to members, and how.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::placement::Placement;
use crate::shared::Shared;

/// Selects objects of its namespace and says where they go.
#[derive(CustomResource, Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "policy.atoll.dev",
    version = "v1alpha1",
    kind = "PropagationPolicy",
    plural = "propagationpolicies",
    shortname = "pp",
    category = "atoll",
    namespaced,
    status = "PropagationPolicyStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Conflict-Resolution","type":"string","jsonPath":".spec.conflictResolution","priority":1}"#,
    printcolumn = r#"{"name":"Priority","type":"integer","jsonPath":".spec.priority"}"#,
    printcolumn = r#"{"name":"Accepted","type":"string","jsonPath":".status.conditions[?(@.type==\"Accepted\")].status"}"#,
    printcolumn = r#"{"name":"Claimed","type":"integer","jsonPath":".status.claimed"}"#,
    printcolumn = r#"{"name":"Failing","type":"integer","jsonPath":".status.failing"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct PropagationPolicySpec {
    /// Which objects. One that matches any of these is selected.
    #[schemars(length(min = 1, max = 64))]
    pub resource_selectors: Vec<ResourceSelector>,
    /// Where they go. Empty = to all clusters.
    #[serde(default)]
    pub placement: Shared<Placement>,
    /// Among several policies that select an object the highest wins. Default 0.
    #[serde(default)]
    pub priority: i32,
    /// Whether this policy takes objects from a policy that has them already. Default Never.
    #[serde(default)]
    pub preemption: Preemption,
    /// What to do with an object that exists on a member and is not Atoll's. Default Abort.
    #[serde(default)]
    pub conflict_resolution: ConflictResolution,
    /// Whether members keep the objects when the template or the binding goes. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preserve_resources_on_deletion: bool,
    /// What is held back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspension: Option<Suspension>,
    /// How work leaves a failed cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover: Option<Failover>,
    /// Profile of the scheduler: `default` or `karmada`, or one of its configuration file. Default `default`.
    #[serde(default = "default_profile")]
    pub scheduler_name: String,
    /// Who is decided first when more is ready than can be decided at once. Absent = 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_priority: Option<SchedulePriority>,
}

/// Where the priority of scheduling comes from. It orders the scheduler's queue; nothing is preempted, as in Karmada.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulePriority {
    /// KubePriorityClass: a PriorityClass (scheduling.k8s.io/v1) of the hub. Karmada declares others that nobody implements.
    #[schemars(schema_with = "supported_source")]
    pub priority_class_source: PriorityClassSource,
    /// Name of the class.
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: String,
}

fn supported_source(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": [PriorityClassSource::KubePriorityClass]})
}

/// Where a priority class is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PriorityClassSource {
    /// Among the PriorityClasses of the hub.
    KubePriorityClass,
    /// In the pod template. Declared by Karmada and refused, there and here.
    PodPriorityClass,
    /// Among the federation's own classes. Declared by Karmada and refused, there and here.
    FederatedPriorityClass,
}

/// The profile for policies that name none.
pub const DEFAULT_PROFILE: &str = "default";

/// Serde default of `schedulerName`.
pub(crate) fn default_profile() -> String {
    DEFAULT_PROFILE.to_owned()
}

crate::twin::cluster_scoped_twin!(
    /// Selects objects of any namespace, and cluster-scoped ones, and says where they go.
    ClusterPropagationPolicy of PropagationPolicy { PropagationPolicySpec, PropagationPolicyStatus },
    "clusterpropagationpolicies", "cpp"
);

/// One choice of objects. Everything that is given must hold.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSelector {
    /// For example `apps/v1`.
    #[schemars(length(min = 1))]
    pub api_version: String,
    /// For example `Deployment`.
    #[schemars(length(min = 1))]
    pub kind: String,
    /// Namespace. A PropagationPolicy selects in its own only. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Labels. Ignored where a name is given, as in Karmada.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
}

/// Whether a policy takes objects from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum Preemption {
    /// Yes, from one of lower priority.
    Always,
    /// No.
    #[default]
    Never,
}

/// What to do with an object that exists on a member and is not Atoll's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum ConflictResolution {
    /// Leave it alone and report a conflict.
    #[default]
    Abort,
    /// Take it over.
    Overwrite,
}

/// What is held back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Suspension {
    /// Nothing is sent to any member.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dispatching: bool,
    /// Nothing is sent to these members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatching_on_clusters: Option<SuspendClusters>,
    /// No decision is made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scheduling: bool,
}

/// Members that are held back from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SuspendClusters {
    /// Their names.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub cluster_names: Vec<String>,
}

/// How work leaves a failed cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Failover {
    /// For clusters that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterFailover>,
    /// For workloads that are unhealthy on a cluster that is well. Absent = they stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<ApplicationFailover>,
}

/// When a workload leaves a cluster on which it is unhealthy, and how.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationFailover {
    /// What counts as failed.
    #[serde(default)]
    pub decision_conditions: DecisionConditions,
    /// When the old copy goes. Default Gracefully.
    #[serde(default)]
    pub purge_mode: PurgeMode,
    /// How long the old copy is kept while the new one is not healthy, in seconds. Default 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub grace_period_seconds: Option<i64>,
    /// What of the old copy's status the new one is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_preservation: Option<StatePreservation>,
}

/// What counts as a failed application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecisionConditions {
    /// How long a workload may be unhealthy on a cluster without a break, in seconds. Default 300.
    #[serde(default = "default_toleration")]
    #[schemars(range(min = 0))]
    pub toleration_seconds: i64,
}

impl Default for DecisionConditions {
    fn default() -> Self {
        Self { toleration_seconds: default_toleration() }
    }
}

/// Karmada's default for the same field.
fn default_toleration() -> i64 {
    300
}

/// Values of a workload's status that follow it to its next cluster, as labels of the object there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatePreservation {
    /// One label each.
    #[schemars(length(min = 1, max = 16))]
    pub rules: Vec<StatePreservationRule>,
}

/// One value of the status that becomes a label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatePreservationRule {
    /// Key of the label.
    #[schemars(length(min = 1, max = 317))]
    pub alias_label_name: String,
    /// Where the value is in the object's status on the old cluster, for example `{.jobStatus.jobID}`: fields and
    /// indices.
    #[schemars(length(min = 1, max = 256))]
    pub json_path: String,
}

/// How work leaves a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterFailover {
    /// When the old copy goes. Default Gracefully.
    #[serde(default)]
    pub purge_mode: PurgeMode,
    /// How long the old copy is kept while the new one is not healthy, in seconds. Default 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub grace_period_seconds: Option<i64>,
}

/// When the copy on a cluster that work leaves goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum PurgeMode {
    /// After the new copies are healthy, or the grace period.
    #[default]
    Gracefully,
    /// Before the new copies start.
    Directly,
    /// Not by Atoll.
    Never,
}

/// What the controller makes of a policy.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PropagationPolicyStatus {
    /// Generation that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Objects that the selectors match.
    #[serde(default)]
    pub matched: i64,
    /// Objects that this policy claims; the others are claimed by a stronger one.
    #[serde(default)]
    pub claimed: i64,
    /// Claimed objects that have replicas without a place.
    #[serde(default)]
    pub failing: i64,
    /// The policies that claim what this one matches, as `namespace/name` or `name`; at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shadowed_by: Vec<String>,
}
