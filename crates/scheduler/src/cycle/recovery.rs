//! Whether something preferred is back: an earlier overflow tier, subset or domain has room for replicas that run in a
//! later one. (An earlier affinity term is tried by the cycle itself.)

use super::intent::Strategy;
use super::state::Cycle;

/// What is back, in words.
pub fn find(cycle: &mut Cycle<'_>) -> Option<String> {
    if !cycle.intent.strategy.divides() || cycle.targets.is_empty() {
        return None;
    }
    if let Some(tiers) = &cycle.tiers {
        return between(cycle, &|row| tiers.get(row).copied(), "overflow tier");
    }
    match &cycle.intent.strategy {
        Strategy::WorkloadSpread(_) | Strategy::WorkloadPolicy(_) => {
            // The division itself knows targets and limits: it is asked what it would move.
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
    Some(format!("{} of an earlier {what} has room", cycle.snapshot.row(free).name))
}
