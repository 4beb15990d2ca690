//! Cells of kinds that are not workloads.

use atoll_apimachinery::meta;
use jiff::Timestamp;
use serde_json::Value;

use super::age::{self, NONE};

pub(super) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    meta::at(object, path).and_then(Value::as_str).unwrap_or("")
}

pub(super) fn number(object: &Value, path: &str) -> i64 {
    meta::at(object, path).and_then(Value::as_i64).unwrap_or(0)
}

pub(super) fn list<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    meta::at(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn size(object: &Value, path: &str) -> usize {
    meta::at(object, path).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

/// The text, or `<none>`.
pub(super) fn or_none(text: &str) -> Value {
    if text.is_empty() { NONE.into() } else { text.into() }
}

fn name(object: &Value) -> Value {
    meta::name(object).into()
}

/// `a=b,c=d`, `<none>` when empty.
pub(super) fn pairs(labels: Option<&Value>) -> Value {
    let pairs: Vec<String> = labels
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or("")))
        .collect();
    or_none(&pairs.join(","))
}

/// A `metav1.LabelSelector` as kubectl prints it.
pub(super) fn selector(selector: Option<&Value>) -> Value {
    let Some(selector) = selector else { return NONE.into() };
    let mut parts: Vec<String> = Vec::new();
    if let Value::String(labels) = pairs(selector.get("matchLabels"))
        && labels != NONE
    {
        parts.push(labels);
    }
    for e in list(selector, "matchExpressions") {
        let values: Vec<&str> = list(e, "values").iter().filter_map(Value::as_str).collect();
        let (key, values) = (text(e, "key"), values.join(","));
        parts.push(match text(e, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    or_none(&parts.join(","))
}

/// NAME STATUS AGE
pub(super) fn namespace(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), text(object, "status.phase").into(), age::of(object, now)]
}

/// The EXTERNAL-IP column (`getServiceExternalIP`).
fn external_ip(service: &Value) -> String {
    let ingress: Vec<&str> = list(service, "status.loadBalancer.ingress")
        .iter()
        .map(|i| if text(i, "ip").is_empty() { text(i, "hostname") } else { text(i, "ip") })
        .collect();
    let external: Vec<&str> =
        list(service, "spec.externalIPs").iter().filter_map(Value::as_str).collect();
    match text(service, "spec.type") {
        "ExternalName" => text(service, "spec.externalName").to_owned(),
        "LoadBalancer" if ingress.is_empty() && external.is_empty() => "<pending>".to_owned(),
        "LoadBalancer" => [ingress, external].concat().join(","),
        _ if external.is_empty() => NONE.to_owned(),
        _ => external.join(","),
    }
}

pub(super) fn service(object: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = list(object, "spec.ports")
        .iter()
        .map(|p| {
            let (port, protocol) = (number(p, "port"), text(p, "protocol"));
            match number(p, "nodePort") {
                0 => format!("{port}/{protocol}"),
                node => format!("{port}:{node}/{protocol}"),
            }
        })
        .collect();
    vec![
        name(object),
        text(object, "spec.type").into(),
        or_none(text(object, "spec.clusterIP")),
        external_ip(object).into(),
        or_none(&ports.join(",")),
        age::of(object, now),
        pairs(meta::at(object, "spec.selector")),
    ]
}

pub(super) fn config_map(object: &Value, now: Timestamp) -> Vec<Value> {
    let data = size(object, "data") + size(object, "binaryData");
    vec![name(object), data.into(), age::of(object, now)]
}

pub(super) fn secret(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        text(object, "type").into(),
        size(object, "data").into(),
        age::of(object, now),
    ]
}

