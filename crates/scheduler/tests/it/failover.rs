//! Application failover, replicas that fit nowhere, and recovery.

use atoll_api::binding::{Outcome, Trigger};
use atoll_scheduler::{
    Profiles, RecoverAfter, Report, Request, Scheduler, TableChange, WakeCondition,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};

use crate::support::*;

fn aggregated() -> Value {
    json!({"replicaScheduling": {
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
    }})
}

fn at(text: &str) -> Timestamp {
    format!("2026-08-21T{text}Z").parse().unwrap()
}

fn unhealthy(since: &str) -> Report {
    Report {
        healthy: Some(false),
        unhealthy_since: Some(at(since)),
        status: Some(json!({"jobStatus": {"jobID": "j-17"}, "replicas": 2})),
        ..Report::default()
    }
}

fn with_rules(mut request: Request, rules: Value) -> Request {
    request.failover = Some(serde_json::from_value(json!({"application": rules})).unwrap());
    request
}

fn first_of(shares: &std::collections::BTreeMap<String, i64>) -> String {
    shares.keys().next().unwrap().clone()
}

#[test]
fn an_application_that_stays_unhealthy_leaves_and_takes_its_state_along() {
    let mut world = World::new(["a", "b"].map(|name| cluster(name, &[], Some(10))));
    let rules = json!({
        "decisionConditions": {"tolerationSeconds": 120}, "purgeMode": "Directly",
        "statePreservation": {"rules": [
            {"aliasLabelName": "job", "jsonPath": "{.jobStatus.jobID}"},
            {"aliasLabelName": "other", "jsonPath": "{.nothing}"},
        ]},
    });
    let mut request = with_rules(workload("web", 2, aggregated()), rules);
    let here = first_of(&shares(&world.step(&mut request)));
    let there = if here == "a" { "b" } else { "a" };
    request.reports.insert(here.as_str().into(), unhealthy("12:00:00"));
    request.now = at("12:01:59");
    let decision = world.step(&mut request);
    assert_eq!(decision.trigger(), Trigger::Avoid, "tolerated");
    let due = decision.waits_for().iter().find_map(WakeCondition::due);
    assert_eq!(due, Some(at("12:02:00")), "it comes back by itself");

    request.now = at("12:02:00");
    let decision = world.step(&mut request);
    assert_eq!(decision.trigger(), Trigger::ApplicationFailure);
    assert_eq!(shares(&decision), map(&[(there, 2)]));
    let task = &decision.evictions()[0];
    assert_eq!((&task.from_cluster, task.reason), (&here, Trigger::ApplicationFailure));
    assert!(!task.keep, "Directly, by the rules for applications");
    let state = decision.preserved().unwrap();
    assert_eq!((&state.from_cluster, &state.clusters[..]), (&here, &[there.to_owned()][..]));
    assert_eq!(state.labels, [("job".to_owned(), "j-17".to_owned())].into());
    assert!(decision.notes.iter().any(|note| note.contains("other")), "{:?}", decision.notes);

    // The preserved state stays with the copy through later decisions.
    let decision = world.scale(&mut request, 3);
    assert_eq!(decision.preserved().map(|state| state.labels.len()), Some(1));
    assert_eq!(shares(&decision), map(&[(there, 3)]), "not back while the task stands");
}

#[test]
fn what_leaves_a_failed_cluster_takes_its_state_along() {
    let mut world = World::new(["a", "b"].map(|name| cluster(name, &[], Some(10))));
    let mut request = workload("web", 2, aggregated());
    let rules = json!({"cluster": {"statePreservation": {"rules": [
        {"aliasLabelName": "job", "jsonPath": "{.jobStatus.jobID}"},
        {"aliasLabelName": "other", "jsonPath": "{.nothing}"},
    ]}}});
    request.failover = Some(serde_json::from_value(rules).unwrap());
    let here = first_of(&shares(&world.step(&mut request)));
    let there = if here == "a" { "b" } else { "a" };
    // A lost member reports nothing new; its last status is known.
    let last = Report { status: unhealthy("12:00:00").status, ..Report::default() };
    request.reports.insert(here.as_str().into(), last);
    world.taint(&here, "NoExecute");
    let decision = world.step(&mut request);
    assert_eq!(decision.trigger(), Trigger::Failover);
    assert_eq!(shares(&decision), map(&[(there, 2)]));
    let state = decision.preserved().unwrap();
    assert_eq!((&state.from_cluster, &state.clusters[..]), (&here, &[there.to_owned()][..]));
    assert_eq!(state.labels, [("job".to_owned(), "j-17".to_owned())].into());
    assert!(decision.notes.iter().any(|note| note.contains("other")), "{:?}", decision.notes);
}

