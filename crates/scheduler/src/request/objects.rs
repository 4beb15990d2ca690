//! Converts objects to a request. The controller and the offline reader share this code.

use std::collections::BTreeMap;

use atoll_api::binding::{Component, ResourceBindingSpec, ResourceBindingStatus};
use atoll_api::marks::{APPLIED_PLACEMENT, WORKLOAD_POLICY, WORKLOAD_POLICY_ALIASES};
use atoll_api::names::binding_name;
use atoll_api::placement::Placement;
use atoll_api::policy::{DEFAULT_PROFILE, Failover, PropagationPolicySpec, Suspension};
use atoll_api::{ClusterName, Shared, TemplateUid};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use atoll_decision::{Applied, BindingKey, PolicyRef};

use super::{Previous, Priority, RecoverAfter, Report, Request, TaintEviction, Template};

/// Why objects cannot be converted to a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The template lacks a field that every object has.
    #[error("{field}: missing; every Kubernetes object needs one")]
    Missing {
        /// Path of the field.
        field: &'static str,
    },
    /// The number of replicas is not a whole number. An API server would reject it, but a file may contain anything.
    #[error("{field}: {value} must be a whole number")]
    Number {
        /// Path of the field.
        field: String,
        /// The value, as JSON.
        value: String,
    },
    /// The annotation with the placement in force is not JSON.
    #[error("metadata.annotations[{APPLIED_PLACEMENT}]: not JSON: {problem}")]
    AppliedPlacement {
        /// The parser's message.
        problem: String,
    },
}

/// What a policy requests for the objects that it claims.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// The placement.
    pub placement: Shared<Placement>,
    /// The claiming policy, if any.
    pub policies: Vec<PolicyRef>,
    /// Profile of the scheduler.
    pub scheduler_name: String,
    /// How work leaves a cluster.
    pub failover: Option<Failover>,
    /// What is suspended.
    pub suspension: Option<Suspension>,
}

impl Default for Claim {
    /// The claim for an object without a policy: all clusters, default profile.
    fn default() -> Self {
        Self {
            placement: Shared::default(),
            policies: Vec::new(),
            scheduler_name: DEFAULT_PROFILE.to_owned(),
            failover: None,
            suspension: None,
        }
    }
}

impl Claim {
    /// The claim of a PropagationPolicy or ClusterPropagationPolicy.
    #[must_use]
    pub fn of_policy(kind: &str, meta: &ObjectMeta, spec: &PropagationPolicySpec) -> Self {
        Self {
            placement: spec.placement.clone(),
            policies: vec![policy_ref(kind, meta)],
            scheduler_name: spec.scheduler_name.clone(),
            failover: spec.failover.clone(),
            suspension: spec.suspension.clone(),
        }
    }

    /// The binding's last claim. It stays in force while no policy claims the template.
    #[must_use]
    pub fn of_binding(spec: &ResourceBindingSpec) -> Self {
        Self {
            placement: spec.placement.clone().unwrap_or_default(),
            policies: Vec::new(),
            scheduler_name: spec.scheduler_name.as_deref().unwrap_or(DEFAULT_PROFILE).to_owned(),
            failover: spec.failover.as_deref().cloned(),
            suspension: spec.suspension.as_deref().cloned(),
        }
    }
}

/// A reference to a policy object.
#[must_use]
pub fn policy_ref(kind: &str, meta: &ObjectMeta) -> PolicyRef {
    PolicyRef {
        kind: kind.to_owned(),
        namespace: meta.namespace.clone(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        generation: meta.generation.unwrap_or_default(),
    }
}

/// An existing binding.
#[derive(Debug, Clone, Copy)]
pub struct Existing<'a> {
    /// Its name.
    pub name: Option<&'a str>,
    /// Its labels; used only where the template is not available.
    pub labels: Option<&'a BTreeMap<String, String>>,
    /// The annotation with the placement in force.
    pub applied_placement: Option<&'a str>,
    /// Its spec.
    pub spec: &'a ResourceBindingSpec,
    /// Its status; used only if the spec has no decision.
    pub status: Option<&'a ResourceBindingStatus>,
}

