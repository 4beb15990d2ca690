//! Questions about an object, and their answers.

use std::sync::Arc;

pub use atoll_api::binding::Component;
use atoll_api::binding::ReplicaRequirements;
use atoll_api::customization::Operation;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A question about an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// How many replicas it has, and what one requires.
    Replicas(Arc<Value>),
    /// Its components.
    Components(Arc<Value>),
    /// The object with another number of replicas.
    Revise {
        /// The object.
        object: Arc<Value>,
        /// The new number.
        replicas: i64,
    },
    /// The wanted object with what the member's object keeps.
    Retain {
        /// The object as it would be applied.
        desired: Arc<Value>,
        /// The object on the member.
        observed: Arc<Value>,
    },
    /// The object with the status computed from its members.
    Aggregate {
        /// The object.
        object: Arc<Value>,
        /// A list of `{clusterName, status, applied, appliedMessage, health}`.
        items: Arc<Value>,
    },
    /// The part of a member's status that is reported.
    Reflect(Arc<Value>),
    /// Whether it is healthy.
    Health(Arc<Value>),
    /// The objects that it needs.
    Dependencies(Arc<Value>),
}

impl Request {
    /// The operation.
    #[must_use]
    pub fn operation(&self) -> Operation {
        match self {
            Self::Replicas(_) => Operation::InterpretReplica,
            Self::Components(_) => Operation::InterpretComponent,
            Self::Revise { .. } => Operation::ReviseReplica,
            Self::Retain { .. } => Operation::Retain,
            Self::Aggregate { .. } => Operation::AggregateStatus,
            Self::Reflect(_) => Operation::InterpretStatus,
            Self::Health(_) => Operation::InterpretHealth,
            Self::Dependencies(_) => Operation::InterpretDependency,
        }
    }

    /// The object that is asked about.
    #[must_use]
    pub fn object(&self) -> &Value {
        match self {
            Self::Replicas(object)
            | Self::Components(object)
            | Self::Revise { object, .. }
            | Self::Retain { desired: object, .. }
            | Self::Aggregate { object, .. }
            | Self::Reflect(object)
            | Self::Health(object)
            | Self::Dependencies(object) => object,
        }
    }

    /// Approximate size in memory, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        let other = match self {
            Self::Retain { observed, .. } => size(observed),
            Self::Aggregate { items, .. } => size(items),
            _ => 0,
        };
        size(self.object()) + other
    }
}

fn size(value: &Value) -> usize {
    const VALUE: usize = 32;
    VALUE
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(size).sum(),
            Value::Object(fields) => {
                fields.iter().map(|(name, field)| VALUE + name.len() + size(field)).sum()
            }
            _ => 0,
        }
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Response {
    /// To [`Request::Replicas`].
    Replicas(Replicas),
    /// To [`Request::Components`].
    Components(Vec<Component>),
    /// To [`Request::Revise`], [`Request::Retain`] and [`Request::Aggregate`].
    Object(Value),
    /// To [`Request::Reflect`].
    Status(Value),
    /// To [`Request::Health`].
    Healthy(bool),
    /// To [`Request::Dependencies`], each once, in order.
    Dependencies(Vec<Dependency>),
}

/// Replicas and what one of them requires.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Replicas {
    /// The number of replicas.
    pub replicas: i64,
    /// What one requires; `None` if nothing is known.
    pub requirements: Option<ReplicaRequirements>,
}

/// A reference to an object by name, or to objects by their labels.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dependency {
    /// For example `v1`.
    #[serde(default)]
    pub api_version: String,
    /// For example `ConfigMap`.
    #[serde(default)]
    pub kind: String,
    /// Namespace; absent for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name; absent if labels select the objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Labels of the objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
}
