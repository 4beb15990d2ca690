//! When a Job is finished, and what happens then.

use std::sync::Arc;
use std::time::Duration;

use atoll_api::Backoff;
use jiff::Timestamp;
use serde_json::Value;

use super::super::children::is_active;
use super::tally::{Outcome, Tally};
use super::{Job, release};
use crate::engine::brain::View;
use crate::index::fields::{list, stamp, text, time};
use crate::index::object::Object;
use crate::writes::conditions::{Condition, Conditions};
use crate::writes::{Plan, Write};

/// Backoff before a failed Pod is replaced (`DefaultJobPodFailureBackOff`, `MaxJobPodFailureBackOff`).
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(10), most: Duration::from_secs(600) };

/// The outcome that a Job is heading for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Running,
    Succeeded,
    Failed { reason: String, message: String },
}

/// Decides by the Job's counters, its deadline and the earlier verdict.
pub(super) fn verdict(
    view: &View<'_>,
    job: &Job<'_>,
    tally: &Tally,
    pods: &[Arc<Object>],
    conditions: &Conditions,
) -> Verdict {
    let failed = |reason: &str, message: &str| Verdict::Failed {
        reason: reason.to_owned(),
        message: message.to_owned(),
    };
    if conditions.is("SuccessCriteriaMet", "True") {
        return Verdict::Succeeded;
    }
    if let Some(target) = conditions.get("FailureTarget") {
        let field = |pointer| text(target, pointer).unwrap_or_default();
        return failed(field("/reason"), field("/message"));
    }
    if job.suspended {
        return Verdict::Running;
    }
    let restarts: i64 =
        pods.iter().filter(|pod| is_active(pod)).map(|pod| pod.pod().restarts).sum();
    let restarted_out = job.restarts_in_place && restarts > 0 && restarts >= job.backoff_limit;
    if tally.failed() > job.backoff_limit || restarted_out {
        return failed("BackoffLimitExceeded", "Job has reached the specified backoff limit");
    }
    if deadline(job).is_some_and(|at| at <= view.now) {
        return failed("DeadlineExceeded", "Job was active longer than specified deadline");
    }
    let done = match job.completions {
        Some(completions) => tally.succeeded(job) >= completions,
        None => tally.succeeded(job) > 0 && !pods.iter().any(|pod| is_active(pod)),
    };
    if done { Verdict::Succeeded } else { Verdict::Running }
}

/// When `activeDeadlineSeconds` passes.
pub(super) fn deadline(job: &Job<'_>) -> Option<Timestamp> {
    let seconds = job.object.int("/spec/activeDeadlineSeconds")?;
    let start = time(&job.object.data, "/status/startTime")?;
    Timestamp::from_second(start.as_second().checked_add(seconds)?).ok()
}

/// End of the backoff during which no Pod is created, after failures.
pub(super) fn backoff_ends(job: &Job<'_>, pods: &[Arc<Object>]) -> Option<Timestamp> {
    let mut ends: Vec<(Timestamp, Outcome)> =
        pods.iter().filter_map(|pod| Some((ended(pod)?, job.outcome(pod)?))).collect();
    ends.sort_by_key(|(at, _)| *at);
    let in_a_row = ends.iter().rev().take_while(|(_, outcome)| *outcome == Outcome::Failed).count();
    let (last, _) = ends.last().filter(|_| in_a_row > 0)?;
    Some(*last + BACKOFF.ceiling(u32::try_from(in_a_row).unwrap_or(u32::MAX)))
}

/// When a Pod's last container ended; for a deleted Pod, when the deletion was requested.
fn ended(pod: &Object) -> Option<Timestamp> {
    let finished = list(&pod.data, "/status/containerStatuses")
        .iter()
        .filter_map(|status| time(status, "/state/terminated/finishedAt"))
        .max();
    finished.or_else(|| pod.deletion())
}

/// Writes the verdict: first the target condition, then, when everything is counted, the final one.
pub(super) fn conclude(
    view: &View<'_>,
    verdict: &Verdict,
    settled: bool,
    conditions: &mut Conditions,
    status: &mut Value,
) {
    let (going, there, reason, message) = match verdict {
        Verdict::Running => return,
        Verdict::Succeeded => (
            "SuccessCriteriaMet",
            "Complete",
            "CompletionsReached",
            "Reached expected number of succeeded pods",
        ),
        Verdict::Failed { reason, message } => {
            ("FailureTarget", "Failed", reason.as_str(), message.as_str())
        }
    };
    conditions.set(Condition { type_: going, status: "True", reason, message });
    if settled {
        conditions.set(Condition { type_: there, status: "True", reason, message });
        if *verdict == Verdict::Succeeded {
            status["completionTime"] = stamp(view.now);
        }
    }
}

/// A Job that is finished or being deleted only releases its Pods; with a TTL it is deleted after that.
pub(super) fn after_end(view: &View<'_>, object: &Object, pods: &[Arc<Object>]) -> Plan {
    let mut plan = Plan::of(pods.iter().filter_map(|pod| release(pod)));
    let ttl = object.int("/spec/ttlSecondsAfterFinished");
    if let Some(ttl) = ttl.filter(|_| !object.is_deleting()) {
        let ended = list(&object.data, "/status/conditions")
            .iter()
            .filter(|condition| matches!(text(condition, "/type"), Some("Complete" | "Failed")))
            .find_map(|condition| time(condition, "/lastTransitionTime"));
        let due = ended
            .and_then(|at| Timestamp::from_second(at.as_second().checked_add(ttl)?).ok())
            .unwrap_or(view.now);
        if due <= view.now {
            plan.push([Write::delete(object)]);
        } else {
            plan.again_at(due);
        }
    }
    plan
}
