//! The kinds that a World watches.

/// A kind and how to request it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// For example `apps/v1`.
    pub api_version: &'static str,
    /// For example `Deployment`.
    pub kind: &'static str,
    /// For example `deployments`.
    pub plural: &'static str,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
}

const fn namespaced(api_version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { api_version, kind, plural, namespaced: true }
}

const fn cluster(api_version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { api_version, kind, plural, namespaced: false }
}

/// Namespace.
pub const NAMESPACE: Kind = cluster("v1", "Namespace", "namespaces");
/// ConfigMap.
pub const CONFIG_MAP: Kind = namespaced("v1", "ConfigMap", "configmaps");
/// Secret. Its data are not kept: keys and certificates are random in every run.
pub const SECRET: Kind = namespaced("v1", "Secret", "secrets");
/// Event.
pub const EVENT: Kind = namespaced("v1", "Event", "events");
/// ResourceQuota.
pub const RESOURCE_QUOTA: Kind = namespaced("v1", "ResourceQuota", "resourcequotas");
/// Node.
pub const NODE: Kind = cluster("v1", "Node", "nodes");
/// Pod.
pub const POD: Kind = namespaced("v1", "Pod", "pods");
/// Lease.
pub const LEASE: Kind = namespaced("coordination.k8s.io/v1", "Lease", "leases");
/// Deployment.
pub const DEPLOYMENT: Kind = namespaced("apps/v1", "Deployment", "deployments");
/// ReplicaSet.
pub const REPLICA_SET: Kind = namespaced("apps/v1", "ReplicaSet", "replicasets");
/// StatefulSet.
pub const STATEFUL_SET: Kind = namespaced("apps/v1", "StatefulSet", "statefulsets");
/// DaemonSet.
pub const DAEMON_SET: Kind = namespaced("apps/v1", "DaemonSet", "daemonsets");
/// Job.
pub const JOB: Kind = namespaced("batch/v1", "Job", "jobs");
/// Cluster.
pub const CLUSTER: Kind = cluster("cluster.atoll.dev/v1alpha1", "Cluster", "clusters");
/// PropagationPolicy.
pub const PROPAGATION_POLICY: Kind =
    namespaced("policy.atoll.dev/v1alpha1", "PropagationPolicy", "propagationpolicies");
/// ClusterPropagationPolicy.
pub const CLUSTER_PROPAGATION_POLICY: Kind =
    cluster("policy.atoll.dev/v1alpha1", "ClusterPropagationPolicy", "clusterpropagationpolicies");
/// OverridePolicy.
pub const OVERRIDE_POLICY: Kind =
    namespaced("policy.atoll.dev/v1alpha1", "OverridePolicy", "overridepolicies");
/// WorkloadPolicy.
pub const WORKLOAD_POLICY: Kind =
    namespaced("policy.atoll.dev/v1alpha1", "WorkloadPolicy", "workloadpolicies");
/// WorkloadSpread.
pub const WORKLOAD_SPREAD: Kind =
    namespaced("policy.atoll.dev/v1alpha1", "WorkloadSpread", "workloadspreads");
/// PriorityClass.
pub const PRIORITY_CLASS: Kind =
    cluster("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses");
/// FederatedResourceQuota.
pub const FEDERATED_RESOURCE_QUOTA: Kind =
    namespaced("policy.atoll.dev/v1alpha1", "FederatedResourceQuota", "federatedresourcequotas");
/// ChangeGuard.
pub const CHANGE_GUARD: Kind = cluster("policy.atoll.dev/v1alpha1", "ChangeGuard", "changeguards");
/// ClusterSet.
pub const CLUSTER_SET: Kind = cluster("cluster.atoll.dev/v1alpha1", "ClusterSet", "clustersets");
/// ResourceBinding.
pub const RESOURCE_BINDING: Kind =
    namespaced("work.atoll.dev/v1alpha1", "ResourceBinding", "resourcebindings");
/// ClusterResourceBinding.
pub const CLUSTER_RESOURCE_BINDING: Kind =
    cluster("work.atoll.dev/v1alpha1", "ClusterResourceBinding", "clusterresourcebindings");

/// A kind of users, whose meaning only a ResourceInterpreterCustomization tells.
pub const WIDGET: Kind = namespaced("example.com/v1", "Widget", "widgets");

/// Kinds that users or the controller create on the hub and members run.
const TEMPLATES: [Kind; 7] =
    [CONFIG_MAP, SECRET, DEPLOYMENT, STATEFUL_SET, DAEMON_SET, JOB, RESOURCE_QUOTA];

/// Kinds watched on the hub; `customized`: [`WIDGET`] exists.
pub(super) fn on_hub(customized: bool) -> Vec<Kind> {
    let own = [
        NAMESPACE,
        EVENT,
        LEASE,
        CLUSTER,
        PRIORITY_CLASS,
        PROPAGATION_POLICY,
        CLUSTER_PROPAGATION_POLICY,
        OVERRIDE_POLICY,
        WORKLOAD_POLICY,
        WORKLOAD_SPREAD,
        FEDERATED_RESOURCE_QUOTA,
        CLUSTER_SET,
        CHANGE_GUARD,
        RESOURCE_BINDING,
        CLUSTER_RESOURCE_BINDING,
    ];
    own.into_iter().chain(TEMPLATES).chain(customized.then_some(WIDGET)).collect()
}

/// Kinds watched on a member.
pub(super) fn on_member(customized: bool) -> Vec<Kind> {
    let own = [NAMESPACE, LEASE, NODE, POD, REPLICA_SET];
    own.into_iter().chain(TEMPLATES).chain(customized.then_some(WIDGET)).collect()
}

/// The kind of a manifest, if the World watches it.
pub(super) fn of(api_version: &str, kind: &str) -> Option<Kind> {
    let mut all = on_hub(true).into_iter().chain(on_member(true));
    all.find(|known| known.api_version == api_version && known.kind == kind)
}