#[test]
fn an_application_leaves_by_the_purge_mode_and_grace_period_of_its_own_rules() {
    for (mode, keep, deadline) in [
        ("Gracefully", true, Some(at("12:07:00"))),
        ("Directly", false, None),
        ("Never", true, None),
    ] {
        let mut world = World::new(["a", "b"].map(|name| cluster(name, &[], Some(10))));
        let rules = json!({"purgeMode": mode, "gracePeriodSeconds": 120});
        let mut request = with_rules(workload("web", 2, aggregated()), rules);
        // The rules for failed clusters do not apply to it.
        request.failover.as_mut().unwrap().cluster =
            Some(serde_json::from_value(json!({"purgeMode": "Directly"})).unwrap());
        let here = first_of(&shares(&world.step(&mut request)));
        request.reports.insert(here.as_str().into(), unhealthy("12:00:00"));
        request.now = at("12:05:00");
        let decision = world.step(&mut request);
        assert_eq!(decision.trigger(), Trigger::ApplicationFailure);
        let task = &decision.evictions()[0];
        assert_eq!((&task.from_cluster, task.keep), (&here, keep), "{mode}");
        assert_eq!(task.deadline.as_ref().map(|deadline| deadline.0), deadline, "{mode}");
    }
}

#[test]
fn without_rules_or_without_a_report_an_application_stays() {
    let mut world = World::new(["a", "b"].map(|name| cluster(name, &[], Some(10))));
    let mut request = workload("web", 2, aggregated());
    let here = first_of(&shares(&world.step(&mut request)));
    request.now = at("13:00:00");
    request.reports.insert(here.as_str().into(), unhealthy("12:00:00"));
    assert_eq!(world.decide(&request).trigger(), Trigger::Avoid, "nobody asked for it");
    let mut request = with_rules(request, json!({}));
    assert_eq!(world.decide(&request).trigger(), Trigger::ApplicationFailure, "300 s");
    request.reports.get_mut(here.as_str()).unwrap().healthy = None;
    assert_eq!(world.decide(&request).trigger(), Trigger::Avoid, "nobody can say");
}

#[test]
fn what_nobody_can_take_stays_and_says_so() {
    for lost in [false, true] {
        let mut world = World::new([cluster("a", &[], Some(4)), cluster("b", &[], Some(0))]);
        let mut request = workload("web", 4, aggregated());
        assert_eq!(shares(&world.step(&mut request)), map(&[("a", 4)]));
        world.taint("a", "NoExecute");
        if lost {
            world.lose_session("a");
        }
        let decision = world.step(&mut request);
        assert_eq!(decision.outcome(), Outcome::FailoverInfeasible, "lost {lost}");
        assert_eq!(shares(&decision), map(&[("a", 4)]));
        assert!(decision.evictions().is_empty());
        let said = decision.record(1).reason.unwrap();
        assert!(said.contains("4 replicas cannot leave a: "), "{said}");
        assert_eq!(world.step(&mut request).trigger(), Trigger::Avoid, "said once");
        // Scaling up: the new replicas are pending, and the running ones stay.
        let decision = world.scale(&mut request, 5);
        assert_eq!((shares(&decision), decision.pending_replicas()), (map(&[("a", 4)]), 1));
        world.room("b", 9);
        assert_eq!(shares(&world.step(&mut request)), map(&[("b", 5)]));
    }
}

