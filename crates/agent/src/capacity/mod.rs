//! Capacity of the member, unschedulable replicas, and faults of pods: watches nodes, pods and ResourceQuotas and sums
//! them up.
//!
//! The agent is the estimator of its member. It sends node classes with their free room; the scheduler computes from
//! those how many replicas of a request fit.

mod amounts;
mod fault;
mod node;
mod pod;
mod quota;
mod table;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use atoll_api::Clock;
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

pub(crate) use table::{Figures, Pods};

use crate::key::Key;
use crate::member::{Follow, Followed, Member, Target, follow};
use atoll_api::Jitter;
use table::Table;

/// Minimum time between two computations of the figures: a rollout changes hundreds of pods within a second.
const SETTLE: Duration = Duration::from_millis(500);
/// Queued events of the watches.
const EVENTS: usize = 64;

/// The figures with the time of their computation; `None` until nodes and pods were listed once.
pub(crate) type Taken = Option<Arc<(Figures, Timestamp)>>;

/// Follows nodes and pods until cancelled. `labels` are the label keys that define node classes; workloads whose pod
/// report changed go to `workloads`.
pub(crate) async fn run(
    member: Member,
    clock: Clock,
    jitter: Jitter,
    mut labels: watch::Receiver<BTreeSet<String>>,
    figures: watch::Sender<Taken>,
    workloads: mpsc::Sender<(Key, Pods)>,
    token: CancellationToken,
) {
    let (events, mut received) = mpsc::channel(EVENTS);
    let nodes = Target::builtin("", "v1", "Node", "nodes", false);
    let pods = Target::builtin("", "v1", "Pod", "pods", true);
    let mut tasks = tokio::task::JoinSet::new();
    let quotas = Target::builtin("", "v1", "ResourceQuota", "resourcequotas", true);
    for (target, of) in [(nodes, Of::Nodes), (pods, Of::Pods), (quotas, Of::Quotas)] {
        tasks.spawn(follow(
            member.clone(),
            target,
            Follow::default(),
            jitter.clone(),
            of,
            events.clone(),
            token.clone(),
        ));
    }
    drop(events);
    let mut state = CapacityState::default();
    let mut due: Option<tokio::time::Instant> = None;
    loop {
        let wake = due.unwrap_or_else(tokio::time::Instant::now);
        tokio::select! {
            biased;
            () = token.cancelled() => return,
            event = received.recv() => {
                let Some((of, event)) = event else { return };
                state.take(of, event);
                for change in state.table.changed_workloads() {
                    if workloads.send(change).await.is_err() {
                        return;
                    }
                }
            }
            () = tokio::time::sleep_until(wake), if due.is_some() => {
                due = None;
                // Nodes without pods would look like free room, pods without nodes like none. ResourceQuotas are not
                // waited for: an agent may lack the right to read them.
                if [Of::Nodes, Of::Pods].iter().all(|of| state.listed.contains(of)) {
                    let next = state.table.figures(&labels.borrow_and_update());
                    let now = clock.now();
                    figures.send_if_modified(|known| {
                        let changed = known.as_ref().is_none_or(|known| known.0 != next);
                        if changed {
                            *known = Some(Arc::new((next, now)));
                        }
                        changed
                    });
                }
                continue;
            }
            changed = labels.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
        due.get_or_insert_with(|| tokio::time::Instant::now() + SETTLE);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    Nodes,
    Pods,
    Quotas,
}

/// Nodes, pods and ResourceQuotas as far as they were listed.
#[derive(Default)]
struct CapacityState {
    table: Table,
    listed: BTreeSet<Of>,
    /// Namespace and name of the objects in the current lists.
    seen: BTreeSet<(Of, String, String)>,
}

impl CapacityState {
    fn take(&mut self, of: Of, event: Followed) {
        match event {
            Followed::ListBegins => self.seen.retain(|(other, ..)| *other != of),
            Followed::Page(objects) => {
                for object in &objects {
                    let (namespace, name) = names(object);
                    self.seen.insert((of, namespace, name));
                    self.put(of, object);
                }
            }
            Followed::ListEnds => {
                let seen = &self.seen;
                let kept = |namespace: &str, name: &str| {
                    seen.contains(&(of, namespace.to_owned(), name.to_owned()))
                };
                match of {
                    Of::Nodes => self.table.retain_nodes(|name| kept("", name)),
                    Of::Pods => self.table.retain_pods(|(namespace, name)| kept(namespace, name)),
                    Of::Quotas => self.table.quotas.retain(|(space, name)| kept(space, name)),
                }
                self.seen.retain(|(other, ..)| *other != of);
                self.listed.insert(of);
            }
            Followed::Changed(object) => self.put(of, &object),
            Followed::Deleted(object) => {
                let (namespace, name) = names(&object);
                match of {
                    Of::Nodes => self.table.put_node(&name, None),
                    Of::Pods => self.table.put_pod((namespace, name), None),
                    Of::Quotas => self.table.quotas.put((namespace, name), None),
                }
            }
            Followed::Failed(error) if error.is_expired() => {}
            Followed::Failed(error) => {
                tracing::warn!(?of, error = %error.message(), "cannot follow the member's capacity");
            }
        }
    }

    fn put(&mut self, of: Of, object: &serde_json::Value) {
        let (namespace, name) = names(object);
        match of {
            Of::Nodes => self.table.put_node(&name, Some(node::read(object))),
            Of::Pods => self.table.put_pod((namespace, name), pod::read(object)),
            Of::Quotas => self.table.quotas.put((namespace, name), quota::read(object)),
        }
    }
}

fn names(object: &serde_json::Value) -> (String, String) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}
