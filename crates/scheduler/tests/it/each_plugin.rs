//! Every plugin of the core explains itself: why a cluster is chosen or not, and what would change that for one cluster.
//! A plugin without a situation here fails the test.

use std::collections::{BTreeMap, BTreeSet};

use atoll_decision::explain::{remedies, render};
use atoll_scheduler::framework::registry::REGISTRY;
use atoll_scheduler::{
    Build, Decision, PriorityClass, Profiles, Report, Request, Scheduler, SchedulerConfiguration,
};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::support::*;

const WIDTH: usize = 100;

/// A decision in which the plugin matters, and the cluster for which it matters.
type Situation = (&'static str, Decision, &'static str);

/// What `atoll explain` prints about the decision, and about the cluster.
fn page((plugin, decision, cluster): &Situation) -> String {
    let changes = remedies(decision, cluster);
    assert!(!changes.is_empty(), "{plugin}: nothing would change the outcome for {cluster}");
    format!("{}\nFor {cluster}\n  {}\n", render(decision, WIDTH), changes.join("\n  "))
}

fn with_room(names: &str, room: i64) -> World {
    World::new(names.split(' ').map(|name| cluster(name, &[("name", name)], Some(room))))
}

fn divided(more: Value) -> Value {
    let mut placement = json!({"replicaScheduling": {"replicaSchedulingType": "Divided",
        "weightPreference": {"dynamicWeight": "AvailableReplicas"}}});
    for (field, value) in more.as_object().into_iter().flatten() {
        placement[field] = value.clone();
    }
    placement
}

/// A placement on a single cluster.
fn single(more: Value) -> Value {
    let mut placement = divided(more);
    placement["spreadConstraints"] = json!([{"spreadByField": "cluster", "maxGroups": 1}]);
    placement
}

fn only(name: &str) -> Value {
    json!({"clusterAffinity": {"clusterNames": [name]}})
}

fn cluster_sets() -> Situation {
    let mut world = with_room("berlin paris", 10);
    let team = json!({"matchLabels": {"team": "shop"}});
    world.cluster_sets(&[("shop", team, json!({"matchLabels": {"name": "berlin"}}))]);
    ("ClusterSets", world.decide(&workload("web", 4, divided(json!({})))), "paris")
}

fn cluster_affinity() -> Situation {
    let mut world = with_room("berlin paris", 10);
    ("ClusterAffinity", world.decide(&workload("web", 4, divided(only("berlin")))), "paris")
}

fn taint_toleration() -> Situation {
    let mut world = with_room("berlin paris", 10);
    world.taint("paris", "NoSchedule");
    ("TaintToleration", world.decide(&workload("web", 4, divided(json!({})))), "paris")
}

fn api_enablement() -> Situation {
    let mut world = with_room("berlin paris", 10);
    world.edit("paris", |cluster| {
        cluster.status.as_mut().unwrap().api_enablements.retain(|api| api.group_version == "v1");
    });
    ("APIEnablement", world.decide(&workload("web", 4, divided(json!({})))), "paris")
}

/// The taint is gone, but the eviction goes on.
fn cluster_eviction() -> Situation {
    let mut world = with_room("berlin paris", 10);
    let mut request = workload("web", 4, divided(json!({})));
    world.step(&mut request);
    world.taint("paris", "NoExecute");
    world.step(&mut request);
    world.edit("paris", |cluster| cluster.spec.taints.clear());
    ("ClusterEviction", world.scale(&mut request, 5), "paris")
}

fn application_health() -> Situation {
    let mut world = with_room("berlin paris", 10);
    let mut request = workload("web", 4, divided(json!({})));
    let rules = json!({"application": {"decisionConditions": {"tolerationSeconds": 120}}});
    request.failover = Some(serde_json::from_value(rules).unwrap());
    world.step(&mut request);
    let report = Report { healthy: Some(false), unhealthy_since: Some(now()), ..Report::default() };
    request.reports.insert("paris".into(), report);
    request.now = now() + SignedDuration::from_secs(120);
    ("ApplicationHealth", world.step(&mut request), "paris")
}

fn workload_affinity() -> Situation {
    let mut world = with_room("berlin paris", 10);
    let near = json!({"workloadAffinity": {"affinity": {"groupByLabelKey": "tier"}}});
    let mut of_group = |name: &str, mut placement: Value| {
        placement["workloadAffinity"] = near["workloadAffinity"].clone();
        let mut request = workload(name, 2, placement);
        request.template.labels = BTreeMap::from([("tier".into(), "front".into())]);
        world.step(&mut request)
    };
    of_group("first", divided(only("berlin")));
    ("WorkloadAffinity", of_group("second", divided(json!({}))), "paris")
}

fn spread_constraint() -> Situation {
    let mut world = with_room("berlin paris", 10);
    world.edit("berlin", |cluster| cluster.spec.region = Some("eu".into()));
    let by_region = json!({"spreadConstraints": [{"spreadByField": "region", "minGroups": 1}]});
    ("SpreadConstraint", world.decide(&workload("web", 4, divided(by_region))), "paris")
}

/// One zone is full and holds the other down; one cluster has no zone.
fn topology_spread() -> Situation {
    let of = |name, zone, room| cluster(name, &[("zone", zone)], Some(room));
    let mut world =
        World::new([of("berlin", "a", 10), of("bonn", "b", 1), cluster("paris", &[], Some(10))]);
    let constraint = json!({"topologyKey": "zone", "maxSkew": 1, "countFullDomains": true});
    let even = json!({ "topologySpreadConstraints": [constraint] });
    ("TopologySpread", world.decide(&workload("web", 4, divided(even))), "paris")
}

