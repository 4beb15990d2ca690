//! The template's status from the statuses that a binding lists for its members.
//!
//! The result builds on the template's current status: fields that no rule computes stay. [`crate::aggregate`], which
//! the controller uses, also merges the conditions of the members, and takes the observed generation from the hashes
//! that members report.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::{
    InterpretError, Operation, conditions,
    kind::Kind,
    kinds::{self, Member},
    read::{at, int, list, pick, text},
    schema, third_party,
};

/// A status and what else the operation says about a Job.
pub(crate) struct Aggregated {
    pub(crate) status: Value,
    pub(crate) failed_clusters: Vec<String>,
}

/// Aggregates `items` ({clusterName, status}); null and an empty list mean that there are no members.
///
/// # Errors
/// The kind has no rule, or a status has the wrong types.
pub(crate) fn aggregate(template: &Value, items: &Value) -> Result<Aggregated, InterpretError> {
    let kind = Kind::native(template);
    if third_party::is_known(template) {
        let members = members(template, listed(items)?)?;
        let old = template.get("status").cloned().unwrap_or(Value::Null);
        let status = third_party::aggregate(template, &members, &old);
        let status = status.filter(|_| !members.is_empty()).map_or(old, Value::Object);
        return Ok(Aggregated { status, failed_clusters: Vec::new() });
    }
    if !has_rule(kind) {
        return Err(super::unsupported(Operation::Aggregate, template));
    }
    schema::check(template)?;
    let members = members(template, listed(items)?)?;
    let old = template.get("status").cloned().unwrap_or(Value::Null);
    let status = match kind {
        // A status of unknown origin stays until the first report.
        Kind::Pod if items.is_null() => old,
        Kind::Service if text(template, &["spec", "type"]) != "LoadBalancer" => old,
        Kind::Job if is_finished(&old) => old,
        _ => of_kind(kind, template, old, &members),
    };
    let failed = kind == Kind::Job && conditions::state(&status, "Failed") == "True";
    let failed_clusters = members.iter().filter(|member| {
        failed && member.status.is_some_and(|s| conditions::state(s, "Failed") == "True")
    });
    let failed_clusters = failed_clusters.map(|member| member.name.to_owned()).collect();
    Ok(Aggregated { status, failed_clusters })
}

/// The items; null is an empty list.
fn listed(items: &Value) -> Result<&[Value], InterpretError> {
    match items {
        Value::Null => Ok(&[]),
        Value::Array(items) => Ok(items),
        other => Err(InterpretError::field("items", "a list", Some(other))),
    }
}

fn has_rule(kind: Kind) -> bool {
    !matches!(
        kind,
        Kind::ReplicationController
            | Kind::ServiceAccount
            | Kind::Secret
            | Kind::Namespace
            | Kind::ServiceImport
            | Kind::Other
    )
}

/// The members, each once.
fn members<'a>(template: &Value, items: &'a [Value]) -> Result<Vec<Member<'a>>, InterpretError> {
    let mut seen = BTreeSet::new();
    let mut members = Vec::new();
    for item in items {
        let name = text(item, &["clusterName"]);
        let status = at(item, &["status"]);
        if let Some(status) = status {
            schema::check_status(template, status)?;
        }
        if seen.insert(name) {
            members.push(Member { name, status });
        }
    }
    Ok(members)
}

fn is_finished(status: &Value) -> bool {
    ["Complete", "Failed"].iter().any(|kind| conditions::state(status, kind) == "True")
}

