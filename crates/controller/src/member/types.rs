//! Types exchanged between `members` and the rest of the controller.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use atoll_api::cluster::{ApiEnablement, NodeSummary, ResourceSummary};
use atoll_api::customization::Operation;
use atoll_api::{BindingUid, ClusterName, ManifestHash};
use atoll_render::Key;
use jiff::Timestamp;
use serde_json::Value;

use crate::leader::LeaderTerm;

/// Whether a member's object is deleted or stays when no claim wants it any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Withdrawal {
    /// Delete it on the member.
    Remove,
    /// Remove Atoll's marks and keep it (`preserveResourcesOnDeletion`).
    Release,
}

/// Why a claim wants nothing on a member any more. No object is removed from a member without one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proof {
    /// The binding exists, its committed targets lack the member, and no eviction task with `keep` names it. While
    /// there is a [`LimitReason`], removals on this proof are limited to the larger of 100 objects and 30 % of the
    /// member's in 10 minutes.
    NotTargeted,
    /// The binding has a deletionTimestamp.
    BindingDeleted,
    /// The binding is not in the hub, and history has a `Withdrawn` record for it and the member.
    Recorded,
    /// A user requested it, by the object's name or for the whole member.
    Asked,
}

/// Why removals on [`Proof::NotTargeted`] are limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitReason {
    /// The history database was unreachable, so the hub's decisions could not be compared with it.
    HistoryUnreachable,
    /// History has decisions that the hub lacks: the hub was restored from a backup, or lost its last writes.
    HubOlderThanHistory,
    /// A member had accepted a higher term than the hub's, and the term was raised in this leadership.
    TermRaised,
    /// The binding's decision was not made by this leader and is not the newest in history.
    DecisionNotNewest,
}

impl LimitReason {
    /// The reason of the condition and of Events.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::HistoryUnreachable => "HistoryUnreachable",
            Self::HubOlderThanHistory => "HubOlderThanHistory",
            Self::TermRaised => "TermRaised",
            Self::DecisionNotNewest => "DecisionNotNewest",
        }
    }
}

impl fmt::Display for LimitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HistoryUnreachable => {
                "the history database is unreachable, so it is not known whether the hub's decisions are the newest"
            }
            Self::HubOlderThanHistory => {
                "history has newer decisions than the hub, which may have been restored from a backup"
            }
            Self::TermRaised => {
                "a member had accepted a higher leader's term than the hub's, and the hub may have been restored from a backup"
            }
            Self::DecisionNotNewest => {
                "their bindings hold decisions that are not the newest in history"
            }
        })
    }
}

/// What to do with an object that a member holds and no claim set here wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Its binding wants it here; it will be set.
    Wanted,
    /// Its binding does not want it here.
    Remove(Proof),
    /// Its binding does not want it here, but wants the object kept.
    Release(Proof),
    /// Its binding is unknown: an orphan, kept and counted.
    Unknown,
    /// Its binding is known and cannot be rendered now: kept unchanged.
    Frozen,
}

/// Judges claims that a member reports and that were not set, in one term of the leader.
pub trait Oracle: Send + Sync + 'static {
    /// What to do with `key` on `cluster` because of `claim`. Called without a lock on the member.
    fn verdict(&self, cluster: &ClusterName, claim: &BindingUid, key: &Key) -> Verdict;

    /// Why removals on [`Proof::NotTargeted`] of this claim's objects are limited; `None` = they are not. Called while
    /// a member's lock is held: it must not wait, nor call back. The default keeps the limit.
    fn limit(&self, _claim: &BindingUid) -> Option<LimitReason> {
        Some(LimitReason::DecisionNotNewest)
    }
}

/// Result of one Upsert, Remove or Release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyResult {
    /// The member holds what was sent.
    Applied,
    /// The object is gone.
    Removed,
    /// Our marks were removed, the object stays.
    Released,
    /// An object that Atoll does not manage is in the way; it was not changed.
    Conflict,
    /// The member rejected it; the agent retries.
    Failed,
    /// The object exists under another uid; it was not changed.
    NotOurs,
    /// Waiting, for example for the end of a terminating object.
    Waiting,
}

/// Health of an object by its kind's rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectHealth {
    /// As it should be.
    Healthy,
    /// Not as it should be.
    Unhealthy,
    /// Unknown.
    Unknown,
}

