//! Objects from files, by role, and the decisions on them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_api::binding::{TargetCluster, Trigger};
use atoll_api::static_assignment::Assigned;
use atoll_api::{
    ChangeGuard, Cluster, ClusterSet, FederatedResourceQuota, ReservedNamespaces, ResourceBinding,
    WorkloadPolicy, WorkloadSpread,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::bindings::{existing, facts, reports};
use super::documents::{Document, InputError};
use super::kinds::{self, DEFAULT_NAMESPACE, Role};
use crate::detect::{
    self, Claim, KindRef, Policy, PolicyKey, ServedKinds, Subject, TemplateKey, Whole,
};
use crate::request::objects::{read_binding, read_cluster};
use crate::request::{Priority, PriorityClass, Template};
use crate::state::affinity_group::memberships;
use crate::state::cluster_sets::{ClusterSets, NAMESPACE_NAME};
use crate::state::standing::Standing;
use crate::{BindingFacts, BindingKey, Decision, LiveCluster, Request, Scheduler, Tables};

/// Settings for all decisions of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Overrides the profile that the policy names.
    pub profile: Option<String>,
    /// The time of all decisions.
    pub now: Timestamp,
}

/// A user's object.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Its name.
    pub key: TemplateKey,
    /// The object as read.
    pub object: Arc<Value>,
    /// The facts that the scheduler uses.
    pub template: Template,
    /// Whether another object controls it.
    pub controlled: bool,
}

impl Workload {
    /// Whether it has an ownerReference.
    #[must_use]
    pub fn is_owned(&self) -> bool {
        let owners = self.object["metadata"]["ownerReferences"].as_array();
        owners.is_some_and(|owners| !owners.is_empty())
    }
}

/// The result for an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Fate {
    /// The scheduler decided.
    Decided(Box<Decision>),
    /// No policy claims it: it is on these clusters, because workloads there refer to it.
    Attached(Vec<TargetCluster>),
    /// No policy claims it, or none may; with the reason.
    NotClaimed(String),
    /// The object is invalid; with the field and the fix.
    Unusable(String),
}

impl Fate {
    /// Why an attached object is where it is.
    pub const ATTACHED: &str = "workloads that are placed there refer to it";
}

/// An object and its result.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The object.
    pub object: TemplateKey,
    /// The result.
    pub fate: Fate,
}

/// All objects of a run.
#[derive(Debug, Default)]
pub struct World {
    /// Clusters, by name.
    pub clusters: BTreeMap<String, Cluster>,
    /// Policies of either scope.
    pub policies: BTreeMap<PolicyKey, Arc<Policy>>,
    /// WorkloadPolicies, by namespace and name.
    pub workload_policies: BTreeMap<(String, String), WorkloadPolicy>,
    /// WorkloadSpreads, by namespace and name.
    pub workload_spreads: BTreeMap<(String, String), WorkloadSpread>,
    /// ClusterSets, by name.
    pub cluster_sets: BTreeMap<String, ClusterSet>,
    /// FederatedResourceQuotas, by namespace and name.
    pub quotas: BTreeMap<(String, String), FederatedResourceQuota>,
    /// ChangeGuards, by name. Decisions do not use them.
    pub guards: BTreeMap<String, ChangeGuard>,
    /// Labels of namespaces, with their names among them.
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// OverridePolicies and ClusterOverridePolicies, in input order. Decisions do not use them.
    pub overrides: Vec<Value>,
    /// ResourceInterpreterCustomizations and ResourceInterpreterWebhookConfigurations, in input order. The caller
    /// applies them to the templates of `workloads`.
    pub interpreters: Vec<Value>,
    /// PriorityClasses: value, and whether `preemptionPolicy` is `Never`.
    pub priority_classes: BTreeMap<String, (i32, bool)>,
    /// The policies that are made from the `staticAssignments` of `quotas`.
    assigned: BTreeMap<PolicyKey, Arc<Policy>>,
    /// Users' objects, in input order.
    pub workloads: Vec<Arc<Workload>>,
    /// Bindings.
    pub bindings: BTreeMap<BindingKey, ResourceBinding>,
    reserved: ReservedNamespaces,
    sets_required: bool,
    seen: Seen,
}

