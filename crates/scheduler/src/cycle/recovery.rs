//! Whether a preferred place is available again: an earlier overflow tier, subset or domain has room for replicas that
//! run in a later one. (The cycle itself tries earlier affinity terms.)

use jiff::Timestamp;

use super::intent::Strategy;
use super::state::Cycle;
use crate::framework::status::Code;
use crate::framework::verdicts::Hold;
use crate::request::Request;
use crate::state::row::{Ready, Row};
use atoll_decision::BitSet;

/// When a member that became Ready recently counts as stable. `None` if it already does, or if it is not Ready.
#[must_use]
pub fn stable_at(row: &Row, request: &Request) -> Option<Timestamp> {
    let Ready::Since(since) = row.ready else { return None };
    let stable = since.checked_add(request.recover_after.0).unwrap_or(Timestamp::MAX);
    (stable > request.now).then_some(stable)
}

/// Whether work may move back to a member. Its taints are removed shortly before it becomes Ready.
fn is_stable(row: &Row, request: &Request) -> bool {
    row.ready != Ready::No && stable_at(row, request).is_none()
}

/// Rejects members that have not been Ready for long enough to move work back.
pub fn hold_back(cycle: &mut Cycle<'_>) {
    if cycle.as_karmada() {
        return;
    }
    let mut rows = BitSet::empty(cycle.snapshot.len());
    for row in cycle.verdicts.passing.iter() {
        let stable = is_stable(cycle.snapshot.row(row), cycle.request);
        if !stable && !cycle.targets.rows.contains(row) {
            rows.insert(row);
        }
    }
    let seconds = cycle.request.recover_after.0.as_secs();
    let reason = format!("has been Ready for less than {seconds} s: no work moves back yet");
    cycle.verdicts.reject("Recovery", Code::Unschedulable, reason, rows, Hold::Always);
}

/// Describes what is available again.
pub fn find(cycle: &mut Cycle<'_>) -> Option<String> {
    if !cycle.intent.strategy.divides() || cycle.targets.is_empty() {
        return None;
    }
    if let Some(tiers) = &cycle.tiers {
        return between(cycle, &|row| tiers.get(row).copied(), "overflow tier");
    }
    match &cycle.intent.strategy {
        Strategy::WorkloadSpread(_) | Strategy::WorkloadPolicy(_) => {
            // The division implements targets and limits, so run it and see whether it would move replicas.
            let trigger =
                std::mem::replace(&mut cycle.trigger, atoll_api::binding::Trigger::Recover);
            cycle.kept = cycle.kept(false);
            let moved = super::score_and_select(cycle).is_ok() && {
                cycle.rules.skews.clear();
                super::assign(cycle).is_ok()
            };
            let moved = moved
                && cycle.assignment.take().is_some_and(|assignment| {
                    assignment.refused.is_none()
                        && cycle
                            .candidates
                            .iter()
                            .zip(&assignment.seats)
                            .any(|(row, seats)| *seats < cycle.targets.on(*row as usize))
                });
            cycle.trigger = trigger;
            cycle.groups.clear();
            moved.then(|| "an earlier subset or domain has room again".to_owned())
        }
        _ => None,
    }
}

/// Whether a passing cluster of an earlier level has room while replicas run in a later one.
fn between(cycle: &Cycle<'_>, level: &dyn Fn(usize) -> Option<u32>, what: &str) -> Option<String> {
    let last = cycle
        .targets
        .seats
        .iter()
        .filter(|(_, seats)| *seats > 0)
        .filter_map(|(row, _)| level(*row as usize))
        .max()?;
    let free = cycle.verdicts.passing.iter().find(|row| {
        level(*row).is_some_and(|level| level < last)
            && cycle.more(*row).is_none_or(|more| more > 0)
    })?;
    Some(format!("{} in an earlier {what} has room", cycle.snapshot.row(free).name))
}
