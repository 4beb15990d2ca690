//! `ResourceBinding` and `ClusterResourceBinding`: one user object, the policy that claims it, and its clusters.
//!
//! The spec has everything that later decisions depend on, because a create drops `.status`; the status is a report.

use k8s_openapi::api::core::v1::{NodeSelector, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;

pub use crate::binding_clusters::{FullCluster, NamedCluster, ResourceHealth};
pub use crate::binding_status::{
    AggregatedStatusItem, BindingSummary, ReadStatus, ResourceBindingStatus,
};
use crate::change_guard::HeldChange;
use crate::placement::Placement;
use crate::policy::{ConflictResolution, Failover, PurgeMode, Suspension};
use crate::quantity::ResourceList;
use crate::rebalancer::RebalanceMode;
use crate::shared::Shared;
use crate::{DecisionId, share_equal};

pub use crate::preemption::Preemption;

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
    /// The template of the binding.
    pub resource: ObjectReference,
    /// Desired replicas. Absent for kinds without replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i64>,
    /// Requirements of one replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_requirements: Option<Shared<ReplicaRequirements>>,
    /// The parts of an object with several pod templates. They are placed together, as one set; `replicas` is absent then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub components: Vec<Component>,
    /// The placement in force, copied from the policy: see `kubectl explain propagationpolicy.spec.placement`.
    // An API server checks all fields of an object with each write, and most fields of a binding are in its placement. The
    // controller copies it from a policy, where it was checked, and checks any other placement itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        with = "Option<serde_json::Value>",
        extend("type" = "object", "x-kubernetes-preserve-unknown-fields" = true)
    )]
    pub placement: Option<Shared<Placement>>,
    /// The scheduler's profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<Box<str>>,
    /// Priority among bindings that are ready for a decision. Absent = 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_priority: Option<BindingPriority>,
    /// Clusters and replicas of the last decision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub clusters: Vec<TargetCluster>,
    /// Summary of the last decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = refuse_earlier_terms)]
    pub decision: Option<DecisionRecord>,
    /// Earlier decisions that are not in history yet, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 9))]
    pub unrecorded: Vec<UnrecordedDecision>,
    /// Clusters that the binding is leaving.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub graceful_eviction_tasks: Vec<GracefulEvictionTask>,
    /// State preserved by the last failover of the application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preserved_state: Option<Box<PreservedState>>,
    /// Room that decisions took from bindings of lower priority, until those bindings have been decided again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub preempts: Vec<Preemption>,
    /// ids of the decisions of other bindings that took room from this one, and that it has followed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 64)))]
    pub preempted_by: Vec<String>,
    /// A change by people that a ChangeGuard has not released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Box<HeldChange>>,
    /// When a rebalance was last requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reschedule_triggered_at: Option<Box<Time>>,
    /// What that rebalance may move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reschedule_mode: Option<RebalanceMode>,
    /// What is suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspension: Option<Box<Suspension>>,
    /// How work leaves a failed cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover: Option<Shared<Failover>>,
    /// Whether the objects that the template refers to go to its clusters, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub propagate_deps: bool,
    /// Bindings whose templates refer to this one, with the clusters on which they need it: it is there in addition to
    /// `clusters`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2000))]
    pub required_by: Vec<RequiringBinding>,
    /// What to do if the object exists on a member and is not managed by Atoll.
    #[serde(default)]
    pub conflict_resolution: ConflictResolution,
    /// Whether members keep the objects when the binding is deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preserve_resources_on_deletion: bool,
}

crate::twin::cluster_scoped_twin!(
    /// Binds a cluster-scoped template to clusters.
    ClusterResourceBinding of ResourceBinding { ResourceBindingSpec, ResourceBindingStatus },
    "clusterresourcebindings", "crb"
);

/// A binding that needs another binding's object.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct RequiringBinding {
    /// Its namespace. Absent for ClusterResourceBindings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// The clusters on which its object runs, or is not confirmed to be gone.
    #[serde(default)]
    pub clusters: Vec<NamedCluster>,
}

/// The scheduling priority, resolved when the policy was last applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BindingPriority {
    /// Higher values are decided first.
    #[serde(default)]
    pub priority: i32,
}

/// Refuses late decisions of a replaced leader. The rule is on the term alone: API servers convert for CEL what a rule is on.
fn refuse_earlier_terms(decision: &mut Schema) {
    if let Some(term) = decision.pointer_mut("/properties/term") {
        let message = "a decision of an earlier leader's term is refused";
        term["x-kubernetes-validations"] = json!([{"rule": "self >= oldSelf", "message": message}]);
    }
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
    /// uid. A recreated template has another uid.
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

/// One part of an object with several pod templates.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Component {
    /// Its name, for example `taskmanager`.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Its replicas.
    #[schemars(range(min = 0))]
    pub replicas: i64,
    /// Requirements of one replica; absent if nothing is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_requirements: Option<ReplicaRequirements>,
}

/// Requirements of one replica.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaRequirements {
    /// Requirements on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_claim: Option<NodeClaim>,
    /// Resource requests, summed as in kube-scheduler.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub resource_request: ResourceList,
    /// Priority class of its pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
}

