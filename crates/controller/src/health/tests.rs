//! The status and taints of a Cluster together with the rule that says when they are written.

use std::collections::BTreeSet;
use std::time::Duration;

use atoll_api::cluster::{
    ApiEnablement, ClusterSpec, ClusterStatus, NodeSummary, ResourceSummary, TaintSince,
};
use atoll_api::quantity::{Quantity, ResourceList};
use atoll_api::{Cluster, marks};
use atoll_render::Key;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::Instant;

use super::cluster_status::{StatusInput, status};
use super::heartbeats::HealthState;
use super::taints::{taint, taints};
use super::times::HealthTimes;
use super::write_due::is_due;
use crate::lifecycle::emptying::Emptying;
use crate::member::state::Epoch;
use crate::member::types::{Counted, MemberFacts};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

static NO_ORPHANS: BTreeSet<Key> = BTreeSet::new();

fn input<'a>(health: &'a HealthState, facts: Option<&'a MemberFacts>) -> StatusInput<'a> {
    let connected = matches!(health, HealthState::Healthy | HealthState::Joining);
    StatusInput {
        health,
        connected,
        agent_version: connected.then_some("1.2.3"),
        facts,
        cluster_id: Some("kube-system-uid"),
        epoch: Epoch { highest: 3, restarted: false },
        refusal: None,
        orphans: Some(&NO_ORPHANS),
        held_back: None,
        emptying: &Emptying::Unknown,
        departure: None,
        revocation: None,
        certificate: None,
    }
}

fn facts(allocated: i128) -> MemberFacts {
    let list = |milli| ResourceList::from([("cpu".to_owned(), Quantity::from_milli(milli))]);
    MemberFacts {
        kubernetes_version: "v1.33.0".into(),
        api_healthy: true,
        api_message: String::new(),
        apis: vec![ApiEnablement { group_version: "apps/v1".into(), resources: Vec::new() }],
        apis_complete: true,
        unlisted: Vec::new(),
        counted: Some(Counted {
            counted_at_ms: 1,
            nodes: NodeSummary { total_num: 1, ready_num: 1 },
            resources: ResourceSummary {
                allocatable: list(10_000),
                allocated: list(allocated),
                ..ResourceSummary::default()
            },
            node_classes: Vec::new(),
            quotas: Default::default(),
            taken_at: at(0),
        }),
    }
}

fn with(cluster: &Cluster, status: ClusterStatus) -> Cluster {
    Cluster { status: Some(status), ..cluster.clone() }
}

#[tokio::test]
async fn nothing_is_written_per_beat() {
    let cluster = Cluster::new("member1", ClusterSpec::default());
    let times = HealthTimes::default();
    let first = status(&cluster, &input(&HealthState::Healthy, Some(&facts(1000))), at(0));
    let written = with(&cluster, first.clone());
    let due = |health: &HealthState, allocated, age| {
        let new = status(&written, &input(health, Some(&facts(allocated))), at(60));
        is_due(&first, &new, Duration::from_secs(age), &times)
    };
    assert!(is_due(&ClusterStatus::default(), &first, Duration::ZERO, &times));
    assert!(!due(&HealthState::Healthy, 1000, 10_000), "nothing changed");
    assert!(!due(&HealthState::Healthy, 1500, 10), "5 % of the capacity is no more than 5 %");
    assert!(due(&HealthState::Healthy, 1501, 10));
    assert!(due(&HealthState::Healthy, 1001, 300), "small changes now and then");
    assert!(!due(&HealthState::Disconnected, 1000, 10), "the end of a session is no loss");
    let since = Instant::now();
    assert!(due(&HealthState::Lost { since }, 1000, 0));
    assert!(due(&HealthState::ApiUnhealthy { message: "down".into(), since }, 1000, 0));
}

