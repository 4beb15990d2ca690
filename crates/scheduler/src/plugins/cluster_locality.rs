//! Scores 100 for clusters that already run the binding.

use crate::cycle::state::Cycle;
use crate::framework::plugin::Plugin;
use crate::framework::scores::{MAX, Scores, Values};
use crate::framework::status::Status;

/// See the module documentation.
#[derive(Debug)]
pub struct ClusterLocality;
super::without_args!(ClusterLocality);

impl Plugin for ClusterLocality {
    fn name(&self) -> &'static str {
        "ClusterLocality"
    }

    fn score(&self, cycle: &Cycle<'_>, scores: &mut Scores<'_>) -> Status {
        scores.values = if cycle.targets.rows.is_empty() {
            Values::Same(0)
        } else {
            let here = |row: &u32| cycle.targets.rows.contains(*row as usize);
            let score = |row| if here(row) { MAX } else { 0 };
            Values::Each(scores.candidates.iter().map(score).collect())
        };
        Status::success()
    }
}