#[test]
fn a_copy_without_a_full_replacement_outlives_its_deadline() {
    let mut world = World::new([cluster("a", &[], Some(4)), cluster("b", &[], Some(1))]);
    let mut request = workload("web", 4, aggregated());
    world.step(&mut request);
    world.taint("a", "NoExecute");
    let decision = world.step(&mut request);
    assert_eq!((shares(&decision), decision.pending_replicas()), (map(&[("b", 1)]), 3));
    assert!(decision.evictions()[0].stands_in(3));
    assert_eq!(decision.evictions()[0].unplaced, 3);
    request.now = at("13:00:00");
    assert_eq!(world.step(&mut request).evictions()[0].replicas, 3, "three have no place");
    assert_eq!(world.step(&mut request).trigger(), Trigger::Avoid, "and stay");
    world.room("b", 9);
    assert_eq!(shares(&world.step(&mut request)), map(&[("b", 4)]));
    assert_eq!(world.decide(&request).trigger(), Trigger::EvictionDone, "now it may go");
}

#[test]
fn replicas_that_waited_before_anything_left_keep_no_copy() {
    let labels = |domain| [("domain", domain)];
    let mut world = World::new(["a", "b"].map(|name| cluster(name, &labels("host"), Some(9))));
    world.policy(json!({
        "topologyKey": "domain", "labelSelector": {"matchLabels": {"app": "web"}},
        "allocationPolicy": [{"name": "host", "replicas": 3}],
        "allocationType": "Required", "allocationMethod": "Fill",
    }));
    let mut request = steered("web", 5);
    let decision = world.step(&mut request);
    assert_eq!((placed(&decision), decision.pending_replicas()), (3, 2), "the target is 3");
    let here = first_of(&shares(&decision));
    world.taint(&here, "NoExecute");
    let decision = world.step(&mut request);
    let task = &decision.evictions()[0];
    assert_eq!((placed(&decision), &task.from_cluster, task.unplaced), (3, &here, 0));
    for (name, ready) in shares(&decision) {
        let report = Report { healthy: Some(true), ready, ..Report::default() };
        request.reports.insert(name.into(), report);
    }
    assert!(world.step(&mut request).evictions().is_empty());
}

#[test]
fn a_scale_while_a_target_fails_makes_before_it_breaks() {
    let mut world = World::new(["a", "b"].map(|name| cluster(name, &[], Some(9))));
    let mut placement = aggregated();
    placement["rescheduleOn"] = json!(["ReplicasChange"]);
    let mut request = workload("web", 2, placement);
    let here = first_of(&shares(&world.step(&mut request)));
    world.taint(&here, "NoExecute");
    let decision = world.scale(&mut request, 3);
    assert_eq!(decision.trigger(), Trigger::Scale);
    assert!(!shares(&decision).contains_key(&here));
    let task = &decision.evictions()[0];
    assert_eq!((&task.from_cluster, task.replicas, task.keep), (&here, 2, true));
}

#[test]
fn nothing_moves_back_to_a_member_that_was_ready_for_a_moment_only() {
    let ready = |since: &str| -> Condition {
        serde_json::from_value(json!({"type": "Ready", "status": "True", "reason": "MemberReady",
            "message": "", "lastTransitionTime": format!("2026-08-21T{since}Z")}))
        .unwrap()
    };
    let mut world = World::new([cluster("a", &[], Some(9)), cluster("b", &[], Some(9))]);
    let placement = json!({
        "clusterAffinities": [
            {"affinityName": "first", "clusterNames": ["a"]},
            {"affinityName": "second", "clusterNames": ["b"]},
        ],
        "replicaScheduling": aggregated()["replicaScheduling"],
        "rescheduleOn": ["ClusterFailure", "Recovery"],
    });
    let mut request = workload("web", 2, placement);
    assert_eq!(shares(&world.step(&mut request)), map(&[("a", 2)]));
    world.taint("a", "NoExecute");
    world.lose_session("a");
    assert_eq!(shares(&world.step(&mut request)), map(&[("b", 2)]));
    request.previous.as_mut().unwrap().eviction_tasks.clear();
    // Its taint is removed before it becomes Ready.
    world.edit("a", |cluster| {
        cluster.spec.taints.clear();
        let mut not_yet = ready("12:00:00");
        not_yet.status = "Unknown".into();
        cluster.status.as_mut().unwrap().conditions = vec![not_yet];
    });
    let decision = world.step(&mut request);
    assert_eq!(decision.trigger(), Trigger::Avoid, "not Ready yet");
    assert!(
        decision.waits_for().contains(&WakeCondition::TaintsChange),
        "{:?}",
        decision.waits_for()
    );
    // It flaps: back at 12:10, 12:14 and 12:18, each time briefly.
    for minute in [10, 14, 18] {
        world.edit("a", |cluster| {
            cluster.spec.taints.clear();
            let conditions = &mut cluster.status.as_mut().unwrap().conditions;
            conditions.clear();
            conditions.push(ready(&format!("12:{minute}:00")));
        });
        request.now = at(&format!("12:{}:59", minute + 3));
        let decision = world.step(&mut request);
        assert_eq!(decision.trigger(), Trigger::Avoid, "{minute}");
        let due = decision.waits_for().iter().find_map(WakeCondition::due);
        assert_eq!(due, Some(at(&format!("12:{}:00", minute + 5))));
    }
    // A shorter delay applies, and a delay of zero recovers at once.
    for (seconds, trigger) in
        [(240, Trigger::Avoid), (239, Trigger::Recover), (0, Trigger::Recover)]
    {
        let mut sooner = request.clone();
        sooner.recover_after = RecoverAfter::seconds(seconds);
        assert_eq!(world.decide(&sooner).trigger(), trigger, "{seconds} s");
    }
    request.now = at("12:23:00");
    let decision = world.step(&mut request);
    assert_eq!(decision.trigger(), Trigger::Recover);
    assert_eq!(shares(&decision), map(&[("a", 2)]));
    // Without permission to recover, it stays where it went.
}

