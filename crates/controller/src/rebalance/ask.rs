//! Asks for a new decision on one workload.

use atoll_api::binding::ResourceBindingSpec;
use atoll_api::names::binding_name;
use atoll_api::rebalancer::{RebalanceMode, WorkloadReference};
use atoll_api::{Clock, ClusterResourceBinding, ResourceBinding, marks};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, Patch};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::manager;
use crate::member::hub::{HubError, in_time};

/// The answer.
pub(super) enum Asked {
    /// A decision is asked for, or was since the request was made.
    Done,
    /// The workload has no binding.
    NoBinding,
    /// Its last decision is in the present second, so that a later time cannot be written yet.
    TooEarly,
    /// The hub did not answer, or the binding changed meanwhile.
    Again(HubError),
}

/// What of a binding matters here.
struct Held {
    metadata: ObjectMeta,
    asked: Option<Timestamp>,
    decided: Option<Timestamp>,
}

impl Held {
    fn of(metadata: &ObjectMeta, spec: &ResourceBindingSpec) -> Self {
        Self {
            metadata: metadata.clone(),
            asked: spec.reschedule_triggered_at.as_ref().map(|time| time.0),
            decided: spec.decision.as_ref().map(|decision| decision.at.0),
        }
    }
}

/// Asks for a new decision, unless one was asked for at `since` or later.
pub(super) async fn ask(
    client: &Client,
    clock: &Clock,
    workload: &WorkloadReference,
    since: Timestamp,
    mode: RebalanceMode,
) -> Asked {
    let name = binding_name(&workload.name, &workload.kind, workload.group());
    match &workload.namespace {
        Some(namespace) => {
            let api: Api<ResourceBinding> = Api::namespaced(client.clone(), namespace);
            let held = |binding: &ResourceBinding| Held::of(&binding.metadata, &binding.spec);
            stamp(&api, clock, &name, (since, mode), held).await
        }
        None => {
            let api: Api<ClusterResourceBinding> = Api::all(client.clone());
            let held =
                |binding: &ClusterResourceBinding| Held::of(&binding.metadata, &binding.spec);
            stamp(&api, clock, &name, (since, mode), held).await
        }
    }
}

async fn stamp<K>(
    api: &Api<K>,
    clock: &Clock,
    name: &str,
    (since, mode): (Timestamp, RebalanceMode),
    held: impl Fn(&K) -> Held,
) -> Asked
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let found = match in_time(api.get_opt(name)).await {
        Ok(Some(found)) => held(&found),
        Ok(None) => return Asked::NoBinding,
        Err(error) => return Asked::Again(error),
    };
    if found.metadata.deletion_timestamp.is_some() {
        return Asked::NoBinding;
    }
    if found.asked.is_some_and(|asked| asked >= since) {
        return Asked::Done;
    }
    let now = clock.now_seconds();
    if now < since || found.decided.is_some_and(|decided| decided >= now) {
        return Asked::TooEarly;
    }
    // A binding that changes meanwhile is read again: its new decision may be later.
    let patch = json!({
        "metadata": {"uid": found.metadata.uid, "resourceVersion": found.metadata.resource_version},
        "spec": {"rescheduleTriggeredAt": Time(now), "rescheduleMode": mode},
    });
    match in_time(api.patch(name, &manager::patch(marks::MANAGER), &Patch::Merge(patch))).await {
        Ok(_) => Asked::Done,
        Err(error) => Asked::Again(error),
    }
}
