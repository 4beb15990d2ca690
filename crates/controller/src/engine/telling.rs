//! Events for history, in addition to decisions.

use atoll_history::{Event, Milestone, Stage};

use super::Engine;
use super::jobs::Committing;
use crate::chronicle;
use crate::index::key::BindingKey;
use crate::index::rows::Binding;
use crate::lifecycle::eviction::Members as _;

impl Engine {
    /// A decision was committed.
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

    /// A member reached a stage of the decision in force.
    pub(super) fn reached(&mut self, key: &BindingKey, cluster: &str, stage: Stage) {
        let now = self.clock.now();
        if let Some(milestone) = self.lives.reached(key, cluster, stage, now) {
            self.recorder.note(Event::Milestone(milestone));
        }
    }

    /// A member reported the health of its copy.
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

    /// A Cluster was created, changed or deleted.
    pub(super) fn chronicle_member(&mut self, name: &str) {
        let new = self.index.cluster(name).cloned();
        let old = self.told.get(name).cloned();
        let now = self.clock.now();
        for event in chronicle::between(old.as_deref(), new.as_deref(), now) {
            // A new leader's first sight of a Cluster is not an event: the last leader recorded it, or recovery does.
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

    /// The controller's self-suspicion because of a member's silence begins or ends.
    pub(super) fn chronicle_suspicion(&self, cluster: &str, begins: bool, message: &str) {
        let event = chronicle::suspected(cluster, begins, message, self.clock.now());
        self.recorder.note(Event::Member(event));
    }
}
