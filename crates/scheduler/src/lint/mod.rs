//! An independent checker of decisions: own code, no calls into the core's arithmetic. It knows the rules, not the ways.

mod candidates;
mod check;
mod groups;
mod shares;

use crate::request::Request;
use crate::state::snapshot::Snapshot;
use atoll_decision::Decision;

/// One rule that a decision breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The invariant or rule.
    pub rule: &'static str,
    /// What is wrong.
    pub what: String,
}

/// Checks a decision against its snapshot and request; no faults = sound.
#[must_use]
pub fn lint(snapshot: &Snapshot, request: &Request, decision: &Decision) -> Vec<Fault> {
    let mut check = check::Check::new(snapshot, request, decision);
    check.shares();
    check.conservation();
    check.movement();
    check.candidates();
    check.capacity();
    check.bounds();
    check.groups();
    check.targets();
    check.evictions();
    check.report();
    check.faults
}
