//! What history is told besides decisions.

use atoll_history::{Event, Milestone, Stage};

use super::Engine;
use super::jobs::Committing;
use crate::chronicle;
use crate::index::key::BindingKey;
use crate::index::rows::Binding;
use crate::lifecycle::eviction::Members as _;

impl Engine {
    /// A decision is in the hub.
    pub(super) fn chronicle(&mut self, binding: &Binding, committing: &Committing) {
        let (now, decided) = (self.clock.now(), &committing.decided);
        let note = |decision, stage, at| {
            self.recorder.note(Event::Milestone(Milestone::of(decision, None, stage, at)));
        };
        note(&decided.record, Stage::Decided, committing.at);
        note(&decided.record, Stage::Committed, now);
        if let Some(parent) = &committing.parent {
            note(parent, Stage::Superseded, now);
        }
        self.lives.begin(&binding.key, &decided.record, &committing.before, &decided.clusters);
    }

    /// A member came as far as this with the decision in force.
    pub(super) fn reached(&mut self, key: &BindingKey, cluster: &str, stage: Stage) {
        let now = self.clock.now();
        if let Some(milestone) = self.lives.reached(key, cluster, stage, now) {
            self.recorder.note(Event::Milestone(milestone));
        }
    }

    /// A member reported how its copy is.
    pub(super) fn note_health(&mut self, binding: &Binding, cluster: &str) {
        let key = &binding.key;
        if !self.lives.awaits(key, cluster, &Stage::Healthy) {
            return;
        }
        let share = binding.spec.clusters.iter().find(|target| target.name == cluster);
        let Some(share) = share else { return };
        let wanted = binding.spec.replicas.map(|_| share.replicas);
        if self.members_of(binding).is_healthy(cluster, wanted) {
            self.reached(key, cluster, Stage::Healthy);
        }
    }

    /// A Cluster came, changed or went.
    pub(super) fn chronicle_member(&mut self, name: &str) {
        let new = self.index.cluster(name).cloned();
        let old = self.told.get(name).cloned();
        let now = self.clock.now();
        for event in chronicle::between(old.as_deref(), new.as_deref(), now) {
            // What a new leader sees for the first time the last one has told of, or history has.
            if let Some(cluster) = old.as_ref().map(|old| new.as_ref().unwrap_or(old)) {
                self.tell_of_member(cluster, &event);
            }
            self.recorder.note(Event::Member(event));
        }
        match new {
            Some(new) => self.told.insert(name.to_owned(), new),
            None => self.told.remove(name),
        };
    }

    /// The controller suspects itself of a member's silence, or does no more.
    pub(super) fn chronicle_suspicion(&self, cluster: &str, begins: bool, message: &str) {
        let event = chronicle::suspected(cluster, begins, message, self.clock.now());
        self.recorder.note(Event::Member(event));
    }
}
