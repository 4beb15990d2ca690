//! Maps objects from files to their role for the scheduler. Karmada's groups map to Atoll's, whose kinds have the same
//! fields.

use serde_json::Value;

/// The role of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Cluster,
    ClusterSet,
    Policy,
    ClusterPolicy,
    Guard,
    Quota,
    WorkloadPolicy,
    WorkloadSpread,
    /// OverridePolicy or ClusterOverridePolicy.
    Override,
    Binding,
    ClusterBinding,
    /// Rules of users about what kinds mean.
    Interpreter,
    /// An Atoll or Karmada kind that decisions do not use.
    Ignored,
    /// A user's object.
    Template,
}

/// The namespace of namespaced objects that name none, as in kubectl.
pub(super) const DEFAULT_NAMESPACE: &str = "default";
/// Groups whose kinds are namespaced, except [`CLUSTER_SCOPED`].
const NAMESPACED_GROUPS: [&str; 6] =
    ["", "apps", "batch", "autoscaling", "policy", "networking.k8s.io"];
const CLUSTER_SCOPED: [&str; 4] = ["Namespace", "Node", "PersistentVolume", "IngressClass"];
const NAMESPACED_RBAC: [&str; 2] = ["Role", "RoleBinding"];

pub(super) fn role(api_version: &str, kind: &str) -> Role {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    // Kosmos' WorkloadPolicy has the same fields as Atoll's.
    if group == "kosmos.io" && kind == "WorkloadPolicy" {
        return Role::WorkloadPolicy;
    }
    let own = group.strip_suffix(".atoll.dev").or_else(|| group.strip_suffix(".karmada.io"));
    match (own, kind) {
        (None, _) => Role::Template,
        (Some("cluster"), "Cluster") => Role::Cluster,
        (Some("cluster"), "ClusterSet") if group.ends_with(".atoll.dev") => Role::ClusterSet,
        (Some("policy"), "ChangeGuard") if group.ends_with(".atoll.dev") => Role::Guard,
        (Some("policy"), "PropagationPolicy") => Role::Policy,
        (Some("policy"), "ClusterPropagationPolicy") => Role::ClusterPolicy,
        (Some("policy"), "OverridePolicy" | "ClusterOverridePolicy") => Role::Override,
        (Some("policy"), "FederatedResourceQuota") => Role::Quota,
        (Some("policy"), "WorkloadPolicy") => Role::WorkloadPolicy,
        (Some("policy"), "WorkloadSpread") => Role::WorkloadSpread,
        (Some("work"), "ResourceBinding") => Role::Binding,
        (Some("work"), "ClusterResourceBinding") => Role::ClusterBinding,
        (
            Some("config"),
            "ResourceInterpreterCustomization" | "ResourceInterpreterWebhookConfiguration",
        ) => Role::Interpreter,
        _ => Role::Ignored,
    }
}

/// Writes the default namespace into a namespaced object that names none.
pub fn default_namespace(object: &mut Value) {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let role = role(api_version, object["kind"].as_str().unwrap_or_default());
    let named = object["metadata"]["namespace"].as_str().is_some_and(|name| !name.is_empty());
    if !named && object["metadata"].is_object() && is_namespaced(role, api_version, object) {
        object["metadata"]["namespace"] = DEFAULT_NAMESPACE.into();
    }
}

/// Whether an object without a namespace belongs to the default one.
pub(super) fn is_namespaced(role: Role, api_version: &str, object: &Value) -> bool {
    let kind = object["kind"].as_str().unwrap_or_default();
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    match role {
        Role::Cluster
        | Role::ClusterSet
        | Role::ClusterPolicy
        | Role::Guard
        | Role::ClusterBinding
        | Role::Interpreter
        | Role::Ignored => false,
        Role::Policy
        | Role::Quota
        | Role::WorkloadPolicy
        | Role::WorkloadSpread
        | Role::Binding => true,
        Role::Override => kind == "OverridePolicy",
        Role::Template if group == "rbac.authorization.k8s.io" => NAMESPACED_RBAC.contains(&kind),
        Role::Template if NAMESPACED_GROUPS.contains(&group) => !CLUSTER_SCOPED.contains(&kind),
        Role::Template => atoll_interpreter::replicas(object).is_some(),
    }
}
