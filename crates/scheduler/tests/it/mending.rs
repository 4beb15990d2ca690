//! A rebalance that only mends skew.

use atoll_api::binding::{Mode, Trigger};
use atoll_api::rebalancer::RebalanceMode;
use atoll_scheduler::{Decision, Request};
use serde_json::json;

use crate::support::*;

/// A workload that runs with these replicas on clusters in zones of their own, and a requested rebalance.
fn uneven(layout: &[(&str, i64, i64)], skew: i64) -> (World, Request) {
    let clusters = layout
        .iter()
        .map(|(name, running, room)| cluster(name, &[("zone", name)], Some(running + room)));
    let mut world = World::new(clusters);
    let sum = layout.iter().map(|(_, running, _)| running).sum();
    let placement = json!({
        "topologySpreadConstraints": [{"maxSkew": skew, "topologyKey": "zone"}],
        "replicaScheduling": {"weightPreference": {"dynamicWeight": "AvailableReplicas"}},
    });
    let mut request = workload("web", sum, placement);
    world.step(&mut request);
    let previous = request.previous.as_mut().unwrap();
    previous.clusters = layout
        .iter()
        .filter(|(_, running, _)| *running > 0)
        .map(|(name, running, _)| target(name, *running))
        .collect();
    previous.reschedule_triggered_at = Some("2026-08-21T13:00:00Z".parse().unwrap());
    let record = previous.decision.as_mut().unwrap();
    record.pending.clear();
    record.outcome = atoll_api::binding::Outcome::Placed;
    let mut facts = atoll_scheduler::BindingFacts {
        key: request.key.clone(),
        shares: previous.clusters.clone(),
        ..Default::default()
    };
    // The members report what runs, so that it is not counted twice.
    facts.reported = layout.iter().map(|(name, running, _)| ((*name).into(), *running)).collect();
    world.tables.upsert_binding(facts);
    for (name, _, room) in layout {
        world.room(name, *room);
    }
    request.rebalance = RebalanceMode::MendSkew;
    (world, request)
}

fn moved(decision: &Decision) -> i64 {
    decision.moves.iter().map(|step| step.count).sum()
}

#[test]
fn only_as_many_replicas_move_as_the_skew_requires() {
    let (mut world, mut request) = uneven(&[("a", 6, 9), ("b", 2, 9), ("c", 1, 9)], 2);
    let decision = world.step(&mut request);
    assert_eq!((decision.trigger(), decision.mode), (Trigger::Rebalance, Mode::Steady));
    assert_eq!((shares(&decision)["a"], placed(&decision)), (4, 9));
    assert_eq!(moved(&decision), 2, "{:?}", decision.moves);
    assert_eq!(decision.notes, ["2 replicas moved for topologySpreadConstraints"]);
    assert_eq!(decision.evictions().len(), 1, "the old copies stay until the new ones are healthy");
    // From zero, the same request would even everything out.
    let (mut world, mut request) = uneven(&[("a", 6, 9), ("b", 2, 9), ("c", 1, 9)], 2);
    request.rebalance = RebalanceMode::Anew;
    assert_eq!(world.decide(&request).mode, Mode::Fresh);
}

#[test]
fn what_holds_already_is_left_alone() {
    let (mut world, request) = uneven(&[("a", 4, 9), ("b", 2, 9)], 2);
    let decision = world.decide(&request);
    assert_eq!((moved(&decision), shares(&decision)), (0, map(&[("a", 4), ("b", 2)])));
    assert_eq!(decision.notes, ["no replica had to move for topologySpreadConstraints"]);
}

#[test]
fn skew_that_cannot_be_mended_is_reported() {
    // b has no room: the skew falls from 6 to 3, and no further.
    let (mut world, request) = uneven(&[("a", 6, 9), ("b", 0, 0), ("c", 0, 9)], 1);
    let partly = world.decide(&request);
    assert_eq!(shares(&partly), map(&[("a", 3), ("c", 3)]));
    // Nothing has room, so that nothing moves.
    let (mut world, request) = uneven(&[("a", 6, 0), ("b", 0, 0)], 1);
    let stuck = world.decide(&request);
    assert_eq!((moved(&stuck), shares(&stuck)), (0, map(&[("a", 6)])));
    for decision in [partly, stuck] {
        let note = "the skew over zone is still above maxSkew";
        assert!(decision.notes.iter().any(|have| have.starts_with(note)), "{:?}", decision.notes);
    }
}

/// The fewest moves after which the largest and the smallest number differ by at most `skew`.
fn fewest(counts: &[i64], skew: i64) -> i64 {
    let total: i64 = counts.iter().sum();
    let len = counts.len() as i64;
    let low = (0..=total).filter(|low| len * low <= total && total <= len * (low + skew));
    let moves = low.map(|low| {
        let above: i64 = counts.iter().map(|count| (count - low - skew).max(0)).sum();
        let below: i64 = counts.iter().map(|count| (low - count).max(0)).sum();
        above.max(below)
    });
    moves.min().unwrap()
}

#[test]
fn mending_is_minimal_conserves_replicas_and_is_stable() {
    const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
    for seed in 0..300 {
        let mut random = Random(seed);
        let count = 2 + random.below(4) as usize;
        let layout: Vec<(&str, i64, i64)> =
            NAMES[..count].iter().map(|name| (*name, random.below(9) as i64, 60)).collect();
        let total: i64 = layout.iter().map(|(_, running, _)| running).sum();
        if total == 0 {
            continue;
        }
        let skew = 1 + random.below(3) as i64;
        let (mut world, mut request) = uneven(&layout, skew);
        let decision = world.step(&mut request);
        let counts: Vec<i64> = layout.iter().map(|(_, running, _)| *running).collect();
        let gained: i64 = layout
            .iter()
            .map(|(name, was, _)| (shares(&decision).get(*name).copied().unwrap_or(0) - was).max(0))
            .sum();
        assert_eq!(gained, fewest(&counts, skew), "seed {seed}: {layout:?}, skew {skew}");
        assert_eq!(placed(&decision), total, "seed {seed}");
        let after: Vec<i64> = layout
            .iter()
            .map(|(name, _, _)| shares(&decision).get(*name).copied().unwrap_or(0))
            .collect();
        assert!(after.iter().max().unwrap() - after.iter().min().unwrap() <= skew, "seed {seed}");
        let again = mend_again(&mut world, request);
        assert_eq!(moved(&again), 0, "seed {seed}: {:?}", again.moves);
    }
}

/// Requests the rebalance again after the decision took effect.
fn mend_again(world: &mut World, mut request: Request) -> Decision {
    let previous = request.previous.as_mut().unwrap();
    previous.reschedule_triggered_at = Some("2026-08-21T14:00:00Z".parse().unwrap());
    previous.eviction_tasks.clear();
    world.decide(&request)
}
