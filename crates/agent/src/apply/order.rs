//! Order in which objects are applied to a member: dependencies first; removal in reverse.

use crate::key::GroupKind;

/// Namespaces, definitions, configuration, the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Namespaces.
    Namespace,
    /// CustomResourceDefinitions.
    Definition,
    /// What workloads refer to when they start.
    Config,
    /// Everything else.
    Rest,
}

/// Kinds that workloads refer to. A workload that starts before them fails its first pods and backs off for minutes.
const CONFIG: [(&str, &str); 16] = [
    ("", "ConfigMap"),
    ("", "LimitRange"),
    ("", "PersistentVolume"),
    ("", "PersistentVolumeClaim"),
    ("", "ResourceQuota"),
    ("", "Secret"),
    ("", "ServiceAccount"),
    ("networking.k8s.io", "IngressClass"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("node.k8s.io", "RuntimeClass"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io", "Role"),
    ("rbac.authorization.k8s.io", "RoleBinding"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("storage.k8s.io", "StorageClass"),
];

/// Kinds without a status to aggregate: once listed, their metadata is enough.
const METADATA_ONLY: [(&str, &str); 13] = [
    ("", "ConfigMap"),
    ("", "LimitRange"),
    ("", "Secret"),
    ("", "ServiceAccount"),
    ("networking.k8s.io", "IngressClass"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("node.k8s.io", "RuntimeClass"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io", "Role"),
    ("rbac.authorization.k8s.io", "RoleBinding"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("storage.k8s.io", "StorageClass"),
];

impl Rank {
    /// The rank of a kind.
    #[must_use]
    pub(crate) fn of(kind: &GroupKind) -> Self {
        if is_namespace(kind) {
            Self::Namespace
        } else if is_definition(kind) {
            Self::Definition
        } else if CONFIG.iter().any(|(group, name)| kind.is(group, name)) {
            Self::Config
        } else {
            Self::Rest
        }
    }
}

/// Whether the kind's metadata holds all that the agent reports.
#[must_use]
pub(crate) fn metadata_is_enough(kind: &GroupKind) -> bool {
    METADATA_ONLY.iter().any(|(group, name)| kind.is(group, name))
}

/// Namespace.
#[must_use]
pub(crate) fn is_namespace(kind: &GroupKind) -> bool {
    kind.is("", "Namespace")
}

/// CustomResourceDefinition.
#[must_use]
pub(crate) fn is_definition(kind: &GroupKind) -> bool {
    kind.is("apiextensions.k8s.io", "CustomResourceDefinition")
}

/// Kinds whose deletion deletes other people's objects too: the agent never deletes them.
#[must_use]
pub(crate) fn is_never_deleted(kind: &GroupKind) -> bool {
    is_namespace(kind) || is_definition(kind)
}
