//! The taints of a Cluster that follow from its member's health. Pure.

use atoll_api::{Cluster, marks};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::Instant;

use super::heartbeats::HealthState;
use super::times::HealthTimes;

/// The desired taints of ours. Existing ones keep `timeAdded`. While `frozen`, none is added.
pub(crate) fn taints(
    cluster: &Cluster,
    health: &HealthState,
    times: &HealthTimes,
    frozen: bool,
    now: (Instant, Timestamp),
) -> Vec<Taint> {
    let (key, since) = match health {
        HealthState::NotJoined { overdue: true } => (marks::TAINT_UNREACHABLE, None),
        HealthState::Lost { since } => (marks::TAINT_UNREACHABLE, Some(*since)),
        HealthState::ApiUnhealthy { since, .. } => (marks::TAINT_NOT_READY, Some(*since)),
        HealthState::NotJoined { overdue: false }
        | HealthState::Joining
        | HealthState::Healthy
        | HealthState::Disconnected => return keep_while_disconnected(cluster, health),
    };
    let evict =
        since.is_some_and(|since| now.0.saturating_duration_since(since) >= times.failover_after);
    let wanted = [Some("NoSchedule"), evict.then_some("NoExecute")];
    wanted
        .into_iter()
        .flatten()
        .filter_map(|effect| {
            let existing =
                managed(cluster).find(|taint| taint.key == key && taint.effect == effect).cloned();
            // A differently read clock does not revert an eviction that has begun.
            existing.or_else(|| (!frozen).then(|| taint(key, effect, now.1)))
        })
        .chain(begun(cluster, key, evict))
        .collect()
}

/// A `NoExecute` taint that another controller set for the same loss stays.
fn begun(cluster: &Cluster, key: &str, evict: bool) -> Option<Taint> {
    managed(cluster)
        .find(|taint| !evict && taint.key == key && taint.effect == "NoExecute")
        .cloned()
}

/// Without a session the member's state is unknown, so the Cluster's taints stay; with one, they are removed.
fn keep_while_disconnected(cluster: &Cluster, health: &HealthState) -> Vec<Taint> {
    match health {
        HealthState::Disconnected | HealthState::NotJoined { .. } => {
            managed(cluster).cloned().collect()
        }
        _ => Vec::new(),
    }
}

/// The taints of a Cluster that this module manages.
pub(crate) fn managed(cluster: &Cluster) -> impl Iterator<Item = &Taint> {
    cluster.spec.taints.iter().filter(|taint| {
        taint.key == marks::TAINT_UNREACHABLE || taint.key == marks::TAINT_NOT_READY
    })
}

pub(super) fn taint(key: &str, effect: &str, now: Timestamp) -> Taint {
    Taint {
        key: key.to_owned(),
        effect: effect.to_owned(),
        value: None,
        time_added: Some(Time(seconds(now))),
    }
}

/// Kubernetes writes times in whole seconds.
pub(super) fn seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}
