//! `WorkloadRebalancer`: asks for new decisions on placed workloads.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a rebalance may move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum RebalanceMode {
    /// Everything: the replicas are divided from zero.
    #[default]
    Anew,
    /// As few replicas as possible, until the topologySpreadConstraints hold.
    MendSkew,
}

/// Decides workloads again, once: divides them from zero, or only mends their skew.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "apps.atoll.dev",
    version = "v1alpha1",
    kind = "WorkloadRebalancer",
    plural = "workloadrebalancers",
    shortname = "wr",
    category = "atoll",
    status = "WorkloadRebalancerStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Successful","type":"integer","jsonPath":".status.successful"}"#,
    printcolumn = r#"{"name":"Failed","type":"integer","jsonPath":".status.failed"}"#,
    printcolumn = r#"{"name":"Finished","type":"date","jsonPath":".status.finishTime"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRebalancerSpec {
    /// The workloads. One that is added later is rebalanced, too; the others are not rebalanced again.
    #[schemars(length(min = 1, max = 1000), extend("x-kubernetes-list-type" = "atomic"))]
    pub workloads: Vec<WorkloadReference>,
    /// `Anew` divides the replicas from zero: they may move, and ordered `clusterAffinities` start at the first term.
    /// `MendSkew` moves as few replicas as possible, until the topologySpreadConstraints hold.
    #[serde(default)]
    pub mode: RebalanceMode,
    /// Seconds after which the object is deleted, once it has finished. Absent = it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2147483647))]
    pub ttl_seconds_after_finished: Option<i64>,
}

/// A workload.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadReference {
    /// For example `apps/v1`.
    #[schemars(length(min = 1, max = 253))]
    pub api_version: String,
    /// For example `Deployment`.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Its namespace; absent for kinds without namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Status of a WorkloadRebalancer, written by the controller.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRebalancerStatus {
    /// Generation of the spec that this status is based on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Result for each workload.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub observed_workloads: Vec<ObservedWorkload>,
    /// Number of workloads for which a new decision was asked.
    #[serde(default)]
    pub successful: i64,
    /// Number of workloads for which none could be asked.
    #[serde(default)]
    pub failed: i64,
    /// When every workload had a result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_time: Option<Time>,
}

/// Result for one workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedWorkload {
    /// The workload.
    pub workload: WorkloadReference,
    /// Absent while it is being tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<RebalanceResult>,
    /// Why, for a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<RebalanceFailure>,
}

/// Whether a new decision was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RebalanceResult {
    /// It was.
    Successful,
    /// It was not.
    Failed,
}

/// Why no decision was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RebalanceFailure {
    /// The workload has no binding: it does not exist, or no policy claims it.
    ReferencedBindingNotFound,
}

impl WorkloadReference {
    /// The API group: empty for core.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}
