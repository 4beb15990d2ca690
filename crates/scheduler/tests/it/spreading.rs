//! Examples of topologySpreadConstraints, and spreadConstraints that hold after division.

use std::collections::BTreeMap;

use atoll_api::binding::Outcome;
use atoll_scheduler::{Profiles, Scheduler, SchedulerConfiguration};
use serde_json::{Value, json};

use crate::support::*;

fn constraint(key: &str, skew: i64, rest: Value) -> Value {
    let mut constraint = json!({"maxSkew": skew, "topologyKey": key});
    for (name, value) in rest.as_object().into_iter().flatten() {
        constraint[name] = value.clone();
    }
    constraint
}

fn dynamic(constraints: Vec<Value>) -> Value {
    json!({
        "topologySpreadConstraints": constraints,
        "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": {"dynamicWeight": "AvailableReplicas"}},
    })
}

/// Clusters by zone with the given shares, and a request for one more replica.
fn running(clusters: &[(&str, &str, i64)], placement: Value) -> (World, atoll_scheduler::Request) {
    let mut world = World::new(
        clusters
            .iter()
            .map(|(name, zone, _)| cluster(name, &[("zone", zone), ("node", name)], Some(50))),
    );
    let sum = clusters.iter().map(|(_, _, n)| n).sum();
    let mut request = workload("web", sum, placement);
    world.step(&mut request);
    let previous = request.previous.as_mut().unwrap();
    previous.clusters =
        clusters.iter().filter(|c| c.2 > 0).map(|(name, _, n)| target(name, *n)).collect();
    let record = previous.decision.as_mut().unwrap();
    record.pending.clear();
    record.outcome = Outcome::Placed;
    request.template.replicas = Some(sum + 1);
    (world, request)
}

/// The clusters that got the additional replica.
fn grown(world: &mut World, request: &atoll_scheduler::Request) -> Vec<String> {
    let before: BTreeMap<String, i64> = request
        .previous
        .as_ref()
        .unwrap()
        .clusters
        .iter()
        .map(|share| (share.name.clone(), share.replicas))
        .collect();
    let after = shares(&world.decide(request));
    after
        .into_iter()
        .filter(|(name, n)| *n > before.get(name).copied().unwrap_or(0))
        .map(|(n, _)| n)
        .collect()
}

const SEED: [(&str, &str, i64); 4] =
    [("c1", "A", 1), ("c2", "A", 1), ("c3", "B", 1), ("c4", "B", 0)];

#[test]
fn the_next_replica_goes_to_the_emptier_zone() {
    let (mut world, request) = running(&SEED, dynamic(vec![constraint("zone", 1, json!({}))]));
    let grown = grown(&mut world, &request);
    assert!(grown == ["c3"] || grown == ["c4"], "{grown:?}");
}

#[test]
fn a_larger_skew_or_another_key_or_schedule_anyway() {
    // With a single candidate per zone, weight decides: zone A has all the room.
    let (mut world, request) = running(&SEED, dynamic(vec![constraint("zone", 2, json!({}))]));
    for name in ["c1", "c2"] {
        world.room(name, 5000);
    }
    let at_two = grown(&mut world, &request);
    assert!(at_two == ["c1"] || at_two == ["c2"], "{at_two:?}");
    let (mut world, request) = running(&SEED, dynamic(vec![constraint("node", 1, json!({}))]));
    assert_eq!(grown(&mut world, &request), ["c4"]);
    let anyway = json!({"whenUnsatisfiable": "ScheduleAnyway"});
    let (mut world, request) = running(&SEED, dynamic(vec![constraint("zone", 1, anyway)]));
    for name in ["c3", "c4"] {
        world.taint(name, "NoSchedule");
    }
    let anyway = grown(&mut world, &request);
    assert!(anyway == ["c1"] || anyway == ["c2"], "never waits: {anyway:?}");
}