/// Health of an object, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthReport {
    /// Health by the kind's rules.
    pub state: ObjectHealth,
    /// Reason for the health state.
    pub reason: String,
    /// What is wrong, for users; empty if it is healthy or only being rolled out.
    pub message: String,
    /// Whether it is unhealthy because of a fault, not because it is still being rolled out.
    pub failing: bool,
}

impl HealthReport {
    /// Without a reason.
    #[cfg(test)]
    pub(crate) fn of(state: ObjectHealth) -> Self {
        Self { state, reason: String::new(), message: String::new(), failing: false }
    }
}

/// State of an object on a member.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Hash of the manifest that the object was applied from.
    pub hash: ManifestHash,
    /// Whether that is the hash wanted now. A report under another one never counts as ready.
    pub current: bool,
    /// `metadata.generation` on the member.
    pub generation: i64,
    /// `status.observedGeneration` on the member.
    pub observed_generation: i64,
    /// `None` for kinds without replicas.
    pub replicas: Option<i64>,
    /// Of them, ready ones.
    pub ready: Option<i64>,
    /// Replicas that found no node.
    pub unschedulable: i64,
    /// Since when the first of them waits, by the member's clock.
    pub unschedulable_since: Option<Timestamp>,
    /// The member scheduler's message about it.
    pub unschedulable_reason: String,
    /// Health by the kind's rules.
    pub health: HealthReport,
    /// The object's `.status`, reduced to the aggregated fields; `None` when the agent sent none.
    pub status: Option<Value>,
    /// Size in bytes of `status` as received.
    pub status_bytes: usize,
    /// Size in bytes of a status that was left out because it is too large; 0 = nothing was left out.
    pub status_left_out: u64,
    /// The object is gone from the member.
    pub gone: bool,
    /// uid on the member.
    pub object_uid: String,
}

#[cfg(test)]
impl Report {
    /// A report under the hash that is wanted now, with nothing known.
    pub(crate) fn unknown() -> Self {
        Self {
            hash: ManifestHash::default(),
            current: true,
            generation: 0,
            observed_generation: 0,
            replicas: None,
            ready: None,
            unschedulable: 0,
            unschedulable_since: None,
            unschedulable_reason: String::new(),
            health: HealthReport::of(ObjectHealth::Unknown),
            status: None,
            status_bytes: 0,
            status_left_out: 0,
            gone: false,
            object_uid: String::new(),
        }
    }
}

/// One object that a member holds with Atoll's marks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldObject {
    /// The object.
    pub key: Key,
    /// Hash of the manifest that it was applied from.
    pub hash: ManifestHash,
    /// Whether that is the hash wanted now.
    pub current: bool,
    /// uids of the bindings that claim it, ascending.
    pub claims: Vec<BindingUid>,
}

/// Facts about a member, as reported by its agent.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberFacts {
    /// For example `v1.33.2`; empty = unknown.
    pub kubernetes_version: String,
    /// The member's API answers.
    pub api_healthy: bool,
    /// Why it does not answer.
    pub api_message: String,
    /// Kinds that it serves.
    pub apis: Vec<ApiEnablement>,
    /// Whether `apis` is complete (false while an aggregated API is unavailable).
    pub apis_complete: bool,
    /// Kinds (`Kind.group`) that may have objects of ours and cannot be listed: the inventory lacks them. Ascending.
    pub unlisted: Vec<String>,
    /// Nodes and their room; `None` while the agent has not counted them yet, or may not.
    pub counted: Option<Counted>,
}

/// Counts of a member's nodes and pods.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    /// Nodes.
    pub nodes: NodeSummary,
    /// Resources, summed over the ready, schedulable nodes.
    pub resources: ResourceSummary,
    /// Nodes that are equivalent for every template, with their free room.
    pub node_classes: Vec<NodeClass>,
    /// What ResourceQuotas leave, by namespace, in thousandths by resource.
    pub quotas: std::collections::BTreeMap<String, std::collections::BTreeMap<String, i64>>,
    /// When the figures arrived, by the controller's clock.
    pub taken_at: Timestamp,
    /// When the member counted, by its own clock: it tells a new count from a repeated one.
    pub counted_at_ms: i64,
}

/// Nodes with the same taints and the same values of the labels that templates use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeClass {
    /// (key, value, effect), ascending.
    pub taints: Vec<(String, String, String)>,
    /// Values of the requested label keys.
    pub labels: std::collections::BTreeMap<String, String>,
    /// Number of nodes by free room, in thousandths by resource; `pods` is a resource too.
    pub free: Vec<(i64, std::collections::BTreeMap<String, i64>)>,
}

