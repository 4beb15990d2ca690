//! What the scheduler core would decide on the hub's present objects, with some of them changed: the function behind
//! `drain --dry-run` and `rebalance`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use atoll_api::binding::ResourceBindingSpec;
use atoll_api::{
    Cluster, ClusterPropagationPolicy, ClusterResourceBinding, ClusterSet, FederatedResourceQuota,
    PropagationPolicy, ResourceBinding, ResourceInterpreterCustomization,
    ResourceInterpreterWebhookConfiguration, WorkloadPolicy, WorkloadSpread,
};
use atoll_scheduler::offline::{Document, World};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Resource, discovery};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::args::TenancyFlag;
use crate::hub::Hub;
use crate::input;
use crate::read::get::each;

/// Templates fetched concurrently.
const AT_ONCE: usize = 16;

/// How the objects of a plan differ from those of the hub.
pub(crate) trait WhatIf {
    /// Changes a Cluster.
    fn cluster(&self, _: &mut Cluster) {}
    /// Changes a binding.
    fn binding(&self, _: &mut ResourceBindingSpec) {}
    /// Whether the plan decides on the workload of this binding.
    fn concerns(&self, spec: &ResourceBindingSpec) -> bool;
}

/// The hub's objects as changed, and those that could not be read.
///
/// # Errors
/// When the hub does not answer.
pub(crate) async fn read(
    hub: &Hub,
    change: &impl WhatIf,
    tenancy: TenancyFlag,
) -> anyhow::Result<(World, Vec<String>)> {
    let mut world = World::default();
    world.require_cluster_sets(tenancy.require_cluster_sets);
    let mut templates = BTreeMap::new();
    let mut problems = Vec::new();
    {
        let mut add = |object: Value| {
            if let Err(problem) = put(&mut world, object) {
                problems.push(problem);
            }
        };
        list::<Cluster>(hub, &mut |mut cluster| {
            change.cluster(&mut cluster);
            add(typed(&cluster));
        })
        .await?;
        list::<PropagationPolicy>(hub, &mut |policy| add(typed(&policy))).await?;
        list::<ClusterPropagationPolicy>(hub, &mut |policy| add(typed(&policy))).await?;
        list::<WorkloadPolicy>(hub, &mut |policy| add(typed(&policy))).await?;
        list::<WorkloadSpread>(hub, &mut |spread| add(typed(&spread))).await?;
        list::<ClusterSet>(hub, &mut |set| add(typed(&set))).await?;
        list::<FederatedResourceQuota>(hub, &mut |quota| add(typed(&quota))).await?;
        list::<ResourceInterpreterCustomization>(hub, &mut |rules| add(typed(&rules))).await?;
        list::<ResourceInterpreterWebhookConfiguration>(hub, &mut |hooks| add(typed(&hooks)))
            .await?;
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
    list::<Namespace>(hub, &mut |namespace| {
        let metadata = namespace.metadata;
        let labels = metadata.labels.unwrap_or_default();
        world.know_namespace(&metadata.name.unwrap_or_default(), labels);
    })
    .await?;
    for object in fetch(hub, templates.into_values().collect(), &mut problems).await? {
        if let Err(problem) = put(&mut world, object) {
            problems.push(problem);
        }
    }
    let mut errors = Vec::new();
    input::customized::interpret(&mut world, &mut errors);
    problems.extend(errors.iter().map(ToString::to_string));
    Ok((world, problems))
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
fn typed<K: Resource<DynamicType = ()> + Serialize>(object: &K) -> Value {
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
async fn fetch(
    hub: &Hub,
    references: Vec<Value>,
    problems: &mut Vec<String>,
) -> anyhow::Result<Vec<Value>> {
    let mut resources: BTreeMap<(String, String), ApiResource> = BTreeMap::new();
    let mut unserved: BTreeSet<(String, String)> = BTreeSet::new();
    let text = |of: &Value, field: &str| of[field].as_str().unwrap_or_default().to_owned();
    for of in &references {
        let key = (text(of, "apiVersion"), text(of, "kind"));
        if resources.contains_key(&key) || unserved.contains(&key) {
            continue;
        }
        let (group, version) = key.0.rsplit_once('/').unwrap_or(("", &key.0));
        let gvk = GroupVersionKind::gvk(group, version, &key.1);
        let doing = format!("find {} of {}", key.1, key.0);
        match hub.call(&doing, discovery::pinned_kind(&hub.client, &gvk)).await {
            Ok((resource, _)) => {
                resources.insert(key, resource);
            }
            Err(error) if is_absent(&error) => {
                let same = |other: &&Value| (text(other, "apiVersion"), text(other, "kind")) == key;
                problems.extend(references.iter().filter(same).map(|of| {
                    let place = of["namespace"].as_str().map_or(String::new(), |n| format!("{n}/"));
                    let (kind, name) = (&key.1, text(of, "name"));
                    format!("{kind} {place}{name}: the hub serves no {kind} of {} any more", key.0)
                }));
                unserved.insert(key);
            }
            Err(error) => return Err(error),
        }
    }
    let served = references.iter().filter_map(|of| {
        let key = (text(of, "apiVersion"), text(of, "kind"));
        resources.get(&key).map(|resource| (of, resource))
    });
    let found = futures::stream::iter(served).map(async |(of, resource)| {
        let (namespace, name) = (of["namespace"].as_str(), text(of, "name"));
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(hub.client.clone(), namespace, resource),
            None => Api::all_with(hub.client.clone(), resource),
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

/// Whether the hub does not have the requested object or kind.
fn is_absent(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 404)
        || matches!(error.downcast_ref(), Some(kube::Error::Discovery(_)))
}
