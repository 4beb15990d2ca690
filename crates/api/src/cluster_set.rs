//! `ClusterSet`: the clusters that the namespaces of a tenant may use.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits namespaces to clusters. A namespace that ClusterSets select may use only the clusters of these sets, whatever
/// its policies and all ClusterPropagationPolicies say. Objects without a namespace are not limited.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cluster.atoll.dev",
    version = "v1alpha1",
    kind = "ClusterSet",
    plural = "clustersets",
    shortname = "cset",
    category = "atoll",
    status = "ClusterSetStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Namespaces","type":"integer","jsonPath":".status.namespaces"}"#,
    printcolumn = r#"{"name":"Clusters","type":"integer","jsonPath":".status.clusters"}"#,
    printcolumn = r#"{"name":"Accepted","type":"string","jsonPath":".status.conditions[?(@.type==\"Accepted\")].status"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSetSpec {
    /// Selects the clusters by the labels of Cluster objects. An empty selector selects all.
    pub cluster_selector: LabelSelector,
    /// Selects the namespaces by their labels; label `kubernetes.io/metadata.name` is the name. An empty selector
    /// selects all.
    pub namespace_selector: LabelSelector,
}

/// Status of a ClusterSet, written by the controller.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSetStatus {
    /// Generation of the spec that this status is based on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted`: whether both selectors are valid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Number of namespaces that it selects.
    #[serde(default)]
    pub namespaces: i64,
    /// Number of clusters that it selects.
    #[serde(default)]
    pub clusters: i64,
}
