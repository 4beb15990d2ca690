//! ReplicaSets.

use serde_json::json;

use super::sandbox::{Sandbox, workload};
use crate::index::kind::Kind;

#[test]
fn orphans_that_match_are_adopted_and_strangers_let_go() {
    let mut sandbox = Sandbox::with_nodes(1);
    let pod = |name: &str, app: &str| {
        json!({
            "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}},
            "spec": {"containers": [{"name": "main", "image": "image:1"}]},
        })
    };
    sandbox.create(pod("loose", "web"));
    sandbox.create(pod("other", "db"));
    sandbox.create(workload("ReplicaSet", "web", 2));
    sandbox.advance(5);
    let owner = |s: &Sandbox, name: &str| {
        s.get(Kind::Pod, name).unwrap().controller().map(|owner| owner.name.clone())
    };
    assert_eq!(owner(&sandbox, "loose").as_deref(), Some("web"));
    assert_eq!(owner(&sandbox, "other"), None);
    assert_eq!(sandbox.pods().len(), 3, "one was adopted, one created");
    // A Pod that no longer matches is released and replaced.
    sandbox.patch(Kind::Pod, "loose", json!({"metadata": {"labels": {"app": "none"}}}));
    sandbox.advance(5);
    assert_eq!(owner(&sandbox, "loose"), None);
    assert_eq!(sandbox.field(Kind::ReplicaSet, "web", "/status/readyReplicas"), json!(2));
    assert_eq!(sandbox.pods().len(), 4);
}

#[test]
fn pods_that_serve_least_go_first() {
    let mut sandbox = Sandbox::with_nodes(2);
    sandbox.create(workload("ReplicaSet", "web", 4));
    sandbox.advance(5);
    let names: Vec<_> = sandbox.pods().iter().map(|pod| pod.key.name.clone()).collect();
    let annotate = |s: &mut Sandbox, name: &str, key: &str, value: &str| {
        s.patch(Kind::Pod, name, json!({"metadata": {"annotations": {key: value}}}));
    };
    annotate(&mut sandbox, &names[2], "simulator.atoll.dev/fail", "unready");
    annotate(&mut sandbox, &names[1], "controller.kubernetes.io/pod-deletion-cost", "-5");
    sandbox.advance(1);
    let mut expected = names.clone();
    for gone in [2, 1] {
        let left = expected.len() - 1;
        expected.retain(|name| *name != names[gone]);
        sandbox.patch(Kind::ReplicaSet, "web", json!({"spec": {"replicas": left}}));
        sandbox.advance(5);
        let now: Vec<_> = sandbox.pods().iter().map(|pod| pod.key.name.clone()).collect();
        assert_eq!(now, expected);
    }
}

#[test]
fn a_surplus_leaves_the_fuller_node_first() {
    let mut sandbox = Sandbox::with_nodes(2);
    sandbox.create(workload("ReplicaSet", "web", 5));
    sandbox.advance(5);
    sandbox.patch(Kind::ReplicaSet, "web", json!({"spec": {"replicas": 4}}));
    sandbox.advance(5);
    let on = |node: &str| {
        sandbox.active().iter().filter(|pod| pod.pod().node.as_deref() == Some(node)).count()
    };
    assert_eq!((on("n1"), on("n2")), (2, 2));
}
