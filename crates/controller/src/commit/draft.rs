//! The desired content of a binding: the body of its creation, or a merge patch.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::binding::{
    BindingPriority, DecisionRecord, GracefulEvictionTask, Preemption, PreservedState,
    RequiringBinding, ResourceBindingSpec, TargetCluster,
};
use atoll_api::change_guard::HeldChange;
use atoll_api::policy::{ConflictResolution, PropagationPolicySpec};
use atoll_api::{Shared, VERSION, WORK_GROUP, marks};
use atoll_scheduler::{Claim as Asked, Standing};
use serde_json::{Value, json};

use super::diff::merge_patch;
use super::outbox;
use crate::detect::Claim;
use crate::index::extract::Demand;
use crate::index::rows::Binding;
use crate::index::template::Template;
use crate::schedule::priority::Priority;

/// The durable part of a decision.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Decided {
    /// Summary of the decision.
    pub record: DecisionRecord,
    /// Shares.
    pub clusters: Vec<TargetCluster>,
    /// The whole list of eviction tasks.
    pub evictions: Vec<GracefulEvictionTask>,
    /// Labels for the new copies of a workload that failed elsewhere.
    pub preserved: Option<Box<PreservedState>>,
    /// Room taken from bindings of lower priority.
    pub preempts: Vec<Preemption>,
    /// Decisions of bindings of higher priority that this one has followed.
    pub preempted_by: Vec<String>,
    /// The placement in force, as JSON; `None` if the decision did not evaluate it.
    pub applied_placement: Option<Arc<str>>,
}

impl Decided {
    /// Whether committing this would change only the decision's own marks in the binding.
    #[must_use]
    pub(crate) fn changes_nothing(&self, binding: &Binding) -> bool {
        let Some(last) = &binding.spec.decision else { return false };
        let new = &self.record;
        (new.outcome, new.desired, &new.pending, &new.affinity_name)
            == (last.outcome, last.desired, &last.pending, &last.affinity_name)
            && self.clusters == binding.spec.clusters
            && self.evictions == binding.spec.graceful_eviction_tasks
            && (self.applied_placement.is_none()
                || self.applied_placement.as_deref()
                    == binding.annotation(marks::APPLIED_PLACEMENT))
            && !rebalance_waits(binding)
    }
}

/// Whether a rebalance was requested after the last decision.
fn rebalance_waits(binding: &Binding) -> bool {
    let asked = binding.spec.reschedule_triggered_at.as_deref();
    let decided = binding.spec.decision.as_ref().map(|decision| &decision.at);
    asked.is_some_and(|asked| decided.is_none_or(|decided| asked > decided))
}

/// What the objects that refer to an object want of it.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Required {
    /// The bindings of those objects, with their clusters.
    pub by: Vec<RequiringBinding>,
    /// Overwrite if any of them says so.
    pub conflict: ConflictResolution,
    /// Whether any of them leaves its objects on members when it is deleted.
    pub preserve: bool,
}

/// The body that creates a binding with its first decision, finalizer and owner in place.
#[must_use]
pub(crate) fn create(
    (template, demand): (&Template, &Demand),
    claim: &Claim,
    priority: &Priority,
    decided: &Decided,
    required: &Required,
) -> Value {
    let mut spec = ResourceBindingSpec::default();
    set_from_template(&mut spec, template, demand);
    set_from_claim(&mut spec, claim, priority);
    set_decision(&mut spec, decided);
    spec.required_by.clone_from(&required.by);
    let mut labels = BTreeMap::new();
    let mut annotations = BTreeMap::new();
    set_marks(&mut labels, &mut annotations, claim, Some(decided));
    let metadata = json!({
        "labels": labels,
        "annotations": annotations,
        "ownerReferences": [{
            "apiVersion": template.api_version(),
            "kind": template.key.group_kind().kind,
            "name": template.key.name(),
            "uid": template.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        }],
    });
    body(template, metadata, &spec)
}

/// The standing of a binding while a decision on it is committed.
#[must_use]
pub(crate) fn standing(
    (template, demand): (&Template, &Demand),
    asked: &Asked,
    priority: i32,
    decided: &Decided,
) -> Standing {
    let spec = ResourceBindingSpec {
        resource: template.reference(),
        placement: Some(asked.placement.clone()),
        scheduler_name: Some(asked.scheduler_name.as_str().into()),
        suspension: asked.suspension.clone().map(Box::new),
        replicas: demand.replicas,
        components: demand.components.clone(),
        schedule_priority: Some(BindingPriority { priority }),
        preempts: decided.preempts.clone(),
        preempted_by: decided.preempted_by.clone(),
        ..ResourceBindingSpec::default()
    };
    Standing::read(&spec, template.extract.workload_policy.is_some()).committing(&decided.record.id)
}

