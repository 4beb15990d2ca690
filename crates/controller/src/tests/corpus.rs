//! Bugs that other federations had, as scenarios. Each passes, and fails with the bug brought back.
//!
//! | what went wrong elsewhere | mutant | scenario |
//! | --- | --- | --- |
//! | Karmada #7302: an eviction task was lost when its binding was updated at the same time | `TasksLostByUpkeep` | [`an_eviction_task_outlives_other_updates_of_its_binding`] |
//! | Karmada #7184: the grace period of one eviction task held for the next ones too | `GraceLeaks` | [`each_eviction_task_has_its_own_grace_period`] |
//! | Karmada 1.14: no valid cluster, and a division by zero | none: no division by a value that may be zero | [`where_no_cluster_fits_the_workload_waits_and_others_go_on`] |
//! | Karmada #7340: a transient failure was retried only after minutes | `RetryAfterMinutes` | [`what_failed_in_passing_is_tried_again_within_seconds`] |
//! | Karmada #7426: credentials that failed for a moment made a member not ready | `SickAtOnce` | [`an_api_that_fails_for_a_moment_makes_nobody_unready`] |
//! | Karmada #6683: one informer that failed stopped all others | `OneBadKindStopsAll` | [`a_kind_that_cannot_be_read_stops_no_other`] |
//! | Karmada #7226: FullyApplied referred to an earlier set of clusters | `AppliedByThoseWhoAnswered` | [`fully_applied_speaks_of_those_that_were_decided_on`] |
//! | Karmada #2769: too many replicas once a lost member was back | `LostAreNotTold` | [`what_replaced_a_lost_copy_does_not_stay_beside_it`] |
//! | Karmada #3283: a cluster was a target and being evicted at the same time | `TargetAndLeaving` | [`a_cluster_that_keeps_a_share_does_not_leave_as_well`] |
//!
//! The others need a whole federation: `simulator/tests/world/{corpus,etcd}.rs`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use atoll_api::Backoff;
use http::Method;
use serde_json::json;
use tokio::time::Instant;

use super::harness::{BINDING, DEPLOYMENT, Federation, SOON, Setup};
use crate::members::{HealthState, HealthTimes, HeartbeatTracker};
use crate::mutants::{self, Mutant};
use crate::testing::eventually;
use crate::testing::hub::{How, Hub};

/// Runs a scenario on a runtime of this thread, with paused time.
fn run<F: Future<Output = ()>>(scenario: fn() -> F) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().unwrap().block_on(scenario());
}

/// The scenario passes, and fails with the bug.
fn tells<F: Future<Output = ()>>(bug: Mutant, scenario: fn() -> F) {
    run(scenario);
    let with_bug = || mutants::with(Some(bug), || run(scenario));
    assert!(catch_unwind(AssertUnwindSafe(with_bug)).is_err(), "{bug:?} is not caught");
}

async fn place(federation: &Federation, clusters: &[&str], type_: &str) {
    let placement = json!({
        "clusterAffinity": {"clusterNames": clusters},
        "replicaScheduling": {"replicaSchedulingType": type_},
    });
    federation.hub.policy("all", DEPLOYMENT, placement).await;
}

/// A federation; its hub or its settings have the bug that is active, if it is one of theirs.
async fn start() -> Federation {
    let minutes = Duration::from_secs(300);
    let retry =
        mutants::is(Mutant::RetryAfterMinutes).then_some(Backoff { first: minutes, most: minutes });
    let setup = Setup { retry, ..Setup::default() };
    let federation = Federation::start_on(Hub::open().await, setup).await;
    if mutants::is(Mutant::TasksLostByUpkeep) {
        federation.spy.rewrite(|path, patch| {
            let upkeep = patch.pointer("/spec/decision").is_none();
            if upkeep && path.contains("resourcebindings") && !path.ends_with("/status") {
                patch["spec"]["gracefulEvictionTasks"] = json!(null);
            }
        });
    }
    federation
}

async fn on(clusters: &[&str], type_: &str, replicas: i64) -> Federation {
    let federation = start().await;
    place(&federation, clusters, type_).await;
    federation.hub.deployment("web", replicas).await;
    federation.until(BINDING, "web-deployment", "/metadata/name", json!("web-deployment")).await;
    federation
}

