//! Plans: what is planned is what happens.

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_scheduler::offline::Fate;
use serde_json::{Value, json};

use super::harness::{BINDING, DEPLOYMENT, Federation, SOON};
use crate::planning::{Change, Planned};
use crate::testing::eventually;

const CLUSTER: (&str, &str) = ("cluster.atoll.dev/v1alpha1", "Cluster");
const POLICY: (&str, &str) = ("policy.atoll.dev/v1alpha1", "PropagationPolicy");
const GUARD: (&str, &str) = ("policy.atoll.dev/v1alpha1", "ChangeGuard");
const MEMBERS: [&str; 3] = ["m1", "m2", "m3"];
/// Histories of changes, and changes of each.
const SEEDS: std::ops::Range<u64> = 0..8;
const CHANGES: u32 = 8;

type Shares = BTreeMap<String, BTreeMap<String, i64>>;

/// The shares of all workloads in the hub.
async fn shares(federation: &Federation, workloads: &[String]) -> Shares {
    let mut all = Shares::new();
    for name in workloads {
        let binding = federation.hub.binding(&format!("{name}-deployment")).await;
        let targets = binding["spec"]["clusters"].as_array().into_iter().flatten();
        let targets = targets.map(|target| {
            (target["name"].as_str().unwrap().to_owned(), target["replicas"].as_i64().unwrap_or(0))
        });
        all.insert(name.clone(), targets.collect());
    }
    all
}

/// Waits until the shares stay as they are for a while.
async fn settled(federation: &Federation, workloads: &[String]) -> Shares {
    let (mut last, mut times) = (Shares::new(), 0);
    loop {
        let now = shares(federation, workloads).await;
        times = if now == last { times + 1 } else { 0 };
        if times == 50 {
            return now;
        }
        last = now;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn plan(federation: &Federation, object: Value) -> Planned {
    let base = federation.planner.base().await.unwrap();
    base.plan(Change { objects: vec![object], ..Change::default() }).await.unwrap()
}

/// The shares that a plan leads to.
fn expected(planned: &Planned, mut shares: Shares) -> Shares {
    for answer in &planned.after.answers {
        let Fate::Decided(decision) = &answer.fate else { continue };
        let targets = decision.clusters().iter();
        let targets = targets.map(|target| (target.name.clone(), target.replicas)).collect();
        shares.insert(answer.object.name().to_owned(), targets);
    }
    shares
}

/// The shares without the members.
fn amounts(on: &BTreeMap<String, i64>) -> Vec<i64> {
    let mut amounts: Vec<i64> = on.values().copied().collect();
    amounts.sort_unstable();
    amounts
}

/// An object of the hub with other fields, as it would be stored.
async fn with(
    federation: &Federation,
    kind: (&str, &str),
    namespace: Option<&str>,
    change: &Value,
) -> Value {
    let name = change["metadata"]["name"].as_str().unwrap();
    let mut object = federation.hub.get(kind.0, kind.1, namespace, name).await;
    if object.is_null() {
        object = json!({"metadata": {"namespace": namespace}});
    }
    atoll_merge::patch::json_merge(&mut object, change);
    object["apiVersion"] = kind.0.into();
    object["kind"] = kind.1.into();
    object
}

fn placement(random: &mut fastrand::Rng) -> Value {
    let mut members = MEMBERS.to_vec();
    random.shuffle(&mut members);
    members.truncate(random.usize(1..=3));
    let affinity = match random.bool() {
        true => json!({"clusterNames": members, "labelSelector": null}),
        false => json!({"clusterNames": null, "labelSelector": {"matchLabels": {"zone": "a"}}}),
    };
    let weights: Vec<Value> = members
        .iter()
        .map(|name| json!({"targetCluster": {"clusterNames": [name]}, "weight": random.u32(1..4)}))
        .collect();
    let scheduling = match random.u32(0..3) {
        0 => json!({"replicaSchedulingType": "Duplicated", "weightPreference": null,
            "replicaDivisionPreference": null}),
        1 => json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": {"staticWeightList": weights}}),
        _ => json!({"replicaSchedulingType": "Divided", "weightPreference": null,
            "replicaDivisionPreference": "Aggregated"}),
    };
    json!({"clusterAffinity": affinity, "replicaScheduling": scheduling})
}

type Edit = ((&'static str, &'static str), Option<&'static str>, Value);

/// What somebody may change.
fn edit(random: &mut fastrand::Rng, workloads: &mut Vec<String>) -> Edit {
    let workload = workloads[random.usize(..workloads.len())].clone();
    let member = MEMBERS[random.usize(..3)];
    match random.u32(0..10) {
        0..3 => {
            let spec = json!({"replicas": random.u32(0..12)});
            (DEPLOYMENT, Some("shop"), json!({"metadata": {"name": workload}, "spec": spec}))
        }
        3..6 => {
            let spec = json!({"placement": placement(random)});
            (POLICY, Some("shop"), json!({"metadata": {"name": "all"}, "spec": spec}))
        }
        6 => {
            let effect = if random.bool() { "NoSchedule" } else { "NoExecute" };
            let taints = match random.bool() {
                true => json!([{"key": "upkeep", "effect": effect}]),
                false => json!([]),
            };
            (CLUSTER, None, json!({"metadata": {"name": member}, "spec": {"taints": taints}}))
        }
        7 | 8 => {
            let zone = if random.bool() { "a" } else { "b" };
            (CLUSTER, None, json!({"metadata": {"name": member, "labels": {"zone": zone}}}))
        }
        _ => {
            let name = format!("w{}", workloads.len());
            workloads.push(name.clone());
            (DEPLOYMENT, Some("shop"), deployment(&name, random.u32(1..8)))
        }
    }
}

fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "nginx"}]},
            },
        },
    })
}

