//! The queue, with cures as decisions give them.

use atoll_scheduler::queue::{Lengths, Queue, Verdict};
use atoll_scheduler::{BindingKey, Change, Decision, Request};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::support::*;

fn dynamic(names: &[&str]) -> serde_json::Value {
    json!({
        "clusterAffinity": {"clusterNames": names},
        "replicaScheduling": {"replicaSchedulingType": "Divided",
            "weightPreference": {"dynamicWeight": "AvailableReplicas"}},
    })
}

fn at(seconds: i64) -> Timestamp {
    now() + SignedDuration::from_secs(seconds)
}

/// Decides what the queue gives until it gives nothing, as the controller does.
fn drain(
    queue: &mut Queue,
    world: &mut World,
    requests: &mut [Request],
    now: Timestamp,
) -> Vec<String> {
    let mut decided = Vec::new();
    while let Some(key) = queue.pop(now) {
        let request = requests.iter_mut().find(|request| request.key == key).unwrap();
        let decision = world.step(request);
        decided.push(request.template.name.clone());
        queue.done(&key, verdict(&decision), now);
    }
    decided
}

fn verdict(decision: &Decision) -> Verdict {
    let cures = decision.waits_for().to_vec();
    if decision.pending.is_empty() { Verdict::Settled(cures) } else { Verdict::Rejected(cures) }
}

fn send(queue: &mut Queue, changes: &[Change], now: Timestamp) {
    changes.iter().for_each(|change| queue.event(change, now));
}

#[test]
fn a_capacity_event_wakes_exactly_the_bindings_that_wait_for_it() {
    let mut world = World::new(["a", "b", "c"].map(|name| cluster(name, &[], Some(2))));
    let mut requests = [
        workload("on-a", 5, dynamic(&["a"])),
        workload("on-ab", 1, dynamic(&["a", "b"])),
        workload("on-b", 5, dynamic(&["b"])),
    ];
    let mut queue = Queue::default();
    requests.iter().for_each(|request| queue.add(&request.key, 0, now()));
    assert_eq!(drain(&mut queue, &mut world, &mut requests, now()).len(), 3);
    let changes = world.room("c", 50);
    send(&mut queue, &changes, at(20));
    assert_eq!(
        drain(&mut queue, &mut world, &mut requests, at(20)),
        [""; 0],
        "an unrelated cluster"
    );
    let changes = world.room("b", 4);
    send(&mut queue, &changes, at(40));
    assert_eq!(drain(&mut queue, &mut world, &mut requests, at(40)), ["on-b"]);
    let changes = world.room("a", 1);
    send(&mut queue, &changes, at(60));
    assert_eq!(
        drain(&mut queue, &mut world, &mut requests, at(60)),
        [""; 0],
        "less room cures nothing"
    );
    let changes = world.taint("a", "NoExecute");
    send(&mut queue, &changes, at(80));
    let mut woken = drain(&mut queue, &mut world, &mut requests, at(80));
    woken.sort();
    assert!(woken.contains(&"on-a".to_owned()), "{woken:?}");
    assert!(!woken.contains(&"on-b".to_owned()), "{woken:?}");
}

#[test]
fn no_event_that_arrives_during_a_decision_is_lost() {
    let mut world = World::new([cluster("a", &[], Some(2))]);
    let mut request = workload("web", 5, dynamic(&["a"]));
    let mut queue = Queue::default();
    queue.add(&request.key, 0, now());
    let key = queue.pop(now()).unwrap();
    let decision = world.step(&mut request);
    let changes = world.room("a", 9);
    send(&mut queue, &changes, now());
    queue.done(&key, verdict(&decision), now());
    assert_eq!(queue.pop(now()), None, "backoff first");
    assert_eq!(queue.next_due(), Some(at(1)));
    assert_eq!(queue.pop(at(1)), Some(key.clone()));
    // Added while in flight: decided once more, whatever came of it.
    queue.add(&key, 0, at(1));
    queue.done(&key, Verdict::Settled(Vec::new()), at(1));
    assert_eq!(queue.pop(at(1)), Some(key));
}

#[test]
fn rejections_and_errors_back_off_on_their_own_clocks() {
    let mut queue = Queue::default();
    let key = BindingKey::new("default", "web");
    queue.add(&key, 0, now());
    let mut time = now();
    for seconds in [1, 2, 4, 8, 10, 10] {
        assert_eq!(queue.pop(time), Some(key.clone()));
        queue.done(&key, Verdict::Error, time);
        let due = time + SignedDuration::from_secs(seconds);
        assert_eq!(queue.next_due(), Some(due));
        assert_eq!(queue.pop(due - SignedDuration::from_millis(1)), None);
        time = due;
    }
    queue.add(&key, 0, time);
    assert_eq!(queue.pop(time), Some(key.clone()), "an edit starts with a clean slate");
    queue.done(&key, Verdict::Mistake, time);
    assert_eq!(queue.next_due(), None, "a mistake waits for an edit and does not spin");
    assert_eq!(queue.lengths(), Lengths { waiting: 1, ..Lengths::default() });
    queue.add(&key, 0, time);
    assert_eq!(queue.pop(time), Some(key.clone()));
    let joins = vec![atoll_scheduler::Cure::ClusterJoins];
    queue.done(&key, Verdict::Rejected(joins), time);
    let flush = time + SignedDuration::from_mins(5);
    assert_eq!(queue.next_due(), Some(flush), "the safety flush");
    assert_eq!(queue.pop(flush), Some(key.clone()));
    queue.done(&key, Verdict::Gone, flush);
    assert_eq!(queue.lengths(), Lengths::default());
}

#[test]
fn priority_then_time() {
    let mut queue = Queue::default();
    let key = |name: &str| BindingKey::new("default", name);
    for (name, priority, seconds) in [("late", 0, 2), ("early", 0, 1), ("urgent", 9, 3)] {
        queue.add(&key(name), priority, at(seconds));
    }
    queue.add(&key("late"), 0, at(9));
    let order: Vec<_> = std::iter::from_fn(|| queue.pop(at(9))).map(|key| key.name).collect();
    assert_eq!(order, ["urgent", "early", "late"]);
}
