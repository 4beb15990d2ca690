//! Whether a template is gone: asked of the hub itself, never concluded from a cache.
//!
//! When a CustomResourceDefinition is deleted, the API server deletes its objects too, and then no longer serves the
//! kind. That does not mean that a user deleted the workloads: such bindings are frozen, not withdrawn.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, GroupVersionKind};
use kube::{Client, Error, discovery};

use crate::index::key::TemplateKey;

/// Limit of one request to the hub.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The hub's answer about a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It exists, with this uid.
    There(String),
    /// It is gone and its kind is served: it was deleted.
    Gone,
    /// Unknown, and why.
    Unreadable(String),
}

/// Asks the hub.
pub(crate) async fn look(client: &Client, key: &TemplateKey, version: &str) -> Presence {
    match tokio::time::timeout(TIMEOUT, ask(client, key, version)).await {
        Ok(Ok(presence)) => presence,
        Ok(Err(error)) => Presence::Unreadable(error.to_string()),
        Err(_) => Presence::Unreadable(format!("no answer from the hub within {TIMEOUT:?}")),
    }
}

async fn ask(client: &Client, key: &TemplateKey, version: &str) -> Result<Presence, Error> {
    let gvk = GroupVersionKind::gvk(key.group_kind().group, version, key.group_kind().kind);
    let (resource, _) = match discovery::pinned_kind(client, &gvk).await {
        Ok(found) => found,
        Err(error) => {
            return Ok(Presence::Unreadable(format!(
                "the hub does not serve {}: {error}",
                key.group_kind()
            )));
        }
    };
    let api: Api<DynamicObject> = match key.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    match api.get(key.name()).await {
        Ok(object) => return Ok(Presence::There(object.metadata.uid.unwrap_or_default())),
        // A 404 of a proxy, or of a path that is not served, has another reason or none.
        Err(Error::Api(status)) if status.code == 404 && status.reason == "NotFound" => {}
        Err(error) => return Err(error),
    }
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crd = format!("{}.{}", resource.plural, resource.group);
    match crds.get(&crd).await {
        Ok(crd) if crd.metadata.deletion_timestamp.is_some() => Ok(Presence::Unreadable(format!(
            "the CustomResourceDefinition of {} is being deleted",
            key.group_kind()
        ))),
        Ok(_) => Ok(Presence::Gone),
        // A kind without a CRD is built in: it was served a moment ago.
        Err(Error::Api(status)) if status.code == 404 => Ok(Presence::Gone),
        // Without permission to read CRDs, a deleted object cannot be told from a deleted kind, except for built-in
        // groups.
        Err(Error::Api(status)) if status.code == 403 && !key.group_kind().group.contains('.') => {
            Ok(Presence::Gone)
        }
        Err(error) => Err(error),
    }
}
