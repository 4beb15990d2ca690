//! Where decisions are read: the hub's Decision objects, or, where it serves none, what the binding itself holds.

use anyhow::Context;
use atoll_api::{ClusterResourceBinding, HISTORY_GROUP, ResourceBinding, VERSION, names};
use atoll_history::{BindingRef, Entry, Row, api, outbox};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::Value;

use super::workload::Workload;
use crate::hub::Hub;
use crate::print;

/// Decisions that one request brings.
const PAGE: usize = 500;

/// What a reader narrows the list by: field selectors of the Decision kinds.
pub(super) type Fields = Vec<(&'static str, String)>;

/// Decisions, newest first.
pub(super) struct Decisions {
    pub(super) items: Vec<Value>,
    /// Whether there are older ones.
    pub(super) more: bool,
}

/// The newest decisions about a workload, at most `limit`, without details.
///
/// # Errors
/// When the hub does not answer, refuses a selector, or knows nothing of the workload.
pub(super) async fn list(
    hub: &Hub,
    workload: &Workload,
    fields: &Fields,
    limit: usize,
) -> anyhow::Result<Decisions> {
    if !workload.decisions_served {
        let items = held(hub, workload).await?;
        let items: Vec<_> = items.into_iter().filter(|item| selected(item, fields)).collect();
        let more = items.len() > limit;
        return Ok(Decisions { items: items.into_iter().take(limit).collect(), more });
    }
    let mut selectors = vec![
        format!("spec.workload.group={}", workload.kind.group),
        format!("spec.workload.kind={}", workload.kind.kind),
        format!("spec.workload.name={}", workload.name),
    ];
    selectors.extend(fields.iter().map(|(field, value)| format!("{field}={value}")));
    let mut params = ListParams::default().fields(&selectors.join(","));
    let api = served(hub, workload);
    let mut items = Vec::new();
    loop {
        let wanted = PAGE.min(limit - items.len());
        params = params.limit(u32::try_from(wanted).unwrap_or(u32::MAX));
        let doing = format!("list the decisions about {workload}");
        let page = hub.call(&doing, api.list(&params)).await?;
        for object in page.items {
            items.push(serde_json::to_value(object).context("read a decision")?);
        }
        let token = page.metadata.continue_.filter(|token| !token.is_empty());
        match token {
            Some(token) if items.len() < limit => params = params.continue_token(&token),
            token => return Ok(Decisions { items, more: token.is_some() }),
        }
    }
}

/// An object of [`list`] with its detail.
///
/// # Errors
/// When the hub does not answer.
pub(super) async fn get(hub: &Hub, workload: &Workload, item: &Value) -> anyhow::Result<Value> {
    let name = item["metadata"]["name"].as_str().context("a decision has a name")?;
    if !workload.decisions_served {
        return Ok(item.clone());
    }
    let doing = format!("get decision {name} about {workload}");
    let object = hub.call(&doing, served(hub, workload).get(name)).await?;
    serde_json::to_value(object).context("read a decision")
}

fn served(hub: &Hub, workload: &Workload) -> Api<DynamicObject> {
    let kind = match &workload.namespace {
        Some(_) => api::Kind::Decision,
        None => api::Kind::ClusterDecision,
    };
    let kind_of = GroupVersionKind::gvk(HISTORY_GROUP, VERSION, kind.name());
    let resource = ApiResource::from_gvk_with_plural(&kind_of, kind.plural());
    match &workload.namespace {
        Some(namespace) => Api::namespaced_with(hub.client.clone(), namespace, &resource),
        None => Api::all_with(hub.client.clone(), &resource),
    }
}

/// What the binding holds: its last decision, and those before that no database has taken yet.
async fn held(hub: &Hub, workload: &Workload) -> anyhow::Result<Vec<Value>> {
    let name = names::binding_name(&workload.name, &workload.kind.kind, &workload.kind.group);
    let doing = format!("get the binding {name} of {workload}");
    let found = match &workload.namespace {
        Some(namespace) => {
            let api: Api<ResourceBinding> = Api::namespaced(hub.client.clone(), namespace);
            let binding = hub.call(&doing, api.get_opt(&name)).await?;
            binding.map(|binding| ("ResourceBinding", binding.metadata, binding.spec))
        }
        None => {
            let api: Api<ClusterResourceBinding> = Api::all(hub.client.clone());
            let binding = hub.call(&doing, api.get_opt(&name)).await?;
            binding.map(|binding| ("ClusterResourceBinding", binding.metadata, binding.spec))
        }
    };
    let Some((kind, metadata, spec)) = found else { return Ok(Vec::new()) };
    print::note(format!(
        "note: {} serves no {HISTORY_GROUP}; this is what the binding {name} holds: its last decision, in short",
        hub.found
    ));
    let binding = BindingRef {
        kind: kind.to_owned(),
        namespace: metadata.namespace,
        name,
        uid: metadata.uid.unwrap_or_default(),
    };
    let records = outbox::records(&binding, &spec);
    let row = |record| Row { seq: 0, entry: Entry::Record(Box::new(record)) };
    Ok(records.into_iter().rev().map(|record| api::object(&row(record), true)).collect())
}

/// The part of the selectors that a few objects in hand can be held against.
fn selected(item: &Value, fields: &Fields) -> bool {
    let spec = &item["spec"];
    fields.iter().all(|(field, value)| match *field {
        "spec.trigger" => spec["trigger"] == value.as_str(),
        "spec.outcome" => spec["outcome"] == value.as_str(),
        "spec.cluster" => {
            let of = |side: &str| {
                let shares = spec[side].as_array().into_iter().flatten();
                shares.clone().find(|share| share["name"] == value.as_str()).cloned()
            };
            of("before") != of("after")
        }
        // Kubernetes' times sort as text.
        "since" => spec["at"].as_str().is_some_and(|at| at >= value.as_str()),
        "until" => spec["at"].as_str().is_some_and(|at| at < value.as_str()),
        _ => true,
    })
}
