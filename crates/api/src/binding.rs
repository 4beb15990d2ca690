//! `ResourceBinding` and `ClusterResourceBinding`: one user object, the policy that claims it, and its clusters.
//!
//! The spec has everything that later decisions depend on, because a create drops `.status`; the status is a report.

use k8s_openapi::api::core::v1::{NodeSelector, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::placement::Placement;
use crate::policy::{ConflictResolution, Failover, PurgeMode, Suspension};
use crate::quantity::ResourceList;
use crate::shared::Shared;

/// Binds a template to clusters.
#[derive(CustomResource, Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "work.atoll.dev",
    version = "v1alpha1",
    kind = "ResourceBinding",
    plural = "resourcebindings",
    shortname = "rb",
    category = "atoll",
    namespaced,
    status = "ResourceBindingStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Replicas","type":"integer","jsonPath":".spec.replicas"}"#,
    printcolumn = r#"{"name":"Scheduled","type":"string","jsonPath":".status.conditions[?(@.type==\"Scheduled\")].status"}"#,
    printcolumn = r#"{"name":"FullyApplied","type":"string","jsonPath":".status.conditions[?(@.type==\"FullyApplied\")].status"}"#,
    printcolumn = r#"{"name":"Health","type":"string","jsonPath":".status.conditions[?(@.type==\"Healthy\")].reason"}"#,
    printcolumn = r#"{"name":"Ready","type":"integer","jsonPath":".status.summary.ready"}"#,
    printcolumn = r#"{"name":"Trigger","type":"string","jsonPath":".spec.decision.trigger"}"#,
    printcolumn = r#"{"name":"Outcome","type":"string","jsonPath":".spec.decision.outcome","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ResourceBindingSpec {
    /// The template.
    pub resource: ObjectReference,
    /// Replicas that the template asks for. Absent for kinds without replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i64>,
    /// What one replica needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_requirements: Option<ReplicaRequirements>,
    /// The placement in force, copied from the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Shared<Placement>>,
    /// The scheduler's profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    /// Its place among bindings that are ready to be decided. Absent = 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_priority: Option<BindingPriority>,
    /// Where it runs, by the last decision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub clusters: Vec<TargetCluster>,
    /// The last decision, in short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self.term >= oldSelf.term",
        "message": "a decision of an earlier leader's term is refused"
    }]))]
    pub decision: Option<DecisionRecord>,
    /// Earlier decisions that history does not hold yet, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 9))]
    pub unrecorded: Vec<UnrecordedDecision>,
    /// Clusters that the binding is leaving.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub graceful_eviction_tasks: Vec<GracefulEvictionTask>,
    /// What the last failover of the application brought along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preserved_state: Option<PreservedState>,
    /// When a rebalance was asked for last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reschedule_triggered_at: Option<Time>,
    /// What is held back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspension: Option<Suspension>,
    /// How work leaves a failed cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover: Option<Failover>,
    /// What to do with an object that exists on a member and is not Atoll's.
    #[serde(default)]
    pub conflict_resolution: ConflictResolution,
    /// Whether members keep the objects when the binding goes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preserve_resources_on_deletion: bool,
}

crate::twin::cluster_scoped_twin!(
    /// Binds a cluster-scoped template to clusters.
    ClusterResourceBinding of ResourceBinding { ResourceBindingSpec, ResourceBindingStatus },
    "clusterresourcebindings", "crb"
);

/// The priority of scheduling, as it was resolved when the policy was applied last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BindingPriority {
    /// Greater is decided first.
    #[serde(default)]
    pub priority: i32,
}

/// The template of a binding.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// For example `apps/v1`.
    pub api_version: String,
    /// For example `Deployment`.
    pub kind: String,
    /// Absent for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// uid: a template that was recreated is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

impl ObjectReference {
    /// The API group: empty for core.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// The version within the group.
    #[must_use]
    pub fn version(&self) -> &str {
        self.api_version.split_once('/').map_or(&self.api_version, |(_, version)| version)
    }
}

/// What one replica needs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaRequirements {
    /// What its node must be like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_claim: Option<NodeClaim>,
    /// Requests, as kube-scheduler sums them.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub resource_request: ResourceList,
    /// Priority class of its pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
}

