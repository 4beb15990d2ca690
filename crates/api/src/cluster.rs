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
    printcolumn = r#"{"name":"Status","type":"string","jsonPath":".status.state"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.reason"}"#,
    printcolumn = r#"{"name":"Mode","type":"string","jsonPath":".spec.mode"}"#,
    printcolumn = r#"{"name":"Version","type":"string","jsonPath":".status.kubernetesVersion"}"#,
    printcolumn = r#"{"name":"Nodes","type":"integer","jsonPath":".status.nodeSummary.readyNum"}"#,
    printcolumn = r#"{"name":"Free Pods","type":"integer","jsonPath":".status.freePods"}"#,
    printcolumn = r#"{"name":"Region","type":"string","jsonPath":".spec.region","priority":1}"#,
    printcolumn = r#"{"name":"Provider","type":"string","jsonPath":".spec.provider","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.mode) || self.mode != 'Hosted' || has(self.kubeconfigSecret)",
    "message": "mode Hosted needs kubeconfigSecret, the name of a Secret in namespace atoll-system",
}]))]
pub struct ClusterSpec {
    /// Where the agent runs: inside the member (`Agent`, the default) or beside the controller (`Hosted`).
    #[serde(default)]
    pub mode: ClusterMode,
    /// Mode `Hosted`: name of the Secret in namespace `atoll-system` of the hub whose key `kubeconfig` leads to the member's
    /// API server, with the rights that an agent needs there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub kubeconfig_secret: Option<String>,
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
    /// Conditions, taints and deletion in a few words, for the column STATUS: `Ready`, `NotReady` or `Unknown`, then with
    /// commas `SchedulingDisabled`, `Draining`, `Drained`, `RemovalsHeld`, `Terminating`. Programs read the conditions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// Reasons of the conditions behind `state`, for the column REASON. Absent for a member that is just ready.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Nodes, counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_summary: Option<NodeSummary>,
    /// Resources, summed over the ready nodes. Absent = not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_summary: Option<ResourceSummary>,
    /// Pods that the ready nodes can still take by their number: allocatable less those that have a node. Absent = not
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub free_pods: Option<i64>,
    /// When taints of `spec.taints` with effect NoExecute that carry no `timeAdded` were first seen. The seconds that a
    /// binding tolerates them count from then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key", "effect"])
    )]
    pub taints_since: Vec<TaintSince>,
    /// The agent's session with the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionStatus>,
    /// Which of the member's certificates are refused. Kept for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revocation: Option<Revocation>,
    /// Objects with Atoll's marks on the member that no binding accounts for. They are kept and counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub orphans: Option<i64>,
    /// Of them the first 100, by group, kind, namespace and name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub orphaned_objects: Vec<ObjectName>,
    /// Removals on the member that are held back by their limit (condition `PruneHeld`): these objects still run there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub removals_held: Option<i64>,
    /// The first 100 objects whose removal is held back, by group, kind, namespace and name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub held_objects: Vec<ObjectName>,
}

/// Most entries of [`ClusterStatus::orphaned_objects`] and of [`ClusterStatus::held_objects`]. A longer list would not
/// help users, and every cache holds every Cluster.
pub const MAX_ORPHANED_OBJECTS: usize = 100;

/// When a taint was first seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaintSince {
    /// Its key.
    pub key: String,
    /// Its effect.
    pub effect: String,
    /// When.
    pub since: Time,
}

impl TaintSince {
    /// Whether this entry belongs to the taint.
    #[must_use]
    pub fn is_of(&self, taint: &Taint) -> bool {
        self.key == taint.key && self.effect == taint.effect
    }
}

impl Cluster {
    /// The taints. Each NoExecute taint has the time from which its tolerations count: its own `timeAdded`, otherwise
    /// when it was first seen.
    #[must_use]
    pub fn dated_taints(&self) -> Vec<Taint> {
        let seen = self.status.as_ref().map_or(&[][..], |status| &status.taints_since);
        let dated = |taint: &Taint| {
            let since =
                || seen.iter().find(|seen| seen.is_of(taint)).map(|seen| seen.since.clone());
            Taint { time_added: taint.time_added.clone().or_else(since), ..taint.clone() }
        };
        self.spec.taints.iter().map(dated).collect()
    }
}

/// One object of a member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectName {
    /// Group, for example `apps`; empty for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// For example `Deployment`.
    pub kind: String,
    /// Absent for cluster-scoped kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

/// A text that is not an object name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} names no object: write KIND[.GROUP]/NAMESPACE/NAME, or KIND[.GROUP]/NAME without a namespace"
)]
pub struct ObjectNameError(String);

impl std::fmt::Display for ObjectName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.kind)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if let Some(namespace) = &self.namespace {
            write!(f, "/{namespace}")?;
        }
        write!(f, "/{}", self.name)
    }
}

impl std::str::FromStr for ObjectName {
    type Err = ObjectNameError;

    /// Parses the form of [`std::fmt::Display`]: `Deployment.apps/shop/web`, `ConfigMap/shop/web`,
    /// `ClusterRole.rbac.authorization.k8s.io/reader`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ObjectNameError(text.to_owned());
        let parts: Vec<_> = text.split('/').collect();
        let (kind, namespace, name) = match parts[..] {
            [kind, namespace, name] => (kind, Some(namespace), name),
            [kind, name] => (kind, None, name),
            _ => return Err(wrong()),
        };
        let (kind, group) = kind.split_once('.').unwrap_or((kind, ""));
        if kind.is_empty() || name.is_empty() || namespace.is_some_and(str::is_empty) {
            return Err(wrong());
        }
        Ok(Self {
            group: group.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        })
    }
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

/// A revocation of certificates that the controller has seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Revocation {
    /// Certificates issued at or before this time, and tokens that were open then, are refused.
    pub before: Time,
    /// The last value of the annotation `atoll.dev/revoked-before` that was taken into account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 262144))]
    pub request: Option<String>,
    /// Id of the token by which the agent enrolled that replaced the earlier ones, where `atoll rejoin` was the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub token: Option<String>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objects_name_reads_as_it_is_written() {
        for text in
            ["Deployment.apps/shop/web", "ConfigMap/shop/web", "Role.rbac.authorization.k8s.io/a/b"]
        {
            let name: ObjectName = text.parse().unwrap();
            assert_eq!(name.to_string(), text);
            assert!(name.namespace.is_some());
        }
        let name: ObjectName = "ClusterRole.rbac.authorization.k8s.io/reader".parse().unwrap();
        assert_eq!((name.group.as_str(), name.namespace), ("rbac.authorization.k8s.io", None));
        for wrong in ["", "web", "Deployment.apps//web", "/shop/web", "Deployment/a/b/c"] {
            assert!(wrong.parse::<ObjectName>().is_err(), "{wrong}");
        }
    }
}
