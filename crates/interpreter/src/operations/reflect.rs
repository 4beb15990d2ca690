//! The part of a member's status that is sent to the hub.

use serde_json::{Map, Value, json};

use crate::{
    InterpretError,
    kind::Kind,
    kinds,
    read::{int, pick, text},
    schema, third_party,
};

/// Annotation of an object on a member: the generation of the template that it was rendered from.
const TEMPLATE_GENERATION: &str = "resourcetemplate.atoll.dev/generation";

/// Fields of a Job's status that are sent, and those of a budget and an autoscaler.
const JOB: [&str; 6] =
    ["active", "failed", "succeeded", "startTime", "completionTime", "conditions"];

/// The part of the status to send; `None` if nothing is collected. A kind without a rule sends its whole status.
///
/// The four workload kinds add `generation`, their own, and `resourceTemplateGeneration`, from the annotation. An object
/// that was not rendered from a template, because Atoll adopted it, has no annotation and no such field.
///
/// # Errors
/// The status has the wrong types, or the annotation is no integer.
pub(crate) fn reflect(obj: &Value) -> Result<Option<Value>, InterpretError> {
    let kind = Kind::native(obj);
    let typed = matches!(
        kind,
        Kind::Deployment
            | Kind::StatefulSet
            | Kind::ReplicaSet
            | Kind::DaemonSet
            | Kind::Service
            | Kind::Job
            | Kind::PodDisruptionBudget
            | Kind::HorizontalPodAutoscaler
    );
    let Some(status) = obj.get("status").filter(|status| !status.is_null()) else {
        return Ok(None);
    };
    if kind == Kind::Other {
        let sent = third_party::reflect(obj, status).filter(|_| status.is_object());
        return Ok(Some(sent.unwrap_or_else(|| status.clone())));
    }
    if kind == Kind::Service && text(obj, &["spec", "type"]) != "LoadBalancer" {
        return Ok(None);
    }
    if typed {
        if !status.is_object() {
            return Err(InterpretError::field("status", "a map", Some(status)));
        }
        schema::check_status(obj, status)?;
    }
    Ok(Some(match kind {
        Kind::Deployment | Kind::StatefulSet | Kind::ReplicaSet | Kind::DaemonSet => {
            Value::Object(workload(kind, obj, status)?)
        }
        Kind::Service => Value::Object(pick(status, &["loadBalancer"])),
        Kind::Job => Value::Object(pick(status, &JOB)),
        Kind::PodDisruptionBudget | Kind::HorizontalPodAutoscaler => {
            kinds::reflect(obj).unwrap_or_else(|| json!({}))
        }
        _ => status.clone(),
    }))
}

fn workload(kind: Kind, obj: &Value, status: &Value) -> Result<Map<String, Value>, InterpretError> {
    let mut out = pick(status, kinds::workload_counts(kind));
    if kind == Kind::ReplicaSet {
        out.remove("fullyLabeledReplicas");
    }
    out.extend(pick(status, &["observedGeneration"]));
    if let Some(generation) = int(obj, &["metadata", "generation"]) {
        out.insert("generation".to_owned(), json!(generation));
    }
    let annotation = obj.pointer("/metadata/annotations").and_then(|a| a.get(TEMPLATE_GENERATION));
    if let Some(annotation) = annotation {
        let generation = annotation.as_str().and_then(|text| text.parse::<i64>().ok());
        let Some(generation) = generation else {
            let field = format!("metadata.annotations[{TEMPLATE_GENERATION:?}]");
            return Err(InterpretError::field(field, "an integer as text", Some(annotation)));
        };
        out.insert("resourceTemplateGeneration".to_owned(), json!(generation));
    }
    Ok(out)
}
