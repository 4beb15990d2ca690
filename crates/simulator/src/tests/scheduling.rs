//! The Pod scheduler.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::sandbox::{Dice, Sandbox, capacity, template, workload};
use crate::index::kind::Kind;
use crate::index::pod::{Amounts, add, amounts};

fn message(sandbox: &Sandbox, pod: &str) -> String {
    let conditions = sandbox.field(Kind::Pod, pod, "/status/conditions");
    conditions[0]["message"].as_str().unwrap_or_default().to_owned()
}

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({
        "kind": "Pod", "metadata": {"name": name, "labels": {"tier": "front"}},
        "spec": {"containers": [{"name": "main", "image": "image:1"}]},
    });
    json_patch::merge(&mut pod["spec"], &spec);
    pod
}

fn asking(name: &str, cpu: &str) -> Value {
    pod(name, json!({"containers": template("web", "image:1", cpu)["spec"]["containers"]}))
}

fn node_of(sandbox: &Sandbox, pod: &str) -> Option<String> {
    sandbox.get(Kind::Pod, pod).unwrap().pod().node.clone()
}

#[test]
fn what_fits_nowhere_waits_until_there_is_room() {
    let mut sandbox = Sandbox::with_nodes(3);
    sandbox.create(asking("big", "9"));
    sandbox.settle();
    assert_eq!(message(&sandbox, "big"), "0/3 nodes are available: 3 Insufficient cpu.");
    let scheduled = sandbox.condition(Kind::Pod, "big", "PodScheduled").unwrap();
    assert_eq!(scheduled, ("False".into(), "Unschedulable".into()));
    sandbox.patch(Kind::Node, "n2", json!({"spec": {"unschedulable": true}}));
    sandbox.settle();
    let expected = "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu.";
    assert_eq!(message(&sandbox, "big"), expected);
    sandbox.add_node("n4", "z4", &capacity("16", "32Gi", 110));
    sandbox.advance(3);
    assert_eq!(node_of(&sandbox, "big").as_deref(), Some("n4"));
    assert_eq!(sandbox.condition(Kind::Pod, "big", "Ready").unwrap().0, "True");
}

#[test]
fn room_that_a_pod_leaves_is_given_out_again() {
    let mut sandbox = Sandbox::with_nodes(1);
    sandbox.create(asking("a", "6"));
    sandbox.create(asking("b", "6"));
    sandbox.advance(3);
    assert!(node_of(&sandbox, "b").is_none());
    sandbox.delete(Kind::Pod, "a");
    sandbox.advance(4);
    assert_eq!(node_of(&sandbox, "b").as_deref(), Some("n1"));
}

#[test]
fn every_reason_is_counted_in_the_words_of_kube_scheduler() {
    let mut sandbox = Sandbox::with_nodes(0);
    sandbox.create(pod("any", json!({})));
    sandbox.settle();
    assert_eq!(message(&sandbox, "any"), "no nodes available to schedule pods");
    sandbox.add_node("full", "z", &capacity("8", "32Gi", 0));
    sandbox.add_node("tainted", "z", &capacity("8", "32Gi", 9));
    sandbox.patch(
        Kind::Node,
        "tainted",
        json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}}),
    );
    sandbox.add_node("wrong", "z", &capacity("8", "32Gi", 9));
    sandbox.patch(Kind::Pod, "any", json!({"spec": {"nodeSelector": {"size": "large"}}}));
    sandbox.patch(Kind::Node, "full", json!({"metadata": {"labels": {"size": "large"}}}));
    sandbox.settle();
    assert_eq!(
        message(&sandbox, "any"),
        "0/3 nodes are available: 1 Too many pods, 1 node(s) didn't match Pod's node affinity/selector, \
         1 node(s) had untolerated taint {k: v}."
    );
}

#[test]
fn pods_go_where_most_is_free_and_ties_to_the_first_name() {
    let mut sandbox = Sandbox::with_nodes(3);
    for (number, node) in ["n1", "n2", "n3", "n1"].iter().enumerate() {
        let name = format!("p{number}");
        sandbox.create(asking(&name, "1"));
        sandbox.settle();
        assert_eq!(node_of(&sandbox, &name).as_deref(), Some(*node));
    }
}

#[test]
fn anti_affinity_spreads_and_affinity_gathers() {
    let term = |key: &str| json!([{"labelSelector": {"matchLabels": {"tier": "front"}}, "topologyKey": key}]);
    let rule = |kind: &str, key: &str| json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": term(key)}}});
    for key in ["kubernetes.io/hostname", "topology.kubernetes.io/zone"] {
        let mut sandbox = Sandbox::with_nodes(3);
        let mut web = workload("ReplicaSet", "web", 4);
        web["spec"]["template"]["metadata"]["labels"]["tier"] = json!("front");
        json_patch::merge(&mut web["spec"]["template"]["spec"], &rule("podAntiAffinity", key));
        sandbox.create(web);
        sandbox.advance(3);
        let nodes: std::collections::BTreeSet<_> =
            sandbox.active().iter().map(|p| p.pod().node.clone()).collect();
        assert_eq!((sandbox.ready(), nodes.len()), (3, 4), "three nodes and one without");
        let lost =
            sandbox.active().iter().find(|p| p.pod().node.is_none()).unwrap().key.name.clone();
        let expected = "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules.";
        assert_eq!(message(&sandbox, &lost), expected);
        // Existing Pods repel others, too.
        sandbox.create(pod("plain", json!({})));
        sandbox.settle();
        assert!(
            message(&sandbox, "plain").contains("existing pods anti-affinity"),
            "{}",
            message(&sandbox, "plain")
        );
    }
    let mut sandbox = Sandbox::with_nodes(3);
    let mut web = workload("ReplicaSet", "web", 5);
    web["spec"]["template"]["metadata"]["labels"]["tier"] = json!("front");
    json_patch::merge(
        &mut web["spec"]["template"]["spec"],
        &rule("podAffinity", "kubernetes.io/hostname"),
    );
    sandbox.create(web);
    sandbox.advance(3);
    assert!(sandbox.active().iter().all(|pod| pod.pod().node.as_deref() == Some("n1")));
}

