//! A rolling upgrade: three controllers are replaced one by one while decisions are made.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use atoll_history::SqliteStore;
use kube::api::ListParams;
use serde_json::Value;

use crate::support::federation::{bindings, deployments};
use crate::support::plane::Plane;
use crate::support::recorded::{complete, decisions, rows};
use crate::support::wait::{self, until};

/// From a command to the readiness of Pods on the members, on a busy machine.
const ARRIVES: Duration = Duration::from_secs(60);
/// `LeaseTimes::default()`: the promise is that no gap is longer.
const LEASE: Duration = Duration::from_secs(15);
/// Workloads that are scaled all the time, and workloads that nobody touches.
const BUSY: u64 = 3;
const STILL: u64 = 3;
const CONTROLLERS: usize = 3;

/// What the objects of the untouched workloads looked like on the members: every number of replicas that was seen.
type Seen = Arc<Mutex<BTreeMap<String, BTreeSet<i64>>>>;

#[tokio::test(flavor = "multi_thread")]
async fn three_controllers_are_replaced_one_by_one_and_nothing_is_lost_or_moved() {
    let mut plane = Plane::start(3, 2, &[]).await;
    let seen = decisions(bindings(&plane.hub.client, "default"));
    for number in 0..STILL {
        plane.create(&format!("still{number}"), 4).await;
    }
    for number in 0..BUSY {
        plane.create(&format!("busy{number}"), 1).await;
    }
    for number in 0..STILL {
        plane.until_ready(&format!("still{number}"), 4, ARRIVES).await;
    }
    let placed = placements(&plane).await;
    let replicas = Seen::default();
    for member in &plane.members {
        let (log, member_name) = (replicas.clone(), member.name.clone());
        wait::follow(deployments(&member.server.client, "default"), move |object| {
            let name = object.metadata.name.unwrap_or_default();
            if name.starts_with("still") {
                let count = object.data["spec"]["replicas"].as_i64().unwrap_or(-1);
                let mut log = log.lock().unwrap();
                log.entry(format!("{member_name}/{name}")).or_default().insert(count);
            }
        });
    }

    // Each replica is stopped as a Deployment's rollout does it, the leader among them, and its successor is ready
    // before the next one stops. Meanwhile a user scales, and each wish is decided within the lease.
    let (mut longest, mut wishes) = (Duration::ZERO, 0);
    for number in 0..CONTROLLERS {
        let process = plane.controllers[number].take().unwrap();
        let leaving = tokio::task::spawn_blocking(move || process.signal("-TERM"));
        for busy in 0..BUSY {
            wishes += 1;
            let took = wish(&plane, &format!("busy{busy}"), 2 + wishes % 7).await;
            longest = longest.max(took);
        }
        let (took, code) = leaving.await.unwrap();
        assert_eq!(code, Some(0), "c{number} stopped after {took:?}");
        plane.start_controller(number);
        plane.until_serves(number).await;
        for busy in 0..BUSY {
            wishes += 1;
            longest = longest.max(wish(&plane, &format!("busy{busy}"), 2 + wishes % 7).await);
        }
    }
    println!("{wishes} wishes during the upgrade, the slowest decided after {longest:?}");
    assert!(longest < LEASE, "a wish waited {longest:?}");

    assert_eq!(placements(&plane).await, placed, "an untouched workload was decided again");
    for (object, counts) in &*replicas.lock().unwrap() {
        assert_eq!(counts.len(), 1, "{object} had {counts:?} replicas");
    }
    assert_eq!(replicas.lock().unwrap().len() as u64, 2 * STILL);
    let store = SqliteStore::open(&plane.history()).await.unwrap();
    let ends = Instant::now() + ARRIVES;
    loop {
        let rows = rows(&store).await;
        let Err(missing) = complete(&rows, &seen.lock().unwrap()) else { break };
        assert!(Instant::now() < ends, "history: {missing}");
        tokio::task::yield_now().await;
    }
    assert!(seen.lock().unwrap().len() as u64 >= wishes + STILL, "the watch saw the decisions");
}

/// Scales a workload; the time until it is decided.
async fn wish(plane: &Plane, name: &str, replicas: u64) -> Duration {
    let asked = Instant::now();
    plane.scale(name, replicas).await;
    let decided = |binding: &Value| binding["spec"]["decision"]["desired"] == replicas;
    let api = bindings(&plane.hub.client, "default");
    until(&api, &format!("{name}-deployment"), "its decision", decided).await;
    asked.elapsed()
}

/// Decision and shares of the untouched workloads.
async fn placements(plane: &Plane) -> Vec<(String, Value, Value)> {
    let list = bindings(&plane.hub.client, "default").list(&ListParams::default()).await.unwrap();
    let mut placed: Vec<_> = list
        .items
        .into_iter()
        .filter_map(|binding| {
            let name = binding.metadata.name?;
            let spec = &binding.data["spec"];
            name.starts_with("still")
                .then(|| (name, spec["decision"]["id"].clone(), spec["clusters"].clone()))
        })
        .collect();
    placed.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(placed.len() as u64, STILL);
    placed
}