impl<'a> Existing<'a> {
    /// A binding of the hub's API.
    #[must_use]
    pub fn of(
        metadata: &'a ObjectMeta,
        spec: &'a ResourceBindingSpec,
        status: Option<&'a ResourceBindingStatus>,
    ) -> Self {
        let annotations = metadata.annotations.as_ref();
        Self {
            name: metadata.name.as_deref(),
            labels: metadata.labels.as_ref(),
            applied_placement: annotations
                .and_then(|all| all.get(APPLIED_PLACEMENT))
                .map(String::as_str),
            spec,
            status,
        }
    }
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// apiVersion, kind or metadata.name is missing.
    pub fn read(object: &Value) -> Result<Self, RequestError> {
        let text = |path: &str, field| {
            let found = object.pointer(path).and_then(Value::as_str).filter(|t| !t.is_empty());
            found.map(str::to_owned).ok_or(RequestError::Missing { field })
        };
        let labels: BTreeMap<String, String> = object
            .pointer("/metadata/labels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect();
        let pod_labels = atoll_interpreter::pod_labels(object);
        Self::check(object)?;
        Ok(Self {
            uid: text("/metadata/uid", "metadata.uid").unwrap_or_default().into(),
            api_version: text("/apiVersion", "apiVersion")?,
            kind: text("/kind", "kind")?,
            namespace: text("/metadata/namespace", "metadata.namespace").ok(),
            name: text("/metadata/name", "metadata.name")?,
            replicas: atoll_interpreter::replicas(object),
            requirements: atoll_interpreter::requirements(object).map(Shared::from),
            components: components(object),
            workload_policy: named_workload_policy(&labels, &pod_labels),
            labels,
            pod_labels,
        })
    }

    /// Whether the numbers of a template can be decided on.
    ///
    /// # Errors
    /// A number of replicas is not a whole number.
    pub fn check(object: &Value) -> Result<(), RequestError> {
        if atoll_interpreter::replicas(object).is_none() {
            return Ok(());
        }
        for name in ["replicas", "parallelism", "completions"] {
            let given = object["spec"].get(name).filter(|value| !value.is_null());
            if let Some(value) = given.filter(|value| !value.is_i64()) {
                let (field, value) = (format!("spec.{name}"), value.to_string());
                return Err(RequestError::Number { field, value });
            }
        }
        Ok(())
    }

    /// Reads the template's facts from its binding, for readers that have only the binding. The binding's labels
    /// replace those of the template and its pods.
    #[must_use]
    pub fn of_binding(
        labels: Option<&BTreeMap<String, String>>,
        spec: &ResourceBindingSpec,
    ) -> Self {
        let labels = labels.cloned().unwrap_or_default();
        Self {
            uid: spec.resource.uid.as_ref().map(TemplateUid::from).unwrap_or_default(),
            api_version: spec.resource.api_version.clone(),
            kind: spec.resource.kind.clone(),
            namespace: spec.resource.namespace.clone(),
            name: spec.resource.name.clone(),
            workload_policy: named_workload_policy(&labels, &labels),
            pod_labels: labels.clone(),
            labels,
            replicas: spec.replicas,
            requirements: spec.replica_requirements.clone(),
            components: spec.components.clone(),
        }
    }
}

fn components(object: &Value) -> Vec<Component> {
    let found = atoll_interpreter::components(object).unwrap_or_default();
    found.into_iter().map(Component::from).collect()
}

/// The WorkloadPolicy that the labels of a workload name, or else those of its pods.
#[must_use]
pub fn named_workload_policy(
    labels: &BTreeMap<String, String>,
    pod_labels: &BTreeMap<String, String>,
) -> Option<String> {
    let named = |labels: &BTreeMap<String, String>| {
        let mut names = std::iter::once(WORKLOAD_POLICY).chain(WORKLOAD_POLICY_ALIASES);
        names.find_map(|name| labels.get(name).cloned())
    };
    named(labels).or_else(|| named(pod_labels))
}

impl Previous {
    /// Reads the state after the last decision from a binding.
    ///
    /// # Errors
    /// The annotation with the placement in force is not JSON.
    pub fn read(binding: Existing<'_>) -> Result<Self, RequestError> {
        let applied_placement = binding
            .applied_placement
            .map(Applied::read)
            .transpose()
            .map_err(|e| RequestError::AppliedPlacement { problem: e.to_string() })?;
        let spec = binding.spec;
        let status = binding.status.filter(|_| spec.decision.is_none());
        Ok(Self {
            clusters: spec.clusters.clone(),
            decision: spec.decision.clone(),
            applied_placement,
            eviction_tasks: spec.graceful_eviction_tasks.clone(),
            preserved: spec.preserved_state.as_deref().cloned(),
            before_members_scaled: None,
            mends_in_background: false,
            preempts: spec.preempts.clone(),
            preempted_by: spec.preempted_by.clone(),
            reschedule_triggered_at: spec.reschedule_triggered_at.as_ref().map(|time| time.0),
            last_scheduled_time: status
                .and_then(|status| status.last_scheduled_time.as_ref())
                .map(|time| time.0),
            affinity_name: status
                .and_then(|status| status.scheduler_observing_affinity_name.clone()),
        })
    }
}

impl Request {
    /// Builds a request.
    ///
    /// # Errors
    /// The template or the binding is invalid; the error names the field.
    pub fn from_objects(
        template: &Value,
        claim: &Claim,
        binding: Option<Existing<'_>>,
        reports: BTreeMap<ClusterName, Report>,
        now: Timestamp,
    ) -> Result<Self, RequestError> {
        Self::from_template(Template::read(template)?, claim, binding, reports, now)
    }

