//! Carries writes out against the member's API server.

use std::time::Duration;

use kube::Resource;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{DynamicObject, Request, Status};
use serde_json::{Value, json};

use super::{Target, Write, Writer};
use crate::index::kind::Kind;
use crate::index::object::Object;

/// Timeout of one call. An API server in the same process answers in well under a millisecond; an overloaded one within
/// a second.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The server's answer to a write.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The current object.
    Is(Box<Object>),
    /// The object is gone.
    Gone,
    /// Done, but the answer does not contain the object: the watch will deliver it.
    Done,
}

/// Why a write did not happen, or may not have.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The server refused it.
    #[error("refused with {code} {reason}: {message}")]
    Refused { code: u16, reason: String, message: String },
    /// No answer within [`CALL_TIMEOUT`].
    #[error("no answer within {} s", CALL_TIMEOUT.as_secs())]
    Timeout,
    /// The call failed on the way.
    #[error("call the API server")]
    Call(#[source] Box<kube::Error>),
    /// The request could not be built from the object's name or content.
    #[error("build the request")]
    Build(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl WriteError {
    /// Whether the object has changed or is gone since the last event: the next event is on its way.
    pub(crate) fn is_race(&self) -> bool {
        matches!(self, Self::Refused { code: 404 | 409, .. })
    }
}

/// Carries out one write.
pub(crate) async fn execute(
    client: &kube::Client,
    write: &Write,
    writer: Writer,
) -> Result<Answer, WriteError> {
    tokio::time::timeout(CALL_TIMEOUT, call(client, write, writer))
        .await
        .map_err(|_| WriteError::Timeout)?
}

async fn call(client: &kube::Client, write: &Write, writer: Writer) -> Result<Answer, WriteError> {
    let manager = writer.field_manager();
    let requests = Request::new(collection(write.kind(), &write.key().namespace));
    let patch_params =
        PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    let post_params =
        PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
    let request = match write {
        Write::Create { object, .. } => requests.create(&post_params, bytes(object)?),
        Write::Patch { target, patch } => {
            requests.patch(&target.key.name, &patch_params, &Patch::Merge(guarded(target, patch)))
        }
        Write::PatchStatus { target, patch } => requests.patch_subresource(
            "status",
            &target.key.name,
            &patch_params,
            &Patch::Merge(guarded(target, patch)),
        ),
        Write::Bind { target, node } => requests.create_subresource(
            "binding",
            &target.key.name,
            &post_params,
            bytes(&binding(target, node))?,
        ),
        Write::Delete { target, grace } => {
            let preconditions =
                Preconditions { uid: Some(target.uid.clone()), resource_version: None };
            let params = DeleteParams {
                grace_period_seconds: *grace,
                preconditions: Some(preconditions),
                ..DeleteParams::background()
            };
            requests.delete(&target.key.name, &params)
        }
    }
    .map_err(|error| WriteError::Build(Box::new(error)))?;
    let answer: Value = client.request(request).await.map_err(refused)?;
    Ok(read_answer(write, answer))
}

/// The patch with the uid and resourceVersion that it was computed for.
fn guarded(target: &Target, patch: &Value) -> Value {
    let mut patch = patch.clone();
    patch["metadata"]["uid"] = json!(target.uid);
    patch["metadata"]["resourceVersion"] = json!(target.version.to_string());
    patch
}

fn binding(target: &Target, node: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": target.key.name, "namespace": target.key.namespace, "uid": target.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    })
}

fn collection(kind: Kind, namespace: &str) -> String {
    let namespace = kind.namespaced().then_some(namespace);
    DynamicObject::url_path(&kind.api_resource(), namespace)
}

fn bytes(value: &Value) -> Result<Vec<u8>, WriteError> {
    serde_json::to_vec(value).map_err(|error| WriteError::Build(Box::new(error)))
}

fn refused(error: kube::Error) -> WriteError {
    match error {
        kube::Error::Api(status) => {
            let Status { code, reason, message, .. } = *status;
            WriteError::Refused { code, reason, message }
        }
        error => WriteError::Call(Box::new(error)),
    }
}

/// Parses an answer: the object, or a `Status` without one.
fn read_answer(write: &Write, answer: Value) -> Answer {
    let deleted = matches!(write, Write::Delete { .. });
    if answer.get("kind").and_then(Value::as_str) != Some(write.kind().name()) {
        return if deleted { Answer::Gone } else { Answer::Done };
    }
    let Ok(object) = serde_json::from_value::<DynamicObject>(answer) else {
        return Answer::Done;
    };
    let object = Object::new(write.kind(), object);
    // A delete returns the object even if it is gone, unless a grace period or a finalizer still holds it.
    let held = object.meta.deletion_grace_period_seconds.unwrap_or(0) > 0
        || object.meta.finalizers.iter().flatten().next().is_some();
    if !held && (deleted || object.is_deleting()) {
        Answer::Gone
    } else {
        Answer::Is(Box::new(object))
    }
}
