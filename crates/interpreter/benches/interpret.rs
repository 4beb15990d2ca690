//! Interpreted objects per second on one thread, next to a plain clone of the same object.
//!
//! The clone is the floor: every operation reads the whole object once, and `retain` and `prune` return a copy of it.
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use atoll_interpreter::{
    aggregate, components, dependencies, health, observed, prune, replicas, requirements, retain,
};
use serde_json::{Value, json};

/// Time spent per figure.
const BUDGET_MS: u128 = 300;
/// Calls between two looks at the clock.
const BATCH: u32 = 100;

fn pod(containers: usize) -> Value {
    let container = |at: usize| {
        json!({
            "name": format!("c{at}"), "image": "registry.example.com/team/app:1.2.3",
            "env": [
                {"name": "A", "value": "1"},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "key", "key": "k"}}},
            ],
            "envFrom": [{"configMapRef": {"name": "settings"}}],
            "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        })
    };
    json!({
        "metadata": {"labels": {"app": "web", "tier": "front"}},
        "spec": {
            "serviceAccountName": "web",
            "imagePullSecrets": [{"name": "pull"}],
            "containers": (0..containers).map(container).collect::<Vec<_>>(),
            "volumes": [{"name": "data", "configMap": {"name": "conf"}}],
        },
    })
}

fn status() -> Value {
    json!({
        "observedGeneration": 4, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3,
        "availableReplicas": 3, "state": {"phase": "Running"}, "conditions": [
            {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable",
             "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable",
             "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ],
    })
}

fn object(api_version: &str, kind: &str, spec: Value) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": "web", "namespace": "shop", "generation": 4, "uid": "u",
            "labels": {"app": "web"}, "annotations": {"team": "shop"}},
        "spec": spec, "status": status(),
    })
}

/// Calls per second.
fn rate(mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut calls = 0_u32;
    while start.elapsed().as_millis() < BUDGET_MS {
        for _ in 0..BATCH {
            call();
        }
        calls = calls.saturating_add(BATCH);
    }
    f64::from(calls) / start.elapsed().as_secs_f64()
}

fn main() {
    let task = |replicas: u32| json!({"replicas": replicas, "name": "t", "template": pod(2)});
    let objects = [
        ("Deployment", object("apps/v1", "Deployment", json!({"replicas": 3, "template": pod(3)}))),
        (
            "CloneSet",
            object(
                "apps.kruise.io/v1alpha1",
                "CloneSet",
                json!({"replicas": 3, "template": pod(3)}),
            ),
        ),
        (
            "Volcano Job",
            object("batch.volcano.sh/v1alpha1", "Job", json!({"tasks": [task(1), task(4)]})),
        ),
    ];
    println!("{:<12} {:<22} {:>12} {:>14}", "OBJECT", "OPERATION", "PER SECOND", "OF A CLONE");
    for (name, object) in &objects {
        let clones = rate(|| drop(black_box(black_box(object).clone())));
        println!("{name:<12} {:<22} {clones:>12.0} {:>14.2}", "clone", 1.0);
        let show = |operation: &str, rate: f64| {
            println!("{name:<12} {operation:<22} {rate:>12.0} {:>14.2}", rate / clones);
        };
        let status = status();
        let members: Vec<(String, &Value)> = (0..5).map(|n| (format!("m{n}"), &status)).collect();
        show(
            "replicas, requirements",
            rate(|| {
                black_box((replicas(object), requirements(object)));
            }),
        );
        show("components", rate(|| drop(black_box(components(object)))));
        show("dependencies", rate(|| drop(black_box(dependencies(object)))));
        show("health", rate(|| drop(black_box(health(object)))));
        show("observed", rate(|| drop(black_box(observed(object)))));
        show("aggregate 5 members", rate(|| drop(black_box(aggregate(object, &members)))));
        show("prune", rate(|| drop(black_box(prune(object, false)))));
        if *name == "Deployment" {
            show("retain", rate(|| drop(black_box(retain(object, object)))));
        }
    }
}
