//! Identities of kinds, objects and policies, as claims use them.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use atoll_api::WorkloadSpread;
use atoll_api::binding::ObjectReference;
use atoll_api::marks;
use atoll_api::names::binding_name;

use atoll_decision::BindingKey;

/// A kind, regardless of version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKind {
    /// Empty for the core group.
    pub group: String,
    /// For example `Deployment`.
    pub kind: String,
}

impl GroupKind {
    /// From an `apiVersion` and a kind.
    #[must_use]
    pub fn of(api_version: &str, kind: &str) -> Self {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        Self { group: group.to_owned(), kind: kind.to_owned() }
    }

    /// Whether this is the kind of namespaces.
    #[must_use]
    pub fn is_namespace(&self) -> bool {
        self.group.is_empty() && self.kind == "Namespace"
    }

    /// Whether this is an Atoll kind, which no policy may select.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.group == "atoll.dev" || self.group.ends_with(".atoll.dev")
    }

    /// Whether the controllers of a Kubernetes control plane create Pods for objects of this kind.
    #[must_use]
    pub fn makes_pods(&self) -> bool {
        match self.group.as_str() {
            "" => matches!(self.kind.as_str(), "Pod" | "ReplicationController"),
            "apps" => matches!(
                self.kind.as_str(),
                "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet"
            ),
            "batch" => matches!(self.kind.as_str(), "Job" | "CronJob"),
            _ => false,
        }
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.kind)
        } else {
            write!(f, "{}.{}", self.kind, self.group)
        }
    }
}

/// Identity of a user's object on the hub. Clones share one text: a controller's tables hold several for each object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TemplateKey(Arc<TemplateName>);

/// Kind, namespace and name of a user's object on the hub.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TemplateName {
    /// Its kind.
    pub kind: GroupKind,
    /// Absent for cluster-scoped objects.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl TemplateKey {
    /// The key of an object of either scope.
    #[must_use]
    pub fn new(kind: GroupKind, namespace: Option<String>, name: String) -> Self {
        Self(Arc::new(TemplateName { kind, namespace, name }))
    }

    /// The template of a binding.
    #[must_use]
    pub fn of(resource: &ObjectReference) -> Self {
        let kind = GroupKind::of(&resource.api_version, &resource.kind);
        Self::new(kind, resource.namespace.clone(), resource.name.clone())
    }

    /// The target of a WorkloadSpread in this namespace.
    #[must_use]
    pub fn target(namespace: &str, spread: &WorkloadSpread) -> Self {
        let target = &spread.spec.target_ref;
        let kind = GroupKind::of(&target.api_version, &target.kind);
        Self::new(kind, Some(namespace.to_owned()), target.name.clone())
    }

    /// The key of this template's binding, which need not exist.
    #[must_use]
    pub fn binding(&self) -> BindingKey {
        BindingKey::of(
            self.namespace.as_deref(),
            &binding_name(&self.name, &self.kind.kind, &self.kind.group),
        )
    }
}

impl Deref for TemplateKey {
    type Target = TemplateName;

    fn deref(&self) -> &TemplateName {
        &self.0
    }
}

impl fmt::Display for TemplateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// A policy of either scope: a PropagationPolicy if it has a namespace, otherwise a ClusterPropagationPolicy. The order
/// breaks ties between claims: scope first, then the smaller name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyKey {
    /// Absent for a ClusterPropagationPolicy.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl PolicyKey {
    /// The policy named by a binding's annotations, which `annotation` looks up. It may no longer exist.
    #[must_use]
    pub fn of_annotations<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        Some(Self {
            namespace: annotation(marks::POLICY_NAMESPACE).map(str::to_owned),
            name: annotation(marks::POLICY_NAME)?.to_owned(),
        })
    }

    /// The kind of policy with this scope.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        if self.namespace.is_some() { "PropagationPolicy" } else { "ClusterPropagationPolicy" }
    }
}

impl fmt::Display for PolicyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}
