//! Three controllers on one hub, as processes: election, followers, and handover.

mod members;
mod plans;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kube::Api;
use kube::api::DynamicObject;
use serde_json::Value;

use crate::support::federation::{bindings, deployments};
use crate::support::plane::{Plane, holder, term};
use crate::support::wait::{self, until};

/// `LeaseTimes::default()`: a Lease that has not changed for this long has expired.
const LEASE: Duration = Duration::from_secs(15);
/// Extra time for a busy machine.
const SLACK: Duration = Duration::from_secs(5);
/// From a command to the readiness of Pods on the members, on a busy machine.
const ARRIVES: Duration = Duration::from_secs(60);

/// All states of the objects of a kind, in order.
fn follow(api: Api<DynamicObject>) -> Arc<Mutex<Vec<Value>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    wait::follow(api, move |object| {
        log.lock().unwrap().push(serde_json::to_value(object).unwrap());
    });
    seen
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_is_followed_within_the_lease_and_a_stopped_one_at_once() {
    let mut plane = Plane::start(3, 1, &[]).await;
    plane.create("web", 2).await;
    plane.until_ready("web", 2, ARRIVES).await;

    // Killed: the Lease is not released, so it has to expire.
    let (first, lease) = plane.leader(&[]).await;
    let first_term = term(&lease);
    plane.controllers[first].take().unwrap().signal("-KILL");
    let killed = Instant::now();
    plane.scale("web", 4).await;
    let (second, lease) = plane.leader(&[first]).await;
    let took = killed.elapsed();
    assert!(term(&lease) > first_term);
    assert!(took <= LEASE + SLACK, "the lease was taken over after {took:?}");
    let binding = bindings(&plane.hub.client, "default");
    let decided = |b: &Value| b["spec"]["replicas"] == 4 && b["spec"]["decision"]["desired"] == 4;
    until(&binding, "web-deployment", "the new leader's decision", decided).await;
    println!("kill -9: another leads after {took:?}, and has decided after {:?}", killed.elapsed());
    // Agents reconnect through the address that leads to any of them.
    plane.until_ready("web", 4, ARRIVES).await;

    // Stopped gracefully: the Lease is released.
    plane.start_controller(first);
    plane.until_says(first, false).await;
    let process = plane.controllers[second].take().unwrap();
    let stopped = Instant::now();
    let leaving = tokio::task::spawn_blocking(move || process.signal("-TERM"));
    let (third, lease) = plane.leader(&[second]).await;
    let took = stopped.elapsed();
    println!("SIGTERM: c{third} leads after {took:?}");
    assert!(took <= Duration::from_secs(2), "handed over after {took:?}");
    assert_eq!(leaving.await.unwrap().1, Some(0));
    assert!(term(&lease) > first_term + 1);
    plane.scale("web", 1).await;
    plane.until_ready("web", 1, ARRIVES).await;
}

/// A suspended process does not notice time passing. When it resumes it believes that it leads, with a decision in
/// flight to the hub.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_slept_past_its_lease_changes_nothing_when_it_wakes_in_mid_write() {
    const MANY: usize = 12;
    let mut plane = Plane::start(3, 1, &[]).await;
    let names: Vec<String> = (0..MANY).map(|number| format!("web{number}")).collect();
    for name in &names {
        plane.create(name, 1).await;
    }
    for name in &names {
        plane.until_ready(name, 1, ARRIVES).await;
    }
    let on_member = follow(deployments(&plane.members[0].server.client, "default"));
    let on_hub = follow(bindings(&plane.hub.client, "default"));
    let written: Vec<_> = plane.written().into_iter().map(follow).collect();
    let (old, lease) = plane.leader(&[]).await;
    let old_term = term(&lease);

    // It is suspended in the middle of a burst of decisions.
    for name in &names {
        plane.scale(name, 3).await;
    }
    plane.controllers[old].as_mut().unwrap().send("-STOP");
    let before = plane.settled_revision().await;
    let (new, lease) = plane.leader(&[old]).await;
    assert!(term(&lease) > old_term);
    let taken = version(&lease);

    for name in &names {
        plane.scale(name, 2).await;
    }
    for name in &names {
        plane.until_ready(name, 2, ARRIVES).await;
    }
    let (hub_mark, member_mark) = (on_hub.lock().unwrap().len(), on_member.lock().unwrap().len());

    plane.controllers[old].as_mut().unwrap().send("-CONT");
    // It notices that it no longer leads, and by then all its requests have been answered.
    plane.until_says(old, false).await;
    // A later change is applied completely, so anything from the suspended leader would have been applied before it.
    plane.create("after", 1).await;
    plane.until_ready("after", 1, ARRIVES).await;
    assert_eq!(plane.leader(&[]).await.0, new, "the sleeper took the lease back");

    let hub = on_hub.lock().unwrap().clone();
    for binding in &hub[hub_mark..] {
        let name = &binding["metadata"]["name"];
        let term = binding["spec"]["decision"]["term"].as_i64().unwrap_or_default();
        assert!(term > old_term, "{name} has a decision of the sleeper: {term}");
        if name != "after-deployment" {
            assert_eq!(binding["spec"]["decision"]["desired"], 2, "{name}");
        }
    }
    let member = on_member.lock().unwrap().clone();
    for object in &member[member_mark..] {
        if object["metadata"]["name"] != "after" {
            assert_eq!(object["spec"]["replicas"], 2, "the sleeper's word reached the member");
        }
    }
    for name in &names {
        plane.until_ready(name, 2, ARRIVES).await;
    }
    // The followers wrote nothing: the first write came from the new leader.
    for log in &written {
        let log = log.lock().unwrap();
        let between = |object: &&Value| (before + 1..taken).contains(&version(object));
        let between: Vec<_> = log.iter().filter(between).collect();
        assert!(between.is_empty(), "written while nobody led: {between:?}");
    }
    let all = written.iter().map(|log| log.lock().unwrap().len()).sum::<usize>();
    assert!(all > MANY, "the watches saw {all} writes");
    let lease = plane.leases().get("atoll-controller").await.unwrap();
    assert_eq!(holder(&serde_json::to_value(lease).unwrap()), Some(new));
}
