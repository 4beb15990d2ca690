//! Capacity: how many more replicas fit, from the members' reports minus reservations of earlier decisions.

use serde_json::Value;

use crate::cycle::state::Cycle;
use crate::framework::plugin::Plugin;
use crate::framework::registry::{ArgError, known_args, word_arg};
use crate::framework::scores::{Scores, Values};
use crate::framework::status::Status;
use crate::framework::verdicts::Verdicts;
use crate::state::cache::CapacityKey;
use crate::state::needs::Needs;

/// See the module documentation.
#[derive(Debug)]
pub struct ResourceFit {
    most_allocated: bool,
}

/// The plugin's name.
pub const NAME: &str = atoll_decision::plugin::RESOURCE_FIT;

impl ResourceFit {
    /// Creates the plugin. Arg `strategy`: `LeastAllocated` (default) prefers clusters with the most room,
    /// `MostAllocated` those with the least.
    ///
    /// # Errors
    /// An unknown arg or word.
    pub fn new(args: Option<&Value>) -> Result<Self, ArgError> {
        known_args(args, &["strategy"])?;
        let words = [("LeastAllocated", false), ("MostAllocated", true)];
        Ok(Self { most_allocated: word_arg(args, "strategy", &words)?.unwrap_or(false) })
    }
}

impl Plugin for ResourceFit {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, cycle: &mut Cycle<'_>) -> Status {
        let Some(desired) = cycle.intent.desired else { return Status::skip() };
        if cycle.as_karmada() && desired == 0 {
            return Status::skip();
        }
        let key = CapacityKey { needs: cycle.intent.needs.clone(), as_karmada: cycle.as_karmada() };
        cycle.capacity = Some(cycle.cache.borrow_mut().capacity.get(cycle.snapshot, &key));
        Status::success()
    }

    fn filter(&self, cycle: &Cycle<'_>, verdicts: &mut Verdicts) -> Status {
        // A cluster with too little room is not rejected: the capacity column limits what it takes. Only a cluster with
        // unreadable figures is limited here, to its running replicas.
        let Some(column) = cycle.capacity.as_ref().filter(|_| !cycle.as_karmada()) else {
            return Status::skip();
        };
        let mut unreadable = column.unreadable.clone();
        unreadable.and(&verdicts.passing);
        for row in unreadable.iter() {
            let problem = cycle.snapshot.row(row).problems.first().cloned().unwrap_or_default();
            verdicts.limit(NAME, row, cycle.targets.on(row), problem);
        }
        Status::success()
    }

    fn score(&self, cycle: &Cycle<'_>, scores: &mut Scores<'_>) -> Status {
        let Some(column) = &cycle.capacity else { return Status::skip() };
        let scored =
            cycle.cache.borrow_mut().room_scores(column, &cycle.scored_set, self.most_allocated);
        if let Some(values) = scored {
            scores.values = Values::Each(values);
        }
        Status::success()
    }

    fn reserve(&self, cycle: &mut Cycle<'_>) -> Status {
        // Reservations are derived from committed shares when those enter the tables. Here only the amounts are
        // checked: they must be representable.
        let needs: &Needs = &cycle.intent.needs;
        let Some(assignment) = &cycle.assignment else { return Status::success() };
        let total = assignment.seats.iter().fold(0_i64, |sum, seats| sum.saturating_add(*seats));
        match needs.countable(total).map_err(crate::cycle::check::request) {
            Ok(()) => Status::success(),
            Err(mistake) => {
                Status::new(crate::framework::status::Code::Unschedulable, mistake.to_string())
            }
        }
    }
}
