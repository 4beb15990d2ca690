//! `FederatedResourceQuota`: what the workloads of a namespace may use on all members together.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::ResourceList;

/// Most entries of `status.aggregatedStatus`. Further members count in `overallUsed` only.
pub const MAX_MEMBERS: usize = 1000;

/// Limits what the workloads of its namespace use. No decision of the scheduler increases the use beyond `overall`;
/// where the use is above it already, workloads still move, but do not grow. If a namespace has several quotas, all of
/// them hold.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "policy.atoll.dev",
    version = "v1alpha1",
    kind = "FederatedResourceQuota",
    plural = "federatedresourcequotas",
    shortname = "frq",
    category = "atoll",
    namespaced,
    status = "FederatedResourceQuotaStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Overall","type":"string","jsonPath":".status.overall"}"#,
    printcolumn = r#"{"name":"Used","type":"string","jsonPath":".status.overallUsed"}"#,
    printcolumn = r#"{"name":"Accepted","type":"string","jsonPath":".status.conditions[?(@.type==\"Accepted\")].status"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct FederatedResourceQuotaSpec {
    /// Most that all workloads of the namespace use on all members together: replicas times the requests of one replica.
    /// Counted are `cpu`, `memory`, `ephemeral-storage`, extended resources, each also with the prefix `requests.`, and
    /// `pods`. Other names limit nothing, which condition `Accepted` reports.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub overall: ResourceList,
    /// Amounts for single members: each gets a ResourceQuota `static-NAME` in the same namespace, which its own API server
    /// enforces. At most 64 members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["clusterName"])
    )]
    pub static_assignments: Vec<StaticAssignment>,
}

/// What one member enforces.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaticAssignment {
    /// The member.
    #[schemars(length(min = 1, max = 253))]
    pub cluster_name: String,
    /// `spec.hard` of its ResourceQuota: any name that Kubernetes knows there.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 64))]
    pub hard: ResourceList,
}

/// Status of a FederatedResourceQuota, written by the controller.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FederatedResourceQuotaStatus {
    /// Generation of the spec that this status is based on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted`: whether all amounts are valid and all names are resources that the scheduler counts. With
    /// `staticAssignments` also `Assigned`: whether every member holds its ResourceQuota, and `PodsAdmitted`: whether every
    /// workload on these members has the requests and limits without which they refuse its pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The limits in force: `spec.overall`.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub overall: ResourceList,
    /// What the workloads of the namespace use, by the resources of `overall`.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub overall_used: ResourceList,
    /// Members with a share of a workload of the namespace, or with a static assignment. At most 1000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["clusterName"]))]
    pub aggregated_status: Vec<ClusterQuotaStatus>,
}

/// The use of one member.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQuotaStatus {
    /// The member.
    pub cluster_name: String,
    /// What the shares on it use, by the resources of `overall` and of its static assignment.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub used: ResourceList,
    /// With a static assignment: what the member enforces, as its ResourceQuota reports.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub hard: ResourceList,
    /// With a static assignment: what all pods and objects of the namespace use on the member, as its ResourceQuota
    /// reports.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub member_used: ResourceList,
}

/// The resource that a name in a quota limits, as in the requests of pods. `None` for what decisions do not count:
/// limits, numbers of objects other than pods, storage.
#[must_use]
pub fn counted_resource(name: &str) -> Option<&str> {
    let plain = name.strip_prefix("requests.").unwrap_or(name);
    match plain {
        "pods" | "count/pods" => (plain == name).then_some("pods"),
        "cpu" | "memory" | "ephemeral-storage" => Some(plain),
        _ if plain.starts_with("hugepages-") => Some(plain),
        // Extended resources have a domain.
        _ if plain.starts_with("count/") || plain.starts_with("limits.") => None,
        _ => plain.contains('/').then_some(plain),
    }
}
