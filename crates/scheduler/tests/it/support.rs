//! A small world for tests: clusters with some room, workloads, and decisions that are applied.
#![allow(dead_code, unreachable_pub)]

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::binding::{Outcome, TargetCluster};
use atoll_api::quantity::Quantity;
use atoll_api::{Cluster, ClusterSet, WorkloadPolicy, WorkloadSpread};
use atoll_scheduler::lint::lint;
use atoll_scheduler::replay::{Inputs, restore};
use atoll_scheduler::state::affinity_group::memberships;
use atoll_scheduler::state::cluster_sets::ClusterSets;
use atoll_scheduler::{
    BindingFacts, BindingKey, Decision, LiveCluster, Previous, Profiles, Report, Request,
    Scheduler, Session, Snapshot, Standing, TableChange, Tables, Template,
};
use serde_json::{Value, json};

pub fn now() -> jiff::Timestamp {
    "2026-08-21T12:00:00Z".parse().unwrap()
}

/// A Cluster with its labels and room for this many pods (`None` = unknown).
pub fn cluster(name: &str, labels: &[(&str, &str)], room: Option<i64>) -> Cluster {
    let labels: BTreeMap<_, _> = labels.iter().copied().collect();
    let mut status = json!({"apiEnablements": [
        {"groupVersion": "apps/v1", "resources": [
            {"name": "deployments", "kind": "Deployment"}, {"name": "statefulsets", "kind": "StatefulSet"}]},
        {"groupVersion": "batch/v1", "resources": [{"name": "jobs", "kind": "Job"}]},
        {"groupVersion": "v1", "resources": [{"name": "configmaps", "kind": "ConfigMap"}]}]});
    if let Some(room) = room {
        status["resourceSummary"] = json!({"allocatable": {"pods": room.to_string()}});
    }
    serde_json::from_value(json!({
        "apiVersion": "cluster.atoll.dev/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name, "labels": labels}, "spec": {}, "status": status,
    }))
    .unwrap()
}

pub fn cluster_set(name: &str, namespaces: &Value, clusters: &Value) -> ClusterSet {
    serde_json::from_value(json!({
        "apiVersion": "cluster.atoll.dev/v1alpha1", "kind": "ClusterSet", "metadata": {"name": name},
        "spec": {"namespaceSelector": namespaces, "clusterSelector": clusters},
    }))
    .unwrap()
}

pub struct World {
    pub tables: Tables,
    pub scheduler: Scheduler,
    pub profiles: Profiles,
    pub clusters: BTreeMap<String, Cluster>,
    /// What the last decision read, and the objects that recorded it.
    pub inputs: (Option<Inputs>, BTreeMap<String, Vec<u8>>),
}

impl World {
    pub fn new(clusters: impl IntoIterator<Item = Cluster>) -> Self {
        let mut world = Self {
            tables: Tables::default(),
            scheduler: Scheduler::new(Profiles::default()),
            profiles: Profiles::default(),
            clusters: BTreeMap::new(),
            inputs: Default::default(),
        };
        clusters.into_iter().for_each(|cluster| {
            world.put(cluster);
        });
        world
    }

    pub fn put(&mut self, cluster: Cluster) -> Vec<TableChange> {
        let live = LiveCluster::from_status(&cluster);
        let changes = self.tables.upsert_cluster(&cluster, live);
        self.clusters.insert(cluster.metadata.name.clone().unwrap(), cluster);
        changes
    }

    pub fn edit(&mut self, name: &str, change: impl FnOnce(&mut Cluster)) -> Vec<TableChange> {
        let mut cluster = self.clusters[name].clone();
        change(&mut cluster);
        self.put(cluster)
    }

    pub fn remove(&mut self, name: &str) -> Vec<TableChange> {
        self.clusters.remove(name);
        self.tables.remove_cluster(name)
    }

