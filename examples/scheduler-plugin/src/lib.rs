//! A plugin for Atoll's scheduler: prefers cheap clusters, and rejects those above a limit.
//!
//! The price of a cluster is a label with cents per hour. Copy this crate as the start of your own plugin.
//!
//! A profile enables the plugin by name:
//!
//! ```yaml
//! apiVersion: config.atoll.dev/v1alpha1
//! kind: SchedulerConfiguration
//! profiles:
//! - schedulerName: cheap
//!   plugins:
//!     filter: {enabled: [{name: Price}]}
//!     score: {enabled: [{name: Price, weight: 10}]}
//!   pluginConfig:
//!   - name: Price
//!     args: {label: example.io/cents, mostCents: 50}
//! ```

use std::sync::Arc;

use atoll_decision::{BitSet, Code};
use atoll_scheduler::cycle::state::Cycle;
use atoll_scheduler::framework::plugin::{Plugin, Point};
use atoll_scheduler::framework::registry::{known_args, number_arg, text_arg};
use atoll_scheduler::framework::scores::{MAX, Scores, Values};
use atoll_scheduler::framework::status::Status;
use atoll_scheduler::framework::verdicts::{Hold, Verdicts};
use atoll_scheduler::{ArgError, Build, Registration};
use serde_json::Value;

/// The plugin's name in configuration and in explanations.
pub const NAME: &str = "Price";

/// The label if the args name none.
const LABEL: &str = "example.io/cents";
/// Highest limit: with it, scores cannot overflow.
const MOST_CENTS: i64 = 1_000_000_000;

/// See the crate's documentation.
#[derive(Debug)]
pub struct Price {
    label: String,
    most: Option<i64>,
}

/// What `Profiles::read_with` needs to know.
pub const REGISTRATION: Registration = Registration {
    name: NAME,
    points: &[Point::Filter, Point::Score],
    build: Build::Core(|args| Ok(Arc::new(Price::new(args)?))),
};

impl Price {
    /// Creates the plugin from its args: `label`, and `mostCents`, above which a cluster is rejected.
    ///
    /// # Errors
    /// The path of an arg below `args`, and what it must be.
    pub fn new(args: Option<&Value>) -> Result<Self, ArgError> {
        known_args(args, &["label", "mostCents"])?;
        Ok(Self {
            label: text_arg(args, "label")?.unwrap_or(LABEL).to_owned(),
            most: number_arg(args, "mostCents", 0..=MOST_CENTS)?,
        })
    }

    /// The price of a cluster. `None` if the label is absent or no number.
    fn cents(&self, cycle: &Cycle<'_>, row: usize) -> Option<i64> {
        let cents: i64 = cycle.snapshot.row(row).labels.get(&self.label)?.parse().ok()?;
        (0..=MOST_CENTS).contains(&cents).then_some(cents)
    }
}

impl Plugin for Price {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Rejects all clusters above the limit at once. Running replicas stay: `Hold::Always`.
    fn filter(&self, cycle: &Cycle<'_>, verdicts: &mut Verdicts) -> Status {
        let Some(most) = self.most else { return Status::skip() };
        let mut dear = BitSet::empty(cycle.snapshot.len());
        for (row, _) in cycle.snapshot.rows() {
            if self.cents(cycle, row).is_none_or(|cents| cents > most) {
                dear.insert(row);
            }
        }
        let reason = format!("label {} is above mostCents {most}, or no number", self.label);
        verdicts.reject(NAME, Code::UnschedulableAndUnresolvable, reason, dear, Hold::Always);
        Status::success()
    }

    /// 100 for a free cluster, 0 for the dearest candidate and for clusters without a price.
    fn score(&self, cycle: &Cycle<'_>, scores: &mut Scores<'_>) -> Status {
        let cents = |row: &u32| self.cents(cycle, *row as usize);
        let dearest = scores.candidates.iter().filter_map(cents).max().unwrap_or(0).max(1);
        let score = |row| cents(row).map_or(0, |cents| MAX - MAX * cents / dearest);
        scores.values = Values::Each(scores.candidates.iter().map(score).collect());
        Status::success()
    }
}
