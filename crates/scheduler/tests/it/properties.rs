//! Properties over thousands of random instances. A failure prints its seed.

use atoll_api::binding::{Outcome, Trigger};
use atoll_scheduler::Request;
use serde_json::{Value, json};

use crate::support::*;

const INSTANCES: u64 = 1000;

fn each_seed(name: &str, test: impl Fn(&mut Random)) {
    let only = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in only.map_or(0..INSTANCES, |seed: u64| seed..seed + 1) {
        let run = std::panic::AssertUnwindSafe(|| test(&mut Random(seed)));
        if let Err(cause) = std::panic::catch_unwind(run) {
            eprintln!("{name}: seed {seed} (run again with SEED={seed})");
            std::panic::resume_unwind(cause);
        }
    }
}

const REGIONS: [&str; 3] = ["north", "south", "west"];

fn random_world(random: &mut Random) -> World {
    let count = 2 + random.below(7);
    let clusters: Vec<_> = (0..count)
        .map(|n| {
            let tier = *random.pick(&["gold", "iron"]);
            let region = *random.pick(&REGIONS);
            let room = if random.chance(20) { None } else { Some(random.below(30) as i64) };
            let mut cluster =
                cluster(&format!("m{n:02}"), &[("tier", tier), ("area", region)], room);
            cluster.spec.region = Some(region.to_owned());
            cluster
        })
        .collect();
    World::new(clusters)
}

fn strategy(random: &mut Random) -> Value {
    match random.below(5) {
        0 => json!({"replicaSchedulingType": "Divided"}),
        1 => {
            let list: Vec<Value> = (0..1 + random.below(3))
                .map(|_| {
                    let tier = *random.pick(&["gold", "iron"]);
                    json!({"targetCluster": {"labelSelector": {"matchLabels": {"tier": tier}}},
                        "weight": 1 + random.below(5)})
                })
                .collect();
            json!({"replicaSchedulingType": "Divided", "weightPreference": {"staticWeightList": list},
                "respectCapacity": random.chance(50)})
        }
        2 => json!({"replicaSchedulingType": "Divided",
            "weightPreference": {"dynamicWeight": "AvailableReplicas"}}),
        3 => json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}),
        _ => json!({"replicaSchedulingType": "Duplicated"}),
    }
}

fn random_request(random: &mut Random, world: &mut World) -> Request {
    let mut placement = json!({ "replicaScheduling": strategy(random) });
    if random.chance(25) {
        placement["clusterAffinity"] = json!({"labelSelector": {"matchLabels": {"tier": "gold"}}});
    }
    if random.chance(20) {
        let max = 1 + random.below(3);
        placement["spreadConstraints"] = json!([{
            "spreadByField": random.pick(&["region", "cluster"]),
            "minGroups": 1 + random.below(max), "maxGroups": max,
        }]);
    }
    if random.chance(20) {
        placement["topologySpreadConstraints"] = json!([{
            "topologyKey": random.pick(&["area", "region", "cluster"]), "maxSkew": 1 + random.below(3),
            "whenUnsatisfiable": random.pick(&["DoNotSchedule", "ScheduleAnyway"]),
            "countFullDomains": random.chance(50),
        }]);
    }
    if random.chance(20) {
        placement["rescheduleOn"] = json!([
            "PolicyChange",
            "ReplicasChange",
            "ClusterFailure",
            "ClusterChange",
            "Recovery"
        ]);
    }
    let replicas = random.below(25) as i64;
    let mut request = workload(&format!("web{}", random.below(1000)), replicas, placement);
    match random.below(6) {
        0 => {
            request = policy_request(random, world, replicas);
        }
        1 => {
            request = workload("web", replicas, json!({}));
            world.spread(random_spread(random));
        }
        _ => {}
    }
    request
}

