//! Reads the objects of a running Karmada control plane. Only reads: get and list.

use std::collections::BTreeSet;

use anyhow::ensure;
use atoll_api::ReservedNamespaces;
use atoll_api::selector::Selector;
use atoll_convert::is_foreign;
use atoll_scheduler::offline::documents::Document;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIResource, LabelSelector};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::Value;

use crate::args::HubFlags;
use crate::hub::Hub;
use crate::print;

/// Objects of one page of a list.
const PAGE: u32 = 500;
/// Most objects to read. A larger estate is read by namespace.
const MAX_OBJECTS: usize = 100_000;
/// The group of what Karmada makes from policies: bindings and Works. Atoll makes its own.
const WORK_GROUP: &str = "work.karmada.io";

/// Objects and the kinds to which they belong, each object once.
struct Reader<'a> {
    hub: &'a Hub,
    /// The only namespace to read; all if absent.
    namespace: Option<&'a str>,
    seen: BTreeSet<(String, String, String, String)>,
    documents: Vec<Document>,
}

/// A kind as the API server serves it.
struct Served {
    resource: ApiResource,
    namespaced: bool,
}

/// The kinds of Karmada, Kosmos and OpenKruise that the converter knows, and the objects that the policies select.
///
/// # Errors
/// When the API server cannot be reached, refuses a list, or has too many objects.
pub(super) async fn read(flags: &HubFlags) -> anyhow::Result<Vec<Document>> {
    let hub = Hub::find(flags).await?;
    let namespace = flags.namespace.as_deref();
    let mut reader = Reader { hub: &hub, namespace, seen: BTreeSet::new(), documents: Vec::new() };
    for served in foreign_kinds(&hub).await? {
        reader.list(&served, None, None).await?;
    }
    ensure!(
        !reader.documents.is_empty(),
        "{} has no object of Karmada's groups: is it a Karmada control plane?",
        hub.found
    );
    let policies: Vec<Value> =
        reader.documents.iter().map(|document| document.object.clone()).collect();
    for policy in &policies {
        reader.selected(policy).await?;
    }
    print::note(
        "ResourceBindings and Works were not read: Atoll makes its own bindings and needs no Works.",
    );
    Ok(reader.documents)
}

async fn foreign_kinds(hub: &Hub) -> anyhow::Result<Vec<Served>> {
    let groups = hub.call("list the API groups", hub.client.list_api_groups()).await?;
    let mut kinds = Vec::new();
    for group in groups.groups.iter().filter(|group| group.name != WORK_GROUP) {
        let version = group.preferred_version.as_ref().or(group.versions.first());
        let Some(version) = version else { continue };
        let foreign = group.name.ends_with(".karmada.io")
            || ["kosmos.io", "apps.kruise.io"].contains(&group.name.as_str());
        if !foreign {
            continue;
        }
        let doing = format!("list the kinds of {}", version.group_version);
        let resources =
            hub.call(&doing, hub.client.list_api_group_resources(&version.group_version)).await?;
        let listed = resources.resources.iter().filter(|resource| {
            !resource.name.contains('/')
                && resource.verbs.iter().any(|verb| verb == "list")
                && is_foreign(&group.name, &resource.kind)
        });
        kinds.extend(listed.map(|resource| served(&group.name, &version.version, resource)));
    }
    Ok(kinds)
}

fn served(group: &str, version: &str, resource: &APIResource) -> Served {
    let kind = GroupVersionKind::gvk(group, version, &resource.kind);
    Served {
        resource: ApiResource::from_gvk_with_plural(&kind, &resource.name),
        namespaced: resource.namespaced,
    }
}

