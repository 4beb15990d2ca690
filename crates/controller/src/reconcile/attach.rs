//! The writes of a binding that no policy claims: it exists as long as, and where, others need its object.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::step::{Context, Purpose, Step, Waiting, delete};
use super::subject::Subject;
use crate::commit::draft::{self, Upkeep};
use crate::commit::{Action, Write};
use crate::index::key::BindingKey;
use crate::placements::required::required;
use crate::queue::Done;
use crate::schedule::priority::Priority;

/// Minimum time between two writes of such a binding: parents that move together cause one write.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// When such bindings were last written.
#[derive(Debug, Default)]
pub(crate) struct Attachments {
    written: BTreeMap<BindingKey, Instant>,
}

impl Attachments {
    /// A binding was deleted.
    pub(crate) fn forget(&mut self, key: &BindingKey) {
        self.written.remove(key);
    }

    /// The next step of such a binding.
    pub(crate) fn step(&mut self, context: Context<'_>, subject: &Subject, now: Instant) -> Step {
        let Subject { key, claim, template, binding } = subject;
        let index = &context.hub.index;
        let demand = index.demand(template, binding.as_deref());
        let required = required(index, context.placements, &template.key, binding.as_deref());
        let Some(binding) = binding else {
            if required.by.is_empty() || template.deleting {
                return Step::Done(Done::Settled);
            }
            return self.write(
                key,
                Action::Create(draft::attach(template, &demand, &required)),
                now,
            );
        };
        if required.by.is_empty() {
            return delete(binding);
        }
        let upkeep = Upkeep {
            template,
            demand: &demand,
            claim,
            priority: &Priority::Known(None),
            unclaimed: false,
            required: &required,
            held: None,
        };
        let Some(patch) = draft::change(binding, &upkeep, None, |_| false) else {
            return Step::UpToDate(Done::Settled);
        };
        match self.written.get(key).map(|written| *written + WRITE_EVERY).filter(|at| *at > now) {
            Some(at) => Step::UpToDate(Done::Watches(Vec::new(), Some(at))),
            None => self.write(key, Action::Patch(patch), now),
        }
    }

    fn write(&mut self, key: &BindingKey, action: Action, now: Instant) -> Step {
        self.written.insert(key.clone(), now);
        let write = Write { key: key.clone(), action, decision: None };
        Step::Write(write, Purpose::Upkeep(Waiting::default()))
    }
}
