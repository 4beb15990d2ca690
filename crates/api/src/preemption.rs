//! Room that a binding of higher priority took.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Room on a cluster that a decision took from a binding of lower priority.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Preemption {
    /// id of the decision.
    #[schemars(length(max = 64))]
    pub decision: String,
    /// Namespace of the binding that loses the room. Absent for a ClusterResourceBinding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Its priority at the decision.
    #[serde(default)]
    pub priority: i32,
    /// The cluster.
    #[schemars(length(max = 253))]
    pub cluster: String,
    /// Replicas that it loses there.
    #[schemars(range(min = 1))]
    pub replicas: i64,
    /// Replicas that it may keep there.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub remaining: i64,
}
