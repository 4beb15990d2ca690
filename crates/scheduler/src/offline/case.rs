//! A scheduling case as a JSON object, and its answer as another.
//!
//! A case is `{"id", "clusters": [Cluster...]}` with one of: `"binding"`, which has placement and replicas itself; or
//! `"workload"` with an optional `"policy"`, and an optional `"binding"` for its current state. Optional fields are
//! `"workloadPolicies"`, `"workloadSpreads"`, `"otherBindings"` (each a binding, or `{"binding", "workload"}` if its
//! pod labels matter) and `"now"`.

use std::collections::BTreeSet;

use atoll_api::binding::{Outcome, TargetCluster};
use atoll_api::policy::PropagationPolicySpec;
use atoll_api::{ResourceBinding, WorkloadPolicy, WorkloadSpread};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::bindings::{existing, facts, reports};
use super::kinds::{self, DEFAULT_NAMESPACE, Role};
use super::world::{Settings, read};
use crate::framework::profile::KARMADA;
use crate::request::objects::{Claim, read_binding, read_cluster};
use crate::request::{TaintEviction, Template};
use crate::{BindingKey, Decision, LiveCluster, Profiles, Request, Scheduler, Tables};

/// A case that cannot be decided.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{problem}")]
pub struct CaseError {
    /// `id` of the case; null if it could not be read.
    pub id: Value,
    /// The field and its problem.
    pub problem: String,
}

/// A case that is ready to be decided.
#[derive(Debug)]
pub struct Case {
    /// The given `id`.
    pub id: Value,
    /// The clusters, policies and other bindings.
    pub tables: Tables,
    /// The binding.
    pub request: Request,
}

/// A caller's check of a case before it is parsed. The error is the problem.
pub type Check<'a> = &'a dyn Fn(&Value) -> Result<(), String>;

/// The answer to a case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CaseAnswer {
    /// `id` of the case.
    pub id: Value,
    /// Shares, by name. Shares of 0 are left out, except for kinds without replicas.
    pub clusters: Vec<TargetCluster>,
    /// Replicas that are not placed.
    pub pending: i64,
    /// Why nothing is placed: `NoClusterFit`, `Unschedulable`, `FailoverInfeasible`, `Invalid`, or `BadCase` for an
    /// unreadable case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'static str>,
    /// Details, with the field to fix if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    #[serde(default)]
    clusters: Vec<Value>,
    #[serde(default)]
    binding: Option<Value>,
    #[serde(default)]
    workload: Option<Value>,
    #[serde(default)]
    policy: Option<Value>,
    #[serde(default)]
    workload_policies: Vec<Value>,
    #[serde(default)]
    workload_spreads: Vec<Value>,
    #[serde(default)]
    other_bindings: Vec<Value>,
    #[serde(default)]
    now: Option<Timestamp>,
}

/// An entry of `otherBindings` with its workload.
#[derive(Deserialize)]
struct OtherWire {
    binding: Value,
    #[serde(default)]
    workload: Option<Value>,
}

/// The parts of a policy that a claim needs. Its selectors are ignored, because the case states that it claims the
/// workload.
#[derive(Deserialize)]
struct PolicyWire {
    #[serde(default)]
    metadata: ObjectMeta,
    spec: PropagationPolicySpec,
}

