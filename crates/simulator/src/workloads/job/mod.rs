//! Job: Pods that run to completion, each counted exactly once.
//!
//! Counting survives a crash at any point, as upstream's does: a finished Pod is first listed in
//! `status.uncountedTerminatedPods`, then loses its finalizer, then moves into the counter.

mod finish;
mod indexes;
mod tally;

use std::sync::Arc;

use serde_json::{Value, json};

use super::children::{PodDraft, is_active, put_count};
use super::names;
use crate::engine::brain::View;
use crate::index::fields::{list, stamp, text};
use crate::index::kind::Kind;
use crate::index::object::{Key, Object};
use crate::index::pod::Phase;
use crate::writes::conditions::{Condition, Conditions, Custom};
use crate::writes::{Plan, Write};
use finish::Verdict;
use indexes::Indexes;
use tally::Tally;

/// Keeps a Pod until it has been counted.
const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// Annotation and label of an Indexed Job's Pod.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// A Job as its controller reads it.
#[derive(Debug)]
struct Job<'a> {
    object: &'a Object,
    parallelism: i64,
    /// `None`: the first success ends the creation of Pods.
    completions: Option<i64>,
    indexed: bool,
    backoff_limit: i64,
    suspended: bool,
    restarts_in_place: bool,
    /// Whether a Pod is replaced only once it has failed, not already while it is being deleted.
    replaces_failed_only: bool,
}

impl<'a> Job<'a> {
    fn read(object: &'a Object) -> Self {
        let parallelism = object.int("/spec/parallelism");
        Self {
            object,
            parallelism: parallelism.unwrap_or(1),
            completions: object.int("/spec/completions").or(parallelism.is_none().then_some(1)),
            indexed: object.text("/spec/completionMode") == Some("Indexed"),
            backoff_limit: object.int("/spec/backoffLimit").unwrap_or(6),
            suspended: object.flag("/spec/suspend"),
            restarts_in_place: object.text("/spec/template/spec/restartPolicy")
                == Some("OnFailure"),
            replaces_failed_only: object.text("/spec/podReplacementPolicy") == Some("Failed"),
        }
    }

    /// How a Pod ended for this Job; `None` if it has not.
    fn outcome(&self, pod: &Object) -> Option<tally::Outcome> {
        match pod.pod().phase {
            Phase::Succeeded => Some(tally::Outcome::Succeeded),
            Phase::Failed => Some(tally::Outcome::Failed),
            _ if pod.is_deleting() && !self.replaces_failed_only => Some(tally::Outcome::Failed),
            _ => None,
        }
    }
}

/// Reconciles a Job.
pub(crate) fn reconcile(view: &View<'_>, object: &Object) -> Plan {
    let job = Job::read(object);
    let pods: Vec<_> = view.index.owned(&object.uid, Kind::Pod).cloned().collect();
    let conditions = Conditions::of(object, Custom::Workload { has_update_time: false }, view.now);
    let ended = conditions.is("Complete", "True") || conditions.is("Failed", "True");
    if ended || object.is_deleting() {
        return finish::after_end(view, object, &pods);
    }
    let tally = Tally::of(&job, &pods);
    let release = tally.releases(&pods);
    if !release.is_empty() {
        return Plan::of(release);
    }
    let verdict = finish::verdict(view, &job, &tally, &pods, &conditions);
    let mut plan = Plan::default();
    if !tally.is_moving() {
        plan.push(manage(view, &job, &tally, &pods, &verdict));
        if let Some(at) = wake(view, &job, &pods) {
            plan.again_at(at);
        }
    }
    if plan.writes.is_empty() {
        plan.push(report(view, &job, &tally, &pods, &verdict, conditions));
    }
    plan
}

fn wake(view: &View<'_>, job: &Job<'_>, pods: &[Arc<Object>]) -> Option<jiff::Timestamp> {
    let deadline = finish::deadline(job).filter(|_| !job.suspended);
    let backoff = finish::backoff_ends(job, pods);
    deadline.into_iter().chain(backoff).filter(|at| *at > view.now).min()
}

/// Creates or deletes Pods.
fn manage(
    view: &View<'_>,
    job: &Job<'_>,
    tally: &Tally,
    pods: &[Arc<Object>],
    verdict: &Verdict,
) -> Vec<Write> {
    let mut active: Vec<_> = pods.iter().filter(|pod| is_active(pod)).cloned().collect();
    if job.suspended || !matches!(verdict, Verdict::Running) {
        return active.iter().flat_map(|pod| take_down(pod)).collect();
    }
    let wanted = match job.completions {
        Some(completions) => job.parallelism.min(completions - tally.succeeded(job)),
        None if tally.succeeded(job) > 0 => {
            i64::try_from(active.len()).unwrap_or(0).min(job.parallelism)
        }
        None => job.parallelism,
    };
    let wanted = usize::try_from(wanted).unwrap_or(0);
    if active.len() > wanted {
        super::children::by_dispensability(&mut active, &[]);
        let surplus = active.len() - wanted;
        return active.iter().take(surplus).flat_map(|pod| take_down(pod)).collect();
    }
    // With `podReplacementPolicy: Failed` a Pod that is being deleted still counts as active.
    let leaving = pods.iter().filter(|pod| pod.is_deleting() && !pod.pod().is_finished()).count();
    let held = active.len() + if job.replaces_failed_only { leaving } else { 0 };
    let missing = wanted.saturating_sub(held);
    if missing == 0 || finish::backoff_ends(job, pods).is_some_and(|at| at > view.now) {
        return Vec::new();
    }
    let mut free = tally.free_indexes(job, &active).into_iter();
    (0..missing)
        .map_while(|number| {
            let index = if job.indexed { Some(free.next()?) } else { None };
            Some(create(view, job, u64::try_from(number).unwrap_or(0), index))
        })
        .collect()
}