#[test]
fn affinity_narrows_the_domains() {
    let mut placement = dynamic(vec![constraint("zone", 1, json!({}))]);
    placement["clusterAffinity"] = json!({"labelSelector": {"matchLabels": {"env": "qa"}}});
    let mut world = World::new([
        cluster("prod", &[("zone", "z0"), ("env", "prod")], Some(9)),
        cluster("qa1", &[("zone", "z1"), ("env", "qa")], Some(9)),
        cluster("qa2", &[("zone", "z2"), ("env", "qa")], Some(9)),
    ]);
    let mut request = workload("web", 3, placement);
    let decision = world.step(&mut request);
    assert_eq!(placed(&decision), 3, "zone z0 is no domain, so its 0 holds nothing down");
    let less = decision.clusters().iter().min_by_key(|share| share.replicas).unwrap().name.clone();
    request.template.replicas = Some(4);
    assert_eq!(grown(&mut world, &request), [less]);
}

#[test]
fn ignored_affinity_leaves_the_domains_that_nobody_may_use() {
    let ignore = json!({"clusterAffinityPolicy": "Ignore"});
    let mut placement = dynamic(vec![constraint("zone", 1, ignore)]);
    placement["clusterAffinity"] = json!({"labelSelector": {"matchLabels": {"env": "qa"}}});
    let mut world = World::new([
        cluster("prod", &[("zone", "z0"), ("env", "prod")], Some(9)),
        cluster("qa1", &[("zone", "z1"), ("env", "qa")], Some(9)),
        cluster("qa2", &[("zone", "z2"), ("env", "qa")], Some(9)),
    ]);
    let decision = world.step(&mut workload("web", 3, placement));
    assert_eq!(shares(&decision), map(&[("qa1", 1), ("qa2", 1)]), "z0 has 0 and holds them down");
    assert_eq!(decision.pending_replicas(), 1);
}

#[test]
fn constraints_hold_together() {
    // Zone 1 has 3 and zone 2 has 2; nodes A 1, B 2... Only the emptiest node of zone 2 satisfies both.
    let running_shares = [("a", "z1", 1), ("b", "z1", 2), ("x", "z2", 2), ("y", "z2", 0)];
    let both = vec![constraint("zone", 1, json!({})), constraint("node", 1, json!({}))];
    let (mut world, request) = running(&running_shares, dynamic(both));
    assert_eq!(grown(&mut world, &request), ["y"]);
}

#[test]
fn an_infeasible_zone_holds_the_minimum_down_unless_told_otherwise() {
    let three = [("c1", "z1", 3), ("c2", "z2", 3), ("c3", "z3", 0)];
    let closed = |rest: Value| {
        let (mut world, request) = running(&three, dynamic(vec![constraint("zone", 1, rest)]));
        world.taint("c3", "NoSchedule");
        (world, request)
    };
    let (mut world, request) = closed(json!({}));
    let decision = world.decide(&request);
    assert_eq!(decision.pending_replicas(), 1);
    assert!(decision.pending[0].reason.contains("maxSkew 1 over zone"), "{:?}", decision.pending);
    let (mut world, request) = closed(json!({"whenUnsatisfiable": "ScheduleAnyway"}));
    assert_eq!(grown(&mut world, &request).len(), 1);
    let (mut world, request) = closed(json!({"clusterTaintsPolicy": "Honor"}));
    assert_eq!(grown(&mut world, &request).len(), 1);
    let (mut world, request) = closed(json!({"countFullDomains": false}));
    assert_eq!(grown(&mut world, &request).len(), 1, "the 3/3/0 deadlock ends");
}

#[test]
fn min_domains_and_missing_keys() {
    let one = json!({"minDomains": 2});
    let mut world =
        World::new([cluster("a", &[("zone", "z1")], Some(9)), cluster("b", &[], Some(9))]);
    let decision = world.decide(&workload("web", 4, dynamic(vec![constraint("zone", 1, one)])));
    assert_eq!(shares(&decision), map(&[("a", 1)]));
    let (verdict, _) = decision.verdict("b").unwrap();
    assert!(verdict.rejections[0].reason.contains("zone"), "{verdict:?}");
    let anyway = json!({"whenUnsatisfiable": "ScheduleAnyway"});
    let placement = dynamic(vec![constraint("zone", 1, anyway)]);
    let decision = world.decide(&workload("web", 12, placement));
    assert_eq!(shares(&decision), map(&[("a", 9), ("b", 3)]), "without the key comes last");
}

