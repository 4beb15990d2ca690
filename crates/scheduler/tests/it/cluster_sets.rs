//! ClusterSets: no policy reaches beyond them, and work leaves where they shrink.

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_api::binding::{Outcome, Trigger};
use atoll_decision::explain::{remedies, render};
use atoll_scheduler::state::cluster_sets::ClusterSets;
use atoll_scheduler::{BindingKey, Previous, Profiles, Request, TableChange, WakeCondition};
use serde_json::{Value, json};

use crate::support::*;

fn ours() -> Value {
    json!({"matchLabels": {"team": "shop"}})
}

/// `a` and `b` are of the namespace's team, `c` and `d` are not.
fn world() -> World {
    let of = |name, team| cluster(name, &[("team", team), ("name", name)], Some(10));
    let mut world =
        World::new([of("a", "shop"), of("b", "shop"), of("c", "bank"), of("d", "bank")]);
    world.cluster_sets(&[
        ("shop", ours(), ours()),
        ("bank", json!({"matchLabels": {"team": "bank"}}), json!({})),
    ]);
    world
}

fn divided() -> Value {
    json!({"replicaScheduling": {"replicaSchedulingType": "Divided"}})
}

fn names(shares: &std::collections::BTreeMap<String, i64>) -> String {
    shares.keys().cloned().collect()
}

#[test]
fn no_placement_reaches_beyond_the_sets_of_the_namespace() {
    let affinity = |names: Value| json!({"clusterAffinity": {"clusterNames": names}});
    let tolerant = json!({"clusterTolerations": [{"operator": "Exists"}]});
    let terms = json!({"clusterAffinities": [
        {"affinityName": "theirs", "clusterNames": ["c"]}, {"affinityName": "ours", "clusterNames": ["b"]}]});
    let tiers = json!({"clusterAffinities": [{"affinityName": "ours", "clusterNames": ["a"],
        "overflowAffinities": [{"affinityName": "theirs", "clusterNames": ["c"]}]}], "replicaScheduling": divided()["replicaScheduling"]});
    for (placement, expected) in [
        (json!({}), "ab"),
        (divided(), "ab"),
        (tolerant, "ab"),
        (affinity(json!(["a", "c"])), "a"),
        (terms, "b"),
        (tiers, "a"),
    ] {
        for profile in ["default", "karmada"] {
            let mut request = workload("web", 4, placement.clone());
            request.scheduler_name = profile.into();
            let decision = world().decide(&request);
            assert_eq!(names(&shares(&decision)), expected, "{profile}: {placement}");
        }
    }
    let decision = world().decide(&workload("web", 4, affinity(json!(["c", "d"]))));
    assert_eq!(decision.outcome(), Outcome::NoFit);
    // Objects without a namespace are not limited.
    let mut request = workload("web", 4, json!({}));
    request.key = BindingKey::of(None, request.key.name());
    request.template.namespace = None;
    assert_eq!(names(&shares(&world().decide(&request))), "abcd");
}

#[test]
fn no_profile_and_no_other_way_reaches_beyond_the_sets() {
    // A profile without any filter.
    let mut world = world();
    let config = "apiVersion: config.atoll.dev/v1alpha1\nkind: SchedulerConfiguration\nprofiles:\n\
                  - schedulerName: bare\n  plugins: {filter: {disabled: [{name: '*'}]}}\n";
    let config = atoll_scheduler::SchedulerConfiguration::read(config).unwrap();
    world.profiles = Profiles::read(&config).unwrap();
    world.scheduler = atoll_scheduler::Scheduler::new(world.profiles.clone());
    let mut request = workload("web", 4, divided());
    request.scheduler_name = "bare".into();
    assert_eq!(names(&shares(&world.decide(&request))), "ab");

    // A binding written by hand, with shares elsewhere; a rebalance; a sticky placement.
    for (placement, rebalance) in [
        (divided(), false),
        (divided(), true),
        (json!({"sticky": true}), false),
        (json!({"rescheduleOn": []}), false),
        (json!({"clusterAffinity": {"clusterNames": ["a", "c"]}, "sticky": true}), true),
    ] {
        let mut request = workload("web", 4, placement.clone());
        request.previous = Some(Previous {
            clusters: vec![target("a", 2), target("c", 2)],
            last_scheduled_time: Some("2026-08-21T11:00:00Z".parse().unwrap()),
            reschedule_triggered_at: rebalance.then(|| "2026-08-21T11:30:00Z".parse().unwrap()),
            ..Previous::default()
        });
        let decision = world.decide(&request);
        assert!(!shares(&decision).contains_key("c"), "{placement}: {:?}", shares(&decision));
        assert!(decision.evictions().iter().any(|task| task.from_cluster == "c"), "paced");
        let trigger = if rebalance { Trigger::Rebalance } else { Trigger::OutsideClusterSet };
        assert!([trigger, Trigger::Scale].contains(&decision.trigger()), "{placement}");
    }

    // A WorkloadSpread that names a subset outside.
    world.spread(json!({
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "subsets": [
            {"name": "theirs", "maxReplicas": 3, "requiredClusterSelector": {"matchLabels": {"team": "bank"}}},
            {"name": "rest"}],
    }));
    let decision = world.decide(&workload("web", 4, json!({})));
    assert!(shares(&decision).keys().all(|name| "ab".contains(name.as_str())));
}

