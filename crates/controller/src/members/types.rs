//! What the rest of the controller and the members part say to each other.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use atoll_api::cluster::{ApiEnablement, NodeSummary, ResourceSummary};
use atoll_render::Key;
use jiff::Timestamp;
use serde_json::Value;

/// Whether a member's object goes or stays when nothing wants it any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Withdrawal {
    /// Delete it on the member.
    Remove,
    /// Take Atoll's marks off and leave it (`preserveResourcesOnDeletion`).
    Release,
}

/// Why a claim wants nothing on a member any more. Nothing leaves a member without one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proof {
    /// The binding exists, its committed targets lack the member, and no eviction task with `keep` names it. Removes on
    /// this proof are limited to the larger of 100 objects and 30 % of the member's in 10 minutes while there is a
    /// [`LimitReason`].
    NotTargeted,
    /// The binding has a deletionTimestamp.
    BindingDeleted,
    /// The binding is not in the hub, and history has a `Withdrawn` record for it and the member.
    Recorded,
    /// A person asked for it, by the object's name or for the whole member.
    Asked,
}

/// Why removals on [`Proof::NotTargeted`] are limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitReason {
    /// The history database was not reachable, so that the hub's decisions could not be compared with it.
    HistoryUnreachable,
    /// History has decisions that the hub lacks: the hub was restored from a backup, or lost its last writes.
    HubOlderThanHistory,
    /// A member had seen a higher term than the hub's, which was raised since this controller leads.
    TermRaised,
    /// The binding's decision was neither made by this leader nor is it the newest in history.
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
                "a member had seen a newer leader than the hub, which may have been restored from a backup"
            }
            Self::DecisionNotNewest => {
                "their bindings hold decisions that are not the newest in history"
            }
        })
    }
}

/// What is to become of an object that a member holds and nobody set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Its binding wants it here; it will be set.
    Wanted,
    /// Its binding does not.
    Remove(Proof),
    /// Its binding does not, and wants the object left there.
    Release(Proof),
    /// Nobody knows its binding: an orphan, kept and counted.
    Unknown,
    /// Its binding is known and cannot be rendered now: kept as it is.
    Frozen,
}

/// Answers for claims that a member reports and nobody set. Asked only after [`super::Members::caches_complete`], and
/// never while a lock of this module is held.
pub trait Oracle: Send + Sync + 'static {
    /// What is to become of `key` on `cluster` as far as `claim` (a binding's uid) goes.
    fn verdict(&self, cluster: &str, claim: &str, key: &Key) -> Verdict;

    /// Why removals on [`Proof::NotTargeted`] of this claim's objects are limited; `None` = they are not. Asked while a
    /// member's lock is held: it must not wait, nor call back. Whoever does not answer keeps the limit.
    fn limit(&self, _claim: &str) -> Option<LimitReason> {
        Some(LimitReason::DecisionNotNewest)
    }
}

/// What happened to one Upsert, Remove or Release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyResult {
    /// The member holds what was sent.
    Applied,
    /// The object is gone.
    Removed,
    /// Our marks are off, the object stays.
    Released,
    /// An object that is not Atoll's is in the way; it was left alone.
    Conflict,
    /// The member refused it; the agent goes on trying.
    Failed,
    /// The object is there under another uid; it was left alone.
    NotOurs,
    /// Waiting, for example for a terminating object's end.
    Waiting,
}

/// How an object is, by its kind's rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectHealth {
    /// As it should be.
    Healthy,
    /// Not as it should be.
    Unhealthy,
    /// Nobody can say.
    Unknown,
}

/// How an object is on a member.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Hash of the manifest that the object was applied from.
    pub hash: String,
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
    /// The member scheduler's words on that.
    pub unschedulable_reason: String,
    /// Health by the kind's rules.
    pub health: ObjectHealth,
    /// Why it is so.
    pub health_reason: String,
    /// What is wrong, for people; empty where it is healthy or only being rolled out.
    pub health_message: String,
    /// It is not healthy because of a fault, not because it is still being rolled out.
    pub failing: bool,
    /// The object's `.status`, reduced to what is aggregated; `None` when the agent sent none.
    pub status: Option<Value>,
    /// Size in bytes of `status` as it came.
    pub status_bytes: usize,
    /// Size in bytes of a status that was left out because it is too large; 0 = nothing was left out.
    pub status_left_out: u64,
    /// The object is gone from the member.
    pub gone: bool,
    /// uid on the member.
    pub object_uid: String,
}

/// One object that a member holds with Atoll's marks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldObject {
    /// Which.
    pub key: Key,
    /// Hash of the manifest that it was applied from.
    pub hash: String,
    /// Whether that is the hash wanted now.
    pub current: bool,
    /// uids of the bindings that want it, ascending.
    pub claims: Vec<String>,
}

