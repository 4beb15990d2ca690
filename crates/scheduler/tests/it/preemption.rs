//! Plugin Preemption: workloads of higher priority take room, and workloads of lower priority give it.

use atoll_api::binding::{Outcome, Trigger};
use atoll_api::policy::PurgeMode;
use atoll_decision::explain::render;
use atoll_scheduler::lint::lint;
use atoll_scheduler::{
    BindingKey, Decision, PriorityClass, Profiles, Request, Scheduler, SchedulerConfiguration,
    TableChange,
};
use serde_json::{Value, json};

use crate::support::*;

fn profiles(args: &str) -> Profiles {
    let text = format!(
        "apiVersion: config.atoll.dev/v1alpha1\nkind: SchedulerConfiguration\nprofiles:\n\
         - schedulerName: preempting\n  plugins: {{postFilter: {{enabled: [{{name: Preemption}}]}}}}\n  \
         pluginConfig: [{{name: Preemption, args: {args}}}]\n"
    );
    Profiles::read(&SchedulerConfiguration::read(&text).unwrap()).unwrap()
}

fn world(rooms: &[(&str, i64)], args: &str) -> World {
    let mut world = World::new(rooms.iter().map(|(name, room)| cluster(name, &[], Some(*room))));
    world.profiles = profiles(args);
    world.scheduler = Scheduler::new(world.profiles.clone());
    world
}

fn aggregated() -> Value {
    json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}})
}

/// A divided workload of this priority, under a profile with the plugin.
fn of_priority(name: &str, replicas: i64, priority: i32) -> Request {
    let mut request = workload(name, replicas, aggregated());
    request.scheduler_name = "preempting".into();
    request.priority.value = priority;
    request.priority.class =
        Some(PriorityClass { name: format!("class-{priority}"), never_preempts: false });
    request
}

fn takes(decision: &Decision) -> Vec<(String, String, i64)> {
    let new = decision.new_preemptions();
    new.map(|taken| (taken.name.clone(), taken.cluster.clone(), taken.replicas)).collect()
}

fn entry(name: &str, cluster: &str, replicas: i64) -> (String, String, i64) {
    (format!("{name}-deployment"), cluster.to_owned(), replicas)
}

#[test]
fn a_higher_priority_takes_the_room_and_the_victim_is_decided_again_once() {
    let mut world = world(&[("a", 10)], "{}");
    let mut batch = of_priority("batch", 10, 0);
    world.step(&mut batch);
    let mut web = of_priority("web", 4, 100);
    let taken = world.decide(&web);
    assert_eq!((taken.outcome(), takes(&taken)), (Outcome::Placed, vec![entry("batch", "a", 4)]));
    insta::assert_snapshot!("preempts", render(&taken, 100));
    assert_eq!(world.decide(&batch).trigger(), Trigger::Avoid, "nothing is committed yet");
    world.take(&mut web, &taken);

    let given = world.step(&mut batch);
    assert_eq!((given.trigger(), shares(&given)), (Trigger::Preempted, map(&[("a", 6)])));
    insta::assert_snapshot!("preempted", render(&given, 100));
    assert_eq!(given.evictions(), [], "nothing replaces them, so the copy shrinks at once");
    assert_eq!(world.decide(&batch).trigger(), Trigger::Avoid, "exactly once");
    // Once there is room again it may return, although the old entry is still in the other binding.
    world.room("a", 14);
    assert_eq!(shares(&world.step(&mut batch)), map(&[("a", 10)]));
    assert_eq!(world.decide(&batch).trigger(), Trigger::Avoid);
    let scaled = world.scale(&mut web, 3);
    assert_eq!(scaled.preempts, [], "the victim has followed");
}

#[test]
fn the_change_of_the_tables_names_the_victims() {
    let mut world = world(&[("a", 3)], "{}");
    let mut batch = of_priority("batch", 3, 0);
    world.step(&mut batch);
    let mut web = of_priority("web", 1, 1);
    let decision = world.decide(&web);
    world.take(&mut web, &decision);
    let mut facts = (**world.tables.snapshot().binding(&web.key).unwrap()).clone();
    world.tables.remove_binding(&web.key);
    let victim = TableChange::Preempted { victim: batch.key.clone() };
    let links = facts.standing.links.clone().unwrap();
    let mut pending = (*links).clone();
    pending.uncommitted = Some(decision.id().to_string());
    facts.standing.links = Some(pending.into());
    assert!(!world.tables.upsert_binding(facts.clone()).contains(&victim), "not committed yet");
    assert_eq!(world.decide(&batch).trigger(), Trigger::Avoid);
    let second = world.decide(&of_priority("second", 3, 1));
    assert_eq!(takes(&second), [entry("batch", "a", 2)], "what is being committed is taken");
    facts.standing.links = Some(links);
    assert!(world.tables.upsert_binding(facts).contains(&victim));
    assert_eq!(world.decide(&batch).trigger(), Trigger::Preempted);
}

