//! Processes one key at a time: which policy claims the template, whether there is anything to decide, and the commit.

use std::sync::Arc;

use atoll_api::binding::{Outcome, Trigger};
use atoll_history::Detail;
use atoll_scheduler::{BindingFacts, Decision, Existing, Request, WakeCondition};
use jiff::Timestamp;
use tokio::time::Instant;

use super::Engine;
use super::jobs::{Committing, JobDone, Purpose};
use crate::commit::draft::{self, Decided, Demand};
use crate::commit::{self, Action, Ended, Write};
use crate::detect::{self, Claim};
use crate::index::key::BindingKey;
use crate::index::rows::{Binding, Template};
use crate::leader::LeaderTerm;
use crate::lifecycle::{eviction, gone};
use crate::queue::{Done, Urgency};
use crate::schedule::Question;
use crate::schedule::extend::Passage;
use crate::schedule::priority;

/// The key that the scheduler is deciding, with the rows of the request: the commit must be guarded by the version that
/// was decided on.
pub(super) struct Deciding {
    key: BindingKey,
    claim: Claim,
    template: Arc<Template>,
    binding: Option<Arc<Binding>>,
}

/// How a key's processing continues.
pub(super) enum Step {
    /// It is done.
    Done(Done<WakeCondition>),
    /// The scheduler is deciding it.
    Decides,
    /// A job is running for it.
    Runs,
}

/// What a binding waits for after a decision.
#[derive(Default)]
pub(super) struct Waiting {
    /// Events that may change the result.
    conditions: Vec<WakeCondition>,
    /// Whether some replicas found no place.
    refused: bool,
}

impl Waiting {
    /// The state after the decision.
    pub(super) fn after(decision: &Decision) -> Self {
        let placed = matches!(decision.outcome(), Outcome::Placed | Outcome::Unchanged);
        Self {
            conditions: decision.waits_for().to_vec(),
            refused: !placed || decision.pending_replicas() > 0,
        }
    }
}

impl Engine {
    /// Starts as much work as may run concurrently.
    pub(super) fn hand_out_work(&mut self) {
        let Some(term) = self.term() else { return };
        let now = Instant::now();
        self.queue.expire(now);
        self.offer_again(now);
        self.look_at_departures(now);
        for key in self.pace.release(now) {
            self.enqueue(key, Urgency::Now, None);
        }
        // These delay no decision, and the job limit bounds them.
        while self.jobs.has_room() {
            let Some(key) = self.queue.pop_held(now) else { break };
            self.work_on(&key, term);
        }
        while self.deciding.is_none() && self.jobs.has_room() {
            let Some(key) = self.queue.pop(now) else { break };
            self.work_on(&key, term);
        }
        self.publish_due(now);
    }

    fn work_on(&mut self, key: &BindingKey, term: LeaderTerm) {
        match self.reconcile(key, term) {
            Step::Done(how) => self.finish(key, how),
            Step::Decides | Step::Runs => {}
        }
    }

    /// Processing of a key has ended.
    pub(super) fn finish(&mut self, key: &BindingKey, how: Done<WakeCondition>) {
        let now = Instant::now();
        self.queue.done(key, how, now);
    }

