//! Deliberate faults in the core, one at a time, in test builds only. The linter or the checks of every test decision
//! must catch each fault; a fault that passes shows a gap in them.

#[path = "../tests/it/support.rs"]
mod support;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Value, json};

use self::support::{Random, World, cluster, steered, workload};
use crate::Request;

/// Random instances per mutant; one of them must catch it.
const INSTANCES: u64 = 400;

/// A deliberate fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// Taints reject no cluster.
    TaintsIgnored,
    /// The placement's cluster affinity matches every cluster.
    AffinityIgnored,
    /// Kinds are placed on members that do not serve them.
    ApisIgnored,
    /// Every cluster takes one replica more than fits.
    RoomForOneMore,
    /// Reservations for other bindings count as free capacity.
    ReservationsForgotten,
    /// No skew is too large.
    SkewIgnored,
    /// Bounds have no maximum.
    MaxIgnored,
    /// The last share is dropped.
    ShareLost,
    /// Unplaced replicas are not reported.
    PendingHidden,
    /// No eviction tasks are created.
    EvictionForgotten,
    /// Targets of a WorkloadPolicy are one too high.
    TargetRaised,
    /// Limits of a WorkloadSpread are one too high.
    LimitRaised,
}

thread_local! {
    static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Whether this fault is active on this thread.
pub(crate) fn is(mutant: Mutant) -> bool {
    ACTIVE.get() == Some(mutant)
}

const AREAS: [&str; 3] = ["north", "south", "west"];

fn world(random: &mut Random) -> World {
    let mut world = World::new([]);
    for at in 0..3 + random.below(4) {
        let area = *random.pick(&AREAS);
        let room = (!random.chance(10)).then(|| random.below(10) as i64);
        let mut one = cluster(&format!("m{at}"), &[("area", area)], room);
        if random.chance(15) {
            let apis = &mut one.status.as_mut().unwrap().api_enablements;
            apis.retain(|api| api.group_version != "apps/v1");
        }
        world.put(one);
        if random.chance(15) {
            world.taint(&format!("m{at}"), "NoSchedule");
        }
    }
    world
}

fn request(random: &mut Random, world: &mut World) -> Request {
    let replicas = 1 + random.below(14) as i64;
    let divided = |more: Value| {
        let mut scheduling = json!({"replicaSchedulingType": "Divided"});
        for (field, value) in more.as_object().into_iter().flatten() {
            scheduling[field] = value.clone();
        }
        json!({ "replicaScheduling": scheduling })
    };
    let north = json!({"labelSelector": {"matchLabels": {"area": "north"}}});
    let mut placement = match random.below(7) {
        0 => divided(json!({"weightPreference": {"dynamicWeight": "AvailableReplicas"}})),
        1 => divided(json!({"replicaDivisionPreference": "Aggregated"})),
        2 => divided(json!({"respectCapacity": true})),
        3 => divided(json!({"bounds": [{"targetCluster": north, "max": random.below(4)}]})),
        4 => {
            let list: Vec<Value> = AREAS
                .iter()
                .map(|area| json!({"name": area, "replicas": 1 + random.below(4)}))
                .collect();
            world.policy(
                json!({"topologyKey": "area", "labelSelector": {"matchLabels": {"app": "web"}},
                "allocationPolicy": list, "allocationType": "Required"}),
            );
            return steered("web", replicas);
        }
        5 => {
            let subset = |area: &str, max: u64| json!({"name": area, "requiredClusterSelector": {"matchLabels": {"area": area}}, "maxReplicas": max});
            world.spread(
                json!({"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "subsets": [subset("north", random.below(4)), subset("south", random.below(4))]}),
            );
            return workload("web", replicas, json!({}));
        }
        _ => divided(json!({})),
    };
    if random.chance(30) {
        placement["clusterAffinity"] = north;
    } else if random.chance(30) {
        placement["topologySpreadConstraints"] = json!([{"topologyKey": "area", "maxSkew": 1}]);
    }
    workload("web", replicas, placement)
}

/// One instance: place, scale, lose a cluster. Every decision is linted.
fn play(seed: u64) {
    let random = &mut Random(seed);
    let mut world = world(random);
    let mut request = request(random, &mut world);
    world.step(&mut request);
    let replicas = 1 + random.below(20) as i64;
    world.scale(&mut request, replicas);
    let name = random.pick(&world.clusters.keys().cloned().collect::<Vec<_>>()).clone();
    world.taint(&name, "NoExecute");
    world.step(&mut request);
}

fn is_caught(mutant: Mutant) -> bool {
    ACTIVE.set(Some(mutant));
    let caught = (0..INSTANCES).any(|seed| catch_unwind(AssertUnwindSafe(|| play(seed))).is_err());
    ACTIVE.set(None);
    caught
}

#[test]
fn without_a_fault_nothing_is_caught() {
    for seed in 0..INSTANCES {
        let played = catch_unwind(AssertUnwindSafe(|| play(seed)));
        assert!(played.is_ok(), "seed {seed}");
    }
}

macro_rules! caught {
    ($($name:ident: $mutant:ident,)*) => {$(
        #[test]
        fn $name() {
            assert!(is_caught(Mutant::$mutant), "nothing notices {:?}", Mutant::$mutant);
        }
    )*};
}
caught! {
    ignored_taints_are_caught: TaintsIgnored,
    an_ignored_affinity_is_caught: AffinityIgnored,
    ignored_apis_are_caught: ApisIgnored,
    room_for_one_more_is_caught: RoomForOneMore,
    forgotten_reservations_are_caught: ReservationsForgotten,
    ignored_skew_is_caught: SkewIgnored,
    an_ignored_max_is_caught: MaxIgnored,
    a_lost_share_is_caught: ShareLost,
    hidden_pending_replicas_are_caught: PendingHidden,
    a_forgotten_eviction_is_caught: EvictionForgotten,
    a_raised_target_is_caught: TargetRaised,
    a_raised_limit_is_caught: LimitRaised,
}
