//! Bindings and Clusters have finalizers of the controller, without which their kinds could not be deleted.

use atoll_api::marks::{BINDING_FINALIZER, CLUSTER_FINALIZER};
use atoll_api::{Cluster, ClusterResourceBinding, ResourceBinding};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::hub::Hub;
use crate::join::MANAGER;
use crate::read::get;

/// Removes the controller's finalizers. No controller may run: it would empty the members.
pub(super) async fn release(hub: &Hub) -> anyhow::Result<()> {
    for resource in [
        ApiResource::erase::<ResourceBinding>(&()),
        ApiResource::erase::<ClusterResourceBinding>(&()),
        ApiResource::erase::<Cluster>(&()),
    ] {
        let all: Api<DynamicObject> = Api::all_with(hub.client.clone(), &resource);
        let mut held = Vec::new();
        let doing = format!("list {}", resource.plural);
        let ours =
            |finalizer: &String| finalizer == BINDING_FINALIZER || finalizer == CLUSTER_FINALIZER;
        let listed = get::each(hub, &doing, &all, |object: DynamicObject| {
            if object.finalizers().iter().any(ours) {
                held.push(object);
            }
        })
        .await;
        match listed {
            // An earlier purge deleted the kind.
            Err(error) if crate::hub::status(&error) == Some(404) => continue,
            other => other?,
        }
        for object in held {
            let api: Api<DynamicObject> = match object.namespace() {
                Some(namespace) => Api::namespaced_with(hub.client.clone(), &namespace, &resource),
                None => all.clone(),
            };
            let kept: Vec<&String> =
                object.finalizers().iter().filter(|finalizer| !ours(finalizer)).collect();
            let patch = json!({"metadata": {
                "resourceVersion": object.resource_version(), "finalizers": kept,
            }});
            let params =
                PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
            let name = object.name_any();
            let doing = format!("release {} {name}", resource.kind);
            hub.call(&doing, api.patch(&name, &params, &Patch::Merge(&patch))).await?;
        }
    }
    Ok(())
}
