//! Kubernetes Events on templates and Clusters, through a bounded queue that nothing waits for.
//!
//! They are `core/v1` Events, because `kubectl describe` looks for those. A lost Event loses no data: history holds
//! every decision. Under load they are coalesced (see [`outbox`]); lost ones are counted in a metric and logged in one
//! line per [`REPORT`].

mod note;
mod outbox;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use atoll_api::marks;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference as Regarding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::{Api, Client};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use self::note::{Cause, Note, Severity};
use self::outbox::{Offered, Outbox, Waiting};
use crate::hub_load::HubLoad;
use crate::manager;
use crate::metrics::Counters;

/// Longest wait of an Event for commits: during a long failover users see some of it.
const BEHIND_COMMITS: Duration = Duration::from_secs(1);
/// Limit of one write.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Minimum time between two log lines about lost Events.
const REPORT: Duration = Duration::from_secs(60);
/// Longest Event message that the API server accepts.
const LONGEST_MESSAGE: usize = 1024;
/// Component name of our Events.
const COMPONENT: &str = "atoll-controller";

/// An id for an Event without one: equal parts give equal ids.
#[must_use]
pub(crate) fn id(parts: &[&str]) -> String {
    format!("{:016x}", atoll_scheduler::hash::fnv1a_64(parts.join(" ").as_bytes()))
}

/// Handle for queueing Events.
#[derive(Clone)]
pub(crate) struct Notes(Arc<Shared>);

struct Shared {
    outbox: Mutex<Outbox>,
    /// Notified when there is something to write.
    wake: Notify,
    counters: Counters,
    lost: Mutex<Losses>,
}

/// Events lost since the last log line.
#[derive(Debug, Default)]
struct Losses {
    dropped: u64,
    unwritten: u64,
    last_error: String,
}

impl Losses {
    fn any(&self) -> bool {
        self.dropped + self.unwritten > 0
    }
}

impl Notes {
    /// Queues an Event; never waits.
    pub(crate) fn post(&self, note: Note) {
        match self.0.outbox().offer(note) {
            Offered::Queued => self.0.wake.notify_one(),
            Offered::Coalesced => self.0.counters.event("coalesced"),
            Offered::Dropped => {
                self.0.counters.event("dropped");
                self.0.lost().dropped += 1;
            }
        }
    }
}

impl Shared {
    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self) -> MutexGuard<'_, Losses> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes until cancelled.
    async fn run(&self, client: &Client, load: &HubLoad, token: &CancellationToken) {
        let mut next_report = Instant::now();
        loop {
            let now = Instant::now();
            if next_report <= now && self.report() {
                next_report = now + REPORT;
            }
            let queued = !self.outbox().is_empty();
            if queued && token.run_until_cancelled(load.idle(BEHIND_COMMITS)).await.is_none() {
                return;
            }
            // Taken only now: meanwhile others may have been merged into it.
            let waiting = self.outbox().take();
            let work = async {
                match waiting {
                    Some(waiting) => self.write(client, &waiting).await,
                    None if self.lost().any() => {
                        // Waits for either one; the result does not matter.
                        let _ = tokio::time::timeout_at(next_report, self.wake.notified()).await;
                    }
                    None => self.wake.notified().await,
                }
            };
            if token.run_until_cancelled(work).await.is_none() {
                return;
            }
        }
    }

    /// Logs lost Events; returns whether there were any.
    fn report(&self) -> bool {
        let lost = std::mem::take(&mut *self.lost());
        if !lost.any() {
            return false;
        }
        let Losses { dropped, unwritten, last_error } = lost;
        tracing::warn!(
            dropped,
            unwritten,
            last_error,
            "events were lost; history holds every decision"
        );
        true
    }

    async fn write(&self, client: &Client, waiting: &Waiting) {
        let event = event(waiting);
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
        let params = manager::create(marks::MANAGER);
        let error = match tokio::time::timeout(TIMEOUT, api.create(&params, &event)).await {
            Ok(Ok(_)) => None,
            Ok(Err(kube::Error::Api(status))) if status.is_already_exists() => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer from the hub within {TIMEOUT:?}")),
        };
        self.counters.event(if error.is_none() { "written" } else { "unwritten" });
        if let Some(error) = error {
            let mut lost = self.lost();
            lost.unwritten += 1;
            lost.last_error = error;
        }
    }
}

/// The queue, and the task that empties it until `token` is cancelled.
pub(crate) fn notes(
    client: Client,
    load: HubLoad,
    counters: Counters,
    token: CancellationToken,
) -> (Notes, impl Future<Output = ()> + Send + 'static) {
    let shared = Arc::new(Shared {
        outbox: Mutex::default(),
        wake: Notify::new(),
        counters,
        lost: Mutex::default(),
    });
    let notes = Notes(Arc::clone(&shared));
    let writer = async move {
        shared.run(&client, &load, &token).await;
        shared.report();
    };
    (notes, writer)
}

fn event(waiting: &Waiting) -> Event {
    let note = &waiting.note;
    let about = &note.about;
    let namespace = about.namespace.clone().unwrap_or_else(|| "default".to_owned());
    let id: String = note.id.chars().filter(char::is_ascii_alphanumeric).take(16).collect();
    // We append a suffix, and the name is limited to 253 characters.
    let stem: String = about.name.replace(':', ".").chars().take(230).collect();
    let mut message = waiting.message();
    if message.len() > LONGEST_MESSAGE {
        let mut end = LONGEST_MESSAGE - 3;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push_str("...");
    }
    let severity = match note.severity {
        Severity::Normal => "Normal",
        Severity::Warning => "Warning",
    };
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{stem}.{}", id.to_lowercase())),
            namespace: Some(namespace),
            ..ObjectMeta::default()
        },
        involved_object: Regarding {
            api_version: Some(about.api_version.clone()),
            kind: Some(about.kind.clone()),
            namespace: about.namespace.clone(),
            name: Some(about.name.clone()),
            uid: about.uid.clone(),
            ..Regarding::default()
        },
        reason: Some(note.reason.clone()),
        message: Some(message),
        type_: Some(severity.to_owned()),
        first_timestamp: Some(Time(waiting.first)),
        last_timestamp: Some(Time(note.at)),
        count: Some(waiting.count),
        source: Some(EventSource {
            component: Some(COMPONENT.to_owned()),
            ..EventSource::default()
        }),
        reporting_component: Some(COMPONENT.to_owned()),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use atoll_api::binding::ObjectReference;
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn an_event_fits_what_the_api_server_takes() {
        let about = ObjectReference {
            api_version: "rbac.authorization.k8s.io/v1".to_owned(),
            kind: "ClusterRole".to_owned(),
            name: format!("system:{}", "x".repeat(246)),
            ..ObjectReference::default()
        };
        let note = Note {
            about,
            id: "00ff".repeat(8),
            reason: "First".to_owned(),
            message: "ä".repeat(1000),
            severity: Severity::Normal,
            at: Timestamp::UNIX_EPOCH,
            cause: None,
            repeat_after: None,
        };
        let event = event(&Waiting { first: note.at, note, count: 1, more: 0 });
        let name = event.metadata.name.unwrap();
        assert!(name.len() <= 253 && !name.contains(':'), "{name}");
        assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
        let message = event.message.unwrap();
        assert!(message.len() <= LONGEST_MESSAGE && message.ends_with("..."));
    }
}
