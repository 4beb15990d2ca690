//! What is needed of a template each time its binding changes. It is read once, from the object that the hub sent: parsing
//! a template's text again takes longer than a decision.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::binding::{Component, ReplicaRequirements};
use atoll_api::marks::CONFLICT_RESOLUTION;
use atoll_api::policy::ConflictResolution;
use atoll_api::{PodLabels, Shared, share_equal};
use atoll_scheduler::{RequestError, Template as TemplateFacts, named_workload_policy};
use serde_json::Value;

use super::pod_resources::Lacks;
use super::rows::Binding;

/// A function of the object's content, without its status.
#[derive(Debug, PartialEq)]
pub struct Extract {
    /// The WorkloadPolicy in a label of the object or of its pods.
    pub workload_policy: Option<String>,
    /// Labels of its pods.
    pub pod_labels: Arc<PodLabels>,
    /// Its replicas and what they need, without the rules of users.
    pub demand: Demand,
    /// Requests and limits that containers of its pods lack.
    pub lacks: Lacks,
    /// What its annotation says about objects that are in its way on members.
    pub conflicts: Conflicts,
    /// Why it cannot be decided on.
    pub mistake: Option<Box<RequestError>>,
}

/// The annotation about objects that are in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflicts {
    /// There is none: the policy decides.
    AsPolicySays,
    /// The annotation decides.
    Resolved(ConflictResolution),
    /// It has another value.
    Malformed,
}

impl Extract {
    pub(super) fn of(object: &Value, labels: &BTreeMap<String, String>) -> Self {
        let pod_labels = atoll_interpreter::pod_labels(object);
        Self {
            workload_policy: named_workload_policy(labels, &pod_labels),
            pod_labels: Arc::new((&pod_labels).into()),
            demand: Demand::built_in(object),
            lacks: Lacks::of(object),
            conflicts: Conflicts::of(object),
            mistake: TemplateFacts::check(object).err().map(Box::new),
        }
    }

    /// Shares what this one has in common with another: workloads of a namespace often need the same.
    pub(super) fn share(&mut self, other: &Self) {
        share_equal(&mut self.demand.requirements, &other.demand.requirements);
    }
}

impl Conflicts {
    fn of(object: &Value) -> Self {
        match object["metadata"]["annotations"].get(CONFLICT_RESOLUTION) {
            None => Self::AsPolicySays,
            Some(value) => match value.as_str() {
                Some("overwrite") => Self::Resolved(ConflictResolution::Overwrite),
                Some("abort") => Self::Resolved(ConflictResolution::Abort),
                _ => Self::Malformed,
            },
        }
    }
}

/// Replicas of a template, and what one of them needs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Demand {
    /// Absent for kinds without replicas.
    pub replicas: Option<i64>,
    /// Requests and node claim of one replica.
    pub requirements: Option<Shared<ReplicaRequirements>>,
    /// The parts of an object with several pod templates, which has no other replicas.
    pub components: Vec<Component>,
}

impl Demand {
    pub(super) fn of_set(components: Vec<Component>) -> Self {
        Self { components, ..Self::default() }
    }

    pub(super) fn committed(binding: Option<&Binding>) -> Option<Self> {
        let spec = &binding?.spec;
        spec.decision.as_ref()?;
        Some(Self {
            replicas: spec.replicas,
            requirements: spec.replica_requirements.clone(),
            components: spec.components.clone(),
        })
    }

    fn built_in(object: &Value) -> Self {
        let components = atoll_interpreter::components(object).unwrap_or_default();
        if !components.is_empty() {
            return Self::of_set(components.into_iter().map(Component::from).collect());
        }
        Self {
            replicas: atoll_interpreter::replicas(object),
            requirements: atoll_interpreter::requirements(object).map(Shared::from),
            components: Vec::new(),
        }
    }
}
