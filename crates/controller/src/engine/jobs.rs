//! Writes and look-ups that run beside the engine, each owned by it, and what they bring back.

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_api::binding::DecisionRecord;
use atoll_history::{Detail, MemberEvent, Provenance, State};
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
use crate::lifecycle::gone;
use crate::status::due::Subject;
use crate::status::write::Failure;

/// What came of a job.
pub(super) enum JobDone {
    /// A write to a binding.
    Wrote { write: Write, ended: Ended, fresh: Option<Arc<Value>>, purpose: Purpose },
    /// A template was asked for.
    Looked { key: BindingKey, presence: gone::Presence },
    /// History said what became of a withdrawal's record.
    Recorded { key: BindingKey, id: String, state: State },
    /// A status was written, or not.
    Published { subject: Subject, result: Result<Arc<Value>, Failure> },
    /// What history knows of withdrawals that members have not confirmed.
    Unconfirmed { term: u64, claims: Vec<(String, Vec<String>)> },
    /// What history knows of how far decisions have come.
    Lives { term: u64, known: Vec<Known> },
    /// What history was not told of members.
    Missed { term: u64, missed: Vec<MemberEvent> },
    /// Whether history has newer decisions than the hub.
    Compared { term: u64, compared: Compared },
    /// Which of these bindings history records as withdrawn.
    Reissued { term: u64, asked: Vec<String>, withdrawn: BTreeSet<String> },
}

/// What a write to a binding is for.
pub(super) enum Purpose {
    /// A decision.
    Decision(Box<Committing>),
    /// Marks and copies of what the policy says, or the end of an eviction task's copy; nothing was decided.
    Upkeep(Waiting),
    /// The beginning of its end.
    Delete,
    /// Its end.
    Release,
}

/// A decision on its way to the hub.
pub(super) struct Committing {
    /// What becomes durable.
    pub(super) decided: Decided,
    /// The whole decision; nothing for the end of an eviction task.
    pub(super) decision: Option<Decision>,
    /// The same for history, which takes the longest of all that a commit costs: made beside the engine.
    pub(super) detail: Option<Detail>,
    /// When it was decided, to the millisecond.
    pub(super) at: Timestamp,
    /// What it was made from.
    pub(super) provenance: Option<Provenance>,
    /// The decision before, whose place it takes.
    pub(super) parent: Option<DecisionRecord>,
    /// Shares before.
    pub(super) before: Vec<atoll_api::binding::TargetCluster>,
}

/// Writes and look-ups under way at once: enough to keep a hub busy, few enough that a slow one is not buried.
const MOST: usize = 64;
/// Statuses among them while something is to be decided: what moves work goes before what tells of it.
const MOST_STATUSES: usize = 16;

/// The jobs under way.
#[derive(Default)]
pub(super) struct Jobs {
    set: JoinSet<JobDone>,
    statuses: usize,
}

impl Jobs {
    pub(super) fn spawn(&mut self, job: impl Future<Output = JobDone> + Send + 'static) {
        self.set.spawn(job);
    }

    /// Writes a status, which ends in [`JobDone::Published`].
    pub(super) fn publish(&mut self, job: impl Future<Output = JobDone> + Send + 'static) {
        self.statuses += 1;
        self.set.spawn(job);
    }

    /// Whether another job may be under way.
    pub(super) fn has_room(&self) -> bool {
        self.set.len() < MOST
    }

    /// Whether another status may be under way.
    pub(super) fn has_room_for_status(&self, decides: bool) -> bool {
        self.has_room() && (!decides || self.statuses < MOST_STATUSES)
    }

    /// The next that ends; waits for ever while there is none.
    pub(super) async fn next(&mut self) -> Option<JobDone> {
        loop {
            match self.set.join_next().await {
                Some(Ok(done)) => {
                    self.statuses -= usize::from(matches!(done, JobDone::Published { .. }));
                    return Some(done);
                }
                Some(Err(error)) if error.is_cancelled() => {}
                // A job is plain request and answer; a panic in one is a bug that must not pass as an answer.
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                None => std::future::pending().await,
            }
        }
    }

    /// Abandons all.
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
