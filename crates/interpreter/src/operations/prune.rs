//! Removes from an object of the hub what its API server and controllers wrote.

use serde_json::{Map, Value, json};

use crate::{
    InterpretError,
    read::{flag, text},
    schema,
};

/// Fields of the metadata that describe the object on the hub.
const METADATA: [&str; 10] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];
/// Labels of a Job's pods that name the Job of the hub by its uid.
const JOB_UIDS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];
/// Labels of a Job's pods that the Job controller writes.
const JOB_LABELS: [&str; 4] = [
    "controller-uid",
    "batch.kubernetes.io/controller-uid",
    "job-name",
    "batch.kubernetes.io/job-name",
];
const ROLLOUT_ANNOTATIONS: [&str; 2] =
    ["deployment.kubernetes.io/revision", "deployment.kubernetes.io/revision-history"];
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// The object as members get it. With `drop_job_ttl` a Job is not deleted on members when its time is over.
///
/// The kind alone decides, whatever its group: as in Karmada, whose vectors test it.
///
/// # Errors
/// A Job whose fields have the wrong types.
pub fn prune(obj: &Value, drop_job_ttl: bool) -> Result<Value, InterpretError> {
    let mut out = obj.clone();
    if let Some(fields) = out.as_object_mut() {
        fields.remove("status");
    }
    for field in METADATA {
        remove(&mut out, &["metadata"], field);
    }
    match text(obj, &["kind"]) {
        "Deployment" => {
            for annotation in ROLLOUT_ANNOTATIONS {
                remove(&mut out, &["metadata", "annotations"], annotation);
            }
        }
        "Job" => job(&mut out, drop_job_ttl)?,
        // An empty value names no node.
        "PersistentVolumeClaim" if !annotation(obj, SELECTED_NODE).is_empty() => {
            remove(&mut out, &["metadata", "annotations"], SELECTED_NODE);
        }
        "Secret" if text(obj, &["type"]) == "kubernetes.io/service-account-token" => {
            remove(&mut out, &["metadata", "annotations"], ACCOUNT_UID);
            if let Some(fields) = out.as_object_mut() {
                fields.insert("data".to_owned(), Value::Null);
            }
        }
        "Service" if text(obj, &["spec", "clusterIP"]) != "None" => {
            remove(&mut out, &["spec"], "clusterIP");
            remove(&mut out, &["spec"], "clusterIPs");
        }
        "ServiceAccount" => token_secrets(&mut out),
        _ => {}
    }
    Ok(out)
}

fn job(out: &mut Value, drop_ttl: bool) -> Result<(), InterpretError> {
    let mut batch = out.clone();
    batch["apiVersion"] = json!("batch/v1");
    schema::check(&batch)?;
    if drop_ttl {
        remove(out, &["spec"], "ttlSecondsAfterFinished");
    }
    if flag(out, &["spec", "manualSelector"]) {
        return Ok(());
    }
    for label in JOB_UIDS {
        remove(out, &["spec", "selector", "matchLabels"], label);
    }
    for label in JOB_LABELS {
        remove(out, &["spec", "template", "metadata", "labels"], label);
    }
    Ok(())
}

/// Removes the references to the token Secrets that the hub's token controller created.
fn token_secrets(out: &mut Value) {
    let prefix = format!("{}-token-", text(out, &["metadata", "name"]));
    if let Some(Value::Array(secrets)) = out.get_mut("secrets") {
        secrets.retain(|secret| !text(secret, &["name"]).starts_with(&prefix));
    }
}

fn annotation<'a>(obj: &'a Value, key: &str) -> &'a str {
    text(obj, &["metadata", "annotations", key])
}

/// Removes a field of the map at a path.
fn remove(obj: &mut Value, path: &[&str], field: &str) {
    let parent = path.iter().try_fold(obj, |here, name| here.get_mut(*name));
    if let Some(fields) = parent.and_then(Value::as_object_mut) {
        Map::remove(fields, field);
    }
}