/// What was added.
#[derive(Debug, Default)]
struct Seen {
    objects: BTreeSet<TemplateKey>,
    /// Where templates are in `workloads`.
    places: BTreeMap<BindingKey, usize>,
    /// The kinds that `kind: "*"` may select, within the controller's limit.
    kinds: ServedKinds,
}

/// Labels of a namespace with the one that API servers set, which files may lack.
fn with_name(name: &str, mut labels: BTreeMap<String, String>) -> BTreeMap<String, String> {
    labels.insert(NAMESPACE_NAME.to_owned(), name.to_owned());
    labels
}

impl World {
    /// A world without objects. Objects of these namespaces are not claimed, as in a controller with the same setting.
    #[must_use]
    pub fn new(reserved: ReservedNamespaces) -> Self {
        Self { reserved, ..Self::default() }
    }

    /// Sets whether namespaces that no ClusterSet selects may use no cluster, as in a controller with that setting.
    pub fn require_cluster_sets(&mut self, required: bool) {
        self.sets_required = required;
    }

    /// Adds an object.
    ///
    /// # Errors
    /// The object is invalid, or an object of its kind and name already exists. The error names the field.
    pub fn add(&mut self, document: Document) -> Result<(), InputError> {
        let Document { origin, object } = document;
        self.put(object).map_err(|problem| InputError::new(&origin, problem))
    }

    fn put(&mut self, mut object: Value) -> Result<(), String> {
        let text = |pointer: &str| {
            let found = object.pointer(pointer).and_then(Value::as_str);
            found.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let missing = |field: &str| format!("{field}: missing; every object needs one");
        let api_version = text("/apiVersion").ok_or_else(|| missing("apiVersion"))?;
        let kind = text("/kind").ok_or_else(|| missing("kind"))?;
        let name = text("/metadata/name").ok_or_else(|| missing("metadata.name"))?;
        let role = kinds::role(&api_version, &kind);
        let mut namespace = text("/metadata/namespace");
        if namespace.is_none() && kinds::is_namespaced(role, &api_version, &object) {
            namespace = Some(DEFAULT_NAMESPACE.to_owned());
            object["metadata"]["namespace"] = DEFAULT_NAMESPACE.into();
        }
        let place = namespace.as_deref().map_or(String::new(), |n| format!("{n}/"));
        let of = |problem: String| format!("{kind} {place}{name}: {problem}");
        let group_kind = KindRef::of(&api_version, &kind);
        let key = TemplateKey::new(group_kind, namespace.as_deref(), &name);
        if !self.seen.objects.insert(key.clone()) {
            let problem = "metadata.name: an earlier object has this kind and name; \
                           give each object once";
            return Err(of(problem.to_owned()));
        }
        let spaced = (namespace.clone().unwrap_or_default(), name.clone());
        match role {
            Role::Cluster => {
                let cluster = read_cluster(object).map_err(|error| of(error.to_string()))?;
                self.clusters.insert(name, cluster);
            }
            Role::Policy | Role::ClusterPolicy => {
                let policy = Policy::read(&object).map_err(|error| of(error.to_string()))?;
                self.policies.insert(policy.key.clone(), Arc::new(policy));
            }
            Role::WorkloadPolicy => {
                self.workload_policies.insert(spaced, read(object).map_err(of)?);
            }
            Role::WorkloadSpread => {
                self.workload_spreads.insert(spaced, read(object).map_err(of)?);
            }
            Role::Binding | Role::ClusterBinding => {
                let binding = read_binding(object).map_err(|error| of(error.to_string()))?;
                self.bindings.insert(BindingKey::of(namespace.as_deref(), &name), binding);
            }
            Role::ClusterSet => {
                let set = read(object).map_err(of)?;
                self.cluster_sets.insert(name, set);
            }
            Role::Guard => {
                let guard = read(object).map_err(of)?;
                self.guards.insert(name, guard);
            }
            Role::Quota => {
                let quota: FederatedResourceQuota = read(object).map_err(of)?;
                if let Some(assigned) = Assigned::of(&quota) {
                    let policy =
                        Policy::read(&json!(assigned.policy)).map_err(|e| of(e.to_string()))?;
                    self.assigned.insert(policy.key.clone(), Arc::new(policy));
                }
                self.quotas.insert(spaced, quota);
            }
            Role::Override => self.overrides.push(object),
            Role::Interpreter => self.interpreters.push(object),
            Role::Ignored => {}
            Role::Template => {
                self.read_template(key, Arc::new(object)).map_err(of)?;
            }
        }
        Ok(())
    }

    /// Adds a user's object of this name, which others share.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn add_template(&mut self, key: TemplateKey, object: Arc<Value>) -> Result<(), String> {
        match self.seen.objects.insert(key.clone()) {
            true => self.read_template(key, object),
            false => Err("metadata.name: an earlier object has this kind and name".to_owned()),
        }
    }

