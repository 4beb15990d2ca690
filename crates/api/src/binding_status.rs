//! The status of a binding: what the controller reports about it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::binding_clusters::ResourceHealth;

/// Reports on a binding. Never an input of a decision.
// API servers do not check its fields (`crds.rs`), so anyone who may write a status may write a malformed one. The controller
// replaces it; until then it counts as empty, because one malformed object must not stop the reader of a list. The derived
// code refuses it. With `remote`, that code is a function, which `ReadStatus` and the implementation below call.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", remote = "Self")]
#[schemars(remote = "ResourceBindingStatus")]
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
    /// Counts over the clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<BindingSummary>,
    /// The report of each member; at most 100, unhealthy ones first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 100),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["clusterName"])
    )]
    pub aggregated_status: Vec<AggregatedStatusItem>,
    /// Whether `aggregatedStatus` omits members.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

impl Serialize for ResourceBindingStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for ResourceBindingStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Readable(ReadStatus),
            Malformed(IgnoredAny),
        }
        Ok(match Either::deserialize(deserializer)? {
            Either::Readable(status) => status.0,
            Either::Malformed(_) => Self::default(),
        })
    }
}

/// A status of a binding whose reader is told if it is malformed.
#[derive(Debug, Deserialize)]
pub struct ReadStatus(#[serde(with = "ResourceBindingStatus")] pub ResourceBindingStatus);

/// Counts over the clusters of a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BindingSummary {
    /// Clusters that applied the last decision.
    #[serde(default)]
    pub applied: i64,
    /// Ready replicas.
    #[serde(default)]
    pub ready: i64,
    /// Clusters that report the object as unhealthy.
    #[serde(default)]
    pub unhealthy: i64,
    /// Clusters without a current report.
    #[serde(default)]
    pub unknown: i64,
}

/// The report of one member.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AggregatedStatusItem {
    /// The member.
    pub cluster_name: String,
    /// Whether the member applied the last decision.
    #[serde(default)]
    pub applied: bool,
    /// Why the member did not apply it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_message: Option<String>,
    /// Health of the object on the member.
    #[serde(default)]
    pub health: ResourceHealth,
    /// Why the object is unhealthy there, for example `ImagePullBackOff`. Absent if it is healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_reason: Option<String>,
    /// The problem, for people. Absent during a rollout without problems.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_message: Option<String>,
    /// Since when the object is unhealthy there, without interruption. `failover.application` counts from this time,
    /// also across restarts of the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy_since: Option<Time>,
    /// Since when the object is healthy there, without interruption, if a leader observed the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy_since: Option<Time>,
    /// Existing replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    /// Ready replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i64>,
    /// Unschedulable replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unschedulable_replicas: Option<i64>,
    /// The object's status there, for up to 20 members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("type" = "object", "x-kubernetes-preserve-unknown-fields" = true))]
    pub status: Option<serde_json::Value>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_malformed_status_counts_as_empty_unless_the_reader_wants_to_know() {
        let read = json!({"truncated": true, "summary": {"ready": 2}});
        let status: ResourceBindingStatus = serde_json::from_value(read.clone()).unwrap();
        assert_eq!(status.summary.unwrap().ready, 2);
        let mut whole = read.clone();
        whole["summary"] = json!({"applied": 0, "ready": 2, "unhealthy": 0, "unknown": 0});
        assert_eq!(serde_json::to_value(&status).unwrap(), whole);

        for malformed in [json!({"truncated": 1}), json!([7]), json!({"aggregatedStatus": [{}]})] {
            let status: ResourceBindingStatus = serde_json::from_value(malformed.clone()).unwrap();
            assert_eq!(status, ResourceBindingStatus::default(), "{malformed}");
            assert!(
                serde_json::from_value::<ReadStatus>(malformed.clone()).is_err(),
                "{malformed}"
            );
        }
        assert!(serde_json::from_value::<ReadStatus>(read).unwrap().0.truncated);
    }
}
