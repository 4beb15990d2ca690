//! History as Kubernetes objects: the read-only kinds `Decision`, `ClusterDecision`, `MemberEvent` and `DecisionInput`
//! of `history.atoll.dev`.
//!
//! The servers of these kinds (the embedded API server, an aggregated API) handle paths, discovery and tables; this
//! module defines the objects, their columns and their selectors.

pub mod inputs;
mod life;
mod members;
mod object;
mod query;
mod schema;
mod serve;
pub mod text;

pub use object::{cells, object};
pub use query::{LABEL_CLUSTER, Query};
pub use schema::schema;
pub use serve::{ApiError, Follower, List, follow, get, list};

/// The kinds of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Decisions about namespaced bindings.
    Decision,
    /// Decisions about cluster-scoped bindings.
    ClusterDecision,
    /// Events of member clusters.
    MemberEvent,
    /// What decisions read.
    DecisionInput,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 4] =
        [Self::Decision, Self::ClusterDecision, Self::MemberEvent, Self::DecisionInput];

    /// Name of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Decision => "Decision",
            Self::ClusterDecision => "ClusterDecision",
            Self::MemberEvent => "MemberEvent",
            Self::DecisionInput => "DecisionInput",
        }
    }

    /// Plural name, used in paths.
    #[must_use]
    pub fn plural(self) -> &'static str {
        match self {
            Self::Decision => "decisions",
            Self::ClusterDecision => "clusterdecisions",
            Self::MemberEvent => "memberevents",
            Self::DecisionInput => "decisioninputs",
        }
    }

    /// Singular name.
    #[must_use]
    pub fn singular(self) -> &'static str {
        match self {
            Self::Decision => "decision",
            Self::ClusterDecision => "clusterdecision",
            Self::MemberEvent => "memberevent",
            Self::DecisionInput => "decisioninput",
        }
    }

    /// Short name.
    #[must_use]
    pub fn short_name(self) -> &'static str {
        match self {
            Self::Decision => "dec",
            Self::ClusterDecision => "cdec",
            Self::MemberEvent => "mev",
            Self::DecisionInput => "decin",
        }
    }

    /// Whether the kind is namespaced.
    #[must_use]
    pub fn namespaced(self) -> bool {
        self == Self::Decision
    }
}

/// A column of the table that `kubectl get` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Heading.
    pub name: &'static str,
    /// OpenAPI type of the cells.
    pub kind: &'static str,
    /// OpenAPI format; `name` marks the column with the object's name.
    pub format: &'static str,
    /// Description for users.
    pub description: &'static str,
    /// Whether it is shown only with `-o wide`.
    pub wide: bool,
}

const fn column(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "string", format: "", description, wide: false }
}

/// Columns of decisions.
const DECISIONS: [Column; 13] = [
    Column { format: "name", ..column("Name", "id of the decision") },
    column("Age", "how long ago it was made"),
    column("Workload", "kind and name of the template"),
    column("Trigger", "why it was made"),
    column("Outcome", "how it ended"),
    column("Before -> After", "the shares of the clusters"),
    column("Reason", "why, in a line"),
    Column { wide: true, kind: "integer", ..column("Desired", "replicas asked for") },
    Column { wide: true, kind: "integer", ..column("Pending", "replicas without a place") },
    Column { wide: true, ..column("Mode", "what could move") },
    Column { wide: true, ..column("Parent", "the binding's decision before") },
    Column { wide: true, ..column("Applied", "how long until every member had it") },
    Column { wide: true, ..column("Healthy", "how long until every member was healthy") },
];

/// Columns of inputs.
const INPUTS: [Column; 2] = [
    Column { format: "name", ..column("Name", "id of the decision") },
    column("Inputs", "whether they are there"),
];

/// Columns of member events.
const MEMBERS: [Column; 6] = [
    Column { format: "name", ..column("Name", "cluster and time") },
    column("Age", "how long ago it was"),
    column("Cluster", "the member"),
    column("Event", "what happened"),
    column("Reason", "why, in a word"),
    column("Message", "why, for people"),
];

impl Kind {
    /// The columns of its tables, in the order of [`cells`].
    #[must_use]
    pub fn columns(self) -> &'static [Column] {
        match self {
            Self::Decision | Self::ClusterDecision => &DECISIONS,
            Self::MemberEvent => &MEMBERS,
            Self::DecisionInput => &INPUTS,
        }
    }

    /// Fields that a field selector may name, in addition to `metadata.name` and `metadata.namespace`.
    #[must_use]
    pub fn selectable_fields(self) -> &'static [&'static str] {
        match self {
            Self::Decision | Self::ClusterDecision => &crate::filter::FIELDS,
            Self::MemberEvent => &query::MEMBER_FIELDS,
            Self::DecisionInput => &[],
        }
    }
}
