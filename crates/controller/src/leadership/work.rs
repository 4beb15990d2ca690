//! Starts what is due: takes bindings from the queue and carries out their next steps, and writes statuses.

use std::sync::Arc;

use atoll_history::Stage;
use atoll_scheduler::{BindingFacts, TableChange, WakeCondition};
use tokio::time::Instant;

use super::Leading;
use super::jobs::JobDone;
use crate::commit::{Action, Write};
use crate::hub_state::HubState;
use crate::index::key::BindingKey;
use crate::index::rows::Binding;
use crate::parallel;
use crate::placements::dispatch::{Dispatch, Orders};
use crate::placements::withdraw::{self, WithdrawStep};
use crate::queue::{Done, Held, Opening, Urgency, gates};
use crate::reconcile::{self, Committing, Purpose, Step, Subject, template_lookup};
use crate::schedule::DecisionResult;
use crate::status::due::{Phase, Subject as StatusSubject};
use crate::status::stage::DueStatus;
use crate::status::warnings;

/// Bindings that are taken from the queue, and statuses that are compared with the hub's, before other tasks and events
/// get a turn. Objects that no policy claims need no decision, and most statuses do not differ: a queue of either would be
/// worked off in one piece.
const MOST_AT_ONCE: usize = 32;

impl Leading {
    /// Starts as much work as may run concurrently. Returns whether there is more that could begin at once.
    pub(crate) fn hand_out_work(&mut self, hub: &mut HubState) -> bool {
        if !self.is_in_force() {
            return false;
        }
        let now = Instant::now();
        self.queue.expire(now);
        self.outbox.offer_again(&self.env, &hub.index, now);
        self.draining.count(&self.env, hub, now);
        for key in self.draining.release(now) {
            self.enqueue(hub, key, Urgency::Now, None);
        }
        for key in self.draining.mending.round(&hub.index, &self.env.extensions, now) {
            self.enqueue(hub, key, Urgency::Later, None);
        }
        self.guard_round(hub, now);
        for key in self.rollouts.release(now) {
            self.dispatch(hub, &key);
        }
        self.audit.rollouts(&mut self.rollouts, now);
        self.audit.expire_traces(now);
        let more = (0..MOST_AT_ONCE).all(|_| self.hand_out_next(hub, now));
        self.ask_webhooks_again(hub, now);
        self.ask_revisions(hub);
        self.ask_readings(hub);
        let more = self.publish(hub, now) || more;
        self.env.counters.at_once(self.env.load.most());
        self.env.load.set_commits(self.decides() || self.jobs.commits());
        self.env.counters.queued(self.queue.lengths());
        self.env.counters.paced(self.draining.waiting(), self.rollouts.waiting());
        more
    }

    /// Starts the work on the next binding, if there is one and room for it.
    fn hand_out_next(&mut self, hub: &mut HubState, now: Instant) -> bool {
        if !self.jobs.has_room_for_commit() {
            return false;
        }
        // Work that needs no decision delays none.
        let key = self.queue.pop_held(now).or_else(|| {
            let key = self.deciding.is_none().then(|| self.queue.pop(now)).flatten()?;
            self.env.counters.latency.queued(self.queue.waited(&key));
            Some(key)
        });
        if let Some(key) = &key {
            self.reconcile(hub, key);
        }
        key.is_some()
    }

    /// One binding: read what the hub holds of it, and carry out the step that follows.
    fn reconcile(&mut self, hub: &mut HubState, key: &BindingKey) {
        let gated = self.queue.held(key).is_some();
        let step = reconcile::read(&hub.index, key, gated);
        self.perform(hub, key, step);
    }

