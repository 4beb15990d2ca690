//! Time to render one Deployment without and with override policies, and the ratio, on one thread.
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use atoll_render::overrides::{ClusterProperties, Policies, Policy};
use atoll_render::{Overrides, Share, render, render_overridden};
use serde_json::{Value, json};

/// Time spent per figure.
const BUDGET: Duration = Duration::from_millis(500);
/// Figures per case; the smallest counts.
const RUNS: usize = 5;
/// Policies in a namespace.
const POLICIES: usize = 20;

/// A Deployment with three containers, probes, resources and environment.
fn template() -> Value {
    let container = |name: &str| {
        let env: Vec<Value> = (0..12)
            .map(|n| json!({"name": format!("VAR_{n}"), "value": format!("value {n}")}))
            .collect();
        let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10});
        json!({"name": name, "image": format!("registry.example.com:5000/team/{name}:1.4.2"), "args": ["--level=info"],
            "env": env, "livenessProbe": probe, "readinessProbe": probe,
            "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/app"}]})
    };
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "labels": {"app": "web", "team": "shop"}},
        "spec": {"replicas": 6, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
                "containers": [container("web"), container("proxy"), container("sidecar")],
                "volumes": [{"name": "config", "configMap": {"name": "web"}}]}}}})
}

/// Policies of all types, each with one rule that applies to the cluster and one that does not.
fn policies() -> Policies {
    let overriders = |n: usize| match n % 5 {
        0 => {
            json!({"imageOverrider": [{"component": "Registry", "operator": "replace", "value": "mirror.example"}]})
        }
        1 => {
            json!({"labelsOverrider": [{"operator": "add", "value": {"region": "north", "n": n.to_string()}}]})
        }
        2 => {
            json!({"argsOverrider": [{"containerName": "web", "operator": "add", "value": [format!("--flag-{n}")]}]})
        }
        3 => {
            json!({"plaintext": [{"path": "/spec/template/spec/hostNetwork", "operator": "add", "value": true}]})
        }
        _ => {
            json!({"annotationsOverrider": [{"operator": "add", "value": {"example.com/n": n.to_string()}}],
            "imageOverrider": [{"component": "Tag", "operator": "add", "value": "-x",
                "predicate": {"path": "/spec/template/spec/containers/1/image"}}]})
        }
    };
    let policy = |n: usize| {
        let selector = match n % 3 {
            0 => json!({"apiVersion": "apps/v1", "kind": "Deployment"}),
            1 => {
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "labelSelector": {"matchLabels": {"app": "web"}}})
            }
            _ => json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}),
        };
        let target = json!({"fieldSelector": {"matchExpressions":
            [{"key": "region", "operator": "In", "values": ["north"]}]}, "labelSelector": {"matchLabels": {"env": "prod"}}});
        let object = json!({"metadata": {"name": format!("p{n:02}"), "namespace": "shop"}, "spec": {
            "resourceSelectors": [selector], "overrideRules": [
                {"targetCluster": target, "overriders": overriders(n)},
                {"targetCluster": {"clusterNames": ["other"]}, "overriders": overriders(n)}]}});
        Policy::read(&object).expect("the benchmark's own policies are well formed")
    };
    (0..POLICIES).map(policy).collect()
}

/// Seconds per call; the smallest of several figures, because other processes only make it slower.
fn measure(mut work: impl FnMut()) -> f64 {
    let once = |work: &mut dyn FnMut()| {
        let (start, mut calls) = (Instant::now(), 0_u32);
        while start.elapsed() < BUDGET {
            work();
            calls += 1;
        }
        start.elapsed().as_secs_f64() / f64::from(calls)
    };
    (0..RUNS).map(|_| once(&mut work)).fold(f64::INFINITY, f64::min)
}

fn main() {
    let template = template();
    let share = Share {
        cluster: "member1".into(),
        replicas: Some(2),
        claim: "uid".into(),
        ..Share::default()
    };
    let cluster = ClusterProperties {
        name: "member1".into(),
        labels: [("env".to_owned(), "prod".to_owned())].into(),
        region: Some("north".into()),
        ..ClusterProperties::default()
    };
    let policies = policies();
    let overrides = Overrides { cluster: &cluster, policies: &policies, divided: true };
    let (_, applied) =
        render_overridden(&template, &share, &overrides).expect("the overrides apply");
    assert_eq!(applied.len(), POLICIES);
    let without = measure(|| {
        black_box(render(black_box(&template), &share).expect("the template renders"));
    });
    let with = measure(|| {
        let rendered = render_overridden(black_box(&template), &share, &overrides);
        black_box(rendered.expect("the overrides apply"));
    });
    let micros = |seconds: f64| seconds * 1e6;
    if std::env::args().any(|argument| argument == "--json") {
        println!(
            "{}",
            json!({"policies": POLICIES, "without_us": micros(without), "with_us": micros(with),
            "ratio": with / without})
        );
    } else {
        println!("without overrides     {:8.1} µs", micros(without));
        println!("{POLICIES} override policies  {:8.1} µs", micros(with));
        println!("ratio                 {:8.2}", with / without);
    }
}