#[test]
fn work_leaves_where_a_set_shrinks_and_only_there() {
    for placement in [divided(), json!({})] {
        let mut world = world();
        let mut request = workload("web", 4, placement);
        world.step(&mut request);
        let changes =
            world.cluster_sets(&[("shop", ours(), json!({"matchLabels": {"name": "a"}}))]);
        let namespaces = BTreeSet::from(["default".to_owned()]);
        assert_eq!(changes, [TableChange::ClusterSets { namespaces }]);
        let decision = world.step(&mut request);
        assert_eq!(decision.trigger(), Trigger::OutsideClusterSet);
        assert_eq!(
            names(&shares(&decision)),
            "a",
            "Duplicated leaves although no other can take over"
        );
        assert_eq!(decision.evictions()[0].from_cluster, "b");
        insta::assert_snapshot!(
            if decision.evictions()[0].replicas == 4 {
                "duplicated_leaves"
            } else {
                "divided_leaves"
            },
            render(&decision, 100)
        );
        assert_eq!(world.decide(&request).trigger(), Trigger::Avoid, "and stays away");
    }
}

#[test]
fn without_a_place_inside_running_replicas_stay_and_the_reason_is_shown() {
    let mut world = world();
    let mut request = workload("web", 4, divided());
    let before = shares(&world.step(&mut request));
    world.cluster_sets(&[("shop", ours(), json!({"matchLabels": {"name": "none"}}))]);
    let decision = world.step(&mut request);
    assert_eq!((decision.outcome(), shares(&decision)), (Outcome::NoFit, before));
    insta::assert_snapshot!("nothing_inside", render(&decision, 100));
    assert!(remedies(&decision, "c")[0].contains("ClusterSet"), "{:?}", remedies(&decision, "c"));
    let wait = WakeCondition::ClusterSetsChange { namespace: "default".into() };
    assert!(decision.waits_for().contains(&wait));
    let changes = world.cluster_sets(&[("shop", ours(), ours())]);
    assert!(changes.iter().any(|change| change.meets(&wait)));
    // A new workload gets nothing at all.
    world.cluster_sets(&[("shop", ours(), json!({"matchLabels": {"name": "none"}}))]);
    assert_eq!(placed(&world.decide(&workload("new", 1, json!({})))), 0);
}

#[test]
fn missing_information_moves_nothing_and_places_nothing_elsewhere() {
    let invalid = json!({"matchExpressions": [{"key": "team", "operator": "Is", "values": ["x"]}]});
    let unknown: fn(&mut World) = |world| {
        let mut rules = ClusterSets::default();
        rules.upsert("shop", &cluster_set("shop", &ours(), &ours())).unwrap();
        world.tables.set_cluster_sets(Arc::new(rules));
    };
    let broken = move |world: &mut World| {
        world.cluster_sets(&[("shop", invalid.clone(), ours())]);
    };
    let cases: [&dyn Fn(&mut World); 2] = [&unknown, &broken];
    for (case, change) in cases.into_iter().enumerate() {
        for profile in ["default", "karmada"] {
            let mut world = world();
            let mut request = workload("web", 4, divided());
            request.scheduler_name = profile.into();
            let before = shares(&world.step(&mut request));
            change(&mut world);
            let decision = world.step(&mut request);
            assert_eq!(shares(&decision), before, "case {case}, {profile}");
            let fresh = Request { previous: None, ..workload("new", 1, divided()) };
            assert_eq!(placed(&world.decide(&fresh)), 0, "case {case}");
        }
    }
}

#[test]
fn a_namespace_that_no_set_selects_may_use_all_or_none() {
    for (required, expected) in [(false, "abcd"), (true, "")] {
        let mut world = world();
        let mut rules = ClusterSets::default();
        rules.require(required);
        rules.set_namespace("default", Some([].into()));
        rules.upsert("shop", &cluster_set("shop", &ours(), &ours())).unwrap();
        world.tables.set_cluster_sets(Arc::new(rules));
        let decision = world.decide(&workload("web", 1, json!({})));
        assert_eq!(names(&shares(&decision)), expected);
        if required {
            insta::assert_snapshot!("none_selects", render(&decision, 100));
        }
    }
}

#[test]
fn several_sets_add_up_and_random_sets_are_never_left() {
    let mut random = Random(16);
    for _ in 0..200 {
        let clusters: Vec<_> = (0..8)
            .map(|n| cluster(&format!("m{n}"), &[("zone", &format!("z{}", n % 4))], Some(20)))
            .collect();
        let mut world = World::new(clusters);
        let mut request = workload("web", 5, if random.chance(50) { divided() } else { json!({}) });
        for _ in 0..4 {
            let zones: BTreeSet<String> =
                (0..=random.below(2)).map(|_| format!("z{}", random.below(4))).collect();
            let sets: Vec<(String, Value)> = zones
                .iter()
                .map(|zone| (zone.clone(), json!({"matchLabels": {"zone": zone}})))
                .collect();
            let sets: Vec<(&str, Value, Value)> = sets
                .iter()
                .map(|(name, selector)| (name.as_str(), json!({}), selector.clone()))
                .collect();
            world.cluster_sets(&sets);
            request.template.replicas = Some(1 + random.below(9) as i64);
            // `decide` also checks with the linter that no share is outside.
            let decision = world.step(&mut request);
            let inside = |name: &String| {
                let labels = world.clusters[name].metadata.labels.as_ref().unwrap();
                zones.contains(&labels["zone"])
            };
            assert!(shares(&decision).keys().all(inside), "{zones:?}: {:?}", shares(&decision));
            request.previous.as_mut().unwrap().eviction_tasks.clear();
        }
    }
}
