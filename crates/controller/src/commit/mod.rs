//! Makes a decision durable: one write to the main resource of a binding, with a definite result.
//!
//! A write is guarded: a create by the name, a patch by the resourceVersion, a delete by uid. When the hub's reply is
//! lost, or reports a conflict, the object is read and the id of its decision compared: a write that arrived counts,
//! even if its reply was lost. [`draft`] computes what to write; the leader decides when.

pub(crate) mod diff;
pub(crate) mod draft;
pub(crate) mod outbox;

use std::time::Duration;

use atoll_api::{BindingUid, ClusterResourceBinding, DecisionId, ResourceBinding, marks};
use kube::api::{Api, ApiResource, DeleteParams, Patch, Preconditions};
use kube::core::Request;
use kube::{Client, Error, Resource};
use serde_json::Value;

use crate::index::binding_object::BindingObject;
use crate::index::key::BindingKey;
use crate::index::rows::Binding;
use crate::manager;

/// Limit of one request to the hub.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// The change to write.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Create the binding.
    Create(Value),
    /// A merge patch that includes the expected resourceVersion.
    Patch(Value),
    /// Delete the binding.
    Delete {
        /// uid of the binding.
        uid: BindingUid,
    },
}

/// One write to a binding.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// The binding to write.
    pub key: BindingKey,
    /// The change.
    pub action: Action,
    /// id of the decision in this write, by which it is recognised; `None` for a write without a new decision.
    pub decision: Option<DecisionId>,
}

/// Result of a write. Only [`Ended::Written`] made anything durable.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// The hub stored it; this is the resulting object.
    Written(BindingObject),
    /// The binding was changed meanwhile: decide again from its current state.
    Conflict,
    /// The binding does not exist (any more).
    Gone,
    /// A plugin blocked it, and why: nothing was written.
    Held(String),
    /// The hub rejects it permanently in this form.
    Refused(String),
    /// The write is known not to have arrived (yet), and why; or the result is unknown because the hub is unreachable.
    Unanswered(String),
}

impl Ended {
    /// Name for metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Written(_) => "written",
            Self::Conflict => "conflict",
            Self::Gone => "gone",
            Self::Held(_) => "held",
            Self::Refused(_) => "refused",
            Self::Unanswered(_) => "unanswered",
        }
    }
}

/// The API of the bindings of one scope and namespace.
pub(crate) fn api(client: &Client, key: &BindingKey) -> Api<BindingObject> {
    match key.namespace() {
        Some(namespace) => Api::namespaced_with(
            client.clone(),
            namespace,
            &ApiResource::erase::<ResourceBinding>(&()),
        ),
        None => Api::all_with(client.clone(), &ApiResource::erase::<ClusterResourceBinding>(&())),
    }
}

/// Performs a write.
pub(crate) async fn perform(client: &Client, write: &Write) -> Ended {
    let api = api(client, &write.key);
    let attempt = async {
        match &write.action {
            Action::Create(body) => {
                let body = serde_json::to_vec(body).map_err(Error::SerdeError)?;
                let request = Request::new(api.resource_url())
                    .create(&manager::create(marks::MANAGER), body)
                    .map_err(Error::BuildRequest)?;
                client.request(request).await.map(Some)
            }
            Action::Patch(body) => {
                let params = manager::patch(marks::MANAGER);
                api.patch(write.key.name(), &params, &Patch::Merge(body)).await.map(Some)
            }
            Action::Delete { uid } => {
                let params = DeleteParams {
                    preconditions: Some(Preconditions {
                        uid: Some(uid.into()),
                        resource_version: None,
                    }),
                    ..DeleteParams::default()
                };
                let deleted = api.delete(write.key.name(), &params).await?;
                Ok(deleted.left())
            }
        }
    };
    match tokio::time::timeout(TIMEOUT, attempt).await {
        Ok(Ok(Some(object))) => Ended::Written(object),
        Ok(Ok(None)) => Ended::Gone,
        Ok(Err(Error::Api(status))) if status.is_already_exists() => {
            look(&api, write, Ended::Conflict).await
        }
        Ok(Err(Error::Api(status))) if status.is_conflict() => Ended::Conflict,
        Ok(Err(Error::Api(status))) if status.is_not_found() && status.reason == "NotFound" => {
            match write.action {
                // The namespace is gone: nothing can be created in it.
                Action::Create(_) => Ended::Refused(status.message),
                Action::Patch(_) | Action::Delete { .. } => Ended::Gone,
            }
        }
        Ok(Err(Error::Api(status))) if is_final(status.code) => Ended::Refused(status.message),
        Ok(Err(error)) => {
            let why = error.to_string();
            look(&api, write, Ended::Unanswered(why)).await
        }
        Err(_) => {
            look(
                &api,
                write,
                Ended::Unanswered(format!("no answer from the hub within {TIMEOUT:?}")),
            )
            .await
        }
    }
}

/// The hub's current version of the binding; `None` if it does not answer.
pub(crate) async fn read(client: &Client, key: &BindingKey) -> Option<BindingObject> {
    get(client, key).await.ok()?
}

/// The hub's current version of the binding; `None` if there is none.
///
/// # Errors
/// When the hub does not answer, and why.
pub(crate) async fn get(
    client: &Client,
    key: &BindingKey,
) -> Result<Option<BindingObject>, String> {
    match tokio::time::timeout(TIMEOUT, api(client, key).get_opt(key.name())).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {TIMEOUT:?}")),
    }
}

/// Whether the API server will reject the same request again.
fn is_final(code: u16) -> bool {
    (400..500).contains(&code) && !matches!(code, 408 | 429)
}

/// The reply was lost or the name is taken: check whether the existing object is what we wrote.
async fn look(api: &Api<BindingObject>, write: &Write, otherwise: Ended) -> Ended {
    let found = match tokio::time::timeout(TIMEOUT, api.get_opt(write.key.name())).await {
        Ok(Ok(found)) => found,
        Ok(Err(_)) | Err(_) => return otherwise,
    };
    let Some(found) = found else {
        return match write.action {
            Action::Create(_) => otherwise,
            Action::Patch(_) | Action::Delete { .. } => Ended::Gone,
        };
    };
    let ours = match (&write.action, found.row()) {
        (Action::Delete { uid }, _) if found.meta().uid.as_deref() != Some(&**uid) => {
            return Ended::Gone;
        }
        (Action::Delete { .. }, row) => row.is_ok_and(Binding::deleting),
        (Action::Create(_) | Action::Patch(_), row) => {
            let held = row.ok().and_then(Binding::decision_id);
            write.decision.is_some() && held == write.decision.as_deref()
        }
    };
    if ours { Ended::Written(found) } else { otherwise }
}

#[cfg(test)]
mod tests;
