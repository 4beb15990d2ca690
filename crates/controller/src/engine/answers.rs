//! Handles results of writes and look-ups.

use std::sync::Arc;

use atoll_api::binding::{DecisionRecord, Outcome, TargetCluster, Trigger};
use atoll_decision::OVERCOMMITTED;
use serde_json::Value;
use tokio::time::Instant;

use super::Engine;
use super::jobs::{Committing, JobDone, Purpose};
use super::work::{Step, Waiting};
use crate::commit::{Ended, Write};
use crate::events::{Cause, Note, Severity};
use crate::index::key::BindingKey;
use crate::index::rows::Binding;
use crate::index::{Source, Touched};
use crate::lifecycle::gone::Presence;
use crate::queue::{Done, Opening, Urgency};
use crate::status::due::Subject;

impl Engine {
    /// A job ended.
    pub(super) fn job_done(&mut self, done: JobDone) {
        match done {
            JobDone::Wrote { write, ended, fresh, purpose } => {
                self.wrote(write, ended, fresh, purpose);
            }
            JobDone::Looked { key, presence } => self.looked(&key, presence),
            JobDone::Recorded { key, id, state } => self.withdrawal_recorded(key, &id, state),
            JobDone::Published { subject, result } => self.published(&subject, result),
            JobDone::Unconfirmed { term, claims } => self.unconfirmed_known(term, claims),
            JobDone::Lives { term, known } => self.lives_known(term, known),
            JobDone::Missed { term, missed } => self.members_missed(term, missed),
            JobDone::Compared { term, compared } => self.compared(term, compared),
            JobDone::Reissued { term, asked, withdrawn } => {
                self.records_known(term, &asked, &withdrawn);
            }
        }
    }

    fn wrote(&mut self, write: Write, ended: Ended, fresh: Option<Arc<Value>>, purpose: Purpose) {
        let key = write.key;
        self.counters.wrote("binding", ended.name());
        let how = match ended {
            Ended::Written(object) => self.written(&key, &object, purpose),
            Ended::Conflict => {
                self.counters.conflicts.inc();
                tracing::debug!(%key, "changed by somebody else meanwhile; deciding again");
                match fresh {
                    Some(object) => {
                        let touched = self.index.apply(&source_of(&key), object);
                        self.absorb(touched, Urgency::Now, Opening::Binding);
                        Done::Again
                    }
                    None => Done::Failed,
                }
            }
            Ended::Gone => match purpose {
                Purpose::Delete | Purpose::Release => {
                    self.binding_is_gone(&key);
                    Done::Settled
                }
                // The watch will report its deletion, and add the key again.
                Purpose::Decision(_) | Purpose::Upkeep(_) => Done::Failed,
            },
            Ended::Held(why) => {
                tracing::warn!(%key, why, "a plugin holds the decision back");
                Done::Waits(Vec::new(), None)
            }
            Ended::Refused(why) => {
                tracing::error!(%key, why, "the hub refuses the write");
                Done::Waits(Vec::new(), None)
            }
            Ended::Unanswered(why) => {
                tracing::warn!(%key, why, "the write did not arrive");
                Done::Failed
            }
        };
        self.finish(&key, how);
        // The decision's reserved shares no longer count; those in the hub do.
        let changes = match self.index.binding(&key) {
            Some(_) => self.refresh_facts(&key),
            None => self.tables.remove_binding(&key),
        };
        self.wake(&changes);
    }

    /// The hub stored the write.
    fn written(
        &mut self,
        key: &BindingKey,
        object: &Arc<Value>,
        purpose: Purpose,
    ) -> Done<atoll_scheduler::WakeCondition> {
        let mut touched = self.index.apply(&source_of(key), object.clone());
        // Our own change: the caller already handles its effect on the key.
        touched.keys.remove(key);
        self.absorb(touched, Urgency::Now, Opening::Binding);
        let binding = self.index.binding(key).cloned();
        match (purpose, binding) {
            (Purpose::Decision(mut committing), Some(binding)) => {
                self.counters.decided(&committing.decided.record);
                self.record(&binding, &mut committing);
                self.chronicle(&binding, &committing);
                self.announce(&binding, &committing);
                self.dispatch(key);
                self.mark_status(key);
                // Only tasks ended: pending replicas may have waited for that, and what else they wait for is not part
                // of the write.
                let Some(decision) = &committing.decision else { return Done::Again };
                let now = self.clock.now_seconds();
                // The replacement of an old copy may run already: then no further report will come to end its task.
                if self.led.is_some_and(|term| self.end_of_tasks(&binding, now, term).is_some()) {
                    return Done::Again;
                }
                self.waits(Waiting::after(decision), Some(&binding), now)
            }
            (Purpose::Upkeep(waits), Some(binding)) => {
                self.dispatch(key);
                self.mark_status(key);
                self.waits(waits, Some(&binding), self.clock.now_seconds())
            }
            (Purpose::Release, Some(binding)) => {
                if binding.deleting() && binding.metadata.finalizers.iter().flatten().count() == 0 {
                    self.binding_is_gone(key);
                }
                Done::Settled
            }
            (Purpose::Delete, Some(_)) => Done::Again,
            (_, None) => Done::Failed,
        }
    }

    /// The hub reported the binding as deleted.
    fn binding_is_gone(&mut self, key: &BindingKey) {
        let Some(binding) = self.index.binding(key).cloned() else { return };
        let object = serde_json::json!({"metadata": {
            "namespace": key.namespace, "name": key.name, "uid": binding.uid(),
        }});
        let touched: Touched = self.index.delete(&source_of(key), &object);
        self.absorb(touched, Urgency::Now, Opening::Binding);
    }

