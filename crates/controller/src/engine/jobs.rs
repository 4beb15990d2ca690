//! Writes and look-ups that run beside the engine, owned by it, and their results.

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_api::binding::DecisionRecord;
use atoll_history::{Detail, MemberEvent, Provenance, RecordState};
use atoll_scheduler::Decision;
use jiff::Timestamp;
use serde_json::Value;
use tokio::task::JoinSet;

use super::freshness::Compared;
use super::recovery::Known;
use super::work::Waiting;
use crate::commit::draft::Decided;
use crate::commit::{Ended, Write};
use crate::index::key::BindingKey;
use crate::leader::LeaderTerm;
use crate::lifecycle::gone;
use crate::status::due::Subject;
use crate::status::write::Failure;

/// Result of a job.
pub(super) enum JobDone {
    /// Result of a write to a binding.
    Wrote { write: Write, ended: Ended, fresh: Option<Arc<Value>>, purpose: Purpose },
    /// Result of a template look-up.
    Looked { key: BindingKey, presence: gone::Presence },
    /// History's answer about the record of a withdrawal.
    Recorded { key: BindingKey, id: String, state: RecordState },
    /// Result of a status write.
    Published { subject: Subject, result: Result<Arc<Value>, Failure> },
    /// Withdrawals in history that members have not confirmed.
    Unconfirmed { term: LeaderTerm, claims: Vec<(String, Vec<String>)> },
    /// Progress of decisions according to history.
    Lives { term: LeaderTerm, known: Vec<Known> },
    /// Member events missing in history.
    Missed { term: LeaderTerm, missed: Vec<MemberEvent> },
    /// Whether history has newer decisions than the hub.
    Compared { term: LeaderTerm, compared: Compared },
    /// Which of these bindings are withdrawn according to history.
    Reissued { term: LeaderTerm, asked: Vec<String>, withdrawn: BTreeSet<String> },
}

/// Purpose of a write to a binding.
pub(super) enum Purpose {
    /// A decision.
    Decision(Box<Committing>),
    /// Marks and copied policy fields, or the end of an eviction task's copy; without a decision.
    Upkeep(Waiting),
    /// Starts its deletion.
    Delete,
    /// Removes the finalizer.
    Release,
}

/// A decision being written to the hub.
pub(super) struct Committing {
    /// The durable part.
    pub(super) decided: Decided,
    /// The full decision; `None` for the end of an eviction task.
    pub(super) decision: Option<Decision>,
    /// The same for history; encoding it is the slowest part of a commit, so it is done beside the engine.
    pub(super) detail: Option<Detail>,
    /// Time of the decision, to the millisecond.
    pub(super) at: Timestamp,
    /// The decision's inputs.
    pub(super) provenance: Option<Provenance>,
    /// The previous decision, which it replaces.
    pub(super) parent: Option<DecisionRecord>,
    /// Previous shares.
    pub(super) before: Vec<atoll_api::binding::TargetCluster>,
}

/// Limit of concurrent jobs: enough to keep a hub busy, few enough not to overload a slow one.
const MOST: usize = 64;
/// Limit of status writes among them while decisions are pending: commits take priority over status writes.
const MOST_STATUSES: usize = 16;

/// The running jobs.
#[derive(Default)]
pub(super) struct Jobs {
    set: JoinSet<JobDone>,
    statuses: usize,
}

impl Jobs {
    pub(super) fn spawn(&mut self, job: impl Future<Output = JobDone> + Send + 'static) {
        self.set.spawn(job);
    }

    /// Writes a status; the result is [`JobDone::Published`].
    pub(super) fn publish(&mut self, job: impl Future<Output = JobDone> + Send + 'static) {
        self.statuses += 1;
        self.set.spawn(job);
    }

    /// Whether another job may start.
    pub(super) fn has_room(&self) -> bool {
        self.set.len() < MOST
    }

    /// Whether another status write may start.
    pub(super) fn has_room_for_status(&self, decides: bool) -> bool {
        self.has_room() && (!decides || self.statuses < MOST_STATUSES)
    }

    /// The next result; waits forever while there is no job.
    pub(super) async fn next(&mut self) -> Option<JobDone> {
        loop {
            match self.set.join_next().await {
                Some(Ok(done)) => {
                    self.statuses -= usize::from(matches!(done, JobDone::Published { .. }));
                    return Some(done);
                }
                Some(Err(error)) if error.is_cancelled() => {}
                // A panic in a job is a bug that must not pass as a result.
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                None => std::future::pending().await,
            }
        }
    }

    /// Aborts all jobs.
    pub(super) fn abandon(&mut self) {
        self.set.abort_all();
        self.set.detach_all();
        self.statuses = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn statuses_leave_room_for_decisions_and_take_it_when_there_are_none() {
        let published = || async {
            let subject = Subject::Binding(BindingKey { namespace: None, name: "web".into() });
            JobDone::Published { subject, result: Ok(Arc::default()) }
        };
        let mut jobs = Jobs::default();
        while jobs.has_room_for_status(true) {
            jobs.publish(published());
        }
        assert_eq!(jobs.set.len(), MOST_STATUSES);
        assert!(jobs.has_room(), "decisions find room");
        while jobs.has_room_for_status(false) {
            jobs.publish(published());
        }
        assert_eq!(jobs.set.len(), MOST);
        jobs.next().await;
        assert!(jobs.has_room_for_status(false) && !jobs.has_room_for_status(true));
        while jobs.statuses > 0 {
            jobs.next().await;
        }
        assert!(jobs.has_room_for_status(true));
    }
}
