//! The plan of one reconciliation of dependencies, as JSON.

use std::collections::BTreeMap;

use atoll_api::binding::{ObjectReference, TargetCluster};
use atoll_api::policy::ConflictResolution;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    InterpretError,
    attached::{Attached, BindingKey, HubObject, Parent, Plan, RequiredBy, State, Strategy, plan},
    read::{at, flag, list, map, text},
};

/// Finalizer of a binding whose dependencies are propagated.
const FINALIZER: &str = "atoll.dev/binding-dependencies-distributor";

/// One reconciliation of `binding`, with its `template`, the `objects` of the hub and the other `bindings`.
pub(crate) fn attached(input: &Value) -> Result<Value, InterpretError> {
    let binding = super::field(input, "binding")?;
    let parent = Parent {
        key: key(binding),
        clusters: read(binding, "spec.clusters", &binding["spec"]["clusters"])?,
        strategy: strategy(binding)?,
        propagates: flag(binding, &["spec", "propagateDeps"]),
        deleting: at(binding, &["metadata", "deletionTimestamp"]).is_some(),
    };
    let template = at(input, &["template"]);
    let interpreted = match template.map(super::checked_dependencies) {
        Some(Err(InterpretError::NotSupported { .. })) => false,
        Some(Err(other)) => return Err(other),
        Some(Ok(_)) | None => true,
    };
    let others = list(input, &["bindings"]);
    let bindings = others.iter().map(existing).collect::<Result<Vec<_>, _>>()?;
    let parents = others.iter().map(|other| Ok((key(other), strategy(other)?)));
    let parents = parents.collect::<Result<BTreeMap<_, _>, InterpretError>>()?;
    let objects: Vec<HubObject> = list(input, &["objects"]).iter().map(object).collect();
    let state =
        State { template, interpreted, objects: &objects, bindings: &bindings, parents: &parents };
    let found = plan(&parent, state);
    let held = list(binding, &["metadata", "finalizers"]).iter().any(|f| f == FINALIZER);
    Ok(written(found, bindings, others, held))
}

fn key(binding: &Value) -> BindingKey {
    BindingKey {
        namespace: text(binding, &["metadata", "namespace"]).to_owned(),
        name: text(binding, &["metadata", "name"]).to_owned(),
    }
}

fn read<'a, T: Deserialize<'a> + Default>(
    binding: &Value,
    path: &'static str,
    value: &'a Value,
) -> Result<T, InterpretError> {
    if value.is_null() {
        return Ok(T::default());
    }
    T::deserialize(value).map_err(|_| {
        let field = format!("{path} of binding {}", key(binding).name);
        InterpretError::field(field, "as in ResourceBinding", Some(value))
    })
}

fn strategy(binding: &Value) -> Result<Strategy, InterpretError> {
    let spec = &binding["spec"];
    let conflict: Option<ConflictResolution> =
        read(binding, "spec.conflictResolution", &spec["conflictResolution"])?;
    let preserve = spec.get("preserveResourcesOnDeletion").and_then(Value::as_bool);
    Ok(Strategy { conflict, preserve })
}

fn existing(binding: &Value) -> Result<Attached, InterpretError> {
    let owners = list(binding, &["metadata", "ownerReferences"]);
    let owner = owners.iter().find(|owner| flag(owner, &["controller"]));
    let mut required_by = Vec::new();
    for required in list(binding, &["spec", "requiredBy"]) {
        let parent = BindingKey {
            namespace: text(required, &["namespace"]).to_owned(),
            name: text(required, &["name"]).to_owned(),
        };
        let clusters: Vec<TargetCluster> =
            read(binding, "spec.requiredBy[].clusters", &required["clusters"])?;
        required_by.push(RequiredBy { parent, clusters });
    }
    Ok(Attached {
        key: key(binding),
        resource: read(binding, "spec.resource", &binding["spec"]["resource"])?,
        owner: owner.map(|owner| text(owner, &["uid"]).to_owned()),
        placed: at(binding, &["spec", "placement"]).is_some(),
        strategy: strategy(binding)?,
        required_by,
    })
}

