//! Events around decisions: their stages, and what happens to members.
//!
//! Events have no outbox. They are delivered at most once, and dropped when the database is unreachable for longer than
//! the recorder's event queue lasts. Decisions never depend on them.

use std::fmt;

use atoll_api::binding::DecisionRecord;
use atoll_api::{BindingUid, ClusterName, DecisionId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Position;
use crate::record::whole_seconds;

macro_rules! names {
    ($(#[$outer:meta])* $type:ident { $($(#[$inner:meta])* $name:ident),* $(,)? }) => {
        $(#[$outer])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $type {
            $($(#[$inner])* $name,)*
            /// Written by a later version; shown unchanged.
            Other(String),
        }

        impl $type {
            /// The name as stored in databases.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$name => stringify!($name),)*
                    Self::Other(name) => name,
                }
            }

            /// From a name.
            #[must_use]
            pub fn from_name(name: &str) -> Self {
                match name {
                    $(stringify!($name) => Self::$name,)*
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

names! {
    /// Stages of a decision, in the order in which they are reached.
    Stage {
        /// The scheduler made it.
        Decided,
        /// The hub stored it.
        Committed,
        /// Its manifests were sent to the member.
        Dispatched,
        /// The member applied them.
        Applied,
        /// The member reports every replica of its share healthy.
        Healthy,
        /// It stays in force, because a ChangeGuard holds the next one.
        Held,
        /// A later decision replaced it.
        Superseded,
    }
}

names! {
    /// What happened to a member.
    MemberEventKind {
        /// It enrolled.
        Joined,
        /// Its agent is connected and reports it ready.
        Ready,
        /// Its agent was silent for too long.
        Lost,
        /// Many members were lost at once, so none of them is treated as failed.
        Suspected,
        /// The suspicion is over.
        Cleared,
        /// A taint was added.
        Tainted,
        /// A taint was removed.
        Untainted,
        /// It receives no new work.
        Cordoned,
        /// It receives new work again.
        Uncordoned,
        /// Its work is being moved away.
        Draining,
        /// No work is left on it.
        Drained,
        /// How much of its capacity is requested changed: a sample for charts. Listed only where it is asked for.
        Used,
        /// Manifests for it changed because its Cluster or override policies changed.
        Rerendered,
        /// A user asked for a command in a pod, or the command ended.
        Exec,
        /// A user asked to be attached to a container, or left it.
        Attach,
        /// A user asked for ports of a pod, or closed them.
        PortForward,
        /// Its Cluster is being deleted.
        Terminating,
        /// Its Cluster was deleted.
        Left,
    }
}

/// A stage that a decision reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Milestone {
    /// id of the decision.
    pub decision: DecisionId,
    /// When the decision was made, in whole seconds; places the row in the same partition as the decision's. See
    /// [`Milestone::of`].
    pub decided_at: Timestamp,
    /// The member, for stages per member.
    pub cluster: Option<ClusterName>,
    /// The stage.
    pub stage: Stage,
    /// When it was observed.
    pub at: Timestamp,
}

impl Milestone {
    /// A stage of this decision.
    #[must_use]
    pub fn of(
        decision: &DecisionRecord,
        cluster: Option<&str>,
        stage: Stage,
        at: Timestamp,
    ) -> Self {
        Self {
            decision: decision.id.clone(),
            decided_at: whole_seconds(decision.at.0),
            cluster: cluster.map(ClusterName::from),
            stage,
            at,
        }
    }

    /// By decision, then time, then stage.
    pub(crate) fn order(&self, other: &Self) -> std::cmp::Ordering {
        let key = |step: &Self| (step.at, step.stage.clone(), step.cluster.clone());
        self.decision.cmp(&other.decision).then_with(|| key(self).cmp(&key(other)))
    }
}

/// An event of a member. Duplicates in cluster, time, kind and reason are stored once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberEvent {
    /// Name of the Cluster.
    pub cluster: ClusterName,
    /// uid of the Cluster, if known.
    pub uid: Option<String>,
    /// When.
    pub at: Timestamp,
    /// What.
    pub kind: MemberEventKind,
    /// Reason in one word; for taints the taint's key.
    pub reason: String,
    /// Message for users.
    pub message: String,
}

/// An event to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Of a decision.
    Milestone(Milestone),
    /// Of a member.
    Member(MemberEvent),
}

/// A filter of member events; all set fields must match. The default matches every event but samples of use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemberFilter {
    /// Name of the Cluster.
    pub cluster: Option<ClusterName>,
    /// At or after this time.
    pub since: Option<Timestamp>,
    /// Before this time.
    pub until: Option<Timestamp>,
    /// Events of this kind; `None` for all but [`MemberEventKind::Used`].
    pub kind: Option<MemberEventKind>,
}

impl MemberFilter {
    /// Whether it matches an event.
    pub(crate) fn matches(&self, event: &MemberEvent) -> bool {
        self.cluster.as_ref().is_none_or(|cluster| *cluster == event.cluster)
            && self.since.is_none_or(|since| event.at >= since)
            && self.until.is_none_or(|until| event.at < until)
            && match &self.kind {
                Some(kind) => event.kind == *kind,
                None => event.kind != MemberEventKind::Used,
            }
    }
}

/// A page of member events, newest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MemberPage {
    /// The events.
    pub events: Vec<MemberEvent>,
    /// Start of the next page, if there is one.
    pub next: Option<Position>,
}

/// Which scheduler decided, and its inputs: generations of template and policies, and their last writers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Provenance {
    /// Version of the scheduler.
    #[serde(default)]
    pub version: String,
    /// Its profile.
    #[serde(default)]
    pub profile: String,
    /// The template first, then the policies.
    #[serde(default)]
    pub sources: Vec<SourceObject>,
    /// If a ChangeGuard held it: the plan that was approved, and by whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<ApprovedPlan>,
}

/// The approval of a plan that a ChangeGuard held.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovedPlan {
    /// Id of the plan.
    pub plan: String,
    /// The user.
    pub by: String,
}

/// An object that a decision was made from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceObject {
    /// Kind.
    pub kind: String,
    /// `None` for cluster-scoped ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// uid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// metadata.generation that was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// The last change recorded in managedFields, except for status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<LastChange>,
}

/// A change as recorded in managedFields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastChange {
    /// The field manager, for example `kubectl-client-side-apply`.
    pub manager: String,
    /// `Apply` or `Update`.
    pub operation: String,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

/// A share that a cluster had at a given time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resident {
    /// uid of the binding.
    pub binding_uid: BindingUid,
    /// Namespace, `None` for cluster-scoped workloads.
    pub namespace: Option<String>,
    /// Kind of the template.
    pub workload_kind: String,
    /// Name of the template.
    pub workload_name: String,
    /// Replicas of the share; 0 for kinds without replicas.
    pub replicas: i64,
    /// id of the decision that set it.
    pub decision: DecisionId,
    /// When the share was set.
    pub since: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_later_ones_are_kept() {
        for name in ["Decided", "Superseded", "Teleported"] {
            assert_eq!(Stage::from_name(name).as_str(), name);
        }
        assert_eq!(MemberEventKind::from_name("Left"), MemberEventKind::Left);
        assert_eq!(MemberEventKind::from_name("Sunk"), MemberEventKind::Other("Sunk".to_owned()));
    }
}
