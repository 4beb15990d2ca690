//! Whether an object of a kind with a health rule is healthy.

use serde_json::Value;

use crate::{HealthState, InterpretError, Operation, kind::Kind, schema, third_party};

/// Whether the object works as intended.
///
/// # Errors
/// The kind has no rule for its health (a Job, a ConfigMap), or a field has the wrong type.
pub(crate) fn healthy(obj: &Value) -> Result<bool, InterpretError> {
    let known = matches!(
        Kind::native(obj),
        Kind::Deployment
            | Kind::StatefulSet
            | Kind::ReplicaSet
            | Kind::DaemonSet
            | Kind::Service
            | Kind::Ingress
            | Kind::PersistentVolumeClaim
            | Kind::Pod
            | Kind::PodDisruptionBudget
    );
    if !known && !third_party::is_known(obj) {
        return Err(super::unsupported(Operation::Health, obj));
    }
    schema::check(obj)?;
    Ok(crate::health(obj).state == HealthState::Healthy)
}