/// Requirements of a replica on its node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaim {
    /// Required node affinity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard_node_affinity: Option<NodeSelector>,
    /// Labels that the node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Node taints that the pods tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Topology keys whose domains hold at most one replica (required anti-affinity between the replicas).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub self_anti_affinity: Vec<String>,
}

/// A cluster and its replicas.
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

/// Why a decision was made: the first trigger that holds and is allowed.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Trigger {
    /// The object was never placed.
    First,
    /// A user requested a rebalance.
    Rebalance,
    /// The placement in force changed.
    Reconcile,
    /// The number of replicas changed.
    Scale,
    /// A target failed.
    Failover,
    /// The application was unhealthy on a target for longer than its policy tolerates.
    ApplicationFailure,
    /// The set of clusters that should have a copy changed.
    ClusterChange,
    /// Replicas were unschedulable on their member: they move to the next subset of an Adaptive WorkloadSpread.
    Overflow,
    /// Replicas stayed unschedulable on their member for `unschedulableAfterSeconds`.
    Unschedulable,
    /// A preferred cluster, subset or term is available again.
    Recover,
    /// Replicas were pending, and an event that they waited for occurred.
    Retry,
    /// An eviction task ended.
    EvictionDone,
    /// The binding was deleted.
    Withdrawn,
    /// No trigger: nothing is written.
    Avoid,
    /// A binding of higher priority took room of this one. Ids of decisions contain the numbers of these variants, so new
    /// ones come last.
    Preempted,
    /// A target is on a cluster that its namespace may not use, by ClusterSets.
    OutsideClusterSet,
}

/// Which replicas a decision may move.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Mode {
    /// Running replicas stay, unless the trigger moves them.
    Steady,
    /// Division from zero, because the policy changed.
    Replan,
    /// Division from zero, because a user requested it.
    Fresh,
}

/// The outcome of a decision.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Outcome {
    /// All replicas are placed.
    Placed,
    /// Some replicas are pending.
    Partial,
    /// Clusters pass the filters, but no replica can be placed.
    Unschedulable,
    /// No cluster passes the filters.
    NoFit,
    /// More targets failed than can be replaced.
    FailoverInfeasible,
    /// The result equals the previous placement.
    Unchanged,
    /// The policy or the workload is invalid.
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

/// Summary of a decision (below 4 KiB), for later decisions and for history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecisionRecord {
    /// 128 bits in hex of a SHA-256 over the template's uid, the parent id and the decision.
    #[schemars(with = "String")]
    pub id: DecisionId,
    /// id of the binding's previous decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub parent: Option<DecisionId>,
    /// Why the decision was made.
    pub trigger: Trigger,
    /// Which replicas could move.
    pub mode: Mode,
    /// The outcome.
    pub outcome: Outcome,
    /// Desired replicas.
    #[serde(default)]
    pub desired: i64,
    /// Replicas that are not placed, by reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub pending: Vec<PendingReplicas>,
    /// The affinity term in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity_name: Option<String>,
    /// Why nothing moved, if no pending group has the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub reason: Option<String>,
    /// Clusters that count as full for this binding, because its replicas stayed unschedulable there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub full_clusters: Vec<FullCluster>,
    /// When the decision was made.
    pub at: Time,
    /// Term of the leader that made the decision.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub term: i64,
}

impl DecisionRecord {
    /// Takes over the ids of another version where they are equal, so that each text is kept once.
    pub fn share(&mut self, other: &Self) {
        share_equal(&mut self.id, &other.id);
        share_equal(&mut self.parent, &other.parent);
    }
}

/// Replicas that are not placed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingReplicas {
    /// Number of replicas.
    #[schemars(range(min = 0))]
    pub replicas: i64,
    /// The reason, for people.
    #[schemars(length(max = 256))]
    pub reason: String,
}

/// A decision that is not in history yet, with its shares; or a gap that stands for several decisions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnrecordedDecision {
    /// The decision; for a gap, the last one.
    pub decision: DecisionRecord,
    /// Shares of the decision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<TargetCluster>,
    /// Number of decisions that this entry stands for. 1 = only itself.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub count: i64,
    /// For a gap: id of its first decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub from: Option<DecisionId>,
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
    /// How many of the replicas had no place elsewhere when they left. While that many are pending, the copy stays.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub unplaced: i64,
    /// Trigger of the decision that created the task.
    pub reason: Trigger,
    /// Whether the member keeps running the replicas until their replacements are healthy.
    #[serde(default)]
    pub keep: bool,
    /// When the copy is removed.
    #[serde(default)]
    pub purge_mode: PurgeMode,
    /// When the task was created.
    pub creation_timestamp: Time,
    /// When the copy is removed at the latest. Absent = no time limit.
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

/// State of a workload that failed on a cluster, for its copies elsewhere (`statePreservation`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreservedState {
    /// The cluster on which it failed.
    pub from_cluster: String,
    /// The clusters that took its replicas. The object there gets the labels.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub clusters: Vec<String>,
    /// Labels of the object on those clusters.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}