    pub fn lose_session(&mut self, name: &str) -> Vec<TableChange> {
        let live = LiveCluster { session: Session::Lost, capacity: None };
        self.tables.upsert_cluster(&self.clusters[name], live)
    }

    pub fn taint(&mut self, name: &str, effect: &str) -> Vec<TableChange> {
        let taint = serde_json::from_value(json!({"key": "test", "effect": effect})).unwrap();
        self.edit(name, |cluster| cluster.spec.taints.push(taint))
    }

    pub fn room(&mut self, name: &str, room: i64) -> Vec<TableChange> {
        self.edit(name, |cluster| {
            let summary = cluster.status.as_mut().unwrap().resource_summary.as_mut().unwrap();
            summary.allocatable.insert("pods".into(), Quantity::from_units(room.into()));
        })
    }

    /// Sets the ClusterSets: name, labels of the namespaces, labels of the clusters. Namespace `default` has the label
    /// `team: shop`.
    pub fn cluster_sets(&mut self, sets: &[(&str, Value, Value)]) -> Vec<TableChange> {
        let mut rules = ClusterSets::default();
        let labels = BTreeMap::from([("team".to_owned(), "shop".to_owned())]);
        rules.set_namespace("default", Some(labels));
        for (name, namespaces, clusters) in sets {
            let _: Result<(), String> =
                rules.upsert(name, &cluster_set(name, namespaces, clusters));
        }
        self.tables.set_cluster_sets(Arc::new(rules))
    }

    /// Sets a FederatedResourceQuota of namespace `default`.
    pub fn quota(&mut self, name: &str, overall: Value) -> Vec<TableChange> {
        let object = json!({
            "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "FederatedResourceQuota",
            "metadata": {"name": name, "namespace": "default"}, "spec": {"overall": overall},
        });
        self.tables.upsert_quota(&serde_json::from_value(object).unwrap())
    }

    pub fn policy(&mut self, spec: Value) -> Vec<TableChange> {
        let object = json!({
            "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "WorkloadPolicy",
            "metadata": {"name": "policy", "namespace": "default", "uid": "policy-uid", "generation": 1},
            "spec": spec,
        });
        let policy: WorkloadPolicy = serde_json::from_value(object).unwrap();
        self.tables.upsert_workload_policy(&policy)
    }

    pub fn spread(&mut self, spec: Value) -> Vec<TableChange> {
        self.spread_with_status(spec, Value::Null)
    }

    pub fn spread_with_status(&mut self, spec: Value, status: Value) -> Vec<TableChange> {
        let mut object = json!({
            "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "WorkloadSpread",
            "metadata": {"name": "spread", "namespace": "default"}, "spec": spec,
        });
        if !status.is_null() {
            object["status"] = status;
        }
        let spread: WorkloadSpread = serde_json::from_value(object).unwrap();
        self.tables.upsert_workload_spread(&spread)
    }

    /// Makes a decision. Checks it with the linter, and that it is deterministic and survives a round trip through
    /// JSON.
    pub fn decide(&mut self, request: &Request) -> Decision {
        let snapshot = self.tables.snapshot();
        let decision = self.scheduler.decide(&snapshot, request);
        let faults = lint(&snapshot, request, &decision);
        let text = serde_json::to_string(&decision).unwrap();
        assert!(faults.is_empty(), "{faults:#?}\n{request:#?}\n{text}");
        let fresh = Scheduler::new(self.profiles.clone()).decide(&snapshot, request);
        assert_eq!(text, serde_json::to_string(&fresh).unwrap(), "the cache changed the answer");
        let back: Decision = serde_json::from_str(&text).unwrap();
        assert_eq!(back, decision, "JSON loses something");
        self.replay(&snapshot, request, &text);
        decision
    }