impl Case {
    /// Reads a case from one JSON object.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn read(line: &str, settings: &Settings) -> Result<Self, CaseError> {
        Self::read_checked(line, settings, &|_| Ok(()))
    }

    /// Like [`Case::read`], but also fails if `check` rejects the case.
    ///
    /// # Errors
    /// See [`Case::read`], and the errors of `check`.
    pub fn read_checked(
        line: &str,
        settings: &Settings,
        check: Check<'_>,
    ) -> Result<Self, CaseError> {
        let value: Value = serde_json::from_str(line).map_err(|error| CaseError {
            id: Value::Null,
            problem: format!("not JSON: {error}"),
        })?;
        if !value.is_object() {
            let problem = "a case must be a JSON object".to_owned();
            return Err(CaseError { id: Value::Null, problem });
        }
        let id = value["id"].clone();
        if let Err(problem) = check(&value) {
            return Err(CaseError { id, problem });
        }
        Wire::deserialize(value)
            .map_err(|error| error.to_string())
            .and_then(|wire| Self::build(id.clone(), wire, settings))
            .map_err(|problem| CaseError { id, problem })
    }

    fn build(id: Value, wire: Wire, settings: &Settings) -> Result<Self, String> {
        let mut tables = Tables::default();
        read_clusters(&mut tables, wire.clusters)?;
        let binding = wire.binding.map(binding_at("binding")).transpose()?;
        let now = wire.now.unwrap_or(settings.now);
        let reports = reports(binding.as_ref());
        let held = binding.as_ref().map(existing);
        let request = match (wire.workload, held) {
            (Some(workload), held) => {
                let workload = in_default_namespace(workload);
                let claim = match (wire.policy, held) {
                    (Some(policy), _) => read_policy(policy)?,
                    (None, Some(held)) => Claim::of_binding(held.spec),
                    (None, None) => Claim::default(),
                };
                Request::from_objects(&workload, &claim, held, reports, now)
                    .map_err(|error| format!("workload.{error}"))?
            }
            (None, Some(_)) if wire.policy.is_some() => {
                return Err("workload: a policy needs the workload that it places".to_owned());
            }
            (None, Some(held)) => {
                Request::from_binding(held, reports, now).map_err(|e| format!("binding.{e}"))?
            }
            (None, None) => {
                return Err("binding: a case needs a binding or a workload".to_owned());
            }
        };
        let mut request = request;
        // Cases are compared with Karmada's scheduler, which runs without its taint manager there.
        request.taint_eviction = TaintEviction::LeftOut;
        if let Some(profile) = &settings.profile {
            request.scheduler_name.clone_from(profile);
        }
        let namespace = request.template.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        for (at, object) in wire.workload_policies.into_iter().enumerate() {
            let policy: WorkloadPolicy = read(in_namespace(object, namespace))
                .map_err(|error| format!("workloadPolicies[{at}]: {error}"))?;
            tables.upsert_workload_policy(&policy);
        }
        for (at, object) in wire.workload_spreads.into_iter().enumerate() {
            let spread: WorkloadSpread = read(in_namespace(object, namespace))
                .map_err(|error| format!("workloadSpreads[{at}]: {error}"))?;
            tables.upsert_workload_spread(&spread);
        }
        read_others(&mut tables, wire.other_bindings, &request.key)?;
        Ok(Self { id, tables, request })
    }

    /// Makes the decision.
    #[must_use]
    pub fn decide(&mut self, profiles: &Profiles) -> Decision {
        // Each case has its own tables, so a scheduler's cache would not apply to it.
        Scheduler::new(profiles.clone()).decide(&self.tables.snapshot(), &self.request)
    }
}

fn read_clusters(tables: &mut Tables, clusters: Vec<Value>) -> Result<(), String> {
    let mut names = BTreeSet::new();
    for (at, object) in clusters.into_iter().enumerate() {
        let cluster = read_cluster(object).map_err(|error| format!("clusters[{at}]: {error}"))?;
        let name = cluster.metadata.name.clone().unwrap_or_default();
        if name.is_empty() {
            return Err(format!("clusters[{at}].metadata.name: missing; every Cluster needs one"));
        }
        tables.upsert_cluster(&cluster, LiveCluster::from_status(&cluster));
        if !names.insert(name.clone()) {
            return Err(format!(
                "clusters[{at}].metadata.name: {name:?} is the name of an earlier Cluster; names must be unique"
            ));
        }
    }
    Ok(())
}

