//! Takes in the results of jobs.

use std::sync::Arc;
use std::time::Duration;

use atoll_api::DecisionId;
use atoll_history::RecordState;
use atoll_scheduler::WakeCondition;

use super::Leading;
use super::jobs::{JobDone, Wrote};
use crate::audit::inputs;
use crate::commit::Ended;
use crate::hub_state::HubState;
use crate::index::Source;
use crate::index::binding_object::BindingObject;
use crate::index::key::BindingKey;
use crate::index::received::Received;
use crate::index::rows::Binding;
use crate::placements::required::required;
use crate::placements::withdraw;
use crate::queue::{Done, Opening, Urgency};
use crate::reconcile::template_lookup::Presence;
use crate::reconcile::{self, Committing, Purpose, Waiting, announce, end_of_tasks};
use crate::status::due::{Processed, Subject};
use crate::status::write::Failure;
use crate::status::{faults, replicas, stage};
use crate::telemetry::Steps;

impl Leading {
    /// A job ended.
    pub(crate) fn job_done(&mut self, hub: &mut HubState, done: JobDone) {
        match done {
            JobDone::Wrote(wrote) => self.wrote(hub, *wrote),
            JobDone::LookedUp { key, presence } => self.looked_up(hub, &key, presence),
            JobDone::WithdrawalRecorded { key, id, state } => {
                self.withdrawal_recorded(hub, key, &id, state);
            }
            JobDone::Published { subject, result, news, unreachable } => {
                self.take_rule_news(hub, news);
                if let (true, Subject::Template(key)) = (unreachable, &subject) {
                    self.ask_later(key);
                }
                self.published(hub, &subject, result);
            }
            JobDone::Interpreted { key, template, found } => {
                self.interpreted(hub, &key, &template, *found);
            }
            JobDone::Revised { key, origin, revised } => self.revised(hub, &key, origin, revised),
            JobDone::Read { place, read } => self.report_read(hub, &place, *read),
            JobDone::Released(released) => self.released(hub, released),
            JobDone::Unconfirmed(claims) => {
                for (cluster, uids) in claims {
                    self.placements.verdicts.unconfirmed(&cluster, uids);
                }
                // Every committed decision was passed on, too: members' inventories may be judged.
                self.env.outlet.caches_complete(self.term, self.placements.verdicts.clone());
            }
            JobDone::Progress(known) => self.audit.recover(&hub.index, &self.placements, known),
            JobDone::MembersMissed(missed) => self.audit.members_missed(missed),
            JobDone::Compared(compared) => {
                if let Some(next) =
                    self.removal_limits.compared(&self.env, &self.placements, compared)
                {
                    self.jobs.spawn(async { JobDone::Compared(next.await) });
                }
                self.publish_limits(hub);
            }
            JobDone::Reissued(answer) => {
                self.reissued.answered(&self.env, &self.placements, &hub.index, &answer);
                self.query_reissued();
            }
        }
    }

