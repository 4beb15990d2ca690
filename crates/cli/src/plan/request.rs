//! What the leader is asked for, and what it answers: an object of kind `Plan` in `review.atoll.dev`.

use atoll_api::rebalancer::WorkloadReference;
use atoll_api::{REVIEW_GROUP, ResourceBinding, VERSION};
use atoll_apimachinery::ApiError;
use atoll_scheduler::Decision;
use atoll_scheduler::detect::{KindRef, TemplateKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::compare::Plan;
use super::manifests::Manifest;
use super::what_if::Assumed;

/// The kind.
pub(crate) const KIND: &str = "Plan";

/// A request for a plan, or with a status the plan.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PlanObject {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(crate) spec: PlanSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<PlanStatus>,
}

impl PlanObject {
    pub(super) fn new(spec: PlanSpec) -> Self {
        let api_version = format!("{REVIEW_GROUP}/{VERSION}");
        Self { api_version, kind: KIND.to_owned(), spec, status: None }
    }

    /// Whether it is what it is sent as.
    ///
    /// # Errors
    /// It names another kind.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        let api_version = format!("{REVIEW_GROUP}/{VERSION}");
        let wrong = |field: &str, given: &str, expected: &str| {
            ApiError::bad_request(format!("{field}: is {given:?}, but must be {expected:?}"))
        };
        if self.api_version != api_version {
            return Err(wrong("apiVersion", &self.api_version, &api_version));
        }
        if self.kind != KIND {
            return Err(wrong("kind", &self.kind, KIND));
        }
        Ok(())
    }
}

/// The key of a workload.
pub(crate) fn key(workload: &WorkloadReference) -> TemplateKey {
    let WorkloadReference { api_version, kind, namespace, name } = workload;
    TemplateKey::new(KindRef::of(api_version, kind), namespace.as_deref(), name)
}

/// A change.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct PlanSpec {
    /// Objects as the hub would store them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) objects: Vec<Value>,
    /// What is assumed besides.
    pub(super) assumed: Assumed,
    /// The SchedulerConfiguration that the controller would get, as YAML.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scheduler_configuration: Option<String>,
    /// Whether the answer has the manifests before and after.
    pub(super) manifests: bool,
    /// Whether the answer has the decisions.
    pub(super) decisions: bool,
}

/// The plan.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PlanStatus {
    pub(super) plan: Plan,
    /// The manifests that change; those of workloads that the caller may not read are only counted in the plan.
    pub(super) manifests: Vec<Manifest>,
    /// The decisions on what the change may affect, if they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) decisions: Vec<Shown>,
    /// What the plan does not contain.
    pub(super) problems: Vec<String>,
}

/// A workload with its decision, and its binding as it is.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shown {
    pub(super) workload: WorkloadReference,
    /// `None` if nothing can be decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) decision: Option<Box<Decision>>,
    /// Why nothing is decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) binding: Option<ResourceBinding>,
}
