//! What could cure a rejection. Only an event that does wakes the binding.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::binding_key::BindingKey;
use crate::clusters::ClusterSet;
use crate::column::Column;
use atoll_api::binding::NodeClaim;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Amounts by resource: `cpu` in thousandths, everything else in whole units, as Kubernetes counts them.
pub type Amounts = BTreeMap<String, i64>;

/// One event that would change an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "event")]
pub enum Cure {
    /// Any cluster joins.
    ClusterJoins,
    /// One of these clusters, where the binding runs, leaves, is being deleted, loses its session, or changes its taints,
    /// labels or fields.
    TargetChanges {
        /// The clusters.
        clusters: ClusterSet,
    },
    /// Labels, fields or the deletion mark of any cluster change.
    LabelsChange,
    /// Taints or the session of any cluster change.
    TaintsChange,
    /// A cluster serves the kind.
    ServesApi {
        /// group/version.
        api_version: String,
        /// Kind.
        kind: String,
    },
    /// One more replica fits on one of these clusters than did.
    CapacityRises {
        /// The clusters.
        clusters: ClusterSet,
        /// Replicas that fitted, by cluster; `null` = unknown.
        had: Column,
        /// Requests of one replica.
        #[serde(default, skip_serializing_if = "Amounts::is_empty")]
        requests: Amounts,
        /// What its node must be like.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<NodeClaim>,
    },
    /// A WorkloadPolicy comes, changes or goes.
    WorkloadPolicyChanges {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The workload's WorkloadSpread comes, changes or goes.
    WorkloadSpreadChanges {
        /// Namespace of the workload.
        namespace: String,
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// Another binding of the namespace whose pods match gives replicas up.
    BindingShrinks {
        /// The namespace.
        namespace: String,
        /// Which pods count.
        selector: LabelSelector,
        /// The binding that waits.
        except: BindingKey,
    },
    /// A time passes.
    TimePasses {
        /// The time.
        at: Timestamp,
    },
    /// An eviction task ends: a member confirms that it removed the binding.
    EvictionEnds {
        /// The clusters.
        clusters: ClusterSet,
    },
    /// Somebody edits the binding's policy or template: nothing else helps.
    Edit {
        /// What to edit.
        field: String,
    },
}

impl Cure {
    /// The time at which to look again, if time is the cure.
    #[must_use]
    pub fn due(&self) -> Option<Timestamp> {
        match self {
            Self::TimePasses { at } => Some(*at),
            _ => None,
        }
    }
}