    fn read_template(&mut self, key: TemplateKey, object: Arc<Value>) -> Result<(), String> {
        if key.group_kind() == KindRef::of("scheduling.k8s.io/v1", "PriorityClass") {
            let class = read_priority_class(&object)?;
            self.priority_classes.insert(key.name().to_owned(), class);
        }
        let mut template = Template::read(&object).map_err(|error| error.to_string())?;
        if key.group_kind().is_namespace() {
            template.labels = with_name(key.name(), template.labels);
            self.namespaces.insert(key.name().to_owned(), template.labels.clone());
        }
        let controlled = object["metadata"]["ownerReferences"]
            .as_array()
            .is_some_and(|owners| owners.iter().any(|owner| owner["controller"] == true));
        self.place(Arc::new(Workload { key, object, template, controlled }));
        Ok(())
    }

    fn place(&mut self, workload: Arc<Workload>) {
        let key = &workload.key;
        self.seen.places.insert(key.binding(), self.workloads.len());
        if key.namespace().is_some() && detect::is_selected_by_every_kind(key.group_kind()) {
            self.seen.kinds.insert(key.group_kind().to_owned(), String::new());
        }
        self.workloads.push(workload);
    }

    /// Adds a workload of another world, which both share. It is left out if an object of its kind and name is here.
    pub fn share(&mut self, workload: &Arc<Workload>) {
        let key = &workload.key;
        if !self.seen.objects.insert(key.clone()) {
            return;
        }
        let (kind, name) = (key.group_kind(), key.name().to_owned());
        if kind.is_namespace() {
            self.namespaces.insert(name.clone(), workload.template.labels.clone());
        }
        if kind == KindRef::of("scheduling.k8s.io/v1", "PriorityClass")
            && let Ok(class) = read_priority_class(&workload.object)
        {
            self.priority_classes.insert(name, class);
        }
        self.place(workload.clone());
    }

    /// The tables of this world.
    #[must_use]
    pub fn tables(&self) -> Tables {
        let mut tables = Tables::default();
        for cluster in self.clusters.values() {
            tables.upsert_cluster(cluster, LiveCluster::from_status(cluster));
        }
        for policy in self.workload_policies.values() {
            tables.upsert_workload_policy(policy);
        }
        for spread in self.workload_spreads.values() {
            tables.upsert_workload_spread(spread);
        }
        tables.set_cluster_sets(self.reaches().into());
        for quota in self.quotas.values() {
            tables.upsert_quota(quota);
        }
        for (key, binding) in &self.bindings {
            let template = self.template_of(key, binding);
            tables.upsert_binding(facts(key.clone(), &template, binding));
        }
        tables
    }

