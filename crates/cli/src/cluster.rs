//! Reading, annotating and watching Cluster objects for the verbs about members. Every request is an annotation on the
//! Cluster, so kubectl can do the same.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, bail};
use atoll_api::Cluster;
use atoll_api::cluster::ClusterStatus;
use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher::{self, Event};
use serde_json::{Value, json};

use crate::hub::Hub;
use crate::join::{self, MANAGER};

/// The Cluster of this name.
///
/// # Errors
/// When it does not exist, or the hub does not answer.
pub(crate) async fn get(hub: &Hub, name: &str) -> anyhow::Result<Cluster> {
    match join::find(hub, name).await? {
        Some(cluster) => Ok(cluster),
        None => bail!("there is no member {name}: `atoll get members` lists them"),
    }
}

/// Sets annotations on this version of the Cluster.
///
/// # Errors
/// When the Cluster changed in between, or the hub refuses.
pub(crate) async fn annotate(
    hub: &Hub,
    cluster: &Cluster,
    annotations: BTreeMap<&str, String>,
) -> anyhow::Result<Cluster> {
    let version = json!(cluster.metadata.resource_version);
    patch(hub, cluster, json!({"resourceVersion": version, "annotations": annotations})).await
}

/// Sets annotations on this Cluster, whatever else was changed in it in between.
///
/// # Errors
/// When the Cluster was deleted, also if another one has its name, or the hub refuses.
pub(crate) async fn annotate_any(
    hub: &Hub,
    cluster: &Cluster,
    annotations: BTreeMap<&str, String>,
) -> anyhow::Result<Cluster> {
    patch(hub, cluster, json!({"annotations": annotations})).await
}

async fn patch(hub: &Hub, cluster: &Cluster, mut metadata: Value) -> anyhow::Result<Cluster> {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    metadata["uid"] = json!(cluster.metadata.uid);
    let patch = json!({"metadata": metadata});
    let clusters: Api<Cluster> = Api::all(hub.client.clone());
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let doing = format!("annotate Cluster {name}");
    hub.call(&doing, clusters.patch(name, &params, &Patch::Merge(patch))).await
}

/// A condition of the Cluster.
pub(crate) fn condition<'a>(cluster: &'a Cluster, kind: &str) -> Option<&'a Condition> {
    let status: Option<&ClusterStatus> = cluster.status.as_ref();
    status?.conditions.iter().find(|condition| condition.type_ == kind)
}

/// Passes every version of the Cluster to `look` until it returns a value, or the Cluster with this uid is deleted
/// (`None`).
/// `quiet` is called once when no change arrived within `patience`.
///
/// # Errors
/// When the hub cannot be watched.
pub(crate) async fn watch<T>(
    hub: &Hub,
    cluster: &Cluster,
    patience: Duration,
    quiet: impl FnOnce(),
    mut look: impl FnMut(&Cluster) -> Option<T>,
) -> anyhow::Result<Option<T>> {
    let name = cluster.metadata.name.clone().unwrap_or_default();
    let clusters: Api<Cluster> = Api::all(hub.client.clone());
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = pin!(watcher::watcher(clusters, only));
    let mut quiet = Some(quiet);
    let mut listed = false;
    loop {
        let event = match quiet.take() {
            None => events.next().await,
            Some(call) => match tokio::time::timeout(patience, events.next()).await {
                Ok(event) => {
                    quiet = Some(call);
                    event
                }
                Err(_) => {
                    call();
                    continue;
                }
            },
        };
        let event = event.with_context(|| format!("watch Cluster {name}"))?;
        match event.with_context(|| format!("watch Cluster {name} ({})", hub.found))? {
            Event::Apply(seen) | Event::InitApply(seen) => {
                if seen.metadata.uid != cluster.metadata.uid {
                    return Ok(None);
                }
                listed = true;
                if let Some(found) = look(&seen) {
                    return Ok(Some(found));
                }
            }
            Event::Delete(last) => {
                // The last change may arrive only with the deletion.
                return Ok(look(&last));
            }
            Event::Init => listed = false,
            Event::InitDone if !listed => return Ok(None),
            Event::InitDone => {}
        }
    }
}
