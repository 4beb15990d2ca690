//! What a Pod on a member keeps: its node, its service account, its volumes and where they are mounted.

use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Map, Value, json};

use crate::{InterpretError, read::list, schema};
use atoll_api::quantity::Quantity;

/// Fields of a Pod cannot change after its creation, so the observed values win. The result has only fields that the
/// Pod structure knows, in the canonical form of an API server.
pub(crate) fn retain(desired: &Value, observed: &Value) -> Result<Value, InterpretError> {
    let mut pod: Pod = schema::typed("Pod", desired)?;
    let member: Pod = schema::typed("Pod", observed)?;
    if let (Some(spec), Some(member)) = (pod.spec.as_mut(), member.spec) {
        spec.node_name = member.node_name;
        spec.service_account_name = member.service_account_name;
        spec.volumes = member.volumes;
        mounts(&mut spec.containers, &member.containers);
        mounts(
            spec.init_containers.as_deref_mut().unwrap_or_default(),
            member.init_containers.as_deref().unwrap_or_default(),
        );
    }
    let mut out = serde_json::to_value(pod)
        .map_err(|error| InterpretError::Schema { kind: "Pod", problem: error.to_string() })?;
    canonical(&mut out);
    for field in ["containers", "initContainers"] {
        resources(&mut out, desired, observed, field);
    }
    Ok(out)
}

/// The desired Pod with the observed values of the same fields, and everything else as its author wrote it. A field that
/// the observed Pod lacks stays as it is desired.
pub(super) fn fields(desired: &Value, observed: &Value) -> Value {
    let mut out = desired.clone();
    let (Some(Value::Object(spec)), Some(member)) = (out.get_mut("spec"), observed.get("spec"))
    else {
        return out;
    };
    for field in ["nodeName", "serviceAccountName", "volumes"] {
        if let Some(value) = member.get(field) {
            spec.insert(field.to_owned(), value.clone());
        }
    }
    for field in ["containers", "initContainers"] {
        let containers = spec.get_mut(field).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let same = list(member, &[field]).iter().find(|c| c["name"] == container["name"]);
            let mounts = same.and_then(|same| same.get("volumeMounts"));
            if let (Some(mounts), Some(container)) = (mounts, container.as_object_mut()) {
                container.insert("volumeMounts".to_owned(), mounts.clone());
            }
        }
    }
    out
}

fn mounts(ours: &mut [Container], theirs: &[Container]) {
    for container in ours {
        if let Some(same) = theirs.iter().find(|c| c.name == container.name) {
            container.volume_mounts.clone_from(&same.volume_mounts);
        }
    }
}

/// `resources` is a structure, not a pointer, so that Go's structures write it also when it is empty. It stays where
/// one of the inputs has it.
fn resources(out: &mut Value, desired: &Value, observed: &Value, field: &str) {
    let has = |pod: &Value, at: usize| pod["spec"][field][at].get("resources").is_some();
    let containers = out["spec"].get_mut(field).and_then(Value::as_array_mut);
    for (at, container) in containers.into_iter().flatten().enumerate() {
        let Some(fields) = container.as_object_mut() else { continue };
        if has(desired, at) || has(observed, at) {
            fields.entry("resources").or_insert_with(|| json!({}));
        }
    }
}

/// Texts that are written also when they are empty.
const ALWAYS: [&str; 4] = ["name", "mountPath", "key", "topologyKey"];
/// Parents under which an empty `name` is left out: references, and not the name of the item itself.
const REFERENCES: [&str; 5] =
    ["configMapRef", "secretRef", "configMapKeyRef", "secretKeyRef", "imagePullSecrets"];
/// Numbers that are left out when they are 0, because 0 is their default.
const NUMBERS: [&str; 6] = [
    "hostPort",
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
];
/// Flags that are left out when they are false, because they are no pointers.
const FLAGS: [&str; 7] =
    ["readOnly", "stdin", "stdinOnce", "tty", "hostNetwork", "hostPID", "hostIPC"];
/// Maps and structures that are left out when they are empty. An empty `emptyDir` is a volume.
const MAPS: [&str; 10] = [
    "limits",
    "requests",
    "resources",
    "labels",
    "annotations",
    "nodeSelector",
    "overhead",
    "matchLabels",
    "metadata",
    "status",
];

/// Brings values to the form in which an API server's structures write them: without what `omitempty` leaves out, and
/// with canonical quantities.
fn canonical(value: &mut Value) {
    clean(value, "");
}

fn clean(value: &mut Value, parent: &str) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                if matches!(name.as_str(), "limits" | "requests" | "overhead") {
                    quantities(value);
                }
                if name == "sizeLimit" {
                    quantity(value);
                }
                // The items of a list have the list's name as parent.
                clean(value, name);
            }
            fields.retain(|name, value| !left_out(parent, name, value));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| clean(item, parent)),
        _ => {}
    }
}

fn left_out(parent: &str, name: &str, value: &Value) -> bool {
    match value {
        Value::String(text) => {
            text.is_empty() && (!ALWAYS.contains(&name) || REFERENCES.contains(&parent))
        }
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty() && MAPS.contains(&name),
        Value::Number(number) => number.as_i64() == Some(0) && NUMBERS.contains(&name),
        Value::Bool(flag) => !flag && FLAGS.contains(&name) && parent != "csi",
        Value::Null => true,
    }
}

fn quantities(value: &mut Value) {
    let amounts: Option<&mut Map<String, Value>> = value.as_object_mut();
    amounts.into_iter().flat_map(Map::values_mut).for_each(quantity);
}

/// Writes a quantity in canonical form. One with an exponent (`2e9`, `2e0`) stays as its author wrote it.
fn quantity(amount: &mut Value) {
    if let Value::String(text) = amount {
        let exponent = text.find(['e', 'E']).is_some_and(|at| at + 1 < text.len());
        if !exponent {
            *text = Quantity::new(text.clone()).canonical().to_string();
        }
    }
}
