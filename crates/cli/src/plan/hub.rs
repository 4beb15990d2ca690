//! The hub's present objects, with some of them changed, as the input of the scheduler core: the function behind
//! `plan`, `drain --dry-run` and `rebalance`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use atoll_api::binding::ResourceBindingSpec;
use atoll_api::{
    ChangeGuard, Cluster, ClusterOverridePolicy, ClusterPropagationPolicy, ClusterResourceBinding,
    ClusterSet, FederatedResourceQuota, OverridePolicy, PropagationPolicy, ReservedNamespaces,
    ResourceBinding, ResourceInterpreterCustomization, ResourceInterpreterWebhookConfiguration,
    WorkloadPolicy, WorkloadSpread,
};
use atoll_customize::Customizations;
use atoll_scheduler::offline::{Document, World};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::discovery::Scope;
use kube::{Api, Resource, discovery};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::args::TenancyFlag;
use crate::hub::{Hub, status};
use crate::input;
use crate::print;
use crate::read::get::each;

/// Requests for single objects that run concurrently.
pub(super) const AT_ONCE: usize = 16;

/// How the objects of a plan differ from those of the hub.
pub(crate) trait WhatIf {
    /// Changes a Cluster.
    fn cluster(&self, _: &mut Cluster) {}
    /// Changes a binding.
    fn binding(&self, _: &mut ResourceBindingSpec) {}
    /// Whether the plan decides on the workload of this binding.
    fn concerns(&self, spec: &ResourceBindingSpec) -> bool;
    /// Whether manifests are rendered and new workloads are placed: then override policies and priority classes are
    /// read too.
    fn renders(&self) -> bool {
        false
    }
}

/// What decides where objects may be placed, besides objects: how the controller was started.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(crate) tenancy: TenancyFlag,
    pub(crate) reserved: ReservedNamespaces,
}

/// The objects of a hub, before they become a [`World`].
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) objects: Vec<Value>,
    /// Labels of all namespaces.
    pub(crate) namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// The ChangeGuards that the user may read.
    pub(crate) guards: Vec<Value>,
    /// Objects that could not be read.
    pub(crate) problems: Vec<String>,
}

/// The hub's objects as changed, and those that could not be read.
///
/// # Errors
/// When the hub does not answer.
pub(crate) async fn read(
    hub: &Hub,
    change: &impl WhatIf,
    rules: &Rules,
) -> anyhow::Result<(World, Vec<String>)> {
    let collected = collect(hub, change).await?;
    let (world, _, problems) = world(collected, rules);
    Ok((world, problems))
}

/// The world of these objects, with the rules of users in it, and what could not be read.
pub(crate) fn world(collected: Collected, given: &Rules) -> (World, Customizations, Vec<String>) {
    let mut world = World::new(given.reserved.clone());
    world.require_cluster_sets(given.tenancy.require_cluster_sets);
    let mut problems = collected.problems;
    for object in collected.objects {
        if let Err(problem) = put(&mut world, object) {
            problems.push(problem);
        }
    }
    for (name, labels) in collected.namespaces {
        world.know_namespace(&name, labels);
    }
    let mut errors = Vec::new();
    let rules = input::customized::interpret(&mut world, &mut errors);
    problems.extend(errors.iter().map(ToString::to_string));
    (world, rules, problems)
}

/// Reads what decisions depend on, with the templates that the change concerns.
///
/// # Errors
/// When the hub does not answer.
pub(crate) async fn collect(hub: &Hub, change: &impl WhatIf) -> anyhow::Result<Collected> {
    let mut collected = Collected::default();
    let mut templates = BTreeMap::new();
    {
        list::<Cluster>(hub, &mut |mut cluster| {
            change.cluster(&mut cluster);
            collected.objects.push(typed(&cluster));
        })
        .await?;
        policies(hub, change.renders(), &mut collected).await?;
        let mut add = |object: Value| collected.objects.push(object);
        let mut changed = |spec: &mut ResourceBindingSpec| {
            if change.concerns(spec) {
                let of = json!(spec.resource);
                templates.insert(of.to_string(), of);
            }
            change.binding(spec);
        };
        list::<ResourceBinding>(hub, &mut |mut binding| {
            changed(&mut binding.spec);
            add(typed(&binding));
        })
        .await?;
        list::<ClusterResourceBinding>(hub, &mut |mut binding| {
            changed(&mut binding.spec);
            add(typed(&binding));
        })
        .await?;
    }
    let templates = templates.into_values().collect();
    let found = fetch(hub, templates, &mut collected.problems).await?;
    collected.objects.extend(found);
    Ok(collected)
}