const SPLIT: [(&str, &str); 3] = [("a", "member"), ("b", "host"), ("c", "host")];

fn required(world: &mut World) {
    world.policy(json!({
        "topologyKey": "domain", "labelSelector": {"matchLabels": {"app": "web"}},
        "allocationPolicy": [{"name": "member", "replicas": 1}, {"name": "host", "replicas": 3}],
        "allocationType": "Required", "allocationMethod": "Fill",
    }));
}

fn all_healthy(request: &mut Request, decision: &atoll_scheduler::Decision) {
    request.reports.clear();
    for (name, ready) in shares(decision) {
        let report = Report { healthy: Some(true), ready, ..Report::default() };
        request.reports.insert(name.into(), report);
    }
}

/// Six replicas under a policy that places four: two stay pending. Draining one host while the other is cordoned leaves
/// three more without a place. When these were placed, the two pending ones used to keep the old copy forever: six
/// replicas ran where three were requested.
#[test]
fn a_drain_leaks_no_copy_when_replicas_wait_for_another_reason() {
    let mut world =
        World::new(SPLIT.map(|(name, domain)| cluster(name, &[("domain", domain)], Some(9))));
    required(&mut world);
    world.taint("b", "NoSchedule");
    let mut request = steered("web", 6);
    let decision = world.step(&mut request);
    assert_eq!(shares(&decision), map(&[("a", 1), ("c", 3)]));
    assert_eq!(decision.pending_replicas(), 2);
    world.taint("c", "NoExecute");
    let decision = world.step(&mut request);
    assert_eq!((decision.pending_replicas(), decision.evictions()[0].unplaced), (5, 3));
    world.edit("b", |cluster| cluster.spec.taints.clear());
    let decision = world.step(&mut request);
    assert_eq!(shares(&decision), map(&[("a", 1), ("b", 3)]));
    assert_eq!((decision.pending_replicas(), decision.evictions()[0].unplaced), (2, 0));
    let mut late = request.clone();
    late.now = at("13:00:00");
    assert!(world.decide(&late).evictions().is_empty(), "its deadline ends it");
    all_healthy(&mut request, &decision);
    assert!(world.step(&mut request).evictions().is_empty(), "its replacements are healthy");
}

