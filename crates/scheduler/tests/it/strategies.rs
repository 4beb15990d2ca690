//! Division: every strategy up, down and from zero, with bounds, capacity, tiers and terms.

use atoll_api::binding::{Outcome, Trigger};
use atoll_api::placement::RescheduleOn;
use atoll_scheduler::{Capacity, FreeVector, LiveCluster, NodeClass, Session};
use serde_json::{Value, json};

use crate::support::*;

fn divided(rest: Value) -> Value {
    let mut scheduling = json!({"replicaSchedulingType": "Divided"});
    for (name, value) in rest.as_object().into_iter().flatten() {
        scheduling[name] = value.clone();
    }
    json!({ "replicaScheduling": scheduling })
}

fn dynamic() -> Value {
    divided(json!({"weightPreference": {"dynamicWeight": "AvailableReplicas"}}))
}

fn aggregated() -> Value {
    divided(json!({"replicaDivisionPreference": "Aggregated"}))
}

fn weights(rules: &[(&str, i64)]) -> Value {
    let list: Vec<Value> = rules
        .iter()
        .map(|(name, weight)| json!({"targetCluster": {"clusterNames": [name]}, "weight": weight}))
        .collect();
    divided(json!({"weightPreference": {"staticWeightList": list}}))
}

fn rooms(rooms: &[(&str, Option<i64>)]) -> World {
    World::new(rooms.iter().map(|(name, room)| cluster(name, &[], *room)))
}

#[test]
fn duplicated_is_the_default_and_follows_the_clusters() {
    let mut world = rooms(&[("a", Some(1)), ("b", None)]);
    let mut request = workload("web", 3, json!({}));
    let decision = world.step(&mut request);
    assert_eq!(shares(&decision), map(&[("a", 3), ("b", 3)]));
    assert_eq!(shares(&world.scale(&mut request, 5)), map(&[("a", 5), ("b", 5)]));
    world.put(cluster("c", &[], None));
    let decision = world.step(&mut request);
    assert_eq!(decision.trigger(), Trigger::ClusterChange);
    assert_eq!(shares(&decision), map(&[("a", 5), ("b", 5), ("c", 5)]));
    assert_eq!(world.step(&mut request).trigger(), Trigger::Avoid);
}

#[test]
fn kinds_without_replicas_get_a_copy_everywhere() {
    let mut world = rooms(&[("a", None), ("b", None)]);
    let mut request = workload("settings", 0, json!({}));
    request.template.replicas = None;
    request.template.kind = "ConfigMap".into();
    request.template.api_version = "v1".into();
    let decision = world.step(&mut request);
    assert_eq!(shares(&decision), map(&[("a", 0), ("b", 0)]));
    assert_eq!(decision.outcome(), Outcome::Placed);
    assert_eq!(world.step(&mut request).trigger(), Trigger::Avoid);
}

#[test]
fn static_weights_are_webster_over_the_candidates() {
    let mut world = rooms(&[("a", Some(1)), ("b", None), ("c", None)]);
    let mut request = workload("web", 9, weights(&[("a", 2), ("b", 1)]));
    assert_eq!(
        shares(&world.step(&mut request)),
        map(&[("a", 6), ("b", 3)]),
        "capacity does not count"
    );
    let decision = world.decide(&workload("web", 9, weights(&[("nobody", 2)])));
    assert_eq!(decision.outcome(), Outcome::NoFit);
    assert!(decision.reason.contains("staticWeightList"), "{}", decision.reason);
    let mut respecting = weights(&[("a", 2), ("b", 1)]);
    respecting["replicaScheduling"]["respectCapacity"] = json!(true);
    let decision = world.decide(&workload("other", 9, respecting));
    assert_eq!(decision.clusters().iter().find(|s| s.name == "b").map(|s| s.replicas), Some(9));
}

#[test]
fn four_equal_clusters_two_lost_one_after_the_other() {
    let mut world = rooms(&[("a", None), ("b", None), ("c", None), ("d", None)]);
    let mut request = workload("web", 4, divided(json!({})));
    assert_eq!(world.step(&mut request).clusters().len(), 4);
    for lost in ["a", "b"] {
        world.taint(lost, "NoExecute");
        let decision = world.step(&mut request);
        assert_eq!(decision.trigger(), Trigger::Failover);
        assert_eq!(
            decision.moves().iter().map(|m| m.count).sum::<i64>(),
            if lost == "a" {
                1
            } else {
                decision.before().iter().find(|s| s.name == "b").unwrap().replicas
            }
        );
    }
    let last = &request.previous.as_ref().unwrap().clusters;
    assert_eq!(last, &[target("c", 2), target("d", 2)]);
}

