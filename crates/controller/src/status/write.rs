//! Writes a status: a merge patch of the differences, without a precondition, so that it never conflicts with users'
//! edits. The number of replicas of a template is written in the same way, but with a precondition.

use std::time::Duration;

use atoll_api::marks;
use kube::Client;
use kube::api::{Api, ApiResource, Patch};
use serde_json::{Value, json};

use crate::commit::diff::merge_patch;
use crate::index::received::{Received, Reply};
use crate::manager;

/// Limit of one write.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The object to write to.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// Its kind.
    pub resource: ApiResource,
    /// Absent for cluster-scoped objects.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// What of the object is written.
    pub part: Part,
}

/// A subresource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Its status.
    Status,
    /// Its number of replicas.
    Scale,
}

/// Why a status was not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// For the log.
    pub message: String,
    /// Whether a retry may help.
    pub again: bool,
}

/// The merge patch between two statuses; `None` if they are equal.
#[must_use]
pub(crate) fn patch(before: &Value, after: &Value) -> Option<Value> {
    let empty = json!({});
    let before = if before.is_object() { before } else { &empty };
    Some(json!({"status": merge_patch(before, after)?}))
}

/// Writes the patch.
///
/// # Errors
/// The hub's error, or a time-out.
pub(crate) async fn write<K: Reply>(
    client: &Client,
    target: &Target,
    patch: &Value,
) -> Result<Received, Failure> {
    let api: Api<K> = match &target.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &target.resource),
        None => Api::all_with(client.clone(), &target.resource),
    };
    let (part, manager) = match target.part {
        Part::Status => ("status", marks::MANAGER_STATUS),
        Part::Scale => ("scale", marks::MANAGER_REPLICAS),
    };
    let params = manager::patch(manager);
    let patch = Patch::Merge(patch);
    let request = api.patch_subresource(part, &target.name, &params, &patch);
    let failure = |message: String, again| Failure { message, again };
    match tokio::time::timeout(TIMEOUT, request).await {
        Ok(Ok(object)) => Ok(object.received(&target.resource)),
        Ok(Err(error)) => {
            // An object that is gone, and a kind without a status, will reject later writes too.
            let final_word = matches!(
                &error,
                kube::Error::Api(status) if (400..500).contains(&status.code)
                    && !matches!(status.code, 409 | 429)
            );
            Err(failure(error.to_string(), !final_word))
        }
        Err(_) => Err(failure(format!("no answer from the hub within {TIMEOUT:?}"), true)),
    }
}
