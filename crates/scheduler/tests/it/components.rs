//! Objects with several pod templates: all components go to one cluster, where all of them fit.

use atoll_api::binding::{Component, Outcome, Trigger};
use atoll_api::quantity::Quantity;
use atoll_decision::explain::render;
use serde_json::{Value, json};

use crate::support::*;

const WIDTH: usize = 100;

/// Room by cluster: CPUs and pods.
fn world(rooms: &[(&str, i64, i64)]) -> World {
    World::new(rooms.iter().map(|(name, cpu, pods)| {
        let mut cluster = cluster(name, &[], Some(*pods));
        let summary = cluster.status.as_mut().unwrap().resource_summary.as_mut().unwrap();
        summary.allocatable.insert("cpu".into(), Quantity::from_units((*cpu).into()));
        cluster
    }))
}

/// A job manager with 1 CPU and task managers with 2 CPUs each.
fn flink(task_managers: i64, placement: Value) -> atoll_scheduler::Request {
    let component = |name: &str, replicas: i64, cpu: &str| Component {
        name: name.into(),
        replicas,
        replica_requirements: Some(
            serde_json::from_value(json!({"resourceRequest": {"cpu": cpu}})).unwrap(),
        ),
    };
    let mut request = workload("flink", 0, placement);
    request.template.replicas = None;
    request.template.components =
        vec![component("jobmanager", 1, "1"), component("taskmanager", task_managers, "2")];
    request
}

fn names(decision: &atoll_scheduler::Decision) -> Vec<&str> {
    decision.clusters().iter().map(|share| share.name.as_str()).collect()
}

#[test]
fn a_set_goes_to_one_cluster_with_room_for_all_components_and_stays_there() {
    let mut world = world(&[("large", 20, 50), ("small", 8, 50), ("tiny", 2, 50)]);
    let mut request = flink(4, json!({}));
    let first = world.step(&mut request);
    insta::assert_snapshot!("components_placed", render(&first, WIDTH));
    assert_eq!(names(&first), ["large"]);
    // A better cluster appears, and its own use leaves no room: it stays.
    world.edit("large", |cluster| {
        let summary = cluster.status.as_mut().unwrap().resource_summary.as_mut().unwrap();
        summary.allocatable.insert("cpu".into(), Quantity::from_units(1));
    });
    world.edit("small", |cluster| {
        let summary = cluster.status.as_mut().unwrap().resource_summary.as_mut().unwrap();
        summary.allocatable.insert("cpu".into(), Quantity::from_units(500));
    });
    let decision = world.step(&mut request);
    assert!(decision.trigger() == Trigger::Avoid || names(&decision) == ["large"]);
    // It fails: the whole set moves.
    world.taint("large", "NoExecute");
    assert_eq!(names(&world.step(&mut request)), ["small"]);
}

#[test]
fn a_set_that_fits_nowhere_says_which_component_lacks_what() {
    // On a, the task managers do not fit; on b, each component does, but not all together; c has too few pods.
    let mut world = world(&[("a", 7, 50), ("b", 8, 50), ("c", 100, 3)]);
    let mut request = flink(4, json!({}));
    let decision = world.step(&mut request);
    assert_eq!(decision.outcome(), Outcome::NoFit);
    insta::assert_snapshot!("components_do_not_fit", render(&decision, WIDTH));
    // Room for one more task manager wakes it.
    let changes = world.edit("a", |cluster| {
        let summary = cluster.status.as_mut().unwrap().resource_summary.as_mut().unwrap();
        summary.allocatable.insert("cpu".into(), Quantity::from_units(30));
    });
    let meets = |change: &atoll_scheduler::TableChange| {
        decision.waits_for().iter().any(|condition| change.meets(condition))
    };
    assert!(changes.iter().any(meets), "{changes:?}");
    assert_eq!(names(&world.step(&mut request)), ["a"]);
}

#[test]
fn a_set_cannot_be_divided_but_duplicated() {
    let mut world = world(&[("a", 20, 50), ("b", 20, 50), ("c", 2, 50)]);
    let divided = json!({"replicaScheduling": {"replicaSchedulingType": "Divided"}});
    let decision = world.decide(&flink(4, divided));
    assert_eq!(decision.outcome(), Outcome::Invalid);
    insta::assert_snapshot!("components_divided", render(&decision, WIDTH));
    let duplicated = json!({"replicaScheduling": {"replicaSchedulingType": "Duplicated"}});
    assert_eq!(names(&world.decide(&flink(4, duplicated))), ["a", "b"]);
}
