//! Writes and look-ups that run beside the engine, each owned by it, and what they bring back.

use std::sync::Arc;

use atoll_api::binding::DecisionRecord;
use atoll_history::{Provenance, State};
use atoll_scheduler::Decision;
use jiff::Timestamp;
use serde_json::Value;
use tokio::task::JoinSet;

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
    /// When it was decided, to the millisecond.
    pub(super) at: Timestamp,
    /// What it was made from.
    pub(super) provenance: Option<Provenance>,
    /// The decision before, whose place it takes.
    pub(super) parent: Option<DecisionRecord>,
    /// Shares before.
    pub(super) before: Vec<atoll_api::binding::TargetCluster>,
}

/// The jobs under way.
#[derive(Default)]
pub(super) struct Jobs(JoinSet<JobDone>);

impl Jobs {
    pub(super) fn spawn(&mut self, job: impl Future<Output = JobDone> + Send + 'static) {
        self.0.spawn(job);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The next that ends; waits for ever while there is none.
    pub(super) async fn next(&mut self) -> Option<JobDone> {
        loop {
            match self.0.join_next().await {
                Some(Ok(done)) => return Some(done),
                Some(Err(error)) if error.is_cancelled() => {}
                // A job is plain request and answer; a panic in one is a bug that must not pass as an answer.
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                None => std::future::pending().await,
            }
        }
    }

    /// Abandons all.
    pub(super) fn abandon(&mut self) {
        self.0.abort_all();
        self.0.detach_all();
    }
}
