//! Status report of one object: its health as the interpreter sees it, with the hash that it was applied with.

use atoll_interpreter::HealthState;
use atoll_protocol::transport::MAX_STATUS;
use atoll_protocol::v1;
use serde_json::Value;

use crate::apply::object::Live;
use crate::capacity::Pods;
use crate::key::Key;

/// Reason of a health that a user's rule gave.
const HEALTH_RULE: &str = "HealthInterpretation";

/// The status of an object from the object alone; [`with_pods`] adds its pods.
#[must_use]
pub(crate) fn status(key: &Key, object: &Value, live: &Live) -> v1::Status {
    let seen = atoll_interpreter::observed(object);
    let failing = seen.health.state == HealthState::Unhealthy;
    let mut report = v1::Status {
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
        object_uid: live.uid.clone(),
        ..v1::Status::default()
    };
    set_status(&mut report, seen.status.as_ref());
    report
}

/// Sets the status that is reported; one that is too large is left out.
pub(crate) fn set_status(report: &mut v1::Status, status: Option<&Value>) {
    let status = status.filter(|status| !status.is_null());
    let text = status.map(Value::to_string).unwrap_or_default();
    if text.len() > MAX_STATUS {
        report.status_left_out = text.len() as u64;
        report.status_json = Default::default();
    } else {
        report.status_left_out = 0;
        report.status_json = text.into();
    }
}

/// What users' rules say about an object; `None` where the built-in rules answer.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// Its health.
    pub healthy: Option<bool>,
    /// The part of its status that is reported.
    pub status: Option<Value>,
}

/// A report with what users' rules say.
#[must_use]
pub(crate) fn judged(mut report: v1::Status, judged: Judged) -> v1::Status {
    if let Some(healthy) = judged.healthy {
        report.set_health(if healthy { v1::Health::Healthy } else { v1::Health::Unhealthy });
        HEALTH_RULE.clone_into(&mut report.health_reason);
        report.health_message = String::new();
        // A rule does not tell a fault from progress.
        report.failing = false;
    }
    if let Some(status) = &judged.status {
        set_status(&mut report, Some(status));
    }
    report
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
