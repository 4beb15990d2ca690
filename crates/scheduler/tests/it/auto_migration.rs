//! Replicas that stay unschedulable on their member move to members with room.

use atoll_api::binding::Trigger;
use atoll_decision::explain::render;
use atoll_scheduler::{Report, Request};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::support::*;

fn divided(extra: Value) -> Value {
    let mut placement = json!({
        "replicaScheduling": {"weightPreference": {"dynamicWeight": "AvailableReplicas"}},
        "rescheduleOn": ["PolicyChange", "ReplicasChange", "ClusterFailure", "Unschedulable"],
    });
    placement.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    placement
}

/// What a member with room for `fits` replicas of a share says.
fn says(request: &mut Request, cluster: &str, share: i64, fits: i64, since: jiff::Timestamp) {
    let stuck = (share - fits).max(0);
    let report = Report {
        replicas: share,
        ready: share - stuck,
        unschedulable: stuck,
        unschedulable_since: (stuck > 0).then_some(since),
        ..Report::default()
    };
    request.reports.insert(cluster.into(), report);
}

/// Ten replicas: seven on a, which runs four of them, and three on b, which has this much more room.
fn three_stuck(placement: Value, room: i64) -> (World, Request) {
    let mut world = World::new([
        cluster("a", &[], Some(7)),
        cluster("b", &[], Some(3)),
        cluster("c", &[], None),
    ]);
    world.taint("c", "NoSchedule");
    let mut request = workload("web", 10, placement);
    assert_eq!(shares(&world.step(&mut request)), map(&[("a", 7), ("b", 3)]));
    // The reservation counts against the room.
    world.room("b", 3 + room);
    says(&mut request, "a", 7, 4, now());
    says(&mut request, "b", 3, 9, now());
    request.now = now() + SignedDuration::from_secs(60);
    (world, request)
}

#[test]
fn what_is_unschedulable_for_too_long_moves_and_its_cluster_counts_as_full() {
    let (mut world, mut request) = three_stuck(divided(json!({})), 9);
    request.now = now() + SignedDuration::from_secs(59);
    let early = world.decide(&request);
    assert_eq!(early.trigger(), Trigger::Avoid);
    let due = early.waits_for().iter().find_map(atoll_scheduler::WakeCondition::due);
    assert_eq!(due, Some(now() + SignedDuration::from_secs(60)));
    request.now = due.unwrap();
    let decision = world.step(&mut request);
    assert_eq!(shares(&decision), map(&[("a", 4), ("b", 6)]));
    assert!(decision.evictions().is_empty(), "what does not run is not kept");
    insta::assert_snapshot!("auto_migration_moved", render(&decision, 100));
    // The old report, which the member sent before it heard of the move, moves nothing more.
    request.now += SignedDuration::from_secs(1);
    assert_eq!(world.decide(&request).trigger(), Trigger::Avoid);
    // The member reports room again, but counts as full for ten minutes: what is added goes to b.
    says(&mut request, "a", 4, 4, now());
    world.room("a", 40);
    world.room("b", 20);
    assert_eq!(shares(&world.scale(&mut request, 12)), map(&[("a", 4), ("b", 8)]));
    request.now += SignedDuration::from_mins(11);
    assert_eq!(shares(&world.scale(&mut request, 24))["b"], 8 + 3, "by room again: 36 to 12");
}

#[test]
fn nothing_moves_when_no_other_cluster_has_room_and_no_more_than_fits() {
    let (mut world, request) = three_stuck(divided(json!({})), 0);
    let decision = world.decide(&request);
    assert_eq!(decision.trigger(), Trigger::Avoid);
    assert!(decision.triggers.iter().any(|checked| {
        checked.trigger == Trigger::Unschedulable && checked.holds && !checked.allowed
    }));
    insta::assert_snapshot!("auto_migration_no_room", render(&decision, 100));
    let woken = world.room("b", 4);
    assert!(
        decision
            .waits_for()
            .iter()
            .any(|condition| woken.iter().any(|change| change.meets(condition)))
    );
    let (mut world, mut request) = three_stuck(divided(json!({})), 2);
    let decision = world.step(&mut request);
    assert_eq!(shares(&decision), map(&[("a", 5), ("b", 5)]), "two of three find room");
}

#[test]
fn each_time_a_cluster_counts_as_full_for_twice_as_long() {
    let (mut world, mut request) = three_stuck(divided(json!({})), 9);
    world.step(&mut request);
    let until = |request: &Request| {
        let record = request.previous.as_ref().unwrap().decision.as_ref().unwrap();
        let full = &record.full_clusters[0];
        (full.times, full.until.0.duration_since(full.at.0).as_mins())
    };
    assert_eq!(until(&request), (1, 10));
    for (times, minutes) in [(2, 20), (3, 40), (4, 80), (5, 160), (6, 320), (7, 480), (8, 480)] {
        // a takes replicas again as soon as it may, and again cannot run them.
        let record = request.previous.as_mut().unwrap();
        record.clusters = vec![target("a", 7), target("b", 3)];
        let full = record.decision.as_ref().unwrap().full_clusters[0].until.0;
        says(&mut request, "a", 7, 4, full);
        request.now = full + SignedDuration::from_secs(60);
        let decision = world.step(&mut request);
        assert_eq!(decision.trigger(), Trigger::Unschedulable);
        assert_eq!(until(&request), (times, minutes));
    }
    // After as long a time without trouble, it is forgotten.
    request.now += SignedDuration::from_mins(961);
    request.reports.clear();
    world.room("b", 30);
    let decision = world.scale(&mut request, 11);
    assert!(decision.record(1).full_clusters.is_empty());
}

