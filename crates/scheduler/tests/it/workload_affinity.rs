//! `placement.workloadAffinity`: where other workloads of the namespace run.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::binding::{Outcome, Trigger};
use atoll_decision::explain::{remedies, render};
use atoll_scheduler::{Decision, Request, WakeCondition};
use serde_json::{Value, json};

use crate::support::*;

fn three() -> World {
    World::new(["a", "b", "c"].map(|name| cluster(name, &[], Some(10))))
}

/// A workload with label `tier`, on one cluster, under these rules.
fn grouped(name: &str, tier: &str, rules: Value) -> Request {
    let mut request = workload(
        name,
        2,
        json!({"workloadAffinity": rules, "spreadConstraints": [{"spreadByField": "cluster", "maxGroups": 1}],
            "replicaScheduling": {}}),
    );
    request.template.labels = BTreeMap::from([("tier".into(), tier.into())]);
    request
}

fn near() -> Value {
    json!({"affinity": {"groupByLabelKey": "tier"}})
}

fn apart() -> Value {
    json!({"antiAffinity": {"groupByLabelKey": "tier"}})
}

fn only(request: &mut Request, clusters: &[&str]) {
    let mut placement = (*request.placement).clone();
    placement.cluster_affinity =
        Some(serde_json::from_value(json!({"clusterNames": clusters})).unwrap());
    request.placement = placement.into();
}

fn on(decision: &Decision) -> Vec<String> {
    shares(decision).into_keys().collect()
}

#[test]
fn workloads_with_affinity_run_where_the_whole_group_runs() {
    let mut world = three();
    let mut first = grouped("first", "front", near());
    only(&mut first, &["b"]);
    assert_eq!(on(&world.step(&mut first)), ["b"], "the first of a group is free");
    let mut second = grouped("second", "front", near());
    assert_eq!(on(&world.step(&mut second)), ["b"]);
    let mut other = grouped("other", "back", near());
    only(&mut other, &["c"]);
    assert_eq!(on(&world.step(&mut other)), ["c"], "another value is another group");
    let mut without = grouped("without", "front", near());
    without.template.labels.clear();
    only(&mut without, &["a"]);
    assert_eq!(on(&world.step(&mut without)), ["a"], "without the label there is no group");

    let mut third = grouped("third", "front", near());
    only(&mut third, &["a", "c"]);
    let refused = world.step(&mut third);
    assert_eq!(refused.outcome(), Outcome::NoFit);
    insta::assert_snapshot!("affinity_refused", render(&refused, 100));
    insta::assert_snapshot!("affinity_remedies", remedies(&refused, "a").join("\n"));
}

#[test]
fn workloads_with_anti_affinity_avoid_the_clusters_of_the_group() {
    let mut world = three();
    let mut used = BTreeSet::new();
    for name in ["one", "two", "three"] {
        let decision = world.step(&mut grouped(name, "db", apart()));
        assert_eq!(decision.outcome(), Outcome::Placed);
        assert_eq!(decision.clusters().len(), 1);
        used.extend(on(&decision));
    }
    assert_eq!(used.len(), 3, "every cluster has one of them");
    let mut fourth = grouped("four", "db", apart());
    let refused = world.step(&mut fourth);
    assert_eq!(refused.outcome(), Outcome::NoFit);
    insta::assert_snapshot!("anti_affinity_refused", render(&refused, 100));
    // A workload that does not name the group neither avoids it nor is avoided.
    let stranger = workload("stranger", 1, json!({}));
    assert_eq!(world.decide(&stranger).clusters().len(), 3);
}

#[test]
fn a_group_that_changes_wakes_the_members_that_wait() {
    let mut world = three();
    let mut first = grouped("first", "db", apart());
    only(&mut first, &["a"]);
    world.step(&mut first);
    let mut second = grouped("second", "db", apart());
    only(&mut second, &["a"]);
    let refused = world.step(&mut second);
    let waits = |change: &atoll_scheduler::TableChange| {
        refused.waits_for().iter().any(|condition| {
            matches!(condition, WakeCondition::AffinityGroupChanges { .. })
                && change.meets(condition)
        })
    };
    let unrelated = world.tables.remove_binding(&grouped("other", "db", apart()).key);
    assert!(!unrelated.iter().any(waits));
    let gone = world.tables.remove_binding(&first.key);
    assert!(gone.iter().any(waits), "{gone:?}");
    let placed = world.step(&mut second);
    assert_eq!((placed.trigger(), on(&placed)), (Trigger::First, vec!["a".to_owned()]));
}

