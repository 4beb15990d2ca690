//! The pages Placement and Policies.

use super::{Paged, Tone, When, Word, WorkloadId};

/// Filters of the heat map: what its address has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlacementFilter {
    /// Only of this namespace.
    pub namespace: Option<String>,
    /// Only names that contain this.
    pub name: Option<String>,
    /// Only of this kind.
    pub kind: Option<String>,
    /// Only those that this policy claims.
    pub policy: Option<String>,
    /// Only in this state.
    pub state: Option<String>,
    /// Only with these labels on the binding: `key=value`.
    pub label: Option<String>,
    /// Page of workloads.
    pub page: usize,
    /// Page of members.
    pub columns: usize,
}

/// The page Placement.
#[derive(Debug, Clone, Default)]
pub struct Placement {
    /// Names of the members of this page.
    pub members: Paged<String>,
    /// Workloads.
    pub rows: Paged<MapRow>,
    /// Largest share of the page.
    pub most: i64,
    /// What is not shown, and why.
    pub notes: Vec<String>,
}

/// One workload in the heat map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapRow {
    /// The workload.
    pub workload: WorkloadId,
    /// Its state.
    pub state: Word,
    /// Desired replicas.
    pub replicas: Option<i64>,
    /// Its share on each member of the page; `None` = no share.
    pub cells: Vec<Option<Cell>>,
    /// Replicas on members of other pages.
    pub elsewhere: usize,
}

/// One share in the heat map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// Replicas; `None` for a kind without.
    pub replicas: Option<i64>,
    /// Health there.
    pub tone: Tone,
}

/// The page Policies.
#[derive(Debug, Clone, Default)]
pub struct Policies {
    /// The policies.
    pub rows: Paged<Policy>,
    /// What the linter finds.
    pub findings: Paged<Finding>,
    /// When that was found, and which policies win; `None` while it is found for the first time.
    pub checked: Option<When>,
    /// What is not shown, and why.
    pub notes: Vec<String>,
}

/// One policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Kind, then namespace and name.
    pub name: String,
    /// Its explicit priority.
    pub priority: i64,
    /// What it selects.
    pub selects: Vec<String>,
    /// How many workloads it claims.
    pub claims: usize,
    /// Some of them.
    pub examples: Vec<WorkloadId>,
    /// Policies that win over it, and for how many workloads.
    pub shadowed_by: Vec<(String, usize)>,
}

/// What the linter found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Error or warning.
    pub severity: Word,
    /// The object.
    pub object: String,
    /// The field.
    pub field: String,
    /// The problem.
    pub problem: String,
    /// What to do.
    pub fix: String,
}