fn workload_policy() -> Situation {
    let of = |name, zone| cluster(name, &[("zone", zone)], Some(10));
    let mut world = World::new([of("berlin", "a"), of("bonn", "b"), cluster("paris", &[], None)]);
    world.policy(json!({
        "topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}},
        "allocationPolicy": [{"name": "a", "replicas": 3}, {"name": "b", "replicas": 1}],
        "allocationType": "Required",
    }));
    ("WorkloadPolicy", world.decide(&steered("web", 4)), "paris")
}

fn workload_spread() -> Situation {
    let mut world = with_room("berlin paris", 10);
    world.spread(json!({
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "subsets": [{"name": "own", "requiredClusterSelector": {"matchLabels": {"name": "berlin"}}}],
    }));
    ("WorkloadSpread", world.decide(&workload("web", 4, json!({}))), "paris")
}

/// A set of components fits as a whole or not at all.
fn resource_fit() -> Situation {
    let mut world = World::new([cluster("berlin", &[], Some(10)), cluster("paris", &[], Some(2))]);
    let mut request = workload("web", 1, json!({}));
    let component = json!({"name": "taskmanager", "replicas": 4});
    request.template.replicas = None;
    request.template.components = vec![serde_json::from_value(component).unwrap()];
    ("ResourceFit", world.decide(&request), "paris")
}

/// Replicas of paris have found no node for a minute; berlin has room for some of them.
fn auto_migration() -> Situation {
    let mut world = with_room("berlin paris", 4);
    let on = json!({"rescheduleOn": ["ReplicasChange", "ClusterFailure", "Unschedulable"]});
    let mut request = workload("web", 8, divided(on));
    world.step(&mut request);
    world.room("berlin", 6);
    let stuck = Report { replicas: 4, ready: 1, ..report(3, "2026-08-21T12:00:00Z") };
    request.reports.insert("paris".into(), stuck);
    request.now = now() + SignedDuration::from_secs(60);
    world.step(&mut request);
    // What is added goes nowhere: berlin is full, and paris counts as full.
    world.room("paris", 9);
    ("AutoMigration", world.scale(&mut request, 9), "paris")
}

/// paris has more room, but berlin runs the workload.
fn cluster_locality() -> Situation {
    let mut world = with_room("berlin paris", 10);
    let mut request = workload("web", 4, single(only("berlin")));
    world.step(&mut request);
    world.room("paris", 11);
    request.placement = serde_json::from_value(single(json!({}))).unwrap();
    ("ClusterLocality", world.step(&mut request), "paris")
}

fn sticky() -> Situation {
    let mut world = with_room("berlin paris", 10);
    let mut request = workload("web", 4, single(json!({"sticky": true})));
    let here = shares(&world.step(&mut request)).into_keys().next().unwrap();
    world.taint(&here, "NoExecute");
    let there = if here == "berlin" { "paris" } else { "berlin" };
    ("Sticky", world.scale(&mut request, 5), there)
}

fn replica_division() -> Situation {
    let mut world = with_room("berlin bonn paris", 10);
    let weight = |name: &str, weight: i64| json!({"targetCluster": {"clusterNames": [name]}, "weight": weight});
    let weights = json!({"staticWeightList": [weight("berlin", 3), weight("bonn", 1)]});
    let placement = json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "weightPreference": weights}});
    ("ReplicaDivision", world.decide(&workload("web", 4, placement)), "paris")
}

/// All that runs there has the same priority.
fn preemption() -> Situation {
    let mut world = with_room("berlin", 4);
    let text = "apiVersion: config.atoll.dev/v1alpha1\nkind: SchedulerConfiguration\nprofiles:\n\
                - schedulerName: preempting\n  plugins: {postFilter: {enabled: [{name: Preemption}]}}\n";
    world.profiles = Profiles::read(&SchedulerConfiguration::read(text).unwrap()).unwrap();
    world.scheduler = Scheduler::new(world.profiles.clone());
    let high = |name: &str, replicas| {
        let mut request: Request = workload(name, replicas, divided(json!({})));
        request.scheduler_name = "preempting".into();
        request.priority.value = 100;
        request.priority.class = Some(PriorityClass { name: "high".into(), never_preempts: false });
        request
    };
    world.step(&mut high("first", 3));
    ("Preemption", world.decide(&high("second", 2)), "berlin")
}

#[test]
fn each_plugin_says_why_why_not_and_what_would_change_it() {
    let situations = [
        cluster_sets(),
        cluster_affinity(),
        taint_toleration(),
        api_enablement(),
        cluster_eviction(),
        application_health(),
        workload_affinity(),
        spread_constraint(),
        topology_spread(),
        workload_policy(),
        workload_spread(),
        resource_fit(),
        auto_migration(),
        cluster_locality(),
        sticky(),
        replica_division(),
        preemption(),
    ];
    for situation in &situations {
        let (plugin, text) = (situation.0, page(situation));
        assert!(text.contains(plugin), "{plugin} is not in its own explanation:\n{text}");
        insta::assert_snapshot!(plugin, text);
    }
    let explained: BTreeSet<&str> = situations.iter().map(|(plugin, ..)| *plugin).collect();
    let core = REGISTRY.iter().filter(|one| matches!(one.build, Build::Core(_)));
    assert_eq!(explained, core.map(|one| one.name).collect());
}