    /// Which clusters namespaces may use. A namespace without an object has no labels but its name.
    fn reaches(&self) -> ClusterSets {
        let mut sets = ClusterSets::default();
        sets.require(self.sets_required);
        for (name, set) in &self.cluster_sets {
            // Its decisions show what is wrong with an invalid set.
            let _: Result<(), String> = sets.upsert(name, set);
        }
        let namespaced = self.workloads.iter().filter_map(|workload| workload.key.namespace());
        let bound = self.bindings.keys().filter_map(BindingKey::namespace);
        for name in namespaced.chain(bound) {
            sets.set_namespace(name, Some(BTreeMap::new()));
        }
        for (name, labels) in &self.namespaces {
            sets.set_namespace(name, Some(labels.clone()));
        }
        sets
    }

    fn template_of(&self, key: &BindingKey, binding: &ResourceBinding) -> Template {
        self.bound(key).map_or_else(
            || Template::of_binding(binding.metadata.labels.as_ref(), &binding.spec),
            |workload| workload.template.clone(),
        )
    }

    /// The workload of a binding.
    fn bound(&self, key: &BindingKey) -> Option<&Arc<Workload>> {
        self.workloads.get(*self.seen.places.get(key)?)
    }

    /// The workload of this name.
    #[must_use]
    pub fn workload(&self, key: &TemplateKey) -> Option<&Arc<Workload>> {
        self.bound(&key.binding()).filter(|workload| workload.key == *key)
    }

    /// The claim on a workload.
    #[must_use]
    pub fn claim(&self, workload: &Workload) -> Claim {
        let held = self
            .bindings
            .get(&workload.key.binding())
            .and_then(|binding| policy_of(&binding.metadata));
        let of_namespace = self.namespace_labels(&workload.key);
        let subject = Subject {
            key: &workload.key,
            labels: &workload.template.labels,
            namespace_labels: of_namespace.as_deref(),
            object: Whole::Here(&workload.object),
            reserved: &self.reserved,
            controlled: workload.controlled,
            owned: workload.is_owned(),
            names_workload_policy: workload.template.workload_policy.is_some(),
            has_spread: self.spreads_of(&workload.key).next().is_some(),
        };
        // Files cannot show whether a hub runs workloads of its own.
        let namespace = workload.key.namespace();
        let policies = of_namespace_or_none(&self.policies, namespace);
        let policies = policies.chain(of_namespace_or_none(&self.assigned, namespace));
        let policies = policies.filter(|policy| {
            !policy.selects_every_kind()
                || self.seen.kinds.selects(&workload.key.group_kind().to_owned())
                || policy.named_kinds().any(|kind| workload.key.group_kind() == *kind)
        });
        detect::claim(policies, &subject, held.as_ref(), || None)
    }

