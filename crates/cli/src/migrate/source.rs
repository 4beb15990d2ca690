//! Karmada's API server: reads an estate, and suspends objects.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, ensure};
use atoll_api::binding::TargetCluster;
use atoll_migrate::estate::{Binding, Estate, ObjectRef, PolicyName, Work};
use atoll_migrate::karmada::{self, Part};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
};
use kube::discovery::{self, ApiCapabilities, Scope};
use serde_json::Value;

use crate::args::HubFlags;
use crate::hub::{self, Hub};
use crate::join::MANAGER;

/// Objects of one page of a list.
const PAGE: u32 = 500;
/// Most objects of one kind. A larger estate moves by namespace.
const MOST: usize = 200_000;
/// Attempts to patch an object that Karmada's controllers change at the same time.
const ATTEMPTS: usize = 10;

/// A kind: group, version, kind, plural.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind(&'static str, &'static str, &'static str, &'static str);

const CLUSTERS: Kind = Kind("cluster.karmada.io", "v1alpha1", "Cluster", "clusters");
const POLICIES: Kind =
    Kind("policy.karmada.io", "v1alpha1", "PropagationPolicy", "propagationpolicies");
const CLUSTER_POLICIES: Kind =
    Kind("policy.karmada.io", "v1alpha1", "ClusterPropagationPolicy", "clusterpropagationpolicies");
const OVERRIDES: Kind = Kind("policy.karmada.io", "v1alpha1", "OverridePolicy", "overridepolicies");
const CLUSTER_OVERRIDES: Kind =
    Kind("policy.karmada.io", "v1alpha1", "ClusterOverridePolicy", "clusteroverridepolicies");
const BINDINGS: Kind = Kind("work.karmada.io", "v1alpha2", "ResourceBinding", "resourcebindings");
const CLUSTER_BINDINGS: Kind =
    Kind("work.karmada.io", "v1alpha2", "ClusterResourceBinding", "clusterresourcebindings");
const WORKS: Kind = Kind("work.karmada.io", "v1alpha1", "Work", "works");
const NAMESPACES: Kind = Kind("", "v1", "Namespace", "namespaces");
/// Further kinds, which a control plane may lack: those of a namespace, and the cluster-scoped ones.
const OF_NAMESPACES: [Kind; 5] = [
    Kind("policy.karmada.io", "v1alpha1", "FederatedResourceQuota", "federatedresourcequotas"),
    Kind("autoscaling.karmada.io", "v1alpha1", "FederatedHPA", "federatedhpas"),
    Kind("autoscaling.karmada.io", "v1alpha1", "CronFederatedHPA", "cronfederatedhpas"),
    Kind("networking.karmada.io", "v1alpha1", "MultiClusterService", "multiclusterservices"),
    Kind("networking.karmada.io", "v1alpha1", "MultiClusterIngress", "multiclusteringresses"),
];
const CLUSTER_SCOPED: [Kind; 5] = [
    Kind(
        "config.karmada.io",
        "v1alpha1",
        "ResourceInterpreterCustomization",
        "resourceinterpretercustomizations",
    ),
    Kind(
        "config.karmada.io",
        "v1alpha1",
        "ResourceInterpreterWebhookConfiguration",
        "resourceinterpreterwebhookconfigurations",
    ),
    Kind("policy.karmada.io", "v1alpha1", "ClusterTaintPolicy", "clustertaintpolicies"),
    Kind("remedy.karmada.io", "v1alpha1", "Remedy", "remedies"),
    Kind("search.karmada.io", "v1alpha1", "ResourceRegistry", "resourceregistries"),
];

impl Kind {
    fn resource(self) -> ApiResource {
        let Self(group, version, kind, plural) = self;
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }
}

/// A Karmada control plane.
pub(super) struct Karmada {
    server: Hub,
}

impl Karmada {
    pub(super) async fn open(kubeconfig: &Path) -> anyhow::Result<Self> {
        let flags = HubFlags { kubeconfig: Some(kubeconfig.to_owned()), ..HubFlags::default() };
        Ok(Self { server: Hub::find(&flags).await.context("--from")? })
    }

    #[cfg(test)]
    pub(super) fn of(client: kube::Client) -> Self {
        let server = Hub { client, namespace: "default".to_owned(), found: "a test".to_owned() };
        Self { server }
    }

