//! `placement.workloadAffinity`: clusters by where other workloads of the namespace run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which other workloads of the namespace to run next to, and which to keep away from.
///
/// The value of a label of the template names a group. A workload belongs to the groups that its own policy names. A
/// workload without the label belongs to no group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.affinity) || has(self.antiAffinity) || has(self.preferred)",
        "message": "affinity, antiAffinity or preferred is needed"
    },
    {
        "rule": "!(has(self.affinity) && has(self.antiAffinity)) || self.affinity.groupByLabelKey != self.antiAffinity.groupByLabelKey",
        "message": "affinity and antiAffinity by the same label contradict each other: keep one"
    }
]))]
pub struct WorkloadAffinity {
    /// Only clusters where every placed workload of the group runs. The first workload of a group is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<WorkloadGroup>,
    /// Only clusters where no workload of the group runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anti_affinity: Option<WorkloadGroup>,
    /// Preferences, which only affect scores. They do not bind other workloads of the group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub preferred: Vec<PreferredWorkloadAffinity>,
}

/// Groups workloads by the value of a label of their templates.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadGroup {
    /// Key of the label.
    #[schemars(length(min = 1, max = 317))]
    pub group_by_label_key: String,
}

/// A preference for clusters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.affinity) != has(self.antiAffinity)",
    "message": "exactly one of affinity and antiAffinity is needed"
}]))]
pub struct PreferredWorkloadAffinity {
    /// Weight relative to the other preferences.
    #[schemars(range(min = 1, max = 100))]
    pub weight: i64,
    /// Prefers clusters where workloads of the group run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<WorkloadGroup>,
    /// Prefers clusters where no workload of the group runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anti_affinity: Option<WorkloadGroup>,
}
