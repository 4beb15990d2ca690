//! Topics under which waiting bindings are filed, and topics of events.

use atoll_api::ClusterName;
use atoll_decision::ClusterSet;
use atoll_scheduler::{TableChange, WakeCondition};

use super::info::Urgency;
use super::wakes_on::WakesOn;

/// A condition that names more clusters than this is filed under the topic of all clusters: an entry in a thousand
/// lists for every waiting binding would cost more than checking it.
const WIDE: usize = 64;

/// What happened, at the precision of the look-up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    /// A cluster joined.
    Joins,
    /// Labels of any cluster.
    Labels,
    /// Taints or connection state of any cluster.
    Taints,
    /// This cluster changed or left; `None` = any.
    Cluster(Option<ClusterName>),
    /// This cluster may have more capacity; `None` = any.
    Capacity(Option<ClusterName>),
    /// A cluster serves this kind of group/version.
    Api(String, String),
    /// A WorkloadPolicy, by namespace and name.
    WorkloadPolicy(String, String),
    /// The WorkloadSpread of a workload, by namespace, kind and name.
    WorkloadSpread(String, String, String),
    /// The clusters that this namespace may use.
    ClusterSets(String),
    /// What the workloads of this namespace may use, or what they use.
    Quota(String),
    /// What ResourceQuotas on members leave to this namespace.
    MemberQuota(String),
    /// A binding of this namespace shrinks somewhere.
    Shrinks(Option<String>),
    /// A group for `placement.workloadAffinity`: namespace, label and value.
    AffinityGroup(String, String, String),
}

impl WakesOn for WakeCondition {
    type Change = TableChange;
    type Topic = Topic;

    fn topics(&self) -> Vec<Topic> {
        match self {
            Self::ClusterJoins => vec![Topic::Joins],
            Self::TargetChanges { clusters } => each(clusters, Topic::Cluster),
            Self::LabelsChange => vec![Topic::Labels],
            Self::TaintsChange => vec![Topic::Taints],
            Self::ServesApi { api_version, kind } => {
                vec![Topic::Api(api_version.clone(), kind.clone())]
            }
            Self::CapacityRises { clusters, .. } => each(clusters, Topic::Capacity),
            Self::WorkloadPolicyChanges { namespace, name } => {
                vec![Topic::WorkloadPolicy(namespace.clone(), name.clone())]
            }
            Self::WorkloadSpreadChanges { namespace, kind, name } => {
                vec![Topic::WorkloadSpread(namespace.clone(), kind.clone(), name.clone())]
            }
            Self::ClusterSetsChange { namespace } => vec![Topic::ClusterSets(namespace.clone())],
            Self::MemberQuotaFrees { namespace, .. } => {
                vec![Topic::MemberQuota(namespace.clone())]
            }
            Self::QuotaFrees { namespace, .. } => vec![Topic::Quota(namespace.clone())],
            Self::BindingShrinks { namespace, .. } => vec![Topic::Shrinks(Some(namespace.clone()))],
            Self::AffinityGroupChanges { namespace, label, value, .. } => {
                vec![Topic::AffinityGroup(namespace.clone(), label.clone(), value.clone())]
            }
            // Timers, reports and edits add these again.
            Self::TimePasses { .. } | Self::EvictionEnds { .. } | Self::Edit { .. } => Vec::new(),
        }
    }

    fn topics_of(change: &TableChange) -> Vec<Topic> {
        match change {
            TableChange::ClusterJoined { .. } => vec![Topic::Joins],
            TableChange::ClusterLeft { cluster } => both(cluster, Topic::Cluster),
            TableChange::ClusterLabels { row } => {
                let mut topics = both(&row.name, Topic::Cluster);
                topics.push(Topic::Labels);
                topics
            }
            TableChange::ClusterTaints { row } => {
                let mut topics = both(&row.name, Topic::Cluster);
                topics.push(Topic::Taints);
                topics
            }
            TableChange::ClusterApis { row } => {
                let served = row.apis.iter().map(|(gv, kind)| (gv.to_owned(), kind.to_owned()));
                served.map(|(api_version, kind)| Topic::Api(api_version, kind)).collect()
            }
            TableChange::Capacity { row } => both(&row.name, Topic::Capacity),
            TableChange::WorkloadPolicy { namespace, name } => {
                vec![Topic::WorkloadPolicy(namespace.clone(), name.clone())]
            }
            TableChange::WorkloadSpread { target } => {
                let namespace = target.namespace().unwrap_or_default().to_owned();
                let (kind, name) = (target.group_kind().kind.to_owned(), target.name().to_owned());
                vec![Topic::WorkloadSpread(namespace, kind, name)]
            }
            TableChange::AffinityGroup { key, group } => {
                let namespace = key.namespace().map(str::to_owned).unwrap_or_default();
                vec![Topic::AffinityGroup(namespace, group.label.clone(), group.value.clone())]
            }
            TableChange::ClusterSets { namespaces } => {
                namespaces.iter().cloned().map(Topic::ClusterSets).collect()
            }
            TableChange::MemberQuota { namespace, .. } => {
                vec![Topic::MemberQuota(namespace.clone())]
            }
            TableChange::Quota { namespace, freed: true, .. } => {
                vec![Topic::Quota(namespace.clone())]
            }
            TableChange::Quota { .. } => Vec::new(),
            // The victim is added to the queue by name.
            TableChange::Preempted { .. } => Vec::new(),
            TableChange::BindingShrank { key, .. } => {
                vec![Topic::Shrinks(key.namespace().map(str::to_owned))]
            }
        }
    }

    fn is_met_by(&self, change: &TableChange) -> bool {
        change.meets(self)
    }

    /// A change of a cluster on which the workload does not run can only allow something better, and may concern every
    /// workload.
    fn urgency(&self) -> Urgency {
        match self {
            Self::ClusterJoins
            | Self::LabelsChange
            | Self::TaintsChange
            | Self::ServesApi { .. }
            | Self::CapacityRises { .. } => Urgency::Later,
            _ => Urgency::Now,
        }
    }
}

/// The topics of a condition about these clusters.
fn each(clusters: &ClusterSet, topic: fn(Option<ClusterName>) -> Topic) -> Vec<Topic> {
    if clusters.len() > WIDE {
        return vec![topic(None)];
    }
    clusters.iter().map(|name| topic(Some(name.clone()))).collect()
}

/// The topics under which conditions about a cluster are filed.
fn both(cluster: &ClusterName, topic: fn(Option<ClusterName>) -> Topic) -> Vec<Topic> {
    vec![topic(Some(cluster.clone())), topic(None)]
}
