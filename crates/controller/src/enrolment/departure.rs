//! Departure of a member from the federation: its Cluster is deleted, and the finalizer is removed when the member is
//! empty.
//!
//! Workloads move first, by scheduler decisions: a Cluster that is being deleted is no candidate. Objects that no
//! decision holds there any more are removed or released with the usual proofs. The rest (orphans, frozen objects) has
//! no proof and is released: it keeps running, unmanaged. When the Cluster is gone, so is its uid, and with it every
//! certificate.

use std::time::Duration;

use atoll_api::{Cluster, marks};
use kube::ResourceExt;
use serde_json::json;
use tokio::time::Instant;

use super::departure_progress::{Departure, first, names};
use super::revocation::REVOKED_BEFORE;
use crate::member::cluster_write;
use crate::member::context::Context;
use crate::member::events;
use crate::member::hub::HubError;
use crate::member::state::{Member, MemberState};
use crate::sessions::desired::Departing;

/// Time for a connected member to confirm its orders when its departure is forced.
const FORCED: Duration = Duration::from_secs(30);

/// Whether a Cluster is being deleted and still has our finalizer.
pub(crate) fn is_due(cluster: &Cluster) -> bool {
    cluster.metadata.deletion_timestamp.is_some()
        && cluster.finalizers().iter().any(|held| held == marks::CLUSTER_FINALIZER)
}

/// The user's options for the departure.
fn departing(cluster: &Cluster) -> Departing {
    let options = cluster.annotations().get(marks::UNJOIN).map(String::as_str).unwrap_or_default();
    let has = |word: &str| options.split(',').any(|part| part.trim() == word);
    Departing { release: has(marks::UNJOIN_RELEASE), force: has(marks::UNJOIN_FORCE) }
}

/// The next step.
enum NextStep {
    Wait(Departure),
    /// Remove the finalizer.
    Go,
}

/// Handles a departing member: orders it to release its objects, and removes the finalizer when that is done.
pub(crate) async fn step(cx: &Context, member: &Member) -> Result<(), HubError> {
    let now = Instant::now();
    let (cluster, next, changed) = {
        let mut state = member.lock();
        let Some(cluster) = state.cluster.clone().filter(|cluster| is_due(cluster)) else {
            return Ok(());
        };
        let departing = departing(&cluster);
        state.desired.start_departure(departing);
        let next = look(&mut state, departing, now);
        let changed = match &next {
            NextStep::Wait(departure) => {
                let before = state.departure.replace(departure.clone());
                (before.as_ref() != Some(departure)).then(|| departure.clone())
            }
            NextStep::Go => None,
        };
        (cluster, next, changed)
    };
    member.wake.notify_one();
    if let Some(departure) = changed {
        if matches!(departure, Departure::LeftBehind { .. } | Departure::Unreachable { .. }) {
            events::publish(cx, member, departure.reason(), &departure.message());
        }
        cx.writes.mark(&member.name);
    }
    if matches!(next, NextStep::Wait(_)) {
        return Ok(());
    }
    tracing::info!(cluster = member.name.as_str(), "the member has left the federation");
    let finalizers: Vec<_> =
        cluster.finalizers().iter().filter(|held| *held != marks::CLUSTER_FINALIZER).collect();
    // Another finalizer may keep the Cluster, but its certificates are no longer valid.
    let revoked = cx.clock.now().to_string();
    let metadata = json!({"finalizers": finalizers, "annotations": {REVOKED_BEFORE: revoked}});
    cluster_write::edit(cx, &cluster, metadata).await.map(drop)
}

fn look(state: &mut MemberState, departing: Departing, now: Instant) -> NextStep {
    let connected = state.session.is_some();
    if state.identity.cluster_id.is_none() && !connected {
        // No agent ever joined with it.
        return NextStep::Go;
    }
    if !connected {
        let left = state.desired.remaining();
        if !departing.force {
            return NextStep::Wait(Departure::Unreachable { objects: left.len() });
        }
        return leave_behind(state);
    }
    if !state.agreed {
        // A session that has just begun will soon report the member's objects.
        let objects = state.desired.remaining().len();
        return NextStep::Wait(Departure::Unreachable { objects });
    }
    let staying = state.desired.not_moved();
    if !staying.is_empty() && !departing.force {
        return NextStep::Wait(Departure::Moving {
            objects: staying.len(),
            first: first(&staying),
        });
    }
    state.desired.release_rest();
    let left = state.desired.remaining();
    if left.is_empty() {
        return NextStep::Go;
    }
    let since = match &state.departure {
        Some(Departure::Emptying { since, .. }) => *since,
        _ => now,
    };
    if departing.force && now.saturating_duration_since(since) >= FORCED {
        return leave_behind(state);
    }
    NextStep::Wait(Departure::Emptying { objects: left.len(), first: first(&left), since })
}

/// First the Cluster lists what is left, then it is deleted: watchers get the list.
fn leave_behind(state: &MemberState) -> NextStep {
    let objects = match &state.departure {
        Some(Departure::LeftBehind { objects }) => objects.clone(),
        _ => names(&state.desired.remaining()),
    };
    let departure = Departure::LeftBehind { objects };
    let conditions = state.cluster.as_ref().and_then(|c| c.status.as_ref()).map(|s| &s.conditions);
    let shown = conditions.is_some_and(|list| list.iter().any(|c| c.reason == departure.reason()));
    if shown { NextStep::Go } else { NextStep::Wait(departure) }
}
