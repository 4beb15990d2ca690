//! The scheduler alone: all decisions of the failover, one after another, on one thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use atoll_api::Cluster;
use atoll_api::binding::{Mode, Outcome, TargetCluster, Trigger};
use atoll_scheduler::{
    BindingFacts, BindingKey, LiveCluster, Previous, Profiles, Request, Scheduler, Session, Tables,
    Template,
};
use jiff::Timestamp;
use serde_json::json;

use crate::{MEMBERS, hub, placement};

/// All decisions on one snapshot, and then each on one that has the decisions before it, as the controller makes them.
pub(crate) fn measure(bindings: usize) -> (Duration, Duration) {
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
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
    let requests: Vec<Request> = (0..bindings).map(|at| request(at, now)).collect();
    for request in &requests {
        tables.upsert_binding(facts(request, &request.previous.as_ref().unwrap().clusters));
    }
    let mut scheduler = Scheduler::new(Profiles::default());
    let snapshot = tables.snapshot();
    let start = Instant::now();
    for request in &requests {
        let decision = scheduler.decide(&snapshot, request);
        assert_eq!(decision.trigger(), Trigger::Failover);
    }
    let alone = start.elapsed();
    let start = Instant::now();
    for request in &requests {
        let decision = scheduler.decide(&tables.snapshot(), request);
        assert_eq!((decision.trigger(), decision.outcome()), (Trigger::Failover, Outcome::Placed));
        tables.upsert_binding(facts(request, decision.clusters()));
    }
    (alone, start.elapsed())
}

fn facts(request: &Request, shares: &[TargetCluster]) -> BindingFacts {
    BindingFacts {
        key: request.key.clone(),
        pod_labels: Arc::new(request.template.pod_labels.clone()),
        requirements: None,
        shares: shares.to_vec(),
        reported: Default::default(),
    }
}

fn request(at: usize, now: Timestamp) -> Request {
    let name = format!("w{at:06}");
    let share = |at: usize| TargetCluster { name: hub::name(at), replicas: 1 };
    let clusters = vec![share(0), share(1 + at % (MEMBERS - 1))];
    let record = serde_json::from_value(json!({
        "id": "0", "trigger": "First", "mode": Mode::Steady, "outcome": "Placed", "desired": 2,
        "at": "2025-12-31T00:00:00Z",
    }));
    Request {
        key: BindingKey::new("bench", format!("{name}-deployment")),
        template: Template {
            uid: format!("uid-of-{name}"),
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            namespace: Some("bench".into()),
            pod_labels: [("app".to_owned(), name.clone())].into(),
            name,
            replicas: Some(2),
            ..Template::default()
        },
        placement: serde_json::from_value(placement()).unwrap(),
        scheduler_name: "default".into(),
        previous: Some(Previous {
            clusters,
            decision: Some(record.unwrap()),
            ..Previous::default()
        }),
        now,
        ..Request::default()
    }
}