    /// Labels of an object's namespace. A namespace without an object has none but its name.
    #[must_use]
    pub fn namespace_labels(&self, key: &TemplateKey) -> Option<Cow<'_, BTreeMap<String, String>>> {
        let name = key.namespace()?;
        let known = self.namespaces.get(name).map(Cow::Borrowed);
        Some(known.unwrap_or_else(|| Cow::Owned(with_name(name, BTreeMap::new()))))
    }

    /// Sets the labels of a namespace, unless it is among the objects of the input.
    pub fn know_namespace(&mut self, name: &str, labels: BTreeMap<String, String>) {
        let labels = with_name(name, labels);
        self.namespaces.entry(name.to_owned()).or_insert(labels);
    }

    /// The priority of a claimed object. As in the controller, a binding keeps its value while the class is missing.
    fn priority(&self, claim: &Claim, binding: Option<&ResourceBinding>) -> Priority {
        let held = binding.and_then(|binding| binding.spec.schedule_priority).unwrap_or_default();
        let Some(policy) = claim.policy() else {
            return Priority { value: held.priority, class: None };
        };
        let Some(asked) = &policy.spec.schedule_priority else { return Priority::default() };
        match self.priority_classes.get(&asked.priority_class_name) {
            Some((value, never_preempts)) => Priority {
                value: *value,
                class: Some(PriorityClass {
                    name: asked.priority_class_name.clone(),
                    never_preempts: *never_preempts,
                }),
            },
            None => Priority { value: held.priority, class: None },
        }
    }

    /// The override rules that are made from the `staticAssignments` of `quotas`.
    pub fn assigned_overrides(&self) -> impl Iterator<Item = Value> {
        let assigned = self.quotas.values().filter_map(Assigned::of);
        assigned.map(|assigned| json!(assigned.overrides))
    }

    /// The WorkloadSpreads of a workload.
    pub fn spreads_of(&self, key: &TemplateKey) -> impl Iterator<Item = &WorkloadSpread> {
        self.workload_spreads.iter().filter_map(move |((namespace, _), spread)| {
            (TemplateKey::target(namespace, spread) == *key).then_some(spread)
        })
    }

    /// Decides on every object in input order. Each decision sees the replicas of the earlier ones, as in the
    /// controller. Bindings without a template follow at the end.
    #[must_use]
    pub fn decide(&self, scheduler: &mut Scheduler, settings: &Settings) -> Vec<Answer> {
        let mut tables = self.tables();
        let mut answers = Vec::new();
        let mut done = BTreeSet::new();
        for workload in &self.workloads {
            let key = workload.key.binding();
            let binding = self.bindings.get(&key);
            let claim = self.claim(workload);
            let fate = match &claim {
                // The clusters follow at the end, from the decisions on the workloads that refer to it.
                Claim::None if binding.is_some_and(is_attached) => Fate::Attached(Vec::new()),
                Claim::Excluded(why) => Fate::NotClaimed(why.to_string()),
                Claim::Waiting(policy) if binding.is_none() => Fate::NotClaimed(format!(
                    "policy {} is Lazy and was changed after the object",
                    policy.key
                )),
                Claim::None if binding.is_none() => {
                    Fate::NotClaimed("no policy selects it".to_owned())
                }
                _ => {
                    let asked = claim.asked(binding.map(|binding| &binding.spec));
                    let request = Request::from_objects(
                        &workload.object,
                        &asked,
                        binding.map(existing),
                        reports(binding),
                        settings.now,
                    );
                    let template = workload.template.clone();
                    let priority = self.priority(&claim, binding);
                    let request = request.map(|request| Request { template, priority, ..request });
                    answer(&mut tables, scheduler, settings, request)
                }
            };
            done.insert(key);
            answers.push(Answer { object: workload.key.clone(), fate });
        }
        for (_, binding) in self.bindings.iter().filter(|(key, _)| !done.contains(*key)) {
            let object = TemplateKey::of(&binding.spec.resource);
            if is_attached(binding) {
                answers.push(Answer { object, fate: Fate::Attached(Vec::new()) });
                continue;
            }
            let existing = existing(binding);
            let request = Request::from_binding(existing, reports(Some(binding)), settings.now);
            let fate = answer(&mut tables, scheduler, settings, request);
            answers.push(Answer { object, fate });
        }
        self.attach(&mut answers);
        answers
    }

    /// Gives attached objects the clusters of the workloads that refer to them.
    pub fn attach(&self, answers: &mut [Answer]) {
        let decided: BTreeMap<BindingKey, Vec<String>> = answers
            .iter()
            .filter_map(|answer| match &answer.fate {
                Fate::Decided(decision) => Some((answer.object.binding(), decision)),
                _ => None,
            })
            .map(|(key, decision)| {
                (key, decision.clusters().iter().map(|target| target.name.clone()).collect())
            })
            .collect();
        for answer in answers {
            let Fate::Attached(clusters) = &mut answer.fate else { continue };
            let binding = self.bindings.get(&answer.object.binding());
            let mut on = BTreeSet::new();
            for parent in binding.iter().flat_map(|binding| &binding.spec.required_by) {
                let key = BindingKey::of(parent.namespace.as_deref(), &parent.name);
                match decided.get(&key) {
                    Some(clusters) => on.extend(clusters.iter().cloned()),
                    // Nothing is decided for it, so it stays where it is, if it is still there.
                    None if self.bindings.contains_key(&key) => {
                        on.extend(parent.clusters.iter().map(|cluster| cluster.name.clone()));
                    }
                    None => {}
                }
            }
            *clusters = on.into_iter().map(|name| TargetCluster { name, replicas: 0 }).collect();
        }
    }
}