    /// Carries out a step.
    pub(super) fn perform(&mut self, hub: &mut HubState, key: &BindingKey, step: Step) {
        match step {
            Step::Done(how) => self.finish(key, how),
            Step::UpToDate(how) => {
                self.dispatch(hub, key);
                self.mark_status(hub, key);
                self.finish(key, how);
            }
            Step::Refused(binding, why) => {
                self.dispatch(hub, key);
                if warnings::of_refusal(&self.env, &binding, &why) {
                    self.mark_status(hub, key);
                }
                self.finish(key, Done::Settled);
            }
            Step::Withdraw(binding) => self.withdraw(hub, &binding),
            Step::LookUp(template, version) => {
                let (client, key) = (self.env.client.clone(), key.clone());
                self.jobs.spawn(async move {
                    let presence = template_lookup::look(&client, &template, &version).await;
                    JobDone::LookedUp { key, presence }
                });
            }
            Step::Interpret(template) => self.interpret(hub, key, &template),
            Step::Decide(subject) => match reconcile::start::named(&subject) {
                Some(text) => {
                    let snapshot = hub.tables.snapshot();
                    let context = self.context(hub);
                    let step = reconcile::start::step(context, &subject, &text, &snapshot);
                    self.perform(hub, key, step);
                }
                None => self.ask_scheduler(hub, *subject),
            },
            Step::Attach(subject) => {
                let context = reconcile::Context {
                    env: &self.env,
                    hub,
                    placements: &self.placements,
                    outbox: &self.outbox,
                    term: self.term,
                };
                let step = self.attachments.step(context, &subject, Instant::now());
                self.perform(hub, key, step);
            }
            Step::Upkeep(subject) => {
                let step = reconcile::upkeep(self.context(hub), &subject);
                self.perform(hub, key, step);
            }
            Step::Write(write, purpose) => {
                if let Purpose::Decision(committing) = &purpose {
                    self.reserve(hub, key, committing);
                }
                self.jobs.write(&self.env, write, purpose);
            }
            Step::HigherTerm(term) => {
                self.env.election.heard_term(term);
                self.finish(key, Done::Failed);
            }
        }
    }

    /// The work on a binding has ended for now.
    pub(super) fn finish(&mut self, key: &BindingKey, how: Done<WakeCondition>) {
        self.draining.guards.done(key);
        self.queue.done(key, how, Instant::now());
        if !self.queue.is_ready(key) {
            self.statuses.decided(key);
        }
    }

    fn ask_scheduler(&mut self, hub: &mut HubState, subject: Subject) {
        self.regroup(hub, &subject);
        let request = match reconcile::request(self.context(hub), &subject) {
            Ok(mut request) => {
                self.draining.mending.ask(&mut request);
                request
            }
            Err(how) => return self.finish(&subject.key, how),
        };
        self.request_decision(hub, subject, request);
    }

    /// The template's labels may have changed, and with them its groups for `placement.workloadAffinity`. Others must
    /// see that even if the decision changes nothing.
    fn regroup(&mut self, hub: &mut HubState, subject: &Subject) {
        let Some(binding) = &subject.binding else { return };
        let placement = binding.spec.placement.as_deref();
        if placement.is_some_and(|placement| placement.workload_affinity.is_some()) {
            let changes = hub.refresh_binding(&subject.key, self.placements.replicas(&subject.key));
            self.wake(hub, &changes);
        }
    }

    /// The scheduler's result for the binding that it was asked about.
    pub(crate) fn decided(&mut self, hub: &mut HubState, result: DecisionResult) {
        if result.term != self.term {
            return; // requested in an earlier leadership
        }
        let Some(subject) = self.deciding.take() else { return };
        let (took, inputs) = (result.took, result.inputs);
        let exempt = std::mem::take(&mut self.draining.guards.exempt);
        let (key, decision) = (subject.key.clone(), *result.decision);
        self.env.counters.latency.decided(&decision, took);
        if !self.draining.mending.admit(&decision) {
            return self.finish(&key, Done::Again);
        }
        let Some(part) = self.part_of(hub, &subject, &decision, exempt) else {
            return self.decide_exempt(hub, subject);
        };
        self.statuses.note_groups(&self.env, &hub.index, &subject.template, &decision);
        if !self.is_in_force() {
            return self.finish(&key, Done::Again);
        }
        let context = reconcile::Context {
            env: &self.env,
            hub,
            placements: &self.placements,
            outbox: &self.outbox,
            term: self.term,
        };
        let draining = &mut self.draining;
        let may_move = |decision: &_| draining.may_move(&key, decision);
        let mut step = reconcile::conclude(context, subject, decision, part, may_move);
        if let Step::Write(_, Purpose::Decision(committing)) = &mut step {
            committing.took = took;
            committing.inputs = inputs;
        }
        self.perform(hub, &key, step);
    }