#[test]
fn a_group_that_changes_later_is_reported_and_moves_nothing_until_a_rebalance() {
    let mut world = three();
    let mut first = grouped("first", "front", near());
    only(&mut first, &["a"]);
    world.step(&mut first);
    let mut second = grouped("second", "front", near());
    world.step(&mut second);
    assert_eq!(world.tables.affinity_violations(&second.key), Some(Vec::new()));
    // The policy of the first workload now says b.
    only(&mut first, &["b"]);
    first.placement.spread_constraints.clear();
    let mut alone = first.clone();
    let mut placement = (*alone.placement).clone();
    placement.workload_affinity = None;
    alone.placement = placement.into();
    assert_eq!(on(&world.step(&mut alone)), ["b"]);
    // Named by its policy again, it is a member on b.
    first.previous = alone.previous;
    world.step(&mut first);
    let violations = world.tables.affinity_violations(&second.key).unwrap();
    assert_eq!(
        violations[0].to_string(),
        "default/first-deployment of group tier=front does not run on a"
    );
    let still = world.step(&mut second);
    assert_eq!((still.trigger(), on(&still)), (Trigger::Avoid, vec!["a".to_owned()]));
    let grown = world.scale(&mut second, 3);
    assert!(grown.notes.iter().any(|note| note.contains("is violated")), "{:?}", grown.notes);
    second.previous.as_mut().unwrap().reschedule_triggered_at =
        Some("2026-08-21T13:00:00Z".parse().unwrap());
    assert_eq!(on(&world.step(&mut second)), ["b"], "a rebalance applies the rule again");
    assert_eq!(world.tables.affinity_violations(&second.key), Some(Vec::new()));
}

#[test]
fn a_group_that_fails_over_does_not_wait_for_itself() {
    let mut world = three();
    let mut all: Vec<Request> =
        ["one", "two", "three"].map(|name| grouped(name, "front", near())).into();
    for request in &mut all {
        world.step(request);
    }
    let home = all[0].previous.as_ref().unwrap().clusters[0].name.clone();
    world.taint(&home, "NoExecute");
    let moved: BTreeSet<Vec<String>> =
        all.iter_mut().map(|request| on(&world.step(request))).collect();
    assert_eq!(moved.len(), 1, "they are together again: {moved:?}");
    assert!(!moved.iter().flatten().any(|name| *name == home));
}

#[test]
fn preferences_choose_among_clusters_and_bind_nobody() {
    let mut world = three();
    let mut first = grouped("first", "front", near());
    only(&mut first, &["c"]);
    world.step(&mut first);
    let prefer = |side: &str, weight: i64| json!({"preferred": [{"weight": weight, side: {"groupByLabelKey": "tier"}}]});
    // Only members that name the group on the same side count.
    let second = grouped("second", "front", prefer("affinity", 10));
    let decision = world.decide(&second);
    assert_eq!(on(&decision), ["c"]);
    insta::assert_snapshot!("preferred", render(&decision, 100));
    let mut avoided = grouped("avoided", "db", apart());
    only(&mut avoided, &["a"]);
    world.step(&mut avoided);
    // Those that only prefer the group spread over all clusters, the first two away from the strict member.
    let mut away =
        |name| on(&world.step(&mut grouped(name, "db", prefer("antiAffinity", 1)))).remove(0);
    let homes = ["two", "three"].map(&mut away);
    assert_eq!(BTreeSet::from(homes), BTreeSet::from(["b".to_owned(), "c".to_owned()]));
    // They do not bind a workload that requires anti-affinity: only the strict member does.
    let mut strict = grouped("strict", "db", apart());
    only(&mut strict, &["b", "c"]);
    assert_eq!(world.step(&mut strict).outcome(), Outcome::Placed);
}

/// The first division as well as later ones.
#[test]
fn preferences_decide_where_a_division_has_no_other_reason() {
    let mut world = three();
    let mut first = grouped("first", "front", near());
    only(&mut first, &["c"]);
    world.step(&mut first);
    let rules = json!({"preferred": [{"weight": 1, "affinity": {"groupByLabelKey": "tier"}}]});
    for number in 0..8 {
        let mut request = grouped(&format!("web{number}"), "front", rules.clone());
        request.placement.spread_constraints = Vec::new();
        request.template.replicas = Some(4);
        assert_eq!(shares(&world.step(&mut request)), map(&[("a", 1), ("b", 1), ("c", 2)]));
        let later = world.scale(&mut request, 7);
        assert_eq!(shares(&later), map(&[("a", 2), ("b", 2), ("c", 3)]));
        world.tables.remove_binding(&request.key);
    }
}

