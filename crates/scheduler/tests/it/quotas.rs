//! FederatedResourceQuotas: no decision increases the use beyond one, and none keeps running work from moving. The linter
//! checks the use of every decision on its own.

use std::collections::BTreeMap;

use atoll_api::binding::{Component, Outcome, ReplicaRequirements, Trigger};
use atoll_api::quantity::Quantity;
use atoll_decision::explain::render;
use atoll_scheduler::{BindingKey, Request, TableChange, WakeCondition};
use serde_json::{Value, json};

use crate::support::*;

fn world(names: &str) -> World {
    World::new(names.split(' ').map(|name| cluster(name, &[("name", name)], Some(100))))
}

fn divided() -> Value {
    json!({"replicaScheduling": {"replicaSchedulingType": "Divided",
        "weightPreference": {"dynamicWeight": "AvailableReplicas"}}})
}

fn requests(resources: Value) -> Option<ReplicaRequirements> {
    Some(serde_json::from_value(json!({"resourceRequest": resources})).unwrap())
}

/// A workload with 500m CPU for each replica.
fn half(name: &str, replicas: i64, placement: Value) -> Request {
    let mut request = workload(name, replicas, placement);
    request.template.requirements = requests(json!({"cpu": "500m"})).map(Into::into);
    request
}

/// Clusters with plenty of CPU, so that only quotas limit.
fn roomy(names: &str) -> World {
    let mut world = world(names);
    for name in names.split(' ') {
        world.edit(name, |cluster| {
            let summary = cluster.status.as_mut().unwrap().resource_summary.as_mut().unwrap();
            for resource in ["cpu", "memory", "nvidia.com/gpu"] {
                summary.allocatable.insert(resource.into(), Quantity::new("1000Gi"));
            }
        });
    }
    world
}

fn wakes(changes: &[TableChange], waits_for: &[WakeCondition]) -> bool {
    let quota = |wait: &&WakeCondition| matches!(wait, WakeCondition::QuotaFrees { .. });
    waits_for.iter().filter(quota).any(|wait| changes.iter().any(|change| change.meets(wait)))
}

#[test]
fn divided_replicas_are_placed_up_to_the_quota_and_the_rest_names_what_is_missing() {
    let mut world = roomy("a b c");
    world.quota("team", json!({"requests.cpu": "2", "memory": "1Gi"}));
    let mut request = half("web", 10, divided());
    let decision = world.step(&mut request);
    assert_eq!((decision.outcome(), placed(&decision)), (Outcome::Partial, 4));
    assert_eq!(decision.pending_replicas(), 6);
    insta::assert_snapshot!("quota_divided", render(&decision, 100));
    assert_eq!(world.decide(&request).trigger(), Trigger::Avoid, "nothing changed");
    let waits_for = decision.waits_for().to_vec();
    assert!(!wakes(&world.quota("team", json!({"cpu": "2100m"})), &waits_for), "too little");
    assert!(wakes(&world.quota("team", json!({"cpu": "3"})), &waits_for));
    let decision = world.step(&mut request);
    assert_eq!((decision.trigger(), placed(&decision)), (Trigger::Retry, 6));
    assert!(wakes(&world.tables.remove_quota("default", "team"), decision.waits_for()));
    assert_eq!(placed(&world.step(&mut request)), 10);
}

#[test]
fn use_that_shrinks_wakes_those_that_wait_and_a_report_of_a_member_does_not() {
    let mut world = roomy("a b");
    world.quota("team", json!({"cpu": "2"}));
    let mut first = half("first", 4, divided());
    world.step(&mut first);
    let mut second = half("second", 2, divided());
    let decision = world.step(&mut second);
    assert_eq!((decision.outcome(), placed(&decision)), (Outcome::Unschedulable, 0));
    insta::assert_snapshot!("quota_used_up", render(&decision, 100));
    let waits_for = decision.waits_for().to_vec();
    let mut facts = (**world.tables.snapshot().binding(&first.key).unwrap()).clone();
    facts.reported = [("a".into(), 2)].into_iter().collect();
    assert!(!wakes(&world.tables.upsert_binding(facts.clone()), &waits_for));
    facts.shares[0].replicas -= 1;
    assert!(wakes(&world.tables.upsert_binding(facts), &waits_for));
    assert_eq!(placed(&world.step(&mut second)), 1);
    assert!(wakes(&world.tables.remove_binding(&first.key), &waits_for));
    assert_eq!(placed(&world.step(&mut second)), 2);
}

