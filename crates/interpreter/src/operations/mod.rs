//! The operations of an interpreter as JSON in, JSON out, for files and for tests against recorded answers.

use std::fmt;
use std::str::FromStr;

use serde_json::{Value, json};

use crate::{Component, DependentRef, InterpretError, kind::Kind, read::text, schema, third_party};

mod aggregate;
mod attached;
mod health;
mod prune;
mod reflect;
mod replicas;
mod retain;
mod retain_pod;

pub use prune::prune;
pub use retain::{RETAIN_REPLICAS, retain, retain_metadata, retained};

/// What is asked about an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The objects that it needs.
    Dependencies,
    /// The values of an object on a member that survive an update.
    Retain,
    /// The template's status from those of its members.
    Aggregate,
    /// The part of a member's status that is sent to the hub.
    Reflect,
    /// Whether it works as intended.
    Health,
    /// Its replicas and what one of them requires, or the object with another number of replicas.
    Replicas,
    /// The object without the fields that belong to the hub.
    Prune,
    /// The bindings of the objects that it needs.
    Attached,
    /// Its parts with pod templates of their own.
    Components,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 9] = [
        Self::Dependencies,
        Self::Retain,
        Self::Aggregate,
        Self::Reflect,
        Self::Health,
        Self::Replicas,
        Self::Prune,
        Self::Attached,
        Self::Components,
    ];

    /// The name, in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Dependencies => "dependencies",
            Self::Retain => "retain",
            Self::Aggregate => "aggregate",
            Self::Reflect => "reflect",
            Self::Health => "health",
            Self::Replicas => "replicas",
            Self::Prune => "prune",
            Self::Attached => "attached",
            Self::Components => "components",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Operation {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|operation| operation.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|operation| operation.name()).collect();
            format!("give one of {}", names.join(", "))
        })
    }
}

/// Answers an operation. The fields of `input` and of the answer depend on the operation; docs/interpreters.md lists
/// them.
///
/// # Errors
/// The kind has no rule for the operation, or a field has the wrong type. The error names the field.
pub fn interpret(operation: Operation, input: &Value) -> Result<Value, InterpretError> {
    match operation {
        Operation::Dependencies => {
            let object = field(input, "object")?;
            let found = checked_dependencies(object)?;
            Ok(json!({ "dependencies": found.iter().map(reference).collect::<Vec<_>>() }))
        }
        Operation::Retain => {
            let (desired, observed) = (field(input, "desired")?, field(input, "observed")?);
            let object = match text(input, &["operation"]) {
                "" | "Retain" => retain(desired, observed)?,
                "RetainMetadata" => retain_metadata(desired, observed),
                _ => return Err(wrong_operation(input, "Retain or RetainMetadata")),
            };
            Ok(json!({ "object": object }))
        }
        Operation::Aggregate => {
            let found = aggregate::aggregate(field(input, "template")?, &input["items"])?;
            let mut answer = json!({ "status": found.status });
            if !found.failed_clusters.is_empty() {
                answer["failedClusters"] = json!(found.failed_clusters);
            }
            Ok(answer)
        }
        Operation::Reflect => Ok(json!({ "status": reflect::reflect(field(input, "object")?)? })),
        Operation::Health => Ok(json!({ "healthy": health::healthy(field(input, "object")?)? })),
        Operation::Replicas => {
            let object = field(input, "object")?;
            match text(input, &["operation"]) {
                "" | "GetReplicas" => replicas::get(object),
                "ReviseReplica" => {
                    let wanted = input.get("replicas");
                    let Some(replicas) = wanted.and_then(Value::as_i64) else {
                        return Err(InterpretError::field("replicas", "an integer", wanted));
                    };
                    Ok(json!({ "object": replicas::revise(object, replicas)? }))
                }
                _ => Err(wrong_operation(input, "GetReplicas or ReviseReplica")),
            }
        }
        Operation::Prune => {
            let drop_job_ttl = input["dropJobTTL"].as_bool().unwrap_or(false);
            Ok(json!({ "object": prune(field(input, "object")?, drop_job_ttl)? }))
        }
        Operation::Attached => attached::attached(input),
        Operation::Components => {
            let object = field(input, "object")?;
            let parts = crate::components(object).ok_or_else(|| unsupported(operation, object))?;
            Ok(json!({ "components": parts.iter().map(component).collect::<Vec<_>>() }))
        }
    }
}

/// A field of the input that is an object.
fn field<'a>(input: &'a Value, name: &'static str) -> Result<&'a Value, InterpretError> {
    let value = input.get(name);
    value
        .filter(|value| value.is_object())
        .ok_or_else(|| InterpretError::field(name, "an object", value))
}

fn wrong_operation(input: &Value, expected: &'static str) -> InterpretError {
    InterpretError::field("operation", expected, input.get("operation"))
}

fn unsupported(operation: Operation, obj: &Value) -> InterpretError {
    InterpretError::NotSupported {
        operation,
        api_version: text(obj, &["apiVersion"]).to_owned(),
        kind: text(obj, &["kind"]).to_owned(),
    }
}

/// The dependencies of an object that no API server has checked.
fn checked_dependencies(obj: &Value) -> Result<Vec<DependentRef>, InterpretError> {
    match Kind::native(obj) {
        Kind::Deployment
        | Kind::ReplicaSet
        | Kind::StatefulSet
        | Kind::DaemonSet
        | Kind::Job
        | Kind::CronJob
        | Kind::Pod
        | Kind::Ingress => schema::check(obj)?,
        Kind::ServiceImport => {
            let ports = obj.pointer("/spec/ports");
            if ports.is_some_and(|ports| !ports.is_array() && !ports.is_null()) {
                return Err(InterpretError::field("spec.ports", "a list", ports));
            }
        }
        _ if third_party::is_known(obj) => {}
        _ => return Err(unsupported(Operation::Dependencies, obj)),
    }
    Ok(crate::dependencies(obj))
}

/// A component as in the API of bindings.
fn component(component: &Component) -> Value {
    let mut out = json!({ "name": component.name, "replicas": component.replicas });
    if let Some(requirements) = &component.requirements {
        out["replicaRequirements"] = json!(requirements);
    }
    out
}

/// A reference as in Karmada's API.
fn reference(dependency: &DependentRef) -> Value {
    let mut out = json!({ "apiVersion": dependency.api_version, "kind": dependency.kind });
    if !dependency.namespace.is_empty() {
        out["namespace"] = json!(dependency.namespace);
    }
    if dependency.match_labels.is_empty() {
        out["name"] = json!(dependency.name);
    } else {
        out["labelSelector"] = json!({ "matchLabels": dependency.match_labels });
    }
    out
}
