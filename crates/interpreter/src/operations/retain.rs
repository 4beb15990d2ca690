//! What a member's own controllers and users wrote to an object, and an update keeps.

use serde_json::{Map, Value};

use super::retain_pod;
use crate::{
    InterpretError, Operation,
    kind::Kind,
    read::{at, list, text},
};

/// Label of a template: the member's number of replicas stays, for example because an autoscaler sets it there.
pub const RETAIN_REPLICAS: &str = "resourcetemplate.atoll.dev/retain-replicas";
/// Annotation of an object on a member: keys of the labels that the hub set, comma separated.
const MANAGED_LABELS: &str = "resourcetemplate.atoll.dev/managed-labels";
/// Annotation of an object on a member: keys of the annotations that the hub set, comma separated.
const MANAGED_ANNOTATIONS: &str = "resourcetemplate.atoll.dev/managed-annotations";
const TOKEN: &str = "kubernetes.io/service-account-token";

/// The desired object with the values of the observed one that belong to the member.
///
/// # Errors
/// The kind has nothing to retain, or a retained field has the wrong type.
pub fn retain(desired: &Value, observed: &Value) -> Result<Value, InterpretError> {
    let mut out = desired.clone();
    match Kind::native(desired) {
        Kind::Deployment => deployment(&mut out, observed)?,
        Kind::Pod => out = retain_pod::retain(desired, observed)?,
        Kind::Service => service(&mut out, observed)?,
        Kind::ServiceAccount => {
            for field in ["secrets", "imagePullSecrets"] {
                references(&mut out, observed, field)?;
            }
        }
        Kind::PersistentVolumeClaim => {
            if let Some(volume) = observed_text(observed, "volumeName")? {
                set(&mut out, &["spec", "volumeName"], volume.into());
            }
        }
        Kind::PersistentVolume => {
            if let Some(claim) = observed.pointer("/spec/claimRef") {
                if !claim.is_object() {
                    let field = "spec.claimRef of the observed object";
                    return Err(InterpretError::field(field, "a map", Some(claim)));
                }
                set(&mut out, &["spec", "claimRef"], claim.clone());
            }
        }
        Kind::Job => job(&mut out, observed)?,
        Kind::Secret => secret(&mut out, observed)?,
        _ => return Err(super::unsupported(Operation::Retain, desired)),
    }
    Ok(out)
}

/// [`retain`] for a server-side apply; `None` if the kind retains nothing. A Pod has its fields as their authors wrote
/// them, not in the form of an API server.
///
/// # Errors
/// A retained field has the wrong type.
pub fn retained(desired: &Value, observed: &Value) -> Result<Option<Value>, InterpretError> {
    match Kind::native(desired) {
        Kind::Pod => Ok(Some(retain_pod::fields(desired, observed))),
        Kind::Deployment if text(desired, &["metadata", "labels", RETAIN_REPLICAS]) != "true" => {
            Ok(None)
        }
        Kind::Deployment
        | Kind::Service
        | Kind::ServiceAccount
        | Kind::PersistentVolumeClaim
        | Kind::PersistentVolume
        | Kind::Job
        | Kind::Secret => retain(desired, observed).map(Some),
        _ => Ok(None),
    }
}

/// The desired object with the member's finalizers, owners and version, and with labels and annotations of both: ours
/// win, and a key that we set earlier and no longer set is removed.
#[must_use]
pub fn retain_metadata(desired: &Value, observed: &Value) -> Value {
    let mut out = desired.clone();
    if !out.get("metadata").is_some_and(Value::is_object) {
        set(&mut out, &["metadata"], Value::Object(Map::new()));
    }
    for (field, managed) in [("labels", MANAGED_LABELS), ("annotations", MANAGED_ANNOTATIONS)] {
        united(&mut out, observed, field, managed);
    }
    let Some(metadata) = out.get_mut("metadata").and_then(Value::as_object_mut) else { return out };
    for field in ["finalizers", "ownerReferences", "resourceVersion"] {
        match at(observed, &["metadata", field]) {
            Some(value) => metadata.insert(field.to_owned(), value.clone()),
            None => metadata.remove(field),
        };
    }
    out
}