/// What a member is and has, as its agent says.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberFacts {
    /// For example `v1.33.2`; empty = not known.
    pub kubernetes_version: String,
    /// The member's API answers.
    pub api_healthy: bool,
    /// What it says when it does not.
    pub api_message: String,
    /// Kinds that it serves.
    pub apis: Vec<ApiEnablement>,
    /// Whether `apis` is the whole list (false while an aggregated API is away).
    pub apis_complete: bool,
    /// Kinds (`Kind.group`) that may have objects of ours and cannot be listed: the inventory lacks them. Ascending.
    pub unlisted: Vec<String>,
    /// Nodes and their room; `None` while the agent has not counted them yet, or may not.
    pub counted: Option<Counted>,
}

/// What a count of a member's nodes and pods gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    /// Nodes.
    pub nodes: NodeSummary,
    /// Resources, summed over the ready, schedulable nodes.
    pub resources: ResourceSummary,
    /// Nodes that are alike to every template, with their free room.
    pub node_classes: Vec<NodeClass>,
    /// When the figures came, by the controller's clock.
    pub taken_at: Timestamp,
}

/// Nodes with the same taints and the same values of the labels that templates use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeClass {
    /// (key, value, effect), ascending.
    pub taints: Vec<(String, String, String)>,
    /// Values of the label keys asked for.
    pub labels: std::collections::BTreeMap<String, String>,
    /// How many nodes have which free room, in thousandths by resource; `pods` is a resource like the others.
    pub free: Vec<(i64, std::collections::BTreeMap<String, i64>)>,
}

/// Why a member counts as lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LostReason {
    /// No sign of life for so long.
    Silent(Duration),
    /// Its certificate was revoked.
    Revoked,
    /// Its Cluster object is gone.
    Deleted,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(span) => write!(f, "no sign of life for {} s", span.as_secs()),
            Self::Revoked => f.write_str("its certificate was revoked"),
            Self::Deleted => f.write_str("its Cluster object is gone"),
        }
    }
}

/// What members say, and what the members part finds out about them. Events of one member come in order, except that of
/// several `Status` of one object only the newest comes, in the place of the first.
#[derive(Debug, Clone, PartialEq)]
pub enum MemberEvent {
    /// The controller suspects itself of this member's silence, or does no more.
    Suspicion {
        /// Name of the Cluster.
        cluster: String,
        /// Whether it begins.
        begins: bool,
        /// For people.
        message: String,
    },
    /// A session started.
    Connected {
        /// Name of the Cluster.
        cluster: String,
    },
    /// The member is lost: not at a session's end, but when it stays silent.
    Lost {
        /// Name of the Cluster.
        cluster: String,
        /// Why.
        reason: LostReason,
    },
    /// What it is and has.
    Facts {
        /// Name of the Cluster.
        cluster: String,
        /// The facts.
        facts: Arc<MemberFacts>,
    },
    /// Outcome of an apply or a removal.
    Applied {
        /// Name of the Cluster.
        cluster: String,
        /// The object; also a namespace that could not be made for the claims.
        key: Key,
        /// Bindings that it concerns.
        claims: Vec<String>,
        /// Hash that the outcome is about; empty for removals.
        hash: String,
        /// Whether that is the hash wanted now.
        current: bool,
        /// The outcome.
        result: ApplyResult,
        /// CamelCase reason where it is no success.
        reason: String,
        /// Words for people where it is no success.
        message: String,
        /// uid on the member, where there is one.
        object_uid: String,
        /// How often drift was put right on it since the agent started.
        drift: u64,
    },
    /// How an object is.
    Status {
        /// Name of the Cluster.
        cluster: String,
        /// The object.
        key: Key,
        /// Bindings that want it.
        claims: Vec<String>,
        /// How it is.
        report: Report,
    },
    /// Nothing of this claim is left on the member: everything was removed, released, or never there.
    Withdrawn {
        /// Name of the Cluster.
        cluster: String,
        /// uid of the binding.
        claim: String,
    },
    /// Controller and agent agree on what the member holds now.
    Inventory {
        /// Name of the Cluster.
        cluster: String,
        /// Everything with marks and claims, in key order.
        held: Vec<HeldObject>,
        /// Of them, those that no binding accounts for.
        orphans: usize,
    },
    /// A higher term than ours is in force on members, by the word of enough of them or of a person: raise ours above it.
    HigherTerm {
        /// Name of the Cluster whose report completed the proof.
        cluster: String,
        /// The term.
        term: u64,
    },
}

impl MemberEvent {
    /// The member that it is about.
    #[must_use]
    pub fn cluster(&self) -> &str {
        match self {
            Self::Connected { cluster }
            | Self::Lost { cluster, .. }
            | Self::Facts { cluster, .. }
            | Self::Applied { cluster, .. }
            | Self::Status { cluster, .. }
            | Self::Withdrawn { cluster, .. }
            | Self::Inventory { cluster, .. }
            | Self::Suspicion { cluster, .. }
            | Self::HigherTerm { cluster, .. } => cluster,
        }
    }
}