/// Newer Events have `eventTime` and a series, older ones first and last times and a count; both are supported.
pub(super) fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let time = |paths: &[&str]| paths.iter().find_map(|p| meta::at(object, p)).cloned();
    let first = time(&["firstTimestamp", "eventTime", "metadata.creationTimestamp"]);
    let last = time(&["series.lastObservedTime", "lastTimestamp"]).or_else(|| first.clone());
    let count =
        [number(object, "series.count"), number(object, "count")].into_iter().find(|n| *n > 0);
    let kind = text(object, "involvedObject.kind").to_lowercase();
    let subject = format!("{kind}/{}", text(object, "involvedObject.name"));
    let component = ["source.component", "reportingComponent"]
        .iter()
        .map(|p| text(object, p))
        .find(|t| !t.is_empty())
        .unwrap_or("");
    let host = [text(object, "source.host"), text(object, "reportingInstance")]
        .into_iter()
        .find(|t| !t.is_empty());
    let source = match host {
        Some(host) => format!("{component}, {host}"),
        None => component.to_owned(),
    };
    vec![
        age::since(last.as_ref(), now).into(),
        text(object, "type").into(),
        text(object, "reason").into(),
        subject.into(),
        text(object, "involvedObject.fieldPath").into(),
        source.into(),
        text(object, "message").trim().into(),
        age::since(first.as_ref(), now).into(),
        count.unwrap_or(1).into(),
        name(object),
    ]
}

/// STATUS is the Ready condition, and whether pods may be scheduled.
pub(super) fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    let ready = list(object, "status.conditions").iter().find(|c| text(c, "type") == "Ready");
    let mut status = match ready.map(|c| text(c, "status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if meta::at(object, "spec.unschedulable") == Some(&Value::Bool(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let roles: Vec<&str> = meta::get(object, "labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| {
            key.strip_prefix("node-role.kubernetes.io/")
                .or_else(|| (key == "kubernetes.io/role").then(|| value.as_str()).flatten())
        })
        .filter(|role| !role.is_empty())
        .collect();
    let address = |kind: &str| {
        let found = list(object, "status.addresses").iter().find(|a| text(a, "type") == kind);
        or_none(found.map_or("", |a| text(a, "address")))
    };
    let info = |field: &str| {
        let value = text(object, &format!("status.nodeInfo.{field}"));
        if value.is_empty() { age::UNKNOWN.into() } else { Value::from(value) }
    };
    vec![
        name(object),
        status.into(),
        or_none(&roles.join(",")),
        age::of(object, now),
        text(object, "status.nodeInfo.kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

pub(super) fn service_account(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), age::of(object, now)]
}

/// `RWO,ROX`, as kubectl abbreviates access modes.
fn access_modes(modes: &[Value]) -> String {
    let short = |mode: &Value| match mode.as_str() {
        Some("ReadWriteOnce") => "RWO",
        Some("ReadOnlyMany") => "ROX",
        Some("ReadWriteMany") => "RWX",
        Some("ReadWriteOncePod") => "RWOP",
        _ => "",
    };
    modes.iter().map(short).collect::<Vec<_>>().join(",")
}

/// `Terminating` for a deleted volume; otherwise its phase.
fn phase(object: &Value) -> Value {
    if meta::is_deleting(object) {
        "Terminating".into()
    } else {
        text(object, "status.phase").into()
    }
}

fn unset(text: &str) -> Value {
    if text.is_empty() { "<unset>".into() } else { text.into() }
}

pub(super) fn persistent_volume_claim(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        phase(object),
        text(object, "spec.volumeName").into(),
        text(object, "status.capacity.storage").into(),
        access_modes(list(object, "status.accessModes")).into(),
        text(object, "spec.storageClassName").into(),
        unset(text(object, "spec.volumeAttributesClassName")),
        age::of(object, now),
        text(object, "spec.volumeMode").into(),
    ]
}

pub(super) fn persistent_volume(object: &Value, now: Timestamp) -> Vec<Value> {
    let claim = match text(object, "spec.claimRef.name") {
        "" => String::new(),
        claim => format!("{}/{claim}", text(object, "spec.claimRef.namespace")),
    };
    vec![
        name(object),
        text(object, "spec.capacity.storage").into(),
        access_modes(list(object, "spec.accessModes")).into(),
        text(object, "spec.persistentVolumeReclaimPolicy").into(),
        phase(object),
        claim.into(),
        text(object, "spec.storageClassName").into(),
        unset(text(object, "spec.volumeAttributesClassName")),
        text(object, "status.reason").into(),
        age::of(object, now),
        text(object, "spec.volumeMode").into(),
    ]
}

/// Shows at most three, then the number of the rest.
fn some(all: &[String]) -> Value {
    const SHOWN: usize = 3;
    if all.len() > SHOWN {
        return format!("{} + {} more...", all[..SHOWN].join(","), all.len() - SHOWN).into();
    }
    or_none(&all.join(","))
}

