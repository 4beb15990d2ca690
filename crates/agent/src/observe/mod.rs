//! What is reported of one object: how it is, in the words of the interpreter, under the hash that it was applied with.

use atoll_interpreter::HealthState;
use atoll_protocol::transport::MAX_STATUS;
use atoll_protocol::v1;
use serde_json::Value;

use crate::apply::object::Live;
use crate::capacity::Unschedulable;
use crate::key::Key;

/// The status of an object as it is.
#[must_use]
pub(crate) fn status(
    key: &Key,
    object: &Value,
    live: &Live,
    unschedulable: Option<&Unschedulable>,
) -> v1::Status {
    let seen = atoll_interpreter::observed(object);
    let text = seen.status.map(|status| status.to_string()).unwrap_or_default();
    let (left_out, size) = (text.len() > MAX_STATUS, text.len() as u64);
    let mut status = v1::Status {
        key: Some(key.to_wire()),
        hash: live.hash.clone(),
        generation: seen.generation,
        observed_generation: seen.observed_generation.unwrap_or(0),
        replicas: seen.replicas,
        ready: seen.ready,
        health: match seen.health.state {
            HealthState::Healthy => v1::Health::Healthy,
            // What is on its way is not there yet; a binding knows no way between.
            HealthState::Progressing | HealthState::Unhealthy => v1::Health::Unhealthy,
            HealthState::Unknown => v1::Health::Unknown,
        }
        .into(),
        health_reason: seen.health.reason,
        status_json: if left_out { Default::default() } else { text.into() },
        status_left_out: if left_out { size } else { 0 },
        object_uid: live.uid.clone(),
        ..v1::Status::default()
    };
    set_unschedulable(&mut status, unschedulable);
    status
}

/// Puts the replicas without a node into a status.
pub(crate) fn set_unschedulable(status: &mut v1::Status, unschedulable: Option<&Unschedulable>) {
    status.unschedulable = unschedulable.map_or(0, |waiting| waiting.count);
    status.unschedulable_since = unschedulable.map_or(0, |waiting| waiting.since);
    status.unschedulable_reason =
        unschedulable.map(|waiting| waiting.reason.clone()).unwrap_or_default();
}

/// The status of an object that is gone.
#[must_use]
pub(crate) fn gone(key: &Key) -> v1::Status {
    v1::Status { key: Some(key.to_wire()), gone: true, ..v1::Status::default() }
}
