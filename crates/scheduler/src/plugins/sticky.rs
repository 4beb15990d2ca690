//! `placement.sticky: true`: a placed workload stays where it is, even if clusters fail, until a rebalance is
//! requested.
//!
//! The trigger order admits only Scale and Rebalance; this plugin keeps scaling on the same clusters.

use atoll_api::binding::Mode;

use crate::cycle::state::Cycle;
use crate::framework::plugin::Plugin;
use crate::framework::status::{Code, Status};
use crate::framework::verdicts::{Hold, Verdicts};
use crate::plugins::cluster_sets;

/// See the module documentation.
#[derive(Debug)]
pub struct Sticky;
super::without_args!(Sticky);

/// The plugin's name.
pub const NAME: &str = atoll_decision::plugin::STICKY;

impl Plugin for Sticky {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, cycle: &mut Cycle<'_>) -> Status {
        let holds = cycle.request.placement.sticky
            && !cycle.targets.is_empty()
            && cycle.mode != Mode::Fresh
            // No policy keeps work outside a ClusterSet.
            && !cluster_sets::has_target_outside(cycle);
        // Failed rules do not move the workload.
        cycle.keeps_all = holds;
        if holds { Status::success() } else { Status::skip() }
    }

    fn filter(&self, cycle: &Cycle<'_>, verdicts: &mut Verdicts) -> Status {
        let mut others = cycle.snapshot.all();
        others.minus(&cycle.targets.rows);
        let code = Code::UnschedulableAndUnresolvable;
        let reason = "placement.sticky: the binding stays where it was placed";
        verdicts.reject(NAME, code, reason, others, Hold::Always);
        Status::success()
    }
}