#[test]
fn the_more_important_pod_is_first_and_gates_hold() {
    let mut sandbox = Sandbox::with_nodes(0);
    sandbox.create(asking("low", "6"));
    let mut high = asking("high", "6");
    high["spec"]["priority"] = json!(100);
    sandbox.create(high);
    let mut gated = asking("gated", "1");
    gated["spec"]["schedulingGates"] = json!([{"name": "wait"}]);
    sandbox.create(gated);
    sandbox.add_node("n1", "z1", &capacity("8", "32Gi", 110));
    sandbox.settle();
    assert!(node_of(&sandbox, "high").is_some() && node_of(&sandbox, "low").is_none());
    assert_eq!(sandbox.condition(Kind::Pod, "gated", "PodScheduled").unwrap().1, "SchedulingGated");
    sandbox.patch(Kind::Pod, "gated", json!({"spec": {"schedulingGates": null}}));
    sandbox.settle();
    assert!(node_of(&sandbox, "gated").is_some());
}

/// Random nodes and Pods come and go, events lag: no node ever holds more than its capacity.
#[test]
fn no_node_is_ever_overcommitted() {
    for seed in 0..20 {
        println!("seed {seed}");
        let mut dice = Dice::new(seed);
        let mut sandbox = Sandbox::with_nodes(1).lagging(seed);
        sandbox.check_each_write(move |sandbox| {
            let mut booked: BTreeMap<String, Amounts> = BTreeMap::new();
            for pod in sandbox.pods().iter().filter(|pod| !pod.pod().is_finished()) {
                let Some(node) = &pod.pod().node else { continue };
                let entry = booked.entry(node.clone()).or_default();
                add(entry, &pod.pod().requests);
                add(entry, &Amounts::from([("pods".to_owned(), 1000)]));
            }
            for node in sandbox.all(Kind::Node) {
                let all = amounts(&node.data, "/status/allocatable");
                for (name, amount) in booked.get(&node.key.name).into_iter().flatten() {
                    assert!(amount <= &all[name], "seed {seed}: {name} of {}", node.key.name);
                }
            }
        });
        for step in 0..25 {
            match dice.below(5) {
                0 => {
                    let cpu = (dice.below(8) + 1).to_string();
                    let pods = u32::try_from(dice.below(5) + 1).unwrap();
                    sandbox.add_node(&format!("x{step}"), "z", &capacity(&cpu, "8Gi", pods));
                }
                1 if !sandbox.active().is_empty() => {
                    let active = sandbox.active();
                    let at = usize::try_from(dice.below(active.len() as u64)).unwrap();
                    sandbox.delete(Kind::Pod, &active[at].key.name);
                }
                _ => sandbox
                    .create(asking(&format!("p{step}"), &format!("{}m", dice.below(40) * 100))),
            }
            sandbox.advance(dice.below(2));
        }
        // Pods that are still pending really fit nowhere.
        sandbox.advance(5);
        for waiting in sandbox.active().iter().filter(|pod| pod.pod().node.is_none()) {
            assert!(message(&sandbox, &waiting.key.name).starts_with("0/"), "seed {seed}");
        }
        assert_eq!(sandbox.writes_after_restart(), Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn hard_spread_constraints_keep_the_skew() {
    let mut sandbox = Sandbox::with_nodes(2);
    sandbox.add_node("n3", "z2", &capacity("64", "256Gi", 110));
    let mut web = workload("ReplicaSet", "web", 6);
    web["spec"]["template"]["spec"]["topologySpreadConstraints"] = json!([{
        "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }]);
    sandbox.create(web);
    sandbox.advance(3);
    let in_z1 =
        |s: &Sandbox| s.active().iter().filter(|p| p.pod().node.as_deref() == Some("n1")).count();
    assert_eq!((in_z1(&sandbox), sandbox.ready()), (3, 6));
    // The first zone can take no more, so the second may be one ahead and then has to wait.
    sandbox.patch(Kind::Node, "n1", json!({"spec": {"unschedulable": true}}));
    sandbox.patch(Kind::ReplicaSet, "web", json!({"spec": {"replicas": 9}}));
    sandbox.advance(3);
    assert_eq!(sandbox.ready(), 7);
    let waiting =
        sandbox.active().iter().find(|p| p.pod().node.is_none()).unwrap().key.name.clone();
    assert_eq!(
        message(&sandbox, &waiting),
        "0/3 nodes are available: 1 node(s) were unschedulable, \
         2 node(s) didn't match pod topology spread constraints."
    );
}