#[tokio::test]
async fn a_taint_without_a_time_is_dated_when_it_is_first_seen() {
    let mut cluster = Cluster::new("member1", ClusterSpec::default());
    let taint = |key: &str, effect: &str, added: Option<i64>| Taint {
        key: key.to_owned(),
        effect: effect.to_owned(),
        value: None,
        time_added: added.map(|second| Time(at(second))),
    };
    let look = |cluster: &Cluster, second| {
        status(cluster, &input(&HealthState::Healthy, Some(&facts(0))), at(second))
    };
    let seen = |status: &ClusterStatus| -> Vec<(String, i64)> {
        let of = |seen: &TaintSince| seen.since.0.as_second() - 1_700_000_000;
        status.taints_since.iter().map(|seen| (seen.key.clone(), of(seen))).collect()
    };
    let first = look(&cluster, 0);
    cluster.spec.taints = vec![
        taint("maintenance", "NoExecute", None),
        taint("maintenance", "NoSchedule", None),
        taint("dated", "NoExecute", Some(5)),
    ];
    let second = look(&with(&cluster, first.clone()), 10);
    assert_eq!(seen(&second), [("maintenance".to_owned(), 10)]);
    assert!(is_due(&first, &second, Duration::ZERO, &HealthTimes::default()));
    let dated = with(&cluster, second.clone()).dated_taints();
    let times: Vec<_> = dated.iter().map(|t| t.time_added.as_ref().map(|at| at.0)).collect();
    assert_eq!(times, [Some(at(10)), None, Some(at(5))]);
    // A new leader reads it from the status.
    cluster.spec.taints.push(taint("other", "NoExecute", None));
    let third = look(&with(&cluster, second), 70);
    let both = [("maintenance".to_owned(), 10), ("other".to_owned(), 70)];
    assert_eq!(seen(&third), both);
    cluster.spec.taints.remove(0);
    assert_eq!(seen(&look(&with(&cluster, third), 80)), [("other".to_owned(), 70)]);
}

#[tokio::test]
async fn free_pods_are_counted() {
    let cluster = Cluster::new("member1", ClusterSpec::default());
    let free = |allocatable: i128, allocated: i128| {
        let list = |count| ResourceList::from([("pods".to_owned(), Quantity::from_units(count))]);
        let mut facts = facts(0);
        let resources = &mut facts.counted.as_mut().unwrap().resources;
        (resources.allocatable, resources.allocated) = (list(allocatable), list(allocated));
        status(&cluster, &input(&HealthState::Healthy, Some(&facts)), at(0)).free_pods
    };
    assert_eq!((free(330, 20), free(330, 400)), (Some(310), Some(0)));
    let unknown = status(&cluster, &input(&HealthState::Healthy, None), at(0));
    assert_eq!(unknown.free_pods, None);
}

#[tokio::test]
async fn what_is_not_known_stays() {
    let cluster = Cluster::new("member1", ClusterSpec::default());
    let early = status(&cluster, &input(&HealthState::Healthy, None), at(0));
    assert_eq!(early.conditions[0].reason, "Joining", "not ready before its kinds are known");
    let first = status(&cluster, &input(&HealthState::Healthy, Some(&facts(1000))), at(0));
    let written = with(&cluster, first.clone());
    let mut lesser = StatusInput {
        epoch: Epoch::default(),
        orphans: None,
        ..input(&HealthState::Disconnected, None)
    };
    lesser.cluster_id = None;
    assert_eq!(status(&written, &lesser, at(60)), first, "a controller that just started");
    let version = |status: &ClusterStatus| status.session.clone().unwrap().agent_version.unwrap();
    assert_eq!(version(&first), "1.2.3", "kept in the comparison above, without a session");
    let upgraded =
        StatusInput { agent_version: Some("1.3.0"), ..input(&HealthState::Healthy, None) };
    assert_eq!(version(&status(&written, &upgraded, at(60))), "1.3.0");
    let uncounted = MemberFacts { counted: None, ..facts(1000) };
    let known_room = status(&written, &input(&HealthState::Healthy, Some(&uncounted)), at(60));
    assert_eq!(known_room, first, "an agent that has not counted yet reports no empty member");
    let mut partial = facts(1000);
    partial.apis_complete = false;
    partial.apis = vec![ApiEnablement { group_version: "v1".into(), resources: Vec::new() }];
    let merged = status(&written, &input(&HealthState::Healthy, Some(&partial)), at(60));
    let names: Vec<_> = merged.api_enablements.iter().map(|a| a.group_version.as_str()).collect();
    assert_eq!(names, ["apps/v1", "v1"]);
}