    /// The next decision must see these replicas before they are in the hub.
    fn reserve(&mut self, hub: &mut HubState, key: &BindingKey, committing: &Committing) {
        let Some(template) = gates::template_of(&hub.index, key) else { return };
        let binding = hub.index.binding(key).map(|binding| &**binding);
        let demand = hub.index.demand(template, binding);
        let facts = BindingFacts {
            key: key.clone(),
            pod_labels: template.extract.pod_labels.clone(),
            requirements: demand.requirements,
            components: demand.components.into(),
            groups: committing.groups.clone(),
            standing: committing.standing.clone(),
            shares: committing.decided.clusters.clone(),
            reported: self.placements.replicas(key),
        };
        let changes = hub.tables.upsert_binding(facts);
        self.wake(hub, &changes);
    }

    fn withdraw(&mut self, hub: &HubState, binding: &Binding) {
        let key = &binding.key;
        self.draining.forget(key);
        let step = withdraw::step(&self.env, hub, &mut self.placements, binding, self.term);
        match step {
            WithdrawStep::NotOurs => self.finish(key, Done::Settled),
            WithdrawStep::Waits(until) => self.finish(key, Done::Waits(Vec::new(), until)),
            WithdrawStep::QueueFull => self.finish(key, Done::Failed),
            WithdrawStep::Recording { id, mut receipt } => {
                self.finish(key, Done::Waits(Vec::new(), None));
                let key = key.clone();
                self.jobs.spawn(async move {
                    let state = receipt.settled().await;
                    JobDone::WithdrawalRecorded { key, id, state }
                });
            }
            WithdrawStep::Release(patch) => {
                let write =
                    Write { key: key.clone(), action: Action::Patch(patch), decision: None };
                self.jobs.write(&self.env, write, Purpose::Release);
            }
        }
    }

    /// Sends a binding's committed decision to members.
    pub(super) fn dispatch(&mut self, hub: &HubState, key: &BindingKey) {
        let dispatch = Dispatch::prepare(hub, &mut self.placements, &self.rollouts, key);
        let orders = dispatch.as_ref().map(Dispatch::render);
        self.pass_on(hub, key, dispatch.zip(orders));
    }

    /// The same for many bindings, which are rendered at the same time.
    pub(super) fn dispatch_all(&mut self, hub: &HubState, bindings: &[Arc<Binding>]) {
        let prepare = |binding: &Arc<Binding>| {
            Dispatch::prepare(hub, &mut self.placements, &self.rollouts, &binding.key)
        };
        let dispatches: Vec<Option<Dispatch<'_>>> = bindings.iter().map(prepare).collect();
        let orders = parallel::map(&dispatches, |held| held.as_ref().map(Dispatch::render));
        for ((binding, dispatch), orders) in bindings.iter().zip(dispatches).zip(orders) {
            self.pass_on(hub, &binding.key, dispatch.zip(orders));
        }
    }