    fn reconcile(&mut self, key: &BindingKey, term: LeaderTerm) -> Step {
        let binding = self.index.binding(key).cloned();
        if let Some(binding) = &binding
            && binding.deleting()
        {
            return self.withdraw(binding, term);
        }
        if let Some(binding) = &binding
            && let Some(why) = self.index.refusal(binding)
        {
            return self.refuse(binding, &why);
        }
        let Some(template_key) = self.index.template_for(key) else {
            return Step::Done(Done::Settled);
        };
        if self.index.frozen(&template_key.kind).is_some() {
            self.dispatch(key);
            return Step::Done(Done::Settled); // its source's return adds it again
        }
        let Some(template) = self.index.template(&template_key).cloned() else {
            let Some(binding) = binding else { return Step::Done(Done::Settled) };
            let client = self.client.clone();
            let version = binding.spec.resource.version().to_owned();
            let key = key.clone();
            self.jobs.spawn(async move {
                let presence = gone::look(&client, &template_key, &version).await;
                JobDone::Looked { key, presence }
            });
            return Step::Runs;
        };
        if let Some(binding) = &binding
            && binding.spec.resource.uid.as_deref().is_some_and(|uid| uid != template.uid)
        {
            // Recreated under the same name: the new one waits until the old one's binding is gone.
            return self.delete(binding);
        }
        let held = binding.as_ref().and_then(|binding| binding.policy());
        let claim = detect::claim(&self.index, &template, held.as_ref());
        if binding.is_none() && (!claim.holds() || template.deleting || self.ends(&template)) {
            return Step::Done(Done::Settled);
        }
        let deciding = Deciding { key: key.clone(), claim, template, binding };
        if self.queue.held(key).is_some() {
            return self.keep(deciding, term);
        }
        self.ask(deciding)
    }

    /// Whether the namespace of a template is being deleted: nothing can be created in it.
    fn ends(&self, template: &Template) -> bool {
        let namespace = template.key.namespace.as_ref();
        namespace.and_then(|name| self.index.namespace(name)).is_some_and(|n| n.deleting)
    }

    fn ask(&mut self, deciding: Deciding) -> Step {
        let existing = deciding.binding.as_ref().map(|binding| Existing {
            metadata: &binding.metadata,
            spec: &binding.spec,
            status: Some(&binding.status),
        });
        let claim = deciding.claim.asked(deciding.binding.as_deref().map(|binding| &binding.spec));
        let rules = claim.failover.as_ref().and_then(|failover| failover.application.as_ref());
        let with_status = rules.is_some_and(|rules| rules.state_preservation.is_some());
        let reports = self.views.reports(&deciding.key, with_status);
        let now = self.clock.now_seconds();
        let object = &deciding.template.object;
        let request = match Request::from_objects(object, &claim, existing, reports, now) {
            Ok(mut request) => {
                // Gates were evaluated before the queue.
                request.suspended = false;
                request.recover_after = self.recover_after;
                Box::new(request)
            }
            Err(error) => {
                tracing::warn!(key = %deciding.key, %error, "cannot be decided");
                return Step::Done(Done::Mistake);
            }
        };
        let question = Question { snapshot: self.tables.snapshot(), request };
        if let Err(error) = self.desk.ask(question) {
            tracing::error!(key = %deciding.key, %error, "cannot be decided");
            return Step::Done(Done::Failed);
        }
        self.deciding = Some(deciding);
        Step::Decides
    }

    /// Handles the scheduler's result.
    pub(super) fn decided(&mut self, decision: Decision) {
        if self.stale_answers > 0 {
            self.stale_answers -= 1; // asked in an earlier leadership
            return;
        }
        let Some(deciding) = self.deciding.take() else { return };
        let key = deciding.key.clone();
        self.note_groups(&deciding.template, &decision);
        let Some(term) = self.term() else {
            return self.finish(&key, Done::Again);
        };
        if let Step::Done(how) = self.conclude(deciding, decision, term) {
            self.finish(&key, how);
        }
    }

    fn conclude(&mut self, deciding: Deciding, decision: Decision, term: LeaderTerm) -> Step {
        let Deciding { key, claim, template, binding } = deciding;
        let now = self.clock.now_seconds();
        let waits = Waiting::after(&decision);
        let Some(binding) = binding else {
            if decision.trigger() == Trigger::Avoid {
                self.counters.avoided.inc();
                return Step::Done(self.waits(waits, None, now));
            }
            let decided = decided_by(&decision, term);
            let priority = priority::priority(&self.index, claim.policy().map(|policy| &**policy));
            let body = draft::create(&template, &claim, &priority, &decided);
            let provenance = Some(self.authors.provenance(&decision, &template));
            let committing = Committing {
                decided,
                decision: Some(decision),
                detail: None,
                at: self.clock.now(),
                provenance,
                parent: None,
                before: Vec::new(),
            };
            return self.commit(&key, Action::Create(body), committing);
        };
        let new = (decision.trigger() != Trigger::Avoid)
            .then(|| {
                // The decision that changes what a task waits for never ends it: the next check does.
                decided_by(&decision, term)
            })
            .filter(|decided| !decided.changes_nothing(&binding));
        let new = new.filter(|_| self.may_move(&key, &decision));
        if new.is_none() {
            self.counters.avoided.inc();
        }
        let new = new.map(|decided| (decided, decision));
        self.bring(Deciding { key, claim, template, binding: None }, &binding, new, waits, term)
    }

