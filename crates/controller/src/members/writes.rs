//! Writes of Cluster status and taints: coalesced per Cluster, only when due, guarded by the resourceVersion that the
//! change is based on.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use atoll_api::cluster::ClusterStatus;
use atoll_api::{Cluster, marks};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Taint;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::context::{Context, HUB_TIMEOUT};
use super::events;
use super::health::draft::{self, Known};
use crate::manager;

/// Changes of a member within this time go into one write: a session's start, its facts and its first heartbeat.
const GATHER: Duration = Duration::from_millis(200);
/// Delay before failed writes are retried.
const RETRY: Duration = Duration::from_secs(2);
/// Concurrent writes.
const CONCURRENT: usize = 16;

/// Names of Clusters that may need a write.
#[derive(Debug, Default)]
pub(super) struct Due {
    names: Mutex<BTreeSet<String>>,
    marked: Notify,
}

impl Due {
    pub(super) fn mark(&self, name: &str) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        self.marked.notify_one();
    }

    /// Waits until something is marked.
    pub(super) async fn any(&self) {
        self.marked.notified().await;
    }

    pub(super) fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.names.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Why a write was not performed.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error("the hub did not answer in time")]
    Timeout,
    #[error("the hub refused")]
    Hub(#[source] Box<kube::Error>),
}

/// Writes due Clusters until the context's token is cancelled.
pub(super) async fn run(cx: Arc<Context>) {
    let mut failed: BTreeSet<String> = BTreeSet::new();
    loop {
        let retry = async {
            if failed.is_empty() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(RETRY).await;
        };
        tokio::select! {
            biased;
            () = cx.token.cancelled() => return,
            () = cx.due.marked.notified() => tokio::time::sleep(GATHER).await,
            () = retry => (),
        }
        if cx.token.is_cancelled() {
            return;
        }
        let mut names = cx.due.take();
        names.append(&mut failed);
        let cx = &cx;
        failed = futures::stream::iter(names)
            .map(async move |name| match write(cx, &name).await {
                Ok(()) => None,
                Err(error) => {
                    tracing::warn!(
                        cluster = name,
                        error = &error as &dyn std::error::Error,
                        "Cluster not written"
                    );
                    Some(name)
                }
            })
            .buffer_unordered(CONCURRENT)
            .filter_map(std::future::ready)
            .collect()
            .await;
    }
}

/// A planned write to a Cluster.
struct Plan {
    cluster: Arc<Cluster>,
    /// Add the missing finalizer: without it, deleting the Cluster would leave its objects on the member.
    finalizer: bool,
    status: Option<ClusterStatus>,
    taints: Option<Vec<Taint>>,
}

fn plan(cx: &Context, name: &str) -> Option<Plan> {
    let member = cx.registry.get(name)?;
    let (now, wall) = (Instant::now(), cx.clock.now());
    let frozen = cx.is_frozen(now);
    let state = member.lock();
    let cluster = state.cluster.clone()?;
    let standing = state.vitals.standing();
    let orphans = state.agreed.then(|| state.desired.orphans());
    let known = Known {
        standing: &standing,
        connected: state.session.is_some(),
        facts: state.facts.as_deref(),
        cluster_id: state.cluster_id.as_deref(),
        epoch: state.epoch,
        epoch_anew: state.epoch_anew,
        refusal: state.refusal,
        orphans: orphans.as_deref(),
        held_back: state.agreed.then(|| state.desired.held_back()),
        emptying: &state.emptying,
        departure: state.departure.as_ref(),
        revocation: state.revocation.as_ref(),
    };
    let status = draft::status(&cluster, &known, wall);
    let old = cluster.status.clone().unwrap_or_default();
    let held = status.removals_held.is_some() && old.removals_held.is_none();
    let held = if held { draft::removals_held(name, state.desired.held_back()) } else { None };
    let age = now.saturating_duration_since(state.written);
    let due = draft::is_due(&old, &status, age, &cx.times);
    let taints = draft::taints(&cluster, &standing, &cx.times, frozen, (now, wall));
    let brief = |taints: &[Taint]| -> BTreeSet<_> {
        taints.iter().map(|taint| (taint.key.clone(), taint.effect.clone())).collect()
    };
    let has: Vec<_> = draft::own(&cluster).cloned().collect();
    let differ = brief(&has) != brief(&taints);
    drop(state);
    if let Some((_, message)) = held {
        events::publish(cx, &member, "RemovalsHeld", &message);
    }
    let finalizer = cluster.metadata.deletion_timestamp.is_none()
        && !cluster.finalizers().iter().any(|held| held == marks::CLUSTER_FINALIZER);
    let (status, taints) = (due.then_some(status), differ.then_some(taints));
    Some(Plan { cluster, finalizer, status, taints })
}

