//! WorkloadSpread: OpenKruise's examples, with clusters in place of nodes.

use atoll_api::binding::{Outcome, Trigger};
use serde_json::{Value, json};

use crate::support::*;

fn subset(name: &str, max: Value) -> Value {
    json!({
        "name": name, "maxReplicas": max,
        "requiredClusterSelector": {"matchExpressions": [{"key": "zone", "operator": "In", "values": [name]}]},
    })
}

fn spread(subsets: Vec<Value>, kind: &str) -> Value {
    json!({
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "subsets": subsets, "scheduleStrategy": {"type": kind},
    })
}

fn zones(zones: &[(&str, Option<i64>)]) -> World {
    World::new(zones.iter().map(|(name, room)| cluster(name, &[("zone", name)], *room)))
}

fn web(replicas: i64) -> atoll_scheduler::Request {
    workload("web", replicas, json!({}))
}

#[test]
fn elastic_deployment_the_first_hundred_then_the_rest() {
    let mut world = zones(&[("ack", None), ("eci", None)]);
    world.spread(spread(vec![subset("ack", json!(100)), subset("eci", Value::Null)], "Fixed"));
    let mut request = web(80);
    assert_eq!(shares(&world.step(&mut request)), map(&[("ack", 80)]));
    assert_eq!(shares(&world.scale(&mut request, 130)), map(&[("ack", 100), ("eci", 30)]));
    assert_eq!(shares(&world.scale(&mut request, 110)), map(&[("ack", 100), ("eci", 10)]));
    assert_eq!(shares(&world.scale(&mut request, 90)), map(&[("ack", 90)]));
}

#[test]
fn two_zones_of_a_hundred() {
    let mut world = zones(&[("a", None), ("b", None)]);
    world.spread(spread(vec![subset("a", json!(100)), subset("b", json!(100))], "Fixed"));
    let decision = world.decide(&web(200));
    assert_eq!(shares(&decision), map(&[("a", 100), ("b", 100)]));
    let decision = world.decide(&web(203));
    assert_eq!(decision.pending_replicas(), 3);
    assert!(decision.pending[0].reason.contains("maxReplicas"), "{:?}", decision.pending);
}

/// A running workload with these shares, and limits that were set afterwards.
fn running(shares: &[(&str, i64)], limits: [Value; 3]) -> (World, atoll_scheduler::Request) {
    let mut world = zones(&[("a", None), ("b", None), ("c", None)]);
    let open = vec![subset("a", Value::Null), subset("b", Value::Null), subset("c", Value::Null)];
    world.spread(spread(open, "Adaptive"));
    let mut request = web(shares.iter().map(|(_, n)| n).sum());
    world.step(&mut request);
    let previous = request.previous.as_mut().unwrap();
    previous.clusters = shares.iter().map(|(name, n)| target(name, *n)).collect();
    let [a, b, c] = limits;
    world.spread(spread(vec![subset("a", a), subset("b", b), subset("c", c)], "Adaptive"));
    request.placement.reschedule_on =
        Some(vec![atoll_api::placement::RescheduleOn::ReplicasChange]);
    (world, request)
}

#[test]
fn down_takes_what_is_above_the_limits_then_the_last_subset_first() {
    let limits = || [json!(10), json!(10), Value::Null];
    let (mut world, mut request) = running(&[("a", 10), ("b", 10), ("c", 10)], limits());
    let way =
        [(25, [10, 10, 5]), (20, [10, 10, 0]), (15, [10, 5, 0]), (10, [10, 0, 0]), (4, [4, 0, 0])];
    for (replicas, [a, b, c]) in way {
        let got = shares(&world.scale(&mut request, replicas));
        let want: Vec<_> = [("a", a), ("b", b), ("c", c)].into_iter().filter(|s| s.1 > 0).collect();
        assert_eq!(got, map(&want), "{replicas}");
    }
    let (mut world, mut request) = running(&[("a", 20), ("b", 20), ("c", 20)], limits());
    let way = [
        (55, [20, 15, 20]),
        (50, [20, 10, 20]),
        (45, [15, 10, 20]),
        (40, [10, 10, 20]),
        (30, [10, 10, 10]),
        (20, [10, 10, 0]),
        (12, [10, 2, 0]),
        (10, [10, 0, 0]),
    ];
    for (replicas, [a, b, c]) in way {
        let got = shares(&world.scale(&mut request, replicas));
        let want: Vec<_> = [("a", a), ("b", b), ("c", c)].into_iter().filter(|s| s.1 > 0).collect();
        assert_eq!(got, map(&want), "{replicas}");
    }
}

