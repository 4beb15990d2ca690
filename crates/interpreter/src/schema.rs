//! Checks objects that no API server has checked, for example from files, against the types of their kind.

use atoll_api::quantity::Quantity;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    autoscaling::v2::HorizontalPodAutoscaler,
    batch::v1::{CronJob, Job},
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Service},
    networking::v1::Ingress,
    policy::v1::PodDisruptionBudget,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::{InterpretError, kind::Kind};

/// Checks the types of all fields of a built-in kind. Any other kind passes.
pub(crate) fn check(obj: &Value) -> Result<(), InterpretError> {
    match Kind::of(obj) {
        Kind::Deployment => typed::<Deployment>("Deployment", obj).map(drop),
        Kind::ReplicaSet => typed::<ReplicaSet>("ReplicaSet", obj).map(drop),
        Kind::StatefulSet => typed::<StatefulSet>("StatefulSet", obj).map(drop),
        Kind::DaemonSet => typed::<DaemonSet>("DaemonSet", obj).map(drop),
        Kind::Job => typed::<Job>("Job", obj).map(drop),
        Kind::CronJob => typed::<CronJob>("CronJob", obj).map(drop),
        Kind::Pod => typed::<Pod>("Pod", obj).map(drop),
        Kind::Service => typed::<Service>("Service", obj).map(drop),
        Kind::Ingress => typed::<Ingress>("Ingress", obj).map(drop),
        Kind::PersistentVolumeClaim => {
            typed::<PersistentVolumeClaim>("PersistentVolumeClaim", obj).map(drop)
        }
        Kind::PersistentVolume => typed::<PersistentVolume>("PersistentVolume", obj).map(drop),
        Kind::HorizontalPodAutoscaler => {
            typed::<HorizontalPodAutoscaler>("HorizontalPodAutoscaler", obj).map(drop)
        }
        Kind::PodDisruptionBudget => {
            typed::<PodDisruptionBudget>("PodDisruptionBudget", obj).map(drop)
        }
        _ => Ok(()),
    }
}

/// Checks the types of a status as part of an object of this kind.
pub(crate) fn check_status(template: &Value, status: &Value) -> Result<(), InterpretError> {
    let mut object = Map::new();
    for name in ["apiVersion", "kind"] {
        object.insert(name.to_owned(), template[name].clone());
    }
    object.insert("status".to_owned(), status.clone());
    check(&Value::Object(object))
}

/// An object as the structure of its kind.
pub(crate) fn typed<T: DeserializeOwned>(
    kind: &'static str,
    obj: &Value,
) -> Result<T, InterpretError> {
    let mut obj = obj.clone();
    quantities(&mut obj)?;
    serde_json::from_value(obj)
        .map_err(|error| InterpretError::Schema { kind, problem: error.to_string() })
}

/// Maps of quantities. YAML allows a quantity to be a plain number (`cpu: 2`), the structures do not.
const QUANTITIES: [&str; 6] =
    ["limits", "requests", "overhead", "capacity", "allocatable", "allocatedResources"];

/// Checks all quantities and writes numbers as texts.
fn quantities(value: &mut Value) -> Result<(), InterpretError> {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::Object(amounts) if QUANTITIES.contains(&name.as_str()) => {
                        for (resource, amount) in amounts {
                            quantity(amount, || format!("{name}[{resource:?}]"))?;
                        }
                    }
                    other => quantities(other)?,
                }
            }
            Ok(())
        }
        Value::Array(items) => items.iter_mut().try_for_each(quantities),
        _ => Ok(()),
    }
}

fn quantity(amount: &mut Value, field: impl Fn() -> String) -> Result<(), InterpretError> {
    match amount {
        Value::Number(number) => {
            *amount = Value::String(number.to_string());
            Ok(())
        }
        Value::String(text) if Quantity::new(text.clone()).milli().is_ok() => Ok(()),
        // A missing amount is 0.
        Value::Null => {
            *amount = Value::String("0".to_owned());
            Ok(())
        }
        other => {
            Err(InterpretError::field(field(), "a quantity, for example 500m or 2Gi", Some(other)))
        }
    }
}