/// Rules beside the placement's strategy: a quota, ClusterSets, a group of workloads, sticky, replicas without a node.
fn add_rules(random: &mut Random, world: &mut World, request: &mut Request) {
    if random.chance(20) {
        world.quota("team", json!({"pods": random.below(40).to_string()}));
    }
    if random.chance(20) {
        let tier = *random.pick(&["gold", "iron"]);
        let team = json!({"matchLabels": {"team": "shop"}});
        world.cluster_sets(&[("set", team, json!({"matchLabels": {"tier": tier}}))]);
    }
    if random.chance(25) {
        let side = *random.pick(&["affinity", "antiAffinity"]);
        let required = json!({side: {"groupByLabelKey": "group"}});
        let mut preferred = required.clone();
        preferred["weight"] = json!(50);
        let rules =
            if random.chance(60) { required.clone() } else { json!({"preferred": [preferred]}) };
        let single = json!([{"spreadByField": "cluster", "maxGroups": 1 + random.below(2)}]);
        let placement = json!({"workloadAffinity": required, "spreadConstraints": single});
        let mut other = workload("other", 1 + random.below(3) as i64, placement);
        other.template.labels = [("group".to_owned(), "web".to_owned())].into();
        request.template.labels.clone_from(&other.template.labels);
        request.placement.workload_affinity = serde_json::from_value(rules).unwrap();
        world.step(&mut other);
    }
    request.placement.sticky = random.chance(10);
    if random.chance(30) {
        let on = json!(["PolicyChange", "ReplicasChange", "ClusterFailure", "Unschedulable"]);
        request.placement.reschedule_on = serde_json::from_value(on).unwrap();
    }
}

/// A member reports that some replicas of a share have found no node for an hour.
fn get_stuck(random: &mut Random, request: &mut Request) {
    let Some(previous) = &request.previous else { return };
    let Some(share) = previous.clusters.get(random.below(4) as usize) else { return };
    let stuck = random.below(1 + share.replicas.max(0) as u64) as i64;
    let since = request.now - jiff::SignedDuration::from_hours(1);
    let report = atoll_scheduler::Report {
        replicas: share.replicas,
        ready: share.replicas - stuck,
        unschedulable: stuck,
        unschedulable_since: (stuck > 0).then_some(since),
        ..atoll_scheduler::Report::default()
    };
    request.reports.insert(share.name.as_str().into(), report);
}

fn policy_request(random: &mut Random, world: &mut World, replicas: i64) -> Request {
    let mut list: Vec<Value> = Vec::new();
    for region in REGIONS {
        if list.is_empty() || random.chance(60) {
            list.push(json!({"name": region, "replicas": 1 + random.below(6)}));
        }
    }
    world.policy(json!({
        "topologyKey": "area", "labelSelector": {"matchLabels": {"app": "web"}},
        "allocationPolicy": list,
        "allocationType": random.pick(&["Required", "Preferred"]),
        "allocationMethod": random.pick(&["Balance", "Fill"]),
    }));
    steered("web", replicas)
}

fn random_spread(random: &mut Random) -> Value {
    let adaptive = random.chance(50);
    let mut subsets: Vec<Value> = Vec::new();
    let count = 1 + random.below(3) as usize;
    for (at, region) in REGIONS.iter().take(count).enumerate() {
        let mut subset =
            json!({"name": region, "requiredClusterSelector": {"matchLabels": {"area": region}}});
        if at + 1 < count {
            subset["maxReplicas"] = json!(random.below(12));
        }
        subsets.push(subset);
    }
    json!({
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "subsets": subsets,
        "scheduleStrategy": {"type": if adaptive { "Adaptive" } else { "Fixed" }},
    })
}

fn divides(request: &Request) -> bool {
    let scheduling = request.placement.replica_scheduling.as_ref();
    scheduling.is_none_or(|s| {
        s.replica_scheduling_type == atoll_api::placement::ReplicaSchedulingType::Divided
    })
}

#[test]
fn unchanged_input_moves_nothing() {
    each_seed("unchanged", |random| {
        let mut world = random_world(random);
        let mut request = random_request(random, &mut world);
        add_rules(random, &mut world, &mut request);
        world.step(&mut request);
        let again = world.decide(&request);
        assert!(again.moves().is_empty(), "{:?}", again.moves());
        assert_eq!(again.before(), again.clusters());
        let pending = request.previous.as_ref().unwrap().pending();
        if pending == 0 {
            assert_eq!(again.trigger(), Trigger::Avoid, "{again:?}");
        }
    });
}

