//! Calls to the hub: their time limit, and guarded writes to a Cluster.

use std::sync::Arc;
use std::time::Duration;

use atoll_api::{Cluster, marks};
use kube::api::Patch;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::context::Context;
use crate::manager;

/// Limit of one call to the hub.
pub(crate) const HUB_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a write was not performed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error("the hub did not answer within {} s", HUB_TIMEOUT.as_secs())]
    Timeout,
    #[error("the hub rejected the write")]
    Hub(#[source] Box<kube::Error>),
}

/// Changes the metadata of a Cluster based on the version seen. `None` = it changed meanwhile: check it again.
pub(crate) async fn edit(
    cx: &Context,
    cluster: &Cluster,
    mut metadata: Value,
) -> Result<Option<Cluster>, WriteError> {
    metadata["uid"] = json!(cluster.metadata.uid);
    metadata["resourceVersion"] = json!(cluster.metadata.resource_version);
    let (api, name) = (Api::<Cluster>::all(cx.client.clone()), cluster.name_any());
    let patch = Patch::Merge(json!({"metadata": metadata}));
    perform(cx, &name, api.patch(&name, &manager::patch(marks::MANAGER), &patch)).await
}

/// Performs a write and stores the reply. `None` = the Cluster changed meanwhile: check it again.
pub(crate) async fn perform(
    cx: &Context,
    name: &str,
    call: impl Future<Output = Result<Cluster, kube::Error>>,
) -> Result<Option<Cluster>, WriteError> {
    cx.metrics.hub_writes.inc();
    let answer = timeout(HUB_TIMEOUT, call).await.map_err(|_| WriteError::Timeout)?;
    match answer {
        Ok(cluster) => {
            if let Some(member) = cx.registry.get(name) {
                member.lock().written(Arc::new(cluster.clone()), Instant::now());
                member.wake.notify_one();
            }
            Ok(Some(cluster))
        }
        Err(kube::Error::Api(status)) if status.is_conflict() => {
            let api: Api<Cluster> = Api::all(cx.client.clone());
            let fresh = timeout(HUB_TIMEOUT, api.get_opt(name))
                .await
                .map_err(|_| WriteError::Timeout)?
                .map_err(|error| WriteError::Hub(Box::new(error)))?;
            if let Some(fresh) = fresh {
                cx.registry.take(&fresh, (Instant::now(), cx.clock.now()));
                cx.writes.mark(name);
            }
            Ok(None)
        }
        // Deleted: the hub's watch will report that too.
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(WriteError::Hub(Box::new(error))),
    }
}
