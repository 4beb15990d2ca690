//! `WorkloadPolicy`: replica targets per domain of clusters, after Kosmos' scheduler plugin of that name.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sets target numbers of replicas for the domains of a topology key. A workload refers to it by the label
/// `policy.atoll.dev/workload-policy` on itself or on its pod template.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "policy.atoll.dev",
    version = "v1alpha1",
    kind = "WorkloadPolicy",
    plural = "workloadpolicies",
    shortname = "wp",
    category = "atoll",
    namespaced,
    status = "WorkloadPolicyStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Topology-Key","type":"string","jsonPath":".spec.topologyKey"}"#,
    printcolumn = r#"{"name":"Type","type":"string","jsonPath":".spec.allocationType"}"#,
    printcolumn = r#"{"name":"Method","type":"string","jsonPath":".spec.allocationMethod"}"#,
    printcolumn = r#"{"name":"Accepted","type":"string","jsonPath":".status.conditions[?(@.type==\"Accepted\")].status"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadPolicySpec {
    /// Key whose values are the domains: a label of Clusters, `topology.kubernetes.io/region`,
    /// `topology.kubernetes.io/zone`, or one of the short names `cluster`, `region`, `zone`, `provider`.
    #[schemars(length(min = 1))]
    pub topology_key: String,
    /// Selects the pods that count, among those of all workloads in the namespace.
    pub label_selector: LabelSelector,
    /// The domains and their targets, in order.
    #[schemars(
        length(min = 1, max = 64),
        extend(
            "x-kubernetes-list-type" = "atomic",
            "x-kubernetes-validations" = [{
                "rule": "self.all(a, self.exists_one(b, b.name == a.name))",
                "message": "names must be unique"
            }]
        )
    )]
    pub allocation_policy: Vec<DomainTarget>,
    /// Whether replicas beyond the targets are pending (`Required`) or placed elsewhere (`Preferred`, the default).
    #[serde(default)]
    pub allocation_type: AllocationType,
    /// Whether domains fill evenly (`Balance`, the default) or one after the other (`Fill`).
    #[serde(default)]
    pub allocation_method: AllocationMethod,
}

/// A domain and its target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DomainTarget {
    /// Value of the topology key.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Target number of replicas.
    #[schemars(range(min = 1, max = 2147483647))]
    pub replicas: i64,
}

/// What to do with replicas beyond the targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum AllocationType {
    /// Further replicas are pending.
    Required,
    /// Further replicas are placed elsewhere.
    #[default]
    Preferred,
}

/// The order in which domains are filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum AllocationMethod {
    /// Evenly, by the reached share of the target.
    #[default]
    Balance,
    /// One after the other, in list order.
    Fill,
}

/// Status of a WorkloadPolicy, written by the controller.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadPolicyStatus {
    /// Generation of the spec that this status is based on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// State of each domain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub domains: Vec<DomainStatus>,
}

/// State of a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DomainStatus {
    /// Value of the topology key.
    pub name: String,
    /// Target number of replicas.
    pub target: i64,
    /// Replicas that decisions placed there, of all counted bindings.
    pub assigned: i64,
    /// Additional replicas that fit. Absent = unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<i64>,
    /// Why the domain is below its target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<String>,
}
