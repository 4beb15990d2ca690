//! `clusterAffinity`, or the current term of `clusterAffinities`, with its overflow tiers.

use crate::cycle::state::Cycle;
use crate::framework::plugin::Plugin;
use crate::framework::status::{Code, Status};
use crate::framework::verdicts::{Hold, Verdicts};
use atoll_decision::BitSet;

/// See the module documentation.
#[derive(Debug)]
pub struct ClusterAffinity;
super::without_args!(ClusterAffinity);

/// The plugin's name.
pub const NAME: &str = atoll_decision::plugin::CLUSTER_AFFINITY;
/// Marks a cluster that is in no tier.
pub const NO_TIER: u32 = u32::MAX;

impl Plugin for ClusterAffinity {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, cycle: &mut Cycle<'_>) -> Status {
        let Some(own) = &cycle.term.affinity else { return Status::skip() };
        if cycle.term.tiers.is_empty() || cycle.intent.desired.is_none() {
            return Status::success();
        }
        let mut tiers = vec![NO_TIER; cycle.snapshot.len()];
        let all = std::iter::once(own).chain(cycle.term.tiers.iter().map(|tier| &tier.affinity));
        for (tier, affinity) in (0..).zip(all) {
            let column = cycle.cache.borrow_mut().affinity.get(cycle.snapshot, affinity);
            for row in column.0.pass.iter().filter(|row| tiers[*row] == NO_TIER).collect::<Vec<_>>()
            {
                tiers[row] = tier;
            }
        }
        cycle.tiers = Some(tiers);
        Status::success()
    }

    fn filter(&self, cycle: &Cycle<'_>, verdicts: &mut Verdicts) -> Status {
        let Some(affinity) = &cycle.term.affinity else { return Status::skip() };
        let column = cycle.cache.borrow_mut().affinity.get(cycle.snapshot, affinity);
        let in_tier = cycle.tiers.as_ref().map(|tiers| {
            let mut rows = BitSet::empty(tiers.len());
            (0..tiers.len()).filter(|row| tiers[*row] != NO_TIER).for_each(|row| rows.insert(row));
            rows
        });
        let hold = if cycle.as_karmada() { Hold::Never } else { Hold::UnlessChange };
        let code = Code::UnschedulableAndUnresolvable;
        verdicts.reject_classes(NAME, code, &column.0, in_tier.as_ref(), hold);
        Status::success()
    }
}
