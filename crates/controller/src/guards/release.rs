//! Writes a release to the guards of a plan, before any of its bindings moves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use atoll_api::change_guard::ReleasedPlan;
use atoll_api::{ChangeGuard, marks};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use kube::api::{Api, ApiResource, Patch};
use serde_json::{Value, json};

use crate::index::Index;
use crate::index::guard_rules::Guard;
use crate::index::received::{Received, Reply};
use crate::manager;
use crate::object::Object;

/// Limit of one write.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A plan that fits its guards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Release {
    pub(crate) plan: String,
    pub(crate) since: Timestamp,
    /// Replicas and workloads that count for each guard.
    pub(crate) counts: BTreeMap<String, (i64, i64)>,
}

/// One write of a release.
pub(crate) struct GuardWrite {
    name: String,
    patch: Value,
}

/// The result of a release: the guards that were written, and whether all were.
pub(crate) struct Released {
    pub(crate) plan: String,
    pub(crate) objects: Vec<Received>,
    pub(crate) complete: bool,
}

/// The writes of a release. Each is guarded by the version on which the comparison was based, so that no two leaders use
/// the same room.
pub(crate) fn writes(index: &Index, release: &Release, now: Timestamp) -> Vec<GuardWrite> {
    let at = after(release.since, now);
    let rows =
        release.counts.iter().filter_map(|(name, counts)| Some((index.guard(name)?, counts)));
    let write = |(guard, (replicas, workloads)): (&Arc<Guard>, &(i64, i64))| {
        let mut released = guard.released().to_vec();
        // A guard that was written before another one failed.
        let partial = |one: &ReleasedPlan| {
            one.plan == release.plan && one.by.is_none() && one.at.0 > release.since
        };
        released.retain(|one| !partial(one));
        released.push(ReleasedPlan {
            plan: release.plan.clone(),
            by: None,
            at: Time(at),
            replicas: *replicas,
            workloads: *workloads,
        });
        let metadata = &guard.object.metadata;
        GuardWrite {
            name: metadata.name.clone().unwrap_or_default(),
            patch: json!({
                "metadata": {"resourceVersion": metadata.resource_version, "uid": metadata.uid},
                "status": {"released": released},
            }),
        }
    };
    rows.map(write).collect()
}

/// The time of a release: after the plan began to wait, whatever the clocks of controllers say.
pub(super) fn after(since: Timestamp, now: Timestamp) -> Timestamp {
    let soonest = since.checked_add(SignedDuration::from_secs(1)).unwrap_or(since);
    now.max(soonest)
}

/// Writes one guard after the other. If one fails, those before it count too much until the plan is compared again.
pub(crate) async fn perform(client: Client, plan: String, writes: Vec<GuardWrite>) -> Released {
    let resource = ApiResource::erase::<ChangeGuard>(&());
    let api: Api<Object> = Api::all_with(client, &resource);
    let mut objects = Vec::new();
    for write in &writes {
        let (params, patch) = (manager::patch(marks::MANAGER_STATUS), Patch::Merge(&write.patch));
        let request = api.patch_status(&write.name, &params, &patch);
        match tokio::time::timeout(TIMEOUT, request).await {
            Ok(Ok(object)) => objects.push(object.received(&resource)),
            Ok(Err(error)) => {
                tracing::debug!(plan, guard = write.name, %error, "the release was not written");
                break;
            }
            Err(_) => break,
        }
    }
    let complete = objects.len() == writes.len();
    Released { plan, objects, complete }
}
