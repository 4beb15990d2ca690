//! The events that could resolve a rejection. Only such an event requeues the binding.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::binding_key::BindingKey;
use crate::clusters::ClusterSet;
use crate::column::Column;
use atoll_api::binding::NodeClaim;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Amounts by resource, counted as in Kubernetes: `cpu` in thousandths, everything else in whole units.
pub type Amounts = BTreeMap<String, i64>;

/// An event that could change the outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "event")]
pub enum WakeCondition {
    /// Any cluster joins.
    ClusterJoins,
    /// One of the binding's target clusters leaves, is being deleted, loses its session, or changes its taints, labels
    /// or fields.
    TargetChanges {
        /// The clusters.
        clusters: ClusterSet,
    },
    /// Labels, fields or the deletion mark of any cluster change.
    LabelsChange,
    /// Taints or the session of any cluster change.
    TaintsChange,
    /// A cluster starts to serve the kind.
    ServesApi {
        /// group/version.
        api_version: String,
        /// Kind.
        kind: String,
    },
    /// One more replica fits on one of these clusters than at the decision.
    CapacityRises {
        /// The clusters.
        clusters: ClusterSet,
        /// Replicas that fitted at the decision, by cluster; `null` = unknown.
        had: Box<Column>,
        /// Requests of one replica.
        #[serde(default, skip_serializing_if = "Amounts::is_empty")]
        requests: Amounts,
        /// What one replica requires of its node.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<Box<NodeClaim>>,
    },
    /// A WorkloadPolicy is created, changed or deleted.
    WorkloadPolicyChanges {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The workload's WorkloadSpread is created, changed or deleted.
    WorkloadSpreadChanges {
        /// Namespace of the workload.
        namespace: String,
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// The ClusterSets that select a namespace change, or their clusters do.
    ClusterSetsChange {
        /// The namespace.
        namespace: String,
    },
    /// These amounts become free in the FederatedResourceQuotas of a namespace.
    QuotaFrees {
        /// The namespace.
        namespace: String,
        /// The amounts.
        amounts: Amounts,
    },
    /// The ResourceQuotas on one of these members leave these amounts to a namespace.
    MemberQuotaFrees {
        /// The members.
        clusters: ClusterSet,
        /// The namespace.
        namespace: String,
        /// The amounts.
        amounts: Amounts,
    },
    /// Another binding in the namespace with matching pods releases replicas.
    BindingShrinks {
        /// The namespace.
        namespace: String,
        /// Selects the pods that count.
        selector: LabelSelector,
        /// The waiting binding.
        except: BindingKey,
    },
    /// Workloads of a group for `placement.workloadAffinity` run on other clusters, join or leave the group.
    AffinityGroupChanges {
        /// The namespace.
        namespace: String,
        /// Key of the label that names the group.
        label: String,
        /// Its value.
        value: String,
        /// The waiting binding.
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
    /// A user edits the binding's policy or template. No other event helps.
    Edit {
        /// What to edit.
        field: String,
    },
}

impl WakeCondition {
    /// When to retry, if only time needs to pass.
    #[must_use]
    pub fn due(&self) -> Option<Timestamp> {
        match self {
            Self::TimePasses { at } => Some(*at),
            _ => None,
        }
    }
}