    /// Makes a decision again from what is recorded of it, as differences from the last one's.
    fn replay(&mut self, snapshot: &Snapshot, request: &Request, text: &str) {
        let (before, objects) = &mut self.inputs;
        let inputs = Inputs::of(snapshot, request.clone(), &self.profiles).unwrap();
        for (name, content) in inputs.differences(before.as_ref()) {
            match content {
                Some(content) => objects.insert(name, content),
                None => objects.remove(&name),
            };
        }
        *before = Some(inputs);
        let objects = objects.iter().map(|(name, content)| (&**name, &**content));
        let again = restore(objects).unwrap().decide(&self.profiles);
        assert_eq!(text, serde_json::to_string(&again).unwrap(), "the replay of {request:#?}");
    }

    /// Makes a decision and applies it to the request.
    pub fn step(&mut self, request: &mut Request) -> Decision {
        let decision = self.decide(request);
        self.take(request, &decision);
        decision
    }

    /// Applies a decision to the request and the tables.
    pub fn take(&mut self, request: &mut Request, decision: &Decision) {
        if decision.trigger() == atoll_api::binding::Trigger::Avoid {
            return;
        }
        let triggered = request.previous.as_ref().and_then(|p| p.reschedule_triggered_at);
        request.previous = Some(Previous {
            clusters: decision.clusters().to_vec(),
            decision: Some(decision.record(1)),
            applied_placement: serde_json::from_str(&decision.applied_placement()).ok(),
            eviction_tasks: decision.evictions().to_vec(),
            preserved: decision.preserved().cloned(),
            preempts: decision.preempts.clone(),
            preempted_by: decision.preempted_by.clone(),
            reschedule_triggered_at: triggered,
            ..Previous::default()
        });
        self.tables.upsert_binding(BindingFacts {
            key: request.key.clone(),
            pod_labels: Arc::new((&request.template.pod_labels).into()),
            requirements: request.template.requirements.clone(),
            components: request.template.components.clone().into(),
            groups: memberships(&request.placement, &request.template.labels),
            standing: Standing::after(request, decision),
            shares: decision.clusters().to_vec(),
            reported: Default::default(),
        });
    }

    /// Scales the workload and applies the decision.
    pub fn scale(&mut self, request: &mut Request, replicas: i64) -> Decision {
        request.template.replicas = Some(replicas);
        self.step(request)
    }
}

/// A Deployment in namespace `default` with the label `app`.
pub fn workload(name: &str, replicas: i64, placement: Value) -> Request {
    Request {
        key: BindingKey::new("default", &format!("{name}-deployment")),
        template: Template {
            uid: format!("uid-of-{name}").into(),
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            namespace: Some("default".into()),
            name: name.into(),
            pod_labels: BTreeMap::from([("app".into(), "web".into())]),
            replicas: Some(replicas),
            ..Template::default()
        },
        placement: serde_json::from_value(placement).unwrap(),
        scheduler_name: "default".into(),
        now: now(),
        ..Request::default()
    }
}

/// A Deployment like [`workload`], with the WorkloadPolicy `policy`.
pub fn steered(name: &str, replicas: i64) -> Request {
    let mut request = workload(name, replicas, json!({}));
    request.template.workload_policy = Some("policy".into());
    request
}

pub fn shares(decision: &Decision) -> BTreeMap<String, i64> {
    decision.clusters().iter().map(|share| (share.name.clone(), share.replicas)).collect()
}

pub fn map(shares: &[(&str, i64)]) -> BTreeMap<String, i64> {
    shares.iter().map(|(name, replicas)| ((*name).to_owned(), *replicas)).collect()
}

pub fn target(name: &str, replicas: i64) -> TargetCluster {
    TargetCluster { name: name.into(), replicas }
}

pub fn report(unschedulable: i64, since: &str) -> Report {
    Report { unschedulable, unschedulable_since: Some(since.parse().unwrap()), ..Report::default() }
}

pub fn placed(decision: &Decision) -> i64 {
    decision.clusters().iter().map(|share| share.replicas).sum()
}

pub fn is_quiet(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Unchanged | Outcome::Placed)
}

/// Random numbers from a seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        atoll_scheduler::hash::splitmix64(self.0) % below
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}
