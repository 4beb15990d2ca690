//! Departure of a member from the federation: its Cluster is deleted, and the finalizer is removed when the member is
//! empty.
//!
//! Workloads move first, by scheduler decisions: a Cluster that is being deleted is no candidate. Objects that no
//! decision holds there any more are removed or released with the usual proofs. The rest (orphans, frozen objects) has
//! no proof and is released: it keeps running, unmanaged. When the Cluster is gone, so is its uid, and with it every
//! certificate.

use std::time::Duration;

use atoll_api::cluster::ObjectName;
use atoll_api::{Cluster, marks};
use atoll_render::Key;
use kube::ResourceExt;
use serde_json::json;
use tokio::time::Instant;

use super::context::Context;
use super::desired::Departing;
use super::health::draft::names;
use super::registry::{Member, State};
use super::revocation::REVOKED_BEFORE;
use super::{events, writes};

/// Limit of object names in a message.
const NAMED: usize = 5;
/// Time for a connected member to confirm its orders when its departure is forced.
const FORCED: Duration = Duration::from_secs(30);

/// Progress of a departure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Departure {
    /// Decisions still hold this many objects there; with the first of them.
    Moving { objects: usize, first: Vec<ObjectName> },
    /// The member was ordered to release this many.
    Emptying { objects: usize, first: Vec<ObjectName>, since: Instant },
    /// The member is disconnected.
    Unreachable { objects: usize },
    /// It leaves with these objects still on it.
    LeftBehind { objects: Vec<ObjectName> },
}

impl Departure {
    /// Reason of the condition.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Moving { .. } => "WorkMovesAway",
            Self::Emptying { .. } => "Emptying",
            Self::Unreachable { .. } => "MemberUnreachable",
            Self::LeftBehind { .. } => "LeftBehind",
        }
    }

    /// Progress as text for users.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Moving { objects, first } => {
                format!("{objects} objects have not moved to other members yet: {}", list(first))
            }
            Self::Emptying { objects, first, .. } => {
                format!("the member is letting go of {objects} objects: {}", list(first))
            }
            Self::Unreachable { objects } => format!(
                "no agent is connected, and the member may have {objects} objects: they go when it is back; `atoll unjoin --force` leaves them there"
            ),
            Self::LeftBehind { objects } if objects.is_empty() => {
                "as far as is known nothing is left on the member".to_owned()
            }
            Self::LeftBehind { objects } => {
                format!("{} objects are left on the member: {}", objects.len(), list(objects))
            }
        }
    }

    /// Objects that stay on the member for good.
    pub(crate) fn left(&self) -> Option<Vec<ObjectName>> {
        match self {
            Self::LeftBehind { objects } => Some(objects.clone()),
            Self::Moving { .. } | Self::Emptying { .. } | Self::Unreachable { .. } => None,
        }
    }
}

fn list(objects: &[ObjectName]) -> String {
    let mut text =
        objects.iter().take(NAMED).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if objects.len() > NAMED {
        text.push_str(", ...");
    }
    text
}

fn first(keys: &[&Key]) -> Vec<ObjectName> {
    // One more than is named, so that the text can indicate that there are more.
    names(&keys[..keys.len().min(NAMED + 1)])
}

/// Whether a Cluster is being deleted and still has our finalizer.
pub(super) fn is_due(cluster: &Cluster) -> bool {
    cluster.metadata.deletion_timestamp.is_some()
        && cluster.finalizers().iter().any(|held| held == marks::CLUSTER_FINALIZER)
}

/// The user's options for the departure.
fn departing(cluster: &Cluster) -> Departing {
    let asked = cluster.annotations().get(marks::UNJOIN).map(String::as_str).unwrap_or_default();
    let has = |word: &str| asked.split(',').any(|part| part.trim() == word);
    Departing { release: has(marks::UNJOIN_RELEASE), force: has(marks::UNJOIN_FORCE) }
}

/// The next step.
enum Next {
    Wait(Departure),
    /// Remove the finalizer.
    Go,
}

/// Handles a departing member: orders it to release its objects, and removes the finalizer when that is done.
pub(super) async fn step(cx: &Context, member: &Member) -> Result<(), writes::WriteError> {
    let now = Instant::now();
    let (cluster, next, news) = {
        let mut state = member.lock();
        let Some(cluster) = state.cluster.clone().filter(|cluster| is_due(cluster)) else {
            return Ok(());
        };
        let departing = departing(&cluster);
        state.desired.depart(departing);
        let next = look(&mut state, departing, now);
        let news = match &next {
            Next::Wait(departure) => {
                let before = state.departure.replace(departure.clone());
                (before.as_ref() != Some(departure)).then(|| departure.clone())
            }
            Next::Go => None,
        };
        (cluster, next, news)
    };
    member.wake.notify_one();
    if let Some(departure) = news {
        if matches!(departure, Departure::LeftBehind { .. } | Departure::Unreachable { .. }) {
            events::publish(cx, member, departure.reason(), &departure.message());
        }
        cx.due.mark(&member.name);
    }
    if matches!(next, Next::Wait(_)) {
        return Ok(());
    }
    tracing::info!(cluster = member.name, "the member has left the federation");
    let finalizers: Vec<_> =
        cluster.finalizers().iter().filter(|held| *held != marks::CLUSTER_FINALIZER).collect();
    // Another finalizer may keep the Cluster, but its certificates are no longer valid.
    let revoked = cx.clock.now().to_string();
    let metadata = json!({"finalizers": finalizers, "annotations": {REVOKED_BEFORE: revoked}});
    writes::edit(cx, &cluster, metadata).await.map(drop)
}

fn look(state: &mut State, departing: Departing, now: Instant) -> Next {
    let connected = state.session.is_some();
    if state.cluster_id.is_none() && !connected {
        // No agent ever joined with it.
        return Next::Go;
    }
    if !connected {
        let left = state.desired.left();
        if !departing.force {
            return Next::Wait(Departure::Unreachable { objects: left.len() });
        }
        return leave_behind(state);
    }
    if !state.agreed {
        // A session that has just begun will soon report the member's objects.
        let objects = state.desired.left().len();
        return Next::Wait(Departure::Unreachable { objects });
    }
    let staying = state.desired.staying();
    if !staying.is_empty() && !departing.force {
        return Next::Wait(Departure::Moving { objects: staying.len(), first: first(&staying) });
    }
    state.desired.clear_out();
    let left = state.desired.left();
    if left.is_empty() {
        return Next::Go;
    }
    let since = match &state.departure {
        Some(Departure::Emptying { since, .. }) => *since,
        _ => now,
    };
    if departing.force && now.saturating_duration_since(since) >= FORCED {
        return leave_behind(state);
    }
    Next::Wait(Departure::Emptying { objects: left.len(), first: first(&left), since })
}

/// First the Cluster lists what is left, then it is deleted: watchers get the list.
fn leave_behind(state: &State) -> Next {
    let objects = match &state.departure {
        Some(Departure::LeftBehind { objects }) => objects.clone(),
        _ => names(&state.desired.left()),
    };
    let departure = Departure::LeftBehind { objects };
    let conditions = state.cluster.as_ref().and_then(|c| c.status.as_ref()).map(|s| &s.conditions);
    let said = conditions.is_some_and(|list| list.iter().any(|c| c.reason == departure.reason()));
    if said { Next::Go } else { Next::Wait(departure) }
}
