//! When a changed status of a Cluster is worth a write. Pure.

use std::time::Duration;

use atoll_api::cluster::{ClusterStatus, ResourceSummary};
use atoll_api::conditions::{self, LEAVING};
use atoll_api::quantity::ResourceList;

use super::conditions::INVENTORY_INCOMPLETE;
use super::terms;
use super::times::HealthTimes;

/// A figure that changed by more than this percentage of the capacity is written at once.
const NOTABLE_PERCENT: i128 = 5;

/// Interval of progress updates while a member is being emptied.
const EMPTYING: Duration = Duration::from_secs(10);

/// Whether `new` should be written now over `old`, given the time since the last write.
pub(crate) fn is_due(
    old: &ClusterStatus,
    new: &ClusterStatus,
    age: Duration,
    times: &HealthTimes,
) -> bool {
    if old == new {
        return false;
    }
    let brief = |status: &ClusterStatus| {
        status
            .conditions
            .iter()
            .map(|c| {
                // Users watch a departure, and which kinds cannot be listed.
                let shown = [LEAVING, INVENTORY_INCOMPLETE].contains(&c.type_.as_str())
                    || terms::CONDITIONS.contains(&c.type_.as_str());
                let message = shown.then(|| c.message.clone());
                (c.type_.clone(), c.status.clone(), c.reason.clone(), message)
            })
            .collect::<Vec<_>>()
    };
    let orphans = |status: &ClusterStatus| status.orphans.unwrap_or_default();
    let resources = |status: &ClusterStatus| status.resource_summary.clone().unwrap_or_default();
    let held = |status: &ClusterStatus| status.removals_held.unwrap_or_default();
    let emptied = |status: &ClusterStatus| {
        conditions::find(&status.conditions, conditions::EMPTIED).map(|held| held.message.clone())
    };
    age >= times.status_interval
        || (age >= EMPTYING && (emptied(old) != emptied(new) || held(old) != held(new)))
        || brief(old) != brief(new)
        || (&old.state, &old.reason) != (&new.state, &new.reason)
        || old.cluster_id != new.cluster_id
        || old.kubernetes_version != new.kubernetes_version
        || old.api_enablements != new.api_enablements
        || old.node_summary != new.node_summary
        || old.session != new.session
        || old.revocation != new.revocation
        || old.taints_since != new.taints_since
        || old.free_pods.is_some() != new.free_pods.is_some()
        || (new.free_pods == Some(0)) != (old.free_pods == Some(0))
        || orphans(old) != orphans(new)
        || old.orphaned_objects != new.orphaned_objects
        || old.resource_summary.is_some() != new.resource_summary.is_some()
        || is_notable(&resources(old), &resources(new))
}

/// Whether a sum changed by more than a twentieth of the resource's capacity.
fn is_notable(old: &ResourceSummary, new: &ResourceSummary) -> bool {
    let value = |list: &ResourceList, name: &str| {
        list.get(name).and_then(|quantity| quantity.milli().ok()).unwrap_or_default()
    };
    let lists = |summary: &ResourceSummary| {
        [summary.allocatable.clone(), summary.allocated.clone(), summary.allocating.clone()]
    };
    lists(old).iter().zip(&lists(new)).any(|(before, after)| {
        before.keys().chain(after.keys()).any(|name| {
            let room = value(&old.allocatable, name).max(value(&new.allocatable, name));
            let change = (value(before, name) - value(after, name)).abs();
            change > 0 && change * 100 > room * NOTABLE_PERCENT
        })
    })
}
