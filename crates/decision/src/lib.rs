//! The record of one scheduling decision: where a binding runs, why, and what would change the outcome.
//!
//! The scheduler writes these records, the controller commits them, history stores them unchanged, and [`explain`]
//! turns them into text. This crate has no scheduling logic, so that readers do not depend on the scheduler.

mod applied;
mod binding_key;
mod bits;
mod clusters;
mod code;
mod column;
pub mod explain;
pub mod plugin;
mod policy_ref;
mod shares;
mod text;
mod wake_condition;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::sync::Arc;

use atoll_api::binding::{
    DecisionRecord, FullCluster, GracefulEvictionTask, Mode, Outcome, PendingReplicas, Preemption,
    PreservedState, TargetCluster, Trigger,
};
use atoll_api::{ClusterName, DecisionId, TemplateUid};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rustc_hash::FxHasher;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use applied::Applied;
pub use binding_key::BindingKey;
pub use bits::BitSet;
pub use clusters::{ClusterSet, Names};
pub use code::Code;
pub use column::{Column, Figures, UNKNOWN};
pub use policy_ref::PolicyRef;
pub use shares::Shares;
pub use text::{Text, cut_reason};
pub use wake_condition::{Amounts, WakeCondition};

/// Prefix of the reason when a strategy that ignores capacity placed more replicas than fit.
pub const OVERCOMMITTED: &str = "Overcommitted";
/// First word of a reason why replicas are pending, if a FederatedResourceQuota does not allow them.
pub const QUOTA_EXCEEDED: &str = "QuotaExceeded";

/// A scheduling decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", from = "StoredDecision")]
pub struct Decision {
    /// First 128 bits, in hex, of a SHA-256 over the template's uid, the parent and the outcome.
    pub id: DecisionId,
    /// id of the binding's previous decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<DecisionId>,
    /// The binding.
    pub binding: BindingKey,
    /// The scheduled object.
    pub template: TemplateRef,
    /// The profile that was used.
    pub profile: Text,
    /// What triggered the decision.
    pub trigger: Trigger,
    /// Which replicas could move.
    pub mode: Mode,
    /// The outcome.
    pub outcome: Outcome,
    /// Why the outcome is not plain success. Names the field to fix, if there is one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Every trigger that was checked, ending with the one that caused the decision.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<CheckedTrigger>,
    /// The division strategy, in words.
    pub strategy: Cow<'static, str>,
    /// Desired replicas. `None` for kinds without replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired: Option<i64>,
    /// The affinity term in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity_name: Option<String>,
    /// Replicas that are not placed, by reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<PendingReplicas>,
    /// Replicas that move between clusters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<Move>,
    /// A verdict on every cluster. Clusters with the same verdict share one entry.
    pub verdicts: Vec<Verdict>,
    /// Further information for users.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Domains or subsets of the policy in force, in the policy's order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupReport>,
    /// The policies that the decision is based on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<PolicyRef>,
    /// Version of the snapshot.
    pub snapshot: u64,
    /// The time of the decision.
    pub now: Timestamp,
    /// Events that would change the outcome.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<WakeCondition>,
    /// Clusters that the binding is leaving after this decision.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evictions: Vec<GracefulEvictionTask>,
    /// State of a failed application that its copies elsewhere receive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preserved: Option<PreservedState>,
    /// Room taken from bindings of lower priority, by this decision and by earlier ones that those bindings have not
    /// followed yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preempts: Vec<Preemption>,
    /// ids of the decisions of other bindings that took room from this one, and that it follows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preempted_by: Vec<String>,
    /// Clusters that count as full for this binding after this decision.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub full_clusters: Vec<FullCluster>,
    /// The placement in force, for the annotation.
    pub applied_placement: Applied,
    /// Shares before the decision, by name. Not stored: derived from `verdicts`.
    #[serde(skip)]
    pub before: Vec<TargetCluster>,
    /// Shares after the decision. Not stored: derived from `verdicts`.
    #[serde(skip)]
    pub after: Shares,
}