#[test]
fn a_lost_cluster_moves_only_its_own() {
    each_seed("lost", |random| {
        let mut world = random_world(random);
        let mut request = random_request(random, &mut world);
        add_rules(random, &mut world, &mut request);
        world.step(&mut request);
        let before = request.previous.as_ref().unwrap().clusters.clone();
        let Some(lost) = before.get(random.below(before.len().max(1) as u64) as usize) else {
            return;
        };
        match random.below(3) {
            0 => drop(world.remove(&lost.name)),
            1 => drop(world.taint(&lost.name, "NoExecute")),
            _ => {
                world.lose_session(&lost.name);
                world.taint(&lost.name, "NoExecute");
            }
        }
        let decision = world.step(&mut request);
        if matches!(
            decision.outcome(),
            Outcome::NoFit | Outcome::FailoverInfeasible | Outcome::Unschedulable
        ) {
            return;
        }
        let after = shares(&decision);
        for share in before.iter().filter(|share| share.name != lost.name) {
            let now = after.get(&share.name).copied().unwrap_or(0);
            assert!(
                now >= share.replicas,
                "{} lost replicas too: {before:?} -> {after:?}",
                share.name
            );
        }
        if divides(&request) {
            let moved: i64 = decision.moves().iter().map(|m| m.count).sum();
            assert!(moved <= lost.replicas, "{moved} moved, {} were lost", lost.replicas);
        }
    });
}

/// Strategies that deal replicas from one sequence: static weights, WorkloadPolicy, WorkloadSpread.
fn is_sequence(request: &Request) -> bool {
    request.placement.replica_scheduling.as_ref().is_none_or(|scheduling| {
        divides(request)
            && scheduling.replica_division_preference.is_none()
            && scheduling.weight_preference.as_ref().is_none_or(|w| w.dynamic_weight.is_none())
    })
}

fn difference(
    a: &std::collections::BTreeMap<String, i64>,
    b: &std::collections::BTreeMap<String, i64>,
) -> i64 {
    let names: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
    let of =
        |m: &std::collections::BTreeMap<String, i64>, name: &str| m.get(name).copied().unwrap_or(0);
    names.into_iter().map(|name| (of(a, name) - of(b, name)).abs()).sum()
}

#[test]
fn scaling_by_one_changes_one_share_by_one_and_down_is_the_reverse_of_up() {
    each_seed("by one", |random| {
        let mut world = random_world(random);
        let mut request = random_request(random, &mut world);
        if !is_sequence(&request) || !request.placement.topology_spread_constraints.is_empty() {
            return;
        }
        let top = 12;
        let mut way = Vec::new();
        request.template.replicas = Some(1);
        way.push(shares(&world.step(&mut request)));
        if request.previous.as_ref().unwrap().decision.as_ref().unwrap().outcome == Outcome::Invalid
        {
            return;
        }
        for replicas in 2..=top {
            let decision = world.scale(&mut request, replicas);
            let now = shares(&decision);
            let pending = decision.pending_replicas();
            let moved = difference(way.last().unwrap(), &now);
            assert!(moved == 1 || (moved == 0 && pending > 0), "{:?} -> {now:?}", way.last());
            way.push(now);
        }
        for replicas in (1..top).rev() {
            let now = shares(&world.scale(&mut request, replicas));
            assert_eq!(now, way[replicas as usize - 1], "down to {replicas}: {way:?}");
        }
    });
}

#[test]
fn anything_goes_and_the_linter_is_content() {
    each_seed("anything", |random| {
        let mut world = random_world(random);
        let mut request = random_request(random, &mut world);
        add_rules(random, &mut world, &mut request);
        let mut seconds = 0;
        for _ in 0..6 {
            world.step(&mut request);
            seconds += 700;
            request.now = now() + jiff::SignedDuration::from_secs(seconds);
            let names: Vec<String> = world.clusters.keys().cloned().collect();
            let name = random.pick(&names).clone();
            match random.below(11) {
                0 => request.template.replicas = Some(random.below(40) as i64),
                1 => {
                    drop(world.taint(&name, ["NoSchedule", "NoExecute"][random.below(2) as usize]))
                }
                2 => drop(world.edit(&name, |cluster| cluster.spec.taints.clear())),
                3 if names.len() > 1 => drop(world.remove(&name)),
                4 => {
                    drop(world.put(cluster("new", &[("tier", "gold"), ("area", "west")], Some(9))))
                }
                5 => {
                    let scheduling = strategy(random);
                    if request.template.workload_policy.is_none() {
                        request.placement.replica_scheduling =
                            serde_json::from_value(scheduling).unwrap();
                        if request.template.name == "web" {
                            request.placement.replica_scheduling = None;
                        }
                    }
                }
                6 => {
                    if let Some(previous) = &mut request.previous {
                        previous.reschedule_triggered_at = Some(request.now);
                    }
                }
                7 | 8 => get_stuck(random, &mut request),
                9 => drop(world.quota("team", json!({"pods": random.below(40).to_string()}))),
                _ => drop(world.edit(&name, |cluster| {
                    cluster.metadata.labels.as_mut().unwrap().insert("tier".into(), "iron".into());
                })),
            }
        }
    });
}
