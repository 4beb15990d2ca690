//! The objects of a Karmada control plane, and how they belong together.

use std::collections::BTreeMap;
use std::fmt;

use atoll_api::binding::TargetCluster;
use serde::Deserialize;
use serde_json::Value;

/// Prefix of the namespaces that hold the Works of a member.
pub const EXECUTION_PREFIX: &str = "karmada-es-";

/// An object of a user, regardless of its version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// API group; empty for core.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace; `None` for cluster-scoped objects.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl ObjectRef {
    /// The identity of an object; `None` if it lacks a part.
    #[must_use]
    pub fn of(object: &Value) -> Option<Self> {
        let metadata = &object["metadata"];
        Self::from_parts(object, &metadata["namespace"], &metadata["name"])
    }

    fn from_parts(object: &Value, namespace: &Value, name: &Value) -> Option<Self> {
        let text =
            |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let api_version = object["apiVersion"].as_str()?;
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        Some(Self {
            group: group.to_owned(),
            kind: text(&object["kind"])?,
            namespace: text(namespace),
            name: text(name)?,
        })
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " {namespace}/{}", self.name),
            None => write!(f, " {}", self.name),
        }
    }
}

/// Name of a policy; without a namespace it is cluster-scoped.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyName {
    /// Namespace.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl PolicyName {
    /// The name of a policy.
    #[must_use]
    pub fn of(policy: &Value) -> Self {
        let text = |field: &str| policy["metadata"][field].as_str().map(str::to_owned);
        Self { namespace: text("namespace"), name: text("name").unwrap_or_default() }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "PropagationPolicy {namespace}/{}", self.name),
            None => write!(f, "ClusterPropagationPolicy {}", self.name),
        }
    }
}

/// A ResourceBinding or ClusterResourceBinding.
#[derive(Debug, Clone, PartialEq)]
pub struct Binding {
    /// The object.
    pub object: Value,
    /// What it is for.
    pub of: ObjectRef,
    /// apiVersion of that.
    pub api_version: String,
    /// Its clusters.
    pub clusters: Vec<TargetCluster>,
    /// Clusters that need the object because of others.
    pub required: Vec<String>,
    /// The policy that claims the object.
    pub policy: Option<PolicyName>,
}

/// The part of a binding's spec that matters here.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    clusters: Vec<TargetCluster>,
    required_by: Vec<Requiring>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Requiring {
    clusters: Vec<TargetCluster>,
}

/// Why an object of Karmada cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {name}: {problem}")]
pub struct Unreadable {
    kind: String,
    name: String,
    problem: String,
}

fn unreadable(object: &Value, problem: impl ToString) -> Unreadable {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Unreadable {
        kind: text(&object["kind"]),
        name: text(&object["metadata"]["name"]),
        problem: problem.to_string(),
    }
}

impl Binding {
    /// Reads one.
    ///
    /// # Errors
    /// The field that is wrong.
    pub fn read(object: Value) -> Result<Self, Unreadable> {
        let resource = &object["spec"]["resource"];
        let of = ObjectRef::from_parts(resource, &resource["namespace"], &resource["name"])
            .ok_or_else(|| unreadable(&object, "spec.resource is not complete"))?;
        let api_version = resource["apiVersion"].as_str().unwrap_or_default().to_owned();
        let spec =
            Spec::deserialize(&object["spec"]).map_err(|error| unreadable(&object, error))?;
        let mut required: Vec<String> = spec
            .required_by
            .into_iter()
            .flat_map(|by| by.clusters)
            .map(|target| target.name)
            .collect();
        required.sort_unstable();
        required.dedup();
        let annotation =
            |key: &str| object["metadata"]["annotations"][key].as_str().map(str::to_owned);
        let namespaced = annotation("propagationpolicy.karmada.io/name").map(|name| PolicyName {
            namespace: annotation("propagationpolicy.karmada.io/namespace"),
            name,
        });
        let policy = namespaced.or_else(|| {
            let name = annotation("clusterpropagationpolicy.karmada.io/name")?;
            Some(PolicyName { namespace: None, name })
        });
        Ok(Self { of, api_version, clusters: spec.clusters, required, policy, object })
    }

    /// Every cluster that has the object.
    pub fn holders(&self) -> impl Iterator<Item = &str> {
        let targets = self.clusters.iter().map(|target| target.name.as_str());
        let extra = self.required.iter().map(String::as_str);
        targets
            .chain(extra.filter(|name| !self.clusters.iter().any(|target| target.name == **name)))
    }