#[tokio::test(start_paused = true)]
async fn what_is_planned_is_what_happens_in_random_histories() {
    let mut moving = 0;
    for seed in SEEDS {
        let federation = Federation::start().await;
        let mut random = fastrand::Rng::with_seed(seed);
        let mut workloads: Vec<String> = Vec::new();
        for (name, zone) in [("m1", "a"), ("m2", "b"), ("m3", "a")] {
            let labels = json!({"metadata": {"name": name, "labels": {"zone": zone}}});
            federation.hub.apply(CLUSTER.0, CLUSTER.1, None, labels).await;
        }
        federation.hub.policy("all", DEPLOYMENT, placement(&mut random)).await;
        for number in 0..3 {
            let name = format!("w{number}");
            federation.hub.deployment(&name, random.i64(1..9)).await;
            workloads.push(name);
        }
        for step in 0..CHANGES {
            let before = settled(&federation, &workloads).await;
            let (kind, namespace, change) = edit(&mut random, &mut workloads);
            let object = with(&federation, kind, namespace, &change).await;
            let planned = plan(&federation, object).await;
            let what = format!("seed {seed}, step {step}: {change}");
            assert!(planned.problems.is_empty(), "{what}: {:?}", planned.problems);
            let mut expected = expected(&planned, before.clone());
            moving += u32::from(expected != before);
            for name in &workloads {
                expected.entry(name.clone()).or_default();
            }
            federation.hub.apply(kind.0, kind.1, namespace, change).await;
            let after = settled(&federation, &workloads).await;
            for (name, on) in &after {
                if before.contains_key(name) {
                    assert_eq!(on, &expected[name], "{what}: {name}");
                } else {
                    // Equal members share by the uid of the workload, which a new one does not have yet.
                    assert_eq!(amounts(on), amounts(&expected[name]), "{what}: {name}");
                }
            }
        }
        federation.stop().await;
    }
    assert!(moving > CHANGES, "most changes move something: {moving}");
}

#[tokio::test(start_paused = true)]
async fn a_plan_writes_nothing_and_says_what_a_guard_would_hold() {
    let federation = Federation::start().await;
    let everywhere = json!({"replicaScheduling": {"replicaSchedulingType": "Duplicated"}});
    federation.hub.policy("all", DEPLOYMENT, everywhere).await;
    let workloads: Vec<String> = (0..3).map(|number| format!("w{number}")).collect();
    for name in &workloads {
        federation.hub.deployment(name, 4).await;
    }
    let guard = json!({"metadata": {"name": "prod"}, "spec": {"maxWorkloads": 2}});
    federation.hub.apply(GUARD.0, GUARD.1, None, guard).await;
    eventually("the guard is read", SOON, || async {
        let guard = federation.hub.get(GUARD.0, GUARD.1, None, "prod").await;
        guard["status"]["observedGeneration"].is_i64()
    })
    .await;
    let before = settled(&federation, &workloads).await;
    federation.spy.take_writes();

    let only = json!({"metadata": {"name": "all"}, "spec": {"placement": {
        "clusterAffinity": {"clusterNames": ["m1"]},
        "replicaScheduling": {"replicaSchedulingType": "Duplicated"},
    }}});
    let object = with(&federation, POLICY, Some("shop"), &only).await;
    let planned = plan(&federation, object.clone()).await;
    let why = planned.held_by.clone().unwrap_or_default();
    assert!(why.contains("ChangeGuard prod: 3 workloads would move; it allows 2"), "{why}");
    assert_eq!(planned.workloads, 3);
    let again = plan(&federation, object).await;
    assert_eq!(planned.snapshot, again.snapshot);
    assert_eq!(expected(&planned, before.clone()), expected(&again, before.clone()));
    assert_eq!(settled(&federation, &workloads).await, before);
    let bindings = federation.spy.take_writes();
    let bindings: Vec<_> =
        bindings.iter().filter(|path| path.contains("resourcebindings")).collect();
    assert!(bindings.is_empty(), "{bindings:?}");

    // What nobody may write is no change to plan.
    let base = federation.planner.base().await.unwrap();
    let named = json!({"metadata": {"name": "w0-deployment"}});
    let binding = with(&federation, BINDING, Some("shop"), &named).await;
    let change = Change { objects: vec![binding], ..Change::default() };
    let error = base.plan(change).await.unwrap_err().to_string();
    assert!(error.contains("Atoll writes bindings"), "{error}");
    federation.stop().await;
}