/// Reads what people decide by: policies, quotas, rules, guards, and the labels of namespaces.
///
/// # Errors
/// When the hub does not answer.
pub(crate) async fn policies(
    hub: &Hub,
    renders: bool,
    collected: &mut Collected,
) -> anyhow::Result<()> {
    let mut add = |object: Value| collected.objects.push(object);
    list::<PropagationPolicy>(hub, &mut |policy| add(typed(&policy))).await?;
    list::<ClusterPropagationPolicy>(hub, &mut |policy| add(typed(&policy))).await?;
    list::<WorkloadPolicy>(hub, &mut |policy| add(typed(&policy))).await?;
    list::<WorkloadSpread>(hub, &mut |spread| add(typed(&spread))).await?;
    list::<ClusterSet>(hub, &mut |set| add(typed(&set))).await?;
    list::<FederatedResourceQuota>(hub, &mut |quota| add(typed(&quota))).await?;
    list::<ResourceInterpreterCustomization>(hub, &mut |rules| add(typed(&rules))).await?;
    list::<ResourceInterpreterWebhookConfiguration>(hub, &mut |hooks| add(typed(&hooks))).await?;
    if renders {
        list::<OverridePolicy>(hub, &mut |policy| add(typed(&policy))).await?;
        list::<ClusterOverridePolicy>(hub, &mut |policy| add(typed(&policy))).await?;
        list::<PriorityClass>(hub, &mut |class| add(typed(&class))).await?;
        collected.guards = guards(hub).await?;
    }
    list::<Namespace>(hub, &mut |namespace| {
        let metadata = namespace.metadata;
        let labels = metadata.labels.unwrap_or_default();
        collected.namespaces.insert(metadata.name.unwrap_or_default(), labels);
    })
    .await
}