/// Deletes a Pod without counting it as a failure: its finalizer is removed first.
fn take_down(pod: &Object) -> Vec<Write> {
    release(pod).into_iter().chain([Write::delete(pod)]).collect()
}

fn release(pod: &Object) -> Option<Write> {
    if !pod.has_finalizer(TRACKING) {
        return None;
    }
    let others: Vec<_> =
        pod.meta.finalizers.iter().flatten().filter(|finalizer| *finalizer != TRACKING).collect();
    Write::fields(pod, json!({"metadata": {"finalizers": others}}))
}

fn create(view: &View<'_>, job: &Job<'_>, number: u64, index: Option<i64>) -> Write {
    let object = job.object;
    let template = object.data.pointer("/spec/template").unwrap_or(&Value::Null);
    let prefix = match index {
        Some(index) => format!("{}-{index}-", object.key.name),
        None => format!("{}-", object.key.name),
    };
    let name = (number * 1000..)
        .map(|number| names::generated(&prefix, view.settings.seed, &object.uid, view.now, number))
        .find(|name| {
            view.index.get(Kind::Pod, &Key::new(&object.key.namespace, name.as_str())).is_none()
        })
        .unwrap_or_default();
    let mut draft = PodDraft::from_template(template, name);
    draft.generate_name = Some(prefix);
    draft.finalizers.push(json!(TRACKING));
    let labels = [
        ("batch.kubernetes.io/controller-uid", object.uid.clone()),
        ("batch.kubernetes.io/job-name", object.key.name.clone()),
        ("controller-uid", object.uid.clone()),
        ("job-name", object.key.name.clone()),
    ];
    for (key, value) in labels {
        draft.labels.insert(key.to_owned(), json!(value));
    }
    if let Some(index) = index {
        draft.labels.insert(INDEX.to_owned(), json!(index.to_string()));
        draft.annotations.insert(INDEX.to_owned(), json!(index.to_string()));
        draft.spec["hostname"] = json!(format!("{}-{index}", object.key.name));
        let env = json!({
            "name": "JOB_COMPLETION_INDEX",
            "valueFrom": {"fieldRef": {"fieldPath": format!("metadata.annotations['{INDEX}']")}},
        });
        for container in draft.spec["containers"].as_array_mut().into_iter().flatten() {
            let mut all = list(container, "/env").to_vec();
            all.retain(|entry| text(entry, "/name") != Some("JOB_COMPLETION_INDEX"));
            all.push(env.clone());
            container["env"] = Value::Array(all);
        }
    }
    draft.create(object)
}

fn report(
    view: &View<'_>,
    job: &Job<'_>,
    tally: &Tally,
    pods: &[Arc<Object>],
    verdict: &Verdict,
    mut conditions: Conditions,
) -> Option<Write> {
    let object = job.object;
    let mut status = object.status();
    let active = pods.iter().filter(|pod| is_active(pod));
    let ready = active.clone().filter(|pod| pod.pod().ready_since.is_some()).count();
    let active = active.count();
    let leaving = pods.iter().filter(|pod| pod.is_deleting() && !pod.pod().is_finished()).count();
    put_count(&mut status, "active", i64::try_from(active).unwrap_or(i64::MAX));
    status["ready"] = json!(ready);
    status["terminating"] = json!(leaving);
    tally.write(job, &mut status);
    if job.suspended {
        conditions.set(Condition {
            type_: "Suspended",
            status: "True",
            reason: "JobSuspended",
            message: "Job suspended",
        });
        status["startTime"] = Value::Null;
    } else {
        if conditions.is("Suspended", "True") {
            conditions.set(Condition {
                type_: "Suspended",
                status: "False",
                reason: "JobResumed",
                message: "Job resumed",
            });
        }
        if object.text("/status/startTime").is_none() {
            status["startTime"] = stamp(view.now);
        }
    }
    // The final condition waits until no Pod runs and every end is in the counters.
    let settled = active == 0 && leaving == 0 && tally.is_settled();
    finish::conclude(view, verdict, settled, &mut conditions, &mut status);
    let list = conditions.into_value();
    status["conditions"] =
        if list.as_array().is_some_and(Vec::is_empty) { Value::Null } else { list };
    Write::status(object, status)
}

/// Index of an Indexed Job's Pod.
fn index_of(pod: &Object) -> Option<i64> {
    pod.annotation(INDEX)?.parse().ok()
}

/// Completed indexes from the status.
fn completed(job: &Job<'_>) -> Indexes {
    Indexes::parse(job.object.text("/status/completedIndexes").unwrap_or_default())
}
