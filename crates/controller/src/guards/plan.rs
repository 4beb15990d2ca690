//! Makes plans of changes that wait, and compares them with their guards.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use atoll_api::binding::ObjectReference;
use atoll_api::change_guard::HeldChange;
use jiff::Timestamp;
use tokio::time::Instant;

use super::change;
use super::release::Release;
use super::room::Room;
use super::waiting::{Guards, Plan, State, Waiting};
use crate::index::Index;
use crate::index::key::BindingKey;

/// Pause after a write to a guard that failed.
const RETRY: Duration = Duration::from_secs(1);

/// What is to be done.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// Bindings to decide again.
    pub(crate) decide: Vec<BindingKey>,
    /// Releases to write.
    pub(crate) releases: Vec<Release>,
    /// Plans that are held from now on.
    pub(crate) held: Vec<String>,
    /// Whether statuses may have changed.
    pub(crate) shown: bool,
}

impl Guards {
    /// Carries on with everything that is due.
    pub(crate) fn round(&mut self, index: &Index, wall: Timestamp, now: Instant) -> Round {
        let mut round = Round::default();
        if !self.complete && self.due.is_empty() {
            (self.complete, round.shown) = (true, true);
        }
        if self.settles.is_some_and(|at| at <= now) && self.due.is_empty() {
            self.settles = None;
            self.collect(index, &mut round);
        }
        if self.again.is_some_and(|at| at <= now) {
            self.again = None;
            self.plans.values_mut().for_each(|plan| plan.changed = true);
            round.shown = true;
        }
        // While changes are collected, a plan that waits may be about to lose the rest of its bindings.
        let settled = self.settles.is_none();
        let is_due = |plan: &Plan| settled || !matches!(plan.state, State::Held(_));
        let changed = self.plans.iter().filter(|(_, plan)| plan.changed && is_due(plan));
        let changed: Vec<String> = changed.map(|(id, _)| id.clone()).collect();
        if !changed.is_empty() {
            // Oldest first: what waited longer gets the room that a window frees.
            let since = |id: &String| self.plans.get(id).map(|plan| plan.since);
            let mut order: Vec<_> = changed.into_iter().map(|id| (since(&id), id)).collect();
            order.sort_unstable();
            let mut room = Room::new(index, wall);
            for (_, id) in order {
                self.carry_on(index, &id, &mut room, &mut round);
            }
            round.shown = true;
        }
        if round.shown && self.complete {
            self.finished.retain(|plan, at| {
                let mut entries = index.guards().flat_map(|(_, guard)| guard.released());
                entries.any(|one| one.plan == *plan && one.by.is_none() && one.at.0 < *at)
            });
            self.plan_next(index, wall, now);
        }
        round
    }

    /// Guards changed. Returns what has to be decided again, because they may select other workloads now.
    pub(crate) fn guards_changed(
        &mut self,
        index: &Index,
        names: &BTreeSet<String>,
    ) -> Vec<BindingKey> {
        self.again = Some(Instant::now());
        let mut edited = false;
        for name in names {
            let generation = index.guard(name).map(|guard| guard.object.metadata.generation);
            let before = match generation {
                Some(generation) => self.seen.insert(name.clone(), generation),
                None => self.seen.remove(name),
            };
            edited |= before != generation;
        }
        if edited { self.waiting.keys().cloned().collect() } else { Vec::new() }
    }

    /// A binding of a plan was written.
    pub(crate) fn marked(&mut self, key: &BindingKey) {
        let plan = self.waiting.get(key).and_then(|waiting| waiting.plan.as_ref());
        if let Some(plan) = plan.and_then(|id| self.plans.get_mut(id)) {
            plan.changed |= plan.state == State::Marking;
        }
    }

    /// A release was written to all guards, or not.
    pub(crate) fn released(&mut self, plan: &str, written: bool, now: Instant) {
        let Some(plan) = self.plans.get_mut(plan) else { return };
        if plan.state == State::Releasing {
            // The guards in the index tell whether it is released.
            plan.state = State::Marking;
            plan.changed = true;
        }
        if !written {
            plan.changed = false;
            self.again = Some(now + RETRY);
        }
    }

    /// Makes plans of the changes that are in none. Those with the same mark were a plan under an earlier leader, the
    /// others are one plan if guards connect them.
    fn collect(&mut self, index: &Index, round: &mut Round) {
        let mut marked: BTreeMap<String, BTreeSet<BindingKey>> = BTreeMap::new();
        let mut fresh = Vec::new();
        for (key, waiting) in self.waiting.iter().filter(|(_, waiting)| waiting.plan.is_none()) {
            match mark_of(index, key, waiting) {
                Some(held) => {
                    marked.entry(held.plan.clone()).or_default().insert(key.clone());
                }
                None => fresh.push((key.clone(), waiting.guards.clone())),
            }
        }
        for members in connected(fresh) {
            let hashes = members.iter().filter_map(|key| self.waiting.get(key));
            let id = change::plan_id(hashes.map(|waiting| &waiting.change.hash));
            round.decide.extend(members.iter().cloned());
            marked.entry(id).or_default().extend(members);
        }
        for (id, members) in marked {
            let mut since = None;
            for key in &members {
                if let Some(waiting) = self.waiting.get_mut(key) {
                    waiting.plan = Some(id.clone());
                    since = since.max(Some(waiting.since));
                }
            }
            let plan = self.plans.entry(id).or_insert_with(|| Plan {
                members: BTreeSet::new(),
                unmarked: BTreeSet::new(),
                since: since.unwrap_or_default(),
                state: State::Marking,
                changed: true,
            });
            plan.unmarked.extend(members.iter().cloned());
            plan.members.extend(members);
            (plan.state, plan.changed) = (State::Marking, true);
        }
    }

