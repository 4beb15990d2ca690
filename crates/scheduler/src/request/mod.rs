//! The question that a decision answers.

pub mod objects;

use std::collections::BTreeMap;

use atoll_api::Shared;
use atoll_api::binding::{
    DecisionRecord, GracefulEvictionTask, PreservedState, ReplicaRequirements, TargetCluster,
};
use atoll_api::placement::Placement;
use atoll_api::policy::Failover;
use atoll_decision::{Applied, BindingKey, PolicyRef};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// One binding to decide on, with everything about it that is not in the snapshot.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Request {
    /// The binding.
    pub key: BindingKey,
    /// The object that it binds.
    pub template: Template,
    /// The placement in force. Empty = all clusters.
    pub placement: Shared<Placement>,
    /// The policies that the placement comes from.
    pub policies: Vec<PolicyRef>,
    /// Profile of the scheduler; empty = `default`.
    pub scheduler_name: String,
    /// How work leaves a cluster.
    pub failover: Option<Failover>,
    /// Whether no decision may be made (`suspension.scheduling`).
    pub suspended: bool,
    /// What the last decision left, if there was one.
    pub previous: Option<Previous>,
    /// What members report of this binding; a member that is left out is unknown.
    pub reports: BTreeMap<String, Report>,
    /// How long a member must have been Ready without a break before anything moves back to it.
    pub recover_after: RecoverAfter,
    /// Whether a profile with Karmada's rules moves work off tainted clusters.
    pub taint_eviction: TaintEviction,
    /// The one time of the decision.
    pub now: Timestamp,
}

/// Who moves running work off clusters with a NoExecute taint that it does not tolerate, in a profile with Karmada's
/// rules. Karmada's scheduler leaves its targets there, and its taint manager evicts them. All other profiles evict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TaintEviction {
    /// The decision does, as the policy's tolerations say.
    #[default]
    Decided,
    /// The decision leaves it out, as the answers that were recorded from Karmada's scheduler do.
    LeftOut,
}

/// How long a member must have been Ready without a break before work moves back to it, where a policy's `rescheduleOn`
/// has `Recovery`. By default as long as a member's loss has to last before anything moves off it, so that one which
/// comes and goes costs no more than one move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoverAfter(pub SignedDuration);

impl RecoverAfter {
    /// Seconds by default.
    pub const DEFAULT_SECONDS: u32 = 300;

    /// So many seconds; 0 = at once.
    #[must_use]
    pub fn seconds(seconds: u32) -> Self {
        Self(SignedDuration::from_secs(i64::from(seconds)))
    }
}

impl Default for RecoverAfter {
    fn default() -> Self {
        Self::seconds(Self::DEFAULT_SECONDS)
    }
}

/// What matters of the object.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Template {
    /// uid; empty offline, where nobody gave one.
    pub uid: String,
    /// For example `apps/v1`.
    pub api_version: String,
    /// For example `Deployment`.
    pub kind: String,
    /// Absent for cluster-scoped objects.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// Its own labels.
    pub labels: BTreeMap<String, String>,
    /// Labels of its pods.
    pub pod_labels: BTreeMap<String, String>,
    /// Replicas that it asks for; absent for kinds without replicas.
    pub replicas: Option<i64>,
    /// What one replica needs.
    pub requirements: Option<ReplicaRequirements>,
    /// The WorkloadPolicy that it names.
    pub workload_policy: Option<String>,
}

impl Template {
    /// The API group: empty for core.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Whether it has replicas to divide.
    #[must_use]
    pub fn is_workload(&self) -> bool {
        self.replicas.is_some()
    }
}

/// What the last decision left.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Previous {
    /// Shares.
    pub clusters: Vec<TargetCluster>,
    /// The last decision, in short.
    pub decision: Option<DecisionRecord>,
    /// The placement in force at the last decision, as the annotation says it. Absent counts as equal to today's.
    pub applied_placement: Option<Applied>,
    /// Clusters that the binding is leaving.
    pub eviction_tasks: Vec<GracefulEvictionTask>,
    /// What the last failover of the application left.
    pub preserved: Option<PreservedState>,
    /// When a rebalance was asked for last.
    pub reschedule_triggered_at: Option<Timestamp>,
    /// When the last decision was made, where no record says it.
    pub last_scheduled_time: Option<Timestamp>,
    /// The affinity term in force, where no record says it.
    pub affinity_name: Option<String>,
}

impl Previous {
    /// When the last decision was made.
    #[must_use]
    pub fn decided_at(&self) -> Option<Timestamp> {
        self.decision.as_ref().map(|record| record.at.0).or(self.last_scheduled_time)
    }

    /// Replicas that the last decision could not place.
    #[must_use]
    pub fn pending(&self) -> i64 {
        self.decision.as_ref().map_or(0, DecisionRecord::pending_replicas)
    }

    /// The affinity term in force.
    #[must_use]
    pub fn term(&self) -> Option<&str> {
        let record = self.decision.as_ref().and_then(|record| record.affinity_name.as_deref());
        record.or(self.affinity_name.as_deref())
    }
}

/// What a member reports of a binding.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// Replicas that exist there.
    pub replicas: i64,
    /// Replicas that are ready.
    pub ready: i64,
    /// Replicas that found no node.
    pub unschedulable: i64,
    /// Since when some found no node.
    pub unschedulable_since: Option<Timestamp>,
    /// Whether it does what it should; absent = nobody can say.
    pub healthy: Option<bool>,
    /// Since when it is not, without a break.
    pub unhealthy_since: Option<Timestamp>,
    /// The object's status there; needed only where a policy wants some of it preserved.
    pub status: Option<Value>,
    /// Completions of a Job that succeeded.
    pub succeeded: i64,
}
