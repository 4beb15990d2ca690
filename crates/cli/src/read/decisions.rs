//! Reads decisions: from the hub's Decision objects or, if the hub serves none, from the binding.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, bail};
use atoll_api::{ClusterResourceBinding, HISTORY_GROUP, ResourceBinding, VERSION, names};
use atoll_history::{BindingRef, Row, StoredRecord, api, outbox};
use futures::stream::{BoxStream, SelectAll};
use futures::{StreamExt, stream};
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, WatchEvent, WatchParams,
};
use serde_json::Value;

use super::item::{Item, is_whole};
use super::workload::Workload;
use crate::hub::Hub;
use crate::print;

/// Page size of a list of decisions.
const PAGE: usize = 500;
/// Number of newest decisions searched for an id prefix.
const SEARCHED: usize = 5_000;
/// Pause before a watch is restarted, and between two reads of a binding when there is no watch. Decisions are seconds
/// apart, and one request every two seconds is no load for a hub.
const AGAIN: Duration = Duration::from_secs(2);
/// Timeout of one watch in seconds: below the five minutes after which proxies and API servers cut it.
const WATCH: u32 = 240;

/// Filters of a list: field selectors of the Decision kinds.
pub(crate) type Fields = Vec<(&'static str, String)>;

/// The scope of a list of decisions.
#[derive(Debug, Clone)]
pub(crate) enum Of {
    /// One workload.
    Workload(Workload),
    /// All workloads of a namespace.
    Namespace(String),
    /// All workloads, cluster-scoped ones included.
    Everything,
}

impl std::fmt::Display for Of {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Workload(workload) => write!(f, "{workload}"),
            Self::Namespace(namespace) => write!(f, "workloads of namespace {namespace}"),
            Self::Everything => f.write_str("all workloads"),
        }
    }
}

impl Of {
    fn apis(&self, hub: &Hub) -> Vec<Api<DynamicObject>> {
        match self {
            Self::Workload(workload) => vec![api(hub, workload.namespace.as_deref())],
            Self::Namespace(namespace) => vec![api(hub, Some(namespace))],
            Self::Everything => vec![
                Api::all_with(hub.client.clone(), &resource(api::Kind::Decision)),
                api(hub, None),
            ],
        }
    }

    fn selector(&self, fields: &Fields) -> String {
        let mut selectors = Vec::new();
        if let Self::Workload(workload) = self {
            selectors.push(format!("spec.workload.group={}", workload.kind.group));
            selectors.push(format!("spec.workload.kind={}", workload.kind.kind));
            selectors.push(format!("spec.workload.name={}", workload.name));
        }
        let given = fields.iter().map(|(field, value)| format!("{field}={}", escape(value)));
        selectors.extend(given);
        selectors.join(",")
    }

    /// The workload whose binding is read instead, if the hub serves no history.
    fn unserved(&self) -> Option<&Workload> {
        match self {
            Self::Workload(workload) if !workload.decisions_served => Some(workload),
            _ => None,
        }
    }
}

/// Escapes a field selector value as apimachinery's `EscapeValue`.
pub(crate) fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for character in value.chars() {
        if matches!(character, '\\' | ',' | '=') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

pub(crate) fn resource(kind: api::Kind) -> ApiResource {
    let of = GroupVersionKind::gvk(HISTORY_GROUP, VERSION, kind.name());
    ApiResource::from_gvk_with_plural(&of, kind.plural())
}

/// Decisions of a namespace, or cluster-scoped ones.
fn api(hub: &Hub, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => {
            let resource = resource(api::Kind::Decision);
            Api::namespaced_with(hub.client.clone(), namespace, &resource)
        }
        None => Api::all_with(hub.client.clone(), &resource(api::Kind::ClusterDecision)),
    }
}

/// Decisions, newest first.
pub(crate) struct Decisions {
    pub(crate) items: Vec<Value>,
    /// Whether there are older ones.
    pub(crate) more: bool,
    /// Resource version for the watch, per API of [`Of::apis`].
    versions: Vec<String>,
}

impl Decisions {
    /// Merges objects of another kind, newest first, up to the limit.
    pub(crate) fn merge(&mut self, others: Vec<Value>, limit: usize) {
        self.items.extend(others);
        // Kubernetes timestamps sort as text, to the second; within a second the order is kept.
        let second = |item: &Value| Item(item).text("at").get(..19).map(str::to_owned);
        self.items.sort_by_key(|item| std::cmp::Reverse(second(item)));
        self.more |= self.items.len() > limit;
        self.items.truncate(limit);
    }
}

