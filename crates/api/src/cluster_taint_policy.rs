//! `ClusterTaintPolicy`: taints of Clusters that follow from their conditions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::placement::ClusterAffinity;

/// Adds taints to Clusters and removes them, by conditions of the Clusters. Taints stay when the policy is deleted.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "policy.atoll.dev",
    version = "v1alpha1",
    kind = "ClusterTaintPolicy",
    plural = "clustertaintpolicies",
    shortname = "ctp",
    category = "atoll",
    status = "ClusterTaintPolicyStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Accepted","type":"string","jsonPath":".status.conditions[?(@.type==\"Accepted\")].status"}"#,
    printcolumn = r#"{"name":"Taints","type":"string","jsonPath":".spec.taints[*].key"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterTaintPolicySpec {
    /// The clusters. Absent = all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_clusters: Option<ClusterAffinity>,
    /// When the taints are added: all of these hold. None = never.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub add_on_conditions: Vec<MatchCondition>,
    /// When the taints are removed: all of these hold. None = never. Where both hold, they are removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub remove_on_conditions: Vec<MatchCondition>,
    /// The taints. A key of Atoll's own domain is refused.
    #[schemars(length(min = 1, max = 16))]
    pub taints: Vec<PolicyTaint>,
}

/// A requirement on a condition of a Cluster. A condition that the Cluster lacks never matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MatchCondition {
    /// Type of the condition, for example `Ready`.
    #[schemars(length(min = 1, max = 316))]
    pub condition_type: String,
    /// How its status compares with the values.
    pub operator: MatchConditionOperator,
    /// The values.
    #[schemars(length(min = 1, max = 3))]
    pub status_values: Vec<ConditionStatus>,
}

/// How a status compares with values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MatchConditionOperator {
    /// It is one of them.
    In,
    /// It is none of them.
    NotIn,
}

/// Status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// It does not hold.
    False,
    /// It is unknown whether it holds.
    Unknown,
}

/// A taint of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyTaint {
    /// Key.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// Value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub value: Option<String>,
    /// What it does to work that does not tolerate it.
    pub effect: TaintEffect,
}

/// Effect of a taint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TaintEffect {
    /// Nothing new is placed there.
    NoSchedule,
    /// Running work leaves, too.
    NoExecute,
}

impl TaintEffect {
    /// Its name in a taint.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

impl MatchCondition {
    /// Whether a Cluster with these conditions matches.
    #[must_use]
    pub fn matches(&self, conditions: &[Condition]) -> bool {
        let Some(found) = conditions.iter().find(|one| one.type_ == self.condition_type) else {
            return false;
        };
        let listed = self.status_values.iter().any(|value| format!("{value:?}") == found.status);
        listed == (self.operator == MatchConditionOperator::In)
    }
}

/// Status of a ClusterTaintPolicy, written by the controller.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterTaintPolicyStatus {
    /// Generation of the spec that this status is based on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted`: whether the policy can be applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