    fn wrote(&mut self, hub: &mut HubState, wrote: Wrote) {
        let Wrote { key, ended, fresh, purpose, detail, took } = wrote;
        self.env.counters.wrote("binding", ended.name());
        if matches!(purpose, Purpose::Decision(_)) {
            self.env.counters.latency.committed(ended.name(), took);
        }
        let held =
            hub.index.binding(&key).and_then(|binding| binding.spec.held.as_deref().cloned());
        let how = match ended {
            Ended::Written(object) => {
                let binding = self.stored(hub, &key, object);
                self.draining.guards.marked(&key);
                match (purpose, binding) {
                    (Purpose::Decision(mut committing), Some(binding)) => {
                        if !committing.exempt {
                            self.note_move(hub, held);
                        }
                        let record = committing.record(&binding, detail);
                        let inputs = committing.inputs.take().map(inputs::recorded);
                        self.outbox.record(&self.env, &binding, record, inputs);
                        self.committed(hub, &binding, &committing, took)
                    }
                    (purpose, binding) => self.stored_without_decision(hub, &key, purpose, binding),
                }
            }
            Ended::Conflict => {
                self.env.counters.conflicts.inc();
                tracing::debug!(%key, "changed by another writer meanwhile; deciding again");
                match fresh {
                    Some(object) => {
                        let touched = hub.take_reply(&Source::of_binding(&key), object);
                        self.absorb(hub, touched, Urgency::Now, Opening::Binding);
                        Done::Again
                    }
                    None => Done::Failed,
                }
            }
            Ended::Gone => match purpose {
                Purpose::Delete | Purpose::Release => {
                    self.binding_is_gone(hub, &key);
                    Done::Settled
                }
                // The watch will report its deletion, and add the key again.
                Purpose::Decision(_) | Purpose::Upkeep(_) => Done::Failed,
            },
            Ended::Held(why) => {
                let decision = purpose.decision();
                tracing::warn!(%key, decision, why, "a plugin holds the decision back");
                Done::Waits(Vec::new(), None)
            }
            Ended::Refused(why) => {
                tracing::error!(%key, decision = purpose.decision(), why, "the hub refuses the write");
                Done::Waits(Vec::new(), None)
            }
            Ended::Unanswered(why) => {
                tracing::warn!(%key, decision = purpose.decision(), why, "the write did not arrive");
                Done::Failed
            }
        };
        self.finish(&key, how);
        self.offer_unknown(hub, &key);
        // The decision's reserved shares no longer count; those in the hub do.
        let changes = self.refresh_binding(hub, &key);
        self.wake(hub, &changes);
    }

    /// The hub stored a write: the binding as it is now.
    fn stored(
        &mut self,
        hub: &mut HubState,
        key: &BindingKey,
        object: BindingObject,
    ) -> Option<Arc<Binding>> {
        let mut touched = hub.take_reply(&Source::of_binding(key), object);
        // Our own change: the caller handles its effect on the key.
        touched.keys.remove(key);
        self.absorb(hub, touched, Urgency::Now, Opening::Binding);
        hub.index.binding(key).cloned()
    }

    /// A decision is durable: history, members and users learn of it.
    fn committed(
        &mut self,
        hub: &HubState,
        binding: &Binding,
        committing: &Committing,
        took: Duration,
    ) -> Done<WakeCondition> {
        let key = &binding.key;
        let Committing { decided, parent, before, at, .. } = committing;
        self.env.counters.decided(&decided.record);
        self.audit.committed(binding, decided, parent.as_ref(), before, *at);
        self.audit.trace(&Steps {
            key,
            workload: &binding.spec.resource,
            record: &decided.record,
            clusters: &decided.clusters,
            strategy: committing.decision.as_ref().map(|decision| &*decision.strategy),
            queued: self.queue.flight(key),
            decided: (*at, committing.took),
            commit: took,
        });
        self.env.notes.post(announce::note(binding, committing));
        self.dispatch(hub, key);
        self.mark_status(hub, key);
        // Only tasks ended: pending replicas may have waited for that, and what else they wait for is not part of the
        // write.
        let Some(decision) = &committing.decision else { return Done::Again };
        let now = self.env.clock.now_seconds();
        // The replacement of an old copy may run already: then no further report will come to end its task.
        // And the change that waits may be another one now.
        let again = committing.ends_tasks || committing.exempt;
        if again || end_of_tasks(self.context(hub), binding, now).is_some() {
            return Done::Again;
        }
        Waiting::after(decision).done(Some(binding), now)
    }

    fn stored_without_decision(
        &mut self,
        hub: &mut HubState,
        key: &BindingKey,
        purpose: Purpose,
        binding: Option<Arc<Binding>>,
    ) -> Done<WakeCondition> {
        let Some(binding) = binding else { return Done::Failed };
        match purpose {
            Purpose::Upkeep(waiting) => {
                self.dispatch(hub, key);
                self.mark_status(hub, key);
                waiting.done(Some(&binding), self.env.clock.now_seconds())
            }
            Purpose::Release => {
                if binding.deleting() && binding.meta.finalizers.is_empty() {
                    self.binding_is_gone(hub, key);
                }
                Done::Settled
            }
            Purpose::Delete => Done::Again,
            Purpose::Decision(_) => Done::Failed,
        }
    }

