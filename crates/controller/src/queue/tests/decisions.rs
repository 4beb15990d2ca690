//! What real decisions wait for, and the events that the scheduler's tables report.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::{Cluster, Few};
use atoll_scheduler::{
    BindingFacts, BindingKey, Decision, LiveCluster, Profiles, Request, Scheduler, TableChange,
    Tables, Template, WakeCondition,
};
use serde_json::json;

use super::*;

struct World {
    tables: Tables,
    scheduler: Scheduler,
    clusters: BTreeMap<String, Cluster>,
    requests: BTreeMap<String, Request>,
    queue: Queue<String, WakeCondition>,
    /// Replicas without a place at the last decision.
    left: BTreeMap<String, i64>,
}

fn cluster(name: &str, room: i64) -> Cluster {
    let apis = json!([{"groupVersion": "apps/v1", "resources": [
        {"name": "deployments", "kind": "Deployment"}]}]);
    serde_json::from_value(json!({
        "apiVersion": "cluster.atoll.dev/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name}, "spec": {},
        "status": {"apiEnablements": apis,
            "resourceSummary": {"allocatable": {"pods": room.to_string()}}},
    }))
    .unwrap()
}

impl World {
    fn new(clusters: &[(&str, i64)]) -> Self {
        let mut world = Self {
            tables: Tables::default(),
            scheduler: Scheduler::new(Profiles::default()),
            clusters: BTreeMap::new(),
            requests: BTreeMap::new(),
            queue: Queue::new(by_priority(), BACKOFF),
            left: BTreeMap::new(),
        };
        for (name, room) in clusters {
            world.put(cluster(name, *room));
        }
        world
    }

    fn put(&mut self, cluster: Cluster) -> Vec<TableChange> {
        let changes = self.tables.upsert_cluster(&cluster, LiveCluster::from_status(&cluster));
        self.clusters.insert(cluster.metadata.name.clone().unwrap(), cluster);
        changes
    }

    fn room(&mut self, name: &str, room: i64) -> Vec<TableChange> {
        self.put(cluster(name, room))
    }

    /// A cluster with these fields merged in.
    fn with(&mut self, name: &str, more: serde_json::Value) -> Vec<TableChange> {
        let mut object = serde_json::to_value(cluster(name, 1)).unwrap();
        merge(&mut object, &more);
        self.put(serde_json::from_value(object).unwrap())
    }

    fn taint(&mut self, name: &str) -> Vec<TableChange> {
        let mut cluster = self.clusters[name].clone();
        let taint = json!({"key": "test", "effect": "NoExecute"});
        cluster.spec.taints.push(serde_json::from_value(taint).unwrap());
        self.put(cluster)
    }

    /// A Deployment that only these clusters may run.
    fn workload(&mut self, name: &str, replicas: i64, clusters: &[String]) {
        let placement = json!({
            "clusterAffinity": {"clusterNames": clusters},
            "replicaScheduling": {"replicaSchedulingType": "Divided",
                "weightPreference": {"dynamicWeight": "AvailableReplicas"}},
        });
        let request = Request {
            key: BindingKey::new("default", &format!("{name}-deployment")),
            template: Template {
                uid: format!("uid-of-{name}").into(),
                api_version: "apps/v1".into(),
                kind: "Deployment".into(),
                namespace: Some("default".into()),
                name: name.into(),
                replicas: Some(replicas),
                ..Template::default()
            },
            placement: serde_json::from_value(placement).unwrap(),
            now: "2026-08-21T12:00:00Z".parse().unwrap(),
            ..Request::default()
        };
        self.requests.insert(name.to_owned(), request);
        self.queue.add(name.to_owned(), Urgency::Now, Instant::now());
    }

