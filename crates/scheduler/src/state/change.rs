//! Changes of the tables that waiting bindings may be retried for.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::affinity_group::AffinityGroup;
use super::row::Row;
use crate::detect::TemplateKey;
use atoll_api::selector::Selector;
use atoll_api::{ClusterName, PodLabels};
use atoll_decision::{BindingKey, WakeCondition};

use super::needs::{Amounts, Needs};
use super::quotas::Sums;

/// A change of the tables that a wake condition may wait for.
#[derive(Debug, Clone, PartialEq)]
pub enum TableChange {
    /// A cluster joined.
    ClusterJoined {
        /// The cluster.
        row: Arc<Row>,
    },
    /// A cluster left.
    ClusterLeft {
        /// Its name.
        cluster: ClusterName,
    },
    /// Labels, provider, region, zones or the deletion mark of a cluster changed.
    ClusterLabels {
        /// The cluster after the change.
        row: Arc<Row>,
    },
    /// Taints or the session of a cluster changed.
    ClusterTaints {
        /// The cluster after the change.
        row: Arc<Row>,
    },
    /// The kinds that a cluster serves changed.
    ClusterApis {
        /// The cluster after the change.
        row: Arc<Row>,
    },
    /// The capacity of a cluster may have risen.
    Capacity {
        /// The cluster after the change.
        row: Arc<Row>,
    },
    /// A WorkloadPolicy was created, changed or deleted.
    WorkloadPolicy {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A WorkloadSpread was created, changed or deleted.
    WorkloadSpread {
        /// Its target.
        target: TemplateKey,
    },
    /// The members of a group for `placement.workloadAffinity`, or the clusters of one, changed.
    AffinityGroup {
        /// The member that changed.
        key: BindingKey,
        /// The group.
        group: AffinityGroup,
    },
    /// Namespaces may use other clusters than before.
    ClusterSets {
        /// The namespaces.
        namespaces: BTreeSet<String>,
    },
    /// The FederatedResourceQuotas of a namespace changed, or what its workloads use.
    Quota {
        /// The namespace.
        namespace: String,
        /// What is left of the limited resources.
        free: Sums,
        /// Whether more may be left than before.
        freed: bool,
    },
    /// A committed decision took room from a binding of lower priority: it must be decided again.
    Preempted {
        /// The binding.
        victim: BindingKey,
    },
    /// What the ResourceQuotas on a member leave to a namespace changed.
    MemberQuota {
        /// The member.
        cluster: ClusterName,
        /// The namespace.
        namespace: String,
        /// What is left of the limited resources.
        free: Amounts,
    },
    /// A binding lost replicas on some cluster, or its pod labels changed.
    BindingShrank {
        /// The binding.
        key: BindingKey,
        /// Labels of its pods before the change.
        pod_labels: Arc<PodLabels>,
    },
}

impl TableChange {
    /// Whether this event meets the condition, so that the decision must be made again.
    #[must_use]
    pub fn meets(&self, condition: &WakeCondition) -> bool {
        match (condition, self) {
            (WakeCondition::ClusterJoins, Self::ClusterJoined { .. }) => true,
            (WakeCondition::TargetChanges { clusters }, Self::ClusterLeft { cluster }) => {
                clusters.contains(cluster)
            }
            (
                WakeCondition::TargetChanges { clusters },
                Self::ClusterLabels { row } | Self::ClusterTaints { row },
            ) => clusters.contains(&row.name),
            (WakeCondition::LabelsChange, Self::ClusterLabels { .. })
            | (WakeCondition::TaintsChange, Self::ClusterTaints { .. }) => true,
            (WakeCondition::ServesApi { api_version, kind }, Self::ClusterApis { row }) => {
                row.apis.serves(api_version, kind)
            }
            (
                WakeCondition::CapacityRises { clusters, had, requests, node },
                Self::Capacity { row },
            ) => {
                let Some(at) = clusters.position(&row.name) else { return false };
                let needs = Needs {
                    requests: requests.clone(),
                    node: node.as_deref().cloned(),
                    given: !requests.is_empty() || node.is_some(),
                };
                let now = row.supply.estimate(&needs, &row.reserved).more;
                match (had.get(at), now) {
                    (Some(had), Some(now)) => now > had,
                    (had, now) => had != now,
                }
            }
            (
                WakeCondition::WorkloadPolicyChanges { namespace, name },
                Self::WorkloadPolicy { namespace: in_namespace, name: of },
            ) => namespace == in_namespace && name == of,
            (
                WakeCondition::WorkloadSpreadChanges { namespace, kind, name },
                Self::WorkloadSpread { target },
            ) => {
                let of = (target.namespace(), target.group_kind().kind, target.name());
                (Some(namespace.as_str()), kind.as_str(), name.as_str()) == of
            }
            (WakeCondition::ClusterSetsChange { namespace }, Self::ClusterSets { namespaces }) => {
                namespaces.contains(namespace)
            }
            (
                WakeCondition::QuotaFrees { namespace, amounts },
                Self::Quota { namespace: of, free, .. },
            ) => {
                let fits = |(resource, amount): (&String, &i64)| {
                    free.get(resource).is_none_or(|free| *free >= i128::from(*amount))
                };
                namespace == of && amounts.iter().all(fits)
            }
            (
                WakeCondition::MemberQuotaFrees { clusters, namespace, amounts },
                Self::MemberQuota { cluster, namespace: of, free },
            ) => {
                let fits = |(resource, amount): (&String, &i64)| {
                    free.get(resource).is_none_or(|free| free >= amount)
                };
                namespace == of && clusters.contains(cluster) && amounts.iter().all(fits)
            }
            (
                WakeCondition::BindingShrinks { namespace, selector, except },
                Self::BindingShrank { key, pod_labels },
            ) => {
                key != except
                    && key.namespace() == Some(namespace)
                    && Selector::parse(selector).is_ok_and(|s| s.matches(pod_labels))
            }
            (
                WakeCondition::AffinityGroupChanges { namespace, label, value, except },
                Self::AffinityGroup { key, group },
            ) => {
                key != except
                    && key.namespace() == Some(namespace)
                    && (label, value) == (&group.label, &group.value)
            }
            _ => false,
        }
    }
}