    /// The hub reported the binding as deleted.
    fn binding_is_gone(&mut self, hub: &mut HubState, key: &BindingKey) {
        let Some(binding) = hub.index.binding(key).cloned() else { return };
        let name = (key.namespace().map(str::to_owned), key.name().to_owned());
        let touched = hub.index.delete_named(&Source::of_binding(key), &name, Some(&binding.uid));
        self.absorb(hub, touched, Urgency::Now, Opening::Binding);
    }

    fn is_needed(&self, hub: &HubState, binding: &Binding) -> bool {
        let required = required(&hub.index, &self.placements, &binding.template, Some(binding));
        !required.by.is_empty()
    }

    /// The hub answered whether a template still exists.
    fn looked_up(&mut self, hub: &mut HubState, key: &BindingKey, presence: Presence) {
        let Some(binding) = hub.index.binding(key).cloned() else {
            return self.finish(key, Done::Settled);
        };
        let of_binding = binding.spec.resource.uid.as_deref();
        match presence {
            Presence::There(uid) if of_binding.is_none_or(|held| held == uid) => {
                // The watch is behind; it will deliver the template, and add the key again.
                self.finish(key, Done::Failed);
            }
            // Members keep what others need, also after it was deleted on the hub.
            Presence::There(_) | Presence::Gone
                if binding.is_attached() && self.is_needed(hub, &binding) =>
            {
                self.dispatch(hub, key);
                self.mark_status(hub, key);
                self.finish(key, Done::Settled);
            }
            Presence::There(_) | Presence::Gone if self.is_in_force() => {
                self.perform(hub, key, reconcile::delete(&binding));
            }
            Presence::There(_) | Presence::Gone => self.finish(key, Done::Again),
            Presence::Unreadable(why) => {
                tracing::warn!(%key, why, "frozen: the hub does not show whether the template exists");
                self.finish(key, Done::Waits(Vec::new(), None));
            }
        }
    }

    /// History's answer about a withdrawal's record.
    fn withdrawal_recorded(
        &mut self,
        hub: &HubState,
        key: BindingKey,
        id: &DecisionId,
        state: RecordState,
    ) {
        let Some(withdrawal) = self.placements.withdrawal_mut(&key) else { return };
        if withdraw::recorded(withdrawal, id, state) {
            self.enqueue(hub, key, Urgency::Now, None);
        }
    }

    /// Result of a status write.
    fn published(
        &mut self,
        hub: &mut HubState,
        subject: &Subject,
        result: Result<Option<Box<Received>>, Failure>,
    ) {
        match result {
            Ok(None) => self.statuses.processed(&self.env, subject, Processed::UpToDate),
            Ok(Some(object)) => {
                self.env.counters.wrote("status", "written");
                self.statuses.processed(&self.env, subject, Processed::Written);
                let before = match subject {
                    Subject::Binding(key) => hub.index.binding(key).cloned(),
                    _ => None,
                };
                if let (Subject::Replicas(key), Some(scale)) = (subject, object.object()) {
                    replicas::written(&self.env, &hub.index, key, scale);
                }
                if let Some(source) = stage::source_of(&hub.index, subject) {
                    let mut touched = hub.take_reply(&source, *object);
                    // Our own write.
                    touched.statuses.clear();
                    self.absorb(hub, touched, Urgency::Now, Opening::Binding);
                }
                if let Some(before) = before {
                    faults::publish(&self.env, &hub.index, &self.placements, &before);
                }
            }
            Err(failure) => {
                let (result, how) = match failure.again {
                    true => ("unanswered", Processed::Failed),
                    false => ("refused", Processed::Refused),
                };
                self.env.counters.wrote("status", result);
                tracing::debug!(?subject, error = failure.message, "status not written");
                if let (Subject::Replicas(key), false) = (subject, failure.again) {
                    replicas::refused(&self.env, &hub.index, key, &failure.message);
                }
                self.statuses.processed(&self.env, subject, how);
            }
        }
    }
}