    fn decide(&mut self, name: &str) -> (Decision, Done<WakeCondition>) {
        let request = &self.requests[name];
        let decision = self.scheduler.decide(&self.tables.snapshot(), request);
        self.tables.upsert_binding(BindingFacts {
            groups: std::sync::Arc::default(),
            standing: atoll_scheduler::Standing::default(),
            key: request.key.clone(),
            pod_labels: Arc::default(),
            requirements: None,
            components: std::sync::Arc::default(),
            shares: decision.clusters().to_vec(),
            reported: Few::default(),
        });
        self.left.insert(name.to_owned(), decision.pending_replicas());
        let waits = decision.waits_for().to_vec();
        let how = if decision.pending_replicas() > 0 {
            Done::Waits(waits, None)
        } else {
            Done::Watches(waits, None)
        };
        (decision, how)
    }

    fn send(&mut self, changes: &[TableChange], now: Instant) {
        changes.iter().for_each(|change| self.queue.wake(change, now));
    }

    /// Decides the queue's keys until it is empty, and returns them.
    fn drain(&mut self, now: Instant) -> BTreeSet<String> {
        let mut decided = BTreeSet::new();
        while let Some(name) = self.queue.pop(now) {
            let (_, how) = self.decide(&name);
            self.queue.done(&name, how, now);
            decided.insert(name);
        }
        decided
    }
}