#[test]
fn a_copy_shrinks_to_the_replicas_that_have_no_place_elsewhere() {
    let mut world = World::new([cluster("a", &[], Some(4)), cluster("b", &[], Some(1))]);
    let mut request = workload("web", 4, aggregated());
    world.step(&mut request);
    world.taint("a", "NoExecute");
    let decision = world.step(&mut request);
    assert_eq!((shares(&decision), decision.pending_replicas()), (map(&[("b", 1)]), 3));
    all_healthy(&mut request, &decision);
    let decision = world.step(&mut request);
    let task = &decision.evictions()[0];
    assert_eq!((task.replicas, task.unplaced), (3, 3), "one of the four has its replacement");
    assert_eq!(world.step(&mut request).trigger(), Trigger::Avoid, "three have none");
    world.room("b", 2);
    let decision = world.step(&mut request);
    assert_eq!((shares(&decision), decision.evictions()[0].unplaced), (map(&[("b", 2)]), 2));
    world.room("b", 9);
    let decision = world.step(&mut request);
    assert_eq!((shares(&decision), decision.evictions()[0].unplaced), (map(&[("b", 4)]), 0));
    request.now = at("13:00:00");
    assert!(world.step(&mut request).evictions().is_empty());
}

/// Scaling up does not place replicas that left; scaling down removes pending replicas first.
#[test]
fn an_old_copy_counts_only_the_replicas_that_left_it() {
    let mut world =
        World::new(SPLIT.map(|(name, domain)| cluster(name, &[("domain", domain)], Some(9))));
    required(&mut world);
    world.room("a", 0);
    world.taint("b", "NoSchedule");
    let mut request = steered("web", 3);
    assert_eq!(shares(&world.step(&mut request)), map(&[("c", 3)]));
    world.taint("c", "NoExecute");
    assert_eq!(world.step(&mut request).evictions()[0].unplaced, 3);
    world.room("a", 9);
    let decision = world.scale(&mut request, 4);
    assert_eq!((shares(&decision), decision.evictions()[0].unplaced), (map(&[("a", 1)]), 3));
    let decision = world.scale(&mut request, 2);
    assert_eq!((decision.pending_replicas(), decision.evictions()[0].unplaced), (1, 1));
    let decision = world.scale(&mut request, 6);
    assert_eq!((decision.pending_replicas(), decision.evictions()[0].unplaced), (5, 1));
}

fn profiles(text: &str) -> Profiles {
    let text = format!(
        "apiVersion: config.atoll.dev/v1alpha1\nkind: SchedulerConfiguration\nprofiles:\n{text}"
    );
    Profiles::read(&atoll_scheduler::SchedulerConfiguration::read(&text).unwrap()).unwrap()
}

/// Karmada has a taint manager next to its scheduler. Without an equivalent, work stayed on dead members.
#[test]
fn work_leaves_failed_and_tainted_clusters_in_every_profile() {
    let bare = "- schedulerName: bare\n  plugins:\n    filter:\n      disabled: [{name: TaintToleration}, \
        {name: ClusterEviction}, {name: ApplicationHealth}]\n    preFilter:\n      disabled: [{name: TaintToleration}]\n";
    let profiles = profiles(bare);
    let tolerated = json!([{"key": "test", "operator": "Exists", "tolerationSeconds": 60}]);
    for profile in ["default", "karmada", "bare"] {
        for scheduling in [
            aggregated()["replicaScheduling"].clone(),
            json!({"replicaSchedulingType": "Divided"}),
            json!({"replicaSchedulingType": "Divided",
                "weightPreference": {"dynamicWeight": "AvailableReplicas"}}),
        ] {
            let mut world = World::new(["a", "b"].map(|name| cluster(name, &[], Some(9))));
            world.scheduler = Scheduler::new(profiles.clone());
            world.profiles = profiles.clone();
            world.taint("b", "NoExecute");
            let mut request = workload("web", 4, json!({"replicaScheduling": scheduling}));
            request.scheduler_name = profile.into();
            assert_eq!(shares(&world.step(&mut request)), map(&[("a", 4)]), "{profile}");
            world.edit("b", |cluster| cluster.spec.taints.clear());

            // Work stays for as long as the policy tolerates the taint.
            world.taint("a", "NoExecute");
            world.edit("a", |cluster| {
                cluster.spec.taints[0].time_added = Some(Time(at("12:00:00")));
            });
            let mut bearing = request.clone();
            let mut placement = (*bearing.placement).clone();
            placement.cluster_tolerations = serde_json::from_value(tolerated.clone()).unwrap();
            let applied = serde_json::to_string(&placement).unwrap();
            bearing.previous.as_mut().unwrap().applied_placement =
                serde_json::from_str(&applied).ok();
            bearing.placement = placement.into();
            bearing.now = at("12:00:59");
            let decision = world.decide(&bearing);
            assert_eq!(shares(&decision).get("a"), Some(&4), "{profile}: {:?}", decision.reason);
            assert_eq!(
                decision.waits_for().iter().find_map(WakeCondition::due),
                Some(at("12:01:00"))
            );
            bearing.now = at("12:01:00");
            assert_eq!(shares(&world.decide(&bearing)), map(&[("b", 4)]), "{profile}");

            let decision = world.step(&mut request);
            assert_eq!(decision.trigger(), Trigger::Failover, "{profile}");
            assert_eq!(shares(&decision), map(&[("b", 4)]), "{profile}");
            let task = &decision.evictions()[0];
            assert_eq!((&*task.from_cluster, task.replicas, task.keep), ("a", 4, true));
            // It does not return while it is being evicted.
            world.edit("a", |cluster| cluster.spec.taints.clear());
            assert_eq!(shares(&world.scale(&mut request, 5)), map(&[("b", 5)]), "{profile}");
        }
    }
}