/// Unites a map of the metadata.
fn united(out: &mut Value, observed: &Value, field: &str, managed: &str) {
    let ours = at(out, &["metadata", field]).and_then(Value::as_object).cloned();
    let theirs = at(observed, &["metadata", field]).and_then(Value::as_object);
    let set_earlier: Vec<&str> =
        text(observed, &["metadata", "annotations", managed]).split(',').collect();
    let kept = theirs.into_iter().flatten().filter(|(key, _)| !set_earlier.contains(&key.as_str()));
    let mut all: Map<String, Value> =
        kept.map(|(key, value)| (key.clone(), value.clone())).collect();
    let has_ours = ours.is_some();
    all.extend(ours.unwrap_or_default());
    if has_ours || !all.is_empty() {
        set(out, &["metadata", field], Value::Object(all));
    }
}

fn deployment(out: &mut Value, observed: &Value) -> Result<(), InterpretError> {
    if let Some(labels) = at(out, &["metadata", "labels"]).and_then(Value::as_object)
        && let Some((key, value)) = labels.iter().find(|(_, value)| !value.is_string())
    {
        let path = format!("metadata.labels[{key:?}]");
        return Err(InterpretError::field(path, "a string", Some(value)));
    }
    if text(out, &["metadata", "labels", RETAIN_REPLICAS]) != "true" {
        return Ok(());
    }
    let replicas = observed.pointer("/spec/replicas");
    let Some(replicas) = replicas.filter(|replicas| replicas.is_i64()) else {
        let field = "spec.replicas of the observed object";
        return Err(InterpretError::field(field, "an integer", replicas));
    };
    set(out, &["spec", "replicas"], replicas.clone());
    Ok(())
}

/// The member's addresses and node ports. A Service that is wanted headless stays headless. Nothing is kept when the
/// type changes to one that has no such field.
fn service(out: &mut Value, observed: &Value) -> Result<(), InterpretError> {
    let address = observed_text(observed, "clusterIP")?;
    let health_port = observed.pointer("/spec/healthCheckNodePort");
    if let Some(port) = health_port {
        let Some(number) = port.as_i64() else {
            let field = "spec.healthCheckNodePort of the observed object";
            return Err(InterpretError::field(field, "an integer", Some(port)));
        };
        if number > 0 {
            set(out, &["spec", "healthCheckNodePort"], port.clone());
        }
    }
    let wanted = text(out, &["spec", "type"]).to_owned();
    let same_type = wanted == text(observed, &["spec", "type"]);
    let headless = text(out, &["spec", "clusterIP"]) == "None";
    if !headless && (same_type || wanted != "ExternalName") {
        if let Some(address) = address {
            set(out, &["spec", "clusterIP"], address.into());
        }
        let addresses = list(observed, &["spec", "clusterIPs"]);
        if !addresses.is_empty() {
            set(out, &["spec", "clusterIPs"], addresses.to_vec().into());
        }
    }
    if same_type || matches!(wanted.as_str(), "NodePort" | "LoadBalancer") {
        node_ports(out, observed);
    }
    Ok(())
}

/// Copies the node port of each observed port to the desired port with the same number and protocol.
fn node_ports(out: &mut Value, observed: &Value) {
    let key = |port: &Value| {
        let protocol = text(port, &["protocol"]);
        let protocol = if protocol.is_empty() { "TCP" } else { protocol };
        (at(port, &["port"]).and_then(Value::as_i64), protocol.to_owned())
    };
    let ports = out.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten();
    for port in ports.filter(|port| port.get("nodePort").is_none()) {
        let same = list(observed, &["spec", "ports"]).iter().find(|o| key(o) == key(port));
        let node_port = same.and_then(|same| same.get("nodePort")).filter(|n| n.is_i64());
        if let (Some(node_port), Some(fields)) = (node_port, port.as_object_mut()) {
            fields.insert("nodePort".to_owned(), node_port.clone());
        }
    }
}

