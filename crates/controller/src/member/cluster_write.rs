//! Guarded writes to a Cluster.

use std::sync::Arc;

use atoll_api::{Cluster, ClusterName, marks};
use kube::api::Patch;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::context::Context;
use super::hub::{HubError, in_time};
use crate::manager;

/// Changes the metadata of a Cluster based on the version seen. `None` = it changed meanwhile: check it again.
pub(crate) async fn edit(
    cx: &Context,
    cluster: &Cluster,
    mut metadata: Value,
) -> Result<Option<Cluster>, HubError> {
    metadata["uid"] = json!(cluster.metadata.uid);
    metadata["resourceVersion"] = json!(cluster.metadata.resource_version);
    let api = Api::<Cluster>::all(cx.client.clone());
    let name = ClusterName::from(cluster.name_any());
    let patch = Patch::Merge(json!({"metadata": metadata}));
    perform(cx, &name, api.patch(&name, &manager::patch(marks::MANAGER), &patch)).await
}

/// Performs a write and stores the reply. `None` = the Cluster changed meanwhile: check it again.
pub(crate) async fn perform(
    cx: &Context,
    name: &ClusterName,
    call: impl Future<Output = Result<Cluster, kube::Error>>,
) -> Result<Option<Cluster>, HubError> {
    cx.metrics.hub_writes.inc();
    match in_time(call).await {
        Ok(cluster) => {
            if let Some(member) = cx.registry.get(name) {
                member.lock().written(Arc::new(cluster.clone()), Instant::now());
                member.wake.notify_one();
            }
            Ok(Some(cluster))
        }
        Err(error) if error.is_conflict() => {
            let api: Api<Cluster> = Api::all(cx.client.clone());
            if let Some(fresh) = in_time(api.get_opt(name)).await? {
                cx.registry.take(&fresh, (Instant::now(), cx.clock.now()));
                cx.writes.mark(name);
            }
            Ok(None)
        }
        // Deleted: the hub's watch will report that too.
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
