//! `ChangeGuard`: how much the changes of people may move at once, and when they may move anything.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most plans that `status.held` lists. Further ones wait as well, and follow when these are gone.
pub const MAX_HELD: usize = 20;
/// Most workloads that `status.held[].changes` lists.
pub const MAX_CHANGES: usize = 20;
/// Most entries of `status.released`.
pub const MAX_RELEASED: usize = 128;

/// Limits what changes by people move: an edit of a policy, of the labels or taints of a Cluster, of a WorkloadPolicy or
/// WorkloadSpread, of the scheduler's profiles, or a rebalance. All decisions that follow from one change are a plan. If
/// a plan exceeds the guard, all of it waits: the workloads stay where they are until the plan fits, or somebody approves
/// it (`atoll approve`). First placements, deletions, scaling, failover, cordons, drains and `NoExecute` taints never wait.
#[derive(CustomResource, Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "policy.atoll.dev",
    version = "v1alpha1",
    kind = "ChangeGuard",
    plural = "changeguards",
    shortname = "cg",
    category = "atoll",
    status = "ChangeGuardStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn = r#"{"name":"Held","type":"integer","jsonPath":".status.heldWorkloads"}"#,
    printcolumn = r#"{"name":"Moves","type":"integer","jsonPath":".status.heldReplicas"}"#,
    printcolumn = r#"{"name":"Plan","type":"string","jsonPath":".status.held[0].plan"}"#,
    printcolumn = r#"{"name":"Frozen-Until","type":"string","jsonPath":".status.frozenUntil"}"#,
    printcolumn = r#"{"name":"Accepted","type":"string","jsonPath":".status.conditions[?(@.type==\"Accepted\")].status"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ChangeGuardSpec {
    /// The policies whose workloads are guarded. Absent = all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policies: Option<GuardedPolicies>,
    /// The namespaces whose workloads are guarded, by their labels; label `kubernetes.io/metadata.name` is the name.
    /// Absent = all, and objects without a namespace. With `policies`, both must select a workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Most replicas that may move within the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_moved_replicas: Option<i64>,
    /// The same as a percentage of all replicas that are guarded, rounded down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub max_moved_percent: Option<i64>,
    /// Most workloads of which something may move within the window. It also counts kinds without replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_workloads: Option<i64>,
    /// How long a move counts: hours, minutes and seconds, for example `1h` or `1h30m`; at most 168h.
    #[serde(default = "hour")]
    #[schemars(length(min = 1, max = 32))]
    pub window: String,
    /// Times at which nothing moves without an approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub freeze: Vec<Freeze>,
}

fn hour() -> String {
    "1h".to_owned()
}

/// Selects policies: those that are named, and those with the labels.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuardedPolicies {
    /// `NAME` is a ClusterPropagationPolicy, `NAMESPACE/NAME` a PropagationPolicy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 320)))]
    pub names: Vec<String>,
    /// By the labels of the policies. An empty selector selects all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// A time that comes again and again, in which nothing moves without an approval.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Freeze {
    /// When it begins: a schedule as of a CronJob, for example `0 18 * * 5`.
    #[schemars(length(min = 1, max = 256))]
    pub schedule: String,
    /// Time zone of the schedule, for example `Europe/Berlin`. Absent = UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub time_zone: Option<String>,
    /// How long it lasts: hours, minutes and seconds, for example `62h`; at most 744h.
    #[schemars(length(min = 1, max = 32))]
    pub duration: String,
}

/// Status of a ChangeGuard. `released` is written by whoever releases a plan, the rest by the leader.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangeGuardStatus {
    /// Generation of the spec that this status is based on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted`: whether the spec is valid and limits something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Until when nothing moves without an approval. Absent outside of a freeze.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen_until: Option<Time>,
    /// Replicas that plans of the current window move without an approval.
    #[serde(default)]
    pub moved_replicas: i64,
    /// Workloads of these plans.
    #[serde(default)]
    pub moved_workloads: i64,
    /// Workloads that wait.
    #[serde(default)]
    pub held_workloads: i64,
    /// Replicas that wait to be moved.
    #[serde(default)]
    pub held_replicas: i64,
    /// The plans that wait, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub held: Vec<HeldPlan>,
    /// The plans that were released: they fitted, or somebody approved them. An entry is removed when nothing needs it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub released: Vec<ReleasedPlan>,
}

/// A plan that waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldPlan {
    /// Its id, for `atoll approve`.
    pub plan: String,
    /// Why it waits.
    pub reason: String,
    /// Its workloads, also those that only other guards select.
    pub workloads: i64,
    /// Replicas that it moves.
    pub replicas: i64,
    /// Since when its first workload waits.
    pub since: Time,
    /// The objects whose change it follows from; at most 5.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    pub causes: Vec<String>,
    /// What it changes; at most 20 workloads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub changes: Vec<PlannedChange>,
}

/// What a plan changes for one workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedChange {
    /// The workload: `Deployment.apps NAMESPACE/NAME`.
    pub workload: String,
    /// The replicas on each member before and after: `m1: 6 -> 5, m2: - -> 1`.
    pub change: String,
}

/// A plan that was released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleasedPlan {
    /// Its id.
    pub plan: String,
    /// The user who approved it. Absent: it fitted, and counts in the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When.
    pub at: Time,
    /// Replicas that it moves.
    #[serde(default)]
    pub replicas: i64,
    /// Its workloads.
    #[serde(default)]
    pub workloads: i64,
}

/// The change of a binding that a ChangeGuard has not released yet. In the binding's spec, because the next leader
/// continues from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldChange {
    /// The plan that it is part of.
    #[schemars(length(max = 64))]
    pub plan: String,
    /// Hash of the change: what leaves which cluster, and which clusters take it.
    #[schemars(length(max = 64))]
    pub change: String,
    /// Replicas that it moves.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub replicas: i64,
    /// Since when it waits.
    pub since: Time,
}