/// Adds references of the observed list whose names the desired list lacks.
fn references(out: &mut Value, observed: &Value, field: &str) -> Result<(), InterpretError> {
    let Some(theirs) = observed.get(field) else { return Ok(()) };
    let theirs = list_of(theirs, &format!("{field} of the observed object"))?;
    let mut all: Vec<Value> = Vec::new();
    let ours = out.get(field).map_or(Ok(&[][..]), |ours| list_of(ours, field))?;
    for (at, reference) in ours.iter().chain(theirs).enumerate() {
        let name = reference.get("name").and_then(Value::as_str);
        if name.is_none_or(str::is_empty) {
            let found = reference.get("name");
            let path = format!("name of reference {at} of {field}");
            return Err(InterpretError::field(path, "a name", found));
        }
        if !all.iter().any(|known| known.get("name").and_then(Value::as_str) == name) {
            all.push(reference.clone());
        }
    }
    let value = if all.is_empty() { Value::Null } else { Value::Array(all) };
    set(out, &[field], value);
    Ok(())
}

fn list_of<'a>(value: &'a Value, field: &str) -> Result<&'a [Value], InterpretError> {
    let list = value.as_array().map(Vec::as_slice);
    list.ok_or_else(|| InterpretError::field(field, "a list", Some(value)))
}

/// The Job controller of the member writes the selector and the labels of the pods.
fn job(out: &mut Value, observed: &Value) -> Result<(), InterpretError> {
    for (path, pointer, field) in [
        (
            &["spec", "selector", "matchLabels"][..],
            "/spec/selector/matchLabels",
            "spec.selector.matchLabels",
        ),
        (
            &["spec", "template", "metadata", "labels"],
            "/spec/template/metadata/labels",
            "spec.template.metadata.labels",
        ),
    ] {
        let Some(labels) = observed.pointer(pointer) else { continue };
        let strings = labels.as_object().is_some_and(|l| l.values().all(Value::is_string));
        if !strings {
            let field = format!("{field} of the observed object");
            return Err(InterpretError::field(field, "a map of strings", Some(labels)));
        }
        set(out, path, labels.clone());
    }
    Ok(())
}

/// The member's controller writes the token.
fn secret(out: &mut Value, observed: &Value) -> Result<(), InterpretError> {
    if text(out, &["type"]) != TOKEN {
        return Ok(());
    }
    let Some(data) = observed.get("data") else { return Ok(()) };
    let strings = data.as_object().is_some_and(|data| data.values().all(Value::is_string));
    if !strings {
        // The value may be secret, so the error does not show it.
        let found = "a value of another type".to_owned();
        let field = "data of the observed object".to_owned();
        return Err(InterpretError::Field { field, expected: "a map of strings", found });
    }
    set(out, &["data"], data.clone());
    Ok(())
}

/// A non-empty text of the observed spec. Like every retained field it is never null: an API server leaves it out.
fn observed_text<'a>(observed: &'a Value, field: &str) -> Result<Option<&'a str>, InterpretError> {
    match observed.get("spec").and_then(|spec| spec.get(field)) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
        Some(other) => {
            let path = format!("spec.{field} of the observed object");
            Err(InterpretError::field(path, "a string", Some(other)))
        }
    }
}

/// Sets the value at a path, and creates the maps on the way.
fn set(obj: &mut Value, path: &[&str], value: Value) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut here = obj;
    for name in parents {
        if !here.is_object() {
            *here = Value::Object(Map::new());
        }
        here = &mut here[*name];
    }
    if !here.is_object() {
        *here = Value::Object(Map::new());
    }
    here[*last] = value;
}
