//! Jobs.

use serde_json::{Value, json};

use super::sandbox::{Dice, Sandbox};
use crate::index::kind::Kind;

fn job(spec: Value) -> Value {
    let mut job = json!({
        "kind": "Job",
        "metadata": {"name": "work"},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "image:1"}],
        }}},
    });
    json_patch::merge(&mut job["spec"], &spec);
    job
}

fn annotated(spec: Value, annotations: Value) -> Value {
    let mut job = job(spec);
    job["spec"]["template"]["metadata"] = json!({"annotations": annotations});
    job
}

fn status(sandbox: &Sandbox, field: &str) -> Value {
    sandbox.field(Kind::Job, "work", &format!("/status/{field}"))
}

fn is(sandbox: &Sandbox, type_: &str) -> bool {
    sandbox.condition(Kind::Job, "work", type_).is_some_and(|(status, _)| status == "True")
}

#[test]
fn a_job_completes_and_counts_every_pod_once() {
    for seed in 0..30 {
        println!("seed {seed}");
        let mut dice = Dice::new(seed);
        let completions = dice.below(6) + 1;
        let parallelism = dice.below(4) + 1;
        let mut sandbox = Sandbox::with_nodes(2).lagging(seed);
        sandbox.check_each_write(move |sandbox| {
            assert!(sandbox.active().len() as u64 <= parallelism);
            assert!(status(sandbox, "succeeded").as_u64().unwrap_or(0) <= completions);
        });
        sandbox.create(job(json!({"completions": completions, "parallelism": parallelism})));
        for _ in 0..3 {
            sandbox.advance(dice.below(8));
            sandbox.writes_after_restart();
        }
        sandbox.until(200, "complete", |s| is(s, "Complete"));
        sandbox.advance(5);
        assert_eq!(status(&sandbox, "succeeded"), json!(completions), "seed {seed}");
        assert_eq!(status(&sandbox, "uncountedTerminatedPods"), json!({}));
        assert!(
            status(&sandbox, "active").is_null() && status(&sandbox, "completionTime").is_string()
        );
        assert!(is(&sandbox, "SuccessCriteriaMet"));
        assert_eq!(sandbox.pods().len() as u64, completions, "finished Pods stay");
        assert!(sandbox.pods().iter().all(|pod| pod.meta.finalizers.iter().flatten().count() == 0));
        assert_eq!(sandbox.writes_after_restart(), Vec::<String>::new());
    }
}

#[test]
fn a_job_that_fails_too_often_gives_up_after_growing_waits() {
    let mut sandbox = Sandbox::with_nodes(2);
    sandbox
        .create(annotated(json!({"backoffLimit": 2}), json!({"simulator.atoll.dev/fail": "exit"})));
    sandbox.advance(5);
    assert_eq!((status(&sandbox, "failed"), sandbox.pods().len()), (json!(1), 1));
    sandbox.advance(10);
    assert_eq!((status(&sandbox, "failed"), sandbox.pods().len()), (json!(2), 2));
    sandbox.advance(10);
    assert_eq!(sandbox.pods().len(), 2, "the second wait is 20 s");
    sandbox.until(30, "failed", |s| is(s, "Failed"));
    assert_eq!(status(&sandbox, "failed"), json!(3));
    let reason = sandbox.condition(Kind::Job, "work", "Failed").unwrap().1;
    assert_eq!(reason, "BackoffLimitExceeded");
    assert_eq!(sandbox.writes_after_restart(), Vec::<String>::new());
}

#[test]
fn a_suspended_job_has_no_pods_and_no_failures() {
    let mut sandbox = Sandbox::with_nodes(2);
    sandbox.create(annotated(
        json!({"parallelism": 2, "completions": 2, "suspend": true}),
        json!({"simulator.atoll.dev/run-for": "60s"}),
    ));
    sandbox.advance(5);
    assert!(sandbox.pods().is_empty() && is(&sandbox, "Suspended"));
    sandbox.patch(Kind::Job, "work", json!({"spec": {"suspend": false}}));
    sandbox.advance(10);
    assert_eq!((sandbox.ready(), status(&sandbox, "ready")), (2, json!(2)));
    sandbox.patch(Kind::Job, "work", json!({"spec": {"suspend": true}}));
    sandbox.advance(10);
    assert!(sandbox.pods().is_empty() && status(&sandbox, "failed").is_null());
    sandbox.patch(Kind::Job, "work", json!({"spec": {"suspend": false}}));
    sandbox.until(120, "complete", |s| is(s, "Complete"));
}

#[test]
fn an_indexed_job_runs_each_index_to_success() {
    let mut sandbox = Sandbox::with_nodes(2).lagging(4);
    sandbox.create(job(json!({"completionMode": "Indexed", "completions": 5, "parallelism": 2})));
    sandbox.advance(3);
    // A Pod that is deleted while it runs failed; its index is run again.
    let victim = sandbox.active()[0].key.name.clone();
    sandbox.delete(Kind::Pod, &victim);
    sandbox.until(200, "complete", |s| is(s, "Complete"));
    assert_eq!(status(&sandbox, "completedIndexes"), json!("0-4"));
    assert_eq!((status(&sandbox, "succeeded"), status(&sandbox, "failed")), (json!(5), json!(1)));
    let env = sandbox.pods()[0].data.pointer("/spec/containers/0/env/0/name").cloned();
    assert_eq!(env, Some(json!("JOB_COMPLETION_INDEX")));
}

#[test]
fn deadline_and_time_to_live_are_kept() {
    let mut sandbox = Sandbox::with_nodes(2);
    sandbox.create(annotated(
        json!({"activeDeadlineSeconds": 30, "ttlSecondsAfterFinished": 100}),
        json!({"simulator.atoll.dev/run-for": "1h"}),
    ));
    sandbox.advance(29);
    assert_eq!(status(&sandbox, "active"), json!(1));
    sandbox.until(10, "failed", |s| is(s, "Failed"));
    assert_eq!(sandbox.condition(Kind::Job, "work", "Failed").unwrap().1, "DeadlineExceeded");
    assert!(sandbox.pods().is_empty());
    sandbox.advance(110);
    assert!(sandbox.get(Kind::Job, "work").is_none());
}
