//! The pages of a workload, of one on a member, and of a member.

use jiff::Timestamp;

use super::{Concern, DecisionRow, MemberTile, Paged, Timeline, Verdict, When, Word, WorkloadId};

/// A condition of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Its type.
    pub kind: String,
    /// Its status.
    pub status: Word,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// Since when.
    pub since: Option<When>,
}

/// What one workload is on one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// The workload; on its own page, `None`.
    pub workload: Option<WorkloadId>,
    /// The member; on its own page, empty.
    pub member: String,
    /// Replicas that it should have there; `None` for kinds without.
    pub replicas: Option<i64>,
    /// Replicas that are ready.
    pub ready: Option<i64>,
    /// Its role: `Target`, `Leaving`, ...
    pub standing: String,
    /// Whether the member applied the last decision, or why not.
    pub applied: Word,
    /// Health, and why.
    pub health: Word,
}

/// The page of a workload.
#[derive(Debug, Clone, Default)]
pub struct Workload {
    /// Its name.
    pub id: WorkloadId,
    /// The policy that claims it: kind, then name.
    pub policy: Option<String>,
    /// Desired replicas.
    pub replicas: Option<i64>,
    /// Its binding's conditions.
    pub conditions: Vec<Condition>,
    /// What keeps it from being as it should be.
    pub concerns: Vec<Concern>,
    /// The current split.
    pub shares: Paged<Share>,
    /// Where it ran.
    pub timeline: Option<Timeline>,
    /// The last decisions, newest first.
    pub decisions: Vec<DecisionRow>,
    /// The last decision that weighed clusters.
    pub decision: Option<DecisionRow>,
    /// What that decision says about each cluster.
    pub verdicts: Paged<Verdict>,
    /// What is not shown, and why.
    pub notes: Vec<String>,
}

/// The page of a workload on one member.
#[derive(Debug, Clone, Default)]
pub struct Copy {
    /// The workload.
    pub id: WorkloadId,
    /// The member.
    pub member: String,
    /// The manifest there beside the template: unchanged lines, and what was removed and added.
    pub lines: Vec<Line>,
    /// The status that the member reports, as YAML.
    pub status: Option<String>,
    /// Events about it there.
    pub events: Vec<Event>,
    /// What is not shown, and why.
    pub notes: Vec<String>,
}

/// A line of a difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// `None`: in both; false: only before; true: only after.
    pub added: Option<bool>,
    /// The line.
    pub text: String,
}

/// A Kubernetes Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When it was last seen.
    pub at: Option<When>,
    /// Its type and reason.
    pub reason: Word,
    /// Its message.
    pub message: String,
    /// How often.
    pub count: i64,
}

/// A number over time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Course {
    /// Since each time it has been so much; oldest first.
    pub steps: Vec<(Timestamp, i64)>,
    /// The end.
    pub until: Timestamp,
}

/// The page of a member.
#[derive(Debug, Clone, Default)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its tile.
    pub tile: Option<MemberTile>,
    /// Facts: name and value.
    pub facts: Vec<(String, String)>,
    /// Its taints.
    pub taints: Vec<String>,
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// What runs there.
    pub shares: Paged<Share>,
    /// What happened to it, and decisions that changed its share; newest first.
    pub events: Vec<DecisionRow>,
    /// Requested percentage of each resource over time.
    pub uses: Vec<(String, Course)>,
    /// Replicas that decisions gave it, over time.
    pub course: Option<Course>,
    /// Whether it has a cordon or drain to take back.
    pub cordoned: bool,
    /// What is not shown, and why.
    pub notes: Vec<String>,
}
