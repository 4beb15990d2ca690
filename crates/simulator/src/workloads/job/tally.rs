//! Which Pods have finished, and how far each has been counted.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::super::children::put_count;
use super::{Indexes, Job, TRACKING, completed, index_of, release};
use crate::index::fields::list;
use crate::index::object::Object;
use crate::writes::Write;

/// How a Pod ended for its Job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Succeeded,
    Failed,
}

/// Pods of one outcome.
#[derive(Debug, Default)]
struct Column {
    /// In the counter already.
    counted: i64,
    /// Listed in the status, with the finalizer still set: uids.
    noted: BTreeSet<String>,
    /// Listed, without the finalizer: they move into the counter.
    folded: BTreeSet<String>,
    /// Finished and not listed yet.
    fresh: BTreeSet<String>,
}

impl Column {
    fn total(&self) -> i64 {
        self.counted
            + i64::try_from(self.noted.len() + self.folded.len() + self.fresh.len()).unwrap_or(0)
    }
}

/// The whole count of a Job.
#[derive(Debug, Default)]
pub(super) struct Tally {
    succeeded: Column,
    failed: Column,
    /// Indexes whose success is known, counted or not.
    indexes: Indexes,
    /// Indexes whose success has been counted.
    counted_indexes: Indexes,
}

impl Tally {
    pub(super) fn of(job: &Job<'_>, pods: &[Arc<Object>]) -> Self {
        let mut tally = Self { counted_indexes: completed(job), ..Self::default() };
        tally.indexes = tally.counted_indexes.clone();
        tally.succeeded.counted = job.object.count("/status/succeeded");
        tally.failed.counted = job.object.count("/status/failed");
        let tracked =
            |uid: &str| pods.iter().any(|pod| pod.uid == uid && pod.has_finalizer(TRACKING));
        for (outcome, pointer) in [
            (Outcome::Succeeded, "/status/uncountedTerminatedPods/succeeded"),
            (Outcome::Failed, "/status/uncountedTerminatedPods/failed"),
        ] {
            for uid in list(&job.object.data, pointer).iter().filter_map(Value::as_str) {
                let column = tally.column(outcome);
                let set = if tracked(uid) { &mut column.noted } else { &mut column.folded };
                set.insert(uid.to_owned());
            }
        }
        for pod in pods {
            let Some(outcome) = job.outcome(pod) else { continue };
            if outcome == Outcome::Succeeded
                && job.indexed
                && let Some(index) = index_of(pod)
            {
                tally.indexes.0.insert(index);
                if tally.succeeded.folded.contains(&pod.uid) {
                    tally.counted_indexes.0.insert(index);
                }
            }
            if pod.has_finalizer(TRACKING) && !tally.is_noted(&pod.uid) {
                tally.column(outcome).fresh.insert(pod.uid.clone());
            }
        }
        tally
    }

    fn column(&mut self, outcome: Outcome) -> &mut Column {
        match outcome {
            Outcome::Succeeded => &mut self.succeeded,
            Outcome::Failed => &mut self.failed,
        }
    }

    fn is_noted(&self, uid: &str) -> bool {
        [&self.succeeded, &self.failed]
            .iter()
            .any(|column| column.noted.contains(uid) || column.folded.contains(uid))
    }

    /// Completions reached: distinct indexes of an Indexed Job, Pods otherwise.
    pub(super) fn succeeded(&self, job: &Job<'_>) -> i64 {
        if job.indexed {
            i64::try_from(self.indexes.0.len()).unwrap_or(i64::MAX)
        } else {
            self.succeeded.total()
        }
    }

    pub(super) fn failed(&self) -> i64 {
        self.failed.total()
    }

    /// Whether the status must list or count a Pod before anything else happens.
    pub(super) fn is_moving(&self) -> bool {
        [&self.succeeded, &self.failed]
            .iter()
            .any(|column| !column.folded.is_empty() || !column.fresh.is_empty())
    }

    /// Whether this report leaves no Pod uncounted.
    pub(super) fn is_settled(&self) -> bool {
        [&self.succeeded, &self.failed]
            .iter()
            .all(|column| column.noted.is_empty() && column.fresh.is_empty())
    }

    /// Removes the finalizer from Pods that the status lists.
    pub(super) fn releases(&self, pods: &[Arc<Object>]) -> Vec<Write> {
        pods.iter()
            .filter(|pod| {
                self.succeeded.noted.contains(&pod.uid) || self.failed.noted.contains(&pod.uid)
            })
            .filter_map(|pod| release(pod))
            .collect()
    }

    /// Indexes that need a Pod, lowest first.
    pub(super) fn free_indexes(&self, job: &Job<'_>, active: &[Arc<Object>]) -> Vec<i64> {
        let taken: BTreeSet<i64> = active.iter().filter_map(|pod| index_of(pod)).collect();
        (0..job.completions.unwrap_or(0))
            .filter(|index| !taken.contains(index) && !self.indexes.0.contains(index))
            .collect()
    }

    /// Writes counters and the list of uncounted Pods into a status.
    pub(super) fn write(&self, job: &Job<'_>, status: &mut Value) {
        let mut uncounted = json!({});
        for (column, field) in [(&self.succeeded, "succeeded"), (&self.failed, "failed")] {
            let folded = i64::try_from(column.folded.len()).unwrap_or(0);
            put_count(status, field, column.counted + folded);
            let waiting: Vec<_> = column.noted.iter().chain(&column.fresh).collect();
            if !waiting.is_empty() {
                uncounted[field] = json!(waiting);
            }
        }
        status["uncountedTerminatedPods"] = uncounted;
        if job.indexed {
            put_count(
                status,
                "succeeded",
                i64::try_from(self.counted_indexes.0.len()).unwrap_or(0),
            );
            status["completedIndexes"] = match self.counted_indexes.to_string() {
                text if text.is_empty() => Value::Null,
                text => json!(text),
            };
        }
    }
}
