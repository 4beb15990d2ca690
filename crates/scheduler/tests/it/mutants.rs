//! Decisions with deliberate faults, one at a time. The linter must notice each; a fault that passes shows a gap in it.
//!
//! A fault is made at the edge of the core: it decides on a belief, tables and a request in which a rule or a fact is
//! missing, or its decision is changed afterwards. The linter checks the decision against the truth.

use atoll_api::Cluster;
use atoll_api::binding::TargetCluster;
use atoll_api::quantity::Quantity;
use atoll_scheduler::lint::{Fault, lint};
use atoll_scheduler::{Decision, Request};
use serde_json::{Value, json};

use crate::support::{Random, World, cluster, steered, workload};

/// Random instances per mutant; one of them must catch it.
const INSTANCES: u64 = 400;

/// A deliberate fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    /// Taints reject no cluster.
    TaintsIgnored,
    /// The placement's cluster affinity matches every cluster.
    AffinityIgnored,
    /// Kinds are placed on members that do not serve them.
    ApisIgnored,
    /// Every cluster takes one replica more than fits.
    RoomForOneMore,
    /// Reservations count as free capacity.
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

impl Mutant {
    fn change_cluster(self, cluster: &mut Cluster) {
        let status = cluster.status.as_mut().unwrap();
        match self {
            Self::TaintsIgnored => cluster.spec.taints.clear(),
            Self::ApisIgnored => {
                let whole = crate::support::cluster("any", &[], None);
                status.api_enablements = whole.status.unwrap().api_enablements;
            }
            Self::RoomForOneMore => {
                let summary = status.resource_summary.as_mut();
                let Some(pods) = summary.and_then(|summary| summary.allocatable.get_mut("pods"))
                else {
                    return;
                };
                let room = pods.units().unwrap();
                *pods = Quantity::from_units(room + 1);
            }
            _ => {}
        }
    }

    fn change_request(self, request: &mut Request) {
        let placement = &mut request.placement;
        match self {
            Self::AffinityIgnored => placement.cluster_affinity = None,
            Self::SkewIgnored => placement.topology_spread_constraints.clear(),
            Self::MaxIgnored => {
                let bounds = placement.replica_scheduling.iter_mut().flat_map(|s| &mut s.bounds);
                bounds.for_each(|bound| bound.max = None);
            }
            _ => {}
        }
    }

    /// Changes the specs of policies.
    fn change_spec(self, spec: &mut Value) {
        let (list, field) = match self {
            Self::TargetRaised => ("allocationPolicy", "replicas"),
            Self::LimitRaised => ("subsets", "maxReplicas"),
            _ => return,
        };
        for item in spec[list].as_array_mut().into_iter().flatten() {
            item[field] = json!(item[field].as_i64().unwrap() + 1);
        }
    }

    fn change_decision(self, decision: &mut Decision) {
        match self {
            Self::ShareLost => {
                let mut shares: Vec<TargetCluster> = decision.after.to_vec();
                shares.pop();
                decision.after = shares.into();
            }
            Self::PendingHidden => decision.pending.clear(),
            Self::EvictionForgotten => decision.evictions.clear(),
            _ => {}
        }
    }
}

/// A world, and what the core believes of it.
struct Deceived {
    truth: World,
    belief: World,
    mutant: Option<Mutant>,
}

impl Deceived {
    fn put(&mut self, cluster: Cluster) {
        let mut believed = cluster.clone();
        if let Some(mutant) = self.mutant {
            mutant.change_cluster(&mut believed);
        }
        self.truth.put(cluster);
        self.belief.put(believed);
    }

    fn taint(&mut self, name: &str, effect: &str) {
        self.truth.taint(name, effect);
        let cluster = self.truth.clusters[name].clone();
        self.put(cluster);
    }

    /// Creates a policy in both worlds.
    fn apply(&mut self, spec: Value, create: impl Fn(&mut World, Value)) {
        let mut believed = spec.clone();
        if let Some(mutant) = self.mutant {
            mutant.change_spec(&mut believed);
        }
        create(&mut self.truth, spec);
        create(&mut self.belief, believed);
    }

    /// Makes a decision and applies it; returns what the linter finds in it.
    fn step(&mut self, request: &mut Request) -> Vec<Fault> {
        let mut believed = request.clone();
        if let Some(mutant) = self.mutant {
            mutant.change_request(&mut believed);
        }
        let snapshot = self.belief.tables.snapshot();
        let mut decision = self.belief.scheduler.decide(&snapshot, &believed);
        if let Some(mutant) = self.mutant {
            mutant.change_decision(&mut decision);
        }
        let faults = lint(&self.truth.tables.snapshot(), request, &decision);
        self.truth.take(request, &decision);
        if self.mutant != Some(Mutant::ReservationsForgotten) {
            self.belief.take(&mut believed, &decision);
        }
        faults
    }
}

const AREAS: [&str; 3] = ["north", "south", "west"];

fn world(random: &mut Random, mutant: Option<Mutant>) -> Deceived {
    let mut world = Deceived { truth: World::new([]), belief: World::new([]), mutant };
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

fn request(random: &mut Random, world: &mut Deceived) -> Request {
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
            let spec = json!({"topologyKey": "area", "labelSelector": {"matchLabels": {"app": "web"}},
                "allocationPolicy": list, "allocationType": "Required"});
            world.apply(spec, |world, spec| drop(world.policy(spec)));
            return steered("web", replicas);
        }
        5 => {
            let subset = |area: &str, max: u64| json!({"name": area, "requiredClusterSelector": {"matchLabels": {"area": area}}, "maxReplicas": max});
            let spec = json!({"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "subsets": [subset("north", random.below(4)), subset("south", random.below(4))]});
            world.apply(spec, |world, spec| drop(world.spread(spec)));
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

/// One instance: place, scale, lose a cluster. Returns what the linter finds.
fn play(seed: u64, mutant: Option<Mutant>) -> Vec<Fault> {
    let random = &mut Random(seed);
    let mut world = world(random, mutant);
    let mut request = request(random, &mut world);
    let mut faults = world.step(&mut request);
    request.template.replicas = Some(1 + random.below(20) as i64);
    faults.extend(world.step(&mut request));
    let names: Vec<String> = world.truth.clusters.keys().cloned().collect();
    let name = random.pick(&names);
    world.taint(name, "NoExecute");
    faults.extend(world.step(&mut request));
    faults
}

#[test]
fn without_a_fault_nothing_is_caught() {
    for seed in 0..INSTANCES {
        assert_eq!(play(seed, None), [], "seed {seed}");
    }
}

macro_rules! caught {
    ($($name:ident: $mutant:ident,)*) => {$(
        #[test]
        fn $name() {
            let caught = |seed| !play(seed, Some(Mutant::$mutant)).is_empty();
            assert!((0..INSTANCES).any(caught), "nothing notices {:?}", Mutant::$mutant);
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
