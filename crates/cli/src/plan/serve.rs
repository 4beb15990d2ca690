//! The leader's side of a plan: checks the caller's rights, has the controller decide, and leaves out what the caller may
//! not read.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::rebalancer::WorkloadReference;
use atoll_apimachinery::ApiError;
use atoll_apimachinery::gate::{Attributes, Resource};
use atoll_apimachinery::identity::Identity as Caller;
use atoll_controller::{Base, Change, PlanError, Planned, Planner};
use atoll_scheduler::detect::{GroupKind, TemplateKey};
use atoll_scheduler::offline::Fate;
use atoll_scheduler::{Profiles, SchedulerConfiguration};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use jiff::Timestamp;
use kube::Client;
use kube::api::{ApiResource, GroupVersionKind};
use kube::discovery;
use serde_json::Value;

use super::compare::{self, Side};
use super::hub::typed;
use super::manifests;
use super::objects::{Identity, Objects};
use super::request::{self, PlanSpec, PlanStatus, Shown};
use crate::access_review::{self, Decision};
use crate::input::{self, title};

/// Most objects, members and workloads of one request.
const MOST: usize = 2_000;
/// Reviews of the caller's rights that run concurrently.
const REVIEWS: usize = 16;
/// Most manifests with their content in an answer. The others are named.
const MOST_MANIFESTS: usize = 2_000;
/// Seconds after which a client tries again when there is no leader, or other plans wait.
const RETRY: u32 = 5;

/// The plan of a change, for this caller.
///
/// # Errors
/// The change is wrong, the caller has no right to make it, or this controller does not lead.
pub(crate) async fn plan(
    planner: &Planner,
    hub: &Client,
    caller: &Caller,
    spec: PlanSpec,
    now: Timestamp,
) -> Result<PlanStatus, ApiError> {
    let named = spec.objects.len() + spec.assumed.len();
    if named > MOST {
        let problem =
            format!("spec: {named} objects, members and workloads; one plan takes {MOST}");
        return Err(ApiError::bad_request(problem));
    }
    let profiles = spec.scheduler_configuration.as_deref().map(profiles).transpose()?;
    let base = planner.base().await.map_err(|error| api_error(&error))?;
    let mut rights = Rights { hub, caller, resources: base.resources().clone() };
    rights.may_apply(&spec.objects).await?;
    let mut objects = assumed(&base, &spec, now)?;
    let names: BTreeSet<String> = objects.iter().map(title).collect();
    // What is assumed of an object is assumed of it as it would be applied.
    objects.extend(spec.objects.iter().filter(|object| !names.contains(&title(object))).cloned());
    let rebalance = spec.assumed.rebalanced().collect();
    let planned = base.plan(Change { objects, rebalance, profiles }).await;
    let planned = planned.map_err(|error| api_error(&error))?;
    let places: BTreeMap<String, Place> = planned
        .after
        .answers
        .iter()
        .map(|answer| {
            let workload = planned.after.world.workload(&answer.object);
            let version = workload.and_then(|found| found.object["apiVersion"].as_str());
            let version = version.unwrap_or_default().to_owned();
            (answer.object.to_string(), Place { key: answer.object.clone(), version })
        })
        .collect();
    let decisions = if spec.decisions { shown(&planned, &places) } else { Vec::new() };
    let mut status = compared(planned, spec.manifests)?;
    status.decisions = decisions;
    rights.hide(&mut status, &places).await?;
    Ok(status)
}

fn profiles(text: &str) -> Result<Profiles, ApiError> {
    let field = |error: &dyn std::fmt::Display| {
        ApiError::bad_request(format!("spec.schedulerConfiguration: {error}"))
    };
    let configuration = SchedulerConfiguration::read(text).map_err(|error| field(&error))?;
    Profiles::read(&configuration).map_err(|error| field(&error))
}

/// The objects of the hub as the assumptions change them.
fn assumed(base: &Base, spec: &PlanSpec, now: Timestamp) -> Result<Vec<Value>, ApiError> {
    let mut before = Objects::default();
    for member in spec.assumed.members() {
        base.cluster(member).into_iter().for_each(|cluster| before.put(typed(&**cluster)));
    }
    for (namespace, name) in spec.assumed.workloads() {
        base.placed(namespace, name).into_iter().for_each(|object| before.put((*object).clone()));
    }
    let mut after = before.clone();
    for object in &spec.objects {
        // A workload or a member of the files is the one that is scaled or drained.
        let of = Identity::of(object);
        if before.has(&of) {
            after.put(object.clone());
        }
    }
    spec.assumed
        .apply(&mut after, now)
        .map_err(|error| ApiError::bad_request(format!("spec.assumed: {error:#}")))?;
    let mut changed = Vec::new();
    for (of, object) in after.iter() {
        if before.get(of) != Some(object) {
            changed.push(object.clone());
        }
    }
    Ok(changed)
}