/// The body that creates the binding of an object that goes where others refer to it. The object does not own it: when
/// the object is deleted on the hub, members keep theirs while others need it.
#[must_use]
pub(crate) fn attach(template: &Template, demand: &Demand, required: &Required) -> Value {
    let mut spec = ResourceBindingSpec::default();
    set_from_template(&mut spec, template, demand);
    set_from_parents(&mut spec, required);
    body(template, json!({}), &spec)
}

fn body(template: &Template, mut metadata: Value, spec: &ResourceBindingSpec) -> Value {
    let key = template.key.binding();
    let kind = if key.namespace().is_some() { "ResourceBinding" } else { "ClusterResourceBinding" };
    metadata["name"] = json!(key.name());
    metadata["finalizers"] = json!([marks::BINDING_FINALIZER]);
    if let Some(namespace) = key.namespace() {
        metadata["namespace"] = json!(namespace);
    }
    json!({
        "apiVersion": format!("{WORK_GROUP}/{VERSION}"),
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    })
}

/// What a binding copies from other objects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Upkeep<'a> {
    /// The template that the binding is for.
    pub template: &'a Template,
    /// Its replicas.
    pub demand: &'a Demand,
    /// What claims the template.
    pub claim: &'a Claim,
    /// Its priority.
    pub priority: &'a Priority,
    /// No policy claims the object any more: remove the marks that name the last one.
    pub unclaimed: bool,
    /// What the objects that refer to it want.
    pub required: &'a Required,
    /// The change by people that waits.
    pub held: Option<&'a HeldChange>,
}

/// The merge patch that brings a binding in line with claim, template and, if given, a new decision; `None` if it
/// already is. `acknowledged` tells which decisions history holds.
#[must_use]
pub(crate) fn change(
    binding: &Binding,
    upkeep: &Upkeep<'_>,
    decided: Option<&Decided>,
    acknowledged: impl Fn(&str) -> bool,
) -> Option<Value> {
    let mut after = next(binding, upkeep, decided, acknowledged);
    let mut before = Changeable {
        labels: BTreeMap::from(&binding.meta.labels),
        annotations: BTreeMap::from(&binding.meta.annotations),
        spec: binding.spec.clone(),
    };
    leave_out_equal(&mut before, &mut after);
    let json = |Changeable { labels, annotations, spec }: Changeable| {
        json!({
            "metadata": {"labels": labels, "annotations": annotations},
            "spec": spec,
        })
    };
    let mut patch = merge_patch(&json(before), &json(after))?;
    patch["metadata"]["resourceVersion"] = json!(binding.resource_version());
    forget_managed_fields(&mut patch);
    Some(patch)
}

/// Leaves out of both what they have in common, of the parts that mostly stay: comparing them as JSON takes longer.
fn leave_out_equal(before: &mut Changeable, after: &mut Changeable) {
    fn leave_out<T: PartialEq + Default>(before: &mut T, after: &mut T) {
        if before == after {
            (*before, *after) = (T::default(), T::default());
        }
    }
    leave_out(&mut before.labels, &mut after.labels);
    leave_out(&mut before.annotations, &mut after.annotations);
    let (before, after) = (&mut before.spec, &mut after.spec);
    // The largest part by far.
    leave_out(&mut before.placement, &mut after.placement);
    leave_out(&mut before.resource, &mut after.resource);
    leave_out(&mut before.replica_requirements, &mut after.replica_requirements);
    leave_out(&mut before.failover, &mut after.failover);
}

/// The parts of a binding that change, as they are or will be.
pub(crate) struct Changeable {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its spec.
    pub spec: ResourceBindingSpec,
}

