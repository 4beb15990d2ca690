//! `WorkloadSpread`: ordered subsets of clusters for one workload, after OpenKruise's kind of that name.

use k8s_openapi::api::core::v1::{NodeSelectorTerm, PreferredSchedulingTerm, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Places the replicas of one workload in ordered subsets of clusters, each up to a limit.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "policy.atoll.dev",
    version = "v1alpha1",
    kind = "WorkloadSpread",
    plural = "workloadspreads",
    shortname = "ws",
    category = "atoll",
    namespaced,
    status = "WorkloadSpreadStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Target","type":"string","jsonPath":".spec.targetRef.name"}"#,
    printcolumn = r#"{"name":"Strategy","type":"string","jsonPath":".spec.scheduleStrategy.type"}"#,
    printcolumn = r#"{"name":"Accepted","type":"string","jsonPath":".status.conditions[?(@.type==\"Accepted\")].status"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadSpreadSpec {
    /// The workload, in the same namespace. Immutable.
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf",
        "message": "targetRef is immutable: delete this WorkloadSpread and create another"
    }]))]
    pub target_ref: TargetReference,
    /// The subsets, in order.
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
    pub subsets: Vec<Subset>,
    /// What to do with a replica whose subset has no room. Default Fixed.
    #[serde(default)]
    pub schedule_strategy: ScheduleStrategy,
}

impl WorkloadSpreadSpec {
    /// Whether a subset shares the clusters of the one before it, because both select nodes of the same clusters.
    #[must_use]
    pub fn shares_clusters(&self, at: usize) -> bool {
        let Some([before, subset]) = at.checked_sub(1).and_then(|from| self.subsets.get(from..=at))
        else {
            return false;
        };
        let selects_nodes = |subset: &Subset| subset.required_node_selector_term.is_some();
        selects_nodes(before)
            && selects_nodes(subset)
            && before.required_cluster_selector == subset.required_cluster_selector
    }

    /// A subset and those after it that share its clusters.
    #[must_use]
    pub fn sharing(&self, at: usize) -> &[Subset] {
        let more = (at + 1..self.subsets.len()).take_while(|next| self.shares_clusters(*next));
        self.subsets.get(at..=at + more.count()).unwrap_or_default()
    }
}

/// The workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetReference {
    /// For example `apps/v1`.
    pub api_version: String,
    /// For example `Deployment`.
    pub kind: String,
    /// Name.
    pub name: String,
}

/// A subset of clusters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Subset {
    /// Name, unique in the list.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Selects the clusters of the subset. A cluster belongs to the first subset that matches. Absent = all remaining
    /// clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required_cluster_selector: Option<LabelSelector>,
    /// Preferences. Clusters with the highest sum of weights come first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub preferred_cluster_selectors: Vec<PreferredClusterSelector>,
    /// Selects the nodes for the pods of this subset, as in OpenKruise: required node affinity in addition to the
    /// template's own. Neighbouring subsets with such a term and the same `requiredClusterSelector` share their clusters: the
    /// pods there may use the nodes of all of them, and prefer those of earlier ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required_node_selector_term: Option<NodeSelectorTerm>,
    /// Preferred node affinity for the pods of this subset, as in OpenKruise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub preferred_node_selector_terms: Vec<PreferredSchedulingTerm>,
    /// Taints that the workload tolerates on clusters of this subset, in addition to the placement's tolerations. In a
    /// subset that selects nodes, its pods tolerate them on nodes, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub tolerations: Vec<Toleration>,
    /// Maximum number or percentage of replicas. Absent = no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_replicas: Option<IntOrString>,
    /// Strategic merge patch on the pod template of this subset's copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("type" = "object", "x-kubernetes-preserve-unknown-fields" = true))]
    pub patch: Option<serde_json::Value>,
}

/// A weighted preference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreferredClusterSelector {
    /// Weight, 1 to 100.
    #[schemars(range(min = 1, max = 100))]
    pub weight: i64,
    /// The preferred clusters.
    pub preference: LabelSelector,
}

/// What to do with a replica whose subset has no room.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleStrategy {
    /// `Fixed` (default): the replica is pending. `Adaptive`: the replica goes to the next subset.
    #[serde(default, rename = "type")]
    pub type_: ScheduleStrategyType,
    /// Settings of Adaptive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<AdaptiveStrategy>,
}

/// The type of strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum ScheduleStrategyType {
    /// A replica is pending in its subset.
    #[default]
    Fixed,
    /// A replica goes to the next subset.
    Adaptive,
}

/// Settings of Adaptive.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdaptiveStrategy {
    /// Seconds that a replica may be unschedulable on a member before it moves to the next subset. Default 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub reschedule_critical_seconds: Option<i64>,
}

/// Status of a WorkloadSpread, written by the controller.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadSpreadStatus {
    /// Generation of the spec that this status is based on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// State of each subset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub subsets: Vec<SubsetStatus>,
}

/// State of a subset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubsetStatus {
    /// Its name.
    pub name: String,
    /// Replicas that the decision placed there.
    pub replicas: i64,
    /// Pending replicas.
    #[serde(default)]
    pub pending: i64,
    /// Since when members report unschedulable replicas there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unschedulable_since: Option<Time>,
}
