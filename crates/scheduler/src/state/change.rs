//! Events that could cure a rejection, as the tables report them to the queue.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::row::Row;
use crate::key::BindingKey;

/// Something changed that another decision may have waited for.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A cluster joined.
    ClusterJoined {
        /// The cluster.
        row: Arc<Row>,
    },
    /// A cluster left.
    ClusterLeft {
        /// Its name.
        cluster: Arc<str>,
    },
    /// Labels, provider, region, zones or the deletion mark of a cluster changed.
    ClusterLabels {
        /// The cluster as it is now.
        row: Arc<Row>,
    },
    /// Taints or the session of a cluster changed.
    ClusterTaints {
        /// The cluster as it is now.
        row: Arc<Row>,
    },
    /// A cluster serves other kinds than before.
    ClusterApis {
        /// The cluster as it is now.
        row: Arc<Row>,
    },
    /// A cluster may have more room than before.
    Capacity {
        /// The cluster as it is now.
        row: Arc<Row>,
    },
    /// A WorkloadPolicy came, changed or went.
    WorkloadPolicy {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A WorkloadSpread came, changed or went.
    WorkloadSpread {
        /// Its namespace.
        namespace: String,
        /// Kind and name of its target.
        target: (String, String),
    },
    /// A binding has fewer replicas somewhere than before, or other pod labels.
    BindingShrank {
        /// The binding.
        key: BindingKey,
        /// Labels that its pods had.
        pod_labels: Arc<BTreeMap<String, String>>,
    },
}