async fn write(cx: &Context, name: &str) -> Result<(), WriteError> {
    // A follower writes nothing; a leader checks every Cluster when its term begins.
    if cx.term().is_none() {
        return Ok(());
    }
    let Some(Plan { cluster, finalizer, status, taints }) = plan(cx, name) else {
        return Ok(());
    };
    let api: Api<Cluster> = Api::all(cx.client.clone());
    let mut version = cluster.metadata.resource_version.clone();
    // The uid keeps an apply from creating a Cluster that was deleted meanwhile.
    let head = |version: &Option<String>| {
        json!({
            "apiVersion": Cluster::api_version(&()),
            "kind": Cluster::kind(&()),
            "metadata": {
                "name": name,
                "uid": cluster.metadata.uid,
                "resourceVersion": version,
            },
        })
    };
    if finalizer {
        let all: Vec<_> = cluster.finalizers().iter().map(String::as_str).collect();
        let all = [&all[..], &[marks::CLUSTER_FINALIZER]].concat();
        let Some(written) = edit(cx, &cluster, json!({"finalizers": all})).await? else {
            return Ok(());
        };
        version.clone_from(&written.metadata.resource_version);
    }
    if let Some(taints) = taints {
        let mut body = head(&version);
        body["spec"] = if taints.is_empty() { json!({}) } else { json!({"taints": taints}) };
        let params = PatchParams::apply(marks::MANAGER_HEALTH).force();
        let Some(written) = done(cx, name, api.patch(name, &params, &Patch::Apply(body))).await?
        else {
            return Ok(());
        };
        version.clone_from(&written.metadata.resource_version);
    }
    if let Some(status) = status {
        let mut body = head(&version);
        body["status"] = json!(status);
        let params = PatchParams::apply(marks::MANAGER_STATUS).force();
        done(cx, name, api.patch_status(name, &params, &Patch::Apply(body))).await?;
    }
    Ok(())
}

/// Changes the metadata of a Cluster based on the version seen. `None` = it changed meanwhile: check it again.
pub(super) async fn edit(
    cx: &Context,
    cluster: &Cluster,
    mut metadata: Value,
) -> Result<Option<Cluster>, WriteError> {
    metadata["uid"] = json!(cluster.metadata.uid);
    metadata["resourceVersion"] = json!(cluster.metadata.resource_version);
    let (api, name) = (Api::<Cluster>::all(cx.client.clone()), cluster.name_any());
    let patch = Patch::Merge(json!({"metadata": metadata}));
    done(cx, &name, api.patch(&name, &manager::patch(marks::MANAGER), &patch)).await
}

/// Performs a write and stores the reply. `None` = the Cluster changed meanwhile: check it again.
async fn done(
    cx: &Context,
    name: &str,
    call: impl Future<Output = Result<Cluster, kube::Error>>,
) -> Result<Option<Cluster>, WriteError> {
    cx.metrics.hub_writes.inc();
    let answer = timeout(HUB_TIMEOUT, call).await.map_err(|_| WriteError::Timeout)?;
    match answer {
        Ok(cluster) => {
            if let Some(member) = cx.registry.get(name) {
                member.lock().wrote(Arc::new(cluster.clone()), Instant::now());
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
                cx.due.mark(name);
            }
            Ok(None)
        }
        // Deleted: the hub's watch will report that too.
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(WriteError::Hub(Box::new(error))),
    }
}
