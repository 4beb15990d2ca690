//! The streams that feed the tables.

use serde_json::Value;

use super::key::{BindingKey, GroupKind};

/// A stream of objects that feeds the tables.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// Members.
    Clusters,
    /// Limits of namespaces to clusters.
    ClusterSets,
    /// Namespaced policies.
    PropagationPolicies,
    /// Cluster-scoped policies.
    ClusterPropagationPolicies,
    /// Targets per domain.
    WorkloadPolicies,
    /// Ordered subsets.
    WorkloadSpreads,
    /// Limits of what the workloads of namespaces use.
    Quotas,
    /// Namespaced override policies.
    OverridePolicies,
    /// Cluster-scoped override policies.
    ClusterOverridePolicies,
    /// Rules of users about the meaning of kinds.
    Customizations,
    /// Servers that say what kinds mean.
    Webhooks,
    /// Limits of what changes by people move.
    ChangeGuards,
    /// Bindings of namespaced templates.
    ResourceBindings,
    /// Bindings of cluster-scoped templates.
    ClusterResourceBindings,
    /// Namespaces of the hub, for their labels and their deletion.
    Namespaces,
    /// Nodes of the hub: there should be none.
    Nodes,
    /// ReplicaSets of the hub: none should belong to a template.
    ReplicaSets,
    /// Pods of the hub: none should belong to a template.
    Pods,
    /// PriorityClasses of the hub, for policies' `schedulePriority`.
    PriorityClasses,
    /// Kinds that the hub serves, while a policy selects every kind.
    Kinds,
    /// Users' objects of one kind.
    Templates(GroupKind),
}

impl Source {
    /// The stream that has this object; `None` for those of Atoll's kinds that decisions do not read.
    #[must_use]
    pub fn of_object(object: &Value) -> Option<Self> {
        let kind = GroupKind::of(object["apiVersion"].as_str()?, object["kind"].as_str()?);
        Some(match (&*kind.group, &*kind.kind) {
            ("cluster.atoll.dev", "Cluster") => Self::Clusters,
            ("cluster.atoll.dev", "ClusterSet") => Self::ClusterSets,
            ("policy.atoll.dev", "PropagationPolicy") => Self::PropagationPolicies,
            ("policy.atoll.dev", "ClusterPropagationPolicy") => Self::ClusterPropagationPolicies,
            ("policy.atoll.dev", "WorkloadPolicy") => Self::WorkloadPolicies,
            ("policy.atoll.dev", "WorkloadSpread") => Self::WorkloadSpreads,
            ("policy.atoll.dev", "FederatedResourceQuota") => Self::Quotas,
            ("policy.atoll.dev", "OverridePolicy") => Self::OverridePolicies,
            ("policy.atoll.dev", "ClusterOverridePolicy") => Self::ClusterOverridePolicies,
            ("policy.atoll.dev", "ChangeGuard") => Self::ChangeGuards,
            ("config.atoll.dev", "ResourceInterpreterCustomization") => Self::Customizations,
            ("config.atoll.dev", "ResourceInterpreterWebhookConfiguration") => Self::Webhooks,
            ("work.atoll.dev", "ResourceBinding") => Self::ResourceBindings,
            ("work.atoll.dev", "ClusterResourceBinding") => Self::ClusterResourceBindings,
            ("", "Namespace") => Self::Namespaces,
            ("scheduling.k8s.io", "PriorityClass") => Self::PriorityClasses,
            _ if kind.is_own() => return None,
            _ => Self::Templates(kind),
        })
    }

    /// The stream of bindings of this scope.
    #[must_use]
    pub fn of_binding(key: &BindingKey) -> Self {
        if key.namespace().is_some() {
            Self::ResourceBindings
        } else {
            Self::ClusterResourceBindings
        }
    }
}