#[test]
fn all_quotas_of_a_namespace_hold_and_other_namespaces_are_not_limited() {
    let mut world = roomy("a b");
    world.quota("wide", json!({"cpu": "5", "pods": "3"}));
    world.quota("narrow", json!({"cpu": "4"}));
    let decision = world.decide(&half("web", 10, divided()));
    assert_eq!(placed(&decision), 3, "pods of the wide one");
    assert!(decision.reason.contains("wide has 0 of 3 pods left"), "{}", decision.reason);
    // Without requests only pods count.
    assert_eq!(placed(&world.decide(&workload("plain", 10, divided()))), 3);
    world.quota("wide", json!({"cpu": "5"}));
    assert_eq!(placed(&world.decide(&half("web", 10, divided()))), 8, "the narrow one");
    assert_eq!(placed(&world.decide(&workload("plain", 10, divided()))), 10);
    let mut other = half("web", 10, divided());
    other.key = BindingKey::new("other", other.key.name());
    other.template.namespace = Some("other".into());
    assert_eq!(placed(&world.decide(&other)), 10);
}

#[test]
fn a_failover_under_a_quota_below_the_use_moves_everything_and_grows_nothing() {
    let failing: [Value; 4] = [
        divided(),
        json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "insufficientCapacity": "Refuse"}}),
        json!({"clusterAffinity": {"clusterNames": ["a", "b", "c"]},
            "spreadConstraints": [{"spreadByField": "cluster", "maxGroups": 2}]}),
        json!({"spreadConstraints": [{"spreadByField": "cluster", "maxGroups": 1}]}),
    ];
    for placement in failing {
        let mut world = roomy("a b c");
        let mut request = half("web", 6, placement.clone());
        let before = placed(&world.step(&mut request));
        world.quota("team", json!({"cpu": "1"}));
        // Scaling up does nothing, and does not keep a failover from happening.
        request.template.replicas = Some(8);
        let held = world.step(&mut request);
        assert_eq!(placed(&held), before, "{placement}: {}", held.reason);
        assert!(held.pending_replicas() > 0, "{placement}");
        let lost = shares(&held).keys().next().unwrap().clone();
        world.taint(&lost, "NoExecute");
        let decision = world.step(&mut request);
        assert!(!shares(&decision).contains_key(&lost), "{placement}: {}", decision.reason);
        assert_eq!(placed(&decision), before, "{placement}: {}", decision.reason);
        assert!(decision.reason.starts_with("QuotaExceeded"), "{}", decision.reason);
    }
}

#[test]
fn copies_are_placed_entirely_or_not_at_all() {
    let mut world = roomy("a b c");
    world.quota("team", json!({"cpu": "5"}));
    let mut request = half("web", 4, json!({}));
    let decision = world.step(&mut request);
    assert_eq!(shares(&decision).values().copied().collect::<Vec<_>>(), [4, 4]);
    assert_eq!((decision.outcome(), decision.pending_replicas()), (Outcome::Partial, 4));
    insta::assert_snapshot!("quota_copies", render(&decision, 100));
    // Scaling up happens on all clusters or on none.
    let held = world.scale(&mut request, 6);
    assert_eq!(shares(&held).values().copied().collect::<Vec<_>>(), [4, 4]);
    assert!(!wakes(&world.quota("team", json!({"cpu": "5900m"})), held.waits_for()));
    assert!(wakes(&world.quota("team", json!({"cpu": "6"})), held.waits_for()));
    let raised = world.step(&mut request);
    assert_eq!(shares(&raised).values().copied().collect::<Vec<_>>(), [6, 6]);
    assert!(wakes(&world.quota("team", json!({"cpu": "9"})), raised.waits_for()));
    let all = world.step(&mut request);
    assert_eq!(shares(&all).values().copied().collect::<Vec<_>>(), [6, 6, 6]);
    assert_eq!(all.pending_replicas(), 0);
}