pub(super) fn endpoints(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut all = Vec::new();
    for subset in list(object, "subsets") {
        for address in list(subset, "addresses") {
            let ip = text(address, "ip");
            let ports = list(subset, "ports");
            if ports.is_empty() {
                all.push(ip.to_owned());
            }
            all.extend(ports.iter().map(|p| format!("{ip}:{}", number(p, "port"))));
        }
    }
    vec![name(object), some(&all), age::of(object, now)]
}

pub(super) fn endpoint_slice(object: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> =
        list(object, "ports").iter().map(|p| number(p, "port").to_string()).collect();
    let addresses: Vec<String> = list(object, "endpoints")
        .iter()
        .flat_map(|e| list(e, "addresses"))
        .filter_map(|a| a.as_str().map(str::to_owned))
        .collect();
    let or_unset = |value: Value| if value == NONE { "<unset>".into() } else { value };
    vec![
        name(object),
        text(object, "addressType").into(),
        or_unset(some(&ports)),
        or_unset(some(&addresses)),
        age::of(object, now),
    ]
}

pub(super) fn ingress(object: &Value, now: Timestamp) -> Vec<Value> {
    let hosts: Vec<String> = list(object, "spec.rules")
        .iter()
        .map(|r| text(r, "host").to_owned())
        .filter(|h| !h.is_empty())
        .collect();
    let hosts = if hosts.is_empty() { "*".into() } else { some(&hosts) };
    let addresses: Vec<&str> = list(object, "status.loadBalancer.ingress")
        .iter()
        .map(|i| if text(i, "ip").is_empty() { text(i, "hostname") } else { text(i, "ip") })
        .collect();
    let ports = if list(object, "spec.tls").is_empty() { "80" } else { "80, 443" };
    vec![
        name(object),
        or_none(text(object, "spec.ingressClassName")),
        hosts,
        addresses.join(",").into(),
        ports.into(),
        age::of(object, now),
    ]
}

pub(super) fn ingress_class(object: &Value, now: Timestamp) -> Vec<Value> {
    let parameters = match text(object, "spec.parameters.name") {
        "" => String::new(),
        name => match text(object, "spec.parameters.apiGroup") {
            "" => format!("{}/{name}", text(object, "spec.parameters.kind")),
            group => format!("{}.{group}/{name}", text(object, "spec.parameters.kind")),
        },
    };
    vec![
        name(object),
        text(object, "spec.controller").into(),
        or_none(&parameters),
        age::of(object, now),
    ]
}

pub(super) fn network_policy(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), selector(meta::at(object, "spec.podSelector")), age::of(object, now)]
}

/// Subjects by their kinds.
pub(super) fn role_binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let subjects = |kind: &str| {
        let names: Vec<String> = list(object, "subjects")
            .iter()
            .filter(|s| text(s, "kind") == kind)
            .map(|s| match text(s, "namespace") {
                "" => text(s, "name").to_owned(),
                namespace => format!("{namespace}/{}", text(s, "name")),
            })
            .collect();
        Value::from(names.join(", "))
    };
    let role = format!("{}/{}", text(object, "roleRef.kind"), text(object, "roleRef.name"));
    vec![
        name(object),
        role.into(),
        age::of(object, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

pub(super) fn lease(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), text(object, "spec.holderIdentity").into(), age::of(object, now)]
}

pub(super) fn storage_class(object: &Value, now: Timestamp) -> Vec<Value> {
    const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
    let default = meta::get(object, "annotations").and_then(|a| a.get(DEFAULT));
    let name = meta::name(object);
    let shown = match default.and_then(Value::as_str) {
        Some("true") => format!("{name} (default)"),
        _ => name.to_owned(),
    };
    let expands = object.get("allowVolumeExpansion") == Some(&Value::Bool(true));
    vec![
        shown.into(),
        text(object, "provisioner").into(),
        text(object, "reclaimPolicy").into(),
        text(object, "volumeBindingMode").into(),
        expands.into(),
        age::of(object, now),
    ]
}

pub(super) fn priority_class(object: &Value, now: Timestamp) -> Vec<Value> {
    let default = object.get("globalDefault") == Some(&Value::Bool(true));
    vec![
        name(object),
        number(object, "value").into(),
        default.into(),
        age::of(object, now),
        text(object, "preemptionPolicy").into(),
    ]
}
