//! CronJob: a Job for each time of its schedule (upstream: `pkg/controller/cronjob/cronjob_controllerv2.go`).
//!
//! The Jobs carry their scheduled time in name and annotation, so a crash between creating a Job and reporting it
//! starts
//! no Job twice.

use std::sync::Arc;

use atoll_api::cron::{self, Schedule};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::children::owner_reference;
use crate::engine::brain::View;
use crate::index::fields::{list, map, stamp, text, time};
use crate::index::kind::Kind;
use crate::index::object::{Key, Object};
use crate::writes::{Plan, Write};

/// Annotation of a Job: its scheduled time.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// Default number of successful Jobs to keep.
const KEPT_SUCCESSFUL: i64 = 3;
const KEPT_FAILED: i64 = 1;

/// How a Job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Complete,
    Failed,
}

/// Reconciles a CronJob.
pub(crate) fn reconcile(view: &View<'_>, object: &Object) -> Plan {
    let jobs: Vec<_> = view.index.owned(&object.uid, Kind::Job).cloned().collect();
    let mut plan = Plan::default();
    if !object.is_deleting() {
        plan.push(tidy(object, &jobs, End::Complete));
        plan.push(tidy(object, &jobs, End::Failed));
        start(view, object, &jobs, &mut plan);
    }
    if plan.writes.is_empty() {
        plan.push(report(object, &jobs));
    }
    plan
}

fn end(job: &Object) -> Option<End> {
    let conditions = list(&job.data, "/status/conditions").iter();
    conditions.filter(|c| text(c, "/status") == Some("True")).find_map(|c| match text(c, "/type") {
        Some("Complete") => Some(End::Complete),
        Some("Failed") => Some(End::Failed),
        _ => None,
    })
}

/// Deletes the oldest Jobs with this end beyond the CronJob's limit.
fn tidy(object: &Object, jobs: &[Arc<Object>], ended: End) -> Vec<Write> {
    let limit = match ended {
        End::Complete => object.int("/spec/successfulJobsHistoryLimit").unwrap_or(KEPT_SUCCESSFUL),
        End::Failed => object.int("/spec/failedJobsHistoryLimit").unwrap_or(KEPT_FAILED),
    };
    let limit = usize::try_from(limit).unwrap_or(0);
    let mut over: Vec<_> =
        jobs.iter().filter(|job| end(job) == Some(ended) && !job.is_deleting()).collect();
    over.sort_by_key(|job| (time(&job.data, "/status/startTime"), job.key.name.clone()));
    over.iter().take(over.len().saturating_sub(limit)).map(|job| Write::delete(job)).collect()
}

/// The latest time for which a Job was started.
fn last_started(object: &Object, jobs: &[Arc<Object>]) -> Option<Timestamp> {
    let of_jobs = jobs.iter().filter_map(|job| job.annotation(SCHEDULED)?.parse().ok());
    of_jobs.chain(time(&object.data, "/status/lastScheduleTime")).max()
}

/// Starts the Job of the latest due time, and schedules a look at the next one.
fn start(view: &View<'_>, object: &Object, jobs: &[Arc<Object>], plan: &mut Plan) {
    if object.flag("/spec/suspend") {
        return;
    }
    // The API server refuses an invalid schedule, but another server may have stored one.
    let Some(schedule) = object.text("/spec/schedule").and_then(|s| s.parse::<Schedule>().ok())
    else {
        return;
    };
    let Ok(zone) = cron::zone(object.text("/spec/timeZone")) else { return };
    let started = last_started(object, jobs).unwrap_or_else(|| object.created());
    let deadline = object.int("/spec/startingDeadlineSeconds").map(SignedDuration::from_secs);
    // Times past the deadline count as missed.
    let oldest = deadline.and_then(|deadline| view.now.checked_sub(deadline).ok());
    let earliest = oldest.map_or(started, |oldest| oldest.max(started));
    if let Some(next) = schedule.next(view.now.max(started), &zone) {
        plan.again_at(next);
    }
    let Some(due) = schedule.last(earliest, view.now, &zone) else { return };
    let running: Vec<_> = jobs.iter().filter(|job| end(job).is_none()).collect();
    match object.text("/spec/concurrencyPolicy") {
        // The end of the running Job triggers the next look.
        Some("Forbid") if !running.is_empty() => return,
        Some("Replace") => {
            let going = running.iter().filter(|job| !job.is_deleting());
            plan.push(going.map(|job| Write::delete(job)));
        }
        _ => {}
    }
    plan.push([create(object, due, &zone)]);
}

/// The Job of a time. Repeated calls give the same name.
fn create(object: &Object, due: Timestamp, zone: &TimeZone) -> Write {
    let name = format!("{}-{}", object.key.name, due.as_second().div_euclid(60));
    let template = object.data.pointer("/spec/jobTemplate").unwrap_or(&Value::Null);
    let copied = |pointer: &str| map(template, pointer).cloned().unwrap_or_else(Map::new);
    let mut annotations = copied("/metadata/annotations");
    // RFC 3339 in the CronJob's zone, as upstream writes it.
    let local = due.to_zoned(zone.clone());
    let written = match local.offset().is_zero() {
        true => local.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        false => local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
    };
    annotations.insert(SCHEDULED.to_owned(), written.into());
    let metadata = json!({
        "labels": copied("/metadata/labels"),
        "annotations": annotations,
        "ownerReferences": [owner_reference(object)],
    });
    let spec = template.get("spec").cloned().unwrap_or_else(|| json!({}));
    Write::create(Kind::Job, Key::new(&object.key.namespace, name), metadata, json!({"spec": spec}))
}

fn report(object: &Object, jobs: &[Arc<Object>]) -> Option<Write> {
    let mut status = object.status();
    let active: Vec<Value> = jobs
        .iter()
        .filter(|job| end(job).is_none())
        .map(|job| {
            json!({
                "apiVersion": job.kind.api_version(), "kind": job.kind.name(),
                "namespace": job.key.namespace, "name": job.key.name, "uid": job.uid,
            })
        })
        .collect();
    status["active"] = if active.is_empty() { Value::Null } else { active.into() };
    if let Some(started) = last_started(object, jobs) {
        status["lastScheduleTime"] = stamp(started);
    }
    let succeeded = jobs.iter().filter(|job| end(job) == Some(End::Complete));
    let ended = succeeded.filter_map(|job| time(&job.data, "/status/completionTime")).max();
    if let Some(ended) = ended.max(time(&object.data, "/status/lastSuccessfulTime")) {
        status["lastSuccessfulTime"] = stamp(ended);
    }
    Write::status(object, status)
}
