//! Which policy claims an object, and why. Pure functions, shared by the controller and offline readers.
//!
//! The rules are Karmada's: namespaced policies before cluster-scoped ones; then higher explicit priority; then
//! selectors by name before selectors by label before selectors of a whole kind before those of every kind; then the
//! smaller name. A claim stays until its policy stops matching, is deleted, or another policy preempts it.

mod key;
mod policy;
mod served_kinds;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use atoll_api::binding::ResourceBindingSpec;
use atoll_api::policy::{ActivationPreference, Preemption};
use atoll_api::selector::Labelled;
use atoll_api::{ReservedNamespaces, static_assignment};
use serde_json::Value;

pub use self::key::{GroupKind, KindRef, PolicyKey, TemplateKey};
pub use self::policy::{ObjectError, Policy, ReadSelector, Which};
pub use self::served_kinds::{MOST_KINDS, ServedKinds};
use crate::request::objects::Claim as Asked;
use atoll_decision::PolicyRef;

/// How specifically a selector matches an object. Later variants are stronger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Match {
    /// Every kind of the namespace, with or without labels.
    EveryKind,
    /// The whole kind.
    Kind,
    /// By labels.
    Labels,
    /// By name.
    Name,
}

/// Why no policy may claim an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Excluded {
    /// The object is of an Atoll kind.
    OwnKind,
    /// The namespace belongs to Kubernetes or to Atoll.
    ReservedNamespace,
    /// Every cluster creates this object itself; the text names it.
    MadeByEveryCluster(&'static str),
    /// The kind creates Pods, and controllers on the hub already run such workloads.
    HubRunsWorkloads(String),
}

impl fmt::Display for Excluded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OwnKind => f.write_str("its kind is one of Atoll's own"),
            Self::ReservedNamespace => f.write_str("its namespace is reserved"),
            Self::MadeByEveryCluster(what) => {
                write!(f, "{what} is not propagated: every cluster creates its own")
            }
            Self::HubRunsWorkloads(evidence) => write!(f, "HubRunsWorkloads: {evidence}"),
        }
    }
}

/// Why a policy claims an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It is the strongest matching policy.
    Strongest(Match),
    /// It already claimed the object and still matches.
    Kept(Match),
    /// It preempted another policy by `preemption: Always`.
    Preempted(Match),
}

/// The claim on an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Claim {
    /// A policy.
    Policy(Arc<Policy>, Why),
    /// A WorkloadPolicy's label or a WorkloadSpread's target without a policy: placed on all clusters.
    Bare,
    /// A policy with `activationPreference: Lazy` was changed after the object. It takes effect with the object's next
    /// change; until then the binding stays as it is.
    Waiting(Arc<Policy>),
    /// No policy claims the object.
    None,
    /// No policy may claim the object.
    Excluded(Excluded),
}

impl Claim {
    /// The claiming policy.
    #[must_use]
    pub fn policy(&self) -> Option<&Arc<Policy>> {
        match self {
            Self::Policy(policy, _) => Some(policy),
            Self::Bare | Self::Waiting(_) | Self::None | Self::Excluded(_) => None,
        }
    }

    /// Whether the object is claimed.
    #[must_use]
    pub fn holds(&self) -> bool {
        matches!(self, Self::Policy(..) | Self::Bare)
    }

    /// The input for the scheduler. Without a claim, the binding's last claim stays in force.
    #[must_use]
    pub fn asked(&self, binding: Option<&ResourceBindingSpec>) -> Asked {
        match (self, binding) {
            (Self::Policy(policy, _), _) => Asked {
                placement: policy.spec.placement.clone(),
                policies: vec![PolicyRef {
                    kind: policy.key.kind().to_owned(),
                    namespace: policy.key.namespace.clone(),
                    name: policy.key.name.clone(),
                    uid: policy.uid.clone(),
                    generation: policy.generation,
                }],
                scheduler_name: policy.spec.scheduler_name.clone(),
                failover: policy.spec.failover.clone(),
                suspension: policy.spec.suspension.clone(),
            },
            (Self::Bare, _) | (_, None) => Asked::default(),
            (Self::Waiting(_) | Self::None | Self::Excluded(_), Some(binding)) => {
                Asked::of_binding(binding)
            }
        }
    }
}

