//! What decisions read, on its way to history.

use std::any::Any;

use atoll_history::Inputs;

/// The scheduler's inputs, as history takes them.
#[derive(Debug)]
struct OfScheduler(atoll_scheduler::replay::Inputs);

impl Inputs for OfScheduler {
    fn differences(&self, before: Option<&dyn Inputs>) -> Vec<(String, Option<Vec<u8>>)> {
        let before = before.and_then(|before| (before as &dyn Any).downcast_ref::<Self>());
        self.0.differences(before.map(|before| &before.0))
    }
}

/// The inputs of a decision, for history.
pub(crate) fn recorded(inputs: atoll_scheduler::replay::Inputs) -> Box<dyn Inputs> {
    Box::new(OfScheduler(inputs))
}
