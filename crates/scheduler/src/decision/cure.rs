//! What could cure a rejection. Only an event that does wakes the binding.

use serde::{Deserialize, Serialize};

use super::ClusterSet;
use super::column::Column;
use crate::key::BindingKey;
use crate::state::change::Change;
use crate::state::needs::{Amounts, Needs};
use atoll_api::binding::NodeClaim;
use atoll_api::selector::Selector;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

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
    /// Whether this event is the cure.
    #[must_use]
    pub fn is_met_by(&self, change: &Change) -> bool {
        match (self, change) {
            (Self::ClusterJoins, Change::ClusterJoined { .. }) => true,
            (Self::TargetChanges { clusters }, Change::ClusterLeft { cluster }) => {
                clusters.contains(cluster)
            }
            (
                Self::TargetChanges { clusters },
                Change::ClusterLabels { row } | Change::ClusterTaints { row },
            ) => clusters.contains(&row.name),
            (Self::LabelsChange, Change::ClusterLabels { .. })
            | (Self::TaintsChange, Change::ClusterTaints { .. }) => true,
            (Self::ServesApi { api_version, kind }, Change::ClusterApis { row }) => {
                row.apis.serves(api_version, kind)
            }
            (Self::CapacityRises { clusters, had, requests, node }, Change::Capacity { row }) => {
                let Some(at) = clusters.position(&row.name) else { return false };
                let needs = Needs {
                    requests: requests.clone(),
                    node: node.clone(),
                    given: !requests.is_empty() || node.is_some(),
                };
                let now = row.supply.estimate(&needs, &row.reserved).more;
                match (had.get(at), now) {
                    (Some(had), Some(now)) => now > had,
                    (had, now) => had != now,
                }
            }
            (
                Self::WorkloadPolicyChanges { namespace, name },
                Change::WorkloadPolicy { namespace: in_namespace, name: of },
            ) => namespace == in_namespace && name == of,
            (
                Self::WorkloadSpreadChanges { namespace, kind, name },
                Change::WorkloadSpread { namespace: in_namespace, target },
            ) => namespace == in_namespace && (kind, name) == (&target.0, &target.1),
            (
                Self::BindingShrinks { namespace, selector, except },
                Change::BindingShrank { key, pod_labels },
            ) => {
                key != except
                    && key.namespace.as_deref() == Some(namespace)
                    && Selector::parse(selector).is_ok_and(|s| s.matches(pod_labels))
            }
            _ => false,
        }
    }

    /// The time at which to look again, if time is the cure.
    #[must_use]
    pub fn due(&self) -> Option<Timestamp> {
        match self {
            Self::TimePasses { at } => Some(*at),
            _ => None,
        }
    }
}