#[test]
fn policies_that_do_not_ask_for_it_and_strategies_that_ignore_room_move_nothing() {
    let stays = |placement: Value| {
        let (mut world, request) = three_stuck(divided(json!({})), 9);
        let mut request = request;
        request.placement = serde_json::from_value(placement).unwrap();
        request.previous.as_mut().unwrap().applied_placement = None;
        let decision = world.decide(&request);
        assert_eq!(decision.trigger(), Trigger::Avoid);
        let checked = decision.triggers.iter().find(|c| c.trigger == Trigger::Unschedulable);
        checked.map(|checked| checked.why.to_string())
    };
    assert_eq!(stays(divided(json!({"rescheduleOn": ["ReplicasChange"]}))), None);
    assert_eq!(stays(divided(json!({"sticky": true}))), None);
    assert_eq!(stays(divided(json!({"unschedulableAfterSeconds": 61}))), None);
    let why = stays(divided(json!({"replicaScheduling": {}}))).unwrap();
    assert!(why.contains("respectCapacity"), "{why}");
}

#[test]
fn under_an_adaptive_workload_spread_only_its_own_overflow_acts() {
    let in_zone = |zone: &str, most: Value| {
        let selector = json!({"matchLabels": {"zone": zone}});
        json!({"name": zone, "maxReplicas": most, "requiredClusterSelector": selector})
    };
    for (kind, trigger, want) in [
        ("Adaptive", Trigger::Overflow, map(&[("a", 4), ("b", 3)])),
        // Within the subset.
        ("Fixed", Trigger::Unschedulable, map(&[("a", 4), ("c", 3)])),
    ] {
        let mut world = World::new([
            cluster("a", &[("zone", "a")], Some(7)),
            cluster("b", &[("zone", "b")], Some(9)),
            cluster("c", &[("zone", "a")], Some(0)),
        ]);
        world.spread(json!({
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "subsets": [in_zone("a", json!(9)), in_zone("b", Value::Null)], "scheduleStrategy": {"type": kind},
        }));
        let on = json!({"rescheduleOn": ["ReplicasChange", "Unschedulable"]});
        let mut request = workload("web", 7, on);
        assert_eq!(shares(&world.step(&mut request)), map(&[("a", 7)]));
        if kind == "Fixed" {
            world.room("c", 3);
        }
        says(&mut request, "a", 7, 4, now());
        request.now = now() + SignedDuration::from_secs(60);
        let decision = world.step(&mut request);
        assert_eq!((decision.trigger(), shares(&decision)), (trigger, want), "{kind}");
    }
}

/// Four members over an hour. After ten minutes the nodes of one of them fill up; with odd seeds the figures of all promise
/// more than their nodes have. The linter checks conservation and movement of every decision.
#[test]
fn pending_pods_find_room_within_two_minutes_and_nothing_oscillates_for_an_hour() {
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    for seed in 0..40_i64 {
        let mut state = seed;
        let mut random = |most: i64| {
            state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
            state / 65_536 % most
        };
        let lies = seed % 2 == 1;
        let mut fits = NAMES.map(|_| 4 + random(6));
        let promised = fits.map(|fits| fits + if lies { random(4) } else { 0 });
        let clusters = NAMES.iter().zip(&promised);
        let mut world = World::new(clusters.map(|(name, room)| cluster(name, &[], Some(*room))));
        let replicas = 4 + random(10);
        let mut request = workload("web", replicas, divided(json!({})));
        world.step(&mut request);
        let mut since = [None; 4];
        let mut left = [0; 4];
        for second in (0..3600).step_by(5) {
            request.now = now() + SignedDuration::from_secs(second);
            if second == 600 {
                fits[0] /= 3;
                world.room("a", if lies { promised[0] } else { fits[0] });
            }
            let placed = request.previous.as_ref().unwrap().clusters.clone();
            let share =
                |name: &str| placed.iter().find(|t| t.name == name).map_or(0, |t| t.replicas);
            let mut stuck = 0;
            for (at, name) in NAMES.iter().enumerate() {
                let share = share(name);
                stuck += (share - fits[at]).max(0);
                let now = request.now;
                since[at] = since[at].or(Some(now)).filter(|_| share > fits[at]);
                says(&mut request, name, share, fits[at], since[at].unwrap_or(now));
            }
            let room: i64 = fits.iter().sum();
            if !lies && second >= 720 && room >= replicas {
                assert_eq!(stuck, 0, "seed {seed}: Pending after two minutes");
            }
            let decision = world.step(&mut request);
            for (at, name) in NAMES.iter().enumerate() {
                left[at] +=
                    i32::from(shares(&decision).get(*name).copied().unwrap_or(0) < share(name));
            }
        }
        // Waits of 10, 20 and 40 minutes let a member be tried three times in an hour. What finds no room at once leaves in
        // two steps.
        let most = if lies { 6 } else { 1 };
        assert!(left.iter().all(|left| *left <= most), "seed {seed}: {left:?}");
    }
}
