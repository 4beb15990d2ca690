//! Questions and answers as JSON: the form of recorded cases and of `atoll interpret`.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::request::{Request, Response};

impl Request {
    /// A question from JSON: `operation` (the name of the function in Lua), `object`, and where the operation needs them
    /// `observed`, `items`, `replicas`.
    ///
    /// # Errors
    /// The operation is unknown, or a field is missing or has the wrong type.
    pub fn from_json(input: &Value) -> Result<Self, String> {
        let object = |field: &str| match &input[field] {
            object @ Value::Object(_) => Ok(Arc::new(object.clone())),
            _ => Err(format!("{field} must be an object")),
        };
        let subject = object("object")?;
        match input["operation"].as_str().unwrap_or_default() {
            "GetReplicas" => Ok(Self::Replicas(subject)),
            "GetComponents" => Ok(Self::Components(subject)),
            "ReviseReplica" => {
                let replicas =
                    input["replicas"].as_i64().ok_or("replicas must be a whole number")?;
                Ok(Self::Revise { object: subject, replicas })
            }
            "Retain" => Ok(Self::Retain { desired: subject, observed: object("observed")? }),
            "AggregateStatus" => {
                Ok(Self::Aggregate { object: subject, items: Arc::new(input["items"].clone()) })
            }
            "ReflectStatus" => Ok(Self::Reflect(subject)),
            "InterpretHealth" => Ok(Self::Health(subject)),
            "GetDependencies" => Ok(Self::Dependencies(subject)),
            other => Err(format!(
                "operation {other:?} is unknown: it must be GetReplicas, GetComponents, ReviseReplica, Retain, \
                 AggregateStatus, ReflectStatus, InterpretHealth or GetDependencies"
            )),
        }
    }
}

impl Response {
    /// The answer as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match self {
            Self::Replicas(found) => json!(found),
            // No components are null, as in Karmada.
            Self::Components(none) if none.is_empty() => json!({ "components": null }),
            Self::Components(found) => json!({ "components": found }),
            Self::Object(object) => json!({ "object": object }),
            Self::Status(status) => json!({ "status": status }),
            Self::Healthy(healthy) => json!({ "healthy": healthy }),
            Self::Dependencies(found) => json!({ "dependencies": found }),
        }
    }
}