/// A whole object, or how to get it: it may have to be parsed, and few rules read it.
#[derive(Clone, Copy)]
pub enum Whole<'a> {
    /// It is here.
    Here(&'a Value),
    /// It is made when it is read.
    Later(&'a dyn Fn() -> Arc<Value>),
}

impl Whole<'_> {
    /// Reads it.
    pub fn read<T>(&self, read: impl FnOnce(&Value) -> T) -> T {
        match self {
            Self::Here(object) => read(object),
            Self::Later(make) => read(&make()),
        }
    }
}

impl fmt::Debug for Whole<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Here(_) => "Here",
            Self::Later(_) => "Later",
        })
    }
}

/// The facts about an object that a claim depends on.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Its name.
    pub key: &'a TemplateKey,
    /// Its labels.
    pub labels: &'a dyn Labelled,
    /// Labels of its namespace. `None` = no namespace, or unknown.
    pub namespace_labels: Option<&'a BTreeMap<String, String>>,
    /// The whole object.
    pub object: Whole<'a>,
    /// Namespaces whose objects are never claimed.
    pub reserved: &'a ReservedNamespaces,
    /// Whether another object controls it, so that no user created it directly.
    pub controlled: bool,
    /// Whether it has an ownerReference.
    pub owned: bool,
    /// Whether a label of the object or of its pod template names a WorkloadPolicy.
    pub names_workload_policy: bool,
    /// Whether a WorkloadSpread targets it.
    pub has_spread: bool,
}

/// Whether and how specifically the resourceSelectors of a policy select an object, regardless of its namespaceSelector
/// ([`Policy::is_for_namespace_of`]). A policy that is being deleted or has an invalid selector
/// selects nothing. `owned`: it has an ownerReference.
#[must_use]
pub fn selects(
    policy: &Policy,
    key: &TemplateKey,
    labels: &(impl Labelled + ?Sized),
    owned: bool,
) -> Option<Match> {
    if policy.deleting {
        return None;
    }
    let outside =
        |namespace: &Option<String>| namespace.is_some() && namespace.as_deref() != key.namespace();
    if outside(&policy.key.namespace) {
        return None;
    }
    let matching = policy.selectors().iter().filter_map(|selector| {
        let every_kind = match &selector.kind {
            Some(kind) if key.group_kind() != *kind => return None,
            None if owned || !is_selected_by_every_kind(key.group_kind()) => return None,
            kind => kind.is_none(),
        };
        if outside(&selector.namespace) {
            return None;
        }
        match &selector.which {
            Which::Labels(selector) if every_kind => {
                selector.matches(labels).then_some(Match::EveryKind)
            }
            Which::All if every_kind => Some(Match::EveryKind),
            Which::All => Some(Match::Kind),
            Which::Labels(selector) => selector.matches(labels).then_some(Match::Labels),
            Which::Name(name) => (*name == key.name()).then_some(Match::Name),
        }
    });
    matching.max()
}

/// Determines the claim on an object from the policies that select its kind and the policy that claims it now.
/// `hub_runs_workloads` returns the evidence that the hub itself runs workloads; it is called only for kinds that
/// create Pods.
#[must_use]
pub fn claim<'a>(
    policies: impl IntoIterator<Item = &'a Arc<Policy>>,
    subject: &Subject<'_>,
    current: Option<&PolicyKey>,
    hub_runs_workloads: impl FnOnce() -> Option<String>,
) -> Claim {
    if let Some(excluded) = excluded(subject, hub_runs_workloads) {
        return Claim::Excluded(excluded);
    }
    let mut matching: Vec<(&Arc<Policy>, Match)> = policies
        .into_iter()
        .filter(|policy| may_claim_assignment(policy, subject))
        .filter(|policy| {
            policy.is_for_namespace_of(subject.key, subject.labels, subject.namespace_labels)
        })
        .filter_map(|policy| {
            let how = selects(policy, subject.key, subject.labels, subject.owned)?;
            Some((policy, how))
        })
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
        let bare = !subject.controlled && (subject.names_workload_policy || subject.has_spread);
        return match matching.first() {
            Some((policy, how)) => in_effect(policy, Why::Strongest(*how), subject),
            None if bare => Claim::Bare,
            None => Claim::None,
        };
    };
    let preempting = matching.iter().find(|(policy, _)| preempts(policy, held));
    match preempting {
        Some((policy, how)) => in_effect(policy, Why::Preempted(*how), subject),
        None => in_effect(held, Why::Kept(*held_how), subject),
    }
}

