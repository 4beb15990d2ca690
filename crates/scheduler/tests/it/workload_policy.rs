//! The worked examples of WorkloadPolicy, and edge cases.

use crate::support::*;
use atoll_api::binding::{Outcome, Trigger};
use serde_json::{Value, json};

fn policy(domains: &[(&str, i64)], kind: &str, method: &str) -> Value {
    let list: Vec<Value> =
        domains.iter().map(|(name, n)| json!({"name": name, "replicas": n})).collect();
    json!({
        "topologyKey": "workload-test",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "allocationPolicy": list, "allocationType": kind, "allocationMethod": method,
    })
}

const SEED: &[(&str, i64)] = &[("member", 1), ("host", 3)];

/// One cluster per domain, with the domain's name.
fn two(member: Option<i64>, host: Option<i64>) -> World {
    World::new([
        cluster("member", &[("workload-test", "member")], member),
        cluster("host", &[("workload-test", "host")], host),
    ])
}

#[track_caller]
fn check(world: &mut World, policy: Value, replicas: i64, want: &[(&str, i64)], pending: i64) {
    world.policy(policy);
    let decision = world.decide(&steered("web", replicas));
    assert_eq!(shares(&decision), map(want), "{:?}", decision.pending);
    assert_eq!(decision.pending_replicas(), pending);
    assert_eq!(decision.trigger(), Trigger::First);
}

#[test]
fn preferred_balance_and_fill_up_to_and_beyond_the_targets() {
    let balance = || policy(SEED, "Preferred", "Balance");
    let fill = || policy(SEED, "Preferred", "Fill");
    let up_to: [&[(&str, i64)]; 4] = [
        &[("member", 1)],
        &[("member", 1), ("host", 1)],
        &[("member", 1), ("host", 2)],
        &[("member", 1), ("host", 3)],
    ];
    for (replicas, want) in (1..).zip(up_to) {
        check(&mut two(None, None), balance(), replicas, want, 0);
    }
    for (replicas, member, host) in [(5, 1, 4), (6, 2, 4), (7, 2, 5)] {
        let want = [("member", member), ("host", host)];
        check(&mut two(None, None), balance(), replicas, &want, 0);
        check(&mut two(None, None), fill(), replicas, &want, 0);
    }
}

#[test]
fn the_seeds_test_1_with_room_2_and_4() {
    let mut world = two(Some(2), Some(4));
    check(&mut world, policy(SEED, "Preferred", "Balance"), 6, &[("member", 2), ("host", 4)], 0);
}

#[test]
fn what_domains_cannot_take_goes_outside() {
    let mut world = two(Some(2), Some(3));
    world.put(cluster("third", &[], None));
    let want = [("member", 2), ("host", 3), ("third", 1)];
    check(&mut world, policy(SEED, "Preferred", "Balance"), 6, &want, 0);
}

#[test]
fn the_seeds_test_2_required_fill() {
    let mut world = two(None, None);
    let required = || policy(SEED, "Required", "Fill");
    check(&mut world, required(), 6, &[("member", 1), ("host", 3)], 2);
    check(&mut world, required(), 2, &[("member", 1), ("host", 1)], 0);
    let turned = policy(&[("host", 3), ("member", 1)], "Required", "Fill");
    check(&mut world, turned, 2, &[("host", 2)], 0);
}

#[test]
fn required_balance_waits_for_the_domain_that_lacks_room() {
    let mut world = two(None, Some(1));
    world.policy(policy(SEED, "Required", "Balance"));
    let decision = world.decide(&steered("web", 4));
    assert_eq!(shares(&decision), map(&[("member", 1), ("host", 1)]));
    assert_eq!(decision.pending_replicas(), 2);
    assert!(decision.pending[0].reason.contains("host"), "{:?}", decision.pending);
    assert_eq!(decision.outcome(), Outcome::Partial);
    assert_eq!(
        decision.groups[1].blocked_by.as_deref(),
        Some("its clusters have no room for one more")
    );
}

fn three_hosts() -> World {
    let mut world = World::new([cluster("member", &[("workload-test", "member")], None)]);
    for name in ["h1", "h2", "h3"] {
        world.put(cluster(name, &[("workload-test", "host")], None));
    }
    world
}

#[test]
fn inside_a_domain_balance_spreads_and_fill_packs() {
    let want = [("member", 1), ("h1", 1), ("h2", 1), ("h3", 1)];
    check(&mut three_hosts(), policy(SEED, "Preferred", "Balance"), 4, &want, 0);
    let mut world = three_hosts();
    world.policy(policy(SEED, "Preferred", "Fill"));
    let decision = world.decide(&steered("web", 4));
    let hash = atoll_scheduler::hash::TieHash::of("uid-of-web");
    let first = ["h1", "h2", "h3"].into_iter().max_by_key(|name| hash.rank(name)).unwrap();
    assert_eq!(shares(&decision), map(&[("member", 1), (first, 3)]));
}

#[test]
fn regions_get_their_numbers() {
    let mut world = World::new([
        cluster("a", &[("workload-test", "regionA")], None),
        cluster("b", &[("workload-test", "regionB")], None),
    ]);
    let two = policy(&[("regionA", 5), ("regionB", 3)], "Required", "Balance");
    check(&mut world, two, 8, &[("a", 5), ("b", 3)], 0);
}

