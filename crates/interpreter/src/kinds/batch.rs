//! Jobs and CronJobs.

use serde_json::{Map, Value, json};

use super::{Member, reported, sums};
use crate::{
    Health, conditions,
    read::{flag, int, list, pick, text},
};

const JOB_FIELDS: [&str; 6] =
    ["active", "ready", "succeeded", "failed", "startTime", "completionTime"];
const CRON_JOB_FIELDS: [&str; 3] = ["active", "lastScheduleTime", "lastSuccessfulTime"];

/// A running Job is healthy, however long it takes.
pub(super) fn job_health(obj: &Value) -> Health {
    let status = &obj["status"];
    if conditions::state(status, "Failed") == "True" {
        let reason = conditions::reason(status, "Failed");
        let reason = if reason.is_empty() { "Failed" } else { reason };
        return Health::unhealthy(reason, conditions::message(status, "Failed"));
    }
    if conditions::state(status, "Complete") == "True" {
        return Health::healthy("Complete");
    }
    if flag(obj, &["spec", "suspend"]) {
        return Health::healthy("Suspended");
    }
    if text(status, &["startTime"]).is_empty() {
        return Health::progressing("NotStarted", "no start time yet");
    }
    match (int(status, &["active"]).unwrap_or(0), int(status, &["ready"])) {
        (active, Some(0)) if active > 0 => {
            Health::progressing("PodsNotReady", format!("0 of {active} pods are ready"))
        }
        _ => Health::healthy("Running"),
    }
}

/// An existing CronJob is healthy.
pub(super) fn cron_job_health(obj: &Value) -> Health {
    let suspended = flag(obj, &["spec", "suspend"]);
    Health::healthy(if suspended { "Suspended" } else { "Scheduled" })
}

pub(super) fn reflect_job(status: &Value) -> Value {
    let mut out = pick(status, &JOB_FIELDS);
    let conditions = conditions::all(status);
    if !conditions.is_empty() {
        out.insert("conditions".to_owned(), Value::Array(conditions));
    }
    Value::Object(out)
}

pub(super) fn reflect_cron_job(status: &Value) -> Value {
    Value::Object(pick(status, &CRON_JOB_FIELDS))
}

/// Complete when complete on every member, failed when failed on any; started when started on all.
pub(super) fn aggregate_job(members: &[Member<'_>], old: &Value) -> Map<String, Value> {
    let mut out = sums(members, &["active", "ready", "succeeded", "failed"]);
    let reports = reported(members);
    let having = |kind: &str| -> Vec<(&str, &Value)> {
        let holds = |(_, s): &&(&str, &Value)| conditions::state(s, kind) == "True";
        reports.iter().filter(holds).copied().collect()
    };
    let everywhere = |count: usize| count > 0 && count == members.len();

    let mut found = Vec::new();
    let failed = having("Failed");
    if !failed.is_empty() {
        let names: Vec<&str> = failed.iter().map(|(name, _)| *name).collect();
        let message = format!("Job failed in {}", names.join(", "));
        found.push(condition("Failed", "JobFailed", &message, &failed, old));
    }
    for (kind, reason, message) in [
        ("SuccessCriteriaMet", "CompletionsReached", "Completions are reached in every cluster"),
        ("Complete", "Completed", "Job is complete in every cluster"),
    ] {
        let done = having(kind);
        if everywhere(done.len()) {
            found.push(condition(kind, reason, message, &done, old));
        }
    }
    if !found.is_empty() {
        out.insert("conditions".to_owned(), Value::Array(found));
    }

    let times = |field: &str| -> Vec<&str> {
        reports.iter().map(|(_, s)| text(s, &[field])).filter(|t| !t.is_empty()).collect()
    };
    let starts = times("startTime");
    // The start time of a Job never changes once it is set.
    let started = text(old, &["startTime"]);
    let start = if started.is_empty() && everywhere(starts.len()) {
        starts.into_iter().min()
    } else {
        Some(started).filter(|t| !t.is_empty())
    };
    let ends = times("completionTime");
    let end = if everywhere(ends.len()) { ends.into_iter().max() } else { None };
    for (field, time) in [("startTime", start), ("completionTime", end)] {
        if let Some(time) = time {
            out.insert(field.to_owned(), json!(time));
        }
    }
    out
}

/// A true condition. Its time is that of the template's own condition if it was already true, otherwise the latest of
/// the members.
fn condition(
    kind: &str,
    reason: &str,
    message: &str,
    from: &[(&str, &Value)],
    old: &Value,
) -> Value {
    let time = |status: &'_ Value| -> String {
        conditions::find(status, kind).map_or("", |c| text(c, &["lastTransitionTime"])).to_owned()
    };
    let before =
        Some(time(old)).filter(|t| !t.is_empty() && conditions::state(old, kind) == "True");
    let since = before.or_else(|| from.iter().map(|(_, s)| time(s)).max()).unwrap_or_default();
    let mut out = json!({"type": kind, "status": "True", "reason": reason, "message": message});
    if !since.is_empty() {
        out["lastTransitionTime"] = json!(since);
    }
    out
}