impl Reader<'_> {
    fn api(&self, served: &Served, namespace: Option<&str>) -> Api<DynamicObject> {
        let client = self.hub.client.clone();
        match namespace.or(self.namespace).filter(|_| served.namespaced) {
            Some(namespace) => Api::namespaced_with(client, namespace, &served.resource),
            None => Api::all_with(client, &served.resource),
        }
    }

    /// Reads all objects of a kind, or those in a namespace or with labels.
    async fn list(
        &mut self,
        served: &Served,
        namespace: Option<&str>,
        labels: Option<&str>,
    ) -> anyhow::Result<()> {
        let api = self.api(served, namespace);
        let doing = format!("list {}.{}", served.resource.plural, served.resource.group);
        let mut params = ListParams { limit: Some(PAGE), ..ListParams::default() };
        params.label_selector = labels.map(str::to_owned);
        loop {
            let page = self.hub.call(&doing, api.list(&params)).await?;
            for object in page.items {
                self.keep(served, object)?;
            }
            let next = page.metadata.continue_.filter(|token| !token.is_empty());
            let Some(next) = next else { return Ok(()) };
            params.continue_token = Some(next);
        }
    }

    fn keep(&mut self, served: &Served, object: DynamicObject) -> anyhow::Result<()> {
        let resource = &served.resource;
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        let name = object.metadata.name.clone().unwrap_or_default();
        let mut value = serde_json::to_value(object)?;
        if let Some(fields) = value.as_object_mut() {
            // Items of a list have neither.
            fields.insert("apiVersion".to_owned(), resource.api_version.clone().into());
            fields.insert("kind".to_owned(), resource.kind.clone().into());
            atoll_interpreter::strip_allocated(fields);
        }
        let foreign = is_foreign(&resource.group, &resource.kind);
        let reserved = ReservedNamespaces::default().contains(&namespace);
        if !foreign && (reserved || is_made_by_every_cluster(&value) || is_controlled(&value)) {
            return Ok(());
        }
        let key = (resource.group.clone(), resource.kind.clone(), namespace.clone(), name.clone());
        if !self.seen.insert(key) {
            return Ok(());
        }
        ensure!(
            self.documents.len() < MAX_OBJECTS,
            "more than {MAX_OBJECTS} objects: convert one namespace at a time with --namespace"
        );
        let origin = format!("{} {namespace}/{name}", resource.kind);
        self.documents.push(Document { origin, object: value });
        Ok(())
    }

    /// Reads the objects that a policy selects.
    async fn selected(&mut self, policy: &Value) -> anyhow::Result<()> {
        let kind = policy["kind"].as_str().unwrap_or_default();
        if !matches!(kind, "PropagationPolicy" | "ClusterPropagationPolicy") {
            return Ok(());
        }
        let home = policy["metadata"]["namespace"].as_str();
        let selectors = policy["spec"]["resourceSelectors"].as_array().cloned().unwrap_or_default();
        for selector in &selectors {
            let text = |field: &str| selector[field].as_str().filter(|text| !text.is_empty());
            let (Some(api_version), Some(kind)) = (text("apiVersion"), text("kind")) else {
                continue;
            };
            let Some(served) = self.find(api_version, kind).await? else {
                let policy = crate::input::title(policy);
                print::note(format!(
                    "warning: {policy} selects {kind} of {api_version}, which the server does not have"
                ));
                continue;
            };
            let namespace = home.or(text("namespace")).filter(|_| served.namespaced);
            if self.namespace.is_some_and(|only| namespace.is_some_and(|name| name != only)) {
                continue;
            }
            self.matching(&served, namespace, selector, text("name")).await?;
        }
        Ok(())
    }

    async fn matching(
        &mut self,
        served: &Served,
        namespace: Option<&str>,
        selector: &Value,
        name: Option<&str>,
    ) -> anyhow::Result<()> {
        // A name makes the labels count for nothing, as in Karmada.
        if let (Some(name), true) = (name, namespace.is_some() || !served.namespaced) {
            let doing = format!("get {}/{name}", served.resource.plural);
            let found = self.hub.call(&doing, self.api(served, namespace).get_opt(name)).await?;
            return found.map_or(Ok(()), |object| self.keep(served, object));
        }
        if let Some(name) = name {
            let before = self.documents.len();
            self.list(served, namespace, None).await?;
            self.forget_from(before, |object| object["metadata"]["name"] == name);
            return Ok(());
        }
        let labels = selector.get("labelSelector").filter(|labels| !labels.is_null());
        let labels = match labels {
            None => None,
            Some(labels) => {
                let parsed: LabelSelector = serde_json::from_value(labels.clone())?;
                Selector::parse(&parsed)?;
                Some(written(&parsed))
            }
        };
        self.list(served, namespace, labels.as_deref()).await
    }

    /// Drops the objects since `before` that are not wanted.
    fn forget_from(&mut self, before: usize, wanted: impl Fn(&Value) -> bool) {
        for document in self.documents.split_off(before) {
            if wanted(&document.object) {
                self.documents.push(document);
            } else {
                let source = atoll_convert::Source::of(&document.object);
                let namespace = source.namespace.clone().unwrap_or_default();
                self.seen.remove(&(
                    source.group().to_owned(),
                    source.kind.clone(),
                    namespace,
                    source.name.clone(),
                ));
            }
        }
    }

    /// The kind as the server has it; `None` if it does not serve it.
    async fn find(&self, api_version: &str, kind: &str) -> anyhow::Result<Option<Served>> {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let doing = format!("list the kinds of {api_version}");
        let client = &self.hub.client;
        let resources = if group.is_empty() {
            self.hub.call(&doing, client.list_core_api_resources(version)).await
        } else {
            self.hub.call(&doing, client.list_api_group_resources(api_version)).await
        };
        let resources = match resources {
            Ok(resources) => resources,
            Err(error) if is_not_found(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let found = resources
            .resources
            .iter()
            .find(|resource| resource.kind == kind && !resource.name.contains('/'));
        Ok(found.map(|resource| served(group, version, resource)))
    }
}

fn is_not_found(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        matches!(cause.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 404)
    })
}

/// The text form of a label selector that parses.
fn written(selector: &LabelSelector) -> String {
    let equal = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let compared = selector.match_expressions.iter().flatten().map(|expression| {
        let values = expression.values.as_deref().unwrap_or_default().join(",");
        match expression.operator.as_str() {
            "In" => format!("{} in ({values})", expression.key),
            "NotIn" => format!("{} notin ({values})", expression.key),
            "DoesNotExist" => format!("!{}", expression.key),
            _ => expression.key.clone(),
        }
    });
    equal.chain(compared).collect::<Vec<_>>().join(",")
}

/// Objects that the controllers of every cluster create; a copy would get in their way.
fn is_made_by_every_cluster(object: &Value) -> bool {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    match (object["apiVersion"].as_str(), object["kind"].as_str()) {
        (Some("v1"), Some("ServiceAccount")) => name == "default",
        (Some("v1"), Some("ConfigMap")) => name == "kube-root-ca.crt",
        (Some("v1"), Some("Secret")) => object["type"] == "kubernetes.io/service-account-token",
        _ => false,
    }
}

/// Whether another object controls this one and makes it again on the hub.
fn is_controlled(object: &Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().any(|owner| owner["controller"] == true)
}
