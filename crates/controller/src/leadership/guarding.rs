//! Changes by people that ChangeGuards hold: decides what goes, and carries on with plans.

use std::collections::BTreeSet;

use atoll_api::change_guard::HeldChange;
use atoll_history::{Event, Milestone, Stage};
use atoll_scheduler::Decision;
use tokio::time::Instant;

use super::Leading;
use super::jobs::JobDone;
use crate::events::{self, Note, Severity};
use crate::guards::release::{self, Released};
use crate::guards::{Case, Held, Verdict, exempt};
use crate::hub_state::HubState;
use crate::index::Source;
use crate::index::guard_rules::Guard;
use crate::index::received::Received;
use crate::queue::{Opening, Urgency};
use crate::reconcile::{self, Part, Subject};
use crate::schedule::DecisionRequest;
use crate::status::due::{Phase, Subject as StatusSubject};

impl Leading {
    /// What of the request a decision answers; `None` if it has to wait.
    pub(super) fn part_of(
        &mut self,
        hub: &HubState,
        subject: &Subject,
        decision: &Decision,
        exempt: bool,
    ) -> Option<Part> {
        let guards = &mut self.draining.guards;
        if exempt {
            let binding = subject.binding.as_deref();
            return Some(Part::Exempt(binding.and_then(|binding| guards.mark(binding))));
        }
        let (queue, times) = (&self.queue, (self.env.clock.now_seconds(), Instant::now()));
        let case = Case {
            key: &subject.key,
            claim: &subject.claim,
            template: &subject.template,
            binding: subject.binding.as_deref(),
        };
        match guards.judge(&hub.index, case, decision, || queue.busy(), times) {
            Verdict::Goes => Some(Part::Whole),
            Verdict::Waits => None,
        }
    }

    /// Decides a binding without the change that waits.
    pub(super) fn decide_exempt(&mut self, hub: &mut HubState, subject: Subject) {
        let subject = Subject { claim: exempt::claim(subject.claim), ..subject };
        let mut request = match reconcile::request(self.context(hub), &subject) {
            Ok(request) => request,
            Err(how) => return self.finish(&subject.key, how),
        };
        exempt::limit(&mut request);
        self.draining.guards.exempt = true;
        self.request_decision(hub, subject, request);
    }

    /// Carries on with the plans.
    pub(super) fn guard_round(&mut self, hub: &HubState, now: Instant) {
        let wall = self.env.clock.now_seconds();
        let round = self.draining.guards.round(&hub.index, wall, now);
        for key in round.decide {
            self.enqueue(hub, key, Urgency::Now, None);
        }
        for released in round.releases {
            let writes = release::writes(&hub.index, &released, wall);
            let job = release::perform(self.env.client.clone(), released.plan, writes);
            self.jobs.spawn(async { JobDone::Released(job.await) });
        }
        for plan in round.held {
            self.announce_held(hub, &plan);
        }
        if round.shown {
            self.env.counters.held(self.draining.guards.held_bindings());
            let names = hub.index.guards().map(|(name, _)| name.clone());
            for name in names.collect::<Vec<_>>() {
                self.statuses.mark(StatusSubject::ChangeGuard(name), Phase::Settled);
            }
        }
    }

    /// A release was written, or not.
    pub(super) fn released(&mut self, hub: &mut HubState, released: Released) {
        for object in released.objects {
            self.guard_stored(hub, object);
        }
        self.draining.guards.released(&released.plan, released.complete, Instant::now());
    }

    fn guard_stored(&mut self, hub: &mut HubState, object: Received) {
        let touched = hub.take_reply(&Source::ChangeGuards, object);
        self.absorb(hub, touched, Urgency::Now, Opening::Hub);
    }

    /// ChangeGuards were created, changed or deleted.
    pub(super) fn guards_changed(&mut self, hub: &HubState, names: &BTreeSet<String>) {
        if names.is_empty() {
            return;
        }
        for key in self.draining.guards.guards_changed(&hub.index, names) {
            self.enqueue(hub, key, Urgency::Now, None);
        }
        for name in names {
            self.statuses.mark(StatusSubject::ChangeGuard(name.clone()), Phase::Settled);
        }
    }

    /// A binding of a released plan was moved.
    pub(super) fn note_move(&mut self, hub: &HubState, before: Option<HeldChange>) {
        let Some(held) = before else { return };
        self.draining.guards.moved(held.plan.clone(), self.env.clock.now_seconds());
        let named = |guard: &Guard| guard.releases(&held, false);
        let names = hub.index.guards().filter(|(_, guard)| named(guard)).map(|(name, _)| name);
        for name in names.cloned().collect::<Vec<_>>() {
            self.statuses.mark(StatusSubject::ChangeGuard(name), Phase::InProgress);
        }
    }

    /// A plan is held from now on: its bindings show it, the changed objects get an Event, and history a row for each
    /// decision that stays in force.
    fn announce_held(&mut self, hub: &HubState, plan: &str) {
        let at = self.env.clock.now_seconds();
        let mut told: BTreeSet<String> = BTreeSet::new();
        let (mut notes, mut keys): (Vec<Note>, Vec<_>) = (Vec::new(), Vec::new());
        let guards = &self.draining.guards;
        for (id, held, members) in guards.held_plans().into_iter().filter(|(id, ..)| *id == plan) {
            let replicas: i64 = members.iter().map(|(_, waiting)| waiting.change.replicas).sum();
            for (key, waiting) in &members {
                let about = &waiting.cause;
                let who = about.uid.clone().unwrap_or_else(|| format!("{about:?}"));
                if let (Held::Yes(_, why), true) = (guards.held(key), told.insert(who.clone())) {
                    notes.push(Note {
                        about: about.clone(),
                        id: events::id(&[&who, id]),
                        reason: "Held".to_owned(),
                        message: format!(
                            "{why}. Plan {id} of {} workloads and {replicas} replicas waits: `atoll guards` shows it, `atoll approve {id}` releases it",
                            members.len()
                        ),
                        severity: Severity::Warning,
                        at,
                        cause: None,
                        repeat_after: None,
                    });
                }
                keys.push(((*key).clone(), held.since));
            }
        }
        notes.into_iter().for_each(|note| self.env.notes.post(note));
        for (key, since) in keys {
            let decision = hub.index.binding(&key).and_then(|row| row.spec.decision.clone());
            if let Some(decision) = decision {
                // The next leader announces it again: with the same time it is the same row.
                let held = Milestone::of(&decision, None, Stage::Held, since);
                self.env.recorder.note(Event::Milestone(held));
            }
            self.mark_status(hub, &key);
        }
    }

    /// Hands a request to the scheduler.
    pub(super) fn request_decision(
        &mut self,
        hub: &mut HubState,
        subject: Subject,
        request: Box<atoll_scheduler::Request>,
    ) {
        let snapshot = hub.tables.snapshot();
        let request = DecisionRequest { term: self.term, snapshot, request };
        match self.env.scheduler.request(request) {
            Ok(()) => self.deciding = Some(subject),
            Err(error) => {
                tracing::error!(key = %subject.key, %error, "cannot be decided");
                self.draining.guards.exempt = false;
                self.finish(&subject.key, crate::queue::Done::Failed);
            }
        }
    }
}