#[test]
fn scaling_down_goes_back_the_way_up() {
    for (method, from, way) in [
        ("Balance", 4, vec![(3, 1, 2), (2, 1, 1), (1, 1, 0)]),
        ("Fill", 6, vec![(5, 1, 4), (4, 1, 3), (3, 1, 2), (1, 1, 0)]),
    ] {
        let mut world = two(None, None);
        world.policy(policy(SEED, "Preferred", method));
        let mut request = steered("web", from);
        world.step(&mut request);
        for (replicas, member, host) in way {
            let decision = world.scale(&mut request, replicas);
            assert_eq!(decision.trigger(), Trigger::Scale);
            let want: Vec<_> =
                [("member", member), ("host", host)].into_iter().filter(|s| s.1 > 0).collect();
            assert_eq!(shares(&decision), map(&want), "{method} {replicas}");
            assert!(decision.evictions().is_empty(), "scaling down leaves no task");
        }
    }
}

#[test]
fn a_lost_domain_waits_or_goes_on_elsewhere() {
    let mut world = two(None, None);
    world.policy(policy(SEED, "Required", "Balance"));
    let mut request = steered("web", 4);
    world.step(&mut request);
    world.taint("host", "NoExecute");
    let decision = world.step(&mut request);
    assert_eq!(decision.trigger(), Trigger::Failover);
    assert_eq!(shares(&decision), map(&[("member", 1)]));
    assert_eq!(decision.pending_replicas(), 3);
    assert_eq!(decision.evictions().len(), 1);

    let mut world = two(Some(2), None);
    world.put(cluster("outside", &[], None));
    world.policy(policy(SEED, "Preferred", "Balance"));
    let mut request = steered("web", 4);
    world.step(&mut request);
    world.taint("host", "NoExecute");
    let decision = world.step(&mut request);
    assert_eq!(shares(&decision), map(&[("member", 2), ("outside", 2)]));
}

#[test]
fn every_binding_that_matches_counts() {
    let mut world = two(None, None);
    world.policy(policy(SEED, "Required", "Balance"));
    world.step(&mut steered("first", 4));
    let decision = world.decide(&steered("second", 2));
    assert_eq!(decision.clusters(), []);
    assert_eq!(decision.pending_replicas(), 2);
    assert_eq!(decision.outcome(), Outcome::Unschedulable);
}

#[test]
fn labels_and_missing_policies_are_named() {
    let mut world = two(None, None);
    let mut request = steered("web", 2);
    let decision = world.decide(&request);
    assert_eq!(decision.outcome(), Outcome::Unschedulable);
    assert!(decision.reason.contains("does not exist"), "{}", decision.reason);
    let change = world.policy(policy(SEED, "Preferred", "Balance"));
    assert!(
        decision.waits_for().iter().any(|condition| change[0].meets(condition)),
        "{decision:?}"
    );
    request.template.pod_labels.clear();
    let decision = world.decide(&request);
    assert!(decision.reason.contains("pod labels"), "{}", decision.reason);
    assert!(decision.reason.contains("app=web"), "{}", decision.reason);
}

#[test]
fn the_label_stands_on_the_workload_or_its_pods_in_three_spellings() {
    let ours = "policy.atoll.dev/workload-policy";
    for key in [ours, "workload-policy/kosmos.io", "workload-policy.kosmos.io"] {
        let labels = json!({"app": "web", key: "policy"});
        for (own, pods) in [(labels.clone(), json!({"app": "web"})), (json!({}), labels)] {
            let template = atoll_scheduler::Template::read(&json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "web", "namespace": "default", "labels": own},
                "spec": {"replicas": 4, "template": {"metadata": {"labels": pods}}}}));
            let mut world = two(None, None);
            world.policy(policy(SEED, "Required", "Balance"));
            let mut request = workload("web", 4, json!({}));
            request.template = template.unwrap();
            let decision = world.decide(&request);
            assert_eq!(shares(&decision), map(&[("member", 1), ("host", 3)]), "{key}");
        }
    }
}

#[test]
fn an_edit_moves_replicas_only_with_leave() {
    for (leave, want) in
        [(true, [("host", 1), ("member", 3)]), (false, [("host", 3), ("member", 1)])]
    {
        let mut world = two(None, None);
        world.policy(policy(SEED, "Required", "Balance"));
        let mut request = steered("web", 4);
        if !leave {
            request.placement.reschedule_on =
                Some(vec![atoll_api::placement::RescheduleOn::ReplicasChange]);
        }
        world.step(&mut request);
        world.policy(policy(&[("member", 3), ("host", 1)], "Required", "Balance"));
        let decision = world.step(&mut request);
        let now: std::collections::BTreeMap<_, _> = request
            .previous
            .unwrap()
            .clusters
            .into_iter()
            .map(|share| (share.name, share.replicas))
            .collect();
        assert_eq!(now, map(&want));
        assert_eq!(decision.trigger() == Trigger::Reconcile, leave);
        if leave {
            assert_eq!(decision.moves().iter().map(|m| m.count).sum::<i64>(), 2);
        }
    }
}

#[test]
fn mistakes_are_refused_by_field() {
    let mut world = two(None, None);
    for (domains, field) in [
        (vec![], "spec.allocationPolicy"),
        (vec![("a", 1), ("a", 2)], "allocationPolicy[1].name"),
        (vec![("a", 0)], "allocationPolicy[0].replicas"),
    ] {
        world.policy(policy(&domains, "Required", "Fill"));
        let decision = world.decide(&steered("web", 2));
        assert_eq!(decision.outcome(), Outcome::Invalid);
        assert!(decision.reason.contains(field), "{}", decision.reason);
    }
    world.policy(policy(SEED, "Required", "Fill"));
    let mut request = steered("web", 2);
    request.placement = serde_json::from_value(
        json!({"replicaScheduling": {"replicaSchedulingType": "Duplicated"}}),
    )
    .unwrap();
    let decision = world.decide(&request);
    assert!(decision.reason.contains("replicaSchedulingType"), "{}", decision.reason);
}