#[test]
fn mistakes_name_the_field() {
    let mut world = three();
    for (rules, field) in [
        (
            json!({"affinity": {"groupByLabelKey": "a b"}}),
            "placement.workloadAffinity.affinity.groupByLabelKey: ",
        ),
        (
            json!({"affinity": {"groupByLabelKey": "x"}, "antiAffinity": {"groupByLabelKey": "x"}}),
            "placement.workloadAffinity.antiAffinity: ",
        ),
        (json!({"preferred": [{"weight": 0}]}), "placement.workloadAffinity.preferred[0].weight: "),
        (json!({"preferred": [{"weight": 1}]}), "placement.workloadAffinity.preferred[0]: "),
    ] {
        let decision = world.decide(&grouped("web", "front", rules));
        assert_eq!(decision.outcome(), Outcome::Invalid);
        assert!(decision.reason.starts_with(field), "{}", decision.reason);
    }
}

/// Random groups that are placed, scaled, moved, relabelled and removed. The linter checks every decision against the
/// bindings one by one; here the index is compared with an index made anew.
#[test]
fn the_index_of_groups_is_exact_after_any_history() {
    for seed in 0..60 {
        let mut random = Random(seed);
        let mut world = World::new((0..4).map(|n| cluster(&format!("m{n}"), &[], Some(6))));
        let rules = [
            near(),
            apart(),
            json!({"preferred": [{"weight": 3, "antiAffinity": {"groupByLabelKey": "tier"}}]}),
        ];
        let mut all: Vec<Request> = (0..6)
            .map(|n| {
                let tier = if random.chance(50) { "x" } else { "y" };
                grouped(&format!("w{n}"), tier, random.pick(&rules).clone())
            })
            .collect();
        for _ in 0..30 {
            let at = random.below(6) as usize;
            match random.below(6) {
                0 => {
                    world.tables.remove_binding(&all[at].key);
                    all[at].previous = None;
                    continue;
                }
                1 => {
                    let tier = *random.pick(&["x", "y", "z"]);
                    all[at].template.labels.insert("tier".into(), tier.into());
                }
                2 => {
                    let name = format!("m{}", random.below(4));
                    if world.clusters[&name].spec.taints.is_empty() {
                        world.taint(&name, "NoExecute");
                    } else {
                        world.edit(&name, |cluster| cluster.spec.taints.clear());
                    }
                }
                _ => all[at].template.replicas = Some(random.below(5) as i64),
            }
            world.step(&mut all[at]);
        }
        let mut fresh = World::new(world.clusters.values().cloned());
        let snapshot = world.tables.snapshot();
        for facts in snapshot.bindings("default") {
            fresh.tables.upsert_binding((**facts).clone());
        }
        for request in &all {
            assert_eq!(
                world.tables.affinity_violations(&request.key),
                fresh.tables.affinity_violations(&request.key),
                "seed {seed}"
            );
            let probe = Request { previous: None, ..request.clone() };
            let (old, new) = (world.decide(&probe), fresh.decide(&probe));
            assert_eq!((shares(&old), &old.reason), (shares(&new), &new.reason), "seed {seed}");
        }
    }
}

#[test]
fn workloads_with_affinity_leave_a_cluster_outside_their_cluster_sets_together() {
    let team = |name, team| cluster(name, &[("team", team)], Some(10));
    let mut world = World::new([team("a", "shop"), team("b", "bank"), team("c", "bank")]);
    let (mut first, mut second) =
        (grouped("first", "front", near()), grouped("second", "front", near()));
    only(&mut first, &["a"]);
    assert_eq!(on(&world.step(&mut first)), ["a"]);
    assert_eq!(on(&world.step(&mut second)), ["a"]);
    first.placement = second.placement.clone();
    world.cluster_sets(&[("bank", json!({}), json!({"matchLabels": {"team": "bank"}}))]);
    let moved = on(&world.step(&mut first));
    assert_ne!(moved, ["a"], "the other workload does not hold it there");
    assert_eq!(on(&world.step(&mut second)), moved);
}
