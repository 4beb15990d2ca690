//! Which policy claims an object, and why: a pure function over the tables.
//!
//! The rules are Karmada's: namespaced policies before cluster-scoped ones; explicit priority; a selector with a name
//! before one with labels before one for the whole kind; the smaller name. A claim stays until its policy stops matching
//! or is deleted, or another preempts it.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

use atoll_api::marks;
use atoll_api::policy::Preemption;

use crate::index::Index;
use crate::index::key::PolicyKey;
use crate::index::rows::{Policy, Template, Which};

/// How narrowly a selector takes an object. The order is the order of strength.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Match {
    /// The whole kind.
    Kind,
    /// By labels.
    Labels,
    /// By name.
    Name,
}

/// Why nothing may claim an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Excluded {
    /// A kind of Atoll's own.
    OwnKind,
    /// The namespace belongs to Kubernetes or to Atoll.
    ReservedNamespace,
    /// It makes Pods, and something on the hub runs it already.
    HubRunsWorkloads(String),
}

impl fmt::Display for Excluded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OwnKind => f.write_str("it is of a kind of Atoll's own"),
            Self::ReservedNamespace => f.write_str("its namespace is reserved"),
            Self::HubRunsWorkloads(evidence) => write!(f, "HubRunsWorkloads: {evidence}"),
        }
    }
}

/// Why a policy has an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It is the strongest of those that match.
    Strongest(Match),
    /// It had the object before and still matches.
    Kept(Match),
    /// It took the object from another by `preemption: Always`.
    Preempted(Match),
}

/// What claims an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Claim {
    /// A policy.
    Policy(Arc<Policy>, Why),
    /// A WorkloadPolicy's label or a WorkloadSpread's target, without a policy: placed on all clusters.
    Bare,
    /// Nothing.
    None,
    /// Nothing may.
    Excluded(Excluded),
}

impl Claim {
    /// The policy that claims.
    #[must_use]
    pub fn policy(&self) -> Option<&Arc<Policy>> {
        match self {
            Self::Policy(policy, _) => Some(policy),
            Self::Bare | Self::None | Self::Excluded(_) => None,
        }
    }

    /// Whether something claims.
    #[must_use]
    pub fn holds(&self) -> bool {
        matches!(self, Self::Policy(..) | Self::Bare)
    }
}

/// Whether, and how narrowly, a policy selects an object. A deleted policy and one with a broken selector select nothing.
#[must_use]
pub fn selects(policy: &Policy, template: &Template) -> Option<Match> {
    if policy.deleting {
        return None;
    }
    let object_namespace = template.key.namespace.as_ref();
    if policy.key.namespace.is_some() && policy.key.namespace.as_ref() != object_namespace {
        return None;
    }
    let matching = policy.selectors().iter().filter_map(|selector| {
        if selector.kind != template.key.kind {
            return None;
        }
        if selector.namespace.is_some() && selector.namespace.as_ref() != object_namespace {
            return None;
        }
        match &selector.which {
            Which::All => Some(Match::Kind),
            Which::Labels(labels) => labels.matches(&template.labels).then_some(Match::Labels),
            Which::Name(name) => (*name == template.key.name).then_some(Match::Name),
        }
    });
    matching.max()
}

/// What claims this object, given the policy that has it already.
#[must_use]
pub fn claim(index: &Index, template: &Template, current: Option<&PolicyKey>) -> Claim {
    if let Some(excluded) = excluded(index, template) {
        return Claim::Excluded(excluded);
    }
    let mut matching: Vec<(&Arc<Policy>, Match)> = index
        .policies_for(&template.key.kind)
        .filter_map(|policy| selects(policy, template).map(|how| (policy, how)))
        .collect();
    // Strongest first. `false` sorts before `true`: namespaced policies come first.
    matching.sort_by_key(|(policy, how)| {
        (
            policy.key.namespace.is_none(),
            Reverse(policy.spec.priority),
            Reverse(*how),
            policy.key.name.clone(),
        )
    });
    let held = current.and_then(|key| matching.iter().find(|(policy, _)| policy.key == *key));
    let Some((held, held_how)) = held else {
        return match matching.first() {
            Some((policy, how)) => Claim::Policy((*policy).clone(), Why::Strongest(*how)),
            None if bare(index, template) => Claim::Bare,
            None => Claim::None,
        };
    };
    let preempting = matching.iter().find(|(policy, _)| preempts(policy, held));
    match preempting {
        Some((policy, how)) => Claim::Policy((*policy).clone(), Why::Preempted(*how)),
        None => Claim::Policy((*held).clone(), Why::Kept(*held_how)),
    }
}

/// Whether a policy may take an object from the one that has it: a namespaced one from any cluster-scoped one, never the
/// other way round; of the same scope, from one of lower priority.
fn preempts(policy: &Policy, held: &Policy) -> bool {
    if policy.spec.preemption != Preemption::Always || policy.key == held.key {
        return false;
    }
    match (policy.key.namespace.is_some(), held.key.namespace.is_some()) {
        (true, false) => true,
        (false, true) => false,
        _ => policy.spec.priority > held.spec.priority,
    }
}

/// Whether the object asks for placement without any policy.
fn bare(index: &Index, template: &Template) -> bool {
    !template.controlled
        && (template.workload_policy.is_some() || index.spreads_for(&template.key).is_some())
}

fn excluded(index: &Index, template: &Template) -> Option<Excluded> {
    let key = &template.key;
    if key.kind.is_own() {
        return Some(Excluded::OwnKind);
    }
    let is_namespace = key.kind.group.is_empty() && key.kind.kind == "Namespace";
    let namespace = if is_namespace { Some(&key.name) } else { key.namespace.as_ref() };
    if namespace.is_some_and(|namespace| marks::is_reserved_namespace(namespace)) {
        return Some(Excluded::ReservedNamespace);
    }
    if key.kind.makes_pods() {
        return index.hub_runs_workloads().map(Excluded::HubRunsWorkloads);
    }
    None
}

#[cfg(test)]
mod tests;