fn merge(into: &mut serde_json::Value, more: &serde_json::Value) {
    match (into.as_object_mut(), more.as_object()) {
        (Some(into), Some(more)) => {
            more.iter().for_each(|(key, value)| merge(into.entry(key).or_insert(json!({})), value));
        }
        _ => *into = more.clone(),
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn set(all: &[&str]) -> BTreeSet<String> {
    names(all).into_iter().collect()
}

#[tokio::test(start_paused = true)]
async fn an_event_on_an_unrelated_cluster_wakes_nothing_and_the_right_one_exactly_the_right_bindings()
 {
    let start = Instant::now();
    let mut world = World::new(&[("a", 2), ("b", 2), ("c", 2)]);
    world.workload("placed-on-ab", 1, &names(&["a", "b"]));
    world.workload("on-a", 5, &names(&["a"]));
    world.workload("on-b", 5, &names(&["b"]));
    assert_eq!(world.drain(start).len(), 3);

    let changes = world.room("c", 50);
    assert!(!changes.is_empty());
    world.send(&changes, after(start, 20));
    assert_eq!(world.drain(after(start, 20)), set(&[]), "an unrelated cluster");
    let changes = world.room("b", 4);
    world.send(&changes, after(start, 40));
    assert_eq!(world.drain(after(start, 40)), set(&["on-b"]));
    let changes = world.room("a", 1);
    world.send(&changes, after(start, 60));
    assert_eq!(world.drain(after(start, 60)), set(&[]), "less room meets no condition");
    let changes = world.taint("a");
    world.send(&changes, after(start, 80));
    let woken = world.drain(after(start, 80));
    assert!(woken.contains("on-a") && !woken.contains("on-b"), "{woken:?}");
}

#[tokio::test(start_paused = true)]
async fn no_event_that_arrives_during_a_decision_is_lost() {
    let start = Instant::now();
    let mut world = World::new(&[("a", 2)]);
    world.workload("web", 5, &names(&["a"]));
    let name = world.queue.pop(start).unwrap();
    let (_, how) = world.decide(&name);
    let changes = world.room("a", 9);
    world.send(&changes, start);
    world.queue.done(&name, how, start);
    assert_eq!(world.queue.pop(start), None, "backoff first");
    assert_eq!(world.drain(after(start, 1)), set(&["web"]));
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_waits_for_many_clusters_is_filed_once_and_still_found() {
    let start = Instant::now();
    let all: Vec<String> = (0..100).map(|number| format!("m{number:03}")).collect();
    let room: Vec<(&str, i64)> = all.iter().map(|name| (name.as_str(), 1)).collect();
    let mut world = World::new(&room);
    world.workload("wide", 500, &all);
    world.workload("narrow", 5, &all[..1]);
    assert_eq!(world.drain(start).len(), 2);
    assert!(world.queue.waiting.topics() < all.len(), "{}", world.queue.waiting.topics());
    let changes = world.room("m077", 9);
    world.send(&changes, after(start, 20));
    assert_eq!(world.drain(after(start, 20)), set(&["wide"]));
}

/// One binding per kind of condition; each event wakes only the binding whose condition it meets, after an unrelated
/// one that wakes none.
#[tokio::test(start_paused = true)]
async fn each_kind_of_event_wakes_the_bindings_that_wait_for_it() {
    let start = Instant::now();
    let mut world = World::new(&[("a", 1)]);
    let taint = json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    world.with("tainted", taint);
    let no_api = json!({"status": {"apiEnablements": []}});
    world.with("bare", no_api);
    world.with("iron", json!({"metadata": {"labels": {"tier": "iron"}}}));
    for (name, clusters) in [("on-taint", "tainted"), ("on-api", "bare"), ("on-join", "later")] {
        world.workload(name, 1, &names(&[clusters]));
    }
    world.workload("on-label", 1, &[]);
    let gold = json!({"clusterAffinity": {"labelSelector": {"matchLabels": {"tier": "gold"}}}});
    world.requests.get_mut("on-label").unwrap().placement = serde_json::from_value(gold).unwrap();
    world.workload("on-policy", 1, &names(&["a"]));
    let template = &mut world.requests.get_mut("on-policy").unwrap().template;
    template.workload_policy = Some("targets".into());
    world.workload("a-holder", 1, &names(&["a"]));
    world.workload("on-shrink", 1, &names(&["a"]));
    assert_eq!(world.drain(start).len(), 7);

    let mut at = 0;
    let mut woken = |world: &mut World, changes: Vec<TableChange>| {
        assert!(!changes.is_empty(), "the tables say what changed");
        at += 20;
        world.send(&changes, after(start, at));
        world.drain(after(start, at))
    };
    // A waiting binding is decided again and may keep waiting: what matters is which one is woken, and which one is
    // placed.
    let changes = world.with(
        "bare",
        json!({"status": {"apiEnablements": [
        {"groupVersion": "batch/v1", "resources": [{"name": "jobs", "kind": "Job"}]}]}}),
    );
    assert_eq!(woken(&mut world, changes), set(&[]), "another API");
    let changes = world.room("bare", 1);
    assert!(woken(&mut world, changes).contains("on-api"), "the API");
    assert_eq!(world.left["on-api"], 0);
    let other = json!({"apiVersion": "policy.atoll.dev/v1alpha1", "kind": "WorkloadPolicy",
        "metadata": {"name": "other", "namespace": "default"}, "spec": {"topologyKey": "cluster",
            "labelSelector": {"matchLabels": {"app": "x"}},
            "allocationPolicy": [{"name": "a", "replicas": 1}]}});
    let mut targets = other.clone();
    targets["metadata"]["name"] = json!("targets");
    let changes = world.tables.upsert_workload_policy(&serde_json::from_value(other).unwrap());
    assert_eq!(woken(&mut world, changes), set(&[]), "another WorkloadPolicy");
    let changes = world.tables.upsert_workload_policy(&serde_json::from_value(targets).unwrap());
    assert_eq!(woken(&mut world, changes), set(&["on-policy"]));
    let changes = world.with("tainted", json!({"spec": {"taints": []}}));
    assert!(woken(&mut world, changes).contains("on-taint"));
    assert_eq!(world.left["on-taint"], 0);
    let changes = world.with("iron", json!({"metadata": {"labels": {"tier": "gold"}}}));
    assert!(woken(&mut world, changes).contains("on-label"));
    assert_eq!(world.left["on-label"], 0);
    let changes = world.put(cluster("later", 1));
    assert!(woken(&mut world, changes).contains("on-join"));
    assert_eq!((world.left["on-join"], world.left["on-shrink"]), (0, 1));
    // Another binding releases its share.
    let key = BindingKey::new("default", "a-holder-deployment");
    let changes = world.tables.remove_binding(&key);
    assert!(woken(&mut world, changes).contains("on-shrink"), "there is room again");
    assert_eq!(world.left["on-shrink"], 0);
}
