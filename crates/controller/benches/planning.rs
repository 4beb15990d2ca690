//! Plans of a leader with many workloads: the copy that the event loop makes, and the plan itself. The reference is a
//! plain pass of the scheduler over all workloads, in the same run.
//!
//! `cargo xtask bench planning [-- WORKLOADS]`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark that fails has no result"
)]

use std::convert::Infallible;
use std::time::{Duration, Instant};

use atoll_api::marks;
use atoll_controller::{Base, Change};
use atoll_scheduler::offline::{Document, Fate, Settings, World};
use atoll_scheduler::{Profiles, Scheduler};
use jiff::Timestamp;
use kube::client::Body;
use serde_json::{Value, json};

const WORKLOADS: usize = 100_000;
const MEMBERS: usize = 50;
/// Workloads of a namespace, which has a policy of its own.
const NAMESPACE: usize = 1_000;
/// Bytes of a template beyond the fields that count.
const PADDING: usize = 2_400;
const RUNS: usize = 3;
/// The case in which all workloads are looked at.
const ALL: &str = "all policies";

fn cluster(number: usize) -> Value {
    let apis = json!([{"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]}]);
    json!({
        "apiVersion": "cluster.atoll.dev/v1alpha1", "kind": "Cluster",
        "metadata": {"name": format!("m{number:02}"), "uid": format!("c{number}"), "resourceVersion": "1",
            "labels": {"zone": format!("z{}", number % 5)}},
        "spec": {},
        "status": {"apiEnablements": apis, "conditions": [{"type": "Ready", "status": "True", "reason": "Ok",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "resourceSummary": {"allocatable": {"cpu": "1000000", "memory": "4000Ti", "pods": "10000000"}, "allocated": {}}},
    })
}

fn policy(namespace: usize, zones: &[&str]) -> Value {
    json!({
        "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "all", "namespace": format!("n{namespace}"), "uid": format!("p{namespace}"),
            "resourceVersion": "1", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
            "placement": {
                "clusterAffinity": {"labelSelector": {"matchExpressions": [
                    {"key": "zone", "operator": "In", "values": zones}]}},
                "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 3}],
                "replicaScheduling": {"replicaSchedulingType": "Divided",
                    "replicaDivisionPreference": "Weighted",
                    "weightPreference": {"dynamicWeight": "AvailableReplicas"}},
            },
        },
    })
}

fn template(number: usize) -> Value {
    let name = format!("w{number}");
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": format!("n{}", number / NAMESPACE), "uid": format!("t{number}"),
            "resourceVersion": "1", "generation": 1, "annotations": {"note": "x".repeat(PADDING)}},
        "spec": {
            "replicas": 6, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "nginx",
                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}]},
            },
        },
    })
}

/// The federation, with a binding for each workload, and how long the scheduler took for all.
fn federation(workloads: usize) -> (Vec<Value>, Duration) {
    let mut objects: Vec<Value> = (0..MEMBERS).map(cluster).collect();
    let namespaces = workloads.div_ceil(NAMESPACE);
    objects.extend((0..namespaces).map(|number| policy(number, &["z0", "z1", "z2"])));
    objects.extend((0..namespaces).map(|number| {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("n{number}")}})
    }));
    objects.extend((0..workloads).map(template));
    let mut world = World::default();
    for object in &objects {
        world.add(Document { origin: String::new(), object: object.clone() }).unwrap();
    }
    let settings = Settings { profile: None, now: Timestamp::now() };
    let start = Instant::now();
    let answers = world.decide(&mut Scheduler::new(Profiles::default()), &settings);
    let plain = start.elapsed();
    for (number, answer) in answers.iter().enumerate() {
        let Fate::Decided(decision) = &answer.fate else { continue };
        let key = answer.object.binding();
        let namespace = key.namespace().unwrap();
        let of: usize = namespace[1..].parse().unwrap();
        let placement = policy(of, &["z0", "z1", "z2"])["spec"]["placement"].clone();
        objects.push(json!({
            "apiVersion": "work.atoll.dev/v1alpha1", "kind": "ResourceBinding",
            "metadata": {"name": key.name(), "namespace": namespace, "uid": format!("b{number}"), "resourceVersion": "1",
                "labels": {marks::POLICY_UID: format!("p{of}")},
                "annotations": {marks::POLICY_NAME: "all", marks::POLICY_NAMESPACE: namespace,
                    marks::APPLIED_PLACEMENT: *decision.applied_placement()}},
            "spec": {
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": namespace,
                    "name": answer.object.name(), "uid": format!("t{}", &answer.object.name()[1..])},
                "replicas": 6, "placement": placement, "clusters": decision.clusters(),
                "replicaRequirements": {"resourceRequest": {"cpu": "100m", "memory": "128Mi"}},
                "decision": decision.record(1),
            },
        }));
    }
    (objects, plain)
}

fn bumped(mut object: Value) -> Value {
    object["metadata"]["generation"] = 2.into();
    object
}

fn drained() -> Value {
    let mut object = cluster(0);
    object["spec"]["taints"] = json!([{"key": "upkeep", "effect": "NoExecute"}]);
    object
}

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() {
    let arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let numbers: Vec<usize> = arguments.map(|argument| argument.parse().unwrap()).collect();
    let workloads = numbers.first().copied().unwrap_or(WORKLOADS);
    let (objects, plain) = federation(workloads);
    println!(
        "{workloads} workloads on {MEMBERS} members; a plain pass of the scheduler: {plain:.2?}"
    );
    let service = tower::service_fn(|_: http::Request<Body>| async {
        Ok::<_, Infallible>(http::Response::builder().status(404).body(Body::empty()).unwrap())
    });
    let base = Base::offline(kube::Client::new(service, "default"), objects).unwrap();
    let all: Vec<Value> = (0..workloads.div_ceil(NAMESPACE))
        .map(|number| bumped(policy(number, &["z2", "z3", "z4"])))
        .collect();
    let scaled = {
        let mut object = bumped(template(0));
        object["spec"]["replicas"] = 12.into();
        object
    };
    let cases = [
        ("one workload is scaled", vec![scaled]),
        ("one policy of 1,000 workloads", all[..1].to_vec()),
        ("ten policies of 1,000 workloads", all[..10.min(all.len())].to_vec()),
        ("a member is emptied", vec![drained()]),
        (ALL, all),
    ];
    println!(
        "{:<34} {:>9} {:>9} {:>9} {:>9} {:>7}",
        "change", "looked at", "would move", "copy", "plan", "ratio"
    );
    'cases: for (name, objects) in cases {
        let (mut copied, mut planned, mut looked, mut moved) = (Duration::MAX, Duration::MAX, 0, 0);
        // The largest takes as long as all others.
        let runs = if name == ALL { 1 } else { RUNS };
        for _ in 0..runs {
            let start = Instant::now();
            let copy = base.copy();
            copied = copied.min(start.elapsed());
            let start = Instant::now();
            let change = Change { objects: objects.clone(), ..Change::default() };
            let plan = match copy.plan(change).await {
                Ok(plan) => plan,
                Err(error) => {
                    println!("{name}: {error}");
                    continue 'cases;
                }
            };
            planned = planned.min(start.elapsed());
            looked = plan.after.answers.len();
            let moves = plan.after.answers.iter().filter(|answer| match &answer.fate {
                Fate::Decided(decision) => !decision.moves().is_empty(),
                _ => false,
            });
            moved = moves.count();
        }
        let ratio = planned.as_secs_f64() / plain.as_secs_f64();
        println!("{name:<34} {looked:>9} {moved:>10} {copied:>9.1?} {planned:>9.2?} {ratio:>7.2}");
    }
}
