//! Single plugins: every way to select clusters, and every score with its args.

use atoll_scheduler::{Decision, Profiles, Request, Scheduler, SchedulerConfiguration};
use serde_json::{Value, json};

use crate::support::*;

fn located(name: &str, provider: &str, region: &str, zones: &[&str]) -> atoll_api::Cluster {
    let mut one = cluster(name, &[("name", name)], Some(9));
    one.spec.provider = Some(provider.into()).filter(|text: &String| !text.is_empty());
    one.spec.region = Some(region.into()).filter(|text: &String| !text.is_empty());
    one.spec.zones = zones.iter().map(|zone| (*zone).to_owned()).collect();
    one
}

/// Initials of the clusters that a clusterAffinity selects.
fn chosen(affinity: Value) -> String {
    let mut world = World::new([
        located("a", "aws", "east", &["e1"]),
        located("b", "aws", "west", &["w1", "w2"]),
        located("c", "gcp", "east", &["e2"]),
        located("d", "", "", &[]),
    ]);
    let decision = world.decide(&workload("web", 1, json!({"clusterAffinity": affinity})));
    decision.clusters().iter().map(|share| share.name.as_str()).collect()
}

#[test]
fn clusters_are_chosen_by_name_label_and_field() {
    let fields = |rules: Value| chosen(json!({"fieldSelector": {"matchExpressions": rules}}));
    let field = |key: &str, operator: &str, values: &[&str]| {
        fields(json!([{"key": key, "operator": operator, "values": values}]))
    };
    assert_eq!(field("provider", "In", &["aws"]), "ab");
    assert_eq!(field("provider", "NotIn", &["aws"]), "cd");
    assert_eq!(field("region", "In", &["east", "north"]), "ac");
    assert_eq!(field("region", "NotIn", &["east"]), "bd");
    assert_eq!(field("zone", "In", &["w2", "e2"]), "bc", "any zone of several");
    assert_eq!(field("zone", "NotIn", &["w1"]), "acd");
    assert_eq!(field("region", "Exists", &[]), "abc");
    assert_eq!(field("zone", "DoesNotExist", &[]), "d");
    let both = json!([{"key": "provider", "operator": "In", "values": ["aws"]},
        {"key": "region", "operator": "In", "values": ["east"]}]);
    assert_eq!(fields(both), "a", "all expressions hold together");

    assert_eq!(chosen(json!({"clusterNames": ["a", "c", "nobody"]})), "ac");
    assert_eq!(chosen(json!({"exclude": ["a", "d"]})), "bc");
    assert_eq!(chosen(json!({"clusterNames": ["a", "c"], "exclude": ["a"]})), "c");
    let labels = |operator: &str, values: &[&str]| {
        chosen(json!({"labelSelector": {"matchExpressions": [
            {"key": "name", "operator": operator, "values": values}]}}))
    };
    assert_eq!(labels("In", &["a", "b"]), "ab");
    assert_eq!(labels("NotIn", &["a", "b"]), "cd");
    assert_eq!(labels("Exists", &[]), "abcd");
    assert_eq!(labels("DoesNotExist", &[]), "");
}

/// The preferred cluster, if only one may be selected.
fn preferred(world: &mut World, profiles: Profiles, scheduler_name: &str) -> (String, Decision) {
    let one = json!({"spreadConstraints":
        [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]});
    let mut request = workload("web", 2, one);
    request.scheduler_name = scheduler_name.into();
    let snapshot = world.tables.snapshot();
    let decision = Scheduler::new(profiles).decide(&snapshot, &request);
    assert_eq!(atoll_scheduler::lint::lint(&snapshot, &request, &decision), []);
    let names: Vec<&str> = decision.clusters().iter().map(|share| &*share.name).collect();
    (names.concat(), decision.clone())
}

#[test]
fn a_prefer_no_schedule_taint_lowers_the_score() {
    let untainted = {
        let mut world = World::new(["a", "b"].map(|name| cluster(name, &[], Some(9))));
        preferred(&mut world, Profiles::default(), "default").0
    };
    let mut world = World::new(["a", "b"].map(|name| cluster(name, &[], Some(9))));
    world.taint(&untainted, "PreferNoSchedule");
    let (now, decision) = preferred(&mut world, Profiles::default(), "default");
    assert_ne!(now, untainted, "the other one is as good, and has no such taint");
    let score = |name: &str| {
        let (verdict, at) = decision.verdict(name).unwrap();
        verdict.scores["TaintToleration"].get(at).unwrap()
    };
    assert!(score(&untainted) < score(&now));
}

#[test]
fn room_is_preferred_or_filled_up_by_the_argument() {
    let profiles = |strategy: &str| {
        let text = format!(
            "apiVersion: config.atoll.dev/v1alpha1\nkind: SchedulerConfiguration\nprofiles:\n\
             - schedulerName: mine\n  pluginConfig: [{{name: ResourceFit, args: {{strategy: {strategy}}}}}]\n"
        );
        Profiles::read(&SchedulerConfiguration::read(&text).unwrap()).unwrap()
    };
    let mut world = World::new([cluster("roomy", &[], Some(90)), cluster("tight", &[], Some(9))]);
    assert_eq!(preferred(&mut world, profiles("LeastAllocated"), "mine").0, "roomy");
    assert_eq!(preferred(&mut world, profiles("MostAllocated"), "mine").0, "tight");
}

#[test]
fn where_it_runs_scores_full_marks() {
    let mut world = World::new(["a", "b", "c"].map(|name| cluster(name, &[], Some(9))));
    let mut request = workload("web", 1, json!({"clusterAffinity": {"clusterNames": ["b"]}}));
    world.step(&mut request);
    request.placement = serde_json::from_value(json!({})).unwrap();
    let decision = world.decide(&request);
    let score = |name: &str| {
        let (verdict, at) = decision.verdict(name).unwrap();
        verdict.scores["ClusterLocality"].get(at).unwrap()
    };
    assert_eq!(["a", "b", "c"].map(score), [0, 100, 0]);
}

#[test]
fn every_unit_of_spread_has_its_minimum_after_division() {
    // One cluster has nearly all the room. Without a minimum it gets all replicas.
    let mut world = World::new([
        located("a", "aws", "east", &["e1"]),
        located("b", "aws", "west", &["w1"]),
        located("c", "gcp", "west", &["w2"]),
    ]);
    world.room("a", 900);
    let placed = |world: &mut World, spread: Value| {
        let request: Request = workload(
            "web",
            3,
            json!({"spreadConstraints": [spread], "replicaScheduling": {
                "replicaSchedulingType": "Divided",
                "weightPreference": {"dynamicWeight": "AvailableReplicas"}}}),
        );
        shares(&world.decide(&request)).into_keys().collect::<Vec<_>>().concat()
    };
    let field = |field: &str, least: i64| json!({"spreadByField": field, "minGroups": least});
    assert_eq!(placed(&mut world, field("cluster", 1)), "a");
    assert_eq!(placed(&mut world, field("cluster", 3)), "abc");
    assert!(["ab", "ac"].contains(&&*placed(&mut world, field("region", 2))));
    assert_eq!(placed(&mut world, field("provider", 2)), "ac");
    assert!(["ab", "ac"].contains(&&*placed(&mut world, field("zone", 2))));
    let label = json!({"spreadByLabel": "name", "minGroups": 3});
    assert_eq!(placed(&mut world, label), "abc");
}