/// The ChangeGuards; none, and a note, for a user who may not read them.
async fn guards(hub: &Hub) -> anyhow::Result<Vec<Value>> {
    let mut guards = Vec::new();
    match list::<ChangeGuard>(hub, &mut |guard| guards.push(typed(&guard))).await {
        Ok(()) => Ok(guards),
        Err(error) if status(&error) == Some(403) => {
            print::note(
                "note: you may not list changeguards.policy.atoll.dev: the plan does not say whether one would hold it",
            );
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// Adds an object of the hub; errors name the object.
fn put(world: &mut World, object: Value) -> Result<(), String> {
    let title = input::title(&object);
    world.add(Document { origin: String::new(), object }).map_err(|error| {
        match error.problem.starts_with(&title) {
            true => error.problem,
            false => format!("{title}: {}", error.problem),
        }
    })
}

/// An object of one of Atoll's kinds. List items and cluster-scoped kinds lack apiVersion and kind.
pub(super) fn typed<K: Resource<DynamicType = ()> + Serialize>(object: &K) -> Value {
    let mut object = value(object);
    object["apiVersion"] = K::api_version(&()).into();
    object["kind"] = K::kind(&()).into();
    object
}

/// An object as JSON.
fn value(object: &impl Serialize) -> Value {
    // Our types are plain structs with string keys, so they always serialise.
    serde_json::to_value(object).unwrap_or_default()
}

async fn list<K>(hub: &Hub, take: &mut impl FnMut(K)) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = Api::all(hub.client.clone());
    each(hub, &format!("list {}", K::plural(&())), &api, take).await
}

/// The templates of the bindings, of any kind. A deleted template is skipped, because its binding is going too; kinds
/// that the hub no longer serves are reported in `problems`.
pub(crate) async fn fetch(
    hub: &Hub,
    references: Vec<Value>,
    problems: &mut Vec<String>,
) -> anyhow::Result<Vec<Value>> {
    let mut kinds = Kinds::default();
    let text = |of: &Value, field: &str| of[field].as_str().unwrap_or_default().to_owned();
    let mut served = Vec::new();
    for of in references {
        let (api_version, kind) = (text(&of, "apiVersion"), text(&of, "kind"));
        match kinds.find(hub, &api_version, &kind).await? {
            Some((resource, _)) => served.push((of, resource)),
            None => {
                let place = of["namespace"].as_str().map_or(String::new(), |n| format!("{n}/"));
                let name = text(&of, "name");
                problems.push(format!(
                    "{kind} {place}{name}: the hub serves no {kind} of {api_version} any more"
                ));
            }
        }
    }
    let found = futures::stream::iter(served).map(async |(of, resource)| {
        let (namespace, name) = (of["namespace"].as_str(), text(&of, "name"));
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(hub.client.clone(), namespace, &resource),
            None => Api::all_with(hub.client.clone(), &resource),
        };
        let place = namespace.map_or(String::new(), |namespace| format!("{namespace}/"));
        let doing = format!("get {} {place}{name}", resource.kind);
        let object = hub.call(&doing, api.get_opt(&name)).await?;
        anyhow::Ok(object.map(|mut object| {
            object.types.get_or_insert_with(|| kube::api::TypeMeta {
                api_version: resource.api_version.clone(),
                kind: resource.kind.clone(),
            });
            value(&object)
        }))
    });
    let found: Vec<Option<Value>> = found.buffered(AT_ONCE).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}

/// The objects of the kinds that these policies select: workloads that are not placed yet.
///
/// # Errors
/// When the hub does not answer.
pub(super) async fn selected(
    hub: &Hub,
    policies: &[Value],
    kinds: &mut Kinds,
    problems: &mut Vec<String>,
) -> anyhow::Result<Vec<Value>> {
    let mut found = Vec::new();
    for (api_version, kind, namespace) in selected_kinds(policies) {
        let Some((resource, _)) = kinds.find(hub, &api_version, &kind).await? else {
            problems.push(format!(
                "a policy selects {kind} of {api_version}, which the hub does not serve"
            ));
            continue;
        };
        let api: Api<DynamicObject> = match &namespace {
            Some(namespace) => Api::namespaced_with(hub.client.clone(), namespace, &resource),
            None => Api::all_with(hub.client.clone(), &resource),
        };
        each(hub, &format!("list {}", resource.plural), &api, |object| {
            let mut object = value(&object);
            object["apiVersion"] = api_version.as_str().into();
            object["kind"] = kind.as_str().into();
            found.push(object);
        })
        .await?;
    }
    Ok(found)
}

/// apiVersion, kind and namespace of what the policies among these objects select.
fn selected_kinds(objects: &[Value]) -> BTreeSet<(String, String, Option<String>)> {
    let mut kinds = BTreeSet::new();
    for object in objects {
        let namespace = match object["kind"].as_str() {
            Some("PropagationPolicy") => object["metadata"]["namespace"].as_str(),
            Some("ClusterPropagationPolicy") => None,
            _ => continue,
        };
        for selector in object["spec"]["resourceSelectors"].as_array().into_iter().flatten() {
            let text = |field: &str| selector[field].as_str().unwrap_or_default().to_owned();
            let (api_version, kind) = (text("apiVersion"), text("kind"));
            if kind == "*" || api_version == "*" {
                print::note(format!(
                    "warning: {} selects every kind; of objects that are not placed yet, none is in the plan",
                    input::title(object)
                ));
                continue;
            }
            let within = namespace.or_else(|| selector["namespace"].as_str());
            let within = within.filter(|name| !name.is_empty()).map(str::to_owned);
            kinds.insert((api_version, kind, within));
        }
    }
    kinds
}

/// Kinds of the hub that were looked up, each once.
#[derive(Debug, Default)]
pub(super) struct Kinds(BTreeMap<(String, String), Option<(ApiResource, Scope)>>);

impl Kinds {
    /// How the hub serves a kind; `None` if it does not.
    ///
    /// # Errors
    /// When the hub does not answer.
    pub(super) async fn find(
        &mut self,
        hub: &Hub,
        api_version: &str,
        kind: &str,
    ) -> anyhow::Result<Option<(ApiResource, Scope)>> {
        let key = (api_version.to_owned(), kind.to_owned());
        if let Some(found) = self.0.get(&key) {
            return Ok(found.clone());
        }
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let doing = format!("find {kind} of {api_version}");
        let found = match hub.call(&doing, discovery::pinned_kind(&hub.client, &gvk)).await {
            Ok((resource, capabilities)) => Some((resource, capabilities.scope)),
            Err(error) if is_absent(&error) => None,
            Err(error) => return Err(error),
        };
        self.0.insert(key, found.clone());
        Ok(found)
    }
}

/// Whether the hub does not have the requested object or kind.
fn is_absent(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 404)
        || matches!(error.downcast_ref(), Some(kube::Error::Discovery(_)))
}