/// Identity of the scheduled object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateRef {
    /// For example `apps/v1`.
    pub api_version: String,
    /// For example `Deployment`.
    pub kind: String,
    /// Absent for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// uid.
    #[serde(default, skip_serializing_if = "TemplateUid::is_empty")]
    pub uid: TemplateUid,
}

/// One trigger that was checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckedTrigger {
    /// The trigger.
    pub trigger: Trigger,
    /// Whether its condition holds.
    pub holds: bool,
    /// Whether `rescheduleOn` allows it.
    pub allowed: bool,
    /// What the check found.
    pub why: Cow<'static, str>,
}

/// Replicas that move from one cluster to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Move {
    /// The source cluster.
    pub from: ClusterName,
    /// The destination cluster.
    pub to: ClusterName,
    /// Number of replicas.
    pub count: i64,
}

/// Clusters with the same verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// The clusters.
    pub clusters: ClusterSet,
    /// The result for these clusters.
    pub outcome: ClusterOutcome,
    /// Every rejection. For a kept cluster: the rules that it fails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejections: Vec<Rejection>,
    /// Replicas before, by cluster. Empty = none.
    #[serde(default, skip_serializing_if = "Column::is_empty")]
    pub before: Column,
    /// Replicas after, by cluster. Empty = none.
    #[serde(default, skip_serializing_if = "Column::is_empty")]
    pub after: Column,
    /// Additional replicas that fit, by cluster; `null` = unknown. Empty = not computed.
    #[serde(default, skip_serializing_if = "Column::is_empty")]
    pub capacity: Column,
    /// What limits the capacity. `bounded` maps clusters to these texts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<Text>,
    /// Index into `bounds`, by cluster.
    #[serde(default, skip_serializing_if = "Column::is_empty")]
    pub bounded: Column,
    /// Static weight by which replicas are divided, by cluster. Empty = the strategy has none.
    #[serde(default, skip_serializing_if = "Column::is_empty")]
    pub weights: Column,
    /// Weighted score by plugin, by cluster.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scores: BTreeMap<Cow<'static, str>, Column>,
}

/// The result for a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ClusterOutcome {
    /// Passed every filter and was selected.
    Selected,
    /// Already runs the binding and stays, although it fails a rule for new targets.
    Kept,
    /// Passed every filter, but the group constraints or the division selected others.
    NotSelected,
    /// Rejected.
    Refused,
    /// Was a target, but is no longer a member.
    Gone,
}

/// One rejection.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rejection {
    /// The plugin.
    pub plugin: Cow<'static, str>,
    /// Its status code.
    pub code: Code,
    /// Why, with the values that failed.
    pub reason: Text,
}

/// State of one domain of a WorkloadPolicy or one subset of a WorkloadSpread.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupReport {
    /// Name of the domain or subset.
    pub name: String,
    /// Target or limit; `None` = no limit.
    pub target: Option<i64>,
    /// Replicas there, of all bindings that the policy counts.
    pub assigned: i64,
    /// Replicas of this binding there.
    pub own: i64,
    /// Additional replicas that fit; `None` = unknown.
    pub room: Option<i64>,
    /// Replicas that wait for room there.
    pub pending: i64,
    /// Why it is below its target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<String>,
    /// Time since which members report unschedulable replicas there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unschedulable_since: Option<Timestamp>,
}

impl Decision {
    /// 128 bits in hex. Equal decisions with equal parents have equal ids.
    #[must_use]
    pub fn id(&self) -> &DecisionId {
        &self.id
    }

    /// Where the binding runs after this decision, by name.
    #[must_use]
    pub fn clusters(&self) -> &[TargetCluster] {
        &self.after
    }

    /// Where the binding ran before this decision.
    #[must_use]
    pub fn before(&self) -> &[TargetCluster] {
        &self.before
    }

