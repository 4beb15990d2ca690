//! Decisions in which the linter saw faults that were none. Every decision of these tests is checked by it.

use atoll_api::binding::Outcome;
use serde_json::json;

use crate::support::*;

#[test]
fn copies_that_follow_a_new_number_while_a_spread_constraint_fails_do_not_count_as_moves() {
    for effect in ["NoExecute", "NoSchedule"] {
        for least in [2, 3] {
            let mut world = World::new(["a", "b", "c"].map(|name| cluster(name, &[], Some(50))));
            let mut request = workload(
                "web",
                2,
                json!({
                    "replicaScheduling": {"replicaSchedulingType": "Duplicated"},
                    "spreadConstraints": [{"spreadByField": "cluster", "minGroups": least, "maxGroups": 3}],
                }),
            );
            world.step(&mut request);
            for name in ["a", "b"] {
                world.taint(name, effect);
                request.template.replicas = Some(request.template.replicas.unwrap() + 2);
                let decision = world.step(&mut request);
                assert!(shares(&decision).values().all(|n| Some(*n) == request.template.replicas));
            }
        }
    }
}

#[test]
fn with_karmadas_rules_a_divided_workload_that_fits_nowhere_has_nothing_pending() {
    let mut world = World::new([cluster("a", &[], Some(50))]);
    let mut request = workload(
        "web",
        4,
        json!({
            "clusterAffinity": {"clusterNames": ["elsewhere"]},
            "replicaScheduling": {"replicaSchedulingType": "Divided"},
        }),
    );
    request.scheduler_name = "karmada".into();
    let decision = world.step(&mut request);
    assert_eq!((decision.outcome(), placed(&decision)), (Outcome::NoFit, 0));
}
