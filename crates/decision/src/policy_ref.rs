//! A reference to a policy that a decision is based on.

use serde::{Deserialize, Serialize};

/// A policy that a decision is based on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRef {
    /// For example `PropagationPolicy`.
    pub kind: String,
    /// Absent for cluster-scoped policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// uid.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The metadata.generation that was read.
    #[serde(default)]
    pub generation: i64,
}
