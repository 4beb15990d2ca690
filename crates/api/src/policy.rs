//! `PropagationPolicy` and `ClusterPropagationPolicy`: which objects are propagated to members, and how.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::placement::Placement;
use crate::shared::Shared;

/// Selects objects of its namespace and sets their placement.
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
    /// The objects to select. An object that matches any entry is selected.
    #[schemars(length(min = 1, max = 64))]
    pub resource_selectors: Vec<ResourceSelector>,
    /// ClusterPropagationPolicy only: the namespaces whose objects are selected, by their labels. Absent = all. With it, a
    /// Namespace is selected by its own labels, and no other object without a namespace is selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// The clusters for the objects. Empty = all clusters.
    #[serde(default)]
    pub placement: Shared<Placement>,
    /// If several policies select an object, the highest priority wins. Default 0.
    #[serde(default)]
    pub priority: i32,
    /// Whether this policy may take objects from a policy that already claims them. Default Never.
    #[serde(default)]
    pub preemption: Preemption,
    /// What to do if an object exists on a member and is not managed by Atoll. Default Abort.
    #[serde(default)]
    pub conflict_resolution: ConflictResolution,
    /// Whether members keep the objects when the template or the binding is deleted. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preserve_resources_on_deletion: bool,
    /// Whether the objects that a template refers to (ConfigMaps, Secrets, PersistentVolumeClaims, ServiceAccounts,
    /// Services) go to its clusters, too. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub propagate_deps: bool,
    /// When a change of this policy takes effect on an object that exists. Absent: at once. Lazy: with the next change of
    /// the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation_preference: Option<ActivationPreference>,
    /// Names of override policies without which no object is decided for the first time: OverridePolicies of the
    /// namespace, or for a ClusterPropagationPolicy ClusterOverridePolicies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 253)))]
    pub dependent_overrides: Vec<String>,
    /// What is suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspension: Option<Suspension>,
    /// How work leaves a failed cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover: Option<Failover>,
    /// Scheduler profile: `default`, `karmada`, or a profile of the configuration file. Default `default`.
    #[serde(default = "default_profile")]
    pub scheduler_name: String,
    /// Order of decisions if more bindings are ready than can be decided at once. Absent = 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_priority: Option<SchedulePriority>,
}

/// When a policy takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ActivationPreference {
    /// With the next change of the object.
    Lazy,
}

/// The source of the scheduling priority. It orders the scheduler's queue. There is no preemption, as in Karmada.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulePriority {
    /// KubePriorityClass: a PriorityClass (scheduling.k8s.io/v1) of the hub. Karmada declares other sources but does
    /// not implement them.
    #[schemars(schema_with = "supported_source")]
    pub priority_class_source: PriorityClassSource,
    /// Name of the class.
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: String,
}

fn supported_source(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": [PriorityClassSource::KubePriorityClass]})
}

/// The source of a priority class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PriorityClassSource {
    /// The PriorityClasses of the hub.
    KubePriorityClass,
    /// The pod template. Declared by Karmada, but rejected by both Karmada and Atoll.
    PodPriorityClass,
    /// The federation's own classes. Declared by Karmada, but rejected by both Karmada and Atoll.
    FederatedPriorityClass,
}

/// The profile for policies that name none.
pub const DEFAULT_PROFILE: &str = "default";

/// Serde default of `schedulerName`.
pub(crate) fn default_profile() -> String {
    DEFAULT_PROFILE.to_owned()
}

crate::twin::cluster_scoped_twin!(
    /// Selects cluster-scoped objects and objects of any namespace, and sets their placement.
    ClusterPropagationPolicy of PropagationPolicy { PropagationPolicySpec, PropagationPolicyStatus },
    "clusterpropagationpolicies", "cpp"
);

/// Selects objects. All given fields must match.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSelector {
    /// For example `apps/v1`; `*` with kind `*`.
    #[schemars(length(min = 1))]
    pub api_version: String,
    /// For example `Deployment`. In a PropagationPolicy `*` selects every kind of the namespace that can be propagated, but
    /// no Secrets, and no objects that have an owner or that every cluster creates itself.
    #[schemars(length(min = 1))]
    pub kind: String,
    /// Namespace. A PropagationPolicy selects only in its own namespace. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Labels. Ignored if a name is given, as in Karmada.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
}

/// Whether a policy may take objects from another policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum Preemption {
    /// Yes, from a policy of lower priority.
    Always,
    /// No.
    #[default]
    Never,
}

/// What to do if an object exists on a member and is not managed by Atoll.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum ConflictResolution {
    /// Leave the object unchanged and report a conflict.
    #[default]
    Abort,
    /// Take the object over.
    Overwrite,
}

/// What is suspended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Suspension {
    /// Whether to send nothing to any member.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dispatching: bool,
    /// Members to which nothing is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatching_on_clusters: Option<SuspendClusters>,
    /// Whether to make no decisions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scheduling: bool,
}

/// Members to which nothing is sent.
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
    /// For failed clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterFailover>,
    /// For workloads that are unhealthy on a healthy cluster. Absent = they stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<ApplicationFailover>,
}

/// When a workload leaves a cluster on which it is unhealthy, and how.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationFailover {
    /// When an application counts as failed.
    #[serde(default)]
    pub decision_conditions: DecisionConditions,
    /// When the old copy is removed. Default Gracefully.
    #[serde(default)]
    pub purge_mode: PurgeMode,
    /// How long the old copy is kept while the new one is not healthy, in seconds. Default 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub grace_period_seconds: Option<i64>,
    /// Parts of the old copy's status that the new copy receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_preservation: Option<StatePreservation>,
}

/// When an application counts as failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecisionConditions {
    /// How long a workload may be unhealthy on a cluster without interruption, in seconds. Default 300.
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

/// Values of a workload's status that the object on its next cluster gets as labels.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatePreservation {
    /// One rule per label.
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
    /// Path of the value in the object's status on the old cluster, for example `{.jobStatus.jobID}`: fields and
    /// indices.
    #[schemars(length(min = 1, max = 256))]
    pub json_path: String,
}

/// How work leaves a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterFailover {
    /// When the old copy is removed. Default Gracefully.
    #[serde(default)]
    pub purge_mode: PurgeMode,
    /// How long the old copy is kept while the new one is not healthy, in seconds. Default 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub grace_period_seconds: Option<i64>,
    /// Values of the status on the cluster that the workload leaves, for the object on the clusters that take over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_preservation: Option<StatePreservation>,
}

/// When to remove the copy on a cluster that a workload leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum PurgeMode {
    /// After the new copies are healthy, or after the grace period.
    #[default]
    Gracefully,
    /// Before the new copies start.
    Directly,
    /// Atoll never removes it.
    Never,
}

/// Status of a policy, written by the controller.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PropagationPolicyStatus {
    /// Generation of the spec that this status is based on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Objects that the selectors match.
    #[serde(default)]
    pub matched: i64,
    /// Objects that this policy claims. Stronger policies claim the others.
    #[serde(default)]
    pub claimed: i64,
    /// Claimed objects with pending replicas.
    #[serde(default)]
    pub failing: i64,
    /// The policies that claim objects matched by this one, as `namespace/name` or `name`; at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shadowed_by: Vec<String>,
}