    /// All eviction tasks after this decision.
    #[must_use]
    pub fn evictions(&self) -> &[GracefulEvictionTask] {
        &self.evictions
    }

    /// State of a failed application that its copies elsewhere receive.
    #[must_use]
    pub fn preserved(&self) -> Option<&PreservedState> {
        self.preserved.as_ref()
    }

    /// Additional replicas that fit on a cluster, if known.
    #[must_use]
    pub fn room(&self, cluster: &str) -> Option<i64> {
        let (verdict, at) = self.verdict(cluster)?;
        verdict.capacity.get(at)
    }

    /// The annotation `policy.atoll.dev/applied-placement`.
    #[must_use]
    pub fn applied_placement(&self) -> Arc<str> {
        self.applied_placement.text().clone()
    }

    /// Events that would change the outcome.
    #[must_use]
    pub fn waits_for(&self) -> &[WakeCondition] {
        &self.waits_for
    }

    /// The outcome.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// What triggered the decision. `Avoid` = nothing to write.
    #[must_use]
    pub fn trigger(&self) -> Trigger {
        self.trigger
    }

    /// Replicas that move between clusters.
    #[must_use]
    pub fn moves(&self) -> &[Move] {
        &self.moves
    }

    /// Room that this decision took from bindings of lower priority.
    pub fn new_preemptions(&self) -> impl Iterator<Item = &Preemption> {
        self.preempts.iter().filter(|taken| taken.decision == *self.id)
    }

    /// Number of replicas that are not placed.
    #[must_use]
    pub fn pending_replicas(&self) -> i64 {
        self.pending.iter().fold(0, |sum, group| sum.saturating_add(group.replicas))
    }

    /// The verdict on a cluster, and the cluster's index in it.
    #[must_use]
    pub fn verdict(&self, cluster: &str) -> Option<(&Verdict, usize)> {
        self.verdicts
            .iter()
            .find_map(|verdict| Some((verdict, verdict.clusters.position(cluster)?)))
    }

    /// The record for `spec.decision`, written in a leader's term.
    #[must_use]
    pub fn record(&self, term: u64) -> DecisionRecord {
        DecisionRecord {
            id: self.id.clone(),
            parent: self.parent.clone(),
            trigger: self.trigger,
            mode: self.mode,
            outcome: self.outcome,
            desired: self.desired.unwrap_or(0),
            pending: self.pending.clone(),
            affinity_name: self.affinity_name.clone(),
            reason: (self.pending.is_empty() && !self.reason.is_empty())
                .then(|| cut_reason(&self.reason)),
            full_clusters: self.full_clusters.clone(),
            at: Time(self.now),
            term: i64::try_from(term).unwrap_or(i64::MAX),
        }
    }

    /// Computes the id from everything that later decisions depend on, and writes it into new preemptions.
    pub fn seal(&mut self) {
        let mut bytes = Vec::with_capacity(256);
        let mut text = |text: &str| {
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(0);
        };
        text(&self.template.uid);
        text(self.parent.as_deref().unwrap_or_default());
        text(self.binding.namespace().unwrap_or_default());
        text(self.binding.name());
        text(self.affinity_name.as_deref().unwrap_or_default());
        self.pending.iter().for_each(|group| text(&group.reason));
        self.evictions.iter().for_each(|task| text(&task.from_cluster));
        for full in &self.full_clusters {
            text(&full.cluster);
            text(&full.until.0.to_string());
        }
        bytes.extend([self.trigger as u8, self.mode as u8, self.outcome as u8]);
        bytes.extend(self.now.as_nanosecond().to_le_bytes());
        let mut number = |number: i64| bytes.extend(number.to_le_bytes());
        number(self.desired.unwrap_or(-1));
        number(self.snapshot.cast_signed());
        self.pending.iter().for_each(|group| number(group.replicas));
        for task in &self.evictions {
            number(task.replicas);
            number(i64::from(task.keep));
        }
        self.preempts.iter().for_each(|taken| number(taken.replicas));
        // Thousands of shares are first reduced by a fast hash.
        let mut shares = FxHasher::default();
        for (name, replicas) in self.after.each() {
            shares.write(name.as_bytes());
            shares.write_i64(replicas);
        }
        let mut hash = Sha256::new();
        hash.update(shares.finish().to_le_bytes());
        hash.update(&bytes);
        const HEX: [char; 16] =
            ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
        let mut id = String::with_capacity(32);
        for byte in &hash.finalize()[..16] {
            id.push(HEX[usize::from(byte >> 4)]);
            id.push(HEX[usize::from(byte & 15)]);
        }
        for taken in self.preempts.iter_mut().filter(|taken| taken.decision.is_empty()) {
            taken.decision.clone_from(&id);
        }
        self.id = id.into();
    }
}

