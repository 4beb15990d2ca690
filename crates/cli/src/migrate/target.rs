//! Atoll's hub: what the migration makes there, and what the hub says about it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail};
use atoll_api::names::binding_name;
use atoll_api::{VERSION, WORK_GROUP};
use atoll_migrate::check::{Finding, Severity};
use atoll_migrate::estate::{Binding, Estate, ObjectRef};
use atoll_migrate::hub::{self as plan, is_made};
use atoll_scheduler::detect::{self, Policy};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch,
    PatchParams, PostParams, Preconditions,
};
use serde_json::{Value, json};

use super::source::{as_value, served_kind};
use crate::hub::{self, Hub};
use crate::join::MANAGER;

/// Objects of one page of a list.
const PAGE: u32 = 500;

/// Atoll's hub.
pub(super) struct Target {
    pub(super) hub: Hub,
}

impl Target {
    fn api(&self, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
        let client = self.hub.client.clone();
        match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, resource),
            None => Api::all_with(client, resource),
        }
    }

    async fn list(&self, resource: &ApiResource) -> anyhow::Result<Vec<Value>> {
        let api = self.api(resource, None);
        let doing = format!("list {}", resource.plural);
        let mut params = ListParams { limit: Some(PAGE), ..ListParams::default() };
        let mut found = Vec::new();
        loop {
            let page = self.hub.call(&doing, api.list(&params)).await?;
            for object in page.items {
                found.push(as_value(object, resource)?);
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(next) => params.continue_token = Some(next),
                None => return Ok(found),
            }
        }
    }

    /// The Clusters, by name.
    pub(super) async fn clusters(&self) -> anyhow::Result<BTreeMap<String, Value>> {
        let kind = GroupVersionKind::gvk("cluster.atoll.dev", VERSION, "Cluster");
        let all = self.list(&ApiResource::from_gvk(&kind)).await?;
        let named = all.into_iter().filter_map(|cluster| {
            Some((cluster["metadata"]["name"].as_str()?.to_owned(), cluster))
        });
        Ok(named.collect())
    }

    /// Objects of the hub that stand in the way: of the same name, or claimed by the policies that come.
    pub(super) async fn findings(
        &self,
        estate: &Estate,
        prepared: &[Value],
    ) -> anyhow::Result<Vec<Finding>> {
        let mut found = Vec::new();
        let mut blocks = |object: String, problem: &str| {
            found.push(Finding { severity: Severity::Blocks, object, problem: problem.to_owned() });
        };
        for object in prepared {
            let Some(there) = self.get(object).await? else { continue };
            let problem = if is_made(&there) {
                plan::refused(&there).map(|why| format!("Atoll's controller refuses it: {why}"))
            } else {
                let problem = "the hub has one of this name, which the migration did not make: rename one of them";
                Some(problem.to_owned())
            };
            if let Some(problem) = problem {
                blocks(
                    ObjectRef::of(object).map(|of| of.to_string()).unwrap_or_default(),
                    &problem,
                );
            }
        }
        let new: Vec<Policy> =
            prepared.iter().filter_map(|policy| Policy::read(policy).ok()).collect();
        let kinds: BTreeSet<(String, String)> = estate
            .moving()
            .map(|binding| (binding.api_version.clone(), binding.of.kind.clone()))
            .collect();
        for (api_version, kind) in kinds {
            let Some((resource, _)) = served_kind(&self.hub, &api_version, &kind).await? else {
                blocks(
                    kind,
                    &format!(
                        "the hub does not serve it in {api_version}: install its CustomResourceDefinition there"
                    ),
                );
                continue;
            };
            for object in self.list(&resource).await?.iter().filter(|object| !is_made(object)) {
                let Some(of) = ObjectRef::of(object) else { continue };
                let moves = estate.moving().any(|binding| binding.of == of);
                if moves {
                    blocks(
                        of.to_string(),
                        "the hub has it already: delete it there, or leave it out in Karmada",
                    );
                } else if new.iter().any(|policy| selects(policy, object, &of)) {
                    blocks(
                        of.to_string(),
                        "it is on the hub, and a policy of Karmada would claim it there: name the objects in the policy",
                    );
                }
            }
        }
        Ok(found)
    }

    fn resource_of(object: &Value) -> ApiResource {
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let (group, version) =
            text("apiVersion").rsplit_once('/').unwrap_or(("", text("apiVersion")));
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("kind")))
    }

    async fn get(&self, object: &Value) -> anyhow::Result<Option<Value>> {
        let resource = Self::resource_of(object);
        self.get_as(
            &resource,
            object["metadata"]["namespace"].as_str(),
            &object["metadata"]["name"],
        )
        .await
    }

    async fn get_as(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        name: &Value,
    ) -> anyhow::Result<Option<Value>> {
        let name = name.as_str().unwrap_or_default();
        let doing = format!("get {} {name}", resource.kind);
        let found = self.hub.call(&doing, self.api(resource, namespace).get_opt(name)).await?;
        found.map(|object| as_value(object, resource)).transpose()
    }

    /// Creates an object unless the migration made it before. Returns whether it is new.
    pub(super) async fn make(
        &self,
        object: &Value,
        resource: &ApiResource,
    ) -> anyhow::Result<bool> {
        let namespace = object["metadata"]["namespace"].as_str();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let doing = format!("create {} {name}", resource.kind);
        let body = serde_json::from_value(object.clone()).with_context(|| doing.clone())?;
        let params =
            PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        match self.hub.call(&doing, self.api(resource, namespace).create(&params, &body)).await {
            Ok(_) => Ok(true),
            Err(error) if hub::status(&error) == Some(409) => {
                let there = self.get_as(resource, namespace, &object["metadata"]["name"]).await?;
                match there {
                    Some(there) if is_made(&there) || resource.kind == "Namespace" => Ok(false),
                    _ => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Creates the namespaces and what they need before the objects. Returns the new ones.
    pub(super) async fn prepare(
        &self,
        estate: &Estate,
        prepared: &[Value],
    ) -> anyhow::Result<Vec<String>> {
        let mut made = Vec::new();
        let mut namespaces: BTreeSet<String> = estate.namespaces().into_iter().collect();
        let others = prepared.iter().filter_map(|object| object["metadata"]["namespace"].as_str());
        namespaces.extend(others.map(str::to_owned));
        for name in namespaces {
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            if self.make(&namespace, &Self::resource_of(&namespace)).await? {
                made.push(format!("Namespace {name}"));
            }
        }
        for object in prepared {
            if self.make(object, &Self::resource_of(object)).await? {
                made.push(ObjectRef::of(object).map(|of| of.to_string()).unwrap_or_default());
            }
        }
        Ok(made)
    }

    /// What keeps the prepared objects from being in force; empty if all are. Templates must not come before them.
    pub(super) async fn not_in_force(&self, prepared: &[Value]) -> anyhow::Result<Vec<String>> {
        let mut waits = Vec::new();
        for object in prepared {
            let title = ObjectRef::of(object).map(|of| of.to_string()).unwrap_or_default();
            let Some(there) = self.get(object).await?.filter(is_made) else {
                bail!("{title} is not on Atoll's hub: run `atoll migrate karmada prepare` first");
            };
            if !plan::is_as_asked(&there, object) {
                bail!(
                    "{title} has changed in Karmada or on Atoll's hub since `prepare`: delete it on Atoll's hub, and run \
                     `atoll migrate karmada prepare` again"
                );
            }
            if !plan::is_in_force(&there) {
                let why = plan::refused(&there).map_or_else(String::new, |why| format!(": {why}"));
                waits.push(format!("{title}: Atoll's controller has not accepted it{why}"));
            }
        }
        Ok(waits)
    }

    /// The object on the hub for a binding of Karmada, if the migration made it.
    pub(super) async fn template(&self, binding: &Binding) -> anyhow::Result<Option<Value>> {
        let served = served_kind(&self.hub, &binding.api_version, &binding.of.kind).await?;
        let Some((resource, _)) = served else { return Ok(None) };
        let name = json!(binding.of.name);
        let found = self.get_as(&resource, binding.of.namespace.as_deref(), &name).await?;
        Ok(found.filter(is_made))
    }

    /// Plural name of the kind of a binding's object.
    pub(super) async fn plural(&self, binding: &Binding) -> anyhow::Result<Option<String>> {
        let served = served_kind(&self.hub, &binding.api_version, &binding.of.kind).await?;
        Ok(served.map(|(resource, _)| resource.plural))
    }

    /// Creates a template.
    pub(super) async fn start(&self, binding: &Binding, template: &Value) -> anyhow::Result<bool> {
        let served = served_kind(&self.hub, &binding.api_version, &binding.of.kind).await?;
        let (resource, _) = served.with_context(|| {
            format!("the hub does not serve {} in {}", binding.of.kind, binding.api_version)
        })?;
        self.make(template, &resource).await
    }

    /// Deletes a template that the migration made; members keep their objects, because the binding says so.
    pub(super) async fn remove(&self, binding: &Binding, template: &Value) -> anyhow::Result<()> {
        let served = served_kind(&self.hub, &binding.api_version, &binding.of.kind).await?;
        let Some((resource, _)) = served else { return Ok(()) };
        self.delete(&resource, template).await
    }

    /// Deletes the binding of an object that went where others need it: the object does not own it.
    pub(super) async fn remove_binding(&self, binding: &Value) -> anyhow::Result<()> {
        self.delete(&Self::resource_of(binding), binding).await
    }

    async fn delete(&self, resource: &ApiResource, object: &Value) -> anyhow::Result<()> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let doing = format!("delete {} {name}", resource.kind);
        let uid = object["metadata"]["uid"].as_str().map(str::to_owned);
        let preconditions = Some(Preconditions { uid, resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        let api = self.api(resource, object["metadata"]["namespace"].as_str());
        match self.hub.call(&doing, api.delete(name, &params)).await {
            Ok(_) => Ok(()),
            Err(error) if hub::status(&error) == Some(404) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Ends the migration of an object of the hub.
    pub(super) async fn end(&self, object: &Value, plural: Option<String>) -> anyhow::Result<()> {
        let Some(patch) = plan::end(object) else { return Ok(()) };
        let mut resource = Self::resource_of(object);
        if let Some(plural) = plural {
            resource.plural = plural;
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let doing = format!("end the migration of {} {name}", resource.kind);
        let params =
            PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let api = self.api(&resource, object["metadata"]["namespace"].as_str());
        self.hub.call(&doing, api.patch(name, &params, &Patch::Merge(patch))).await.map(|_| ())
    }

    /// A prepared object as the hub has it.
    pub(super) async fn prepared(&self, object: &Value) -> anyhow::Result<Option<Value>> {
        self.get(object).await
    }

    /// Atoll's binding of an object.
    pub(super) async fn binding(&self, of: &ObjectRef) -> anyhow::Result<Option<Value>> {
        let kind =
            if of.namespace.is_some() { "ResourceBinding" } else { "ClusterResourceBinding" };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(WORK_GROUP, VERSION, kind));
        let name = json!(binding_name(&of.name, &of.kind, &of.group));
        self.get_as(&resource, of.namespace.as_deref(), &name).await
    }
}

fn selects(policy: &Policy, object: &Value, of: &ObjectRef) -> bool {
    let labels: BTreeMap<String, String> =
        serde_json::from_value(object["metadata"]["labels"].clone()).unwrap_or_default();
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let key = detect::TemplateKey::new(
        detect::KindRef::of(api_version, &of.kind),
        of.namespace.as_deref(),
        &of.name,
    );
    let owners = object["metadata"]["ownerReferences"].as_array();
    let owned = owners.is_some_and(|owners| !owners.is_empty());
    detect::selects(policy, &key, &labels, owned).is_some()
}