#[test]
fn percentages_are_divided_by_webster() {
    let thirds =
        || vec![subset("a", json!("33%")), subset("b", json!("33%")), subset("c", json!("34%"))];
    for (replicas, want) in [(10, [3, 3, 4]), (11, [4, 3, 4])] {
        let mut world = zones(&[("a", None), ("b", None), ("c", None)]);
        world.spread(spread(thirds(), "Fixed"));
        let got = shares(&world.decide(&web(replicas)));
        assert_eq!(got, map(&[("a", want[0]), ("b", want[1]), ("c", want[2])]));
    }
    let mut world = zones(&[("a", None), ("b", None)]);
    world.spread(spread(vec![subset("a", json!("70%")), subset("b", Value::Null)], "Fixed"));
    assert_eq!(shares(&world.decide(&web(10))), map(&[("a", 7), ("b", 3)]));
}

#[test]
fn fixed_waits_in_the_subset_and_adaptive_goes_on() {
    let subsets = || vec![subset("a", json!(5)), subset("b", Value::Null)];
    let mut world = zones(&[("a", Some(2)), ("b", None)]);
    world.spread(spread(subsets(), "Fixed"));
    let decision = world.decide(&web(8));
    assert_eq!(shares(&decision), map(&[("a", 2), ("b", 3)]));
    assert_eq!(decision.pending[0].replicas, 3);
    assert!(decision.pending[0].reason.starts_with("subset a"), "{:?}", decision.pending);
    assert_eq!(decision.groups[0].pending, 3);
    let mut world = zones(&[("a", Some(2)), ("b", None)]);
    world.spread(spread(subsets(), "Adaptive"));
    assert_eq!(shares(&world.decide(&web(8))), map(&[("a", 2), ("b", 6)]));
}

#[test]
fn unschedulable_replicas_move_on_and_the_mark_holds_five_minutes() {
    let mut world = zones(&[("a", None), ("b", None)]);
    let spec = || {
        let mut spec = spread(vec![subset("a", json!(10)), subset("b", Value::Null)], "Adaptive");
        spec["scheduleStrategy"]["adaptive"] = json!({"rescheduleCriticalSeconds": 30});
        spec
    };
    world.spread(spec());
    let mut request = web(6);
    assert_eq!(shares(&world.step(&mut request)), map(&[("a", 6)]));
    request.reports.insert("a".into(), report(2, "2026-08-21T11:59:45Z"));
    let decision = world.decide(&request);
    assert_eq!(decision.trigger(), Trigger::Avoid, "15 seconds are not too long");
    let due = decision.waits_for().iter().find_map(atoll_scheduler::WakeCondition::due);
    assert_eq!(due, Some("2026-08-21T12:00:15Z".parse().unwrap()));
    request.reports.insert("a".into(), report(2, "2026-08-21T11:59:30Z"));
    let decision = world.step(&mut request);
    assert_eq!(decision.trigger(), Trigger::Overflow);
    assert_eq!(shares(&decision), map(&[("a", 4), ("b", 2)]));
    assert_eq!(decision.groups[0].unschedulable_since, Some(now()));
    // The subset is marked: further replicas go to b, although a reports room.
    request.reports.clear();
    let marked = json!({"subsets": [{"name": "a", "replicas": 4, "unschedulableSince": "2026-08-21T12:00:00Z"}]});
    world.spread_with_status(spec(), marked);
    request.now = "2026-08-21T12:04:00Z".parse().unwrap();
    assert_eq!(shares(&world.scale(&mut request, 8)), map(&[("a", 4), ("b", 4)]));
    request.now = "2026-08-21T12:05:00Z".parse().unwrap();
    request.previous.as_mut().unwrap().eviction_tasks.clear();
    assert_eq!(shares(&world.scale(&mut request, 10)), map(&[("a", 6), ("b", 4)]));
    // Moving back requires permission.
    assert_eq!(world.decide(&request).trigger(), Trigger::Avoid);
    request.placement.reschedule_on = Some(vec![atoll_api::placement::RescheduleOn::Recovery]);
    let decision = world.step(&mut request);
    assert_eq!(decision.trigger(), Trigger::Recover);
    assert_eq!(shares(&decision), map(&[("a", 10)]));
}

#[test]
fn edits_move_only_the_surplus() {
    let order = |a: i64, turned: bool| {
        let mut subsets = vec![subset("a", json!(a)), subset("b", json!(20))];
        if turned {
            subsets.reverse();
        }
        spread(subsets, "Fixed")
    };
    for (edit, want) in [
        (order(10, false), [10, 2]),
        (order(10, true), [10, 2]),
        (order(15, false), [10, 2]),
        (order(6, false), [6, 6]),
    ] {
        let mut world = zones(&[("a", None), ("b", None)]);
        world.spread(order(10, false));
        let mut request = web(12);
        world.step(&mut request);
        world.spread(edit);
        world.step(&mut request);
        let now = &request.previous.as_ref().unwrap().clusters;
        let now: Vec<_> = now.iter().map(|share| share.replicas).collect();
        assert_eq!(now, want);
    }
}

