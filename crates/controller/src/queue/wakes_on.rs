//! What a key may wait for.

use super::info::Urgency;

/// What a key waits for.
pub(crate) trait WakesOn {
    /// An event.
    type Change: Clone;
    /// Topics that waiting keys are filed under.
    type Topic: Ord + Clone;

    /// The topics of this condition. An event that meets it has one of them.
    fn topics(&self) -> Vec<Self::Topic>;

    /// The topics of an event: all topics of every condition that it may meet.
    fn topics_of(change: &Self::Change) -> Vec<Self::Topic>;

    /// Whether the event meets the condition.
    fn is_met_by(&self, change: &Self::Change) -> bool;

    /// How urgently a placed key must be tried when the condition is met.
    fn urgency(&self) -> Urgency;
}
