//! The differences from Karmada, each by its name. `tests/vectors/differences.toml` has the recorded cases.

#![allow(clippy::unwrap_used)]

use atoll_interpreter::{Operation, interpret};
use serde_json::{Value, json};

fn answer(operation: Operation, input: Value) -> Value {
    interpret(operation, &input).unwrap()
}

fn object(api_version: &str, kind: &str, rest: Value) -> Value {
    let mut object = json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": "web", "namespace": "shop", "generation": 4},
    });
    for (name, value) in rest.as_object().unwrap() {
        object[name] = value.clone();
    }
    object
}

fn aggregated(template: Value, items: Value) -> Value {
    answer(Operation::Aggregate, json!({"template": template, "items": items}))["status"].clone()
}

#[test]
fn a_stateful_set_becomes_current_when_its_members_have_observed_the_template() {
    let mut member = object("apps/v1", "StatefulSet", json!({"status": {"observedGeneration": 4}}));
    member["metadata"]["annotations"] = json!({"resourcetemplate.atoll.dev/generation": "7"});
    let reflected = answer(Operation::Reflect, json!({ "object": member }))["status"].clone();
    let expected =
        json!({"observedGeneration": 4, "generation": 4, "resourceTemplateGeneration": 7});
    assert_eq!(reflected, expected);
    let mut template = object("apps/v1", "StatefulSet", json!({}));
    for (generation, observed) in [(7, json!(7)), (8, Value::Null)] {
        template["metadata"]["generation"] = json!(generation);
        let items = json!([{"clusterName": "m1", "status": reflected}]);
        assert_eq!(aggregated(template.clone(), items)["observedGeneration"], observed);
    }
}

#[test]
fn an_adopted_object_has_a_status_and_a_broken_annotation_is_an_error() {
    let mut member = object("apps/v1", "Deployment", json!({"status": {"readyReplicas": 1}}));
    let found = answer(Operation::Reflect, json!({ "object": member }));
    assert_eq!(found["status"], json!({"readyReplicas": 1, "generation": 4}));
    member["metadata"]["annotations"] = json!({"resourcetemplate.atoll.dev/generation": "x"});
    let error = interpret(Operation::Reflect, &json!({ "object": member })).unwrap_err();
    assert!(error.to_string().contains("resourcetemplate.atoll.dev/generation"), "{error}");
}

#[test]
fn a_tls_entry_without_a_secret_is_no_error() {
    let spec = json!({"tls": [{"hosts": ["a"]}, {"secretName": "cert"}]});
    let ingress = object("networking.k8s.io/v1", "Ingress", json!({ "spec": spec }));
    let found = answer(Operation::Dependencies, json!({ "object": ingress }));
    assert_eq!(found["dependencies"].as_array().unwrap().len(), 1);
}

#[test]
fn all_token_secrets_of_an_account_are_pruned() {
    let names = ["web-token-a", "web-token-b", "mine", "web-token-c"].map(|n| json!({ "name": n }));
    let account = object("v1", "ServiceAccount", json!({ "secrets": names }));
    let found = answer(Operation::Prune, json!({ "object": account }));
    assert_eq!(found["object"]["secrets"], json!([{"name": "mine"}]));
}

#[test]
fn a_headless_service_stays_headless_and_node_ports_are_retained() {
    let service = |spec: Value| object("v1", "Service", json!({ "spec": spec }));
    let retained = |desired: Value, observed: Value| {
        let input = json!({"desired": service(desired), "observed": service(observed)});
        answer(Operation::Retain, input)["object"]["spec"].clone()
    };
    let observed = json!({
        "type": "NodePort", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
        "ports": [{"port": 80, "nodePort": 30001}, {"port": 53, "protocol": "UDP", "nodePort": 30002}],
    });
    let headless = json!({"type": "NodePort", "clusterIP": "None", "ports": []});
    assert_eq!(retained(headless.clone(), observed.clone()), headless);
    let ports = json!([{"port": 53, "protocol": "UDP"}, {"port": 80, "nodePort": 31000}]);
    let spec = retained(json!({"type": "LoadBalancer", "ports": ports}), observed.clone());
    assert_eq!(spec["clusterIPs"], json!(["10.0.0.1"]));
    let expected = json!([
        {"port": 53, "protocol": "UDP", "nodePort": 30002}, {"port": 80, "nodePort": 31000},
    ]);
    assert_eq!(spec["ports"], expected, "a port that the user chose stays");
    for kind in ["ClusterIP", "ExternalName"] {
        let spec = retained(json!({"type": kind, "ports": [{"port": 80}]}), observed.clone());
        assert_eq!(spec["ports"], json!([{"port": 80}]), "{kind} has no node ports");
        assert_eq!(spec.get("clusterIP").is_some(), kind == "ClusterIP");
    }
}

#[test]
fn zero_members_mean_neither_observed_nor_bound() {
    let deployment = object("apps/v1", "Deployment", json!({"status": {"observedGeneration": 3}}));
    for none in [Value::Null, json!([])] {
        assert_eq!(aggregated(deployment.clone(), none)["observedGeneration"], 3);
    }
    let claim = object("v1", "PersistentVolumeClaim", json!({}));
    for items in [Value::Null, json!([]), json!([{"clusterName": "m1"}])] {
        assert_ne!(aggregated(claim.clone(), items)["phase"], "Bound");
    }
}

#[test]
fn a_member_that_is_listed_twice_counts_once() {
    let item = |name: &str| json!({"clusterName": name, "status": {"replicas": 2}});
    let template = object("apps/v1", "Deployment", json!({}));
    let status = aggregated(template, json!([item("m1"), item("m2"), item("m1")]));
    assert_eq!(status["replicas"], 4);
}

#[test]
fn conditions_of_budgets_and_autoscalers_survive() {
    let conditions = json!([{
        "type": "T", "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    for (api_version, kind, count) in [
        ("policy/v1", "PodDisruptionBudget", "currentHealthy"),
        ("autoscaling/v2", "HorizontalPodAutoscaler", "currentReplicas"),
    ] {
        let mut old = json!({"conditions": conditions, "observedGeneration": 3});
        old[count] = json!(9);
        let template = object(api_version, kind, json!({ "status": old }));
        let mut member = json!({});
        member[count] = json!(2);
        let status = aggregated(template, json!([{"clusterName": "m1", "status": member}]));
        assert_eq!(status["conditions"], conditions, "{kind}");
        assert_eq!(status[count], 2, "{kind}");
    }
}