async fn until_no_tasks(federation: &Federation) {
    eventually("no eviction task is left", Duration::from_secs(900), || async {
        let binding = federation.hub.binding("web-deployment").await;
        binding["spec"]["gracefulEvictionTasks"].as_array().is_none_or(Vec::is_empty)
    })
    .await;
}

#[test]
fn an_eviction_task_outlives_other_updates_of_its_binding() {
    tells(Mutant::TasksLostByUpkeep, || async {
        let federation = on(&["m1"], "Divided", 4).await;
        federation.until_replicas(&[("m1", 4)]).await;
        federation.members.make_sick("m2", true);
        place(&federation, &["m2"], "Divided").await;
        federation.until(BINDING, "web-deployment", "/spec/clusters/0/name", json!("m2")).await;
        // The policy change moves no replica, so the binding is updated without a decision.
        let spec =
            json!({"metadata": {"name": "all"}, "spec": {"conflictResolution": "Overwrite"}});
        let policy = ("policy.atoll.dev/v1alpha1", "PropagationPolicy");
        federation.hub.apply(policy.0, policy.1, Some("shop"), spec).await;
        let path = "/spec/conflictResolution";
        federation.until(BINDING, "web-deployment", path, json!("Overwrite")).await;
        tokio::time::sleep(SOON).await;
        assert_eq!(
            federation.members.replicas().get("m1"),
            Some(&4),
            "the old copy is all there is"
        );
        federation.members.make_sick("m2", false);
        federation.until_replicas(&[("m2", 4)]).await;
    });
}

#[test]
fn each_eviction_task_has_its_own_grace_period() {
    tells(Mutant::GraceLeaks, || async {
        let federation = on(&["m1"], "Divided", 4).await;
        federation.until_replicas(&[("m1", 4)]).await;
        for name in ["m2", "m3"] {
            federation.members.make_sick(name, true);
        }
        // It leaves twice for a place where it stays unhealthy: first with a grace period of one minute, then of ten.
        for (to, failover) in
            [("m2", json!({"cluster": {"gracePeriodSeconds": 60}})), ("m3", json!(null))]
        {
            let spec = json!({
                "resourceSelectors": [{"apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1}],
                "placement": {
                    "clusterAffinity": {"clusterNames": [to]},
                    "replicaScheduling": {"replicaSchedulingType": "Divided"},
                },
                "failover": failover,
            });
            let policy = json!({"metadata": {"name": "all"}, "spec": spec});
            let kind = ("policy.atoll.dev/v1alpha1", "PropagationPolicy");
            federation.hub.apply(kind.0, kind.1, Some("shop"), policy).await;
            federation.until(BINDING, "web-deployment", "/spec/clusters/0/name", json!(to)).await;
        }
        federation.until_replicas(&[("m1", 4), ("m2", 4), ("m3", 4)]).await;
        federation.until_replicas(&[("m2", 4), ("m3", 4)]).await;
        let began = Instant::now();
        federation.until_replicas(&[("m3", 4)]).await;
        let longer = began.elapsed();
        assert!((500..600).contains(&longer.as_secs()), "{longer:?} after the first");
    });
}

#[test]
fn fully_applied_speaks_of_those_that_were_decided_on() {
    tells(Mutant::AppliedByThoseWhoAnswered, || async {
        let federation = on(&["m1"], "Duplicated", 2).await;
        federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(2)).await;
        // The third has never reported on it, and stays silent.
        federation.members.silence("m3");
        place(&federation, &["m1", "m3"], "Duplicated").await;
        federation.until(BINDING, "web-deployment", "/spec/clusters/1/name", json!("m3")).await;
        tokio::time::sleep(SOON).await;
        let binding = federation.hub.binding("web-deployment").await;
        let conditions = binding["status"]["conditions"].as_array().unwrap();
        let applied = conditions.iter().find(|held| held["type"] == "FullyApplied").unwrap();
        assert_ne!(applied["status"], "True", "{applied}");
        federation.members.bring_back("m3").await;
    });
}

#[test]
fn what_failed_in_passing_is_tried_again_within_seconds() {
    tells(Mutant::RetryAfterMinutes, || async {
        let federation = on(&["m1", "m2"], "Divided", 4).await;
        federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(4)).await;
        // No other write happens now that could fail in its place.
        tokio::time::sleep(SOON).await;
        federation.spy.fail_next(Method::PATCH, "resourcebindings", How::LoseRequest);
        federation.hub.deployment("web", 8).await;
        let started = Instant::now();
        federation.until_replicas(&[("m1", 4), ("m2", 4)]).await;
        assert!(started.elapsed() <= Duration::from_secs(10), "{:?}", started.elapsed());
    });
}

