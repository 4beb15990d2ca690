//! Status report of one object: its health as the interpreter sees it, with the hash that it was applied with.

use atoll_interpreter::HealthState;
use atoll_protocol::transport::MAX_STATUS;
use atoll_protocol::v1;
use serde_json::Value;

use crate::apply::object::Live;
use crate::capacity::Pods;
use crate::key::Key;

/// The status of an object from the object alone; [`with_pods`] adds its pods.
#[must_use]
pub(crate) fn status(key: &Key, object: &Value, live: &Live) -> v1::Status {
    let seen = atoll_interpreter::observed(object);
    let text = seen.status.map(|status| status.to_string()).unwrap_or_default();
    let (left_out, size) = (text.len() > MAX_STATUS, text.len() as u64);
    let failing = seen.health.state == HealthState::Unhealthy;
    v1::Status {
        key: Some(key.to_wire()),
        hash: live.hash.clone(),
        generation: seen.generation,
        observed_generation: seen.observed_generation.unwrap_or(0),
        replicas: seen.replicas,
        ready: seen.ready,
        health: match seen.health.state {
            HealthState::Healthy => v1::Health::Healthy,
            // Work in progress is not available yet, and a binding has no state in between.
            HealthState::Progressing | HealthState::Unhealthy => v1::Health::Unhealthy,
            HealthState::Unknown => v1::Health::Unknown,
        }
        .into(),
        health_reason: seen.health.reason,
        // The replica counts already show the progress of a rollout.
        health_message: if failing { seen.health.message } else { String::new() },
        failing,
        status_json: if left_out { Default::default() } else { text.into() },
        status_left_out: if left_out { size } else { 0 },
        object_uid: live.uid.clone(),
        ..v1::Status::default()
    }
}

/// A status with the report about the object's pods. A pod's fault is shown only while the object is not healthy: it
/// then explains more than the object's own status, which only counts.
#[must_use]
pub(crate) fn with_pods(status: &v1::Status, pods: Option<&Pods>) -> v1::Status {
    let mut status = status.clone();
    let Some(pods) = pods else { return status };
    if let Some(waiting) = &pods.unschedulable {
        status.unschedulable = waiting.count;
        status.unschedulable_since = waiting.since;
        status.unschedulable_reason.clone_from(&waiting.reason);
    }
    if let Some(fault) = pods.fault.as_ref().filter(|_| status.health() == v1::Health::Unhealthy) {
        status.health_reason.clone_from(&fault.reason);
        status.health_message.clone_from(&fault.message);
        status.failing = true;
    }
    status
}

/// The status of an object that is gone.
#[must_use]
pub(crate) fn gone(key: &Key) -> v1::Status {
    v1::Status { key: Some(key.to_wire()), gone: true, ..v1::Status::default() }
}