#[test]
fn victims_are_the_lowest_and_the_fewest() {
    let mut world = world(&[("a", 20)], "{}");
    for (name, replicas, priority) in
        [("low-small", 2, 0), ("low-big", 6, 0), ("middle", 6, 5), ("equal", 6, 9)]
    {
        world.step(&mut of_priority(name, replicas, priority));
    }
    let mut of = |replicas| takes(&world.decide(&of_priority("web", replicas, 9)));
    assert_eq!(of(1), [entry("low-big", "a", 1)], "most replicas first");
    assert_eq!(of(7), [entry("low-big", "a", 6), entry("low-small", "a", 1)]);
    let three = [entry("low-big", "a", 6), entry("low-small", "a", 2), entry("middle", "a", 3)];
    assert_eq!(of(11), three);
    assert_eq!(of(20).len(), 3, "equal priority keeps its room");
    let part = world.decide(&of_priority("web", 20, 9));
    assert_eq!((part.outcome(), part.pending_replicas()), (Outcome::Partial, 6));
}

#[test]
fn args_bound_the_victims_and_the_difference() {
    let mut world = world(&[("a", 6)], "{maxVictims: 2, minPriorityDifference: 10}");
    for (name, priority) in [("one", 0), ("two", 0), ("three", 0), ("near", 95)] {
        world.step(&mut of_priority(name, 1, priority));
    }
    world.step(&mut of_priority("more", 2, 95));
    let decision = world.decide(&of_priority("web", 4, 100));
    assert_eq!(takes(&decision), [entry("one", "a", 1), entry("three", "a", 1)]);
    assert_eq!(decision.pending_replicas(), 2);
    for (args, path) in [
        ("{maxVictims: 0}", "profiles[0].pluginConfig[0].args.maxVictims"),
        ("{maxVictims: 65}", "profiles[0].pluginConfig[0].args.maxVictims"),
        ("{minPriorityDifference: 0}", "profiles[0].pluginConfig[0].args.minPriorityDifference"),
        ("{most: 1}", "profiles[0].pluginConfig[0].args.most"),
    ] {
        let text = format!(
            "apiVersion: config.atoll.dev/v1alpha1\nkind: SchedulerConfiguration\nprofiles:\n\
             - schedulerName: p\n  plugins: {{postFilter: {{enabled: [{{name: Preemption}}]}}}}\n  \
             pluginConfig: [{{name: Preemption, args: {args}}}]\n"
        );
        let error = Profiles::read(&SchedulerConfiguration::read(&text).unwrap()).unwrap_err();
        assert_eq!(error.path, path);
    }
}

#[test]
fn explanations_say_why_nothing_is_preempted() {
    let mut world = world(&[("a", 4)], "{}");
    let mut batch = of_priority("batch", 4, 0);
    world.step(&mut batch);
    let mut never = of_priority("web", 2, 100);
    never.priority.class.as_mut().unwrap().never_preempts = true;
    let decision = world.decide(&never);
    assert_eq!(decision.preempts, []);
    insta::assert_snapshot!("class_says_never", render(&decision, 100));

    let mut disabled = of_priority("web", 2, 100);
    disabled.scheduler_name = "default".into();
    insta::assert_snapshot!("plugin_disabled", render(&world.decide(&disabled), 100));

    insta::assert_snapshot!("no_lower", render(&world.decide(&of_priority("web", 2, 0)), 100));

    // Its requests fit nowhere, whoever leaves.
    let mut big = of_priority("web", 2, 100);
    big.template.requirements =
        serde_json::from_value(json!({"resourceRequest": {"cpu": "1"}})).unwrap();
    let decision = world.decide(&big);
    assert_eq!((decision.outcome(), takes(&decision)), (Outcome::Unschedulable, vec![]));
    insta::assert_snapshot!("no_victims_would_help", render(&decision, 100));

    // All or nothing.
    let mut all = of_priority("web", 5, 100);
    let mut placement = (*all.placement).clone();
    let scheduling = placement.replica_scheduling.as_mut().unwrap();
    scheduling.insufficient_capacity = Some(atoll_api::placement::InsufficientCapacity::Refuse);
    all.placement = placement.into();
    let decision = world.decide(&all);
    assert_eq!(takes(&decision), []);
    assert!(decision.notes.iter().any(|note| note.contains("Refuse")), "{:?}", decision.notes);
    all.template.replicas = Some(4);
    assert_eq!(takes(&world.decide(&all)), [entry("batch", "a", 4)]);
}

