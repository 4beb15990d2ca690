//! What the leader knows, to plan one change with.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_api::Cluster;
use atoll_api::rebalancer::RebalanceMode;
use atoll_scheduler::Profiles;
use kube::Client;
use kube::api::ApiResource;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::trial::Trial;
use super::types::{Change, Known, LIMIT, PlanError, Planned};
use super::{lists, offline, sides};
use crate::index::Source;
use crate::index::key::{BindingKey, GroupKind, TemplateKey, version_of};

/// Why nothing can be rebalanced.
const NOT_PLACED: &str =
    "it is not placed: it does not exist, or no policy claims it (`atoll explain` says why)";

/// What the leader knows at one moment.
pub struct Base {
    known: Known,
    /// The next plan waits for it.
    _turn: Option<OwnedSemaphorePermit>,
}

impl Base {
    pub(super) fn new(known: Known, turn: OwnedSemaphorePermit) -> Self {
        Self { known, _turn: Some(turn) }
    }

    /// What a leader would know from these objects, without reports of members: for benchmarks.
    ///
    /// # Errors
    /// When the built-in profiles contradict each other.
    pub fn offline(hub: Client, objects: Vec<Value>) -> Result<Self, PlanError> {
        Ok(Self { known: offline::known(hub, objects)?, _turn: None })
    }

    /// A copy, which shares its rows, as the event loop makes one for each plan.
    #[must_use]
    pub fn copy(&self) -> Self {
        let index = Arc::new((*self.known.index).clone());
        Self { known: Known { index, ..self.known.clone() }, _turn: None }
    }

    /// A member.
    #[must_use]
    pub fn cluster(&self, name: &str) -> Option<&Arc<Cluster>> {
        self.known.index.cluster(name)
    }

    /// The users' objects of this name that have a binding.
    #[must_use]
    pub fn placed(&self, namespace: &str, name: &str) -> Vec<Arc<Value>> {
        let named = |key: &&TemplateKey| {
            key.namespace().unwrap_or_default() == namespace && key.name() == name
        };
        let bindings = self.known.index.bindings().map(|binding| &binding.template);
        let templates = bindings.filter(named).filter_map(|key| self.known.index.template(key));
        templates.map(|template| template.object()).collect()
    }

    /// How the hub serves the kinds that the leader watches.
    #[must_use]
    pub fn resources(&self) -> &BTreeMap<GroupKind, ApiResource> {
        &self.known.resources
    }

    /// What the change would do.
    ///
    /// # Errors
    /// When an object of it cannot be planned, or the plan takes too long.
    pub async fn plan(self, change: Change) -> Result<Planned, PlanError> {
        let Self { known, _turn: turn } = self;
        let objects: Vec<(Source, Arc<Value>)> =
            change.objects.into_iter().map(sourced).collect::<Result<_, _>>()?;
        let mut asked = Vec::new();
        for (template, mode) in change.rebalance {
            let key = template.binding();
            if known.index.binding(&key).is_none_or(|binding| binding.template != template) {
                return Err(PlanError::Object {
                    object: template.to_string(),
                    problem: NOT_PLACED.to_owned(),
                });
            }
            asked.push((key, mode));
        }
        let edits = Edits { objects, rebalance: asked, profiles: change.profiles };
        let (deadline, handle) = (Instant::now() + LIMIT, Handle::current());
        let planning = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            decide(&known, edits, deadline, &handle)
        });
        planning.await.map_err(|_| PlanError::Failed)?
    }
}

/// A change, checked.
struct Edits {
    objects: Vec<(Source, Arc<Value>)>,
    rebalance: Vec<(BindingKey, RebalanceMode)>,
    profiles: Option<Profiles>,
}

fn decide(
    known: &Known,
    edits: Edits,
    deadline: Instant,
    handle: &Handle,
) -> Result<Planned, PlanError> {
    let Edits { objects, rebalance, profiles } = edits;
    let other_profiles = profiles.is_some();
    let mut after = Trial::new(known, profiles)?;
    objects.iter().for_each(|(source, object)| after.apply(source, object));
    let listed = handle.block_on(lists::missing(&after.index, &known.settings.client))?;
    for list in &listed {
        after.list(list);
        // The hub lists them as they are, without the change.
        let of = objects.iter().filter(|(source, _)| *source == list.source);
        of.for_each(|(source, object)| after.apply(source, object));
    }
    rebalance.iter().for_each(|(key, mode)| after.rebalance(key, *mode));
    after.look_at(&known.due);
    if other_profiles {
        // A controller that starts with other profiles decides on everything.
        after.look_at(&all(known));
    }
    after.run(deadline, handle)?;
    let mut before = Trial::new(known, None)?;
    listed.iter().for_each(|list| before.list(list));
    let seen: BTreeSet<&BindingKey> = known.due.iter().collect();
    let others = after.order.iter().filter(|key| !seen.contains(key)).cloned();
    let keys: Vec<BindingKey> = known.due.iter().cloned().chain(others).collect();
    before.look_at(&keys);
    before.run(deadline, handle)?;
    Ok(sides::planned(known, before, after))
}

fn all(known: &Known) -> Vec<BindingKey> {
    known.index.bindings().map(|binding| binding.key.clone()).collect()
}

/// Where an object belongs, as a new version of it. It has no uid if its namespace does not exist yet, because the hub
/// checks nothing there.
fn sourced(mut object: Value) -> Result<(Source, Arc<Value>), PlanError> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let name = text("/metadata/name").to_owned();
    let title = format!("{} {name}", text("/kind"));
    let wrong =
        |problem: &str| PlanError::Object { object: title.clone(), problem: problem.to_owned() };
    if name.is_empty() || text("/apiVersion").is_empty() || text("/kind").is_empty() {
        return Err(wrong("apiVersion, kind and metadata.name are needed"));
    }
    let source = Source::of_object(&object)
        .ok_or_else(|| wrong("no decision reads objects of this kind: leave it out"))?;
    if matches!(source, Source::ResourceBindings | Source::ClusterResourceBindings) {
        return Err(wrong("Atoll writes bindings: give the workload and its policy"));
    }
    if text("/metadata/uid").is_empty() {
        object["metadata"]["uid"] = format!("planned/{title}").into();
    }
    // The answer to a dry run has the version of the stored object: the tables would take both for the same.
    let held = version_of(&object).unwrap_or_default();
    let version = held.parse::<u64>().unwrap_or_default().saturating_add(1);
    object["metadata"]["resourceVersion"] = version.to_string().into();
    Ok((source, Arc::new(object)))
}
