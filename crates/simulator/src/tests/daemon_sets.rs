//! DaemonSets.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::sandbox::{Sandbox, capacity, template, workload};
use crate::index::kind::Kind;

fn daemon() -> Value {
    let mut set = workload("DaemonSet", "log", 0);
    set["spec"].as_object_mut().unwrap().remove("replicas");
    set
}

fn nodes(sandbox: &Sandbox) -> Vec<String> {
    let mut nodes: Vec<_> =
        sandbox.active().iter().filter_map(|pod| pod.pod().node.clone()).collect();
    nodes.sort();
    nodes
}

fn status(sandbox: &Sandbox, counter: &str) -> i64 {
    sandbox.field(Kind::DaemonSet, "log", &format!("/status/{counter}")).as_i64().unwrap_or(0)
}

#[test]
fn every_eligible_node_has_one_pod() {
    let mut sandbox = Sandbox::with_nodes(3);
    sandbox.create(daemon());
    sandbox.until(10, "all ready", |s| status(s, "numberReady") == 3);
    assert_eq!(nodes(&sandbox), ["n1", "n2", "n3"]);
    sandbox.add_node("n4", "z1", &capacity("4", "8Gi", 10));
    sandbox.until(10, "the new node", |s| status(s, "numberReady") == 4);
    sandbox.delete(Kind::Node, "n2");
    sandbox.until(60, "the lost node", |s| s.pods().len() == 3);
    assert_eq!(
        (nodes(&sandbox), status(&sandbox, "desiredNumberScheduled")),
        (vec!["n1".into(), "n3".into(), "n4".into()], 3)
    );
    // A taint that no Pod tolerates, and a selector that no longer matches.
    let taint = json!([{"key": "gpu", "effect": "NoExecute"}]);
    sandbox.patch(Kind::Node, "n1", json!({"spec": {"taints": taint}}));
    sandbox.until(10, "the tainted node", |s| nodes(s) == ["n3", "n4"]);
    sandbox.patch(Kind::Node, "n3", json!({"metadata": {"labels": {"role": "edge"}}}));
    let selector = json!({"nodeSelector": {"role": "edge"}});
    sandbox.patch(Kind::DaemonSet, "log", json!({"spec": {"template": {"spec": selector}}}));
    sandbox.until(30, "the selector", |s| nodes(s) == ["n3"] && status(s, "numberReady") == 1);
    assert_eq!(sandbox.writes_after_restart(), Vec::<String>::new());
}

#[test]
fn a_cordoned_node_keeps_its_daemon() {
    let mut sandbox = Sandbox::with_nodes(2);
    sandbox.patch(Kind::Node, "n1", json!({"spec": {"unschedulable": true}}));
    sandbox.create(daemon());
    sandbox.until(10, "all ready", |s| status(s, "numberReady") == 2);
    assert_eq!(nodes(&sandbox), ["n1", "n2"]);
}

#[test]
fn an_update_keeps_within_its_margin() {
    for (update, least, most) in
        [(json!({"maxUnavailable": 2}), 3, 5), (json!({"maxUnavailable": 0, "maxSurge": 2}), 5, 7)]
    {
        let mut sandbox = Sandbox::with_nodes(5).lagging(2);
        let mut set = daemon();
        set["spec"]["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": update});
        sandbox.create(set);
        sandbox.until(10, "all ready", |s| status(s, "numberReady") == 5);
        sandbox.check_each_write(move |sandbox| {
            assert!(sandbox.ready() >= least, "{} ready", sandbox.ready());
            assert!(sandbox.active().len() <= most, "{} active", sandbox.active().len());
        });
        let new = json!({"spec": {"template": template("log", "image:2", "100m")}});
        sandbox.patch(Kind::DaemonSet, "log", new);
        sandbox.until(120, "all new", |s| {
            status(s, "updatedNumberScheduled") == 5
                && status(s, "numberAvailable") == 5
                && s.pods().len() == 5
        });
        let images: BTreeSet<_> = sandbox
            .pods()
            .iter()
            .map(|pod| pod.text("/spec/containers/0/image").unwrap().to_owned())
            .collect();
        assert_eq!(images, BTreeSet::from(["image:2".to_owned()]));
        assert_eq!(sandbox.writes_after_restart(), Vec::<String>::new());
    }
}
