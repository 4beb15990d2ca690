//! A federation whose members report and whose users change workloads, on the real scheduler, for tests of what
//! decisions read.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::binding::{TargetCluster, Trigger};
use atoll_api::{Cluster, ClusterName};
use atoll_history::{Detail, Inputs, Record};
use atoll_scheduler::hash::splitmix64;
use atoll_scheduler::replay;
use atoll_scheduler::state::affinity_group::memberships;
use atoll_scheduler::{
    BindingFacts, BindingKey, Capacity, Decision, FreeVector, LiveCluster, NodeClass, PolicyRef,
    Previous, Profiles, Report, Request, Scheduler, Session, Standing, Tables, Template,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::support::record;

/// Nodes of a member.
const NODES: usize = 20;
/// API groups of a member, about as many as a cluster with a few operators serves.
const GROUPS: usize = 30;

/// The scheduler's inputs, as the controller gives them to history.
#[derive(Debug)]
pub(crate) struct OfScheduler(pub(crate) replay::Inputs);

impl Inputs for OfScheduler {
    fn differences(&self, before: Option<&dyn Inputs>) -> Vec<(String, Option<Vec<u8>>)> {
        let before = before.and_then(|before| (before as &dyn Any).downcast_ref::<Self>());
        self.0.differences(before.map(|before| &before.0))
    }
}

pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        usize::try_from(splitmix64(self.0) % below as u64).unwrap()
    }

    fn hex(&mut self, digits: usize) -> String {
        let text: String = (0..digits.div_ceil(16))
            .map(|_| {
                self.below(1);
                format!("{:016x}", splitmix64(self.0))
            })
            .collect();
        text[..digits].to_owned()
    }
}

struct Member {
    cluster: Cluster,
    /// Free milli-CPU, bytes in thousandths, and pods of each node.
    nodes: Vec<(i64, i64, i64)>,
}

/// The federation at a time.
pub(crate) struct Federation {
    pub(crate) now: Timestamp,
    random: Random,
    members: Vec<Member>,
    tables: Tables,
    scheduler: Scheduler,
    workloads: Vec<Request>,
    /// Workloads whose members have not reported yet.
    unreported: Vec<usize>,
}

fn placements() -> Vec<Value> {
    let divided = |weights: Value| {
        json!({"replicaScheduling": {
            "replicaSchedulingType": "Divided",
            "replicaDivisionPreference": "Weighted",
            "weightPreference": weights,
        }})
    };
    let region = |region: &str| json!({"labelSelector": {"matchLabels": {"region": region}}});
    let mut near = divided(json!({"dynamicWeight": "AvailableReplicas"}));
    near["clusterAffinity"] = region("north");
    let mut spread = divided(json!({"dynamicWeight": "AvailableReplicas"}));
    spread["spreadConstraints"] =
        json!([{"spreadByField": "cluster", "minGroups": 2, "maxGroups": 4}]);
    vec![
        near,
        spread,
        divided(json!({"staticWeightList": [
            {"targetCluster": region("north"), "weight": 2},
            {"targetCluster": region("south"), "weight": 1},
        ]})),
        json!({
            "replicaScheduling": {
                "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
            },
            "clusterTolerations": [{"key": "maintenance", "operator": "Exists"}],
        }),
        json!({
            "replicaScheduling": {"replicaSchedulingType": "Duplicated"},
            "clusterAffinity": {"clusterNames": ["member-00", "member-01"]},
        }),
    ]
}