#[test]
fn dynamic_weights_up_by_the_delta_down_in_proportion_fresh_by_room() {
    let mut world = rooms(&[("a", Some(20)), ("b", Some(10))]);
    let mut request = workload("web", 6, dynamic());
    assert_eq!(shares(&world.step(&mut request)), map(&[("a", 4), ("b", 2)]));
    world.room("b", 100);
    let decision = world.scale(&mut request, 12);
    let got = shares(&decision);
    assert!(got["a"] >= 4 && got["b"] > 6, "the delta goes by what is free now: {got:?}");
    let decision = world.scale(&mut request, 6);
    let now = shares(&decision);
    assert!(
        now["a"] + now["b"] == 6 && now["a"] < got["a"] && now["b"] < got["b"],
        "{got:?} {now:?}"
    );
    request.previous.as_mut().unwrap().reschedule_triggered_at =
        Some("2026-08-21T12:30:00Z".parse().unwrap());
    request.now = "2026-08-21T12:30:01Z".parse().unwrap();
    let decision = world.step(&mut request);
    assert_eq!(decision.trigger(), Trigger::Rebalance);
    assert_eq!(shares(&decision), map(&[("a", 1), ("b", 5)]));
    assert_eq!(world.step(&mut request).trigger(), Trigger::Avoid, "asked once, done once");
}

#[test]
fn aggregated_uses_the_fewest_clusters() {
    let mut world = rooms(&[("a", Some(5)), ("b", Some(20)), ("c", Some(8))]);
    let mut request = workload("web", 10, aggregated());
    assert_eq!(shares(&world.step(&mut request)), map(&[("b", 10)]));
    let decision = world.scale(&mut request, 24);
    assert_eq!(shares(&decision).keys().collect::<Vec<_>>(), ["b", "c"]);
    let decision = world.scale(&mut request, 6);
    assert_eq!(decision.clusters().len(), 1, "the largest holder holds all");
}

#[test]
fn what_does_not_fit_waits_or_refuses_all() {
    let mut world = rooms(&[("a", Some(2)), ("b", Some(1))]);
    let mut request = workload("web", 5, dynamic());
    let decision = world.step(&mut request);
    assert_eq!(shares(&decision), map(&[("a", 2), ("b", 1)]));
    assert_eq!((decision.outcome(), decision.pending_replicas()), (Outcome::Partial, 2));
    assert_eq!(world.step(&mut request).trigger(), Trigger::Avoid, "nothing new");
    let change = world.room("b", 4);
    assert!(decision.waits_for().iter().any(|condition| change[0].meets(condition)));
    let decision = world.step(&mut request);
    assert_eq!(decision.trigger(), Trigger::Retry);
    assert_eq!(shares(&decision), map(&[("a", 2), ("b", 3)]));
    let mut refuse = dynamic();
    refuse["replicaScheduling"]["insufficientCapacity"] = json!("Refuse");
    let decision = world.decide(&workload("other", 50, refuse));
    assert_eq!((decision.outcome(), decision.clusters().len()), (Outcome::Unschedulable, 0));
    assert_eq!(decision.pending_replicas(), 50);
}

#[test]
fn bounds_hold_for_clusters_and_groups() {
    let bounded = |bounds: Value| {
        let mut placement = weights(&[("a", 8), ("b", 1), ("c", 1)]);
        placement["replicaScheduling"]["bounds"] = bounds;
        placement
    };
    let mut world = rooms(&[("a", None), ("b", None), ("c", None)]);
    let group = json!([
        {"targetCluster": {"clusterNames": ["a"]}, "max": 3},
        {"targetCluster": {"clusterNames": ["b", "c"]}, "min": 4},
    ]);
    let decision = world.decide(&workload("web", 10, bounded(group)));
    let got = shares(&decision);
    assert_eq!((got["a"], got["b"] + got["c"]), (3, 7));
    for (bounds, what) in [
        (json!([{"targetCluster": {"clusterNames": ["a"]}, "min": 11}]), "bounds"),
        (json!([{"targetCluster": {}, "max": 9}]), "sum of max, 9"),
        (
            json!([{"targetCluster": {"clusterNames": ["a"]}, "min": 6}, {"targetCluster": {"clusterNames": ["b"]}, "min": 6}]),
            "sum of min, 12",
        ),
        (json!([{"targetCluster": {}, "min": 3, "max": 2}]), "min 3 is above max 2"),
    ] {
        let decision = world.decide(&workload("web", 10, bounded(bounds)));
        assert_eq!(decision.outcome(), Outcome::Invalid);
        assert!(decision.reason.contains(what), "{}", decision.reason);
    }
}