fn object(object: &Value) -> HubObject {
    let word = |path: &[&str]| Some(text(object, path).to_owned()).filter(|word| !word.is_empty());
    let labels = map(object, &["metadata", "labels"])
        .filter_map(|(key, value)| Some((key.to_owned(), value.as_str()?.to_owned())))
        .collect();
    let reference = ObjectReference {
        api_version: text(object, &["apiVersion"]).to_owned(),
        kind: text(object, &["kind"]).to_owned(),
        namespace: word(&["metadata", "namespace"]),
        name: text(object, &["metadata", "name"]).to_owned(),
        uid: word(&["metadata", "uid"]),
    };
    HubObject { reference, labels }
}

/// All other bindings after the plan is written, by namespace and name.
fn written(found: Plan, bindings: Vec<Attached>, others: &[Value], held: bool) -> Value {
    let mut after: BTreeMap<BindingKey, (Attached, Option<&Value>)> = BTreeMap::new();
    for (binding, other) in bindings.into_iter().zip(others) {
        after.insert(binding.key.clone(), (binding, Some(other)));
    }
    for mut binding in found.writes {
        let other = after.get(&binding.key).and_then(|(_, other)| *other);
        if other.is_none() {
            // The recorded answers do not add the hash of the group to names.
            let plain = format!("{}-{}", binding.resource.name, binding.resource.kind);
            binding.key.name = plain.to_lowercase().replace(':', ".");
        }
        after.insert(binding.key.clone(), (binding, other));
    }
    let attached: Vec<Value> =
        after.values().map(|(binding, other)| after_write(binding, *other)).collect();
    let mut out = json!({
        "attached": attached,
        "finalizer": found.finalizer.unwrap_or(held),
    });
    if let Some(dependencies) = &found.dependencies {
        out["dependencies"] = dependencies.iter().map(super::reference).collect();
    }
    if !found.problems.is_empty() {
        out["error"] = json!(found.problems.join("; "));
    }
    out
}

fn after_write(binding: &Attached, other: Option<&Value>) -> Value {
    let names =
        |required: &RequiredBy| format!("{}/{}", required.parent.namespace, required.parent.name);
    let mut depended_by: Vec<String> = binding.required_by.iter().map(names).collect();
    depended_by.sort_unstable();
    let required_by: Vec<Value> = binding.required_by.iter().map(required).collect();
    let mut out = Map::from_iter([
        ("namespace".to_owned(), json!(binding.key.namespace)),
        ("name".to_owned(), json!(binding.key.name)),
        ("resource".to_owned(), json!(binding.resource)),
        ("dependedBy".to_owned(), json!(depended_by)),
        ("requiredBy".to_owned(), json!(required_by)),
    ]);
    // Fields that the plan does not change.
    for field in ["clusters", "placement"] {
        if let Some(value) = other.and_then(|other| at(other, &["spec", field])) {
            out.insert(field.to_owned(), value.clone());
        }
    }
    if let Some(owner) = &binding.owner {
        out.insert("owner".to_owned(), json!(owner));
    }
    if let Some(conflict) = binding.strategy.conflict {
        out.insert("conflictResolution".to_owned(), json!(conflict));
    }
    if let Some(preserve) = binding.strategy.preserve {
        out.insert("preserveResourcesOnDeletion".to_owned(), json!(preserve));
    }
    Value::Object(out)
}

/// An entry of `requiredBy`; no clusters and no replicas are left out.
fn required(required: &RequiredBy) -> Value {
    let mut out = json!({ "namespace": required.parent.namespace, "name": required.parent.name });
    let cluster = |target: &TargetCluster| match target.replicas {
        0 => json!({ "name": target.name }),
        replicas => json!({ "name": target.name, "replicas": replicas }),
    };
    if !required.clusters.is_empty() {
        out["clusters"] = required.clusters.iter().map(cluster).collect();
    }
    out
}
