//! What the server allocates for Services: cluster IPs and node ports
//! (kubernetes `registry/core/service/storage/alloc.go`).

use std::collections::BTreeSet;

use atoll_apimachinery::{ApiError, FieldError, meta};
use serde_json::Value;

use crate::{ids::Ids, kinds::Kind, store::Step};

/// 10.96.0.0/16 without network, the API server's own 10.96.0.1, DNS's 10.96.0.10 and broadcast.
const IP_PREFIX: [u8; 2] = [10, 96];
const FIRST_HOST: u32 = 11;
const LAST_HOST: u32 = 65_534;
const NODE_PORTS: std::ops::RangeInclusive<u64> = 30_000..=32_767;

fn text<'a>(service: &'a Value, path: &str) -> &'a str {
    meta::at(service, path).and_then(Value::as_str).unwrap_or("")
}

fn ports(service: &Value) -> impl Iterator<Item = &Value> {
    meta::at(service, "spec.ports").and_then(Value::as_array).into_iter().flatten()
}

/// Node ports that are set.
fn node_ports(service: &Value) -> impl Iterator<Item = u64> {
    ports(service).filter_map(|p| p.get("nodePort")?.as_u64()).filter(|p| *p != 0)
}

/// Allocates a Service's addresses and ports and checks requested ones. Other kinds pass.
pub(super) fn allocate(
    step: &Step<'_>,
    kind: &Kind,
    service: &mut Value,
    old: Option<&Value>,
    ids: &Ids,
) -> Result<(), ApiError> {
    if !kind.is("", "Service") {
        return Ok(());
    }
    let refuse = |error: FieldError, service: &Value| {
        Err(ApiError::invalid("", "Service", meta::name(service), &[error]))
    };
    let service_type = text(service, "spec.type").to_owned();
    let spec = meta::child(service, "spec");
    if service_type == "ExternalName" {
        for field in ["clusterIP", "clusterIPs"] {
            spec.remove(field);
        }
        return Ok(());
    }
    // An update that does not mention the IP keeps it.
    let old_ip = old.map(|o| text(o, "spec.clusterIP").to_owned()).unwrap_or_default();
    let asked = spec.get("clusterIP").and_then(Value::as_str).unwrap_or("").to_owned();
    let ip = if asked.is_empty() { old_ip.clone() } else { asked };
    let others = || {
        let key = (meta::namespace(service).to_owned(), meta::name(service).to_owned());
        step.list(&kind.table, None)
            .map(|record| record.value())
            .filter(move |r| (meta::namespace(r), meta::name(r)) != (&key.0, &key.1))
    };
    let ip = if ip.is_empty() {
        let used: BTreeSet<String> =
            others().map(|r| text(&r, "spec.clusterIP").to_owned()).collect();
        match free_ip(&used, ids) {
            Some(ip) => ip,
            None => {
                return Err(ApiError::internal("failed to allocate a serviceIP: range is full"));
            }
        }
    } else {
        let changed = !old_ip.is_empty() && old_ip != ip;
        let became = old.is_some_and(|o| text(o, "spec.type") == "ExternalName");
        if changed && !became {
            return refuse(
                FieldError::invalid("spec.clusterIPs[0]", &ip.into(), "may not change once set"),
                service,
            );
        }
        if ip != "None" && old_ip != ip && others().any(|r| text(&r, "spec.clusterIP") == ip) {
            return refuse(
                FieldError::invalid(
                    "spec.clusterIPs",
                    &serde_json::json!([ip]),
                    format_args!("failed to allocate IP {ip}: provided IP is already allocated"),
                ),
                service,
            );
        }
        ip
    };
    let wants_ports = matches!(service_type.as_str(), "NodePort" | "LoadBalancer");
    let taken: BTreeSet<u64> = others().flat_map(|r| node_ports(&r).collect::<Vec<_>>()).collect();
    if let Some(port) = node_ports(service).find(|p| taken.contains(p) || !NODE_PORTS.contains(p)) {
        let why = if taken.contains(&port) {
            "provided port is already allocated"
        } else {
            "provided port is not in the valid range. The range of valid ports is 30000-32767"
        };
        return refuse(FieldError::invalid("spec.ports[0].nodePort", &port.into(), why), service);
    }
    let spec = meta::child(service, "spec");
    spec.insert("clusterIP".to_owned(), ip.as_str().into());
    spec.insert("clusterIPs".to_owned(), serde_json::json!([ip]));
    assign_node_ports(service, old, wants_ports, taken);
    Ok(())
}

/// Gives each port a node port if the type needs them: the previous one of the port, or the lowest free one.
fn assign_node_ports(
    service: &mut Value,
    old: Option<&Value>,
    wanted: bool,
    mut taken: BTreeSet<u64>,
) {
    taken.extend(node_ports(service));
    let before: Vec<(Value, u64)> = old
        .into_iter()
        .flat_map(ports)
        .filter_map(|p| Some((p.get("port")?.clone(), p.get("nodePort")?.as_u64()?)))
        .collect();
    let Some(list) = service.pointer_mut("/spec/ports").and_then(Value::as_array_mut) else {
        return;
    };
    for port in list {
        let Some(fields) = port.as_object_mut() else { continue };
        if !wanted {
            continue;
        }
        if fields.get("nodePort").and_then(Value::as_u64).unwrap_or(0) != 0 {
            continue;
        }
        let same = before.iter().find(|(p, _)| fields.get("port") == Some(p)).map(|(_, n)| *n);
        let free = same
            .filter(|p| !taken.contains(p))
            .or_else(|| NODE_PORTS.into_iter().find(|p| !taken.contains(p)));
        if let Some(free) = free {
            taken.insert(free);
            fields.insert("nodePort".to_owned(), free.into());
        }
    }
}

/// A free address: the search starts at a generated position, so that addresses are not reused at once.
fn free_ip(used: &BTreeSet<String>, ids: &Ids) -> Option<String> {
    let hosts = LAST_HOST - FIRST_HOST + 1;
    let start = ids.below(hosts);
    (0..hosts).map(|n| FIRST_HOST + (start + n) % hosts).find_map(|host| {
        let [a, b] = IP_PREFIX;
        let ip = format!("{a}.{b}.{}.{}", host >> 8, host & 0xff);
        (!used.contains(&ip)).then_some(ip)
    })
}