/// What the node of a replica must be like.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaim {
    /// Required node affinity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard_node_affinity: Option<NodeSelector>,
    /// Labels that the node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Node taints that the pods bear.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Topology keys over which replicas keep apart from each other (required anti-affinity against themselves).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub self_anti_affinity: Vec<String>,
}

/// A cluster and its share.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetCluster {
    /// Name of the Cluster.
    pub name: String,
    /// Replicas. 0 for kinds without replicas.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub replicas: i64,
}

/// Why a decision was made. The first that holds and is allowed names it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Trigger {
    /// Nothing was ever placed.
    First,
    /// Somebody asked for a rebalance.
    Rebalance,
    /// The placement in force changed.
    Reconcile,
    /// The number of replicas changed.
    Scale,
    /// A target failed.
    Failover,
    /// It was unhealthy on a target for longer than its policy tolerates.
    ApplicationFailure,
    /// The set of clusters that should have a copy changed.
    ClusterChange,
    /// Replicas could not run where they were put.
    Overflow,
    /// Something preferred is back.
    Recover,
    /// Replicas were waiting and an event they waited for came.
    Retry,
    /// An eviction task ended.
    EvictionDone,
    /// The binding was withdrawn.
    Withdrawn,
    /// None of these: nothing is written.
    Avoid,
}

/// What the arithmetic of a decision may touch.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Mode {
    /// What runs is the start.
    Steady,
    /// From zero, because the policy changed.
    Replan,
    /// From zero, because somebody asked.
    Fresh,
}

/// How a decision ended.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Outcome {
    /// Everything has a place.
    Placed,
    /// Some replicas wait.
    Partial,
    /// Clusters fit, but no replica does.
    Unschedulable,
    /// No cluster passes the filters.
    NoFit,
    /// More clusters failed than can replace them.
    FailoverInfeasible,
    /// The arithmetic gave what was there.
    Unchanged,
    /// Policy or workload contradict themselves.
    Invalid,
}

impl Outcome {
    /// The outcome of a decision that moves nothing and follows one with this outcome: earlier problems remain.
    #[must_use]
    pub fn held(self) -> Self {
        match self {
            Self::Placed | Self::Unchanged => Self::Unchanged,
            wrong => wrong,
        }
    }
}

macro_rules! display_as_debug {
    ($($type:ty),*) => {$(
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(&format!("{self:?}"))
            }
        }
    )*};
}
display_as_debug!(Trigger, Mode, Outcome);

/// A decision in short (below 4 KiB): what later decisions and history need of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecisionRecord {
    /// 128 bits in hex: SHA-256 over template uid, parent id and decision.
    pub id: String,
    /// id of the decision before, of this binding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Why.
    pub trigger: Trigger,
    /// What could move.
    pub mode: Mode,
    /// How it ended.
    pub outcome: Outcome,
    /// Replicas that were asked for.
    #[serde(default)]
    pub desired: i64,
    /// Replicas without a place, by reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub pending: Vec<PendingReplicas>,
    /// The affinity term in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity_name: Option<String>,
    /// Why it ended so, where nothing moved and no pending group says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub reason: Option<String>,
    /// When.
    pub at: Time,
    /// Term of the leader that made it.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub term: i64,
}

/// Replicas without a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingReplicas {
    /// How many.
    #[schemars(range(min = 0))]
    pub replicas: i64,
    /// Why, for people.
    #[schemars(length(max = 256))]
    pub reason: String,
}

/// A decision that history does not hold yet, with what it placed; or a gap of several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnrecordedDecision {
    /// The decision; of a gap, its last.
    pub decision: DecisionRecord,
    /// Shares that it set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<TargetCluster>,
    /// Decisions that this entry stands for. 1 = itself only.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub count: i64,
    /// Of a gap, id of its first decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

fn one() -> i64 {
    1
}

