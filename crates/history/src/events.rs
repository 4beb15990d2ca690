//! What happens around decisions: the steps of their life, and what befalls members.
//!
//! Events have no outbox. Whoever sees one notes it; it is kept at most once, and lost when the database is away for
//! longer than the recorder's queue of events lasts. Decisions never depend on them.

use std::fmt;

use atoll_api::binding::DecisionRecord;
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
            /// Written by a later version, and shown as it is.
            Other(String),
        }

        impl $type {
            /// The name, as databases hold it.
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
    /// How far a decision has come. In the order in which the stages are reached.
    Stage {
        /// The scheduler made it.
        Decided,
        /// The hub holds it.
        Committed,
        /// Its manifests were sent to the member.
        Dispatched,
        /// The member has them.
        Applied,
        /// The member reports every replica of its share healthy.
        Healthy,
        /// A later decision took its place.
        Superseded,
    }
}

names! {
    /// What happened to a member.
    MemberEventKind {
        /// It enrolled.
        Joined,
        /// Its agent is connected and says that it works.
        Ready,
        /// Nothing was heard of its agent for too long.
        Lost,
        /// Many members were lost at once: none of them is believed to be gone.
        Suspected,
        /// The suspicion is over.
        Cleared,
        /// A taint was added.
        Tainted,
        /// A taint was taken off.
        Untainted,
        /// It takes no new work.
        Cordoned,
        /// It takes new work again.
        Uncordoned,
        /// Its work is being moved away.
        Draining,
        /// Nothing is left on it.
        Drained,
        /// Its Cluster is being deleted.
        Terminating,
        /// Its Cluster is gone.
        Left,
    }
}

/// A step in the life of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Milestone {
    /// id of the decision.
    pub decision: String,
    /// When it was decided, in whole seconds; by it the row is kept beside the decision's. See [`Milestone::of`].
    pub decided_at: Timestamp,
    /// The member, where the step is one member's.
    pub cluster: Option<String>,
    /// Which step.
    pub stage: Stage,
    /// When it was seen.
    pub at: Timestamp,
}

impl Milestone {
    /// A step of this decision.
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
            cluster: cluster.map(str::to_owned),
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

/// Something that happened to a member. Noted twice with the same cluster, time, kind and reason, it is kept once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberEvent {
    /// Name of the Cluster.
    pub cluster: String,
    /// uid of the Cluster, where it is known.
    pub uid: Option<String>,
    /// When.
    pub at: Timestamp,
    /// What.
    pub kind: MemberEventKind,
    /// Why, in one word; the key of the taint for taints.
    pub reason: String,
    /// Why, for people.
    pub message: String,
}

/// An event to note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Of a decision.
    Milestone(Milestone),
    /// Of a member.
    Member(MemberEvent),
}

/// Events of members that match all of it. The default matches every one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemberFilter {
    /// Name of the Cluster.
    pub cluster: Option<String>,
    /// Then or later.
    pub since: Option<Timestamp>,
    /// Before.
    pub until: Option<Timestamp>,
}

/// Part of a list of members' events, newest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MemberPage {
    /// The events.
    pub events: Vec<MemberEvent>,
    /// Where the next page starts, when there is more.
    pub next: Option<Position>,
}

/// Who decided, and what it read: the generations of template and policies, and who wrote them last.
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
    pub sources: Vec<Source>,
}

/// An object that a decision was made from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Source {
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
    /// The last change that managedFields tell of, status aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<Changed>,
}

/// A change, as managedFields tell it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Changed {
    /// The field manager, for example `kubectl-client-side-apply`.
    pub manager: String,
    /// `Apply` or `Update`.
    pub operation: String,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

/// A share that a cluster had at some time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resident {
    /// uid of the binding.
    pub binding_uid: String,
    /// Namespace, `None` for cluster-scoped workloads.
    pub namespace: Option<String>,
    /// Kind of the template.
    pub workload_kind: String,
    /// Name of the template.
    pub workload_name: String,
    /// The share; 0 for kinds without replicas.
    pub replicas: i64,
    /// id of the decision that set it.
    pub decision: String,
    /// When that was.
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
