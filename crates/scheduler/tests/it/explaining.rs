//! The explanation of a decision: twelve situations, and the size of the largest decision.

use atoll_api::placement::RescheduleOn;
use atoll_decision::explain::render;
use serde_json::{Value, json};

use crate::support::*;

const WIDTH: usize = 100;

fn small() -> World {
    let mut world = World::new([
        cluster("berlin", &[("env", "prod"), ("area", "eu")], Some(20)),
        cluster("dublin", &[("env", "prod"), ("area", "eu")], Some(8)),
        cluster("lab", &[("env", "dev"), ("area", "eu")], Some(50)),
        cluster("tokyo", &[("env", "prod"), ("area", "asia")], None),
    ]);
    world.taint("tokyo", "NoSchedule");
    world
}

fn dynamic() -> Value {
    json!({
        "clusterAffinity": {"labelSelector": {"matchLabels": {"env": "prod"}}},
        "replicaScheduling": {"replicaSchedulingType": "Divided",
            "weightPreference": {"dynamicWeight": "AvailableReplicas"}},
    })
}

#[test]
fn twelve_situations() {
    let mut world = small();
    let mut request = workload("web", 7, dynamic());
    insta::assert_snapshot!("01_first", render(&world.step(&mut request), WIDTH));
    insta::assert_snapshot!("02_unchanged", render(&world.step(&mut request), WIDTH));
    insta::assert_snapshot!("03_partial", render(&world.scale(&mut request, 40), WIDTH));
    insta::assert_snapshot!("04_scaled_down", render(&world.scale(&mut request, 6), WIDTH));
    world.taint("berlin", "NoExecute");
    insta::assert_snapshot!("05_failover", render(&world.step(&mut request), WIDTH));

    let mut world = small();
    let nowhere = json!({"clusterAffinity": {"labelSelector": {"matchLabels": {"env": "qa"}}}});
    insta::assert_snapshot!(
        "06_no_fit",
        render(&world.decide(&workload("web", 2, nowhere)), WIDTH)
    );
    let mistake =
        json!({"spreadConstraints": [{"spreadByField": "region", "minGroups": 3, "maxGroups": 2}]});
    insta::assert_snapshot!(
        "07_invalid",
        render(&world.decide(&workload("web", 2, mistake)), WIDTH)
    );

    world.policy(json!({
        "topologyKey": "area", "labelSelector": {"matchLabels": {"app": "web"}},
        "allocationPolicy": [{"name": "asia", "replicas": 2}, {"name": "eu", "replicas": 3}],
        "allocationType": "Required",
    }));
    insta::assert_snapshot!("08_workload_policy", render(&world.decide(&steered("web", 5)), WIDTH));

    let mut world = small();
    world.spread(json!({
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "subsets": [
            {"name": "prod", "maxReplicas": 30, "requiredClusterSelector": {"matchLabels": {"env": "prod"}}},
            {"name": "rest"}],
    }));
    let spread = world.decide(&workload("web", 40, json!({})));
    insta::assert_snapshot!("09_workload_spread", render(&spread, WIDTH));

    let mut world = small();
    let mut request =
        workload("web", 2, json!({"clusterAffinity": {"clusterNames": ["berlin", "dublin"]}}));
    world.step(&mut request);
    world.taint("berlin", "NoExecute");
    insta::assert_snapshot!("10_failover_infeasible", render(&world.step(&mut request), WIDTH));

    let mut world = small();
    let mut request = workload("web", 6, dynamic());
    world.step(&mut request);
    world.edit("dublin", |cluster| {
        cluster.metadata.labels.as_mut().unwrap().insert("env".into(), "dev".into());
    });
    insta::assert_snapshot!("11_kept", render(&world.scale(&mut request, 9), WIDTH));
    request.placement.reschedule_on = Some(vec![RescheduleOn::ClusterChange]);
    insta::assert_snapshot!("12_cluster_change", render(&world.step(&mut request), WIDTH));
}

#[test]
fn the_weights_that_explain_a_split_are_shown() {
    let mut world = small();
    let weights = json!({"replicaScheduling": {"replicaSchedulingType": "Divided",
        "weightPreference": {"staticWeightList": [
            {"targetCluster": {"clusterNames": ["berlin"]}, "weight": 3},
            {"targetCluster": {"clusterNames": ["dublin"]}, "weight": 2}]}}});
    let mut request = workload("web", 10, weights);
    insta::assert_snapshot!("13_static_weights", render(&world.decide(&request), WIDTH));
    request.scheduler_name = "karmada".into();
    let text = render(&world.decide(&request), WIDTH);
    let line = text.lines().find(|line| line.starts_with("berlin")).unwrap();
    assert_eq!(line.split_whitespace().take(4).collect::<Vec<_>>(), ["berlin", "-", "6", "3"]);
}

#[test]
fn a_decision_over_5000_clusters_stays_below_64_kib() {
    let clusters = (0..5000).map(|n| {
        let env = if n * 7919 % 13 < 6 { "prod" } else { "dev" };
        cluster(&format!("member-{n:04}"), &[("env", env)], Some(n * 7919 % 997))
    });
    let mut world = World::new(clusters);
    let duplicated =
        json!({"clusterAffinity": {"labelSelector": {"matchLabels": {"env": "prod"}}}});
    for (name, replicas, placement) in
        [("dup", 20, duplicated), ("some", 20, dynamic()), ("all", 100_000, dynamic())]
    {
        let mut request = workload(name, replicas, placement);
        for round in 0..2 {
            let decision = world.step(&mut request);
            let size = serde_json::to_string(&decision).unwrap().len();
            assert!(size < 64 * 1024, "{name}, round {round}: {size} bytes");
            assert!(render(&decision, WIDTH).lines().count() < 60);
            request.template.replicas = Some(replicas + 3);
        }
    }
}
