//! Passes committed decisions to history, and remembers until they are recorded. The binding is the outbox: it keeps
//! what history does not hold yet.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use atoll_api::{DecisionId, Few};
use atoll_history::{Inputs, Receipt, Record, RecordState, outbox};
use tokio::time::Instant;

use super::binding_ref;
use crate::env::Env;
use crate::index::Index;
use crate::index::key::BindingKey;
use crate::index::rows::Binding;

/// Delay before decisions that did not fit history's queue are offered again.
const OFFER_AGAIN: Duration = Duration::from_secs(10);

/// A decision that was passed to history.
enum Passed {
    /// What became of it.
    Receipt(Receipt),
    /// History holds it, so no receipt is needed. Almost all decisions get there.
    Recorded,
}

impl Passed {
    fn is_recorded(&self) -> bool {
        match self {
            Self::Receipt(receipt) => receipt.is_recorded(),
            Self::Recorded => true,
        }
    }

    fn is_queued(&self) -> bool {
        matches!(self, Self::Receipt(receipt) if receipt.state() == RecordState::Queued)
    }
}

/// Decisions on their way to history.
#[derive(Default)]
pub(crate) struct Outbox {
    /// The decisions that each binding holds, by id.
    passed: BTreeMap<BindingKey, Few<DecisionId, Passed>>,
    /// Bindings with decisions that did not fit history's queue.
    unoffered: BTreeSet<BindingKey>,
    offer_again: Option<Instant>,
}

impl Outbox {
    /// Whether history holds a binding's decision.
    pub(crate) fn is_recorded(&self, key: &BindingKey, id: &str) -> bool {
        self.passed(key, id).is_some_and(Passed::is_recorded)
    }

    /// Whether a binding's last decision is not recorded yet.
    pub(crate) fn awaits(&self, binding: &Binding) -> bool {
        let passed = binding.decision_id().and_then(|id| self.passed(&binding.key, id));
        passed.is_some_and(Passed::is_queued)
    }

    /// Passes a newly committed decision to history.
    pub(crate) fn record(
        &mut self,
        env: &Env,
        binding: &Binding,
        record: Record,
        inputs: Option<Box<dyn Inputs>>,
    ) {
        self.pass(env, &binding.key, record, inputs);
        self.trim(binding);
    }

    /// Passes all records that a binding holds to history, which skips existing ones.
    pub(crate) fn offer(&mut self, env: &Env, binding: &Binding) {
        for record in outbox::records(&binding_ref(binding), &binding.spec) {
            if self.passed(&binding.key, &record.record.id).is_none()
                && !self.pass(env, &binding.key, record, None)
            {
                return;
            }
        }
    }

    /// A binding changed: drops the receipts of its decisions that history holds. The event after a decision is mostly that of
    /// the binding's status, and by then history holds the decision.
    pub(crate) fn drop_receipts(&mut self, key: &BindingKey) {
        for passed in self.passed.get_mut(key).into_iter().flat_map(Few::values_mut) {
            if passed.is_recorded() {
                *passed = Passed::Recorded;
            }
        }
    }

    /// Offers what a binding holds if its last decision came from elsewhere: a write of an earlier leadership may reach
    /// the hub, or this leader's index, after the leadership began.
    pub(crate) fn offer_unknown(&mut self, env: &Env, binding: &Binding) {
        let known = binding.decision_id().is_none_or(|id| self.passed(&binding.key, id).is_some());
        if !known && !self.unoffered.contains(&binding.key) {
            self.offer(env, binding);
        }
    }

    /// Offers decisions again that did not fit history's queue, when due.
    pub(crate) fn offer_again(&mut self, env: &Env, index: &Index, now: Instant) {
        if self.offer_again.is_none_or(|at| at > now) {
            return;
        }
        self.offer_again = None;
        for key in std::mem::take(&mut self.unoffered) {
            if let Some(binding) = index.binding(&key) {
                self.offer(env, binding);
            }
        }
    }

    /// When decisions are offered again.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.offer_again
    }

    /// The binding was deleted.
    pub(crate) fn forget(&mut self, key: &BindingKey) {
        self.unoffered.remove(key);
        self.passed.remove(key);
    }

    fn passed(&self, key: &BindingKey, id: &str) -> Option<&Passed> {
        self.passed.get(key)?.get(id)
    }

    fn pass(
        &mut self,
        env: &Env,
        key: &BindingKey,
        record: Record,
        inputs: Option<Box<dyn Inputs>>,
    ) -> bool {
        let id = record.record.id.clone();
        match env.recorder.record_with(record, inputs) {
            Ok(receipt) => {
                let passed = self.passed.entry(key.clone()).or_default();
                passed.insert(id, Passed::Receipt(receipt));
                true
            }
            Err(error) => {
                tracing::warn!(%key, %error, "the decision stays in its binding for now");
                self.unoffered.insert(key.clone());
                self.offer_again.get_or_insert(Instant::now() + OFFER_AGAIN);
                false
            }
        }
    }

    /// Forgets the previous decision, unless the binding still holds it.
    fn trim(&mut self, binding: &Binding) {
        let parent = binding.spec.decision.as_ref().and_then(|decision| decision.parent.as_ref());
        let still = |id: &str| binding.spec.unrecorded.iter().any(|held| held.decision.id == id);
        if let (Some(parent), Some(passed)) = (parent, self.passed.get_mut(&binding.key))
            && !still(parent)
        {
            passed.remove(parent.as_str());
        }
    }
}
