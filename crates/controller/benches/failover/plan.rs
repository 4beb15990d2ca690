//! Planning of a failover on one thread: from the controller's objects to complete decisions, one after another.
//! Nothing is written or sent.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use atoll_api::binding::{Outcome, ResourceBindingSpec, TargetCluster, Trigger};
use atoll_api::placement::Placement;
use atoll_api::{Cluster, Shared, marks};
use atoll_scheduler::request::objects::{Claim, Existing};
use atoll_scheduler::{
    BindingFacts, BindingKey, LiveCluster, Profiles, Request, Scheduler, Session, Tables,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::{MEMBERS, hub, placement};

/// Requests that are built and decided together, so that not all objects are in memory at once.
const CHUNK: usize = 1000;

/// Wall time and CPU time: equal on an otherwise idle machine.
#[derive(Default)]
struct Spent {
    clock: Duration,
    processor: Duration,
}

impl Spent {
    fn on<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let (start, used) = (Instant::now(), processor());
        let done = work();
        self.clock += start.elapsed();
        self.processor += processor() - used;
        done
    }

    fn told(&self, bindings: usize) -> String {
        let each = self.processor.as_secs_f64() * 1e6 / bindings as f64;
        format!("{:.2?}, on a processor {:.2?}, {each:.1} us each", self.clock, self.processor)
    }
}

/// CPU time of this thread.
fn processor() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

/// Decides everything on one snapshot, then each on a snapshot with the previous decisions, like the controller; prints
/// the times.
pub(crate) fn measure(bindings: usize) {
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let mut tables = tables();
    let claim = claim();
    for at in 0..bindings {
        tables.upsert_binding(facts(&binding(at, &claim).0, &shares(at)));
    }
    let mut scheduler = Scheduler::new(Profiles::default());
    let snapshot = tables.snapshot();
    let (mut reading, mut alone, mut planning) = <(Spent, Spent, Spent)>::default();
    for first in (0..bindings).step_by(CHUNK) {
        let requests = asked(first..bindings.min(first + CHUNK), &claim, now, &mut reading);
        alone.on(|| {
            for request in &requests {
                let decision = scheduler.decide(&snapshot, request);
                assert_eq!(decision.trigger(), Trigger::Failover);
            }
        });
    }
    drop(snapshot);
    for first in (0..bindings).step_by(CHUNK) {
        let chunk = first..bindings.min(first + CHUNK);
        let requests = asked(chunk, &claim, now, &mut Spent::default());
        planning.on(|| {
            for request in &requests {
                let decision = scheduler.decide(&tables.snapshot(), request);
                let reached = (decision.trigger(), decision.outcome());
                assert_eq!(reached, (Trigger::Failover, Outcome::Placed));
                tables.upsert_binding(facts(&request.key, decision.clusters()));
            }
        });
    }
    println!("  on one thread, questions from objects: {}", reading.told(bindings));
    println!("    decisions on one snapshot: {}", alone.told(bindings));
    println!("    planned, each decision seeing those before: {}", planning.told(bindings));
}

fn tables() -> Tables {
    let mut tables = Tables::default();
    for at in 0..MEMBERS {
        let taints = if at == 0 {
            json!([{"key": "cluster.atoll.dev/unreachable", "effect": "NoExecute"}])
        } else {
            json!([])
        };
        let cluster: Cluster = serde_json::from_value(json!({
            "apiVersion": "cluster.atoll.dev/v1alpha1", "kind": "Cluster",
            "metadata": {"name": hub::name(at)}, "spec": {"taints": taints},
            "status": {"apiEnablements": [{"groupVersion": "apps/v1",
                "resources": [{"name": "deployments", "kind": "Deployment"}]}]},
        }))
        .unwrap();
        let session = if at == 0 { Session::Lost } else { Session::Connected };
        tables.upsert_cluster(&cluster, LiveCluster { session, capacity: None });
    }
    tables
}

/// The claim of all bindings, and the text of its placement in bindings.
fn claim() -> (Claim, String) {
    let placement: Shared<Placement> = serde_json::from_value(placement()).unwrap();
    let applied = serde_json::to_value(&placement).unwrap().to_string();
    (Claim { placement, ..Claim::default() }, applied)
}

fn shares(at: usize) -> Vec<TargetCluster> {
    let share = |at: usize| TargetCluster { name: hub::name(at), replicas: 1 };
    vec![share(0), share(1 + at % (MEMBERS - 1))]
}

fn facts(key: &BindingKey, shares: &[TargetCluster]) -> BindingFacts {
    BindingFacts {
        groups: std::sync::Arc::default(),
        standing: atoll_scheduler::Standing::default(),
        key: key.clone(),
        pod_labels: std::sync::Arc::new([("app".into(), key.name().into())].into_iter().collect()),
        requirements: None,
        components: std::sync::Arc::default(),
        shares: shares.to_vec(),
        reported: shares.iter().map(|share| (share.name.as_str().into(), share.replicas)).collect(),
    }
}

fn name(at: usize) -> String {
    format!("w{at:06}")
}

/// A binding as stored in the index.
type Bound = (BindingKey, ObjectMeta, ResourceBindingSpec);

fn binding(at: usize, (claim, applied): &(Claim, String)) -> Bound {
    let name = format!("{}-deployment", self::name(at));
    let metadata = ObjectMeta {
        namespace: Some("bench".to_owned()),
        name: Some(name.clone()),
        annotations: Some([(marks::APPLIED_PLACEMENT.to_owned(), applied.clone())].into()),
        ..ObjectMeta::default()
    };
    let decision = json!({
        "id": "0", "trigger": "First", "mode": "Steady", "outcome": "Placed", "desired": 2,
        "at": "2025-12-31T00:00:00Z",
    });
    let spec = ResourceBindingSpec {
        placement: Some(claim.placement.clone()),
        clusters: shares(at),
        replicas: Some(2),
        decision: Some(serde_json::from_value(decision).unwrap()),
        ..ResourceBindingSpec::default()
    };
    (BindingKey::new("bench", &name), metadata, spec)
}

/// The template as returned by the API server.
fn template(at: usize) -> Value {
    let mut object = hub::deployment(&name(at));
    object["apiVersion"] = "apps/v1".into();
    object["kind"] = "Deployment".into();
    object["metadata"]["namespace"] = "bench".into();
    object["metadata"]["uid"] = format!("uid-of-{}", name(at)).into();
    object
}

/// The requests of some bindings.
fn asked(
    bindings: Range<usize>,
    claim: &(Claim, String),
    now: Timestamp,
    spent: &mut Spent,
) -> Vec<Request> {
    let objects: Vec<_> = bindings.map(|at| (template(at), binding(at, claim))).collect();
    spent.on(|| {
        let ask = |(template, (_, metadata, spec)): &(Value, Bound)| {
            let existing = Existing::of(metadata, spec, None);
            let reports = BTreeMap::new();
            Request::from_objects(template, &claim.0, Some(existing), reports, now).unwrap()
        };
        objects.iter().map(ask).collect()
    })
}
