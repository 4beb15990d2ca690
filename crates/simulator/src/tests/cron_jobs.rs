//! CronJobs. The sandbox's clock starts at 2023-11-14 22:13:20 UTC.

use serde_json::{Value, json};

use super::sandbox::Sandbox;
use crate::index::fields::{list, text};
use crate::index::kind::Kind;

/// A CronJob whose Jobs run for `run_for`.
fn cron(run_for: &str, spec: Value) -> Value {
    let mut cron = json!({
        "kind": "CronJob",
        "metadata": {"name": "tick"},
        "spec": {
            "schedule": "*/5 * * * *",
            "jobTemplate": {"metadata": {"labels": {"app": "tick"}}, "spec": {"template": {
                "metadata": {"annotations": {"simulator.atoll.dev/run-for": run_for}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "image:1"}]},
            }}},
        },
    });
    json_patch::merge(&mut cron["spec"], &spec);
    cron
}

fn status(sandbox: &Sandbox, field: &str) -> Value {
    sandbox.field(Kind::CronJob, "tick", &format!("/status/{field}"))
}

fn jobs(sandbox: &Sandbox) -> Vec<String> {
    sandbox.all(Kind::Job).iter().map(|job| job.key.name.clone()).collect()
}

/// Seconds from the sandbox's start to the first quarter past the hour.
const QUARTER_PAST: u64 = 100;

#[test]
fn a_cron_job_fires_at_its_times_and_keeps_what_its_limits_say() {
    let mut sandbox = Sandbox::with_nodes(2).lagging(7);
    sandbox.create(cron("30s", json!({})));
    sandbox.advance(QUARTER_PAST - 1);
    assert_eq!(jobs(&sandbox), Vec::<String>::new(), "not before its time");
    sandbox.advance(2);
    assert_eq!(jobs(&sandbox), ["tick-28333335"], "named after the minute: 22:15");
    assert_eq!(status(&sandbox, "lastScheduleTime"), json!("2023-11-14T22:15:00Z"));
    assert_eq!(status(&sandbox, "active/0/name"), json!("tick-28333335"));
    let job = sandbox.all(Kind::Job)[0].clone();
    assert_eq!(job.label("app"), Some("tick"));
    let time = job.annotation("batch.kubernetes.io/cronjob-scheduled-timestamp");
    assert_eq!(time, Some("2023-11-14T22:15:00Z"));
    sandbox.advance(60);
    assert!(status(&sandbox, "active").is_null(), "it ended");
    let ended = sandbox.field(Kind::Job, "tick-28333335", "/status/completionTime");
    assert!(ended.is_string() && status(&sandbox, "lastSuccessfulTime") == ended, "{ended}");
    assert_eq!(sandbox.writes_after_restart(), Vec::<String>::new());
    sandbox.advance(30 * 60);
    let kept = ["tick-28333355", "tick-28333360", "tick-28333365"];
    assert_eq!(jobs(&sandbox), kept, "the last three that succeeded");
    sandbox.delete(Kind::CronJob, "tick");
    sandbox.advance(60 * 60);
    assert_eq!(jobs(&sandbox), Vec::<String>::new(), "Jobs go with their owner");
}

#[test]
fn concurrency_policy_says_what_becomes_of_a_job_that_still_runs() {
    for (policy, expected, active) in [
        ("Allow", vec!["tick-28333335", "tick-28333340"], 2),
        ("Forbid", vec!["tick-28333335"], 1),
        ("Replace", vec!["tick-28333340"], 1),
    ] {
        let mut sandbox = Sandbox::with_nodes(2);
        sandbox.create(cron("7m", json!({"concurrencyPolicy": policy})));
        sandbox.advance(QUARTER_PAST + 310);
        assert_eq!(jobs(&sandbox), expected, "{policy}");
        let listed = list(&sandbox.field(Kind::CronJob, "tick", "/status"), "/active").len();
        assert_eq!(listed, active, "{policy}");
    }
    // The skipped time is made up for when the running Job ends, unless it is too late by then.
    let mut sandbox = Sandbox::with_nodes(2);
    sandbox.create(cron("7m", json!({"concurrencyPolicy": "Forbid"})));
    sandbox.advance(QUARTER_PAST + 7 * 60 + 10);
    assert_eq!(jobs(&sandbox), ["tick-28333335", "tick-28333340"]);
    let mut sandbox = Sandbox::with_nodes(2);
    let late = json!({"concurrencyPolicy": "Forbid", "startingDeadlineSeconds": 30});
    sandbox.create(cron("7m", late));
    sandbox.advance(QUARTER_PAST + 7 * 60 + 10);
    assert_eq!(jobs(&sandbox), ["tick-28333335"]);
}

#[test]
fn a_suspended_cron_job_waits_and_then_starts_the_last_time_that_it_missed() {
    let mut sandbox = Sandbox::with_nodes(2);
    sandbox.create(cron("30s", json!({"suspend": true})));
    sandbox.advance(3600);
    assert_eq!(jobs(&sandbox), Vec::<String>::new());
    sandbox.patch(Kind::CronJob, "tick", json!({"spec": {"suspend": false}}));
    sandbox.advance(1);
    assert_eq!(jobs(&sandbox), ["tick-28333390"], "23:10, and none of those before");
    sandbox.patch(
        Kind::CronJob,
        "tick",
        json!({"spec": {"suspend": true, "startingDeadlineSeconds": 10}}),
    );
    sandbox.advance(3600);
    sandbox.patch(Kind::CronJob, "tick", json!({"spec": {"suspend": false}}));
    sandbox.advance(1);
    assert_eq!(jobs(&sandbox).len(), 1, "00:10 is more than 10 s ago");
}

#[test]
fn a_cron_job_keeps_the_failures_that_its_limit_says_and_its_time_zone() {
    let mut sandbox = Sandbox::with_nodes(2);
    let mut failing = cron("1s", json!({"schedule": "15 * * * *", "timeZone": "Asia/Kolkata"}));
    failing["spec"]["jobTemplate"]["spec"]["backoffLimit"] = json!(0);
    let annotations = json!({"simulator.atoll.dev/fail": "exit"});
    failing["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["annotations"] = annotations;
    sandbox.create(failing);
    // A quarter past the hour in India is a quarter to in UTC.
    sandbox.advance(3 * 3600);
    let failed = sandbox.all(Kind::Job);
    assert_eq!(failed.len(), 1, "only the last failure is kept");
    let time = failed[0].annotation("batch.kubernetes.io/cronjob-scheduled-timestamp").unwrap();
    assert_eq!(time, "2023-11-15T06:15:00+05:30");
    let last = sandbox.field(Kind::CronJob, "tick", "/status");
    assert_eq!(text(&last, "/lastScheduleTime"), Some("2023-11-15T00:45:00Z"));
}