#[test]
fn what_replaced_a_lost_copy_does_not_stay_beside_it() {
    tells(Mutant::LostAreNotTold, || async {
        let federation = on(&["m1", "m2"], "Divided", 4).await;
        federation.until_replicas(&[("m1", 2), ("m2", 2)]).await;
        federation.members.lose("m1").await;
        let taints = json!([{"key": "cluster.atoll.dev/unreachable", "effect": "NoExecute",
            "timeAdded": "2026-01-01T00:00:00Z"}]);
        let lost = json!({"metadata": {"name": "m1"}, "spec": {"taints": taints}});
        federation.hub.apply("cluster.atoll.dev/v1alpha1", "Cluster", None, lost).await;
        federation.until_replicas(&[("m1", 2), ("m2", 4)]).await;
        federation.members.bring_back("m1").await;
        federation.until_replicas(&[("m2", 4)]).await;
    });
}

#[test]
fn a_cluster_that_keeps_a_share_does_not_leave_as_well() {
    tells(Mutant::TargetAndLeaving, || async {
        let federation = on(&["m1", "m2"], "Duplicated", 4).await;
        federation.until_replicas(&[("m1", 4), ("m2", 4)]).await;
        federation.members.lose("m1").await;
        place(&federation, &["m1", "m2"], "Divided").await;
        federation.until(BINDING, "web-deployment", "/spec/clusters/0/replicas", json!(2)).await;
        federation.members.bring_back("m1").await;
        until_no_tasks(&federation).await;
        federation.until_replicas(&[("m1", 2), ("m2", 2)]).await;
    });
}

#[test]
fn a_kind_that_cannot_be_read_stops_no_other() {
    tells(Mutant::OneBadKindStopsAll, || async {
        let federation = Federation::start().await;
        federation.hub.policy("widgets", ("example.com/v1", "Widget"), json!({})).await;
        place(&federation, &["m1"], "Divided").await;
        tokio::time::sleep(SOON).await;
        federation.hub.deployment("web", 3).await;
        federation.until_replicas(&[("m1", 3)]).await;
    });
}

#[test]
fn an_api_that_fails_for_a_moment_makes_nobody_unready() {
    tells(Mutant::SickAtOnce, || async {
        let (start, times) = (Instant::now(), HealthTimes::default());
        let bug = mutants::is(Mutant::SickAtOnce);
        let unhealthy_after = if bug { Duration::ZERO } else { times.silent_after };
        let mut member = HeartbeatTracker::new(start, true);
        member.started(start);
        member.api(start, true, "");
        let at = |seconds| start + Duration::from_secs(seconds);
        member.api(at(1), false, "the credentials are not valid any more");
        for second in 1..10 {
            member.frame(at(second));
            member.judge_with(at(second), &times, unhealthy_after);
            assert_eq!(member.health(), HealthState::Healthy, "after {second} s");
        }
        member.api(at(10), true, "");
        member.frame(at(30));
        member.judge_with(at(30), &times, unhealthy_after);
        assert_eq!(member.health(), HealthState::Healthy);
    });
}

/// Without a mutant: no code here divides.
#[tokio::test(start_paused = true)]
async fn where_no_cluster_fits_the_workload_waits_and_others_go_on() {
    let federation = on(&["nobody"], "Divided", 3).await;
    let unscheduled = || async {
        let binding = federation.hub.binding("web-deployment").await;
        let conditions = binding["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|held| held["type"] == "Scheduled" && held["status"] == "False")
    };
    eventually("it says that it has no place", SOON, unscheduled).await;
    place(&federation, &["m1"], "Divided").await;
    federation.until_replicas(&[("m1", 3)]).await;
}
