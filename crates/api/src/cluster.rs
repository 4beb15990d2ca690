//! `Cluster`: a member of the federation.

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::{Quantity, ResourceList};

/// A member cluster, as the platform team registers it.
#[derive(CustomResource, Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cluster.atoll.dev",
    version = "v1alpha1",
    kind = "Cluster",
    plural = "clusters",
    shortname = "cl",
    category = "atoll",
    status = "ClusterStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Mode","type":"string","jsonPath":".spec.mode"}"#,
    printcolumn = r#"{"name":"Version","type":"string","jsonPath":".status.kubernetesVersion"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Nodes","type":"integer","jsonPath":".status.nodeSummary.readyNum"}"#,
    printcolumn = r#"{"name":"Region","type":"string","jsonPath":".spec.region","priority":1}"#,
    printcolumn = r#"{"name":"Provider","type":"string","jsonPath":".spec.provider","priority":1}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// Where the agent runs: inside the member (`Agent`, the default) or beside the controller (`Hosted`).
    #[serde(default)]
    pub mode: ClusterMode,
    /// Who runs the infrastructure, for example `aws`. Field `provider` of selectors and spread constraints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Region. Field `region` of selectors and spread constraints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Zones that the member's nodes are in. Field `zone` of selectors and spread constraints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub zones: Vec<String>,
    /// Taints keep bindings away that do not tolerate them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key", "effect"])
    )]
    pub taints: Vec<Taint>,
    /// Classes of node sizes, by which free capacity is counted where only sums are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub resource_models: Vec<ResourceModel>,
}

/// Where a member's agent runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum ClusterMode {
    /// Inside the member; it dials out.
    #[default]
    Agent,
    /// Beside the controller, with the member's kubeconfig from a Secret.
    Hosted,
}

/// One class of node sizes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceModel {
    /// Number of the class, ascending with size.
    #[schemars(range(min = 0))]
    pub grade: i64,
    /// Half-open range of each resource that a node of this class has free.
    #[schemars(length(max = 64))]
    pub ranges: Vec<ResourceModelRange>,
}

/// `min <= free < max` of one resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceModelRange {
    /// Resource, for example `cpu`.
    pub name: String,
    /// Lower bound, inclusive.
    pub min: Quantity,
    /// Upper bound, exclusive.
    pub max: Quantity,
}

/// What is known of a member. Written by the controller from the agent's reports.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Version of the member's API server, for example `v1.33.2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes_version: Option<String>,
    /// uid of the member's `kube-system` namespace, kept from the first contact on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// The kinds that the member serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub api_enablements: Vec<ApiEnablement>,
    /// `Ready`, and what else the controller found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Nodes, counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_summary: Option<NodeSummary>,
    /// Resources, summed over the ready nodes. Absent = not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_summary: Option<ResourceSummary>,
    /// The agent's session with the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionStatus>,
    /// Objects with Atoll's marks on the member that no binding accounts for. They are kept and counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub orphans: Option<i64>,
}

/// Kinds of one group and version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiEnablement {
    /// For example `apps/v1`.
    pub group_version: String,
    /// The kinds.
    #[serde(default)]
    pub resources: Vec<ApiResource>,
}

/// One kind and its resource name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiResource {
    /// Plural name, for example `deployments`.
    pub name: String,
    /// For example `Deployment`.
    pub kind: String,
}

/// Nodes, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSummary {
    /// All nodes.
    #[serde(default)]
    pub total_num: i64,
    /// Nodes that are Ready.
    #[serde(default)]
    pub ready_num: i64,
}

/// Resources, summed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSummary {
    /// What the ready, schedulable nodes offer.
    #[serde(default)]
    pub allocatable: ResourceList,
    /// Requests of pods that wait for a node.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub allocating: ResourceList,
    /// Requests of pods that have a node.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub allocated: ResourceList,
    /// Nodes per class of `spec.resourceModels`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allocatable_modelings: Vec<AllocatableModeling>,
}

/// How many nodes are of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllocatableModeling {
    /// The class.
    pub grade: i64,
    /// Nodes whose free resources are in it.
    #[schemars(range(min = 0))]
    pub count: i64,
}

/// The agent's session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionStatus {
    /// Whether there is one.
    pub state: SessionState,
    /// Highest epoch that an agent of this member came with; a lower one is refused.
    #[serde(default)]
    pub epoch: i64,
    /// Since when the state holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// Whether an agent has a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SessionState {
    /// It is connected.
    Connected,
    /// It was, and is not.
    Lost,
    /// It never was, or nobody knows.
    Unknown,
}
