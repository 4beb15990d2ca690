//! The status of ClusterSets.

use std::collections::BTreeMap;

use atoll_api::ClusterSet;
use atoll_api::cluster_set::ClusterSetStatus;
use atoll_api::conditions::{self, ACCEPTED, Status};
use jiff::Timestamp;

use crate::index::Index;

/// The desired status of a ClusterSet.
#[must_use]
pub(crate) fn status(
    index: &Index,
    name: &str,
    set: &ClusterSet,
    now: Timestamp,
) -> ClusterSetStatus {
    let before = set.status.clone().unwrap_or_default();
    let generation = set.metadata.generation;
    let rules = index.cluster_rules();
    let no_labels = BTreeMap::new();
    let clusters = index.clusters().filter(|(_, cluster)| {
        rules.has_cluster(name, cluster.metadata.labels.as_ref().unwrap_or(&no_labels))
    });
    let mut conditions = before.conditions;
    let (holds, reason, message) = match rules.problem(name) {
        None => (Status::True, "Accepted", ""),
        Some(problem) => (Status::False, "Invalid", problem),
    };
    conditions::set(&mut conditions, ACCEPTED, holds, reason, message, generation, now);
    ClusterSetStatus {
        observed_generation: generation,
        conditions,
        namespaces: rules.namespaces_of(name) as i64,
        clusters: clusters.count() as i64,
    }
}
