//! Each check finds its violation: hand-made states with one error each.

use atoll_api::Clock;
use jiff::Timestamp;
use serde_json::json;

use super::*;

fn binding(
    clusters: Value,
    tasks: Value,
    pending: i64,
    id: &str,
    parent: &str,
    term: i64,
) -> Value {
    json!({
        "kind": "ResourceBinding", "metadata": {"uid": "b"},
        "spec": {
            "replicas": 9, "clusters": clusters, "gracefulEvictionTasks": tasks,
            "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}},
            "decision": {
                "id": id, "parent": parent, "term": term, "desired": 9,
                "pending": [{"replicas": pending, "reason": "no room"}],
            },
        },
    })
}

fn found(ledger: &Ledger, site: &str, before: &Value, object: &Value) -> String {
    let mut view = View::default();
    if site != HUB {
        view.set(site, kinds::DEPLOYMENT, "d/x", object.clone());
        view.set(site, kinds::DEPLOYMENT, "d/y", before.clone());
    }
    broken(&view, ledger, site, before, object).join("; ")
}

#[test]
fn preemption_of_equal_priority_and_room_that_is_kept_are_found() {
    let ledger = Ledger::new(Clock::from_fn(|| Timestamp::UNIX_EPOCH));
    let of = |name: &str, priority: i64, shares: i64, spec: Value| {
        let mut binding =
            binding(json!([{"name": "a", "replicas": shares}]), json!([]), 9 - shares, "2", "1", 2);
        binding["metadata"] = json!({"uid": name, "namespace": "d", "name": name});
        binding["spec"]["schedulePriority"] = json!({"priority": priority});
        binding["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        binding
    };
    let takes = json!({"preempts": [{"decision": "2", "namespace": "d", "name": "low", "priority": 1,
        "cluster": "a", "replicas": 3, "remaining": 6}]});
    let low = of("low", 1, 9, json!({}));
    let by = |priority| {
        let mut view = View::default();
        view.set(HUB, kinds::RESOURCE_BINDING, "d/low", low.clone());
        let high = of("high", priority, 3, takes.clone());
        view.set(HUB, kinds::RESOURCE_BINDING, "d/high", high.clone());
        (broken(&view, &ledger, HUB, &Value::Null, &high).join("; "), view)
    };
    assert_eq!(by(2).0, "");
    assert!(by(1).0.contains("preemption"));
    let follows = |shares: i64| {
        let mut after = of("low", 1, shares, json!({"preemptedBy": ["2"]}));
        after["spec"]["decision"]["id"] = json!("3");
        after["spec"]["decision"]["parent"] = json!("2");
        after["spec"]["decision"]["trigger"] = json!("Preempted");
        broken(&by(2).1, &ledger, HUB, &low, &after).join("; ")
    };
    assert_eq!(follows(6), "");
    assert!(follows(7).contains("preemption"));
    assert!(follows(9).contains("preemption"));
}

#[test]
fn every_invariant_can_be_broken() {
    let ledger = Ledger::new(Clock::from_fn(|| Timestamp::UNIX_EPOCH));
    let (five, four) = (json!({"name": "a", "replicas": 5}), json!({"name": "b", "replicas": 4}));
    let both = || json!([five, four]);
    let first = binding(both(), json!([]), 0, "1", "", 2);
    let hub = |object: &Value| found(&ledger, HUB, &first, object);
    assert_eq!(found(&ledger, HUB, &Value::Null, &first), "");
    assert_eq!(hub(&binding(json!([five]), json!([]), 4, "2", "1", 2)), "");
    assert!(hub(&binding(json!([five]), json!([]), 3, "2", "1", 2)).contains("I1"));
    assert!(hub(&binding(json!([five, five]), json!([]), 4, "2", "1", 2)).contains("I2"));
    let task = |replicas: i64| json!([{"fromCluster": "a", "replicas": replicas, "keep": true}]);
    assert_eq!(hub(&binding(both(), task(1), 0, "2", "1", 2)), "");
    assert!(hub(&binding(both(), task(0), 0, "2", "1", 2)).contains("I2"));
    assert!(hub(&binding(both(), json!([]), 0, "2", "1", 1)).contains("I3"));
    assert!(hub(&binding(both(), json!([]), 0, "2", "0", 2)).contains("I10"));
    let mut duplicated = first.clone();
    duplicated["spec"]["placement"] = Value::Null;
    assert!(hub(&duplicated).contains("I1"));
    // A quota holds up the growth of copies, all of which is pending then.
    let over_quota = |pending: i64, first: i64| {
        let both = json!([{"name": "a", "replicas": first}, {"name": "b", "replicas": 4}]);
        let mut binding = binding(both, json!([]), pending, "2", "1", 2);
        binding["spec"]["placement"] = Value::Null;
        binding["spec"]["decision"]["pending"][0]["reason"] = json!("QuotaExceeded: cpu");
        hub(&binding)
    };
    assert_eq!(over_quota(9, 5), "");
    assert!(over_quota(8, 5).contains("I1"));
    assert!(over_quota(9, 10).contains("I1"));

    ledger.committed(&first, false);
    let object = |name: &str, claim: &str, replicas: i64| {
        json!({
            "kind": "Deployment", "spec": {"replicas": replicas},
            "metadata": {
                "name": name, "namespace": "d",
                "labels": {marks::MANAGED_BY: marks::MANAGED_BY_VALUE},
                "annotations": {marks::CLAIMS: claim},
            },
        })
    };
    let member = |site: &str, object: &Value| found(&ledger, site, &Value::Null, object);
    assert_eq!(member("a", &object("x", "b", 5)), "");
    assert!(member("c", &object("x", "b", 5)).contains("I4"));
    assert!(member("a", &object("x", "other", 5)).contains("I4"));
    assert!(member("a", &object("x", "", 5)).contains("I4"));
    let twice = found(&ledger, "a", &object("y", "b", 5), &object("x", "b", 5));
    assert!(twice.contains("I2"), "{twice}");

    ledger.claimed("a", &object("x", "b", 5));
    assert_eq!(ledger.violations(), Vec::<String>::new());
    ledger.claimed("a", &object("x", "b", 6));
    ledger.claimed("c", &object("x", "b", 5));
    let violations = ledger.violations();
    assert!(violations.len() == 2 && violations.iter().all(|text| text.contains("I5")));

    let deleted = |ledger: &Ledger, member: &str| {
        let before = ledger.violations().len();
        ledger.deleting(member, &object("x", "b", 5));
        ledger.violations()[before..].concat()
    };
    assert!(deleted(&ledger, "a").contains("I12"));
    ledger.committed(&binding(json!([four]), json!([]), 5, "2", "1", 2), false);
    assert_eq!(deleted(&ledger, "a"), "", "the share on a has ended");
    assert!(deleted(&ledger, "b").contains("I12"));
    ledger.committed(&first, true);
    assert_eq!(deleted(&ledger, "b"), "", "the binding is gone");
}

#[test]
fn a_term_that_falls_on_a_member_is_found() {
    let ledger = Ledger::new(Clock::from_fn(|| Timestamp::UNIX_EPOCH));
    let lease =
        |term: &str| json!({"kind": "Lease", "metadata": {"annotations": {marks::TERM: term}}});
    let broken = |before: &str, after: &str| {
        broken(&View::default(), &ledger, "a", &lease(before), &lease(after)).concat()
    };
    assert_eq!(broken("3", "4"), "");
    assert_eq!(broken("3", "3"), "");
    assert!(broken("4", "3").contains("I3"));
}

/// A federation that is settled (I9), and every way in which it can fail to be.
#[test]
fn everything_that_is_not_settled_is_found() {
    let binding = |shares: Value, tasks: Value, applied: &str| {
        json!({
            "kind": "ResourceBinding", "metadata": {"uid": "b"},
            "spec": {"clusters": shares, "gracefulEvictionTasks": tasks},
            "status": {"conditions": [{"type": "FullyApplied", "status": applied}]},
        })
    };
    let copy = |claim: &str, replicas: i64| {
        json!({
            "kind": "Deployment", "spec": {"replicas": replicas},
            "metadata": {
                "labels": {marks::MANAGED_BY: marks::MANAGED_BY_VALUE},
                "annotations": {marks::CLAIMS: claim},
            },
        })
    };
    let look = |binding: Value, copies: &[(&str, &str, Value)], dark: bool| {
        let mut view = View::default();
        view.set(HUB, kinds::RESOURCE_BINDING, "d/x", binding);
        view.set("a", kinds::NAMESPACE, "d", json!({}));
        for (member, key, copy) in copies {
            view.set(member, kinds::DEPLOYMENT, key, copy.clone());
        }
        if dark {
            view.power("a", false);
        }
        settled(&view).err().unwrap_or_default()
    };
    let share = || json!([{"name": "a", "replicas": 5}]);
    let well = || binding(share(), json!([]), "True");
    let right = || ("a", "d/x", copy("b", 5));
    assert_eq!(look(well(), &[right()], false), "");
    let task = json!([{"fromCluster": "c"}]);
    assert!(look(binding(share(), task, "True"), &[right()], false).contains("eviction tasks"));
    assert!(look(binding(share(), json!([]), "False"), &[right()], false).contains("not fully"));
    assert!(look(well(), &[], false).contains("lacks its share"));
    assert!(look(well(), &[("a", "d/x", copy("b", 4))], false).contains("4) of 5"));
    let stranger = ("a", "d/y", copy("other", 1));
    assert!(look(well(), &[right(), stranger], false).contains("nobody's"));
    let elsewhere = ("c", "d/x", copy("b", 5));
    assert!(look(well(), &[right(), elsewhere], false).contains("nobody's"));
    assert_eq!(look(well(), &[], true), "", "who has no power lacks nothing");
}