    /// Work for a binding behind a shut gate that needs no decision: copied policy fields, the end of old copies.
    fn keep(&mut self, deciding: Deciding, term: LeaderTerm) -> Step {
        match deciding.binding.clone() {
            Some(binding) => self.bring(deciding, &binding, None, Waiting::default(), term),
            None => Step::Done(Done::Settled),
        }
    }

    /// Writes what a decision, or without one its policy and its tasks, require of a binding.
    fn bring(
        &mut self,
        deciding: Deciding,
        binding: &Binding,
        new: Option<(Decided, Decision)>,
        waits: Waiting,
        term: LeaderTerm,
    ) -> Step {
        let Deciding { key, claim, template, .. } = deciding;
        let now = self.clock.now_seconds();
        let held = binding
            .spec
            .decision
            .as_ref()
            .map(|d| LeaderTerm::from_record(d.term))
            .unwrap_or_default();
        if held > term {
            // The hub rejects a decision with a lower term than the one that it holds.
            if held.is_out_of_range(term) {
                self.mark_status(&key);
                return Step::Done(Done::Waits(Vec::new(), None));
            }
            self.election.heard_term(held);
            return Step::Done(Done::Failed);
        }
        let before = binding.spec.clusters.clone();
        let (decided, decision) = match new {
            Some((decided, decision)) => (Some(decided), Some(decision)),
            None => (self.end_of_tasks(binding, now, term), None),
        };
        let priority = priority::priority(&self.index, claim.policy().map(|policy| &**policy));
        let upkeep = draft::Upkeep {
            template: &template,
            claim: &claim,
            priority: &priority,
            unclaimed: claim == Claim::None && self.policy_let_go(binding),
        };
        let recorded = |id: &str| self.is_recorded(id);
        let patch = draft::change(binding, &upkeep, decided.as_ref(), recorded);
        match (patch, decided) {
            (Some(patch), Some(decided)) => {
                let made_from = |decision| self.authors.provenance(decision, &template);
                let committing = Committing {
                    provenance: decision.as_ref().map(made_from),
                    decided,
                    decision,
                    detail: None,
                    at: self.clock.now(),
                    parent: binding.spec.decision.clone(),
                    before,
                };
                self.commit(&key, Action::Patch(patch), committing)
            }
            (Some(patch), None) => {
                let write = Write { key, action: Action::Patch(patch), decision: None };
                self.write(write, Purpose::Upkeep(waits))
            }
            (None, _) => {
                self.dispatch(&key);
                self.mark_status(&key);
                Step::Done(self.waits(waits, Some(binding), now))
            }
        }
    }

    /// Whether the policy in a binding's marks was deleted or no longer selects its object. An invalid policy keeps its
    /// claims: they would return when it is fixed.
    fn policy_let_go(&self, binding: &Binding) -> bool {
        binding.policy().is_some_and(|key| {
            let policy = self.index.policy(&key);
            policy.is_none_or(|policy| policy.deleting || policy.selectors.is_ok())
        })
    }

    /// What to wait for: the decision's wake conditions, or a deadline.
    pub(super) fn waits(
        &self,
        waiting: Waiting,
        binding: Option<&Binding>,
        now: Timestamp,
    ) -> Done<WakeCondition> {
        let Waiting { conditions, refused } = waiting;
        let due = conditions.iter().filter_map(WakeCondition::due);
        let deadline = binding.and_then(|b| eviction::next_deadline(&b.spec, now));
        let at = due.chain(deadline).min().map(|at| {
            let wait = at.duration_since(now);
            Instant::now() + std::time::Duration::try_from(wait).unwrap_or_default()
        });
        let edits = |condition: &WakeCondition| matches!(condition, WakeCondition::Edit { .. });
        match (conditions.is_empty(), at) {
            (true, None) => Done::Settled,
            (false, None) if conditions.iter().all(edits) => Done::Mistake,
            _ if refused => Done::Waits(conditions, at),
            _ => Done::Watches(conditions, at),
        }
    }