#[test]
fn room_that_was_taken_is_not_taken_again() {
    let mut world = world(&[("a", 4)], "{}");
    let mut batch = of_priority("batch", 4, 0);
    world.step(&mut batch);
    let mut web = of_priority("web", 2, 10);
    world.step(&mut web);
    // The victim has not been decided again: another workload of the same priority takes other replicas of it.
    let mut other = of_priority("other", 2, 10);
    assert_eq!(takes(&world.step(&mut other)), [entry("batch", "a", 2)]);
    let third = world.decide(&of_priority("third", 1, 10));
    assert_eq!((takes(&third), third.pending_replicas()), (vec![], 1), "nothing is given twice");
    let given = world.step(&mut batch);
    assert_eq!((shares(&given), given.pending_replicas()), (map(&[]), 4));
}

#[test]
fn replicas_with_another_place_leave_gracefully_and_the_others_at_once() {
    let mut world = world(&[("a", 4), ("b", 1)], "{}");
    let mut batch = of_priority("batch", 4, 0);
    batch.failover = serde_json::from_value(json!({"cluster": {"purgeMode": "Never"}})).unwrap();
    assert_eq!(shares(&world.step(&mut batch)), map(&[("a", 4)]));
    let mut web = of_priority("web", 3, 10);
    let mut placement = (*web.placement).clone();
    placement.cluster_affinity =
        Some(serde_json::from_value(json!({"clusterNames": ["a"]})).unwrap());
    web.placement = placement.into();
    assert_eq!(takes(&world.step(&mut web)), [entry("batch", "a", 3)]);
    let given = world.step(&mut batch);
    assert_eq!((shares(&given), given.pending_replicas()), (map(&[("a", 1), ("b", 1)]), 2));
    let [task] = given.evictions() else { panic!("{:?}", given.evictions()) };
    assert_eq!((task.replicas, task.keep, task.unplaced), (1, true, 0));
    assert_eq!((task.purge_mode, task.deadline.is_some()), (PurgeMode::Gracefully, true));
}

#[test]
fn an_invalid_or_refused_victim_gives_the_room_too() {
    for (broken, outcome) in [
        (json!({"clusterTolerations": [{"operator": "Sometimes"}]}), Outcome::Invalid),
        (json!({"clusterAffinity": {"clusterNames": ["b"]}}), Outcome::NoFit),
    ] {
        let mut world = world(&[("a", 4)], "{}");
        let mut batch = of_priority("batch", 4, 0);
        world.step(&mut batch);
        world.step(&mut of_priority("web", 3, 10));
        let mut placement = aggregated();
        placement.as_object_mut().unwrap().extend(broken.as_object().unwrap().clone());
        batch.placement = serde_json::from_value(placement).unwrap();
        let given = world.step(&mut batch);
        let expected = (Trigger::Preempted, map(&[("a", 1)]));
        assert_eq!((given.trigger(), shares(&given)), expected, "{outcome}");
    }
}

