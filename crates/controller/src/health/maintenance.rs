//! User requests to a member, made on its Cluster: leave the federation, prune orphans, confirm held removals, accept
//! it as lost, accept the term that its agent names. All are annotations, so that kubectl and the hub's RBAC suffice;
//! an annotation stays until its request is done, whichever controller leads by then.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use atoll_api::cluster::ObjectName;
use atoll_api::{Cluster, ClusterName, marks};
use atoll_render::Key;
use kube::ResourceExt;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::refusals;
use crate::enrolment::departure;
use crate::member::cluster_write;
use crate::member::context::Context;
use crate::member::hub::HubError;
use crate::member::state::Member;

/// Interval of checks of open requests: certificates of a member that left are refused within seconds.
const INTERVAL: Duration = Duration::from_secs(1);

/// Annotations that are requests.
const REQUESTS: [&str; 4] =
    [marks::PRUNE, marks::CONFIRM_PRUNE, marks::CONFIRM_LOST, marks::ACCEPT_TERM];

/// Whether this Cluster has an open request.
pub(crate) fn has_any(cluster: &Cluster) -> bool {
    departure::is_due(cluster)
        || REQUESTS.iter().any(|name| cluster.annotations().contains_key(*name))
}

/// Handles requests until the context's token is cancelled. Only a leader handles any.
pub(crate) async fn run(cx: Arc<Context>) {
    let mut open: BTreeSet<ClusterName> = BTreeSet::new();
    let mut term = cx.leadership.watch_term();
    term.mark_changed();
    loop {
        let look = async {
            if open.is_empty() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(INTERVAL).await;
        };
        tokio::select! {
            biased;
            leads = cx.next_term(&mut term) => {
                if leads.is_none() {
                    return;
                }
                // A new leader checks all members once.
                open = cx.registry.all().iter().filter(|m| has_request(m)).map(|m| m.name.clone()).collect();
            }
            () = cx.maintenance.any() => (),
            () = look => (),
        }
        open.append(&mut cx.maintenance.take());
        if cx.term().is_none() {
            open.clear();
            continue;
        }
        let mut later = BTreeSet::new();
        for name in std::mem::take(&mut open) {
            let Some(member) = cx.registry.get(&name) else { continue };
            if let Err(error) = handle(&cx, &member).await {
                tracing::warn!(
                    cluster = name.as_str(),
                    error = &error as &dyn std::error::Error,
                    "the Cluster could not be written: retrying"
                );
            }
            if has_request(&member) {
                later.insert(name);
            }
        }
        open = later;
    }
}

fn has_request(member: &Member) -> bool {
    member.lock().cluster.as_deref().is_some_and(has_any)
}

/// Handles what can be done for one member now.
async fn handle(cx: &Context, member: &Member) -> Result<(), HubError> {
    let Some(cluster) = member.lock().cluster.clone() else { return Ok(()) };
    let accepts = cluster.annotations().contains_key(marks::ACCEPT_TERM);
    let accepted = accepts && refusals::accept(cx, member);
    let done = {
        let mut state = member.lock();
        let requested = |name: &str| cluster.annotations().get(name);
        let mut done = Vec::new();
        let agreed = state.session.is_some() && state.agreed;
        if let Some(text) = requested(marks::PRUNE).filter(|_| agreed)
            && state.desired.prune(&keys(&member.name, text)) == 0
        {
            done.push(marks::PRUNE);
        }
        if requested(marks::CONFIRM_PRUNE).is_some() && agreed {
            tracing::info!(
                cluster = member.name.as_str(),
                "held back removals continue: confirmed by an operator"
            );
            state.desired.confirm_prune();
            done.push(marks::CONFIRM_PRUNE);
        }
        if requested(marks::CONFIRM_LOST).is_some() {
            done.push(marks::CONFIRM_LOST);
        }
        if accepted {
            done.push(marks::ACCEPT_TERM);
        }
        done
    };
    member.wake.notify_one();
    if done.contains(&marks::CONFIRM_LOST) {
        confirm_losses(cx);
    }
    if !done.is_empty() {
        cx.writes.mark(&member.name);
        let gone: Map<String, Value> =
            done.into_iter().map(|name| (name.to_owned(), Value::Null)).collect();
        cluster_write::edit(cx, &cluster, json!({"annotations": gone})).await?;
    }
    departure::step(cx, member).await
}

/// A user confirms that the members are really lost.
fn confirm_losses(cx: &Context) {
    if cx.caution.suspicion().dismiss(Instant::now()) {
        cx.metrics.suspicion.set(0);
        tracing::info!("suspicion ends: an operator confirmed the losses");
        for member in cx.registry.all() {
            cx.writes.mark(&member.name);
        }
    }
}

/// The objects in [`marks::PRUNE`]. An entry that cannot be parsed names no object, so nothing is removed for it.
fn keys(cluster: &ClusterName, text: &str) -> BTreeSet<Key> {
    let mut keys = BTreeSet::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match part.parse::<ObjectName>() {
            Ok(ObjectName { group, kind, namespace, name }) => {
                keys.insert(Key::new(&group, &kind, namespace.as_deref(), &name));
            }
            Err(error) => {
                tracing::warn!(cluster = cluster.as_str(), %error, "annotation {} names no object", marks::PRUNE)
            }
        }
    }
    keys
}
