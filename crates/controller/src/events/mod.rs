//! Kubernetes Events for people: one per decision, on the template, through a bounded queue that nobody waits for.
//!
//! `core/v1` Events are written, because that is what `kubectl describe` looks for. Losing one loses no knowledge:
//! history holds every decision.

use std::time::Duration;

use atoll_api::binding::ObjectReference;
use atoll_api::marks;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference as Regarding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::manager;

/// Events that may wait to be written. More are dropped: the hub is slow then and needs no further load.
const QUEUE: usize = 1024;
/// Limit of one write.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Longest message that the API server takes for an Event.
const LONGEST_MESSAGE: usize = 1024;
/// Component by which people know our Events.
const COMPONENT: &str = "atoll-controller";

/// Whether people have to do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// No.
    Normal,
    /// Perhaps.
    Warning,
}

/// One Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The object that it is about.
    pub about: ObjectReference,
    /// What makes it this Event and no other: writing it twice leaves one.
    pub id: String,
    /// CamelCase.
    pub reason: String,
    /// For people.
    pub message: String,
    /// How grave it is.
    pub severity: Severity,
    /// When it happened.
    pub at: Timestamp,
}

/// Where Events are handed in.
#[derive(Clone)]
pub struct Notes(mpsc::Sender<Note>);

impl Notes {
    /// Hands one in; never waits.
    pub fn tell(&self, note: Note) {
        if let Err(error) = self.0.try_send(note) {
            let why = if self.0.is_closed() { "stopping" } else { "too many are waiting" };
            let (mpsc::error::TrySendError::Full(note) | mpsc::error::TrySendError::Closed(note)) =
                error;
            tracing::warn!(reason = note.reason, about = note.about.name, why, "event dropped");
        }
    }
}

/// The queue and the task that empties it until `token` ends.
pub fn notes(
    client: Client,
    token: CancellationToken,
) -> (Notes, impl Future<Output = ()> + Send + 'static) {
    let (sender, mut receiver) = mpsc::channel::<Note>(QUEUE);
    let writer = async move {
        while let Some(note) = token.run_until_cancelled(receiver.recv()).await.flatten() {
            write(&client, &note).await;
        }
    };
    (Notes(sender), writer)
}

async fn write(client: &Client, note: &Note) {
    let event = event(note);
    let namespace = event.metadata.namespace.clone().unwrap_or_default();
    let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
    let params = manager::create(marks::MANAGER);
    match tokio::time::timeout(TIMEOUT, api.create(&params, &event)).await {
        Ok(Ok(_)) => {}
        Ok(Err(kube::Error::Api(status))) if status.is_already_exists() => {}
        Ok(Err(error)) => tracing::warn!(reason = note.reason, %error, "event not written"),
        Err(_) => tracing::warn!(reason = note.reason, "event not written in time"),
    }
}

fn event(note: &Note) -> Event {
    let about = &note.about;
    let namespace = about.namespace.clone().unwrap_or_else(|| "default".to_owned());
    let id: String = note.id.chars().filter(char::is_ascii_alphanumeric).take(16).collect();
    // The suffix is ours; the name before it must leave room for it within 253 characters.
    let stem: String = about.name.replace(':', ".").chars().take(230).collect();
    let mut message = note.message.clone();
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
        first_timestamp: Some(Time(note.at)),
        last_timestamp: Some(Time(note.at)),
        count: Some(1),
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
    use super::*;

    #[test]
    fn an_event_fits_what_the_api_server_takes() {
        let about = ObjectReference {
            api_version: "rbac.authorization.k8s.io/v1".to_owned(),
            kind: "ClusterRole".to_owned(),
            name: format!("system:{}", "x".repeat(246)),
            ..ObjectReference::default()
        };
        let event = event(&Note {
            about,
            id: "00ff".repeat(8),
            reason: "First".to_owned(),
            message: "ä".repeat(1000),
            severity: Severity::Normal,
            at: Timestamp::UNIX_EPOCH,
        });
        let name = event.metadata.name.unwrap();
        assert!(name.len() <= 253 && !name.contains(':'), "{name}");
        assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
        let message = event.message.unwrap();
        assert!(message.len() <= LONGEST_MESSAGE && message.ends_with("..."));
    }
}
