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
    /// Where the agent runs: in the member (`Agent`, the default) or next to the controller (`Hosted`).
    #[serde(default)]
    pub mode: ClusterMode,
    /// Mode `Hosted`: name of the Secret in namespace `atoll-system` of the hub. Its key `kubeconfig` gives access to
    /// the member's API server, with the permissions that an agent needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub kubeconfig_secret: Option<String>,
    /// Infrastructure provider, for example `aws`. Field `provider` of selectors and spread constraints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Region. Field `region` of selectors and spread constraints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Zones of the member's nodes. Field `zone` of selectors and spread constraints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub zones: Vec<String>,
    /// Taints. They repel bindings that do not tolerate them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key", "effect"])
    )]
    pub taints: Vec<Taint>,
    /// Classes of node sizes. They are used to estimate capacity if only sums over the nodes are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub resource_models: Vec<ResourceModel>,
}

/// Where a member's agent runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum ClusterMode {
    /// In the member. The agent connects to the hub.
    #[default]
    Agent,
    /// Next to the controller, with the member's kubeconfig from a Secret.
    Hosted,
}

/// One class of node sizes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceModel {
    /// Number of the class, ascending with size.
    #[schemars(range(min = 0))]
    pub grade: i64,
    /// Half-open range of free resources of a node in this class, per resource.
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

/// Status of a member, written by the controller from the agent's reports.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Version of the member's API server, for example `v1.33.2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes_version: Option<String>,
    /// uid of the member's `kube-system` namespace, kept from the first connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// The kinds that the member serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub api_enablements: Vec<ApiEnablement>,
    /// `Ready` and other conditions from the controller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Conditions, taints and deletion in a few words, for the column STATUS: `Ready`, `NotReady` or `Unknown`,
    /// followed by `SchedulingDisabled`, `Draining`, `Drained`, `RemovalsHeld`, `Terminating` where they apply,
    /// separated by commas. Programs should read the conditions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// Reasons of the conditions behind `state`, for the column REASON. Absent for a member that is only ready.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Counts of nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_summary: Option<NodeSummary>,
    /// Sums of resources over the ready nodes. Absent = unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_summary: Option<ResourceSummary>,
    /// Pods that the ready nodes can still take by their pod limits: allocatable minus scheduled pods. Absent =
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub free_pods: Option<i64>,
    /// When taints in `spec.taints` with effect NoExecute and without `timeAdded` were first seen. Their toleration
    /// seconds count from then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key", "effect"])
    )]
    pub taints_since: Vec<TaintSince>,
    /// The agent's session with the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionStatus>,
    /// Which of the member's certificates are revoked. Kept permanently.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revocation: Option<Revocation>,
    /// Number of objects on the member with Atoll's marks but without a binding. They are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub orphans: Option<i64>,
    /// The first 100 of these objects, by group, kind, namespace and name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub orphaned_objects: Vec<ObjectName>,
    /// Removals that exceed their limit and are held (condition `PruneHeld`). These objects still run on the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub removals_held: Option<i64>,
    /// The first 100 objects with a held removal, by group, kind, namespace and name.
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
    /// The time.
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

/// An object on a member.
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
    "{0:?} is not an object reference: write KIND[.GROUP]/NAMESPACE/NAME, or KIND[.GROUP]/NAME without a namespace"
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

/// Counts of nodes.
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

/// Sums of resources.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSummary {
    /// Allocatable resources of the ready, schedulable nodes.
    #[serde(default)]
    pub allocatable: ResourceList,
    /// Requests of pods that are not scheduled yet.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub allocating: ResourceList,
    /// Requests of scheduled pods.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub allocated: ResourceList,
    /// Nodes per class of `spec.resourceModels`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allocatable_modelings: Vec<AllocatableModeling>,
}

impl ResourceSummary {
    /// How much of a resource is requested, as a percentage; `None` where the capacity is unknown or none.
    #[must_use]
    pub fn requested_percent(&self, resource: &str) -> Option<u8> {
        let milli = |list: &ResourceList| list.get(resource).and_then(|amount| amount.milli().ok());
        let all = milli(&self.allocatable).filter(|all| *all > 0)?;
        let requested = milli(&self.allocated).unwrap_or_default().max(0);
        u8::try_from((requested.saturating_mul(100) / all).min(255)).ok()
    }
}

/// Number of nodes in a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllocatableModeling {
    /// The class.
    pub grade: i64,
    /// Nodes whose free resources are in the class.
    #[schemars(range(min = 0))]
    pub count: i64,
}

/// The agent's session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionStatus {
    /// Whether the agent is connected.
    pub state: SessionState,
    /// Highest epoch of this member's agents. Lower epochs are rejected.
    #[serde(default)]
    pub epoch: i64,
    /// Since when the session is in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Version of the agent's program in the last session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub agent_version: Option<String>,
    /// Hash of the key of the certificate authority that signed the agent's certificate in its last session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 71))]
    pub authority: Option<String>,
    /// End of validity of the agent's certificate. Agents renew it every day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_until: Option<Time>,
}

/// A revocation of certificates that the controller has processed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Revocation {
    /// Certificates issued up to this time, and tokens that were valid then, are rejected.
    pub before: Time,
    /// The last processed value of the annotation `atoll.dev/revoked-before`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 262144))]
    pub request: Option<String>,
    /// Id of the token of the agent that replaced the earlier ones, if `atoll rejoin` caused the revocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub token: Option<String>,
}

/// Connection state of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SessionState {
    /// The agent is connected.
    Connected,
    /// The agent was connected and is not any more.
    Lost,
    /// The agent was never connected, or the state is unknown.
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
