//! Writes of Cluster status and taints: coalesced per Cluster, only when due, guarded by the resourceVersion that the
//! change is based on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use atoll_api::cluster::ClusterStatus;
use atoll_api::{Cluster, ClusterName, marks};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Taint;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde_json::json;
use tokio::time::Instant;

use super::cluster_status::{StatusInput, status};
use super::conditions::removals_held;
use super::taints::{managed, taints};
use super::write_due::is_due;
use crate::member::cluster_write;
use crate::member::context::Context;
use crate::member::events;
use crate::member::hub::HubError;

/// Changes of a member within this time go into one write: a session's start, its facts and its first heartbeat.
const GATHER: Duration = Duration::from_millis(200);
/// Delay before failed writes are retried.
const RETRY: Duration = Duration::from_secs(2);
/// Concurrent writes.
const CONCURRENT: usize = 16;

/// Writes due Clusters until the context's token is cancelled.
pub(crate) async fn run(cx: Arc<Context>) {
    let mut failed: BTreeSet<ClusterName> = BTreeSet::new();
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
            () = cx.writes.any() => tokio::time::sleep(GATHER).await,
            () = retry => (),
        }
        if cx.token.is_cancelled() {
            return;
        }
        let mut names = cx.writes.take();
        names.append(&mut failed);
        let cx = &cx;
        failed = futures::stream::iter(names)
            .map(async move |name| match write(cx, &name).await {
                Ok(()) => None,
                Err(error) => {
                    tracing::warn!(
                        cluster = name.as_str(),
                        error = &error as &dyn std::error::Error,
                        "the Cluster could not be written: retrying"
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
struct ClusterWrite {
    cluster: Arc<Cluster>,
    /// Add the missing finalizer: without it, deleting the Cluster would leave its objects on the member.
    finalizer: bool,
    status: Option<ClusterStatus>,
    taints: Option<Vec<Taint>>,
}

fn plan(cx: &Context, name: &ClusterName) -> Option<ClusterWrite> {
    let member = cx.registry.get(name)?;
    let (now, wall) = (Instant::now(), cx.clock.now());
    let frozen = cx.caution.is_frozen(now);
    let state = member.lock();
    let cluster = state.cluster.clone()?;
    let health = state.heartbeats.health();
    let input = StatusInput {
        health: &health,
        connected: state.session.is_some(),
        agent_version: state.session.as_ref().map(|session| &*session.agent_version),
        facts: state.facts.as_ref().map(|stored| &*stored.facts),
        cluster_id: state.identity.cluster_id.as_deref(),
        epoch: state.epoch,
        refusal: state.refusal,
        orphans: state.agreed.then(|| state.desired.orphans()),
        held_back: state.agreed.then(|| state.desired.held_back()),
        emptying: &state.emptying,
        departure: state.departure.as_ref(),
        revocation: state.identity.revocation.as_ref(),
        certificate: state.identity.certificate,
    };
    let new = status(&cluster, &input, wall);
    let old = cluster.status.clone().unwrap_or_default();
    let held = new.removals_held.is_some() && old.removals_held.is_none();
    let held = if held { removals_held(name, state.desired.held_back()) } else { None };
    let age = now.saturating_duration_since(state.last_write);
    let due = is_due(&old, &new, age, &cx.times);
    let wanted = taints(&cluster, &health, &cx.times, frozen, (now, wall));
    let brief = |taints: &[Taint]| -> BTreeSet<_> {
        taints.iter().map(|taint| (taint.key.clone(), taint.effect.clone())).collect()
    };
    let present: Vec<_> = managed(&cluster).cloned().collect();
    let differ = brief(&present) != brief(&wanted);
    drop(state);
    if let Some((_, message)) = held {
        events::publish(cx, &member, "RemovalsHeld", &message);
    }
    let finalizer = cluster.metadata.deletion_timestamp.is_none()
        && !cluster.finalizers().iter().any(|held| held == marks::CLUSTER_FINALIZER);
    Some(ClusterWrite {
        cluster,
        finalizer,
        status: due.then_some(new),
        taints: differ.then_some(wanted),
    })
}

async fn write(cx: &Context, name: &ClusterName) -> Result<(), HubError> {
    // A follower writes nothing; a leader checks every Cluster when its term begins.
    if cx.term().is_none() {
        return Ok(());
    }
    let Some(ClusterWrite { cluster, finalizer, status, taints }) = plan(cx, name) else {
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
        let Some(written) = cluster_write::edit(cx, &cluster, json!({"finalizers": all})).await?
        else {
            return Ok(());
        };
        version.clone_from(&written.metadata.resource_version);
    }
    if let Some(taints) = taints {
        let mut body = head(&version);
        body["spec"] = if taints.is_empty() { json!({}) } else { json!({"taints": taints}) };
        let params = PatchParams::apply(marks::MANAGER_HEALTH).force();
        let Some(written) =
            cluster_write::perform(cx, name, api.patch(name, &params, &Patch::Apply(body))).await?
        else {
            return Ok(());
        };
        version.clone_from(&written.metadata.resource_version);
    }
    if let Some(status) = status {
        let mut body = head(&version);
        body["status"] = json!(status);
        let params = PatchParams::apply(marks::MANAGER_STATUS).force();
        cluster_write::perform(cx, name, api.patch_status(name, &params, &Patch::Apply(body)))
            .await?;
    }
    Ok(())
}
