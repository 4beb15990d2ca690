//! The planning of a failover on one thread: from the objects as the controller holds them to decisions with all their
//! reasons, one after another. Nothing is written or sent.

use std::collections::BTreeMap;
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

/// Decides all on one snapshot, and then each on one that has the decisions before it, as the controller makes them; and
/// prints how long that took.
pub(crate) fn measure(bindings: usize) {
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let mut tables = tables();
    let claim = claim();
    for at in 0..bindings {
        tables.upsert_binding(facts(&binding(at, &claim).0, &shares(at)));
    }
    let mut scheduler = Scheduler::new(Profiles::default());
    let snapshot = tables.snapshot();
    let mut alone = Duration::ZERO;
    for at in 0..bindings {
        let (_, request) = asked(at, &claim, now);
        let start = Instant::now();
        let decision = scheduler.decide(&snapshot, &request);
        alone += start.elapsed();
        assert_eq!(decision.trigger(), Trigger::Failover);
    }
    drop(snapshot);
    println!("  one after another on one snapshot, one thread: {}", told(alone, bindings));
    let (mut reading, mut deciding, mut booking) = Default::default();
    for at in 0..bindings {
        let (read, request) = asked(at, &claim, now);
        reading += read;
        let start = Instant::now();
        let decision = scheduler.decide(&tables.snapshot(), &request);
        deciding += start.elapsed();
        assert_eq!((decision.trigger(), decision.outcome()), (Trigger::Failover, Outcome::Placed));
        let facts = facts(&request.key, decision.clusters());
        let start = Instant::now();
        tables.upsert_binding(facts);
        booking += start.elapsed();
    }
    let all: Duration = reading + deciding + booking;
    println!("  planned, each seeing the one before, one thread: {}", told(all, bindings));
    println!(
        "    of that reading objects {}, deciding {}, booking {}",
        told(reading, bindings),
        told(deciding, bindings),
        told(booking, bindings)
    );
}

fn told(time: Duration, bindings: usize) -> String {
    format!("{time:.2?} ({:.1} us each)", time.as_secs_f64() * 1e6 / bindings as f64)
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

/// What claims all of them, and the text of its placement as bindings carry it.
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
        key: key.clone(),
        pod_labels: BTreeMap::from([("app".to_owned(), key.name.clone())]).into(),
        requirements: None,
        shares: shares.to_vec(),
        reported: shares.iter().map(|share| (share.name.clone(), share.replicas)).collect(),
    }
}

fn name(at: usize) -> String {
    format!("w{at:06}")
}

/// The binding, as the index holds it.
fn binding(
    at: usize,
    (claim, applied): &(Claim, String),
) -> (BindingKey, ObjectMeta, ResourceBindingSpec) {
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
    (BindingKey::new("bench", name), metadata, spec)
}

/// The template, as the API server gives it.
fn template(at: usize) -> Value {
    let mut object = hub::deployment(&name(at));
    object["apiVersion"] = "apps/v1".into();
    object["kind"] = "Deployment".into();
    object["metadata"]["namespace"] = "bench".into();
    object["metadata"]["uid"] = format!("uid-of-{}", name(at)).into();
    object
}

/// The question of one binding, and how long it took to put it together.
fn asked(at: usize, claim: &(Claim, String), now: Timestamp) -> (Duration, Request) {
    let template = template(at);
    let (_, metadata, spec) = binding(at, claim);
    let existing = Existing { metadata: &metadata, spec: &spec, status: None };
    let start = Instant::now();
    let request =
        Request::from_objects(&template, &claim.0, Some(existing), BTreeMap::new(), now).unwrap();
    (start.elapsed(), request)
}