/// The decisions with the change.
fn shown(planned: &Planned, places: &BTreeMap<String, Place>) -> Vec<Shown> {
    let answers = planned.after.answers.iter().filter_map(|answer| {
        let Place { key, version } = places.get(&answer.object.to_string())?;
        let (decision, problem) = match &answer.fate {
            Fate::Decided(decision) => (Some(decision.clone()), None),
            Fate::Unusable(why) => (None, Some(why.clone())),
            Fate::NotClaimed(_) | Fate::Attached(_) => return None,
        };
        let workload = WorkloadReference {
            api_version: version.clone(),
            kind: key.group_kind().kind.to_owned(),
            namespace: key.namespace().map(str::to_owned),
            name: key.name().to_owned(),
        };
        let binding = planned.after.world.bindings.get(&key.binding()).cloned();
        Some(Shown { workload, decision, problem, binding })
    });
    answers.collect()
}

/// The difference between the two sides.
fn compared(planned: Planned, with_manifests: bool) -> Result<PlanStatus, ApiError> {
    let Planned { mut before, mut after, workloads, elsewhere, held_by, mut problems, snapshot } =
        planned;
    let mut errors = Vec::new();
    let old_rules = input::customized::interpret(&mut before.world, &mut errors);
    let new_rules = input::customized::interpret(&mut after.world, &mut errors);
    problems.extend(errors.iter().map(ToString::to_string));
    problems.sort_unstable();
    problems.dedup();
    let old = Side { world: &before.world, answers: &before.answers };
    let new = Side { world: &after.world, answers: &after.answers };
    let mut plan = compare::compare(&old, &new);
    plan.held_by = held_by;
    plan.snapshot = Some(snapshot);
    plan.summary.unchanged = workloads.saturating_sub(plan.changes.len());
    for member in &mut plan.members {
        let others = elsewhere.get(&member.name).copied().unwrap_or_default();
        member.replicas_before = member.replicas_before.saturating_add(others);
        member.replicas = member.replicas.saturating_add(others);
    }
    let (mut changed, unrendered) = manifests::compare((&old, &old_rules), (&new, &new_rules));
    problems.extend(unrendered);
    plan.summary.manifests = changed.len();
    plan.id = super::id(&plan.changes, &changed)
        .map_err(|error| ApiError::internal(format!("{error:#}")))?;
    manifests::hide_secrets(&mut changed);
    let whole = if with_manifests { MOST_MANIFESTS } else { 0 };
    if with_manifests && changed.len() > MOST_MANIFESTS {
        problems.push(format!(
            "{} manifests would change; the content of the first {MOST_MANIFESTS} is shown",
            changed.len()
        ));
    }
    for manifest in changed.iter_mut().skip(whole) {
        (manifest.before, manifest.after) = (None, None);
    }
    Ok(PlanStatus { plan, manifests: changed, problems, decisions: Vec::new() })
}

/// Where a workload is.
struct Place {
    key: TemplateKey,
    /// Its apiVersion.
    version: String,
}

/// A right on the hub; without a name on all objects of the namespace, without a namespace on all of the hub.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    verb: &'static str,
    group: String,
    plural: String,
    namespace: String,
    name: String,
}

/// What the caller may do on the hub.
struct Rights<'a> {
    hub: &'a Client,
    caller: &'a Caller,
    resources: BTreeMap<GroupKind, ApiResource>,
}