/// The newest decisions, at most `limit`, without details.
///
/// # Errors
/// When the hub does not answer, refuses a selector, or has no such workload.
pub(crate) async fn list(
    hub: &Hub,
    of: &Of,
    fields: &Fields,
    limit: usize,
) -> anyhow::Result<Decisions> {
    if let Some(workload) = of.unserved() {
        let items = held(hub, workload, true).await?;
        let items: Vec<_> = items.into_iter().filter(|item| selected(item, fields)).collect();
        let more = items.len() > limit;
        let items = items.into_iter().take(limit).collect();
        return Ok(Decisions { items, more, versions: Vec::new() });
    }
    let mut all = Decisions { items: Vec::new(), more: false, versions: Vec::new() };
    for api in of.apis(hub) {
        let (items, more, version) = pages(hub, &api, of, fields, limit).await?;
        all.items.extend(items);
        all.more |= more;
        all.versions.push(version);
    }
    if all.versions.len() > 1 {
        // Kubernetes timestamps sort as text.
        all.items.sort_by(|a, b| Item(b).text("at").cmp(Item(a).text("at")));
        all.more |= all.items.len() > limit;
        all.items.truncate(limit);
    }
    Ok(all)
}

async fn pages(
    hub: &Hub,
    api: &Api<DynamicObject>,
    of: &Of,
    fields: &Fields,
    limit: usize,
) -> anyhow::Result<(Vec<Value>, bool, String)> {
    let doing = format!("list the decisions about {of}");
    let mut params = ListParams::default().fields(&of.selector(fields));
    let mut items = Vec::new();
    let mut version = None;
    loop {
        let wanted = PAGE.min(limit - items.len());
        params = params.limit(u32::try_from(wanted).unwrap_or(u32::MAX));
        let page = hub.call(&doing, api.list(&params)).await?;
        // The first page's version, so that a watch delivers the decisions made since.
        version.get_or_insert(page.metadata.resource_version.unwrap_or_default());
        for object in page.items {
            items.push(serde_json::to_value(object).context("read a decision")?);
        }
        let token = page.metadata.continue_.filter(|token| !token.is_empty());
        match token {
            Some(token) if items.len() < limit => params = params.continue_token(&token),
            token => return Ok((items, token.is_some(), version.unwrap_or_default())),
        }
    }
}

/// An object of [`list`] with its detail.
///
/// # Errors
/// When the hub does not answer.
pub(crate) async fn get(hub: &Hub, of: &Of, item: &Value) -> anyhow::Result<Value> {
    if of.unserved().is_some() {
        return Ok(item.clone());
    }
    let (name, namespace) = (Item(item).id(), item["metadata"]["namespace"].as_str());
    let doing = format!("get decision {name} about {of}");
    let object = hub.call(&doing, api(hub, namespace).get(name)).await?;
    serde_json::to_value(object).context("read a decision")
}

/// The decision with this id or id prefix, with its detail. Errors name `flag`.
///
/// # Errors
/// When none or several match, or the hub does not answer.
pub(crate) async fn find(hub: &Hub, of: &Of, id: &str, flag: &str) -> anyhow::Result<Value> {
    if of.unserved().is_none() && is_whole(id) {
        if let Of::Everything = of {
            // Without its namespace it cannot be got, but listed by its name.
            let named: Fields = vec![("metadata.name", id.to_owned())];
            if let [one] = list(hub, of, &named, 1).await?.items.as_slice() {
                return get(hub, of, one).await;
            }
        } else {
            for api in of.apis(hub) {
                let found = hub.call(&format!("get decision {id}"), api.get_opt(id)).await?;
                if let Some(object) = found {
                    return serde_json::to_value(object).context("read a decision");
                }
            }
        }
    }
    let items = list(hub, of, &Fields::new(), SEARCHED).await?.items;
    let matching: Vec<&Value> =
        items.iter().filter(|item| Item(item).id().starts_with(id)).collect();
    match matching.as_slice() {
        [one] => get(hub, of, one).await,
        [] if items.len() == SEARCHED => bail!(
            "{flag} {id}: none of the newest {SEARCHED} decisions about {of} has an id that begins so; give the whole id of an \
             older one"
        ),
        [] => bail!(
            "{flag} {id}: no decision about {of} has an id that begins so; see `atoll history`"
        ),
        several => {
            let names: Vec<_> = several.iter().map(|item| Item(item).id()).collect();
            bail!("{flag} {id} matches several ids: {}", names.join(", "))
        }
    }
}

