//! Nodes that register, send heartbeats, become silent and come back.

use serde_json::json;

use super::sandbox::{Sandbox, capacity, workload};
use crate::index::kind::Kind;
use crate::kubelet::annotations::DOWN;

fn switch(sandbox: &mut Sandbox, node: &str, down: bool) {
    let value = if down { json!("true") } else { json!(null) };
    sandbox.patch(Kind::Node, node, json!({"metadata": {"annotations": {DOWN: value}}}));
}

fn ready(sandbox: &Sandbox, node: &str) -> String {
    sandbox.condition(Kind::Node, node, "Ready").unwrap().0
}

#[test]
fn a_node_reports_itself_and_beats_every_five_minutes() {
    let mut sandbox = Sandbox::with_nodes(1);
    let field = |s: &Sandbox, pointer: &str| s.field(Kind::Node, "n1", pointer);
    assert_eq!(ready(&sandbox, "n1"), "True");
    assert_eq!(field(&sandbox, "/status/allocatable/cpu"), json!("8"));
    assert_eq!(field(&sandbox, "/metadata/labels/kubernetes.io~1hostname"), json!("n1"));
    assert_eq!(field(&sandbox, "/spec/podCIDR"), json!("10.128.0.0/22"));
    let before = sandbox.log.len();
    sandbox.advance(3600);
    assert_eq!(sandbox.log.len() - before, 12);
    // An empty Node object created by a user gets the standard capacity. kube-apiserver taints it until it is ready.
    let taints = json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]);
    let bare = json!({"kind": "Node", "metadata": {"name": "bare"}, "spec": {"taints": taints}});
    sandbox.create(bare);
    sandbox.settle();
    assert_eq!(sandbox.field(Kind::Node, "bare", "/status/capacity/memory"), json!("32Gi"));
    assert_eq!(sandbox.field(Kind::Node, "bare", "/spec/podCIDR"), json!("10.128.4.0/22"));
    assert_eq!(sandbox.field(Kind::Node, "bare", "/spec/taints"), json!([]));
}

#[test]
fn pods_of_a_silent_node_are_replaced_and_end_when_it_is_back() {
    let mut sandbox = Sandbox::with_nodes(3);
    sandbox.create(workload("Deployment", "web", 3));
    sandbox.advance(5);
    let victim = sandbox
        .active()
        .iter()
        .find(|pod| pod.pod().node.as_deref() == Some("n2"))
        .unwrap()
        .key
        .name
        .clone();
    switch(&mut sandbox, "n2", true);
    sandbox.advance(45);
    assert_eq!((ready(&sandbox, "n2").as_str(), sandbox.ready()), ("True", 3), "not noticed yet");
    sandbox.advance(10);
    assert_eq!((ready(&sandbox, "n2").as_str(), sandbox.ready()), ("Unknown", 2));
    assert_eq!(sandbox.field(Kind::Deployment, "web", "/status/readyReplicas"), json!(2));
    sandbox.advance(280);
    assert_eq!(sandbox.pods().len(), 3, "tolerated for 300 s");
    sandbox.advance(30);
    assert_eq!(
        (sandbox.pods().len(), sandbox.ready()),
        (4, 3),
        "replaced, the old one still to be confirmed"
    );
    assert_eq!(sandbox.writes_after_restart(), Vec::<String>::new());
    switch(&mut sandbox, "n2", false);
    sandbox.advance(5);
    assert!(sandbox.get(Kind::Pod, &victim).is_none());
    assert_eq!((ready(&sandbox, "n2").as_str(), sandbox.pods().len()), ("True", 3));
    assert_eq!(sandbox.field(Kind::Node, "n2", "/spec/taints"), json!([]));
}

#[test]
fn a_node_that_is_back_in_time_keeps_its_pods() {
    let mut sandbox = Sandbox::with_nodes(2);
    sandbox.create(workload("Deployment", "web", 2));
    sandbox.advance(5);
    let before: Vec<_> = sandbox.pods().iter().map(|pod| pod.uid.clone()).collect();
    switch(&mut sandbox, "n1", true);
    sandbox.advance(100);
    assert_eq!(sandbox.ready(), 1);
    switch(&mut sandbox, "n1", false);
    sandbox.advance(1);
    assert_eq!(sandbox.ready(), 2);
    let after: Vec<_> = sandbox.pods().iter().map(|pod| pod.uid.clone()).collect();
    assert_eq!(before, after);
}

#[test]
fn pods_of_a_deleted_node_are_collected() {
    let mut sandbox = Sandbox::with_nodes(2);
    sandbox.create(workload("Deployment", "web", 2));
    sandbox.advance(5);
    sandbox.delete(Kind::Node, "n1");
    sandbox.advance(30);
    assert_eq!(sandbox.pods().len(), 2, "in quarantine for 40 s");
    sandbox.advance(15);
    assert!(sandbox.pods().iter().all(|pod| pod.pod().node.as_deref() == Some("n2")));
    assert_eq!(sandbox.ready(), 2);
}

#[test]
fn a_no_execute_taint_puts_pods_out_after_their_toleration() {
    let mut sandbox = Sandbox::with_nodes(1);
    let pod = |name: &str, tolerations: serde_json::Value| {
        json!({"kind": "Pod", "metadata": {"name": name}, "spec": {
            "containers": [{"name": "main", "image": "i"}], "tolerations": tolerations,
        }})
    };
    let toleration = |seconds: serde_json::Value| json!([{"key": "repair", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
    sandbox.create(pod("none", json!([])));
    sandbox.create(pod("some", toleration(json!(20))));
    sandbox.create(pod("ever", toleration(json!(null))));
    sandbox.advance(3);
    sandbox.patch(
        Kind::Node,
        "n1",
        json!({"spec": {"taints": [{"key": "repair", "effect": "NoExecute"}]}}),
    );
    let names = |s: &Sandbox| s.pods().iter().map(|pod| pod.key.name.clone()).collect::<Vec<_>>();
    sandbox.advance(5);
    assert_eq!(names(&sandbox), ["ever", "some"]);
    sandbox.advance(20);
    assert_eq!(names(&sandbox), ["ever"]);
}

#[test]
fn a_nodes_size_is_the_options_word_or_its_own() {
    let mut sandbox = Sandbox::with_nodes(0);
    // The second is in the member's options with capacity 8; the first was created by a user.
    for name in ["small", "member1-node1"] {
        sandbox.add_node(name, "z", &capacity("1", "1Gi", 10));
    }
    sandbox.settle();
    let cpu = |name: &str| sandbox.field(Kind::Node, name, "/status/allocatable/cpu");
    assert_eq!((cpu("small"), cpu("member1-node1")), (json!("1"), json!("8")));
}
