//! Decisions, and what they say about clusters.

use jiff::Timestamp;

use super::{NO_NAMESPACE, Paged, Tone, When, Word, WorkloadId};
use crate::query::encode;

/// One decision in a list, or an event of a member.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DecisionRow {
    /// Its id; empty for events of members.
    pub id: String,
    /// Its namespace.
    pub namespace: Option<String>,
    /// When it was made.
    pub at: Option<When>,
    /// The workload.
    pub workload: Option<WorkloadId>,
    /// What caused it.
    pub trigger: String,
    /// Its outcome.
    pub outcome: Word,
    /// Shares before and after.
    pub change: String,
    /// Why.
    pub reason: String,
}

impl DecisionRow {
    /// The address of its page; `None` if it has no id.
    #[must_use]
    pub fn path(&self) -> Option<String> {
        (!self.id.is_empty()).then(|| decision_path(self.namespace.as_deref(), &self.id))
    }
}

/// The permalink of a decision.
#[must_use]
pub fn decision_path(namespace: Option<&str>, id: &str) -> String {
    format!("/decisions/{}/{}", encode(namespace.unwrap_or(NO_NAMESPACE)), encode(id))
}

/// Filters of the list of decisions: what its address has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DecisionFilter {
    /// Only of this namespace.
    pub namespace: Option<String>,
    /// Only of this kind of workload.
    pub kind: Option<String>,
    /// Only of workloads with this name.
    pub name: Option<String>,
    /// Only with this trigger.
    pub trigger: Option<String>,
    /// Only with this outcome.
    pub outcome: Option<String>,
    /// Only those that changed the share of this member.
    pub member: Option<String>,
    /// Not before this time, or this long ago.
    pub since: Option<String>,
    /// Before this time, or this long ago.
    pub until: Option<String>,
}

/// The page Decisions.
#[derive(Debug, Clone, Default)]
pub struct Decisions {
    /// Newest first.
    pub rows: Vec<DecisionRow>,
    /// Value of `until` for the next, older page; `None` if there is none.
    pub older: Option<String>,
    /// Values that the form offers.
    pub triggers: Vec<String>,
    /// Values that the form offers.
    pub outcomes: Vec<String>,
}

/// Why one cluster has what it has, by a decision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict {
    /// The cluster.
    pub cluster: String,
    /// Whether it was chosen.
    pub fate: Word,
    /// Replicas before.
    pub before: Option<i64>,
    /// Replicas after.
    pub after: Option<i64>,
    /// Room for more, and what limits it.
    pub room: String,
    /// The rules that refuse it, with the values that failed.
    pub refused: Vec<String>,
    /// Scores by plugin.
    pub scores: Vec<String>,
    /// What would change the result.
    pub remedies: Vec<String>,
}

/// The page of one decision.
#[derive(Debug, Clone, Default)]
pub struct DecisionPage {
    /// Its row.
    pub row: DecisionRow,
    /// The decision before it.
    pub parent: Option<String>,
    /// The whole explanation as text, as `atoll explain` prints it.
    pub text: String,
    /// The clusters.
    pub verdicts: Paged<Verdict>,
    /// Objects that it was made from, and who changed them last.
    pub made_from: Vec<String>,
    /// What followed it on members.
    pub followed: Vec<String>,
}

/// The page with the difference of two decisions.
#[derive(Debug, Clone, Default)]
pub struct DiffPage {
    /// The first.
    pub from: DecisionRow,
    /// The second.
    pub to: DecisionRow,
    /// Titles, and what differs.
    pub sections: Vec<(String, Vec<DiffLine>)>,
    /// What could not be compared, and why.
    pub unknown: Vec<String>,
}

/// One value that differs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiffLine {
    /// What it is the value of.
    pub of: String,
    /// The value in the first decision.
    pub from: Option<String>,
    /// The value in the second.
    pub to: Option<String>,
}

/// Where a workload ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    /// Begin.
    pub from: Timestamp,
    /// End.
    pub until: Timestamp,
    /// By name.
    pub lanes: Vec<Lane>,
    /// The decisions, oldest first.
    pub marks: Vec<Mark>,
    /// Older decisions were left out.
    pub truncated: bool,
}

/// A member in a timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    /// The member.
    pub member: String,
    /// In time order.
    pub spans: Vec<Span>,
}

/// A time with an unchanged share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Begin.
    pub from: Timestamp,
    /// End.
    pub until: Timestamp,
    /// `None`: unknown.
    pub replicas: Option<i64>,
}

/// A decision in a timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// When.
    pub at: Timestamp,
    /// Its page; `None` if it has none.
    pub path: Option<String>,
    /// Its trigger, outcome and reason.
    pub label: String,
    /// Its outcome's tone.
    pub tone: Tone,
}