/// Why a member counts as lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LostReason {
    /// No heartbeat for this long.
    Silent(Duration),
    /// Its certificate was revoked.
    Revoked,
    /// Its Cluster object was deleted.
    Deleted,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(span) => write!(f, "no heartbeat for {} s", span.as_secs()),
            Self::Revoked => f.write_str("its certificate was revoked"),
            Self::Deleted => f.write_str("its Cluster was deleted"),
        }
    }
}

/// A rule of a customization that failed on a member.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentRuleFailed {
    /// Name of the customization.
    pub customization: String,
    /// Hash of its spec.
    pub spec_hash: Arc<str>,
    /// What the rule is for.
    pub operation: Operation,
    /// The object that caused it.
    pub key: Key,
    /// Message for users.
    pub message: String,
}

/// Reports of members, and findings of `members` about them. Events of one member are in order, except that several
/// `Status` of one object are merged: the newest takes the place of the first.
#[derive(Debug, Clone, PartialEq)]
pub enum MemberEvent {
    /// The controller's self-suspicion because of this member's silence begins or ends.
    Suspicion {
        /// Name of the Cluster.
        cluster: ClusterName,
        /// Whether it begins.
        begins: bool,
        /// Text for users.
        message: String,
    },
    /// A session started.
    Connected {
        /// Name of the Cluster.
        cluster: ClusterName,
    },
    /// The member is lost: not when a session ends, but when it stays silent.
    Lost {
        /// Name of the Cluster.
        cluster: ClusterName,
        /// Why.
        reason: LostReason,
    },
    /// New facts about the member.
    Facts {
        /// Name of the Cluster.
        cluster: ClusterName,
        /// The facts.
        facts: Arc<MemberFacts>,
    },
    /// Result of an apply or a removal.
    Applied {
        /// Name of the Cluster.
        cluster: ClusterName,
        /// The object; also a namespace that could not be created for the claims.
        key: Key,
        /// Bindings that it concerns.
        claims: Vec<BindingUid>,
        /// Hash that the result refers to; empty for removals.
        hash: ManifestHash,
        /// Whether that is the hash wanted now.
        current: bool,
        /// The result.
        result: ApplyResult,
        /// CamelCase reason, unless successful.
        reason: String,
        /// Message for users, unless successful.
        message: String,
        /// uid on the member, if any.
        object_uid: String,
        /// How often drift on it was reverted since the agent started.
        drift: u64,
    },
    /// State of an object.
    Status {
        /// Name of the Cluster.
        cluster: ClusterName,
        /// The object.
        key: Key,
        /// Bindings that claim it.
        claims: Vec<BindingUid>,
        /// The state.
        report: Report,
    },
    /// A rule of a customization failed there.
    RuleFailed {
        /// Name of the Cluster.
        cluster: ClusterName,
        /// The failure.
        failed: AgentRuleFailed,
    },
    /// No object of this claim is left on the member: all were removed, released, or never there.
    Withdrawn {
        /// Name of the Cluster.
        cluster: ClusterName,
        /// uid of the binding.
        claim: BindingUid,
    },
    /// Controller and agent agree on what the member holds now.
    Inventory {
        /// Name of the Cluster.
        cluster: ClusterName,
        /// Everything with marks and claims, in key order.
        held: Vec<HeldObject>,
        /// How many of them have no known binding.
        orphans: usize,
    },
    /// A higher term than ours is in force on members, as reported by enough of them or accepted by a user: raise ours
    /// above it.
    HigherTerm {
        /// Name of the Cluster whose report completed the proof.
        cluster: ClusterName,
        /// The term.
        term: LeaderTerm,
    },
}

impl MemberEvent {
    /// The member of the event.
    #[must_use]
    pub fn cluster(&self) -> &ClusterName {
        match self {
            Self::Connected { cluster }
            | Self::Lost { cluster, .. }
            | Self::Facts { cluster, .. }
            | Self::Applied { cluster, .. }
            | Self::Status { cluster, .. }
            | Self::RuleFailed { cluster, .. }
            | Self::Withdrawn { cluster, .. }
            | Self::Inventory { cluster, .. }
            | Self::Suspicion { cluster, .. }
            | Self::HigherTerm { cluster, .. } => cluster,
        }
    }
}
