//! Replicas and the requirements of one replica, as Karmada's default interpreter counts them.
//!
//! [`crate::requirements`], which the scheduler uses, counts as kube-scheduler does instead: sidecars run beside the
//! containers, and requests of the whole pod replace those of its containers.

use std::collections::BTreeMap;

use atoll_api::quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::{
    InterpretError, Operation,
    kind::Kind,
    pod,
    read::{at, int, list, map},
    requirements::{node_affinity, toleration},
    schema, third_party,
};

/// The replicas of an object and the requirements of one: `{"replicas", "requirements"}`.
pub(crate) fn get(obj: &Value) -> Result<Value, InterpretError> {
    if let Some((field, template)) = third_party::replicas(obj) {
        let replicas = int(obj, &["spec", field]).unwrap_or(0);
        let requirements = template.map_or(Value::Null, of_template);
        return Ok(json!({ "replicas": replicas, "requirements": requirements }));
    }
    let kind = Kind::native(obj);
    let field = match kind {
        Kind::Pod => None,
        _ => Some(replicas_field(kind).ok_or_else(|| unsupported(obj))?),
    };
    schema::check(obj)?;
    let mut replicas = field.map_or(1, |field| int(obj, &["spec", field]).unwrap_or(0));
    // No more pods of a Job run at once than it has completions.
    if let Some(completions) = int(obj, &["spec", "completions"]).filter(|_| kind == Kind::Job) {
        replicas = replicas.min(completions);
    }
    let requirements = pod::template(obj).map_or(Value::Null, of_template);
    Ok(json!({ "replicas": replicas, "requirements": requirements }))
}

/// The object with this number of replicas. An object without the field stays as it is.
pub(crate) fn revise(obj: &Value, replicas: i64) -> Result<Value, InterpretError> {
    let field = third_party::replicas(obj).map(|(field, _)| field);
    let field = field.or_else(|| replicas_field(Kind::native(obj)));
    let field = field.ok_or_else(|| unsupported(obj))?;
    let mut obj = obj.clone();
    let current = obj.get_mut("spec").and_then(|spec| spec.get_mut(field));
    if let Some(current) = current {
        if !current.is_i64() {
            let path = format!("spec.{field}");
            return Err(InterpretError::field(path, "an integer", Some(current)));
        }
        *current = json!(replicas);
    }
    Ok(obj)
}

fn replicas_field(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Deployment | Kind::ReplicaSet | Kind::StatefulSet => Some("replicas"),
        Kind::Job => Some("parallelism"),
        _ => None,
    }
}

fn unsupported(obj: &Value) -> InterpretError {
    super::unsupported(Operation::Replicas, obj)
}

/// The requirements of one pod of a template; null if it has none.
pub(crate) fn of_template(template: &Value) -> Value {
    let Some(spec) = at(template, &["spec"]) else { return Value::Null };
    let mut out = Map::new();
    if let Some(claim) = node_claim(spec) {
        out.insert("nodeClaim".to_owned(), claim);
    }
    let requests: Map<String, Value> = requests(spec)
        .into_iter()
        .filter(|(_, milli)| *milli > 0)
        .map(|(name, milli)| (name.clone(), json!(written(&name, milli))))
        .collect();
    if !requests.is_empty() {
        out.insert("resourceRequest".to_owned(), Value::Object(requests));
    }
    if out.is_empty() { Value::Null } else { Value::Object(out) }
}

/// The node claim; an empty node selector makes an empty claim.
fn node_claim(spec: &Value) -> Option<Value> {
    let affinity = node_affinity(spec);
    let selector = at(spec, &["nodeSelector"]);
    let tolerations = list(spec, &["tolerations"]);
    if affinity.is_none() && selector.is_none() && tolerations.is_empty() {
        return None;
    }
    let mut claim = Map::new();
    if let Some(affinity) = affinity {
        claim.insert("hardNodeAffinity".to_owned(), json!(affinity));
    }
    if let Some(selector) = selector.filter(|s| s.as_object().is_some_and(|s| !s.is_empty())) {
        claim.insert("nodeSelector".to_owned(), selector.clone());
    }
    if !tolerations.is_empty() {
        let tolerations: Vec<_> = tolerations.iter().map(toleration).collect();
        claim.insert("tolerations".to_owned(), json!(tolerations));
    }
    Some(Value::Object(claim))
}

type Amounts = BTreeMap<String, i128>;

/// The larger of the sum of the containers and each init container, plus the overhead; in thousandths.
fn requests(spec: &Value) -> Amounts {
    let mut total = Amounts::new();
    for container in list(spec, &["containers"]) {
        for (name, milli) in of_container(container) {
            *total.entry(name).or_default() += milli;
        }
    }
    for container in list(spec, &["initContainers"]) {
        for (name, milli) in of_container(container) {
            let held = total.entry(name).or_default();
            *held = (*held).max(milli);
        }
    }
    for (name, value) in map(spec, &["overhead"]) {
        if let Some(milli) = counted(name, value) {
            *total.entry(name.to_owned()).or_default() += milli;
        }
    }
    total
}

/// The requests of a container; a limit replaces a missing request.
fn of_container(container: &Value) -> Amounts {
    let limits = map(container, &["resources", "limits"]);
    let requests = map(container, &["resources", "requests"]);
    let amounts = limits.chain(requests);
    amounts.filter_map(|(name, value)| Some((name.to_owned(), counted(name, value)?))).collect()
}

/// The amount of a resource that a node offers, in thousandths; whole units for all resources but CPU.
fn counted(name: &str, value: &Value) -> Option<i128> {
    let offered = matches!(name, "cpu" | "memory" | "ephemeral-storage" | "pods")
        || name.contains('/')
        || is_huge_page(name)
        || name.starts_with("attachable-volumes-");
    if !offered {
        return None;
    }
    let quantity = match value {
        Value::String(text) => Quantity::new(text.clone()),
        other => Quantity::new(other.to_string()),
    };
    if name == "cpu" { quantity.milli().ok() } else { Some(quantity.units().ok()? * 1000) }
}

fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// The canonical form: powers of 1024 for bytes, powers of 1000 for all else.
fn written(name: &str, milli: i128) -> String {
    if matches!(name, "memory" | "ephemeral-storage") || is_huge_page(name) {
        Quantity::from_bytes(milli / 1000).to_string()
    } else {
        Quantity::from_milli_canonical(milli).to_string()
    }
}
