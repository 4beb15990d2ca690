//! What counts as a change by people, and how plans are made of changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_api::binding::{DecisionRecord, ResourceBindingSpec, TargetCluster, Trigger};
use atoll_api::placement::Placement;
use atoll_decision::Decision;
use serde_json::{Value, json};

use super::change::{self, plan_id};
use crate::index::rows::Binding;
use crate::index::{Index, Source};

fn shares(of: &[(&str, i64)]) -> Vec<TargetCluster> {
    let share = |(name, replicas): &(&str, i64)| TargetCluster {
        name: (*name).to_owned(),
        replicas: *replicas,
    };
    of.iter().map(share).collect()
}

fn record(trigger: Trigger, desired: i64) -> Value {
    json!({"id": "a", "trigger": trigger, "mode": "Steady", "outcome": "Placed", "desired": desired,
        "at": "2026-01-01T00:00:00Z"})
}

fn binding(before: &[(&str, i64)], desired: i64) -> Binding {
    let last: DecisionRecord = serde_json::from_value(record(Trigger::First, desired)).unwrap();
    let spec = ResourceBindingSpec {
        clusters: shares(before),
        decision: Some(last),
        ..ResourceBindingSpec::default()
    };
    let object = json!({"metadata": {"name": "web-deployment", "namespace": "shop", "uid": "u"}, "spec": spec});
    Binding::read(&object).unwrap()
}

fn decision(trigger: Trigger, desired: Option<i64>, after: &[(&str, i64)]) -> Decision {
    let object = json!({
        "id": "b", "binding": {"namespace": "shop", "name": "web-deployment"},
        "template": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "profile": "default", "trigger": trigger, "mode": "Steady", "outcome": "Placed", "strategy": "",
        "desired": desired, "verdicts": [], "snapshot": 1, "now": "2026-01-01T00:00:01Z",
        "appliedPlacement": {},
    });
    let mut decision: Decision = serde_json::from_value(object).unwrap();
    decision.after = shares(after).into();
    decision
}

/// Members `a`, `b` and `c`; `c` is cordoned.
fn index() -> Index {
    let mut index = Index::default();
    for name in ["a", "b", "c"] {
        let taints = match name {
            "c" => json!([{"key": atoll_api::marks::TAINT_CORDONED, "effect": "NoSchedule"}]),
            _ => json!([]),
        };
        let object = json!({"metadata": {"name": name}, "spec": {"taints": taints}});
        index.apply(&Source::Clusters, Arc::new(object));
    }
    index
}

#[test]
fn only_what_people_caused_and_what_leaves_a_member_is_a_change() {
    use Trigger::{ClusterChange, Failover, Rebalance, Reconcile, Scale};
    let index = index();
    // before, trigger, desired, after -> replicas that move.
    type Shares = &'static [(&'static str, i64)];
    let cases: [(Shares, Trigger, i64, Shares, Option<i64>); 12] = [
        (&[("a", 6)], Reconcile, 6, &[("a", 4), ("b", 2)], Some(2)),
        (&[("a", 6)], Reconcile, 6, &[("b", 6)], Some(6)),
        (&[("a", 6)], Failover, 6, &[("b", 6)], None),
        (&[("a", 6)], Scale, 3, &[("a", 3)], None),
        // Only gains, or only fewer replicas in all.
        (&[("a", 6)], Reconcile, 8, &[("a", 6), ("b", 2)], None),
        (&[("a", 4), ("b", 2)], Reconcile, 3, &[("a", 2), ("b", 1)], None),
        // Two of four lost ones have no replacement, because fewer are asked for.
        (&[("a", 6)], Reconcile, 4, &[("a", 2), ("b", 2)], Some(2)),
        // Replicas without a new place leave, too.
        (&[("a", 6)], Reconcile, 6, &[], Some(6)),
        // A rebalance that nobody asked for.
        (&[("a", 6)], Rebalance, 6, &[("b", 6)], None),
        (&[("a", 6)], ClusterChange, 6, &[("b", 6)], Some(6)),
        (&[("c", 6)], ClusterChange, 6, &[("b", 6)], None),
        // All replicas on every member.
        (&[("a", 6), ("b", 6)], Reconcile, 4, &[("a", 4), ("b", 4)], None),
    ];
    for (before, trigger, desired, after, expected) in cases {
        let had: i64 = before.iter().map(|(_, replicas)| replicas).sum();
        let had = if before.len() == 2 && before[0].1 == before[1].1 { before[0].1 } else { had };
        let decision = decision(trigger, Some(desired), after);
        let change =
            change::by_people(&index, &Placement::default(), &binding(before, had), &decision);
        let found = change.map(|change| change.replicas);
        assert_eq!(found, expected, "{before:?} {trigger} {desired} {after:?}");
    }
}

#[test]
fn objects_without_replicas_move_too() {
    let decision = decision(Trigger::Reconcile, None, &[("b", 0)]);
    let binding = binding(&[("a", 0)], 0);
    let change = change::by_people(&index(), &Placement::default(), &binding, &decision).unwrap();
    assert_eq!((change.replicas, change.text.as_str()), (0, "a: there -> -, b: - -> there"));
}

#[test]
fn a_plan_is_named_by_what_leaves_and_who_takes_it() {
    let hash = |after: &[(&str, i64)]| {
        let decision = decision(Trigger::Reconcile, Some(6), after);
        let binding = binding(&[("a", 6)], 6);
        change::by_people(&index(), &Placement::default(), &binding, &decision).unwrap().hash
    };
    let two = [hash(&[("a", 2), ("b", 3), ("c", 1)]), hash(&[("a", 2), ("b", 1), ("c", 3)])];
    assert_eq!(two[0], two[1], "how the room is divided may change until it goes");
    let others = [hash(&[("a", 2), ("b", 4)]), hash(&[("a", 1), ("b", 3), ("c", 2)])];
    let all: BTreeSet<&String> = two.iter().chain(&others).collect();
    assert_eq!(all.len(), 3);
    assert_eq!(plan_id(two.iter()), plan_id(two[..1].iter()));
    assert_eq!(plan_id(others.iter()), plan_id(others.iter().rev()));
    assert_ne!(plan_id(others.iter()), plan_id(two.iter()));
}
