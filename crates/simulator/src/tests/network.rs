//! Services and ServiceAccounts.

use serde_json::{Value, json};

use super::sandbox::{Sandbox, workload};
use crate::index::kind::Kind;

fn endpoints(sandbox: &Sandbox) -> Vec<(String, bool)> {
    let all = sandbox.all(Kind::EndpointSlice);
    all.iter()
        .flat_map(|slice| slice.list("/endpoints").to_vec())
        .map(|endpoint| {
            let address = endpoint["addresses"][0].as_str().unwrap().to_owned();
            (address, endpoint["conditions"]["ready"] == json!(true))
        })
        .collect()
}

fn service(name: &str, type_: &str) -> Value {
    json!({
        "kind": "Service", "metadata": {"name": name},
        "spec": {
            "type": type_, "selector": {"app": "web"},
            "ports": [{"port": 80, "targetPort": "http", "protocol": "TCP"}],
        },
    })
}

#[test]
fn endpoints_follow_the_pods() {
    let mut sandbox = Sandbox::with_nodes(2);
    sandbox.create(service("web", "ClusterIP"));
    sandbox.settle();
    assert_eq!(sandbox.all(Kind::EndpointSlice).len(), 1, "an empty slice");
    let mut web = workload("Deployment", "web", 2);
    web["spec"]["template"]["spec"]["containers"][0]["ports"] =
        json!([{"name": "http", "containerPort": 8080}]);
    sandbox.create(web);
    sandbox.settle();
    assert_eq!(endpoints(&sandbox).iter().filter(|(_, ready)| *ready).count(), 0);
    sandbox.advance(5);
    let all = endpoints(&sandbox);
    assert_eq!(all.len(), 2);
    assert!(all.iter().all(|(_, ready)| *ready));
    let slice = &sandbox.all(Kind::EndpointSlice)[0];
    assert_eq!(slice.int("/ports/0/port"), Some(8080));
    assert_eq!(slice.label("kubernetes.io/service-name"), Some("web"));
    let victim = sandbox.pods()[0].key.name.clone();
    sandbox.delete(Kind::Pod, &victim);
    sandbox.settle();
    assert_eq!(endpoints(&sandbox).iter().filter(|(_, ready)| *ready).count(), 1);
    sandbox.advance(5);
    assert_eq!(endpoints(&sandbox).len(), 2);
    assert_eq!(sandbox.writes_after_restart(), Vec::<String>::new());
    sandbox.delete(Kind::Service, "web");
    sandbox.settle();
    assert!(sandbox.all(Kind::EndpointSlice).is_empty());
}

#[test]
fn a_load_balancer_gets_an_address_of_its_own_and_gives_it_back() {
    let mut sandbox = Sandbox::with_nodes(1);
    for name in ["a", "b"] {
        sandbox.create(service(name, "LoadBalancer"));
    }
    sandbox.settle();
    let address =
        |s: &Sandbox, name: &str| s.field(Kind::Service, name, "/status/loadBalancer/ingress/0/ip");
    assert_eq!(
        (address(&sandbox, "a"), address(&sandbox, "b")),
        (json!("198.18.0.1"), json!("198.18.0.2"))
    );
    sandbox.patch(Kind::Service, "a", json!({"spec": {"type": "ClusterIP"}}));
    sandbox.settle();
    assert_eq!(address(&sandbox, "a"), Value::Null);
}

#[test]
fn every_namespace_has_its_default_service_account() {
    let mut sandbox = Sandbox::with_nodes(0);
    assert_eq!(sandbox.all(Kind::ServiceAccount).len(), 1);
    sandbox.delete(Kind::ServiceAccount, "default");
    sandbox.settle();
    assert_eq!(sandbox.all(Kind::ServiceAccount).len(), 1, "made again");
}
