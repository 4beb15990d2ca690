//! What waits in a leadership: changes, and the plans that they are part of. What is durable of it is in bindings and guards.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use atoll_api::binding::ObjectReference;
use atoll_api::change_guard::HeldChange;
use atoll_decision::Decision;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::Instant;

use super::case::{self, Case};
use super::change::Change;
use crate::index::Index;
use crate::index::key::BindingKey;
use crate::index::rows::Binding;

/// How long changes are collected after the last one was found: what is applied together is judged together.
const SETTLE: Duration = Duration::from_secs(2);

/// What waits in this leadership. What is durable of it is in the bindings and guards.
#[derive(Default)]
pub(crate) struct Guards {
    pub(super) waiting: BTreeMap<BindingKey, Waiting>,
    pub(super) plans: BTreeMap<String, Plan>,
    /// Bindings that have to be decided before the changes found so far are a plan.
    pub(super) due: BTreeSet<BindingKey>,
    /// When the collection ends at the earliest.
    pub(super) settles: Option<Instant>,
    /// When plans are compared with their guards again.
    pub(super) again: Option<Instant>,
    /// Whether all bindings were decided once in this leadership: before, nothing is known to wait.
    pub(super) complete: bool,
    /// When a binding of a plan was last moved, until the guards show it.
    pub(super) finished: BTreeMap<String, Timestamp>,
    /// Generations of the guards that were last compared with what waits.
    pub(super) seen: BTreeMap<String, Option<i64>>,
    /// Whether the decision that is being made is the one with the last committed placement.
    pub(crate) exempt: bool,
}

/// A change that waits.
#[derive(Debug, Clone)]
pub(crate) struct Waiting {
    pub(crate) change: Change,
    /// The guards that select it.
    pub(crate) guards: BTreeSet<String>,
    /// The object that people changed.
    pub(crate) cause: ObjectReference,
    pub(crate) since: Timestamp,
    /// The plan that it is part of.
    pub(super) plan: Option<String>,
}

/// Changes with their bindings.
pub(crate) type Members<'a> = Vec<(&'a BindingKey, &'a Waiting)>;

/// Changes that wait or go together.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(super) members: BTreeSet<BindingKey>,
    /// Those in whose spec the id is not known to be yet.
    pub(super) unmarked: BTreeSet<BindingKey>,
    /// Since when it waits.
    pub(crate) since: Timestamp,
    pub(crate) state: State,
    /// Whether it has to be compared with its guards.
    pub(super) changed: bool,
}

/// How far a plan is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// Its id is being written to its bindings.
    Marking,
    /// It waits, and why.
    Held(String),
    /// Its release is being written to its guards.
    Releasing,
    /// Its bindings are decided again.
    Released,
}

/// What happens to a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may be committed.
    Goes,
    /// It waits: the binding is decided with its last committed placement instead.
    Waits,
}

impl Guards {
    /// Whether a decision may be committed. `busy` are the bindings that are being decided or due.
    pub(crate) fn judge(
        &mut self,
        index: &Index,
        case: Case<'_>,
        decision: &Decision,
        busy: impl FnOnce() -> Vec<BindingKey>,
        (wall, now): (Timestamp, Instant),
    ) -> Verdict {
        let Some((change, guards, binding)) = case::guarded(index, case, decision) else {
            if self.waiting.contains_key(case.key) {
                // Others of its plan may not wait any more, either: what is left is judged when they have been decided.
                self.collect_until(case.key, busy, now);
                self.forget(case.key);
            }
            return Verdict::Goes;
        };
        if case::may_go(index, binding, &change, &guards) {
            self.forget(case.key);
            return Verdict::Goes;
        }
        let key = case.key;
        let known = self.waiting.get(key);
        let same = known.is_some_and(|known| known.change == change && known.guards == guards);
        if same {
            return Verdict::Waits;
        }
        let marked = binding.spec.held.as_ref().filter(|held| held.change == change.hash);
        let since = marked.map_or(wall, |held| held.since.0);
        self.forget(key);
        let cause = case::cause(index, case, decision);
        self.waiting.insert(key.clone(), Waiting { change, guards, cause, since, plan: None });
        self.collect_until(key, busy, now);
        Verdict::Waits
    }

