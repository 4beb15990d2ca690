//! What an installation recorded about itself on the hub.

use atoll_api::marks::SYSTEM_NAMESPACE;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde_json::json;

use crate::hub::Hub;

/// The installation on this hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// Namespace of the controller's Pods.
    pub(crate) namespace: String,
    /// Where agents reach the controller.
    pub(crate) address: Option<String>,
    /// Version of the manifests.
    pub(crate) version: Option<String>,
    /// The hub runs in a cluster of its own Pods (`--hub bundled`), in which the controller's Pods are too.
    pub(crate) bundled: bool,
}

/// The record, where Atoll was installed from the manifests.
///
/// # Errors
/// When the hub does not answer or refuses.
pub(crate) async fn find(hub: &Hub) -> anyhow::Result<Option<Record>> {
    let maps: Api<ConfigMap> = Api::namespaced(hub.client.clone(), SYSTEM_NAMESPACE);
    let doing = format!("read ConfigMap {SYSTEM_NAMESPACE}/{}", atoll_install::RECORD);
    let Some(map) = hub.call(&doing, maps.get_opt(atoll_install::RECORD)).await? else {
        return Ok(None);
    };
    let data = json!(map.data);
    let (namespace, address) = atoll_install::record_of(&data);
    Ok(Some(Record {
        namespace: namespace.unwrap_or(SYSTEM_NAMESPACE).to_owned(),
        address: address.map(str::to_owned),
        version: data["version"].as_str().map(str::to_owned),
        bundled: data["hub"] == atoll_install::BUNDLED,
    }))
}