    fn api(&self, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
        let client = self.server.client.clone();
        match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, resource),
            None => Api::all_with(client, resource),
        }
    }

    async fn list(&self, kind: Kind, namespace: Option<&str>) -> anyhow::Result<Vec<Value>> {
        let resource = kind.resource();
        let api = self.api(&resource, namespace);
        let doing = format!("list {}.{}", resource.plural, resource.group);
        let mut params = ListParams { limit: Some(PAGE), ..ListParams::default() };
        let mut found = Vec::new();
        loop {
            let page = self.server.call(&doing, api.list(&params)).await;
            let page = page.map_err(|error| match hub::status(&error) {
                Some(404) => error.context("--from: is it a Karmada control plane?"),
                _ => error,
            })?;
            for object in page.items {
                found.push(as_value(object, &resource)?);
            }
            ensure!(
                found.len() <= MOST,
                "more than {MOST} {}: move one namespace at a time with --namespace",
                resource.plural
            );
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(next) => params.continue_token = Some(next),
                None => return Ok(found),
            }
        }
    }

    /// What the control plane has, or one namespace of it.
    pub(super) async fn estate(&self, namespace: Option<&str>) -> anyhow::Result<Estate> {
        let mut policies = self.list(POLICIES, namespace).await?;
        policies.extend(self.list(CLUSTER_POLICIES, None).await?);
        let mut overrides = self.list(OVERRIDES, namespace).await?;
        overrides.extend(self.list(CLUSTER_OVERRIDES, None).await?);
        let mut bindings = self.list(BINDINGS, None).await?;
        bindings.extend(self.list(CLUSTER_BINDINGS, None).await?);
        let bindings = bindings.into_iter().map(Binding::read).collect::<Result<_, _>>();
        let mut estate = Estate {
            namespace: namespace.map(str::to_owned),
            clusters: self.list(CLUSTERS, None).await?,
            policies,
            overrides,
            bindings: bindings.context("read Karmada's bindings")?,
            works: self.list(WORKS, None).await?.into_iter().filter_map(Work::read).collect(),
            extras: self.extras(namespace).await?,
            templates: BTreeMap::new(),
        };
        estate.templates = self.templates(&estate).await?;
        Ok(estate)
    }

    /// Objects of the kinds that a control plane may lack.
    async fn extras(&self, namespace: Option<&str>) -> anyhow::Result<Vec<Value>> {
        let of_namespaces = OF_NAMESPACES.into_iter().map(|kind| (kind, namespace));
        let mut found = Vec::new();
        for (kind, namespace) in of_namespaces.chain(CLUSTER_SCOPED.map(|kind| (kind, None))) {
            match self.list(kind, namespace).await {
                Ok(objects) => found.extend(objects),
                Err(error) if hub::status(&error) == Some(404) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    async fn templates(&self, estate: &Estate) -> anyhow::Result<BTreeMap<ObjectRef, Value>> {
        let mut served = BTreeMap::new();
        let mut found = BTreeMap::new();
        for binding in estate.moving() {
            let key = (binding.api_version.clone(), binding.of.kind.clone());
            if !served.contains_key(&key) {
                let resource = served_kind(&self.server, &key.0, &key.1).await?;
                served.insert(key.clone(), resource);
            }
            let Some(Some((resource, namespaced))) = served.get(&key) else { continue };
            let namespace = binding.of.namespace.as_deref().filter(|_| *namespaced);
            let api = self.api(resource, namespace);
            let doing = format!("get {}", binding.of);
            if let Some(object) = self.server.call(&doing, api.get_opt(&binding.of.name)).await? {
                found.insert(binding.of.clone(), as_value(object, resource)?);
            }
        }
        Ok(found)
    }

    /// A Secret with credentials of a member.
    pub(super) async fn secret(&self, namespace: &str, name: &str) -> anyhow::Result<Secret> {
        let secrets: Api<Secret> = Api::namespaced(self.server.client.clone(), namespace);
        let doing = format!("get Secret {namespace}/{name} of Karmada");
        self.server.call(&doing, secrets.get(name)).await
    }

    /// Suspends an object, unless it is.
    async fn suspend(&self, object: &Value, kind: Kind, part: Part) -> anyhow::Result<()> {
        self.change("suspend", object, kind, |object| karmada::suspend(object, part)).await
    }

    /// Patches an object until there is nothing to change. Karmada's controllers may change it at the same time.
    async fn change(
        &self,
        verb: &str,
        object: &Value,
        kind: Kind,
        patch: impl Fn(&Value) -> Option<Value>,
    ) -> anyhow::Result<()> {
        let resource = kind.resource();
        let api = self.api(&resource, object["metadata"]["namespace"].as_str());
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let doing = format!("{verb} {} {name}", resource.kind);
        let mut current = object.clone();
        for _ in 0..ATTEMPTS {
            let Some(patch) = patch(&current) else { return Ok(()) };
            let params =
                PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
            let answer =
                self.server.call(&doing, api.patch(name, &params, &Patch::Merge(patch))).await;
            match answer {
                Ok(_) => return Ok(()),
                Err(error) if hub::status(&error) == Some(409) => {
                    let fresh = self.server.call(&doing, api.get_opt(name)).await?;
                    let Some(fresh) = fresh else { return Ok(()) };
                    current = as_value(fresh, &resource)?;
                }
                Err(error) => return Err(error),
            }
        }
        anyhow::bail!("{doing}: it changes all the time; run the command again")
    }

    /// Suspends everything that moves. Policies come first: bindings follow them.
    pub(super) async fn suspend_all(&self, estate: &Estate) -> anyhow::Result<()> {
        for namespace in self.namespaces(estate).await? {
            self.suspend(&namespace, NAMESPACES, Part::Namespace).await?;
        }
        for policy in estate.claiming() {
            self.suspend(policy, policy_kind(policy), Part::Policy).await?;
        }
        for binding in estate.moving() {
            self.suspend(&binding.object, binding_kind(binding), Part::Binding).await?;
        }
        for work in estate.namespace_works() {
            self.suspend(&work.object, WORKS, Part::Work).await?;
        }
        Ok(())
    }

    async fn namespaces(&self, estate: &Estate) -> anyhow::Result<Vec<Value>> {
        let resource = NAMESPACES.resource();
        let mut all = Vec::new();
        for name in estate.namespaces() {
            let doing = format!("get namespace {name}");
            let found = self.server.call(&doing, self.api(&resource, None).get_opt(&name)).await?;
            let namespace = found.with_context(|| format!("Karmada has no namespace {name}"))?;
            all.push(as_value(namespace, &resource)?);
        }
        Ok(all)
    }

    /// Gives a binding the clusters that Atoll has.
    pub(super) async fn hand_back(
        &self,
        binding: &Binding,
        clusters: &[TargetCluster],
    ) -> anyhow::Result<()> {
        let patch = |object: &Value| karmada::hand_back(object, clusters);
        self.change("hand back", &binding.object, binding_kind(binding), patch).await
    }

    /// Marks what is Atoll's for good.
    pub(super) async fn finish(&self, estate: &Estate) -> anyhow::Result<()> {
        for binding in estate.moving() {
            self.change("finish", &binding.object, binding_kind(binding), karmada::finish).await?;
        }
        Ok(())
    }

    /// Lets the Works of what is Atoll's for good go when they are deleted.
    pub(super) async fn release_works(&self, estate: &Estate) -> anyhow::Result<()> {
        let of_objects = estate.moving().flat_map(|binding| estate.works_of(&binding.of));
        for work in of_objects.chain(estate.namespace_works()) {
            self.change("release", &work.object, WORKS, karmada::without_finalizer).await?;
        }
        Ok(())
    }

    /// Puts everything back as it was before the suspension. Bindings come last: as long as one of them is marked, the command
    /// knows that it has not ended. A policy that still claims suspended objects elsewhere stays suspended.
    pub(super) async fn restore_all(&self, estate: &Estate) -> anyhow::Result<()> {
        for work in estate.namespace_works() {
            self.change("restore", &work.object, WORKS, karmada::restore).await?;
        }
        for namespace in self.namespaces(estate).await? {
            self.change("restore", &namespace, NAMESPACES, karmada::restore).await?;
        }
        for policy in estate.claiming() {
            let name = PolicyName::of(policy);
            if estate.others_of(&name).any(|binding| karmada::is_marked(&binding.object)) {
                continue;
            }
            self.change("restore", policy, policy_kind(policy), karmada::restore).await?;
        }
        for binding in estate.moving() {
            self.change("restore", &binding.object, binding_kind(binding), karmada::restore)
                .await?;
        }
        Ok(())
    }
}

fn policy_kind(policy: &Value) -> Kind {
    match policy["metadata"]["namespace"].as_str() {
        Some(_) => POLICIES,
        None => CLUSTER_POLICIES,
    }
}

fn binding_kind(binding: &Binding) -> Kind {
    if binding.of.namespace.is_some() { BINDINGS } else { CLUSTER_BINDINGS }
}

/// A kind as a server has it, and whether it is namespaced; `None` if it does not serve it.
pub(super) async fn served_kind(
    server: &Hub,
    api_version: &str,
    kind: &str,
) -> anyhow::Result<Option<(ApiResource, bool)>> {
    let found = served(server, api_version, kind).await?;
    Ok(found.map(|(resource, capabilities)| (resource, capabilities.scope == Scope::Namespaced)))
}

/// A kind as a server has it, and what it can; `None` if it does not serve it.
pub(super) async fn served(
    server: &Hub,
    api_version: &str,
    kind: &str,
) -> anyhow::Result<Option<(ApiResource, ApiCapabilities)>> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let gvk = GroupVersionKind::gvk(group, version, kind);
    let doing = format!("look up {kind} of {api_version}");
    match server.call(&doing, discovery::pinned_kind(&server.client, &gvk)).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if hub::status(&error) == Some(404) => Ok(None),
        Err(error)
            if error
                .chain()
                .any(|cause| matches!(cause.downcast_ref(), Some(kube::Error::Discovery(_)))) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// An object with its type, which items of lists lack.
pub(super) fn as_value(object: DynamicObject, resource: &ApiResource) -> anyhow::Result<Value> {
    let mut value = serde_json::to_value(object)?;
    if let Some(fields) = value.as_object_mut() {
        fields.insert("apiVersion".to_owned(), resource.api_version.clone().into());
        fields.insert("kind".to_owned(), resource.kind.clone().into());
        atoll_interpreter::strip_allocated(fields);
    }
    Ok(value)
}