#[test]
fn the_linter_finds_what_is_taken_wrongly() {
    let mut world = world(&[("a", 4)], "{}");
    let mut batch = of_priority("batch", 4, 5);
    world.step(&mut batch);
    let web = of_priority("web", 2, 10);
    let sound = world.decide(&web);
    let snapshot = world.tables.snapshot();
    let faults = |change: &dyn Fn(&mut Request, &mut Decision)| {
        let (mut request, mut decision) = (web.clone(), sound.clone());
        change(&mut request, &mut decision);
        lint(&snapshot, &request, &decision).len()
    };
    assert_eq!(faults(&|_, _| ()), 0);
    assert!(faults(&|request, _| request.priority.value = 5) > 0, "equal priority");
    assert!(faults(&|_, decision| decision.preempts[0].replicas = 5) > 0, "more than there is");
    assert!(faults(&|_, decision| decision.preempts[0].name = "other".into()) > 0, "no binding");
    assert!(faults(&|_, decision| decision.preempts.clear()) > 0, "room from nowhere");
    let mut taken = web.clone();
    world.take(&mut taken, &sound);
    let snapshot = world.tables.snapshot();
    let given = world.decide(&batch);
    let mut kept = given.clone();
    kept.preempted_by.clear();
    assert_ne!(lint(&snapshot, &batch, &kept), [], "the decision is not followed");
}

/// Pseudo-random numbers below a limit.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: i64) -> i64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as i64 % limit
    }
}

#[test]
fn random_preemptions_end_and_give_no_room_twice() {
    let mut preemptions = 0;
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let rooms = [("a", 4 + dice.below(8)), ("b", dice.below(8)), ("c", dice.below(5))];
        let mut world = world(&rooms, "{}");
        let mut all: Vec<Request> = (0..8)
            .map(|n| of_priority(&format!("w{n}"), 1 + dice.below(7), dice.below(4) as i32))
            .collect();
        for _ in 0..12 {
            let at = dice.below(8) as usize;
            match dice.below(3) {
                0 => all[at].template.replicas = Some(dice.below(8)),
                1 => all[at].priority.value = dice.below(4) as i32,
                _ => {}
            }
            // Everything is decided until nothing changes: a cycle would not end.
            let mut rounds = 0;
            loop {
                let mut changed = false;
                for request in &mut all {
                    let decision = world.step(request);
                    preemptions += decision.new_preemptions().count();
                    changed |= decision.trigger() != Trigger::Avoid;
                }
                rounds += 1;
                assert!(rounds < 20, "seed {seed}: decisions do not end");
                if !changed {
                    break;
                }
            }
            let snapshot = world.tables.snapshot();
            for (name, room) in rooms {
                let held = snapshot.all_bindings().flat_map(|facts| facts.shares.clone());
                let held: i64 = held.filter(|s| s.name == name).map(|s| s.replicas).sum();
                assert!(
                    held <= room,
                    "seed {seed}: {held} replicas on {name}, which has room for {room}"
                );
            }
            for request in &all {
                for claim in snapshot.claims(&request.key) {
                    let facts = snapshot.binding(&request.key).unwrap();
                    assert!(facts.standing.has_followed(&claim.taken.decision), "seed {seed}");
                }
            }
        }
    }
    assert!(preemptions > 100, "only {preemptions} preemptions");
}

#[test]
fn workloads_of_other_namespaces_are_no_victims_where_a_resource_quota_of_the_member_is_the_limit()
{
    let pods = |left: i64| {
        let amounts = [("pods".to_owned(), left)].into_iter().collect();
        std::collections::BTreeMap::from([("default".to_owned(), amounts)])
    };
    let elsewhere = |mut request: Request| {
        request.key = BindingKey::new("other", request.key.name());
        request.template.namespace = Some("other".into());
        request
    };
    for (left, expected) in [(0, 0), (2, 2), (9, 4)] {
        let mut world = world(&[("a", 10)], "{}");
        world.step(&mut elsewhere(of_priority("batch", 10, 0)));
        world.tables.set_member_quotas(&"a".into(), &pods(left));
        let decision = world.decide(&of_priority("web", 4, 100));
        assert_eq!(placed(&decision), expected, "{left} pods are left");
        let taken: i64 = takes(&decision).iter().map(|(_, _, replicas)| replicas).sum();
        assert_eq!(taken, expected, "no replica leaves in vain");
    }
    // What leaves the own namespace gives the quota something back.
    let mut world = world(&[("a", 10)], "{}");
    let mut batch = of_priority("batch", 10, 0);
    world.step(&mut batch);
    let mut facts = (**world.tables.snapshot().binding(&batch.key).unwrap()).clone();
    facts.reported = [("a".into(), 10)].into_iter().collect();
    world.tables.upsert_binding(facts);
    world.room("a", 0);
    world.tables.set_member_quotas(&"a".into(), &pods(0));
    let decision = world.decide(&of_priority("web", 4, 100));
    assert_eq!(takes(&decision), [entry("batch", "a", 4)]);
}
