//! Kubernetes Events about members.

use atoll_api::{Cluster, marks};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::{Api, Resource};
use tokio::time::Instant;

use super::context::Context;
use super::hub::in_time;
use super::state::Member;
use crate::manager;

/// Namespace of events about objects without one.
const NAMESPACE: &str = "default";
/// Publishes a warning about a member in the background: nothing waits for it, and a failure is logged.
pub(crate) fn publish(cx: &Context, member: &Member, reason: &'static str, message: &str) {
    let now = Instant::now();
    if !cx.recent_events.admit(&member.name, reason, now) {
        return;
    }
    // After the limit: a refused member retries every few seconds and must not flood the log.
    tracing::warn!(cluster = member.name.as_str(), reason, message, "member");
    let Some(cluster) = member.lock().cluster.clone() else { return };
    let at = cx.clock.now();
    let event = Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{:x}", member.name, at.as_nanosecond())),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(at)),
        type_: Some("Warning".to_owned()),
        reason: Some(reason.to_owned()),
        action: Some("Session".to_owned()),
        note: Some(message.chars().take(1024).collect()),
        reporting_controller: Some("atoll.dev/members".to_owned()),
        reporting_instance: Some("atoll-controller".to_owned()),
        regarding: Some(ObjectReference {
            api_version: Some(Cluster::api_version(&()).into_owned()),
            kind: Some(Cluster::kind(&()).into_owned()),
            name: Some(String::from(&member.name)),
            uid: cluster.metadata.uid.clone(),
            ..ObjectReference::default()
        }),
        ..Event::default()
    };
    let events: Api<Event> = Api::namespaced(cx.client.clone(), NAMESPACE);
    cx.tasks.spawn(async move {
        let created = in_time(events.create(&manager::create(marks::MANAGER), &event)).await;
        if let Err(error) = created {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(reason, error, "the Event could not be published");
        }
    });
}