    fn looked(&mut self, key: &BindingKey, presence: Presence) {
        let Some(binding) = self.index.binding(key).cloned() else {
            return self.finish(key, Done::Settled);
        };
        let of_binding = binding.spec.resource.uid.as_deref();
        match presence {
            Presence::There(uid) if of_binding.is_none_or(|held| held == uid) => {
                // The watch is behind; it will deliver the template, and add the key again.
                self.finish(key, Done::Failed);
            }
            Presence::There(_) | Presence::Gone => {
                if self.term().is_none() {
                    return self.finish(key, Done::Again);
                }
                match self.delete(&binding) {
                    Step::Done(how) => self.finish(key, how),
                    Step::Decides | Step::Runs => {}
                }
            }
            Presence::Unreadable(why) => {
                tracing::warn!(%key, why, "frozen: nobody can say whether the template is there");
                self.finish(key, Done::Waits(Vec::new(), None));
            }
        }
    }

    /// Publishes an Event about a decision.
    fn announce(&self, binding: &Binding, committing: &Committing) {
        let record = &committing.decided.record;
        let severity = match record.outcome {
            Outcome::Placed | Outcome::Unchanged if !is_overcommitted(record) => Severity::Normal,
            _ => Severity::Warning,
        };
        let mut message = format!(
            "{}: {} -> {}",
            record.outcome,
            shares(&committing.before, binding.spec.replicas.is_some()),
            shares(&committing.decided.clusters, binding.spec.replicas.is_some()),
        );
        for pending in &record.pending {
            message.push_str(&format!("; {} pending: {}", pending.replicas, pending.reason));
        }
        let reason = committing.decision.as_ref().map(|decision| decision.reason.as_str());
        if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
            message.push_str(&format!("; {reason}"));
        }
        self.notes.tell(Note {
            about: binding.spec.resource.clone(),
            id: record.id.clone(),
            reason: record.trigger.to_string(),
            message,
            severity,
            at: record.at.0,
            cause: cause(record.trigger, &committing.before, &committing.decided.clusters),
            repeat_after: None,
        });
    }

    /// Result of a status write.
    fn published(
        &mut self,
        subject: &Subject,
        result: Result<Arc<Value>, crate::status::write::Failure>,
    ) {
        let now = Instant::now();
        match result {
            Ok(object) => {
                self.counters.wrote("status", "written");
                self.due.done(subject, true, now);
                let before = match subject {
                    Subject::Binding(key) => self.index.binding(key).cloned(),
                    _ => None,
                };
                if let Some(source) = self.source_of_subject(subject) {
                    let mut touched = self.index.apply(&source, object);
                    // Our own write.
                    touched.statuses.clear();
                    self.absorb(touched, Urgency::Now, Opening::Binding);
                }
                if let Some(before) = before {
                    self.tell_trouble(&before);
                }
            }
            Err(failure) => {
                self.counters.wrote("status", if failure.again { "unanswered" } else { "refused" });
                tracing::debug!(?subject, error = failure.message, "status not written");
                self.due.done(subject, false, now);
                if failure.again {
                    self.due.mark(subject.clone(), crate::status::due::Pace::OnItsWay, now);
                }
            }
        }
    }
}

/// Whether a decision placed more replicas than fit.
fn is_overcommitted(record: &DecisionRecord) -> bool {
    record.reason.as_ref().is_some_and(|reason| reason.starts_with(OVERCOMMITTED))
}

/// The stream of bindings of this scope.
pub(super) fn source_of(key: &BindingKey) -> Source {
    if key.namespace.is_some() { Source::ResourceBindings } else { Source::ClusterResourceBindings }
}

/// What a decision has in common with those of other workloads: its trigger, and the clusters that they leave.
fn cause(trigger: Trigger, before: &[TargetCluster], after: &[TargetCluster]) -> Option<Cause> {
    let words = match trigger {
        Trigger::First => "that were placed for the first time",
        Trigger::Rebalance => "of this rebalance",
        Trigger::Reconcile => "of this change of policy",
        Trigger::Failover => "of this failover",
        Trigger::ApplicationFailure => "that were unhealthy there",
        Trigger::ClusterChange => "of this change of clusters",
        Trigger::Overflow => "that did not fit",
        Trigger::Recover => "of this return",
        Trigger::Retry => "that were waiting",
        Trigger::EvictionDone => "whose old copies are gone",
        Trigger::Scale | Trigger::Withdrawn | Trigger::Avoid => return None,
    };
    let stays = |name: &str| after.iter().any(|target| target.name == name);
    let left = before.iter().map(|target| target.name.as_str()).filter(|name| !stays(name));
    let left = left.collect::<Vec<_>>().join(",");
    Some(Cause { key: format!("{trigger} {left}"), words })
}

/// Shares in one line.
fn shares(clusters: &[TargetCluster], has_replicas: bool) -> String {
    const MOST: usize = 12;
    if clusters.is_empty() {
        return "nowhere".to_owned();
    }
    let each = clusters.iter().take(MOST).map(|target| {
        if has_replicas {
            format!("{} {}", target.name, target.replicas)
        } else {
            target.name.clone()
        }
    });
    let mut text = each.collect::<Vec<_>>().join(", ");
    if clusters.len() > MOST {
        text.push_str(&format!(" and {} more", clusters.len() - MOST));
    }
    text
}