#[test]
fn a_set_of_components_counts_as_a_whole() {
    let mut world = roomy("a b");
    let component = |name: &str, replicas: i64| Component {
        name: name.into(),
        replicas,
        replica_requirements: requests(json!({"cpu": "1"})),
    };
    let set = |name: &str| {
        let mut request = workload(name, 0, json!({}));
        request.template.replicas = None;
        request.template.components = vec![component("manager", 1), component("worker", 3)];
        request
    };
    world.quota("team", json!({"cpu": "7"}));
    let (mut first, mut second) = (set("first"), set("second"));
    assert_eq!(world.step(&mut first).clusters().len(), 1);
    let decision = world.step(&mut second);
    assert_eq!((decision.outcome(), decision.clusters().len()), (Outcome::Unschedulable, 0));
    assert!(decision.reason.contains("1 cpu missing"), "{}", decision.reason);
    assert!(wakes(&world.quota("team", json!({"cpu": "8"})), decision.waits_for()));
    assert_eq!(world.step(&mut second).clusters().len(), 1);
    // It moves although the quota is below the use.
    world.quota("team", json!({"cpu": "1"}));
    let at = first.previous.as_ref().unwrap().clusters[0].name.clone();
    world.taint(&at, "NoExecute");
    let moved = world.step(&mut first);
    assert_eq!(moved.clusters().len(), 1);
    assert_ne!(moved.clusters()[0].name, at);
}

#[test]
fn resource_quotas_on_members_limit_the_room_there_and_are_waited_for() {
    let mut world = roomy("a b");
    let left = |amounts: &[(&str, i64)]| {
        let amounts = amounts.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect();
        BTreeMap::from([("default".to_owned(), amounts)])
    };
    // 1500m CPU are left on a, 2 pods on b.
    world.tables.set_member_quotas(&"a".into(), &left(&[("cpu", 1500), ("memory", 1 << 30)]));
    world.tables.set_member_quotas(&"b".into(), &left(&[("pods", 2)]));
    let mut request = half("web", 10, divided());
    let decision = world.step(&mut request);
    assert_eq!(shares(&decision), map(&[("a", 3), ("b", 2)]));
    insta::assert_snapshot!("member_quotas", render(&decision, 100));
    // Another workload sees what the members do not report yet.
    assert_eq!(placed(&world.decide(&half("other", 10, divided()))), 0);
    let mut elsewhere = half("web", 10, divided());
    elsewhere.key = BindingKey::new("other", elsewhere.key.name());
    elsewhere.template.namespace = Some("other".into());
    assert_eq!(placed(&world.decide(&elsewhere)), 10);
    let woken = |changes: &[TableChange]| {
        let waits = decision.waits_for();
        waits.iter().any(|wait| changes.iter().any(|change| change.meets(wait)))
    };
    // The members report the replicas, and their quotas count them.
    let mut facts = (**world.tables.snapshot().binding(&request.key).unwrap()).clone();
    facts.reported = [("a".into(), 3), ("b".into(), 2)].into_iter().collect();
    world.tables.upsert_binding(facts);
    let a = "a".into();
    assert!(!woken(&world.tables.set_member_quotas(&a, &left(&[("cpu", 0)]))));
    assert!(!woken(&world.tables.set_member_quotas(&a, &left(&[("cpu", 499)]))), "too little");
    assert!(woken(&world.tables.set_member_quotas(&a, &left(&[("cpu", 500)]))));
    assert!(woken(&world.tables.set_member_quotas(&a, &BTreeMap::new())), "the quota is gone");
}

#[test]
fn an_amount_that_cannot_be_read_blocks_growth_until_it_is_repaired() {
    let mut world = roomy("a b");
    for bad in ["-1", "much"] {
        world.quota("team", json!({"cpu": bad, "limits.cpu": "0", "services": "0"}));
        assert_eq!(placed(&world.decide(&half("web", 2, divided()))), 0, "{bad}");
        assert_eq!(placed(&world.decide(&workload("plain", 2, divided()))), 2, "{bad}");
    }
}

#[test]
fn a_profile_with_karmadas_rules_places_all_replicas_or_none() {
    for (placement, full) in [(divided(), 4), (json!({}), 8)] {
        let mut world = roomy("a b");
        world.quota("team", json!({"pods": "3"}));
        let mut request = half("web", 4, placement);
        request.scheduler_name = "karmada".into();
        let decision = world.step(&mut request);
        assert_eq!(placed(&decision), 0);
        assert!(decision.reason.starts_with("QuotaExceeded"), "{}", decision.reason);
        assert!(wakes(&world.quota("team", json!({"pods": "8"})), decision.waits_for()));
        assert_eq!(placed(&world.step(&mut request)), full);
    }
}