#[test]
fn preferred_clusters_and_tolerations_of_a_subset() {
    let mut world = World::new([
        cluster("a1", &[("zone", "a")], Some(3)),
        cluster("a2", &[("zone", "a"), ("arch", "arm")], Some(3)),
    ]);
    world.taint("a1", "NoSchedule");
    let mut wanted = subset("a", Value::Null);
    wanted["preferredClusterSelectors"] =
        json!([{"weight": 1, "preference": {"matchLabels": {"arch": "arm"}}}]);
    world.spread(spread(vec![wanted.clone()], "Adaptive"));
    let decision = world.decide(&web(4));
    assert_eq!(shares(&decision), map(&[("a2", 3)]));
    wanted["tolerations"] = json!([{"key": "test", "operator": "Exists"}]);
    world.spread(spread(vec![wanted], "Adaptive"));
    assert_eq!(shares(&world.decide(&web(4))), map(&[("a1", 1), ("a2", 3)]));
}

#[test]
fn a_stateful_set_grows_and_shrinks_at_its_end() {
    let mut world = zones(&[("a", Some(2)), ("b", None)]);
    let mut spec = spread(vec![subset("a", json!(3)), subset("b", Value::Null)], "Adaptive");
    spec["targetRef"]["kind"] = json!("StatefulSet");
    world.spread(spec);
    let mut request = web(4);
    request.template.kind = "StatefulSet".into();
    assert_eq!(shares(&world.step(&mut request)), map(&[("a", 2), ("b", 2)]));
    world.room("a", 10);
    assert_eq!(shares(&world.scale(&mut request, 5)), map(&[("a", 2), ("b", 3)]));
    assert_eq!(shares(&world.scale(&mut request, 2)), map(&[("a", 2)]));
}

#[test]
fn a_job_is_divided_once_and_finished_work_is_not_repeated() {
    let mut world = zones(&[("a", None), ("b", None), ("c", None)]);
    let mut spec = spread(
        vec![subset("a", json!(4)), subset("b", json!(4)), subset("c", Value::Null)],
        "Adaptive",
    );
    spec["targetRef"] = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "web"});
    world.spread(spec);
    let mut request = web(6);
    request.template.kind = "Job".into();
    request.template.api_version = "batch/v1".into();
    assert_eq!(shares(&world.step(&mut request)), map(&[("a", 4), ("b", 2)]));
    world.taint("a", "NoExecute");
    request
        .reports
        .insert("a".into(), atoll_scheduler::Report { succeeded: 3, ..Default::default() });
    let decision = world.step(&mut request);
    assert_eq!(decision.trigger(), Trigger::Failover);
    assert_eq!(shares(&decision), map(&[("b", 2), ("c", 1)]));
}

#[test]
fn mistakes_are_refused_by_field() {
    let bad = [
        (spread(vec![subset("a", json!(1)), subset("a", Value::Null)], "Fixed"), "subsets[1].name"),
        (spread(vec![subset("a", json!("60%")), subset("b", json!("60%"))], "Fixed"), "120%"),
        (spread(vec![subset("a", json!("60%")), subset("b", json!(1))], "Fixed"), "not both"),
        (
            spread(vec![subset("a", json!("60%")), subset("b", json!("20%"))], "Fixed"),
            "exactly one",
        ),
        (spread(vec![subset("a", Value::Null), subset("b", json!(1))], "Fixed"), "last subset"),
        (spread(vec![subset("a", json!(1)), subset("b", json!(1))], "Adaptive"), "last subset"),
        (spread(vec![subset("a", json!(-1))], "Fixed"), "maxReplicas"),
    ];
    for (spec, what) in bad {
        let mut world = zones(&[("a", None), ("b", None)]);
        world.spread(spec);
        let decision = world.decide(&web(3));
        assert_eq!(decision.outcome(), Outcome::Invalid);
        assert!(decision.reason.contains(what), "{}", decision.reason);
    }
}

#[test]
fn a_spread_shadows_a_policy() {
    let mut world = zones(&[("a", None), ("b", None)]);
    world.spread(spread(vec![subset("a", Value::Null)], "Fixed"));
    let mut request = web(3);
    request.template.workload_policy = Some("policy".into());
    let decision = world.decide(&request);
    assert_eq!(shares(&decision), map(&[("a", 3)]));
    assert!(decision.notes.iter().any(|note| note.contains("shadowed")), "{:?}", decision.notes);
}

