//! Jobs and CronJobs (`pkg/apis/batch`).

use atoll_api::cron::{self, Schedule};
use atoll_apimachinery::{FieldError, meta, meta::Fields};
use serde_json::{Value, json};

use super::{Check, made, pod, selects, set_default, set_default_text};

/// Labels of a job's pods.
const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";
const JOB_NAME: &str = "batch.kubernetes.io/job-name";

/// `SetDefaults_Job`.
fn job_spec(spec: &mut Fields) {
    pod::template(made(spec, "template"));
    let parallelism = spec.get("parallelism").cloned().filter(|v| !v.is_null());
    // Neither given: one pod. Only parallelism given: a work queue without a number of completions.
    if spec.get("completions").is_none_or(Value::is_null) && parallelism.is_none() {
        set_default(spec, "completions", 1);
    }
    set_default(spec, "parallelism", 1);
    set_default(spec, "backoffLimit", 6);
    set_default_text(spec, "completionMode", "NonIndexed");
    set_default(spec, "suspend", false);
    set_default(spec, "manualSelector", false);
    set_default_text(spec, "podReplacementPolicy", "TerminatingOrFailed");
}

/// A Job, with the selector that the strategy generates.
pub(crate) fn job(value: &mut Value) {
    let (uid, name) = (meta::uid(value).to_owned(), meta::name(value).to_owned());
    let spec = meta::child(value, "spec");
    job_spec(spec);
    let manual = spec.get("manualSelector") == Some(&Value::Bool(true));
    // The selector contains the uid, which exists from the second call on (see `generate_selector`).
    if !manual && !uid.is_empty() && spec.get("selector").is_none_or(Value::is_null) {
        generate_selector(spec, &uid, &name);
    }
}

/// What `registry/batch/job/strategy.go` generates for a job without a manual selector.
pub(crate) fn generate_selector(spec: &mut Fields, uid: &str, name: &str) {
    let template = made(spec, "template");
    let labels = made(made(template, "metadata"), "labels");
    for (key, value) in
        [(CONTROLLER_UID, uid), (JOB_NAME, name), ("controller-uid", uid), ("job-name", name)]
    {
        labels.insert(key.to_owned(), value.into());
    }
    spec.insert("selector".to_owned(), json!({"matchLabels": {CONTROLLER_UID: uid}}));
}

/// `SetDefaults_CronJob`. The job template gets its defaults when a Job is created from it, its pod template here.
pub(crate) fn cron_job(value: &mut Value) {
    let spec = meta::child(value, "spec");
    set_default_text(spec, "concurrencyPolicy", "Allow");
    set_default(spec, "suspend", false);
    set_default(spec, "successfulJobsHistoryLimit", 3);
    set_default(spec, "failedJobsHistoryLimit", 1);
    let job = made(spec, "jobTemplate");
    let job_spec_fields = made(job, "spec");
    pod::template(made(job_spec_fields, "template"));
}

/// `ValidateJob` and `ValidateJobUpdate`, in part.
pub(crate) fn check_job(check: &mut Check<'_>) {
    for field in [
        "parallelism",
        "completions",
        "backoffLimit",
        "activeDeadlineSeconds",
        "ttlSecondsAfterFinished",
    ] {
        check.not_negative(&format!("spec.{field}"));
    }
    check.one_of("spec.completionMode", &["NonIndexed", "Indexed"]);
    pod::check_spec(check, "spec.template.spec");
    let policy = check.text("spec.template.spec.restartPolicy");
    if !matches!(policy, "OnFailure" | "Never") {
        let path = "spec.template.spec.restartPolicy";
        check.add(FieldError::required(path, "valid values: \"OnFailure\", \"Never\""));
    }
    if let Some(selector) = check.at("spec.selector") {
        let template = check.at("spec.template").cloned().unwrap_or_default();
        if !selects(Some(selector), &template) {
            let labels = template.pointer("/metadata/labels").cloned().unwrap_or_default();
            check.add(FieldError::invalid(
                "spec.template.metadata.labels",
                &labels,
                "`selector` does not match template `labels`",
            ));
        }
    }
    let suspended = |value: &Value| meta::at(value, "spec.suspend") == Some(&Value::Bool(true));
    check.immutable("spec.selector");
    check.immutable("spec.completionMode");
    // A job that has not started may still get other scheduling directives (suspended jobs' mutability).
    if check.old.is_some_and(|old| !suspended(old)) {
        check.immutable("spec.template");
    }
    if check.text("spec.completionMode") != "Indexed" {
        check.immutable("spec.completions");
    }
}

/// Longest name of a CronJob: eleven characters of the time are appended for its Jobs.
const MAX_CRON_JOB_NAME: usize = 52;

/// `ValidateCronJob`, in part.
pub(crate) fn check_cron_job(check: &mut Check<'_>) {
    check.one_of("spec.concurrencyPolicy", &["Allow", "Forbid", "Replace"]);
    check.required("spec.schedule");
    let schedule = check.text("spec.schedule");
    if !schedule.is_empty()
        && let Err(why) = schedule.parse::<Schedule>()
    {
        check.add(FieldError::invalid("spec.schedule", &schedule.into(), why));
    }
    let zone = check.at("spec.timeZone").filter(|zone| !zone.is_null());
    if let Some(zone) = zone
        && let Err(why) = cron::zone(Some(zone.as_str().unwrap_or("")))
    {
        check.add(FieldError::invalid("spec.timeZone", zone, why));
    }
    let name = meta::name(check.new);
    if check.old.is_none() && name.len() > MAX_CRON_JOB_NAME {
        let why = format!("must be no more than {MAX_CRON_JOB_NAME} characters");
        check.add(FieldError::invalid("metadata.name", &name.into(), why));
    }
    let path = "spec.jobTemplate.spec.template.spec.restartPolicy";
    let policies = ["OnFailure", "Never"];
    if !policies.contains(&check.text(path)) {
        check.add(FieldError::required(path, "valid values: \"OnFailure\", \"Never\""));
    }
    check.not_negative("spec.startingDeadlineSeconds");
    check.not_negative("spec.successfulJobsHistoryLimit");
    check.not_negative("spec.failedJobsHistoryLimit");
    pod::check_spec(check, "spec.jobTemplate.spec.template.spec");
}