    /// The next step of a plan.
    fn carry_on(&mut self, index: &Index, id: &String, room: &mut Room<'_>, round: &mut Round) {
        let Some(plan) = self.plans.get_mut(id) else { return };
        if plan.members.is_empty() {
            self.plans.remove(id);
            return;
        }
        let waiting = &self.waiting;
        let is_marked = |key: &BindingKey| {
            let held = waiting.get(key).and_then(|waiting| mark_of(index, key, waiting));
            held.is_some_and(|held| held.plan == *id)
        };
        while let Some(key) = plan.unmarked.pop_first() {
            if !is_marked(&key) {
                plan.unmarked.insert(key);
                break;
            }
        }
        plan.changed = false;
        let before = plan.state.clone();
        if before == State::Releasing {
            return;
        }
        if !plan.unmarked.is_empty() {
            plan.state = State::Marking;
            return;
        }
        let Some(plan) = self.plans.get(id) else { return };
        let members = self.members(plan);
        let state = if is_released(index, &members) {
            if before != State::Released {
                round.decide.extend(members.iter().map(|(key, _)| (*key).clone()));
            }
            State::Released
        } else {
            match room.take((id, plan.since), &members, &self.siblings(id, &members)) {
                Ok(counts) => {
                    round.releases.push(Release { plan: id.clone(), since: plan.since, counts });
                    State::Releasing
                }
                Err(why) => State::Held(why),
            }
        };
        if matches!(state, State::Held(_)) && !matches!(before, State::Held(_)) {
            round.held.push(id.clone());
        }
        if let Some(plan) = self.plans.get_mut(id) {
            plan.state = state;
        }
    }

    /// What else waits because of the same change, in another plan or in none yet: a workload that was scaled meanwhile has a
    /// plan of its own, and neither goes before the other.
    fn siblings(&self, id: &str, members: &[(&BindingKey, &Waiting)]) -> Vec<&Waiting> {
        let cause = |one: &Waiting| {
            let ObjectReference { kind, namespace, name, .. } = &one.cause;
            (kind.clone(), namespace.clone(), name.clone())
        };
        let causes: BTreeSet<_> = members.iter().map(|(_, waiting)| cause(waiting)).collect();
        let waits = |one: &&Waiting| match &one.plan {
            None => true,
            Some(plan) if plan == id => false,
            Some(plan) => {
                let plan = self.plans.get(plan);
                plan.is_none_or(|plan| matches!(plan.state, State::Marking | State::Held(_)))
            }
        };
        let others = self.waiting.values().filter(waits);
        others.filter(|one| causes.contains(&cause(one))).collect()
    }

    /// When a plan that waits may fit, or a freeze begins or ends.
    fn plan_next(&mut self, index: &Index, wall: Timestamp, now: Instant) {
        let edges = index.guards().filter_map(|(_, guard)| {
            let rules = guard.rules.as_ref().ok()?;
            let freed = guard.released().iter().filter(|one| one.by.is_none());
            let freed = freed.filter_map(|one| one.at.0.checked_add(rules.window).ok());
            let freed = freed.filter(|at| *at > wall).min();
            let freeze = rules.frozen_until(wall).or_else(|| rules.next_freeze(wall));
            freed.into_iter().chain(freeze).min()
        });
        let Some(edge) = edges.min() else { return };
        // A second more, because times in statuses are whole seconds.
        let wait = edge.duration_since(wall).unsigned_abs() + RETRY;
        let at = now + wait;
        self.again = Some(self.again.map_or(at, |known| known.min(at)));
    }
}

/// Whether a plan was released: somebody approved it, or all of its guards have room for it.
fn is_released(index: &Index, members: &[(&BindingKey, &Waiting)]) -> bool {
    let guards: BTreeSet<&String> = members.iter().flat_map(|(_, one)| &one.guards).collect();
    let marks: Vec<&HeldChange> =
        members.iter().filter_map(|(key, one)| mark_of(index, key, one)).collect();
    let rows = || guards.iter().filter_map(|name| index.guard(name));
    marks.iter().all(|held| rows().any(|row| row.releases(held, true)))
        || marks.iter().all(|held| rows().all(|row| row.releases(held, false)))
}

/// The mark of a binding, if it is for this change.
fn mark_of<'a>(index: &'a Index, key: &BindingKey, waiting: &Waiting) -> Option<&'a HeldChange> {
    let held = index.binding(key)?.spec.held.as_ref()?;
    (held.change == waiting.change.hash).then_some(held)
}

/// Groups of bindings that common guards connect.
fn connected(all: Vec<(BindingKey, BTreeSet<String>)>) -> Vec<BTreeSet<BindingKey>> {
    let mut groups: Vec<(BTreeSet<String>, BTreeSet<BindingKey>)> = Vec::new();
    for (key, mut guards) in all {
        let mut members = BTreeSet::from([key]);
        groups.retain_mut(|(of, keys)| {
            let apart = of.is_disjoint(&guards);
            if !apart {
                guards.append(of);
                members.append(keys);
            }
            apart
        });
        groups.push((guards, members));
    }
    groups.into_iter().map(|(_, members)| members).collect()
}
