//! An independent checker of decisions. It implements the rules on its own and does not call the core's arithmetic.

mod affinity;
mod candidates;
mod check;
mod groups;
mod preemption;
mod quota;
mod shares;

use crate::request::Request;
use crate::state::snapshot::Snapshot;
use atoll_decision::Decision;

/// A rule that a decision violates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The invariant or rule.
    pub rule: &'static str,
    /// The violation.
    pub what: String,
}

/// Checks a decision against its snapshot and request. A sound decision has no faults.
#[must_use]
pub fn lint(snapshot: &Snapshot, request: &Request, decision: &Decision) -> Vec<Fault> {
    let mut check = check::Check::new(snapshot, request, decision);
    check.shares();
    check.conservation();
    check.movement();
    check.cluster_sets();
    check.candidates();
    check.affinity();
    check.capacity();
    check.quota();
    check.takes_room();
    check.gives_room();
    check.bounds();
    check.groups();
    check.targets();
    check.evictions();
    check.report();
    check.faults
}
