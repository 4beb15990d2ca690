//! Services: their endpoints and load balancer addresses.

pub(crate) mod service_account;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::engine::brain::View;
use crate::index::fields::{list, strings, text};
use crate::index::kind::Kind;
use crate::index::object::{Key, Object};
use crate::workloads::children::owner_reference;
use crate::workloads::names::fingerprint;
use crate::writes::{Plan, Write};

/// Label of an EndpointSlice: the Service that it belongs to.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label of an EndpointSlice: its manager.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Value of that label.
const MANAGER: &str = "endpointslice-controller.k8s.io";
/// Maximum endpoints of one slice (`--max-endpoints-per-slice`).
const MAX_ENDPOINTS: usize = 100;
/// Start of the load balancers' addresses: 198.18.0.0/15, reserved for test networks (RFC 2544).
const BALANCERS: u32 = 0xc612_0000;

/// Whether a Service's selector picks a Pod.
pub(crate) fn selects(service: &Object, pod: &Object) -> bool {
    let selector = strings(&service.data, "/spec/selector");
    !selector.is_empty()
        && service.key.namespace == pod.key.namespace
        && selector.iter().all(|(key, value)| pod.label(key) == Some(value))
}

/// Reconciles a Service.
pub(crate) fn reconcile(view: &View<'_>, service: &Object) -> Plan {
    let mut plan = Plan::default();
    if service.is_deleting() {
        return plan;
    }
    plan.push(balancer(view, service));
    plan.push(slices(view, service));
    plan
}

/// A Service of type LoadBalancer gets the lowest free address; other types have none.
fn balancer(view: &View<'_>, service: &Object) -> Option<Write> {
    let address = |service: &Object| -> Option<Ipv4Addr> {
        text(&service.data, "/status/loadBalancer/ingress/0/ip")?.parse().ok()
    };
    let mut status = service.status();
    if service.text("/spec/type") != Some("LoadBalancer") {
        if address(service).is_some() {
            status["loadBalancer"] = json!({});
        }
    } else if address(service).is_none() {
        let taken: BTreeSet<Ipv4Addr> =
            view.index.all(Kind::Service).filter_map(|service| address(service)).collect();
        let free = (1..u32::from(u16::MAX)).map(|number| Ipv4Addr::from(BALANCERS + number));
        let free = free.into_iter().find(|address| !taken.contains(address))?;
        status["loadBalancer"] = json!({"ingress": [{"ip": free.to_string(), "ipMode": "VIP"}]});
    }
    Write::status(service, status)
}

/// The EndpointSlices of a Service with a selector: its Pods with an address, by name.
fn slices(view: &View<'_>, service: &Object) -> Vec<Write> {
    let namespace = service.key.namespace.as_str();
    let existing: Vec<_> = view
        .index
        .in_namespace(Kind::EndpointSlice, namespace)
        .filter(|slice| slice.label(SERVICE_NAME) == Some(&service.key.name))
        .filter(|slice| slice.label(MANAGED_BY) == Some(MANAGER))
        .collect();
    if strings(&service.data, "/spec/selector").is_empty() {
        return existing.into_iter().map(|slice| Write::delete(slice)).collect();
    }
    let pods: Vec<_> = view
        .index
        .in_namespace(Kind::Pod, namespace)
        .filter(|pod| selects(service, pod) && pod.pod().ip.is_some() && !pod.pod().is_finished())
        .collect();
    let publishes_all = service.flag("/spec/publishNotReadyAddresses");
    let mut writes = Vec::new();
    let mut kept = BTreeSet::new();
    // A Service without Pods keeps one empty slice, as upstream does.
    let chunks: Vec<_> =
        if pods.is_empty() { vec![&[][..]] } else { pods.chunks(MAX_ENDPOINTS).collect() };
    for (number, chunk) in chunks.into_iter().enumerate() {
        let suffix = fingerprint(&format!("{}/{number}", service.uid));
        let key = Key::new(namespace, format!("{}-{suffix}", service.key.name));
        let endpoints: Vec<_> =
            chunk.iter().map(|pod| endpoint(view, pod, publishes_all)).collect();
        let ports = ports(service, chunk.first().copied());
        kept.insert(key.clone());
        match view.index.get(Kind::EndpointSlice, &key) {
            Some(slice) => {
                writes
                    .extend(Write::fields(slice, json!({"endpoints": endpoints, "ports": ports})));
            }
            None => {
                let metadata = json!({
                    "labels": {SERVICE_NAME: service.key.name, MANAGED_BY: MANAGER},
                    "ownerReferences": [owner_reference(service)],
                });
                let rest = json!({"addressType": "IPv4", "endpoints": endpoints, "ports": ports});
                writes.push(Write::create(Kind::EndpointSlice, key, metadata, rest));
            }
        }
    }
    writes.extend(
        existing
            .into_iter()
            .filter(|slice| !kept.contains(&slice.key))
            .map(|slice| Write::delete(slice)),
    );
    writes
}

fn endpoint(view: &View<'_>, pod: &Arc<Object>, publishes_all: bool) -> Value {
    let serving = pod.pod().ready_since.is_some();
    let ready = publishes_all || (serving && !pod.is_deleting());
    let mut endpoint = json!({
        "addresses": [pod.pod().ip],
        "conditions": {"ready": ready, "serving": serving || publishes_all, "terminating": pod.is_deleting()},
        "targetRef": {
            "kind": "Pod", "name": pod.key.name, "namespace": pod.key.namespace, "uid": pod.uid,
        },
    });
    if let Some(node) = &pod.pod().node {
        endpoint["nodeName"] = json!(node);
        let zone = view
            .index
            .get(Kind::Node, &Key::cluster(node))
            .and_then(|node| node.label("topology.kubernetes.io/zone"));
        if let Some(zone) = zone {
            endpoint["zone"] = json!(zone);
        }
    }
    endpoint
}

/// The Service's ports on its Pods; a named target port is resolved with the first Pod.
fn ports(service: &Object, pod: Option<&Arc<Object>>) -> Vec<Value> {
    service
        .list("/spec/ports")
        .iter()
        .map(|port| {
            let target = port.get("targetPort").or_else(|| port.get("port"));
            let number = match target {
                Some(Value::String(name)) => pod.and_then(|pod| container_port(pod, name)),
                other => other.cloned(),
            };
            json!({
                "name": text(port, "/name").unwrap_or_default(),
                "port": number,
                "protocol": text(port, "/protocol").unwrap_or("TCP"),
            })
        })
        .collect()
}

fn container_port(pod: &Object, name: &str) -> Option<Value> {
    pod.list("/spec/containers")
        .iter()
        .flat_map(|container| list(container, "/ports"))
        .find(|port| text(port, "/name") == Some(name))
        .and_then(|port| port.get("containerPort").cloned())
}