/// The binding in line with claim, template and, if given, a new decision.
#[must_use]
pub(crate) fn next(
    binding: &Binding,
    upkeep: &Upkeep<'_>,
    decided: Option<&Decided>,
    acknowledged: impl Fn(&str) -> bool,
) -> Changeable {
    let Upkeep { template, demand, claim, priority, unclaimed, required, held: waits } = *upkeep;
    let mut spec = binding.spec.clone();
    set_from_template(&mut spec, template, demand);
    if claim.holds() {
        set_from_claim(&mut spec, claim, priority);
    }
    if binding.is_attached() && !claim.holds() {
        set_from_parents(&mut spec, required);
    }
    spec.required_by.clone_from(&required.by);
    spec.held = waits.cloned().map(Box::new);
    if let Some(decided) = decided {
        spec.unrecorded = outbox::after_commit(&binding.spec, acknowledged);
        set_decision(&mut spec, decided);
    }
    let mut labels = BTreeMap::from(&binding.meta.labels);
    let mut annotations = BTreeMap::from(&binding.meta.annotations);
    if claim.holds() || unclaimed {
        set_marks(&mut labels, &mut annotations, claim, decided);
    } else if let Some(decided) = decided {
        set_applied_placement(&mut annotations, decided);
    }
    Changeable { labels, annotations, spec }
}

/// Makes the hub stop tracking who owns which field of the binding. The managed fields are half of a binding's size, and
/// comparing them is a third of the time that kube-apiserver takes for a commit.
fn forget_managed_fields(patch: &mut Value) {
    patch["metadata"]["managedFields"] = json!([{}]);
}

/// The guarded merge patch that removes our finalizer.
#[must_use]
pub(crate) fn without_finalizer(binding: &Binding) -> Value {
    let finalizers = binding.meta.finalizers.iter();
    let kept: Vec<_> =
        finalizers.filter(|finalizer| ***finalizer != *marks::BINDING_FINALIZER).collect();
    json!({"metadata": {"resourceVersion": binding.resource_version(), "finalizers": kept}})
}

fn set_from_template(spec: &mut ResourceBindingSpec, template: &Template, demand: &Demand) {
    spec.resource = template.reference();
    spec.replicas = demand.replicas;
    spec.replica_requirements.clone_from(&demand.requirements);
    spec.components.clone_from(&demand.components);
}

fn set_from_claim(spec: &mut ResourceBindingSpec, claim: &Claim, priority: &Priority) {
    let none = PropagationPolicySpec::default();
    let policy = claim.policy().map_or(&none, |policy| &policy.spec);
    spec.placement = Some(policy.placement.clone());
    let name = policy.scheduler_name.as_str();
    spec.scheduler_name = Some(name).filter(|name| !name.is_empty()).map(Into::into);
    spec.propagate_deps = policy.propagate_deps;
    spec.suspension = policy.suspension.clone().map(Box::new);
    spec.failover = policy.failover.clone().map(Shared::from);
    spec.conflict_resolution = policy.conflict_resolution;
    spec.preserve_resources_on_deletion = policy.preserve_resources_on_deletion;
    if let Priority::Known(priority) = priority {
        spec.schedule_priority = *priority;
    }
}

fn set_from_parents(spec: &mut ResourceBindingSpec, required: &Required) {
    spec.required_by.clone_from(&required.by);
    spec.conflict_resolution = required.conflict;
    spec.preserve_resources_on_deletion = required.preserve;
}

fn set_decision(spec: &mut ResourceBindingSpec, decided: &Decided) {
    spec.clusters.clone_from(&decided.clusters);
    spec.graceful_eviction_tasks.clone_from(&decided.evictions);
    spec.preserved_state.clone_from(&decided.preserved);
    spec.preempts.clone_from(&decided.preempts);
    spec.preempted_by.clone_from(&decided.preempted_by);
    spec.decision = Some(decided.record.clone());
}

fn set_marks(
    labels: &mut BTreeMap<String, String>,
    annotations: &mut BTreeMap<String, String>,
    claim: &Claim,
    decided: Option<&Decided>,
) {
    for label in [marks::POLICY_UID, marks::CLUSTER_POLICY_UID] {
        labels.remove(label);
    }
    for annotation in [marks::POLICY_NAME, marks::POLICY_NAMESPACE] {
        annotations.remove(annotation);
    }
    if let Some(policy) = claim.policy() {
        let label = match &policy.key.namespace {
            Some(namespace) => {
                annotations.insert(marks::POLICY_NAMESPACE.to_owned(), namespace.clone());
                marks::POLICY_UID
            }
            None => marks::CLUSTER_POLICY_UID,
        };
        labels.insert(label.to_owned(), policy.uid.clone());
        annotations.insert(marks::POLICY_NAME.to_owned(), policy.key.name.clone());
    }
    if let Some(decided) = decided {
        set_applied_placement(annotations, decided);
    }
}

fn set_applied_placement(annotations: &mut BTreeMap<String, String>, decided: &Decided) {
    if let Some(placement) = &decided.applied_placement {
        annotations.insert(marks::APPLIED_PLACEMENT.to_owned(), placement.to_string());
    }
}
