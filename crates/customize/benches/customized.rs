//! Objects per second on one thread that rules of users answer, next to the same question to the built-in rules.
//!
//! The object is a Deployment with two containers. Each run of a script has a Lua state of its own, so most of the time
//! of a small script is making that state and the object's tables.
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use atoll_api::customization::ResourceInterpreterCustomizationSpec;
use atoll_customize::{Customizations, Request};
use atoll_interpreter as built_in;
use serde_json::{Value, json};

/// Time spent per figure.
const TIME: Duration = Duration::from_millis(1000);
/// Objects per second that are wanted.
const AIM: f64 = 1000.0;

fn object() -> Value {
    let container = |name: &str| {
        json!({
            "name": name, "image": format!("registry.example.com/shop/{name}:1.25.3"),
            "ports": [{"containerPort": 8080, "name": "http"}],
            "env": [{"name": "MODE", "value": "prod"}, {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "token", "key": "t"}}}],
            "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/app"}],
        })
    };
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "generation": 4, "labels": {"app": "web"}, "annotations": {"team": "a"}},
        "spec": {
            "replicas": 4, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
                "serviceAccountName": "web", "imagePullSecrets": [{"name": "pull"}],
                "containers": [container("web"), container("sidecar")],
                "volumes": [{"name": "config", "configMap": {"name": "web"}}],
            }},
        },
        "status": {
            "observedGeneration": 4, "replicas": 4, "updatedReplicas": 4, "readyReplicas": 4, "availableReplicas": 4,
            "conditions": [{"type": "Available", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    })
}

fn rules() -> [(&'static str, Value); 2] {
    let lua = json!({
        "replicaResource": {"luaScript": "local kube = require('kube')
            function GetReplicas(obj) return obj.spec.replicas, kube.accuratePodRequirements(obj.spec.template) end"},
        "healthInterpretation": {"luaScript": "function InterpretHealth(obj)
            local s = obj.status
            return s.observedGeneration == obj.metadata.generation and (s.updatedReplicas or 0) >= obj.spec.replicas
                and (s.availableReplicas or 0) >= (s.updatedReplicas or 0) end"},
        "dependencyInterpretation": {"luaScript": "local kube = require('kube')
            function GetDependencies(obj) return kube.getPodDependencies(obj.spec.template, obj.metadata.namespace) end"},
    });
    let cel = json!({
        "replicaResource": {"cel": "{'replicas': object.spec.replicas, 'podTemplate': object.spec.template}"},
        "healthInterpretation": {"cel": "object.status.observedGeneration == object.metadata.generation && \
            object.status.updatedReplicas >= object.spec.replicas && \
            object.status.availableReplicas >= object.status.updatedReplicas"},
        "dependencyInterpretation": {"cel": "[{'podTemplate': object.spec.template}]"},
    });
    [("Lua", lua), ("CEL", cel)]
}

/// Seconds of one call, on average.
fn seconds(mut call: impl FnMut()) -> f64 {
    let (start, mut calls) = (Instant::now(), 0_u32);
    while start.elapsed() < TIME {
        call();
        calls += 1;
    }
    start.elapsed().as_secs_f64() / f64::from(calls)
}

/// One call of the built-in rules.
type BuiltIn = fn(&Value);

fn main() {
    let object = Arc::new(object());
    let questions: [(&str, Request, BuiltIn); 3] = [
        ("replicas", Request::Replicas(Arc::clone(&object)), |object| {
            black_box((built_in::replicas(object), built_in::requirements(object)));
        }),
        ("health", Request::Health(Arc::clone(&object)), |object| {
            black_box(built_in::health(object));
        }),
        ("dependencies", Request::Dependencies(Arc::clone(&object)), |object| {
            black_box(built_in::dependencies(object));
        }),
    ];
    println!("operation     language  objects/s  of the aim  times the built-in rule");
    for (language, rules) in rules() {
        let spec: ResourceInterpreterCustomizationSpec = serde_json::from_value(json!({
            "target": {"apiVersion": "apps/v1", "kind": "Deployment"}, "customizations": rules,
        }))
        .expect("the bench's own customization is well formed");
        let set = Customizations::new([("bench", &spec)]);
        for (name, request, built_in) in &questions {
            if let Some(Err(failure)) = set.answer(request) {
                panic!("{failure}");
            }
            let custom = seconds(|| drop(black_box(set.answer(request))));
            let native = seconds(|| built_in(&object));
            let (rate, ratio) = (1.0 / custom, custom / native);
            println!("{name:<12}  {language:<8}  {rate:>9.0}  {:>9.1}x  {ratio:>9.0}x", rate / AIM);
        }
    }
}
