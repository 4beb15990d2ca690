//! The input of a decision.

pub mod objects;

use std::collections::BTreeMap;

use atoll_api::binding::{
    Component, DecisionRecord, GracefulEvictionTask, Preemption, PreservedState,
    ReplicaRequirements, TargetCluster,
};
use atoll_api::placement::Placement;
use atoll_api::policy::Failover;
use atoll_api::rebalancer::RebalanceMode;
use atoll_api::{ClusterName, Shared, TemplateUid};
use atoll_decision::{Applied, BindingKey, PolicyRef};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One binding to decide on, with all its facts that are not in the snapshot.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// The binding.
    pub key: BindingKey,
    /// The object of the binding.
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
    /// State after the last decision, if there was one.
    pub previous: Option<Previous>,
    /// Reports of members on this binding. A missing member is unknown.
    pub reports: BTreeMap<ClusterName, Report>,
    /// Its priority.
    pub priority: Priority,
    /// What a requested rebalance moves.
    pub rebalance: RebalanceMode,
    /// How long a member must have been Ready without interruption before anything moves back to it.
    pub recover_after: RecoverAfter,
    /// Whether a profile with Karmada's rules evicts work from tainted clusters.
    pub taint_eviction: TaintEviction,
    /// The time of the decision. No other clock is read.
    pub now: Timestamp,
}

/// The priority of a workload, and whether its class lets it take room from others.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Priority {
    /// The value; 0 without a class.
    pub value: i32,
    /// The PriorityClass, if the policy names one.
    pub class: Option<PriorityClass>,
}

/// A PriorityClass.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PriorityClass {
    /// Its name.
    pub name: String,
    /// Whether its `preemptionPolicy` is `Never`.
    pub never_preempts: bool,
}

/// Whether decisions with Karmada's rules evict running work from clusters with an untolerated NoExecute taint.
/// Karmada's scheduler leaves its targets there; its taint manager evicts them. All other profiles evict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum TaintEviction {
    /// The decision evicts, according to the policy's tolerations.
    #[default]
    Decided,
    /// The decision does not evict, like the recorded decisions of Karmada's scheduler.
    LeftOut,
}

/// How long a member must have been Ready without interruption before work moves back to it, if a policy's
/// `rescheduleOn` has `Recovery`. The default equals the delay before work moves off a lost member, so that a flapping
/// member causes at most one move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoverAfter(pub SignedDuration);

impl RecoverAfter {
    /// Default, in seconds.
    pub const DEFAULT_SECONDS: u32 = 300;

    /// Creates the delay from seconds; 0 = immediately.
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

/// The facts about the object that matter to a decision.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Template {
    /// uid; may be empty offline.
    pub uid: TemplateUid,
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
    /// Desired replicas; absent for kinds without replicas.
    pub replicas: Option<i64>,
    /// What one replica needs.
    pub requirements: Option<Shared<ReplicaRequirements>>,
    /// The parts of an object with several pod templates; empty for all others.
    pub components: Vec<Component>,
    /// The WorkloadPolicy that it names.
    pub workload_policy: Option<String>,
}

impl Request {
    /// With `replicaSync: FromMembers`: `counts` is what each target runs. If the template asks for just that, the
    /// counts become the shares, also where opposite changes left the sum as it was; until it does, nothing is scaled, because the members' autoscalers decide.
    pub fn follow_members(&mut self, counts: Vec<TargetCluster>) {
        let Some(previous) = &mut self.previous else { return };
        let sum = |shares: &[TargetCluster]| {
            shares.iter().fold(0_i64, |sum, share| sum.saturating_add(share.replicas))
        };
        let (placed, run) = (sum(&previous.clusters), sum(&counts));
        if self.template.replicas != Some(run) {
            self.template.replicas = Some(placed);
        } else if previous.clusters != counts {
            previous.before_members_scaled = Some(placed);
            previous.clusters = counts;
        }
    }

    /// Whether this is a Job that has ended on a cluster. A copy elsewhere would run again, so it is not moved.
    #[must_use]
    pub fn has_ended_on(&self, cluster: &str) -> bool {
        self.template.group() == "batch"
            && self.template.kind == "Job"
            && self.reports.get(cluster).is_some_and(|report| report.ended)
    }
}

impl Template {
    /// The API group: empty for core.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Whether the kind has replicas to divide.
    #[must_use]
    pub fn is_workload(&self) -> bool {
        self.replicas.is_some()
    }
}

/// State after the last decision.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Previous {
    /// Shares.
    pub clusters: Vec<TargetCluster>,
    /// The last decision, in short.
    pub decision: Option<DecisionRecord>,
    /// The placement in force at the last decision, from the annotation. If absent, it counts as unchanged.
    pub applied_placement: Option<Applied>,
    /// If [`Request::follow_members`] replaced the shares by the members' own counts: the sum of the shares before.
    pub before_members_scaled: Option<i64>,
    /// Clusters that the binding is leaving.
    pub eviction_tasks: Vec<GracefulEvictionTask>,
    /// State preserved by the last failover of the application.
    pub preserved: Option<PreservedState>,
    /// Room that it took from bindings of lower priority.
    pub preempts: Vec<Preemption>,
    /// Decisions of bindings of higher priority that it has followed.
    pub preempted_by: Vec<String>,
    /// When a rebalance was last requested.
    pub reschedule_triggered_at: Option<Timestamp>,
    /// When the last decision was made, if there is no decision record.
    pub last_scheduled_time: Option<Timestamp>,
    /// The rebalance was not requested by a user: skew is mended in the background.
    pub mends_in_background: bool,
    /// The affinity term in force, if there is no decision record.
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

/// A member's report on a binding.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Replicas that exist there.
    pub replicas: i64,
    /// Replicas that are ready.
    pub ready: i64,
    /// Unschedulable replicas.
    pub unschedulable: i64,
    /// Since when some replicas are unschedulable.
    pub unschedulable_since: Option<Timestamp>,
    /// Whether the object is healthy there; absent = unknown.
    pub healthy: Option<bool>,
    /// Since when it is unhealthy, without interruption.
    pub unhealthy_since: Option<Timestamp>,
    /// The object's status there. Needed only if a policy preserves parts of it.
    pub status: Option<Value>,
    /// Completions of a Job that succeeded.
    pub succeeded: i64,
    /// Whether a Job has ended there: see [`has_ended`].
    pub ended: bool,
}

/// Whether the status of a Job says that it has ended: it is complete, or has failed permanently.
#[must_use]
pub fn has_ended(status: &Value) -> bool {
    let conditions = status["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| {
        condition["status"] == "True"
            && (condition["type"] == "Complete" || condition["type"] == "Failed")
    })
}