    fn commit(&mut self, key: &BindingKey, action: Action, committing: Committing) -> Step {
        let decided = &committing.decided;
        // The next decision must see these replicas before they are in the hub.
        if let Some(template) = self.index.template_for(key).and_then(|t| self.index.template(&t)) {
            let facts = BindingFacts {
                key: key.clone(),
                pod_labels: Arc::new(atoll_interpreter::pod_labels(&template.object)),
                requirements: Demand::of(template).requirements,
                shares: decided.clusters.clone(),
                reported: self.views.replicas(key),
            };
            let changes = self.tables.upsert_binding(facts);
            self.wake(&changes);
        }
        let write = Write { key: key.clone(), action, decision: Some(decided.record.id.clone()) };
        self.write(write, Purpose::Decision(Box::new(committing)))
    }

    pub(super) fn write(&mut self, write: Write, mut purpose: Purpose) -> Step {
        let client = self.client.clone();
        // Writes without a decision pass no plugin.
        let decision = match &purpose {
            Purpose::Decision(committing) => committing.decision.as_ref(),
            Purpose::Upkeep(_) | Purpose::Delete | Purpose::Release => None,
        };
        let plugins =
            decision.map(|decision| (decision.profile.to_string(), self.extensions.clone()));
        self.jobs.spawn(async move {
            if let Purpose::Decision(committing) = &mut purpose {
                committing.detail = committing.decision.as_ref().and_then(detail);
            }
            let (ended, write) = match plugins {
                Some((profile, extensions)) => {
                    let passage = Passage { client: client.clone(), write };
                    (extensions.carry(&profile, &passage).await, passage.write)
                }
                None => (commit::perform(&client, &write).await, write),
            };
            // On a conflict, decide again from the current state, not from what the watch will deliver later.
            let fresh = match ended {
                Ended::Conflict => commit::read(&client, &write.key).await,
                _ => None,
            };
            JobDone::Wrote { write, ended, fresh, purpose }
        });
        Step::Runs
    }

    pub(super) fn delete(&mut self, binding: &Binding) -> Step {
        let action = Action::Delete { uid: binding.uid().to_owned() };
        self.write(Write { key: binding.key.clone(), action, decision: None }, Purpose::Delete)
    }

    /// The decision that ends eviction tasks, in whole or for the replicas that have a place elsewhere, if one has
    /// ended.
    pub(super) fn end_of_tasks(
        &self,
        binding: &Binding,
        now: Timestamp,
        term: LeaderTerm,
    ) -> Option<Decided> {
        let tasks = &binding.spec.graceful_eviction_tasks;
        let left = eviction::remaining(tasks, &binding.spec, &self.members_of(binding), now);
        (left != *tasks).then(|| Decided {
            record: eviction::record(&binding.spec, &left, now, term),
            clusters: binding.spec.clusters.clone(),
            evictions: left,
            preserved: binding.spec.preserved_state.clone(),
            applied_placement: None,
        })
    }
}

/// A decision in the form that history stores in full.
fn detail(decision: &Decision) -> Option<Detail> {
    Some(Detail::encode(&serde_json::to_value(decision).ok()?))
}

fn decided_by(decision: &Decision, term: LeaderTerm) -> Decided {
    let evictions = decision.evictions().to_vec();
    #[cfg(test)]
    let evictions = crate::mutants::grace_leaks(evictions);
    Decided {
        record: decision.record(term.get()),
        clusters: decision.clusters().to_vec(),
        evictions,
        preserved: decision.preserved().cloned(),
        applied_placement: Some(decision.applied_placement()),
    }
}