#[test]
fn other_workloads_count_by_label() {
    let mut world = World::new([
        cluster("a", &[("zone", "z1")], Some(9)),
        cluster("b", &[("zone", "z2")], Some(9)),
    ]);
    let on_a = json!({"clusterAffinity": {"clusterNames": ["a"]}});
    world.step(&mut workload("other", 3, on_a));
    let selector = json!({"labelSelector": {"matchLabels": {"app": "web"}}});
    let decision =
        world.decide(&workload("web", 4, dynamic(vec![constraint("zone", 1, selector)])));
    // 3 + x on a and 4 - x on b, at most 1 apart: b gets at least 3.
    let got = shares(&decision);
    let on_b = got.get("b").copied().unwrap_or(0);
    assert!(on_b >= 3, "{got:?}");
}

#[test]
fn of_the_counted_workloads_only_those_with_the_same_values_of_match_label_keys_count() {
    let split = |version: &str, keys: Value| {
        let mut world = World::new([
            cluster("a", &[("zone", "z1")], Some(9)),
            cluster("b", &[("zone", "z2")], Some(9)),
        ]);
        let mut other = workload("other", 4, json!({"clusterAffinity": {"clusterNames": ["a"]}}));
        other.template.pod_labels.insert("version".into(), "v1".into());
        world.step(&mut other);
        let rest =
            json!({"labelSelector": {"matchLabels": {"app": "web"}}, "matchLabelKeys": keys});
        let mut web = workload("web", 4, dynamic(vec![constraint("zone", 1, rest)]));
        web.template.pod_labels.insert("version".into(), version.into());
        let decision = world.decide(&web);
        (shares(&decision), decision)
    };
    let (same, _) = split("v1", json!(["version", "absent"]));
    assert_eq!(same, map(&[("b", 4)]), "4 of the same version are on a");
    let (different, _) = split("v2", json!(["version"]));
    assert_eq!(different, map(&[("a", 2), ("b", 2)]), "another version does not count");
    for (keys, field) in
        [(json!(["app"]), "matchLabelKeys[0]"), (json!(["a b"]), "matchLabelKeys[0]")]
    {
        let (_, decision) = split("v1", keys);
        assert_eq!(decision.outcome(), Outcome::Invalid);
        let path = format!("placement.topologySpreadConstraints[0].{field}: ");
        assert!(decision.reason.starts_with(&path), "{}", decision.reason);
    }
}

#[test]
fn a_profile_spreads_workloads_without_constraints_of_their_own() {
    let read = |constraint: &str| {
        let text = format!(
            "apiVersion: config.atoll.dev/v1alpha1\nkind: SchedulerConfiguration\nprofiles:\n- schedulerName: even\n  \
             pluginConfig: [{{name: TopologySpread, args: {{defaultConstraints: [{constraint}]}}}}]\n"
        );
        Profiles::read(&SchedulerConfiguration::read(&text).unwrap())
    };
    let mut world = World::new([
        cluster("a", &[("zone", "z1")], Some(90)),
        cluster("b", &[("zone", "z2")], Some(9)),
    ]);
    world.profiles = read("{topologyKey: zone, maxSkew: 1}").unwrap();
    world.scheduler = Scheduler::new(world.profiles.clone());
    let mut request = workload("web", 6, dynamic(Vec::new()));
    let uneven = world.decide(&request);
    assert!(shares(&uneven)["a"] > 3, "the default profile has no constraints");
    request.scheduler_name = "even".into();
    assert_eq!(shares(&world.decide(&request)), map(&[("a", 3), ("b", 3)]));
    let own = json!({"whenUnsatisfiable": "ScheduleAnyway"});
    request.placement =
        serde_json::from_value(dynamic(vec![constraint("missing", 1, own)])).unwrap();
    assert_eq!(
        shares(&world.decide(&request)),
        shares(&uneven),
        "its own constraints replace them"
    );
    for (constraint, path) in [
        ("{topologyKey: zone, maxSkew: 0}", "[0].maxSkew"),
        ("{topologyKey: zone, maxSkew: 1, labelSelector: {}}", "[0].labelSelector"),
        ("{topologyKey: zone}", "[0]"),
    ] {
        let problem = read(constraint).unwrap_err();
        assert_eq!(
            problem.path,
            format!("profiles[0].pluginConfig[0].args.defaultConstraints{path}")
        );
    }
}