impl Rights<'_> {
    /// Whether the caller may write the objects: the plan says what would follow from that.
    async fn may_apply(&mut self, objects: &[Value]) -> Result<(), ApiError> {
        let mut asked = BTreeSet::new();
        for object in objects {
            let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
            let resource = self.resource(&text("apiVersion"), &text("kind")).await?;
            let metadata = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
            for verb in ["create", "patch"] {
                asked.insert(Right {
                    verb,
                    group: resource.group.clone(),
                    plural: resource.plural.clone(),
                    namespace: metadata("namespace").to_owned(),
                    name: metadata("name").to_owned(),
                });
            }
        }
        let reviews: Vec<BoxFuture<'_, Result<(), ApiError>>> =
            asked.into_iter().map(|right| self.require(right).boxed()).collect();
        futures::stream::iter(reviews).buffer_unordered(REVIEWS).try_collect().await
    }

    async fn require(&self, right: Right) -> Result<(), ApiError> {
        if self.may(&right).await? {
            return Ok(());
        }
        let Right { verb, group, plural, namespace, name } = right;
        let why =
            format!("you may not {verb} {plural} {namespace}/{name}, so its effect is not shown");
        Err(ApiError::forbidden(&group, &plural, &name, why))
    }

    /// Leaves out the workloads that the caller may not read. The summary counts them.
    async fn hide(
        &mut self,
        status: &mut PlanStatus,
        places: &BTreeMap<String, Place>,
    ) -> Result<(), ApiError> {
        let mut kinds: BTreeMap<(GroupKind, Option<String>), String> = BTreeMap::new();
        let objects = status.plan.changes.iter().map(|change| &change.object);
        let objects = objects.chain(status.manifests.iter().map(|manifest| &manifest.object));
        let decided: Vec<String> = status
            .decisions
            .iter()
            .map(|shown| request::key(&shown.workload).to_string())
            .collect();
        let objects = objects.chain(&decided);
        for Place { key, version } in objects.filter_map(|object| places.get(object)) {
            kinds.insert(
                (key.group_kind().to_owned(), key.namespace().map(str::to_owned)),
                version.clone(),
            );
        }
        let mut readable: BTreeMap<(GroupKind, Option<String>), bool> = BTreeMap::new();
        for ((kind, namespace), version) in kinds {
            let resource = self.resource(&version, &kind.kind).await?;
            let right = Right {
                verb: "get",
                group: resource.group,
                plural: resource.plural,
                namespace: namespace.clone().unwrap_or_default(),
                name: String::new(),
            };
            let may = self.may(&right).await?;
            readable.insert((kind, namespace), may);
        }
        let may_read = |object: &String| {
            let of = places
                .get(object)
                .map(|of| (of.key.group_kind().to_owned(), of.key.namespace().map(str::to_owned)));
            of.and_then(|of| readable.get(&of).copied()).unwrap_or(false)
        };
        let all = status.plan.changes.len();
        status.plan.changes.retain(|change| may_read(&change.object));
        status.plan.hidden = all - status.plan.changes.len();
        status.manifests.retain(|manifest| may_read(&manifest.object));
        status.decisions.retain(|shown| may_read(&request::key(&shown.workload).to_string()));
        let named =
            |problem: &String| places.keys().find(|object| problem.contains(object.as_str()));
        status.problems.retain(|problem| named(problem).is_none_or(may_read));
        Ok(())
    }

    async fn may(&self, right: &Right) -> Result<bool, ApiError> {
        let resource = Resource {
            group: right.group.clone(),
            version: "*".to_owned(),
            resource: right.plural.clone(),
            subresource: String::new(),
            namespace: right.namespace.clone(),
            name: right.name.clone(),
        };
        let (verb, path) = (right.verb.to_owned(), String::new());
        let wanted = Attributes { verb, path, resource: Some(resource) };
        Ok(access_review::review(self.hub, self.caller, &wanted).await? == Decision::Allowed)
    }

    async fn resource(&mut self, api_version: &str, kind: &str) -> Result<ApiResource, ApiError> {
        let key = GroupKind::of(api_version, kind);
        if let Some(known) = self.resources.get(&key) {
            return Ok(known.clone());
        }
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let asked = discovery::pinned_kind(self.hub, &gvk);
        let found = tokio::time::timeout(access_review::HUB_TIMEOUT, asked).await;
        let found = found.map_err(|_| ApiError::unavailable("the hub does not answer in time"))?;
        let (resource, _) = found.map_err(|error| {
            ApiError::bad_request(format!(
                "{kind} of {api_version}: the hub does not serve it: {error}"
            ))
        })?;
        self.resources.insert(key, resource.clone());
        Ok(resource)
    }
}

fn api_error(error: &PlanError) -> ApiError {
    let text = error.to_string();
    match error {
        PlanError::NotLeading | PlanError::Hub { .. } => ApiError::unavailable_for(text, RETRY),
        PlanError::Busy => ApiError::too_many_requests(text, RETRY),
        PlanError::Object { .. } | PlanError::Profiles(_) => ApiError::bad_request(text),
        PlanError::TooLong(_) | PlanError::Failed => ApiError::internal(text),
    }
}