fn of_kind(kind: Kind, template: &Value, old: Value, members: &[Member<'_>]) -> Value {
    match kind {
        Kind::Deployment | Kind::StatefulSet | Kind::ReplicaSet | Kind::DaemonSet => {
            workload(kind, template, old, members)
        }
        Kind::PodDisruptionBudget | Kind::HorizontalPodAutoscaler => {
            // The conditions are those of the hub's own controller, if it has one.
            let held = old.get("conditions").filter(|c| !c.is_null()).cloned();
            let mut status = kinds::aggregate_members(kind, members, &old);
            if let Some(conditions) = held {
                status.insert("conditions".to_owned(), conditions);
            }
            Value::Object(status)
        }
        Kind::PersistentVolumeClaim => claim(old, members),
        Kind::Service | Kind::Ingress => {
            let addresses = addresses(members);
            let mut status = if kind == Kind::Service { fields(old) } else { Map::new() };
            status.insert("loadBalancer".to_owned(), json!({ "ingress": addresses }));
            Value::Object(status)
        }
        Kind::Job => job(kinds::aggregate_members(kind, members, &old)),
        _ => Value::Object(kinds::aggregate_members(kind, members, &old)),
    }
}

fn fields(status: Value) -> Map<String, Value> {
    match status {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Sums of the counts. The generation is observed when every member has observed the template's generation; without
/// members nothing is observed.
fn workload(kind: Kind, template: &Value, old: Value, members: &[Member<'_>]) -> Value {
    let mut sums = kinds::sums(members, kinds::workload_counts(kind));
    if kind == Kind::ReplicaSet {
        sums.remove("fullyLabeledReplicas");
    }
    let generation = int(template, &["metadata", "generation"]).unwrap_or(0);
    let current = |status: &Value| {
        let field = |name: &str| int(status, &[name]).unwrap_or(0);
        field("resourceTemplateGeneration") >= generation
            && field("observedGeneration") == field("generation")
    };
    let observed = !members.is_empty() && members.iter().all(|m| m.status.is_some_and(current));
    let mut status = fields(old);
    status.extend(sums);
    if observed {
        status.insert("observedGeneration".to_owned(), json!(generation));
    }
    Value::Object(status)
}

/// Lost when one claim is lost, otherwise the last phase that is not Bound. A member that reports no status does not
/// count, but if none reports one, the claim is not bound.
fn claim(old: Value, members: &[Member<'_>]) -> Value {
    let mut phase = "Bound";
    let mut reported = false;
    for status in members.iter().filter_map(|member| member.status) {
        reported = true;
        match text(status, &["phase"]) {
            "Lost" => {
                phase = "Lost";
                break;
            }
            "Bound" | "" => {}
            other => phase = other,
        }
    }
    if !reported {
        return old;
    }
    json!({ "phase": phase })
}

/// The addresses of all members in order: those with a host name first, then by host name and address. Entries for the
/// same host, address and mode are merged.
fn addresses(members: &[Member<'_>]) -> Vec<Value> {
    let mut found: Vec<Value> = Vec::new();
    for status in members.iter().filter_map(|member| member.status) {
        for address in list(status, &["loadBalancer", "ingress"]) {
            let same = |other: &&mut Value| {
                let fields = ["hostname", "ip", "ipMode"];
                fields.iter().all(|field| text(other, &[field]) == text(address, &[field]))
            };
            match found.iter_mut().find(same) {
                Some(held) => {
                    let mut ports = list(held, &["ports"]).to_vec();
                    ports.extend_from_slice(list(address, &["ports"]));
                    held["ports"] = Value::Array(ports);
                }
                None => found.push(address.clone()),
            }
        }
    }
    found.iter_mut().for_each(sort_ports);
    found.sort_by_cached_key(|address| {
        let host = text(address, &["hostname"]).to_owned();
        (host.is_empty(), host, text(address, &["ip"]).to_owned())
    });
    found
}

/// Lists each port once, in order.
fn sort_ports(address: &mut Value) {
    if let Some(Value::Array(ports)) = address.get_mut("ports") {
        ports.sort_by_cached_key(|port| {
            let error = text(port, &["error"]).to_owned();
            (int(port, &["port"]), text(port, &["protocol"]).to_owned(), error)
        });
        ports.dedup();
    }
}

/// The answer for a Job: conditions by type, each with its status and reason only, because the texts and times of the
/// recorded answers depend on a clock. The Job's ready pods are not summed.
fn job(mut status: Map<String, Value>) -> Value {
    status.remove("ready");
    if let Some(Value::Array(conditions)) = status.get_mut("conditions") {
        for condition in conditions.iter_mut() {
            *condition = Value::Object(pick(condition, &["type", "status", "reason"]));
        }
        conditions.sort_by_cached_key(|condition| text(condition, &["type"]).to_owned());
    }
    Value::Object(status)
}