fn read_others(tables: &mut Tables, others: Vec<Value>, own: &BindingKey) -> Result<(), String> {
    let mut keys = BTreeSet::new();
    for (at, entry) in others.into_iter().enumerate() {
        let path = format!("otherBindings[{at}]");
        let other = if entry.get("binding").is_some() {
            OtherWire::deserialize(entry).map_err(|error| format!("{path}: {error}"))?
        } else {
            OtherWire { binding: entry, workload: None }
        };
        let binding = binding_at(&path)(other.binding)?;
        let template = match other.workload {
            Some(workload) => Template::read(&in_default_namespace(workload))
                .map_err(|error| format!("{path}.workload.{error}"))?,
            None => Template::of_binding(binding.metadata.labels.as_ref(), &binding.spec),
        };
        let namespace = binding.metadata.namespace.clone().or(template.namespace.clone());
        let name = binding.metadata.name.clone().unwrap_or_else(|| format!("other-{at}"));
        let key = BindingKey::of(namespace.as_deref(), &name);
        if key == *own || !keys.insert(key.clone()) {
            return Err(format!("{path}.metadata.name: {key} is already in this case"));
        }
        tables.upsert_binding(facts(key, &template, &binding));
    }
    Ok(())
}

fn binding_at(path: &str) -> impl Fn(Value) -> Result<ResourceBinding, String> {
    let path = path.to_owned();
    move |object| read_binding(object).map_err(|error| format!("{path}: {error}"))
}

fn read_policy(mut object: Value) -> Result<Claim, String> {
    let is_cluster_scoped = object["kind"] == "ClusterPropagationPolicy";
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.entry("resourceSelectors").or_insert_with(|| Value::Array(Vec::new()));
    }
    let policy = PolicyWire::deserialize(object).map_err(|error| format!("policy: {error}"))?;
    let kind = if is_cluster_scoped { "ClusterPropagationPolicy" } else { "PropagationPolicy" };
    Ok(Claim::of_policy(kind, &policy.metadata, &policy.spec))
}

fn in_default_namespace(workload: Value) -> Value {
    let api_version = workload["apiVersion"].as_str().unwrap_or_default().to_owned();
    if kinds::is_namespaced(Role::Template, &api_version, &workload) {
        in_namespace(workload, DEFAULT_NAMESPACE)
    } else {
        workload
    }
}

fn in_namespace(mut object: Value, namespace: &str) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.entry("namespace").or_insert_with(|| namespace.into());
    }
    object
}

impl CaseAnswer {
    /// The answer to an unreadable case.
    #[must_use]
    pub fn bad(error: CaseError, line: u64) -> Self {
        Self {
            id: error.id,
            clusters: Vec::new(),
            pending: 0,
            error: Some("BadCase"),
            detail: Some(format!("line {line}: {}", error.problem)),
        }
    }

    /// The answer for a decision.
    #[must_use]
    pub fn of(id: Value, decision: &Decision) -> Self {
        let failed = match decision.outcome() {
            Outcome::NoFit => Some("NoClusterFit"),
            Outcome::Unschedulable => Some("Unschedulable"),
            Outcome::FailoverInfeasible => Some("FailoverInfeasible"),
            Outcome::Invalid => Some("Invalid"),
            Outcome::Placed | Outcome::Partial | Outcome::Unchanged => None,
        };
        let shown = |share: &&TargetCluster| share.replicas > 0 || decision.desired.is_none();
        let mut clusters: Vec<_> = decision.clusters().iter().filter(shown).cloned().collect();
        clusters.sort_by(|a, b| a.name.cmp(&b.name));
        let reason = Some(decision.reason.clone()).filter(|reason| !reason.is_empty());
        let (error, detail) = if decision.profile == KARMADA {
            // Karmada answers with either shares or an error, regardless of running replicas.
            if failed.is_some() {
                clusters.clear();
            }
            let spread = decision.reason.contains("SpreadConstraints");
            let detail = match failed {
                Some("Unschedulable") => spread.then(|| "SpreadConstraints".to_owned()),
                Some("Invalid") => reason,
                _ => None,
            };
            (failed, detail)
        } else {
            (failed.filter(|_| clusters.is_empty()), reason)
        };
        Self { id, clusters, pending: decision.pending_replicas(), error, detail }
    }
}
