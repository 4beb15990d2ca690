//! What is planned is what happens: the hub's objects with a change, decided offline as `atoll plan` does it, give the
//! shares that the controller commits after the change.

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_scheduler::offline::{Document, Fate, Settings, World as Offline};
use atoll_scheduler::{Profiles, Scheduler};
use atoll_simulator::random::Random;
use atoll_simulator::world::kinds::{
    CLUSTER, DEPLOYMENT, Kind, NAMESPACE, PROPAGATION_POLICY, RESOURCE_BINDING,
};
use atoll_simulator::world::{Identities, View, World, shares, simulate};
use serde_json::{Value, json};

use crate::scenario::LIMIT;

/// Random changes, each in a World of its own.
const CHANGES: u64 = 40;
const MEMBERS: u64 = 3;
const WORKLOADS: u64 = 4;
/// After a change: until its decisions are due.
const HEARD: Duration = Duration::from_secs(5);

/// A change of one object: a merge patch.
#[derive(Debug)]
struct Change {
    kind: Kind,
    key: String,
    patch: Value,
}

fn placement(draw: &mut Random) -> Value {
    let affinity = match draw.below(3) {
        0 => json!({}),
        1 => json!({"clusterNames": ["member1", "member2"]}),
        _ => json!({"clusterNames": ["member2", "member3"]}),
    };
    let divided = |more: Value| {
        let mut scheduling = json!({"replicaSchedulingType": "Divided"});
        scheduling.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        scheduling
    };
    let weights = |list: &[(u64, &str)]| {
        let weights = list.iter().map(
            |(weight, name)| json!({"weight": weight, "targetCluster": {"clusterNames": [name]}}),
        );
        json!({"staticWeightList": weights.collect::<Vec<_>>()})
    };
    let scheduling = match draw.below(6) {
        0 => json!({"replicaSchedulingType": "Duplicated"}),
        1 => divided(json!({"replicaDivisionPreference": "Aggregated"})),
        2 => divided(json!({"replicaDivisionPreference": "Weighted"})),
        3 => divided(json!({"replicaDivisionPreference": "Weighted",
            "weightPreference": weights(&[(3, "member1"), (1, "member2"), (1, "member3")])})),
        4 => divided(json!({"replicaDivisionPreference": "Weighted",
            "weightPreference": weights(&[(1, "member1"), (2, "member3")])})),
        _ => divided(json!({"replicaDivisionPreference": "Weighted",
            "weightPreference": {"dynamicWeight": "AvailableReplicas"}})),
    };
    json!({"clusterAffinity": affinity, "replicaScheduling": scheduling})
}

fn change(draw: &mut Random) -> Change {
    let workload = format!("default/w{}", draw.below(WORKLOADS));
    let member = format!("member{}", 1 + draw.below(MEMBERS));
    let cluster = |key: &str, effect: &str| Change {
        kind: CLUSTER,
        key: member.clone(),
        // A toleration counts from this time.
        patch: json!({"spec": {"taints": [
            {"key": key, "effect": effect, "timeAdded": "2026-01-01T00:00:00Z"}]}}),
    };
    match draw.below(5) {
        0 | 1 => {
            // A merge patch keeps what it does not name.
            let mut placement = placement(draw);
            for field in ["weightPreference", "replicaDivisionPreference"] {
                let scheduling = placement["replicaScheduling"].as_object_mut().unwrap();
                scheduling.entry(field).or_insert(Value::Null);
            }
            placement["clusterAffinity"]
                .as_object_mut()
                .unwrap()
                .entry("clusterNames")
                .or_insert(Value::Null);
            Change {
                kind: PROPAGATION_POLICY,
                key: workload,
                patch: json!({"spec": {"placement": placement}}),
            }
        }
        2 => Change {
            kind: DEPLOYMENT,
            key: workload,
            patch: json!({"spec": {"replicas": draw.below(12)}}),
        },
        3 => cluster("maintenance", "NoExecute"),
        _ => cluster("full", "NoSchedule"),
    }
}

/// Four workloads with a policy each, placed and settled.
async fn world(seed: u64, draw: &mut Random) -> World {
    let builder = World::builder().seed(seed).members(MEMBERS).identities(Identities::Known);
    let world = builder.build().await;
    for number in 0..WORKLOADS {
        let name = format!("w{number}");
        world
            .hub()
            .apply(json!({"apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
                "metadata": {"name": name, "namespace": "default"}, "spec": {
                "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": name}],
                "placement": placement(draw)}}))
            .await;
        world
            .hub()
            .apply(json!({"apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"replicas": 1 + draw.below(8), "selector": {"matchLabels": {"app": name}},
                    "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [
                        {"name": "main", "image": "main:1", "resources": {"requests": {"cpu": "500m"}}}]}}}}))
            .await;
    }
    world.rest(HEARD).await;
    world.until_settled(LIMIT).await;
    world
}

/// The shares of every binding that the offline decisions give.
fn planned(world: &World, change: &Change) -> BTreeMap<String, BTreeMap<String, i64>> {
    let mut offline = Offline::default();
    world.read(|view| {
        for kind in [CLUSTER, NAMESPACE, PROPAGATION_POLICY, RESOURCE_BINDING, DEPLOYMENT] {
            for (key, object) in view.all("hub", &kind) {
                let mut object = object.clone();
                if kind == change.kind && *key == change.key {
                    json_patch::merge(&mut object, &change.patch);
                    // The hub counts changes of a spec.
                    let generation = object["metadata"]["generation"].as_i64().unwrap_or(1);
                    object["metadata"]["generation"] = (generation + 1).into();
                }
                object["apiVersion"] = kind.api_version.into();
                object["kind"] = kind.kind.into();
                offline.add(Document { origin: String::new(), object }).unwrap();
            }
        }
    });
    let settings = Settings { profile: None, now: world.clock().now() };
    let answers = offline.decide(&mut Scheduler::new(Profiles::default()), &settings);
    let mut all = BTreeMap::new();
    for answer in answers {
        if let Fate::Decided(decision) = answer.fate {
            let shares =
                decision.clusters().iter().map(|share| (share.name.clone(), share.replicas));
            let key = answer.object.binding();
            all.insert(format!("default/{}", key.name()), shares.collect());
        }
    }
    all
}

fn committed_in(view: &View) -> BTreeMap<String, BTreeMap<String, i64>> {
    let all = view.all("hub", &RESOURCE_BINDING);
    all.map(|(key, binding)| (key.clone(), shares(binding))).collect()
}

#[test]
fn what_is_planned_offline_is_what_the_controller_commits() {
    for seed in 0..CHANGES {
        simulate(async {
            let mut draw = Random(seed);
            let world = world(seed, &mut draw).await;
            let change = change(&mut draw);
            let before = world.read(committed_in);
            let planned = planned(&world, &change);
            world.hub().merge(&change.kind, &change.key, change.patch.clone()).await;
            // The pace of evictions may hold some moves back for a while.
            let what = format!("seed {seed}: {change:?}, before: {before:?}");
            let holds = |view: &View| match committed_in(view) {
                after if after == planned => Ok(()),
                after => Err(format!("planned {planned:?}, committed {after:?}")),
            };
            world.until(&what, LIMIT, holds).await;
            world.rest(HEARD).await;
            world.until_settled(LIMIT).await;
            assert_eq!(planned, world.read(committed_in), "{what}");
            world.end().await;
        });
    }
}
