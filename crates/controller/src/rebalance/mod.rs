//! WorkloadRebalancers: asks for a new decision on each named workload, by `spec.rescheduleTriggeredAt` of its binding.
//!
//! A task beside the event loop, active while this process leads. Every step is idempotent: a binding that was asked at or
//! after the creation of the WorkloadRebalancer is not asked again. So a leader that dies between two writes, or two
//! leaders at once, ask only once.

mod ask;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use atoll_api::rebalancer::{
    ObservedWorkload, RebalanceFailure, RebalanceResult, WorkloadRebalancerStatus,
    WorkloadReference,
};
use atoll_api::{Clock, WorkloadRebalancer, marks};
use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, DeleteParams, Patch, Preconditions};
use kube::runtime::watcher::{self, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::ask::Asked;
use crate::leader::{LeaderTerm, while_leading};
use crate::manager;
use crate::member::hub::{HubError, in_time};
use crate::status::write;

/// Wait after a failed request or watch.
const RETRY: Duration = Duration::from_secs(5);
/// Wait for a binding whose last decision is in this second: times in the hub are whole seconds.
const NEXT_SECOND: Duration = Duration::from_secs(1);

/// The task.
pub(crate) struct Rebalancing {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    /// The term while this process leads.
    pub(crate) terms: watch::Receiver<Option<LeaderTerm>>,
}

/// The objects, and when each must be looked at.
#[derive(Default)]
struct Work {
    rows: BTreeMap<String, WorkloadRebalancer>,
    due: BTreeSet<(Instant, String)>,
}

impl Work {
    fn put(&mut self, row: WorkloadRebalancer) {
        let name = row.name_any();
        self.due.retain(|(_, other)| *other != name);
        self.due.insert((Instant::now(), name.clone()));
        self.rows.insert(name, row);
    }

    fn remove(&mut self, name: &str) {
        self.due.retain(|(_, other)| other != name);
        self.rows.remove(name);
    }

    fn next(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }
}

impl Rebalancing {
    /// Runs until cancelled.
    pub(crate) async fn run(self, token: CancellationToken) {
        while_leading(self.terms.clone(), token, || self.lead()).await;
    }

    /// Follows the objects; ends only when it is dropped.
    async fn lead(&self) {
        let api: Api<WorkloadRebalancer> = Api::all(self.client.clone());
        let mut events = std::pin::pin!(watcher(api, watcher::Config::default()));
        let mut work = Work::default();
        let mut listed = Work::default();
        loop {
            let next = work.next();
            let due = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                event = events.next() => match event {
                    Some(Ok(watcher::Event::Init)) => listed = Work::default(),
                    Some(Ok(watcher::Event::InitApply(row))) => listed.put(row),
                    Some(Ok(watcher::Event::InitDone)) => work = std::mem::take(&mut listed),
                    Some(Ok(watcher::Event::Apply(row))) => work.put(row),
                    Some(Ok(watcher::Event::Delete(row))) => work.remove(&row.name_any()),
                    Some(Err(error)) => {
                        tracing::warn!(kind = "WorkloadRebalancer", %error, "cannot watch");
                        tokio::time::sleep(RETRY).await;
                    }
                    None => return std::future::pending().await,
                },
                () = due => self.step(&mut work).await,
            }
        }
    }

    /// Goes on with the object that is due.
    async fn step(&self, work: &mut Work) {
        let Some((_, name)) = work.due.pop_first() else { return };
        let Some(row) = work.rows.get(&name) else { return };
        if let Some(wait) = self.process(row).await {
            work.due.insert((Instant::now() + wait, name));
        }
    }

    /// Asks for what is missing and writes the status. Returns when to go on; `None` = when the object changes.
    async fn process(&self, row: &WorkloadRebalancer) -> Option<Duration> {
        if row.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let created = row.metadata.creation_timestamp.as_ref().map(|time| time.0)?;
        let before = row.status.clone().unwrap_or_default();
        let mut wait: Option<Duration> = None;
        let mut observed = Vec::new();
        for workload in distinct(&row.spec.workloads) {
            let held = before.observed_workloads.iter().find(|held| held.workload == workload);
            let held = held.filter(|held| is_final(row, &before, held));
            let (result, reason) = match held {
                Some(held) => (held.result, held.reason),
                None => match self.ask(row, &workload, created).await {
                    Asked::Done => (Some(RebalanceResult::Successful), None),
                    Asked::NoBinding => (
                        Some(RebalanceResult::Failed),
                        Some(RebalanceFailure::ReferencedBindingNotFound),
                    ),
                    Asked::TooEarly => {
                        wait = Some(wait.map_or(NEXT_SECOND, |wait| wait.min(NEXT_SECOND)));
                        (None, None)
                    }
                    Asked::Again(error) => {
                        tracing::warn!(
                            rebalancer = row.name_any(),
                            error = &error as &dyn std::error::Error,
                            "cannot ask for a decision"
                        );
                        wait = Some(wait.unwrap_or(RETRY));
                        (None, None)
                    }
                },
            };
            observed.push(ObservedWorkload { workload, result, reason });
        }
        let status = self.status(row, &before, observed);
        if let Some(patch) = write::patch(&json!(before), &json!(status))
            && let Err(error) = self.write(row, &patch).await
        {
            let (rebalancer, error) = (row.name_any(), &error as &dyn std::error::Error);
            tracing::warn!(rebalancer, error, "cannot write the status");
            return Some(RETRY);
        }
        if wait.is_some() {
            return wait;
        }
        self.expire(row, &status).await
    }

    async fn ask(
        &self,
        row: &WorkloadRebalancer,
        workload: &WorkloadReference,
        since: Timestamp,
    ) -> Asked {
        ask::ask(&self.client, &self.clock, workload, since, row.spec.mode).await
    }

    fn status(
        &self,
        row: &WorkloadRebalancer,
        before: &WorkloadRebalancerStatus,
        observed: Vec<ObservedWorkload>,
    ) -> WorkloadRebalancerStatus {
        let count =
            |result| observed.iter().filter(|one| one.result == Some(result)).count() as i64;
        let (successful, failed) =
            (count(RebalanceResult::Successful), count(RebalanceResult::Failed));
        let finished = observed.iter().all(|one| one.result.is_some());
        let same = before.observed_generation == row.metadata.generation;
        let held = before.finish_time.clone().filter(|_| same);
        let now = || Time(self.clock.now_seconds());
        WorkloadRebalancerStatus {
            observed_generation: row.metadata.generation,
            observed_workloads: observed,
            successful,
            failed,
            finish_time: finished.then(|| held.unwrap_or_else(now)),
        }
    }

    async fn write(
        &self,
        row: &WorkloadRebalancer,
        patch: &serde_json::Value,
    ) -> Result<(), HubError> {
        let api: Api<WorkloadRebalancer> = Api::all(self.client.clone());
        let params = manager::patch(marks::MANAGER_STATUS);
        let (name, patch) = (row.name_any(), Patch::Merge(patch));
        in_time(api.patch_status(&name, &params, &patch)).await.map(|_| ())
    }

    /// Deletes an object that finished long enough ago. Returns when that is.
    async fn expire(
        &self,
        row: &WorkloadRebalancer,
        status: &WorkloadRebalancerStatus,
    ) -> Option<Duration> {
        let (ttl, finished) =
            (row.spec.ttl_seconds_after_finished?, status.finish_time.as_ref()?.0);
        let end = finished.checked_add(SignedDuration::from_secs(ttl.max(0))).ok()?;
        let left = end.duration_since(self.clock.now());
        if left > SignedDuration::ZERO {
            return Some(Duration::try_from(left).unwrap_or(RETRY));
        }
        let api: Api<WorkloadRebalancer> = Api::all(self.client.clone());
        let preconditions = Preconditions { uid: row.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let name = row.name_any();
        match in_time(api.delete(&name, &params)).await {
            Ok(_) => None,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(rebalancer = name, error, "cannot delete it at the end of its ttl");
                Some(RETRY)
            }
        }
    }
}

/// The workloads, each once, in the order of the spec.
fn distinct(workloads: &[WorkloadReference]) -> Vec<WorkloadReference> {
    let mut seen = BTreeSet::new();
    workloads.iter().filter(|workload| seen.insert((*workload).clone())).cloned().collect()
}

/// Whether a result stays: success for ever, a missing binding until the spec changes.
fn is_final(
    row: &WorkloadRebalancer,
    status: &WorkloadRebalancerStatus,
    held: &ObservedWorkload,
) -> bool {
    match held.result {
        Some(RebalanceResult::Successful) => true,
        Some(RebalanceResult::Failed) => status.observed_generation == row.metadata.generation,
        None => false,
    }
}