#[test]
fn unknown_capacity_does_not_bind_and_comes_last() {
    let mut world = rooms(&[("known", Some(3)), ("unknown", None)]);
    let decision = world.decide(&workload("web", 2, aggregated()));
    assert_eq!(shares(&decision), map(&[("known", 2)]));
    let decision = world.decide(&workload("web", 8, aggregated()));
    assert_eq!(placed(&decision), 8);
}

fn tiered() -> Value {
    let mut placement = dynamic();
    placement["clusterAffinities"] = json!([{
        "affinityName": "own", "clusterNames": ["own"],
        "overflowAffinities": [{"affinityName": "cloud", "clusterNames": ["cloud"]}],
    }]);
    placement
}

#[test]
fn overflow_tiers_take_what_does_not_fit_and_give_back_first() {
    let mut world = rooms(&[("own", Some(4)), ("cloud", Some(50)), ("other", Some(50))]);
    let mut request = workload("web", 3, tiered());
    assert_eq!(shares(&world.step(&mut request)), map(&[("own", 3)]));
    assert_eq!(shares(&world.scale(&mut request, 9)), map(&[("own", 4), ("cloud", 5)]));
    assert_eq!(shares(&world.scale(&mut request, 6)), map(&[("own", 4), ("cloud", 2)]));
    world.room("own", 5);
    assert_eq!(world.decide(&request).trigger(), Trigger::Avoid, "the way back needs leave");
    request.placement.reschedule_on =
        Some(vec![RescheduleOn::Recovery, RescheduleOn::ReplicasChange]);
    let decision = world.step(&mut request);
    assert_eq!(decision.trigger(), Trigger::Recover);
    assert_eq!(shares(&decision), map(&[("own", 5), ("cloud", 1)]));
    assert_eq!(shares(&world.scale(&mut request, 2)), map(&[("own", 2)]));
}

#[test]
fn affinity_terms_are_tried_in_order_and_fail_back_with_leave() {
    let mut placement = dynamic();
    placement["clusterAffinities"] = json!([
        {"affinityName": "first", "clusterNames": ["a"]},
        {"affinityName": "second", "clusterNames": ["b"]},
    ]);
    let mut world = rooms(&[("a", Some(10)), ("b", Some(10))]);
    let mut request = workload("web", 4, placement);
    let decision = world.step(&mut request);
    assert_eq!(
        (shares(&decision), decision.affinity_name.as_deref()),
        (map(&[("a", 4)]), Some("first"))
    );
    world.taint("a", "NoExecute");
    let decision = world.step(&mut request);
    assert_eq!(decision.trigger(), Trigger::Failover);
    assert_eq!(
        (shares(&decision), decision.affinity_name.as_deref()),
        (map(&[("b", 4)]), Some("second"))
    );
    world.edit("a", |cluster| cluster.spec.taints.clear());
    request.previous.as_mut().unwrap().eviction_tasks.clear();
    assert_eq!(world.decide(&request).trigger(), Trigger::Avoid);
    request.placement.reschedule_on = Some(vec![RescheduleOn::Recovery]);
    let decision = world.step(&mut request);
    assert_eq!(decision.trigger(), Trigger::Recover);
    assert_eq!(
        (shares(&decision), decision.affinity_name.as_deref()),
        (map(&[("a", 4)]), Some("first"))
    );
}

