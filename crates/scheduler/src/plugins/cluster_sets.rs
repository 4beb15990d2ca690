//! ClusterSets: the clusters that a namespace may use. Work leaves a cluster that its namespace may not use any more.

use crate::cycle::state::Cycle;
use crate::framework::plugin::Plugin;
use crate::framework::status::{Code, Status};
use crate::framework::verdicts::{Hold, Verdicts};
use crate::state::cluster_sets::{Reach, SetsOf};

/// See the module documentation.
#[derive(Debug)]
pub struct ClusterSets;
super::without_args!(ClusterSets);

/// The plugin's name.
pub const NAME: &str = atoll_decision::plugin::CLUSTER_SETS;

impl Plugin for ClusterSets {
    fn name(&self) -> &'static str {
        NAME
    }

    fn filter(&self, cycle: &Cycle<'_>, verdicts: &mut Verdicts) -> Status {
        evict(cycle, verdicts);
        Status::success()
    }
}

/// Rejects the clusters that the namespace may not use. Applies in every profile, even if the plugin is not enabled: no
/// policy and no profile reaches beyond a ClusterSet.
pub fn evict(cycle: &Cycle<'_>, verdicts: &mut Verdicts) {
    let Some(sets) = limits(cycle) else { return };
    let hold = if sets.uncertain { Hold::Always } else { Hold::Never };
    let column = cycle.cache.borrow_mut().sets.get(cycle.snapshot, &sets);
    let code = Code::UnschedulableAndUnresolvable;
    // Karmada's rules have no targets that stay although a filter rejects them: there the cluster passes.
    let except = (sets.uncertain && cycle.as_karmada()).then_some(&cycle.targets.rows);
    verdicts.reject_classes(NAME, code, &column.0, except, hold);
}

/// Whether a target is on a cluster that its namespace may not use.
#[must_use]
pub fn has_target_outside(cycle: &Cycle<'_>) -> bool {
    let Some(sets) = limits(cycle).filter(|sets| !sets.uncertain) else { return false };
    let column = cycle.cache.borrow_mut().sets.get(cycle.snapshot, &sets);
    let mut seats = cycle.targets.seats.iter();
    seats.any(|(row, _)| !column.0.pass.contains(*row as usize))
}

fn limits(cycle: &Cycle<'_>) -> Option<SetsOf> {
    match cycle.snapshot.cluster_sets().reach(cycle.request.key.namespace()) {
        Reach::All => None,
        Reach::Sets(sets) => Some(sets),
    }
}