impl DecisionRecord {
    /// Number of pending replicas.
    #[must_use]
    pub fn pending_replicas(&self) -> i64 {
        self.pending.iter().fold(0, |sum, group| sum.saturating_add(group.replicas))
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(value: &i64) -> bool {
    *value == 0
}

/// A cluster that the binding is leaving.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GracefulEvictionTask {
    /// The cluster.
    pub from_cluster: String,
    /// Replicas that leave it.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub replicas: i64,
    /// How many of them had no place elsewhere when they left. While as many as that wait for one, the copy stays.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub unplaced: i64,
    /// Trigger of the decision that made the task.
    pub reason: Trigger,
    /// Whether the member keeps running them until their replacements are healthy.
    #[serde(default)]
    pub keep: bool,
    /// How the copy goes.
    #[serde(default)]
    pub purge_mode: PurgeMode,
    /// When the task was made.
    pub creation_timestamp: Time,
    /// When the copy goes in any case. Absent = never by time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
}

impl GracefulEvictionTask {
    /// Whether some pending replicas run only in the kept copy: they left without a place elsewhere and are still among
    /// the `pending` replicas of the last decision. Replicas that were pending before do not count, because no copy ran
    /// them.
    #[must_use]
    pub fn stands_in(&self, pending: i64) -> bool {
        self.standing_in(pending) > 0
    }

    fn standing_in(&self, pending: i64) -> i64 {
        if self.keep { self.unplaced.min(pending).min(self.replicas) } else { 0 }
    }

    /// What remains of the task once its replacements are healthy or its deadline has passed: the replicas that still
    /// have no place elsewhere, if any.
    #[must_use]
    pub fn remainder(&self, pending: i64) -> Option<Self> {
        let replicas = self.standing_in(pending);
        (replicas > 0).then(|| Self { replicas, unplaced: replicas, ..self.clone() })
    }
}

/// What a workload that failed on a cluster left for its copies elsewhere (`statePreservation`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreservedState {
    /// The cluster that it failed on.
    pub from_cluster: String,
    /// The clusters that took its replicas: the object there has the labels.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub clusters: Vec<String>,
    /// Labels of the object on those clusters.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// What is known of a binding on its members. A report, never an input of a decision.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceBindingStatus {
    /// `Scheduled`, `FullyApplied`, `Healthy`, `Claimed`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// When the last decision was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scheduled_time: Option<Time>,
    /// The affinity term in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_observing_affinity_name: Option<String>,
    /// Clusters, counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<BindingSummary>,
    /// What each member reports; at most 100, unhealthy first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 100),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["clusterName"])
    )]
    pub aggregated_status: Vec<AggregatedStatusItem>,
    /// Whether `aggregatedStatus` leaves members out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// Clusters of a binding, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BindingSummary {
    /// Clusters that applied what the last decision gave them.
    #[serde(default)]
    pub applied: i64,
    /// Replicas that are ready.
    #[serde(default)]
    pub ready: i64,
    /// Clusters that report it unhealthy.
    #[serde(default)]
    pub unhealthy: i64,
    /// Clusters of which nothing is known now.
    #[serde(default)]
    pub unknown: i64,
}

/// What a member reports.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AggregatedStatusItem {
    /// The member.
    pub cluster_name: String,
    /// Whether it applied what the last decision gave it.
    #[serde(default)]
    pub applied: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_message: Option<String>,
    /// How the object is there.
    #[serde(default)]
    pub health: ResourceHealth,
    /// Why it is not healthy there, for example `ImagePullBackOff`. Absent where it is healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_reason: Option<String>,
    /// What is wrong, for people. Absent while it is only being rolled out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_message: Option<String>,
    /// Since when it is unhealthy there without a break. The clock of `failover.application`: it survives the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy_since: Option<Time>,
    /// Since when it is healthy there without a break, where a leader saw it become so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy_since: Option<Time>,
    /// Replicas that exist there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    /// Replicas that are ready there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i64>,
    /// Replicas that found no node there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unschedulable_replicas: Option<i64>,
    /// The object's status there, of up to 20 members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("type" = "object", "x-kubernetes-preserve-unknown-fields" = true))]
    pub status: Option<serde_json::Value>,
}

/// How an object is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema,
)]
pub enum ResourceHealth {
    /// It does what it should.
    Healthy,
    /// It does not.
    Unhealthy,
    /// Nobody can say.
    #[default]
    Unknown,
}