    /// Whether it is only there because others need it.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.policy.is_none() && !self.required.is_empty()
    }

    /// The affinity term in force.
    #[must_use]
    pub fn term(&self) -> Option<&str> {
        self.object["status"]["schedulerObservingAffinityName"].as_str().filter(|n| !n.is_empty())
    }
}

/// A Work: what one member gets of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// The object.
    pub object: Value,
    /// The member.
    pub cluster: String,
    /// What it is for.
    pub of: ObjectRef,
}

impl Work {
    /// Reads one; `None` for a Work of no member, or without a manifest.
    #[must_use]
    pub fn read(object: Value) -> Option<Self> {
        let namespace = object["metadata"]["namespace"].as_str()?;
        let cluster = namespace.strip_prefix(EXECUTION_PREFIX)?.to_owned();
        let of = ObjectRef::of(&object["spec"]["workload"]["manifests"][0])?;
        Some(Self { object, cluster, of })
    }

    /// The manifest that the member gets.
    #[must_use]
    pub fn manifest(&self) -> &Value {
        &self.object["spec"]["workload"]["manifests"][0]
    }

    /// Whether nothing is sent for it any more, and its object stays when it is deleted.
    #[must_use]
    pub fn is_still(&self) -> bool {
        let spec = &self.object["spec"];
        spec["suspendDispatching"] == true && spec["preserveResourcesOnDeletion"] == true
    }
}

/// What a Karmada control plane has, or one namespace of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Estate {
    /// The only namespace; all if absent.
    pub namespace: Option<String>,
    /// Clusters.
    pub clusters: Vec<Value>,
    /// PropagationPolicies and ClusterPropagationPolicies.
    pub policies: Vec<Value>,
    /// OverridePolicies and ClusterOverridePolicies.
    pub overrides: Vec<Value>,
    /// Bindings, those of other namespaces too: a ClusterPropagationPolicy may claim their objects.
    pub bindings: Vec<Binding>,
    /// Works.
    pub works: Vec<Work>,
    /// Objects of Karmada's further kinds.
    pub extras: Vec<Value>,
    /// The objects of the bindings, of this namespace only.
    pub templates: BTreeMap<ObjectRef, Value>,
}

impl Estate {
    /// Whether an object moves with this run.
    #[must_use]
    pub fn covers(&self, of: &ObjectRef) -> bool {
        self.namespace.is_none() || self.namespace == of.namespace
    }

    /// The bindings that move, those of objects that others need first.
    pub fn moving(&self) -> impl Iterator<Item = &Binding> {
        let of = |attached: bool| {
            let all = self.bindings.iter();
            all.filter(move |binding| self.covers(&binding.of) && binding.is_attached() == attached)
        };
        of(true).chain(of(false))
    }

    /// The Works of an object.
    pub fn works_of<'a>(&'a self, of: &'a ObjectRef) -> impl Iterator<Item = &'a Work> {
        self.works.iter().filter(move |work| work.of == *of)
    }

    /// The Works of the namespaces that move: Karmada makes one for each namespace and member.
    pub fn namespace_works(&self) -> impl Iterator<Item = &Work> {
        let moves = |name: &str| self.moving().any(|b| b.of.namespace.as_deref() == Some(name));
        self.works.iter().filter(move |work| {
            work.of.kind == "Namespace" && work.of.group.is_empty() && moves(&work.of.name)
        })
    }

    /// The namespaces whose objects move.
    #[must_use]
    pub fn namespaces(&self) -> Vec<String> {
        let mut all: Vec<String> =
            self.moving().filter_map(|binding| binding.of.namespace.clone()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The policies that claim what moves.
    pub fn claiming(&self) -> impl Iterator<Item = &Value> {
        self.policies.iter().filter(|policy| {
            let name = PolicyName::of(policy);
            self.moving().any(|binding| binding.policy.as_ref() == Some(&name))
        })
    }

    /// Objects outside of this run that a policy claims, too.
    pub fn others_of<'a>(&'a self, policy: &'a PolicyName) -> impl Iterator<Item = &'a Binding> {
        self.bindings.iter().filter(move |binding| {
            !self.covers(&binding.of) && binding.policy.as_ref() == Some(policy)
        })
    }
}