#[test]
fn karmadas_rules_keep_what_nothing_can_take_when_its_cluster_fails() {
    for scheduling in [aggregated()["replicaScheduling"].clone(), Value::Null] {
        let mut world = World::new([cluster("a", &[], Some(9)), cluster("b", &[], Some(0))]);
        let placement = json!({"clusterAffinity": {"clusterNames": ["a"]},
            "replicaScheduling": scheduling});
        let mut request = workload("web", 4, placement);
        request.scheduler_name = "karmada".into();
        assert_eq!(shares(&world.step(&mut request)), map(&[("a", 4)]));
        world.taint("a", "NoExecute");
        let decision = world.step(&mut request);
        assert_eq!(decision.outcome(), Outcome::NoFit);
        assert_eq!(shares(&decision), map(&[("a", 4)]));
        world.edit("a", |cluster| cluster.spec.taints.clear());
        let decision = world.step(&mut request);
        assert_eq!(shares(&decision), map(&[("a", 4)]));
    }
}

#[test]
fn a_taint_without_a_time_of_its_own_is_tolerated_from_when_it_was_first_seen() {
    let mut world = World::new(["a", "b"].map(|name| cluster(name, &[], Some(9))));
    let mut placement = aggregated();
    placement["clusterTolerations"] =
        json!([{"key": "test", "operator": "Exists", "tolerationSeconds": 60}]);
    let mut request = workload("web", 2, placement);
    let here = first_of(&shares(&world.step(&mut request)));
    world.taint(&here, "NoExecute");
    let changes = world.edit(&here, |cluster| {
        cluster.status.as_mut().unwrap().taints_since =
            serde_json::from_value(json!([{"key": "test", "effect": "NoExecute",
                "since": "2026-08-21T12:00:00Z"}]))
            .unwrap();
    });
    let wakes = |change: &TableChange| matches!(change, TableChange::ClusterTaints { .. });
    assert!(changes.iter().any(wakes), "the time wakes the bindings: {changes:?}");
    request.now = at("12:00:59");
    let decision = world.step(&mut request);
    assert_eq!(decision.trigger(), Trigger::Avoid);
    assert_eq!(decision.waits_for().iter().find_map(WakeCondition::due), Some(at("12:01:00")));
    request.now = at("12:01:00");
    assert_eq!(world.step(&mut request).trigger(), Trigger::Failover);
}

#[test]
fn a_job_that_has_ended_is_not_moved_by_a_drain_because_its_copy_would_run_again() {
    for profile in ["default", "karmada"] {
        for ended in [false, true] {
            let mut world = World::new(["a", "b"].map(|name| cluster(name, &[], Some(9))));
            let mut request = workload("import", 2, aggregated());
            request.scheduler_name = profile.to_owned();
            request.template.api_version = "batch/v1".to_owned();
            request.template.kind = "Job".to_owned();
            let here = first_of(&shares(&world.step(&mut request)));
            request.reports.insert(here.clone().into(), Report { ended, ..Report::default() });
            world.taint(&here, "NoExecute");
            let decision = world.step(&mut request);
            let stays = shares(&decision) == map(&[(&here, 2)]) && decision.evictions().is_empty();
            assert_eq!(stays, ended, "{profile}: {:?}", shares(&decision));
        }
    }
}