/// A ResourceQuota of a FederatedResourceQuota's `staticAssignments` follows only the policy that is made from the quota,
/// which claims nothing else: the users of a namespace cannot withdraw what an administrator assigned to it.
fn may_claim_assignment(policy: &Policy, subject: &Subject<'_>) -> bool {
    let key = subject.key;
    let KindRef { group, kind } = key.group_kind();
    let has_label = |label: &str| subject.labels.value_of(label).is_some();
    match static_assignment::policy_for((group, kind, key.name()), has_label) {
        Some(own) => policy.key.namespace.as_deref() == key.namespace() && policy.key.name == own,
        None => !static_assignment::is_policy_name(&policy.key.name),
    }
}

/// The claim of a policy, unless it is lazy and waits for a change of the object.
fn in_effect(policy: &Arc<Policy>, why: Why, subject: &Subject<'_>) -> Claim {
    let lazy = policy.spec.activation_preference == Some(ActivationPreference::Lazy);
    let changed = lazy.then(|| subject.object.read(policy::changed_at)).flatten();
    match policy.changed_at.zip(changed) {
        // Times have whole seconds: a change in the same second counts as later.
        Some((policy_changed, changed)) if changed < policy_changed => {
            Claim::Waiting(policy.clone())
        }
        _ => Claim::Policy(policy.clone(), why),
    }
}

/// Whether a policy may preempt the current one. A namespaced policy may preempt any cluster-scoped one, never the
/// reverse. Within one scope the priority must be higher.
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

/// Whether `kind: "*"` selects objects of a kind: not Secrets, which have to be asked for, and no kinds that every
/// cluster writes itself. Selectors that name the kind are not limited by this.
#[must_use]
pub fn is_selected_by_every_kind(kind: KindRef<'_>) -> bool {
    let never = matches!(
        (kind.group, kind.kind),
        ("", "Secret" | "Event" | "Endpoints" | "Namespace")
            | ("events.k8s.io", "Event")
            | ("discovery.k8s.io", "EndpointSlice")
            | ("coordination.k8s.io", "Lease" | "LeaseCandidate")
            | ("apps", "ControllerRevision")
            | ("storage.k8s.io", "CSIStorageCapacity")
            | ("metrics.k8s.io", "PodMetrics")
    );
    !never && !kind.is_own()
}

/// Why objects of this kind or namespace are never propagated, regardless of policies and bindings.
#[must_use]
pub fn off_limits(key: &TemplateKey, reserved: &ReservedNamespaces) -> Option<Excluded> {
    if key.group_kind().is_own() {
        return Some(Excluded::OwnKind);
    }
    let is_namespace = key.group_kind().is_namespace();
    let namespace = if is_namespace { Some(key.name()) } else { key.namespace() };
    let is_reserved = namespace.is_some_and(|namespace| reserved.contains(namespace));
    is_reserved.then_some(Excluded::ReservedNamespace)
}

/// Objects that the controllers of every cluster create in every namespace. A copy from the hub would conflict with the
/// member's own, and a token of the hub is not valid there.
fn made_by_every_cluster(key: &TemplateKey, object: &Whole<'_>) -> Option<&'static str> {
    let KindRef { group, kind } = key.group_kind();
    if !group.is_empty() {
        return None;
    }
    match (kind, key.name()) {
        ("ServiceAccount", "default") => Some("the ServiceAccount \"default\""),
        ("ConfigMap", "kube-root-ca.crt") => Some("the ConfigMap \"kube-root-ca.crt\""),
        ("Secret", _) => object
            .read(|object| object["type"] == "kubernetes.io/service-account-token")
            .then_some("a service account's token"),
        _ => None,
    }
}

fn excluded(
    subject: &Subject<'_>,
    hub_runs_workloads: impl FnOnce() -> Option<String>,
) -> Option<Excluded> {
    let key = subject.key;
    if let Some(excluded) = off_limits(key, subject.reserved) {
        return Some(excluded);
    }
    if let Some(what) = made_by_every_cluster(key, &subject.object) {
        return Some(Excluded::MadeByEveryCluster(what));
    }
    if key.group_kind().makes_pods() {
        return hub_runs_workloads().map(Excluded::HubRunsWorkloads);
    }
    None
}