#[test]
fn the_tolerations_of_a_subset_count_for_scores_too() {
    let zone = [("zone", "ack")];
    let mut world = World::new(["a", "b"].map(|name| cluster(name, &zone, None)));
    world.taint("a", "PreferNoSchedule");
    let score = |world: &mut World, subset: Value| {
        world.spread(spread(vec![subset], "Fixed"));
        let decision = world.decide(&web(1));
        let (verdict, at) = decision.verdict("a").unwrap();
        verdict.scores["TaintToleration"].get(at).unwrap()
    };
    let mut tolerant = subset("ack", Value::Null);
    assert_eq!(score(&mut world, tolerant.clone()), 0);
    tolerant["tolerations"] = json!([{"key": "test", "operator": "Exists"}]);
    assert_eq!(score(&mut world, tolerant), 100);
}

/// The example of OpenKruise's documentation, with Atoll's group.
fn kruise(strategy: &str) -> Value {
    let node = |zone: &str| json!({"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]});
    let preferred = json!([{"weight": 1, "preference": {"matchExpressions": [
        {"key": "another-node-label-key", "operator": "In", "values": ["another-node-label-value"]}]}}]);
    json!({
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "subsets": [
            {"name": "subset-a", "requiredNodeSelectorTerm": node("zone-a"), "preferredNodeSelectorTerms": preferred,
                "maxReplicas": 3, "tolerations": [], "patch": {"metadata": {"labels": {"xxx-specific-label": "xxx"}}}},
            {"name": "subset-b", "requiredNodeSelectorTerm": node("zone-b")},
        ],
        "scheduleStrategy": {"type": strategy, "adaptive": {"rescheduleCriticalSeconds": 30}},
    })
}

#[test]
fn subsets_of_nodes_share_their_clusters_and_one_limit() {
    for strategy in ["Fixed", "Adaptive"] {
        let mut world = World::new([cluster("m1", &[], Some(9)), cluster("m2", &[], Some(9))]);
        world.spread(kruise(strategy));
        let mut request = workload("web", 8, json!({}));
        let decision = world.step(&mut request);
        assert_eq!((decision.outcome(), placed(&decision)), (Outcome::Placed, 8), "{strategy}");
        assert_eq!(shares(&decision), map(&[("m1", 4), ("m2", 4)]));
        // The last subset has no cluster of its own, so that replicas that do not fit are not moved to it.
        request.reports.insert("m1".into(), report(1, "2026-08-21T11:00:00Z"));
        assert_eq!(world.decide(&request).trigger(), Trigger::Avoid, "{strategy}");
    }
    // The limits of both add up.
    let mut world = World::new([cluster("m1", &[], Some(90)), cluster("m2", &[], Some(90))]);
    let mut limited = kruise("Fixed");
    limited["subsets"][1]["maxReplicas"] = json!(4);
    world.spread(limited);
    let decision = world.decide(&workload("web", 8, json!({})));
    assert_eq!((placed(&decision), decision.pending_replicas()), (7, 1));
}

#[test]
fn mistakes_in_selectors_of_nodes_name_the_field() {
    let mut world = World::new([cluster("m1", &[], Some(9))]);
    let term = |operator: &str| json!({"matchExpressions": [{"key": "k", "operator": operator}]});
    for (at, field, value, path) in [
        (0, "requiredNodeSelectorTerm", json!({}), "requiredNodeSelectorTerm"),
        (0, "requiredNodeSelectorTerm", term("Is"), "requiredNodeSelectorTerm.matchExpressions[0]"),
        (
            0,
            "requiredNodeSelectorTerm",
            json!({"matchFields": [{"key": "spec.unschedulable", "operator": "In", "values": ["true"]}]}),
            "requiredNodeSelectorTerm.matchFields[0]",
        ),
        (
            1,
            "preferredNodeSelectorTerms",
            json!([{"weight": 101, "preference": term("Exists")}]),
            "preferredNodeSelectorTerms[0].weight",
        ),
        (1, "patch", json!({"metadata": {"labels": {"a": "b"}}}), "patch"),
    ] {
        let mut spec = kruise("Fixed");
        spec["subsets"][at][field] = value;
        world.spread(spec);
        let decision = world.decide(&workload("web", 2, json!({})));
        assert_eq!(decision.outcome(), Outcome::Invalid);
        let start = format!("WorkloadSpread spec.subsets[{at}].{path}: ");
        assert!(decision.reason.starts_with(&start), "{start}: {}", decision.reason);
    }
}
