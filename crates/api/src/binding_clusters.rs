//! Clusters in bindings, apart from their shares.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A cluster by name.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct NamedCluster {
    /// Name of the Cluster.
    pub name: String,
}

/// A cluster that counts as full for a binding, because its replicas stayed unschedulable there and moved away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FullCluster {
    /// Name of the Cluster.
    #[schemars(length(max = 253))]
    pub cluster: String,
    /// When replicas last moved away.
    pub at: Time,
    /// Until when it counts as full.
    pub until: Time,
    /// How often in a row replicas moved away. Each time it counts as full for twice as long.
    #[schemars(range(min = 1))]
    pub times: i64,
}

/// Health of an object.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema,
)]
pub enum ResourceHealth {
    /// It works as intended.
    Healthy,
    /// It does not work as intended.
    Unhealthy,
    /// Its health is unknown.
    #[default]
    Unknown,
}