impl Federation {
    pub(crate) fn new(members: usize, seed: u64) -> Self {
        let mut federation = Self {
            now: "2026-11-24T00:00:00Z".parse().unwrap(),
            random: Random(seed),
            members: Vec::new(),
            tables: Tables::default(),
            scheduler: Scheduler::new(Profiles::default()),
            workloads: Vec::new(),
            unreported: Vec::new(),
        };
        for number in 0..members {
            let random = &mut federation.random;
            let apis: Vec<Value> = (0..GROUPS)
                .map(|group| {
                    let kinds = (0..8).map(|n| json!({"name": format!("things{n}"), "kind": format!("Thing{group}x{n}")}));
                    json!({"groupVersion": format!("group{group}.example.com/v1"), "resources": kinds.collect::<Vec<_>>()})
                })
                .chain([json!({"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]})])
                .collect();
            let region = ["north", "south", "east"][number % 3];
            let cluster = json!({
                "apiVersion": "cluster.atoll.dev/v1alpha1", "kind": "Cluster",
                "metadata": {"name": format!("member-{number:02}"), "uid": random.hex(32), "labels": {
                    "region": region, "env": "production",
                }},
                "spec": {"region": region, "provider": "example"},
                "status": {"apiEnablements": apis, "conditions": [{
                    "type": "Ready", "status": "True", "reason": "Ready", "message": "",
                    "lastTransitionTime": "2026-11-01T00:00:00Z",
                }]},
            });
            let nodes = (0..NODES)
                .map(|_| {
                    let cpu = 100 * (20 + random.below(140)) as i64;
                    (
                        cpu,
                        (4 + random.below(60)) as i64 * 1_073_741_824_000,
                        (20 + random.below(80)) as i64 * 1000,
                    )
                })
                .collect();
            federation
                .members
                .push(Member { cluster: serde_json::from_value(cluster).unwrap(), nodes });
            federation.put(number);
        }
        federation
    }

    fn put(&mut self, member: usize) {
        let Member { cluster, nodes } = &self.members[member];
        let mut nodes = nodes.clone();
        nodes.sort_unstable();
        let free = nodes.iter().map(|(cpu, memory, pods)| FreeVector {
            nodes: 1,
            milli: BTreeMap::from([
                ("cpu".to_owned(), *cpu),
                ("memory".to_owned(), *memory),
                ("ephemeral-storage".to_owned(), 94_489_280_512_000),
                ("pods".to_owned(), *pods),
            ]),
        });
        let capacity =
            Capacity { classes: vec![NodeClass { free: free.collect(), ..NodeClass::default() }] };
        let live = LiveCluster { session: Session::Connected, capacity: Some(capacity) };
        self.tables.upsert_cluster(cluster, live);
    }

    /// A member counts its room again: on two of its nodes, pods came or went.
    pub(crate) fn report(&mut self, member: usize) {
        for _ in 0..2 {
            let node = self.random.below(NODES);
            let sign = if self.random.below(2) == 0 { 1 } else { -1 };
            let cpu = 50 * (1 + self.random.below(10)) as i64;
            let memory = 67_108_864_000 * (1 + self.random.below(16)) as i64;
            let (free, bytes, pods) = &mut self.members[member].nodes[node];
            *free = (*free + sign * cpu).clamp(0, 16_000);
            *bytes = (*bytes + sign * memory).clamp(0, 68_719_476_736_000);
            *pods = (*pods + sign * 1000).clamp(0, 110_000);
        }
        self.put(member);
    }

    /// A taint comes to a member, or goes.
    pub(crate) fn taint(&mut self, member: usize, effect: Option<&str>) {
        let taint = |effect: &str| json!({"key": "maintenance", "effect": effect, "timeAdded": self.now.to_string()});
        let taints = effect.map(taint).into_iter().collect::<Vec<_>>();
        self.members[member].cluster.spec.taints = serde_json::from_value(json!(taints)).unwrap();
        self.put(member);
    }

    pub(crate) fn wait(&mut self, milliseconds: i64) {
        self.now += SignedDuration::from_millis(milliseconds);
    }

    /// Members report the replicas that the last decisions gave them.
    pub(crate) fn run_what_was_decided(&mut self) {
        for at in std::mem::take(&mut self.unreported) {
            let request = &mut self.workloads[at];
            let shares = request.previous.iter().flat_map(|previous| &previous.clusters);
            request.reports = shares
                .map(|share| {
                    let report = Report {
                        replicas: share.replicas,
                        ready: share.replicas,
                        healthy: Some(true),
                        ..Report::default()
                    };
                    (ClusterName::from(&share.name), report)
                })
                .collect();
            let request = self.workloads[at].clone();
            self.book(&request, None);
        }
    }

    fn book(&mut self, request: &Request, decision: Option<&Decision>) {
        let shares: Vec<TargetCluster> =
            request.previous.iter().flat_map(|previous| previous.clusters.clone()).collect();
        self.tables.upsert_binding(BindingFacts {
            key: request.key.clone(),
            pod_labels: Arc::new((&request.template.pod_labels).into()),
            requirements: request.template.requirements.clone(),
            components: Arc::default(),
            groups: memberships(&request.placement, &request.template.labels),
            standing: decision.map_or_else(Standing::default, |d| Standing::after(request, d)),
            shares,
            reported: request.reports.iter().map(|(name, r)| (name.clone(), r.replicas)).collect(),
        });
    }

    fn new_workload(&mut self) -> usize {
        let number = self.workloads.len();
        let placements = placements();
        let policy = self.random.below(placements.len());
        let namespace = format!("team-{}", self.random.below(40));
        let name = format!("service-{number}");
        let labels = BTreeMap::from([
            ("app.kubernetes.io/name".to_owned(), name.clone()),
            ("app.kubernetes.io/part-of".to_owned(), namespace.clone()),
        ]);
        let uid = self.random.hex(32);
        self.workloads.push(Request {
            key: BindingKey::new(&namespace, &format!("{name}-deployment")),
            template: Template {
                uid: format!("{}-{}-{}-{}-{}", &uid[..8], &uid[8..12], &uid[12..16], &uid[16..20], &uid[20..32]).into(),
                api_version: "apps/v1".into(),
                kind: "Deployment".into(),
                namespace: Some(namespace),
                name,
                labels: labels.clone(),
                pod_labels: labels,
                replicas: Some(1 + self.random.below(20) as i64),
                requirements: Some(serde_json::from_value(json!({"resourceRequest": {
                    "cpu": format!("{}m", 50 * (1 + self.random.below(20))), "memory": format!("{}Mi", 64 * (1 + self.random.below(16))),
                }})).unwrap()),
                ..Template::default()
            },
            placement: serde_json::from_value(placements[policy].clone()).unwrap(),
            policies: vec![PolicyRef {
                kind: "ClusterPropagationPolicy".into(),
                name: format!("policy-{policy}"),
                uid: format!("{policy}0b7a2d4-3f6e-4d3a-9b1c-5e8f7a6b4c3d"),
                generation: 3,
                ..PolicyRef::default()
            }],
            scheduler_name: "default".into(),
            ..Request::default()
        });
        number
    }

    /// A user creates a workload or changes the replicas of one. Returns the decision as history gets it.
    pub(crate) fn decide(&mut self) -> (Record, OfScheduler) {
        let (record, inputs) = self.decide_with(true);
        (record, inputs.expect("they were asked for"))
    }

    /// As [`Self::decide`], with or without the inputs.
    pub(crate) fn decide_with(&mut self, inputs: bool) -> (Record, Option<OfScheduler>) {
        loop {
            let at = match self.workloads.len() {
                known if known > 20 && self.random.below(10) < 6 => {
                    let at = self.random.below(known);
                    self.workloads[at].template.replicas = Some(1 + self.random.below(25) as i64);
                    at
                }
                _ => self.new_workload(),
            };
            self.workloads[at].now = Timestamp::from_second(self.now.as_second()).unwrap();
            let request = self.workloads[at].clone();
            let snapshot = self.tables.snapshot();
            let decision = self.scheduler.decide(&snapshot, &request);
            if decision.trigger() == Trigger::Avoid {
                continue;
            }
            let profiles = self.scheduler.profiles();
            let inputs = inputs.then(|| replay::Inputs::of(&snapshot, request, profiles).unwrap());
            let number = u32::try_from(at).unwrap();
            let mut record = record(
                decision.id(),
                number,
                &self.workloads[at].template.name,
                self.now.as_second(),
            );
            record.record = decision.record(1);
            record.before = Some(decision.before().to_vec());
            record.after = decision.clusters().to_vec();
            record.detail = Some(Detail::of(&decision).unwrap());
            let request = &mut self.workloads[at];
            request.previous = Some(Previous {
                clusters: decision.clusters().to_vec(),
                decision: Some(decision.record(1)),
                applied_placement: serde_json::from_str(&decision.applied_placement()).ok(),
                eviction_tasks: decision.evictions().to_vec(),
                ..Previous::default()
            });
            let request = request.clone();
            self.book(&request, Some(&decision));
            self.unreported.push(at);
            return (record, inputs.map(OfScheduler));
        }
    }
}
