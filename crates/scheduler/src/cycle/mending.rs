//! A rebalance that only mends skew (`RebalanceMode::MendSkew`).

use atoll_api::binding::Trigger;
use atoll_api::rebalancer::RebalanceMode;
use atoll_api::text::counted;

use super::intent::{Intent, Strategy};
use super::state::Cycle;
use crate::divide::mend;
use crate::request::Request;

/// Whether this decision mends skew and leaves everything else where it is.
#[must_use]
pub fn is_requested(request: &Request, trigger: Trigger, intent: &Intent) -> bool {
    trigger == Trigger::Rebalance
        && request.rebalance == RebalanceMode::MendSkew
        && intent.strategy.divides()
        && !matches!(
            intent.strategy,
            // Their own targets and limits decide where replicas are.
            Strategy::WorkloadPolicy(_) | Strategy::WorkloadSpread(_) | Strategy::MissingPolicy(_)
        )
}

/// Moves replicas of the assignment until the topologySpreadConstraints hold.
pub fn mend(cycle: &mut Cycle<'_>) {
    let input = cycle.division_input();
    let Some(assignment) = cycle.assignment.as_mut().filter(|a| a.refused.is_none()) else {
        return;
    };
    if cycle.tiers.is_some() {
        cycle.notes.push("skew is not mended: overflowAffinities order the clusters".to_owned());
        return;
    }
    let mended = mend::mend(&input, &assignment.seats);
    assignment.seats = mended.seats;
    cycle.notes.push(match mended.moved {
        0 => "no replica had to move for topologySpreadConstraints".to_owned(),
        moved => format!("{} moved for topologySpreadConstraints", counted(moved, "replica")),
    });
    for key in mended.unmended {
        cycle.notes.push(format!(
            "the skew over {key} is still above maxSkew: no other cluster can take a replica without making it worse"
        ));
    }
}
