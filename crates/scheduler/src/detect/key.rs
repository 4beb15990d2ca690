//! Identities of kinds, objects and policies, as claims use them.

use std::fmt;

use atoll_api::binding::ObjectReference;
use atoll_api::marks;
use atoll_api::names::binding_name;
use atoll_api::{ObjectKey, WorkloadSpread};

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
        KindRef::of(api_version, kind).to_owned()
    }

    /// Group and kind.
    #[must_use]
    pub fn borrowed(&self) -> KindRef<'_> {
        KindRef { group: &self.group, kind: &self.kind }
    }

    /// Whether this is an Atoll kind, which no policy may select.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.borrowed().is_own()
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.borrowed().fmt(f)
    }
}

/// A kind, regardless of version, that is part of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindRef<'a> {
    /// Empty for the core group.
    pub group: &'a str,
    /// For example `Deployment`.
    pub kind: &'a str,
}

impl<'a> KindRef<'a> {
    /// From an `apiVersion` and a kind.
    #[must_use]
    pub fn of(api_version: &'a str, kind: &'a str) -> Self {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        Self { group, kind }
    }

    /// The kind with texts of its own.
    #[must_use]
    pub fn to_owned(self) -> GroupKind {
        GroupKind { group: self.group.to_owned(), kind: self.kind.to_owned() }
    }

    /// Whether this is the kind of namespaces.
    #[must_use]
    pub fn is_namespace(self) -> bool {
        self.group.is_empty() && self.kind == "Namespace"
    }

    /// Whether this is an Atoll kind, which no policy may select.
    #[must_use]
    pub fn is_own(self) -> bool {
        self.group == "atoll.dev" || self.group.ends_with(".atoll.dev")
    }

    /// Whether the controllers of a Kubernetes control plane create Pods for objects of this kind.
    #[must_use]
    pub fn makes_pods(self) -> bool {
        match self.group {
            "" => matches!(self.kind, "Pod" | "ReplicationController"),
            "apps" => {
                matches!(self.kind, "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
            }
            "batch" => matches!(self.kind, "Job" | "CronJob"),
            _ => false,
        }
    }
}

impl PartialEq<GroupKind> for KindRef<'_> {
    fn eq(&self, other: &GroupKind) -> bool {
        *self == other.borrowed()
    }
}

impl fmt::Display for KindRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(self.kind)
        } else {
            write!(f, "{}.{}", self.kind, self.group)
        }
    }
}

/// Identity of a user's object on the hub. The keys of objects on members are of another type, so that the two are not mixed
/// up; those of what is sent for this one share its text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TemplateKey(ObjectKey);

impl TemplateKey {
    /// The key of an object of either scope.
    #[must_use]
    pub fn new(kind: KindRef<'_>, namespace: Option<&str>, name: &str) -> Self {
        Self(ObjectKey::new(kind.group, kind.kind, namespace, name))
    }

    /// The template of a binding.
    #[must_use]
    pub fn of(resource: &ObjectReference) -> Self {
        let kind = KindRef::of(&resource.api_version, &resource.kind);
        Self::new(kind, resource.namespace.as_deref(), &resource.name)
    }

    /// The target of a WorkloadSpread in this namespace.
    #[must_use]
    pub fn target(namespace: &str, spread: &WorkloadSpread) -> Self {
        let target = &spread.spec.target_ref;
        let kind = KindRef::of(&target.api_version, &target.kind);
        Self::new(kind, Some(namespace), &target.name)
    }

    /// The key of the same object on a member.
    #[must_use]
    pub fn on_members(&self) -> &ObjectKey {
        &self.0
    }

    /// Its group and kind.
    #[must_use]
    pub fn group_kind(&self) -> KindRef<'_> {
        KindRef { group: self.0.group(), kind: self.0.kind() }
    }

    /// Its namespace; `None` for cluster-scoped objects.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.0.namespace()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The key of this template's binding, which need not exist.
    #[must_use]
    pub fn binding(&self) -> BindingKey {
        let KindRef { group, kind } = self.group_kind();
        BindingKey::of(self.namespace(), &binding_name(self.name(), kind, group))
    }
}

impl fmt::Display for TemplateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for TemplateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
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