#[test]
fn absurd_numbers_are_refused_or_answered() {
    let mut world = rooms(&[("a", Some(i64::MAX)), ("b", Some(i64::MAX)), ("c", None)]);
    for replicas in [-1, i64::MIN, i64::MAX, 1 << 40] {
        let decision = world.decide(&workload("web", replicas, dynamic()));
        assert_eq!(decision.outcome(), Outcome::Invalid);
        assert!(decision.reason.starts_with("spec.replicas"), "{}", decision.reason);
    }
    for placement in [dynamic(), aggregated(), divided(json!({})), json!({})] {
        let decision = world.decide(&workload("web", 1_000_000, placement));
        assert_eq!(decision.outcome(), Outcome::Placed);
    }
    let mut request = workload("web", 2, dynamic());
    request.template.requirements =
        Some(serde_json::from_value(json!({"resourceRequest": {"cpu": "lots"}})).unwrap());
    let decision = world.decide(&request);
    assert!(decision.reason.contains("resourceRequest.cpu"), "{}", decision.reason);
    world.edit("a", |cluster| {
        let summary = cluster.status.as_mut().unwrap().resource_summary.as_mut().unwrap();
        summary
            .allocatable
            .insert("pods".into(), atoll_api::quantity::Quantity::new("9".repeat(40)));
    });
    let decision = world.decide(&workload("web", 9, dynamic()));
    assert!(!shares(&decision).contains_key("a"), "unreadable figures give no room");
    let taint: k8s_openapi::api::core::v1::Taint =
        serde_json::from_value(json!({"key": "x", "effect": "NoSchedule"})).unwrap();
    world.edit("b", |cluster| {
        cluster.spec.taints = (0..10_000)
            .map(|n| k8s_openapi::api::core::v1::Taint { key: format!("x{n}"), ..taint.clone() })
            .collect();
    });
    assert!(!shares(&world.decide(&workload("web", 9, dynamic()))).contains_key("b"));
    let mut nobody = workload("web", 1, json!({}));
    nobody.scheduler_name = "nobody".into();
    let decision = world.decide(&nobody);
    assert!(decision.reason.contains("default, karmada"), "{}", decision.reason);
}

/// A class of equal nodes: their number, zone and size, and the pods that fit on each.
fn class(nodes: i64, pods: i64, zone: &str, size: &str, tainted: bool) -> NodeClass {
    let taint = json!({"key": "spot", "effect": "NoSchedule"});
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    NodeClass {
        taints: if tainted { vec![serde_json::from_value(taint).unwrap()] } else { Vec::new() },
        labels: [label("topology.kubernetes.io/zone", zone), label("size", size)].into(),
        free: vec![FreeVector { nodes, milli: [("pods".to_owned(), pods * 1000)].into() }],
    }
}

/// Replicas of `web` that fit on one cluster with these nodes, requested one by one until none fits.
fn fitting(classes: &[NodeClass], claim: &Value) -> i64 {
    let mut world = World::new([cluster("a", &[], None)]);
    let capacity = Some(Capacity { classes: classes.to_vec() });
    let live = LiveCluster { session: Session::Connected, capacity };
    world.tables.upsert_cluster(&world.clusters["a"].clone(), live);
    let mut request = workload("web", 1, dynamic());
    request.template.requirements =
        serde_json::from_value(json!({"nodeClaim": claim, "resourceRequest": {}})).unwrap();
    let mut first = request.clone();
    first.template.replicas = Some(50);
    let at_once = placed(&world.decide(&first));
    world.step(&mut request);
    let one_by_one = (2..=50).map(|n| placed(&world.scale(&mut request, n))).max().unwrap();
    assert!(one_by_one >= at_once, "{one_by_one} one by one, {at_once} at once");
    if !claim["selfAntiAffinity"].is_null() {
        assert_eq!(one_by_one, at_once, "what runs already counts as a node or zone that is taken");
    }
    at_once
}

#[test]
fn nodes_count_by_selector_taints_and_anti_affinity() {
    let classes = [
        class(3, 4, "z1", "large", false),
        class(2, 4, "z2", "small", false),
        class(1, 4, "z3", "large", true),
    ];
    let tolerates = json!([{"key": "spot", "operator": "Exists"}]);
    let (node, zone) = ("kubernetes.io/hostname", "topology.kubernetes.io/zone");
    for (claim, fits) in [
        (json!({}), 20),
        (json!({"tolerations": tolerates}), 24),
        (json!({"nodeSelector": {"size": "large"}}), 12),
        (json!({"nodeSelector": {"size": "huge"}}), 0),
        (json!({"selfAntiAffinity": [node]}), 5),
        (json!({"selfAntiAffinity": [node], "tolerations": tolerates}), 6),
        (json!({"selfAntiAffinity": [node], "nodeSelector": {"size": "small"}}), 2),
        (json!({"selfAntiAffinity": [zone]}), 2),
        (json!({"selfAntiAffinity": [zone], "tolerations": tolerates}), 3),
        (json!({"selfAntiAffinity": [zone, node], "nodeSelector": {"size": "large"}}), 1),
    ] {
        assert_eq!(fitting(&classes, &claim), fits, "{claim}");
    }
}
