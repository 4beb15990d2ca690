//! Rejects clusters that the binding is leaving, until their eviction tasks have ended.

use crate::cycle::state::Cycle;
use crate::framework::plugin::Plugin;
use crate::framework::status::{Code, Status};
use crate::framework::verdicts::{Hold, Verdicts};
use atoll_decision::BitSet;

/// See the module documentation.
#[derive(Debug)]
pub struct ClusterEviction;
super::without_args!(ClusterEviction);

/// The plugin's name.
pub const NAME: &str = atoll_decision::plugin::CLUSTER_EVICTION;

impl Plugin for ClusterEviction {
    fn name(&self) -> &'static str {
        NAME
    }

    fn filter(&self, cycle: &Cycle<'_>, verdicts: &mut Verdicts) -> Status {
        evict(cycle, verdicts);
        Status::success()
    }
}

/// Rejects the clusters that the binding is leaving. Applies in every profile, even if the plugin is not enabled: a
/// cluster is never both a target and evicting.
pub fn evict(cycle: &Cycle<'_>, verdicts: &mut Verdicts) {
    let mut tasks = cycle.request.previous.iter().flat_map(|previous| &previous.eviction_tasks);
    let Some(first) = tasks.next() else { return };
    let tasks = std::iter::once(first).chain(tasks);
    let mut leaving = BitSet::empty(cycle.snapshot.len());
    tasks.filter_map(|t| cycle.snapshot.find(&t.from_cluster)).for_each(|r| leaving.insert(r));
    let hold = if cycle.as_karmada() { Hold::Never } else { Hold::Always };
    let reason = "the binding is being evicted from it";
    verdicts.reject(NAME, Code::Unschedulable, reason, leaving, hold);
}