/// A placement of any strategy.
fn any_placement(random: &mut Random) -> Value {
    let of = |kind: &str| json!({"replicaScheduling": {"replicaSchedulingType": kind}});
    let mut placement = match random.below(6) {
        0 => json!({}),
        1 => of("Duplicated"),
        2 => divided(),
        3 => json!({"replicaScheduling": {"replicaSchedulingType": "Divided",
            "replicaDivisionPreference": "Aggregated"}}),
        4 => json!({"replicaScheduling": {"replicaSchedulingType": "Divided",
            "bounds": [{"targetCluster": {"clusterNames": ["a"]}, "min": 2, "max": 6}]}}),
        _ => of("Divided"),
    };
    if random.chance(20) && placement["replicaScheduling"].is_object() {
        placement["replicaScheduling"]["insufficientCapacity"] = "Refuse".into();
    }
    if random.chance(20) {
        placement["spreadConstraints"] = json!([{"spreadByField": "cluster", "maxGroups": 2}]);
    }
    if random.chance(20) {
        placement["rescheduleOn"] = json!([]);
    }
    placement
}

/// Use of CPU by all bindings of the namespace, in thousandths.
fn used(requests: &[Request]) -> i128 {
    let of = |request: &Request| {
        let Some(previous) = &request.previous else { return 0 };
        let given = request.template.requirements.as_ref();
        let cpu = given.and_then(|given| given.resource_request.get("cpu"));
        let each = cpu.map_or(0, |cpu| cpu.milli().unwrap());
        previous.clusters.iter().map(|share| i128::from(share.replicas) * each).sum()
    };
    requests.iter().map(of).sum()
}

#[test]
fn no_random_history_exceeds_a_quota_or_loses_a_replica() {
    for seed in 0..24 {
        let mut random = Random(seed);
        let names = ["a", "b", "c", "d"];
        let mut world = roomy("a b c d");
        let mut bindings: Vec<Request> = (0..6)
            .map(|n| {
                let placement = any_placement(&mut random);
                let mut request = workload(&format!("w{n}"), random.below(9) as i64, placement);
                let each = random.below(4) * 250;
                if each > 0 {
                    request.template.requirements =
                        requests(json!({"cpu": format!("{each}m")})).map(Into::into);
                }
                request
            })
            .collect();
        let mut hard = 6000;
        world.quota("team", json!({"cpu": "6"}));
        for _ in 0..60 {
            match random.below(8) {
                0 => {
                    hard = i128::from(random.below(12)) * 1000;
                    world.quota("team", json!({"cpu": format!("{hard}m")}));
                }
                1 => {
                    let name = *random.pick(&names);
                    world.edit(name, |cluster| cluster.spec.taints.clear());
                }
                2 => {
                    let name = *random.pick(&names);
                    world.taint(name, "NoExecute");
                }
                3 => {
                    let (name, room) = (*random.pick(&names), random.below(30) as i64);
                    world.room(name, room);
                }
                4..=5 => {
                    let at = random.below(6) as usize;
                    bindings[at].template.replicas = Some(random.below(12) as i64);
                }
                _ => {}
            }
            // Every binding of a batch is decided on what the one before it left.
            for at in 0..bindings.len() {
                let before = used(&bindings);
                let decision = world.step(&mut bindings[at]);
                let after = used(&bindings);
                assert!(after <= before.max(hard), "seed {seed}: {before} -> {after} of {hard}");
                let mut pending = decision.pending.iter();
                if !pending.all(|group| group.reason.starts_with("QuotaExceeded")) {
                    continue; // room is short too
                }
                let waits = decision.waits_for();
                let asleep = waits.iter().all(|wait| match wait {
                    WakeCondition::QuotaFrees { amounts, .. } => {
                        amounts.get("cpu").is_some_and(|cpu| i128::from(*cpu) > hard - after)
                    }
                    _ => true,
                });
                assert!(asleep, "seed {seed}: waits for what is free: {waits:?}");
            }
        }
    }
}