/// A stored decision. The shares are derived from the verdicts.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredDecision {
    id: DecisionId,
    #[serde(default)]
    parent: Option<DecisionId>,
    binding: BindingKey,
    template: TemplateRef,
    profile: Text,
    trigger: Trigger,
    mode: Mode,
    outcome: Outcome,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    triggers: Vec<CheckedTrigger>,
    strategy: Cow<'static, str>,
    #[serde(default)]
    desired: Option<i64>,
    #[serde(default)]
    affinity_name: Option<String>,
    #[serde(default)]
    pending: Vec<PendingReplicas>,
    #[serde(default)]
    moves: Vec<Move>,
    verdicts: Vec<Verdict>,
    #[serde(default)]
    notes: Vec<String>,
    #[serde(default)]
    groups: Vec<GroupReport>,
    #[serde(default)]
    policies: Vec<PolicyRef>,
    snapshot: u64,
    now: Timestamp,
    #[serde(default)]
    waits_for: Vec<WakeCondition>,
    #[serde(default)]
    evictions: Vec<GracefulEvictionTask>,
    #[serde(default)]
    preserved: Option<PreservedState>,
    #[serde(default)]
    preempts: Vec<Preemption>,
    #[serde(default)]
    preempted_by: Vec<String>,
    #[serde(default)]
    full_clusters: Vec<FullCluster>,
    applied_placement: Applied,
}

impl From<StoredDecision> for Decision {
    fn from(stored: StoredDecision) -> Self {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for verdict in &stored.verdicts {
            for (shares, column) in [(&mut before, &verdict.before), (&mut after, &verdict.after)] {
                for (name, value) in verdict.clusters.iter().zip(column.iter()) {
                    // Only targets have a number. A target of a kind without replicas has 0.
                    if let Some(replicas) = value {
                        shares.push(TargetCluster { name: name.to_string(), replicas });
                    }
                }
            }
        }
        before.sort_by(|a, b| a.name.cmp(&b.name));
        after.sort_by(|a, b| a.name.cmp(&b.name));
        Self {
            id: stored.id,
            parent: stored.parent,
            binding: stored.binding,
            template: stored.template,
            profile: stored.profile,
            trigger: stored.trigger,
            mode: stored.mode,
            outcome: stored.outcome,
            reason: stored.reason,
            triggers: stored.triggers,
            strategy: stored.strategy,
            desired: stored.desired,
            affinity_name: stored.affinity_name,
            pending: stored.pending,
            moves: stored.moves,
            verdicts: stored.verdicts,
            notes: stored.notes,
            groups: stored.groups,
            policies: stored.policies,
            snapshot: stored.snapshot,
            now: stored.now,
            waits_for: stored.waits_for,
            evictions: stored.evictions,
            preserved: stored.preserved,
            preempts: stored.preempts,
            preempted_by: stored.preempted_by,
            full_clusters: stored.full_clusters,
            applied_placement: stored.applied_placement,
            before,
            after: after.into(),
        }
    }
}
