//! Names of the built-in plugins, as decisions and profiles refer to them.

/// The cluster serves the kind.
pub const API_ENABLEMENT: &str = "APIEnablement";
/// The application has not failed on the cluster.
pub const APPLICATION_HEALTH: &str = "ApplicationHealth";
/// Replicas of the workload were not unschedulable on the cluster.
pub const AUTO_MIGRATION: &str = "AutoMigration";
/// The policy selects the cluster.
pub const CLUSTER_AFFINITY: &str = "ClusterAffinity";
/// The binding is not being evicted from the cluster.
pub const CLUSTER_EVICTION: &str = "ClusterEviction";
/// The namespace may use the cluster.
pub const CLUSTER_SETS: &str = "ClusterSets";
/// Takes room from workloads of lower priority.
pub const PREEMPTION: &str = "Preemption";
/// Divides the replicas.
pub const REPLICA_DIVISION: &str = "ReplicaDivision";
/// At least one replica fits.
pub const RESOURCE_FIT: &str = "ResourceFit";
/// The cluster has the field that the spread groups by.
pub const SPREAD_CONSTRAINT: &str = "SpreadConstraint";
/// A placed workload stays where it is.
pub const STICKY: &str = "Sticky";
/// The policy tolerates the cluster's taints.
pub const TAINT_TOLERATION: &str = "TaintToleration";
/// The cluster has the label of the topology spread.
pub const TOPOLOGY_SPREAD: &str = "TopologySpread";
/// The group of the workload runs on the cluster, or does not.
pub const WORKLOAD_AFFINITY: &str = "WorkloadAffinity";
/// A domain of the WorkloadPolicy selects the cluster.
pub const WORKLOAD_POLICY: &str = "WorkloadPolicy";
/// A subset of the WorkloadSpread selects the cluster.
pub const WORKLOAD_SPREAD: &str = "WorkloadSpread";