    fn pass_on(
        &mut self,
        hub: &HubState,
        key: &BindingKey,
        rendered: Option<(Dispatch<'_>, Orders)>,
    ) {
        let failing = self.placements.render_errors(key).next().is_some();
        let mut overridden = self.placements.overridden_by(key);
        self.audit.dispatching(key);
        let (traces, rollouts) = (self.audit.traces(), &mut self.rollouts);
        let sent = rendered.map(|(dispatch, orders)| {
            dispatch.pass_on(&self.env, &mut self.placements, rollouts, traces, orders)
        });
        let sent = sent.unwrap_or_default();
        let fails = self.placements.render_errors(key).next().is_some();
        if !sent.is_empty() || failing || fails {
            overridden.extend(self.placements.overridden_by(key));
            let template = gates::template_of(&hub.index, key);
            let selecting = template.map(|template| hub.index.overrides_selecting(template));
            for policy in overridden.into_iter().chain(selecting.into_iter().flatten()) {
                self.statuses.mark(StatusSubject::OverridePolicy(policy), Phase::InProgress);
            }
        }
        for cluster in sent {
            self.audit.reached(key, &cluster, Stage::Dispatched);
        }
    }

    /// Adds a binding to the queue, because of `news` if that may open a gate. Behind a shut gate that it does not open,
    /// the binding only gets work that needs no decision.
    pub(super) fn enqueue(
        &mut self,
        hub: &HubState,
        key: BindingKey,
        urgency: Urgency,
        news: Option<Opening>,
    ) {
        let opens = |held: &Held| news.is_some_and(|news| held.opens.contains(&news));
        let stays = self.queue.held(&key).is_some_and(|held| !opens(held));
        if !stays || gates::template_of(&hub.index, &key).is_none() {
            self.check_gates(hub, &key);
        }
        self.queue.add(key, urgency, Instant::now());
    }

    /// An event that may open gates of bindings which it does not affect otherwise.
    pub(super) fn reopen(&mut self, hub: &HubState, news: Opening) {
        for key in self.queue.held_until(news) {
            self.check_gates(hub, &key);
            if self.queue.held(&key).is_none() {
                self.queue.add(key, Urgency::Now, Instant::now());
            }
        }
    }

    /// Evaluates the gates, and looks up the priority.
    fn check_gates(&mut self, hub: &HubState, key: &BindingKey) {
        let (priority, gate) = gates::evaluate(&self.env.extensions, &hub.index, key);
        let same = self.queue.held(key) == gate.as_ref();
        let why = gate.as_ref().map(ToString::to_string);
        self.queue.set_info(key, priority, gate);
        if same {
            return;
        }
        self.mark_status(hub, key);
        if let Some(why) = why {
            self.statuses.decided(key);
            gates::publish(&self.env, &hub.index, key, &why);
        }
    }

    /// Wakes bindings that wait for one of these changes.
    pub(super) fn wake(&mut self, hub: &HubState, changes: &[TableChange]) {
        let now = Instant::now();
        for change in changes {
            self.queue.wake(change, now);
            if let TableChange::Quota { namespace, .. } = change {
                self.statuses.mark_quotas(&hub.index, namespace);
            }
            if let TableChange::Preempted { victim } = change {
                self.enqueue(hub, victim.clone(), Urgency::Now, None);
            }
            if let TableChange::WorkloadSpread { target } = change {
                self.queue.wake_placed(&target.binding(), now);
            }
            if let TableChange::AffinityGroup { key, group } = change {
                // A condition of every member tells whether it still is where the group's rule allows.
                let namespace = key.namespace().unwrap_or_default();
                for member in hub.tables.group_members(namespace, group) {
                    self.mark_status(hub, member);
                }
            }
        }
    }

    /// Whether another status may be written now.
    pub(super) fn may_publish(&self) -> bool {
        self.jobs.has_room_for_status(self.decides())
    }

    /// Whether decisions are being made or due.
    fn decides(&self) -> bool {
        self.deciding.is_some() || self.queue.lengths().active > 0
    }

    /// Writes statuses that are due. Returns whether there are more.
    fn publish(&mut self, hub: &HubState, now: Instant) -> bool {
        for _ in 0..MOST_AT_ONCE {
            if !self.may_publish() {
                return false;
            }
            let env = self.env.clone();
            let (statuses, sources) = self.statuses(hub);
            match statuses.next_due(&env, sources, now) {
                Some(DueStatus::Write(write)) => {
                    let (subject, target, content) = *write;
                    self.jobs.publish(&env, subject, target, content);
                }
                Some(DueStatus::Nothing) => {}
                None => return false,
            }
        }
        true
    }
}