#[tokio::test]
async fn a_cordon_and_a_drain_show_in_the_status_at_once() {
    let mut cluster = Cluster::new("member1", ClusterSpec::default());
    let first = status(&cluster, &input(&HealthState::Healthy, Some(&facts(1000))), at(0));
    assert_eq!((first.state.as_str(), first.reason.as_str()), ("Ready", ""));
    let taints = [(marks::TAINT_CORDONED, "NoSchedule"), (marks::TAINT_DRAIN, "NoExecute")];
    cluster.spec.taints = taints.map(|(key, effect)| taint(key, effect, at(1))).to_vec();
    let moving =
        Emptying::Yes { done: false, reason: "Moving", message: "1 is being moved".into() };
    let facts = facts(1000);
    let draining = StatusInput { emptying: &moving, ..input(&HealthState::Healthy, Some(&facts)) };
    let second = status(&with(&cluster, first.clone()), &draining, at(1));
    assert_eq!(second.state, "Ready,SchedulingDisabled,Draining");
    assert_eq!(second.reason, "Moving");
    assert!(is_due(&first, &second, Duration::ZERO, &HealthTimes::default()));
    cluster.spec.taints.clear();
    let over = status(&with(&cluster, second.clone()), &input(&HealthState::Healthy, None), at(2));
    assert_eq!(over.state, "Ready", "the drain is over, whatever the condition still says");
}

#[tokio::test]
async fn taints_follow_the_loss_and_keep_their_time() {
    let times = HealthTimes::default();
    let mut cluster = Cluster::new("member1", ClusterSpec::default());
    let since = Instant::now();
    let lost = HealthState::Lost { since };
    let look = |cluster: &Cluster, health: &HealthState, second: u64, frozen| {
        let now = (since + Duration::from_secs(second), at(i64::try_from(second).unwrap()));
        taints(cluster, health, &times, frozen, now)
    };
    let brief = |taints: &[Taint]| {
        taints
            .iter()
            .map(|t| {
                (t.effect.clone(), t.time_added.as_ref().unwrap().0.as_second() - 1_700_000_000)
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(look(&cluster, &lost, 15, true), [], "the controller suspects itself");
    cluster.spec.taints = look(&cluster, &lost, 15, false);
    assert_eq!(brief(&cluster.spec.taints), [("NoSchedule".into(), 15)]);
    assert_eq!(brief(&look(&cluster, &lost, 299, false)), [("NoSchedule".into(), 15)]);
    assert_eq!(brief(&look(&cluster, &lost, 300, true)), [("NoSchedule".into(), 15)]);
    cluster.spec.taints = look(&cluster, &lost, 300, false);
    let both = [("NoSchedule".into(), 15), ("NoExecute".into(), 300)];
    assert_eq!(brief(&cluster.spec.taints), both);
    // Another controller with a different start time.
    assert_eq!(brief(&look(&cluster, &lost, 10, false)), both);
    assert_eq!(
        brief(&look(&cluster, &HealthState::Disconnected, 310, false)),
        both,
        "the state is unknown"
    );
    assert_eq!(look(&cluster, &HealthState::Healthy, 320, false), []);
    let sick = HealthState::ApiUnhealthy { message: String::new(), since };
    let taints = look(&cluster, &sick, 320, false);
    assert!(taints.iter().all(|taint| taint.key == marks::TAINT_NOT_READY), "{taints:?}");
    assert_eq!(taints.len(), 2);
}