/// The policies that may select an object of a namespace: its own, and those without one.
fn of_namespace_or_none<'a>(
    policies: &'a BTreeMap<PolicyKey, Arc<Policy>>,
    namespace: Option<&'a str>,
) -> impl Iterator<Item = &'a Arc<Policy>> {
    let first =
        |namespace: &str| PolicyKey { namespace: Some(namespace.to_owned()), name: String::new() };
    // Keys without a namespace come first.
    let global = policies.range(..first(""));
    let own = namespace.into_iter().flat_map(move |namespace| {
        let of = policies.range(first(namespace)..);
        of.take_while(move |(key, _)| key.namespace.as_deref() == Some(namespace))
    });
    global.chain(own).map(|(_, policy)| policy)
}

/// Whether no policy ever claimed the object of this binding: it exists because others refer to its object.
fn is_attached(binding: &ResourceBinding) -> bool {
    let spec = &binding.spec;
    spec.placement.is_none() && spec.decision.is_none() && !spec.required_by.is_empty()
}

fn answer(
    tables: &mut Tables,
    scheduler: &mut Scheduler,
    settings: &Settings,
    request: Result<Request, crate::RequestError>,
) -> Fate {
    let mut request = match request {
        Ok(request) => request,
        Err(error) => return Fate::Unusable(error.to_string()),
    };
    if let Some(profile) = &settings.profile {
        request.scheduler_name.clone_from(profile);
    }
    let decision = scheduler.decide(&tables.snapshot(), &request);
    if decision.trigger() != Trigger::Avoid {
        let shares = decision.clusters().to_vec();
        let reported = request.reports.iter().map(|(name, r)| (name.clone(), r.replicas));
        tables.upsert_binding(BindingFacts {
            reported: reported.collect(),
            standing: Standing::after(&request, &decision),
            key: request.key,
            groups: memberships(&request.placement, &request.template.labels),
            pod_labels: Arc::new((&request.template.pod_labels).into()),
            requirements: request.template.requirements,
            components: request.template.components.into(),
            shares,
        });
    }
    Fate::Decided(Box::new(decision))
}

/// Reads the value of a PriorityClass, and whether it never preempts.
fn read_priority_class(object: &Value) -> Result<(i32, bool), String> {
    let value = object["value"].as_i64().and_then(|value| i32::try_from(value).ok());
    let value = value.ok_or("value: must be a whole number of 32 bits")?;
    match object["preemptionPolicy"].as_str() {
        None if object["preemptionPolicy"].is_null() => Ok((value, false)),
        Some("PreemptLowerPriority") => Ok((value, false)),
        Some("Never") => Ok((value, true)),
        _ => Err("preemptionPolicy: must be PreemptLowerPriority or Never".to_owned()),
    }
}

/// Reads an object of a kind that needs no special handling.
pub(super) fn read<K: DeserializeOwned>(object: Value) -> Result<K, String> {
    K::deserialize(object).map_err(|error| error.to_string())
}

/// The policy in a binding's annotations.
fn policy_of(metadata: &ObjectMeta) -> Option<PolicyKey> {
    let annotations = metadata.annotations.as_ref()?;
    PolicyKey::of_annotations(|name| annotations.get(name).map(String::as_str))
}