/// Passes new decisions to `take` until it returns false.
///
/// # Errors
/// When the hub refuses, or `take` fails. An unreachable hub is retried.
pub(crate) async fn follow(
    hub: &Hub,
    of: &Of,
    fields: &Fields,
    after: &Decisions,
    mut take: impl FnMut(&Value) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if let Some(workload) = of.unserved() {
        let mut seen: BTreeSet<String> =
            after.items.iter().map(|item| Item(item).id().to_owned()).collect();
        loop {
            tokio::time::sleep(AGAIN).await;
            for item in held(hub, workload, false).await?.iter().rev() {
                if seen.insert(Item(item).id().to_owned()) && selected(item, fields) {
                    take(item)?;
                }
            }
        }
    }
    let watches = of.apis(hub).into_iter().zip(&after.versions);
    let mut news: SelectAll<_> =
        watches.map(|(api, version)| watch(api, of.selector(fields), version.clone())).collect();
    while let Some(object) = news.next().await {
        take(&object.with_context(|| format!("follow the decisions about {of}"))?)?;
    }
    Ok(())
}

/// The watch of one API. Ends with an error that a retry would not fix.
struct Watch {
    api: Api<DynamicObject>,
    params: WatchParams,
    version: String,
    events: Option<BoxStream<'static, kube::Result<WatchEvent<DynamicObject>>>>,
    /// Whether the user was notified that the hub is unreachable.
    told: bool,
    over: bool,
}

fn watch(
    api: Api<DynamicObject>,
    selector: String,
    version: String,
) -> BoxStream<'static, anyhow::Result<Value>> {
    let params = WatchParams::default().fields(&selector).timeout(WATCH).disable_bookmarks();
    let watch = Watch { api, params, version, events: None, told: false, over: false };
    stream::unfold(watch, |mut watch| async move {
        let next = watch.next().await?;
        Some((next, watch))
    })
    .boxed()
}

impl Watch {
    async fn next(&mut self) -> Option<anyhow::Result<Value>> {
        if self.over {
            return None;
        }
        loop {
            let Some(events) = &mut self.events else {
                match self.api.watch(&self.params, &self.version).await {
                    Ok(events) => self.events = Some(events.boxed()),
                    Err(error) => {
                        if let Some(meant) = self.failed(error) {
                            return Some(Err(meant));
                        }
                        tokio::time::sleep(AGAIN).await;
                    }
                }
                continue;
            };
            match events.next().await {
                Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                    self.told = false;
                    if let Some(version) = &object.metadata.resource_version {
                        self.version.clone_from(version);
                    }
                    return Some(serde_json::to_value(object).context("read a decision"));
                }
                Some(Ok(WatchEvent::Bookmark(_) | WatchEvent::Deleted(_))) => {}
                Some(Ok(WatchEvent::Error(status))) => {
                    if let Some(meant) = self.failed(kube::Error::Api(status)) {
                        return Some(Err(meant));
                    }
                    self.pause().await;
                }
                // The watch timed out or the connection broke.
                Some(Err(_)) | None => self.pause().await,
            }
        }
    }

    async fn pause(&mut self) {
        self.events = None;
        tokio::time::sleep(AGAIN).await;
    }

    /// The error, if a retry would not help.
    fn failed(&mut self, error: kube::Error) -> Option<anyhow::Error> {
        if let kube::Error::Api(status) = &error
            && (400..500).contains(&status.code)
            && !matches!(status.code, 408 | 429)
        {
            self.over = true;
            return Some(error.into());
        }
        if !std::mem::replace(&mut self.told, true) {
            let why = match &error {
                kube::Error::Api(status) => status.message.clone(),
                error => error.to_string(),
            };
            print::note(format!("note: the hub does not answer, asking again: {why}"));
        }
        None
    }
}

/// The decisions in the binding: the last one, and those before it that are not in the database yet; newest first.
async fn held(hub: &Hub, workload: &Workload, tell: bool) -> anyhow::Result<Vec<Value>> {
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
    if tell {
        print::note(format!(
            "note: {} does not serve {HISTORY_GROUP}; this is the summary of the last decision in binding {name}",
            hub.found
        ));
    }
    let binding = BindingRef {
        kind: kind.to_owned(),
        namespace: metadata.namespace,
        name,
        uid: metadata.uid.unwrap_or_default().into(),
    };
    let records = outbox::records(&binding, &spec);
    let row = |record| Row { seq: 0, entry: StoredRecord::Record(Box::new(record)) };
    Ok(records.into_iter().rev().map(|record| api::object(&row(record), true)).collect())
}

/// Applies the selectors to an object on the client.
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
        // Kubernetes timestamps sort as text.
        "since" => spec["at"].as_str().is_some_and(|at| at >= value.as_str()),
        "until" => spec["at"].as_str().is_some_and(|at| at < value.as_str()),
        _ => true,
    })
}