    /// All that an edit touches is due at once: it is one plan, however long the decisions take.
    fn collect_until(
        &mut self,
        key: &BindingKey,
        busy: impl FnOnce() -> Vec<BindingKey>,
        now: Instant,
    ) {
        if !self.due.remove(key) {
            self.due.extend(busy());
            self.due.remove(key);
        }
        self.settles = Some(now + SETTLE);
    }

    /// A leadership began: what waits is known when these bindings have been decided.
    pub(crate) fn expect(&mut self, all: Vec<BindingKey>) {
        self.due.extend(all);
    }

    /// The work on a binding ended for now.
    pub(crate) fn done(&mut self, key: &BindingKey) {
        self.due.remove(key);
    }

    /// Nothing of the binding waits any more.
    pub(crate) fn forget(&mut self, key: &BindingKey) {
        let Some(gone) = self.waiting.remove(key) else { return };
        if let Some(plan) = gone.plan.and_then(|id| self.plans.get_mut(&id)) {
            plan.members.remove(key);
            plan.unmarked.remove(key);
            if plan.state == State::Released {
                plan.changed |= plan.members.is_empty();
                return;
            }
            plan.changed = true;
        }
        // What waited with it may fit now. More may follow: it is compared when nothing does.
        let held = self.plans.values_mut().filter(|plan| matches!(plan.state, State::Held(_)));
        held.for_each(|plan| plan.changed = true);
        self.settles = Some(Instant::now() + SETTLE);
    }

    /// What a binding's spec has to say about what it waits for.
    #[must_use]
    pub(crate) fn mark(&self, binding: &Binding) -> Option<HeldChange> {
        let waiting = self.waiting.get(&binding.key)?;
        let held = binding.spec.held.as_ref().filter(|held| held.change == waiting.change.hash);
        match &waiting.plan {
            None => held.map(|held| (**held).clone()),
            Some(plan) => Some(HeldChange {
                plan: plan.clone(),
                change: waiting.change.hash.clone(),
                replicas: waiting.change.replicas,
                since: Time(self.plans.get(plan).map_or(waiting.since, |plan| plan.since)),
            }),
        }
    }

    /// Why a binding's change is held, once its plan was compared with the guards.
    #[must_use]
    pub(crate) fn held(&self, key: &BindingKey) -> Held<'_> {
        if !self.complete {
            return Held::Unknown;
        }
        let id = self.waiting.get(key).and_then(|waiting| waiting.plan.as_ref());
        match id.and_then(|id| self.plans.get_key_value(id)) {
            Some((id, Plan { state: State::Held(why), .. })) => Held::Yes(id, why),
            _ => Held::No,
        }
    }

    /// Whether everything that waits is known.
    #[must_use]
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// The plans that are held, oldest first, with their changes.
    pub(crate) fn held_plans(&self) -> Vec<(&String, &Plan, Members<'_>)> {
        let held = self.plans.iter().filter(|(_, plan)| matches!(plan.state, State::Held(_)));
        let mut held: Vec<_> = held.map(|(id, plan)| (id, plan, self.members(plan))).collect();
        held.sort_by_key(|(id, plan, _)| (plan.since, *id));
        held
    }

    /// Number of bindings whose change is held.
    #[must_use]
    pub(crate) fn held_bindings(&self) -> usize {
        let held = self.plans.values().filter(|plan| matches!(plan.state, State::Held(_)));
        held.map(|plan| plan.members.len()).sum()
    }

    /// A binding of a released plan was moved.
    pub(crate) fn moved(&mut self, plan: String, at: Timestamp) {
        self.finished.insert(plan, at);
    }

    /// Whether a plan is not finished.
    pub(crate) fn is_live(&self, plan: &str) -> bool {
        self.plans.contains_key(plan)
    }

    pub(super) fn members<'a>(&'a self, plan: &'a Plan) -> Members<'a> {
        plan.members.iter().filter_map(|key| self.waiting.get_key_value(key)).collect()
    }

    /// When something is due.
    #[must_use]
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        let settles = self.settles.filter(|_| self.due.is_empty());
        settles.into_iter().chain(self.again).min()
    }
}

/// Whether a change is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held<'a> {
    /// Not every binding was decided yet.
    Unknown,
    /// It is not.
    No,
    /// The plan, and why.
    Yes(&'a str, &'a str),
}
