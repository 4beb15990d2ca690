//! `WorkloadPolicy`: replica targets per domain of clusters, after Kosmos' scheduler plugin of that name.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Gives the domains of a topology key their numbers of replicas. A workload is bound to it by the label
/// `policy.atoll.dev/workload-policy` on itself or its pod template.
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
    /// Which pods count: those of every workload of the namespace whose pod labels match.
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
    /// Whether replicas beyond the targets wait (`Required`) or go on elsewhere (`Preferred`, the default).
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
    /// Replicas that the domain should have.
    #[schemars(range(min = 1, max = 2147483647))]
    pub replicas: i64,
}

/// What happens beyond the targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum AllocationType {
    /// Further replicas wait.
    Required,
    /// Further replicas go on elsewhere.
    #[default]
    Preferred,
}

/// In which order domains fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum AllocationMethod {
    /// Evenly, by the share of the target that is reached.
    #[default]
    Balance,
    /// One after the other, in the order of the list.
    Fill,
}

/// What the controller says of a WorkloadPolicy.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadPolicyStatus {
    /// Generation that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// How far each domain is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub domains: Vec<DomainStatus>,
}

/// How far a domain is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DomainStatus {
    /// Value of the topology key.
    pub name: String,
    /// Replicas that it should have.
    pub target: i64,
    /// Replicas that decisions gave it, of all bindings that count.
    pub assigned: i64,
    /// Replicas that still fit. Absent = not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<i64>,
    /// Why it is below its target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<String>,
}