    /// Builds a request for a binding whose template is not available.
    ///
    /// # Errors
    /// See [`Previous::read`].
    pub fn from_binding(
        binding: Existing<'_>,
        reports: BTreeMap<ClusterName, Report>,
        now: Timestamp,
    ) -> Result<Self, RequestError> {
        let template = Template::of_binding(binding.labels, binding.spec);
        Self::from_template(template, &Claim::of_binding(binding.spec), Some(binding), reports, now)
    }

    /// Builds a request for a template that was read before.
    ///
    /// # Errors
    /// See [`Previous::read`].
    pub fn from_template(
        template: Template,
        claim: &Claim,
        binding: Option<Existing<'_>>,
        reports: BTreeMap<ClusterName, Report>,
        now: Timestamp,
    ) -> Result<Self, RequestError> {
        let name = binding
            .and_then(|binding| binding.name.map(str::to_owned))
            .unwrap_or_else(|| binding_name(&template.name, &template.kind, template.group()));
        let value = binding.and_then(|binding| binding.spec.schedule_priority);
        let priority = Priority { value: value.unwrap_or_default().priority, class: None };
        Ok(Self {
            key: BindingKey::of(template.namespace.as_deref(), &name),
            placement: claim.placement.clone(),
            policies: claim.policies.clone(),
            scheduler_name: claim.scheduler_name.clone(),
            failover: claim.failover.clone(),
            suspended: claim.suspension.as_ref().is_some_and(|s| s.scheduling),
            previous: binding.map(Previous::read).transpose()?,
            reports,
            priority,
            rebalance: binding.and_then(|of| of.spec.reschedule_mode).unwrap_or_default(),
            recover_after: RecoverAfter::default(),
            taint_eviction: TaintEviction::default(),
            now,
            template,
        })
    }
}

/// Reads a binding that another program may have written. An eviction task without creationTimestamp gets the Unix
/// epoch. A reason that is not an Atoll trigger becomes Failover.
///
/// # Errors
/// The object is not a binding.
pub fn read_binding(mut object: Value) -> Result<atoll_api::ResourceBinding, serde_json::Error> {
    let tasks = object.pointer_mut("/spec/gracefulEvictionTasks").and_then(Value::as_array_mut);
    for task in tasks.into_iter().flatten().filter_map(Value::as_object_mut) {
        let known = |reason: &Value| {
            serde_json::from_value::<atoll_api::binding::Trigger>(reason.clone()).is_ok()
        };
        if !task.get("reason").is_some_and(known) {
            task.insert("reason".to_owned(), "Failover".into());
        }
        task.entry("creationTimestamp").or_insert_with(|| Timestamp::UNIX_EPOCH.to_string().into());
    }
    serde_json::from_value(object)
}

/// Reads a Cluster that another program may have written. Its conditions are dropped, because they may lack fields.
///
/// # Errors
/// The object is not a Cluster.
pub fn read_cluster(mut object: Value) -> Result<atoll_api::Cluster, serde_json::Error> {
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("conditions");
    }
    serde_json::from_value(object)
}