fn regions(layout: &[(&str, &str, i64)]) -> World {
    World::new(layout.iter().map(|(name, region, room)| {
        let mut cluster = cluster(name, &[("rack", region)], Some(*room));
        cluster.spec.region = Some((*region).to_owned());
        cluster.spec.provider = Some(format!("{region}-provider"));
        cluster.spec.zones = vec![format!("{region}-zone")];
        cluster
    }))
}

fn spread(by: Value, min: i64, max: i64, divided: Value) -> Value {
    let mut constraint = by;
    constraint["minGroups"] = json!(min);
    constraint["maxGroups"] = json!(max);
    json!({"spreadConstraints": [constraint], "replicaScheduling": divided})
}

const LAYOUT: &[(&str, &str, i64)] =
    &[("a1", "ra", 100), ("a2", "ra", 100), ("b1", "rb", 10), ("b2", "rb", 10), ("c1", "rc", 5)];

#[test]
fn minimums_hold_for_replicas_and_not_only_for_candidates() {
    let aggregated =
        json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"});
    let weighted =
        json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"});
    for by in [
        json!({"spreadByField": "region"}),
        json!({"spreadByField": "zone"}),
        json!({"spreadByField": "provider"}),
        json!({"spreadByLabel": "rack"}),
    ] {
        for strategy in [&aggregated, &weighted] {
            for replicas in [1, 2, 3, 7] {
                let mut world = regions(LAYOUT);
                let placement = spread(by.clone(), 3, 3, strategy.clone());
                let decision = world.decide(&workload("web", replicas, placement));
                let mut used: Vec<char> =
                    decision.clusters().iter().map(|s| s.name.chars().next().unwrap()).collect();
                used.sort_unstable();
                used.dedup();
                assert_eq!(placed(&decision), replicas);
                assert_eq!(
                    used.len() as i64,
                    replicas.min(3),
                    "{by} {replicas} {:?}",
                    shares(&decision)
                );
            }
        }
    }
}

#[test]
fn too_few_groups_are_refused_and_maximums_hold() {
    let weighted = json!({"replicaSchedulingType": "Divided"});
    let mut world = regions(LAYOUT);
    let by = || json!({"spreadByField": "region"});
    let decision = world.decide(&workload("web", 4, spread(by(), 4, 5, weighted.clone())));
    assert_eq!(decision.outcome(), Outcome::Unschedulable);
    assert!(decision.reason.contains("minGroups is 4 by region"), "{}", decision.reason);
    let decision = world.decide(&workload("web", 100, spread(by(), 1, 1, json!({
        "replicaSchedulingType": "Divided", "weightPreference": {"dynamicWeight": "AvailableReplicas"}}))));
    assert_eq!(shares(&decision), map(&[("a1", 50), ("a2", 50)]), "the region with enough room");
    let decision = world.decide(&workload(
        "web",
        9,
        spread(json!({"spreadByField": "cluster"}), 2, 2, weighted),
    ));
    assert_eq!(decision.clusters().len(), 2);
}

#[test]
fn scaling_down_keeps_the_groups() {
    let mut world = regions(LAYOUT);
    let placement = spread(
        json!({"spreadByField": "region"}),
        3,
        3,
        json!({"replicaSchedulingType": "Divided"}),
    );
    let mut request = workload("web", 9, placement);
    world.step(&mut request);
    for replicas in (1..9).rev() {
        let decision = world.scale(&mut request, replicas);
        let mut used: Vec<char> =
            decision.clusters().iter().map(|s| s.name.chars().next().unwrap()).collect();
        used.dedup();
        assert_eq!(used.len() as i64, replicas.min(3), "{:?}", shares(&decision));
    }
}