/// All active Jobs, and the latest times over all members.
pub(super) fn aggregate_cron_job(members: &[Member<'_>]) -> Map<String, Value> {
    let reports = reported(members);
    let mut out = Map::new();
    let active: Vec<Value> =
        reports.iter().flat_map(|(_, s)| list(s, &["active"])).cloned().collect();
    if !active.is_empty() {
        out.insert("active".to_owned(), Value::Array(active));
    }
    for field in ["lastScheduleTime", "lastSuccessfulTime"] {
        let last = reports.iter().map(|(_, s)| text(s, &[field])).max().filter(|t| !t.is_empty());
        if let Some(last) = last {
            out.insert(field.to_owned(), json!(last));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        HealthState::{Healthy, Progressing, Unhealthy},
        kinds::testing::{aggregated, judged, object},
    };

    fn job(spec: Value, status: Value) -> Value {
        object("batch/v1", "Job", spec, status)
    }

    fn done(kind: &str, time: &str) -> Value {
        json!({"type": kind, "status": "True", "reason": "R", "lastTransitionTime": time})
    }

    #[test]
    fn a_job_is_healthy_while_it_runs_and_when_it_is_complete() {
        for (spec, status, state, reason) in [
            (json!({}), json!({}), Progressing, "NotStarted"),
            (json!({"suspend": true}), json!({}), Healthy, "Suspended"),
            (json!({}), json!({"startTime": "t", "active": 2, "ready": 1}), Healthy, "Running"),
            (
                json!({}),
                json!({"startTime": "t", "active": 2, "ready": 0}),
                Progressing,
                "PodsNotReady",
            ),
            (json!({}), json!({"conditions": [done("Complete", "t")]}), Healthy, "Complete"),
            (json!({}), json!({"conditions": [done("Failed", "t")]}), Unhealthy, "R"),
        ] {
            assert_eq!(judged(&job(spec, status.clone())), (state, reason.to_owned()), "{status}");
        }
        let cron = object("batch/v1", "CronJob", json!({"suspend": true}), Value::Null);
        assert_eq!(judged(&cron), (Healthy, "Suspended".to_owned()));
    }

    fn member(n: i64, start: &str, end: &str, condition: Option<&str>) -> Value {
        let conditions: Vec<Value> = condition.map(|c| done(c, end)).into_iter().collect();
        let mut status = json!({"succeeded": n, "startTime": start, "conditions": conditions});
        if !end.is_empty() {
            status["completionTime"] = json!(end);
        }
        status
    }

    #[test]
    fn a_job_is_complete_when_it_is_complete_everywhere() {
        let template = job(json!({}), json!({}));
        let complete = |n: i64, end: &str| member(n, "t1", end, Some("Complete"));
        let status = aggregated(&template, &[("a", complete(2, "t5")), ("b", complete(3, "t9"))]);
        let expected = json!({
            "active": 0, "ready": 0, "succeeded": 5, "failed": 0, "startTime": "t1",
            "completionTime": "t9",
            "conditions": [{
                "type": "Complete", "status": "True", "reason": "Completed",
                "message": "Job is complete in every cluster", "lastTransitionTime": "t9",
            }],
        });
        assert_eq!(status, expected);
        for waiting in [member(1, "t2", "", None), Value::Null] {
            let status = aggregated(&template, &[("a", complete(2, "t5")), ("b", waiting)]);
            assert!(status.get("conditions").is_none() && status.get("completionTime").is_none());
        }
        assert!(aggregated(&template, &[]).get("conditions").is_none());
    }

    #[test]
    fn a_job_has_failed_when_it_has_failed_anywhere_and_keeps_its_times() {
        let old = json!({"startTime": "t0", "conditions": [done("Failed", "t4")]});
        let failed = json!({"failed": 1, "startTime": "t1", "conditions": [done("Failed", "t7")]});
        let status =
            aggregated(&job(json!({}), old), &[("a", member(1, "t2", "", None)), ("b", failed)]);
        assert_eq!(status["startTime"], "t0");
        assert_eq!(status["conditions"][0]["message"], "Job failed in b");
        assert_eq!(status["conditions"][0]["lastTransitionTime"], "t4");
    }

    #[test]
    fn a_cron_job_has_the_active_jobs_of_all_and_the_last_times() {
        let template = object("batch/v1", "CronJob", json!({}), json!({}));
        let status = aggregated(
            &template,
            &[
                ("a", json!({"active": [{"name": "j1"}], "lastScheduleTime": "t2"})),
                ("b", json!({"active": [{"name": "j2"}], "lastScheduleTime": "t1"})),
            ],
        );
        let expected =
            json!({"active": [{"name": "j1"}, {"name": "j2"}], "lastScheduleTime": "t2"});
        assert_eq!(status, expected);
    }
}
