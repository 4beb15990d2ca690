//! Runs the pure scheduler core: one decision at a time, on a thread of its own or, in a simulated world, on a task of
//! the single runtime.
//!
//! One at a time, because each decision must see the replicas that the previous one placed. Requests and results are
//! values; the core has no access to clock, network or shared state.

pub mod extend;
pub mod priority;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use atoll_api::RunsOn;
use atoll_api::binding::Trigger;
use atoll_scheduler::replay::Inputs;
use atoll_scheduler::{Decision, Request, Scheduler, Snapshot};
pub use atoll_scheduler::{Profiles, SchedulerConfiguration};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::leader::LeaderTerm;

/// Limit of queued requests: one of this leadership, and one of an earlier one.
const REQUESTS: usize = 2;

/// Whether the linter checks each decision: in debug builds, so in all tests, and in the World. With many members that takes
/// several times as long as to decide, so nothing may be measured with it.
pub const LINTS_DECISIONS: bool = cfg!(any(debug_assertions, feature = "lint-decisions"));

/// A request to the core.
pub struct DecisionRequest {
    /// The leadership that asks.
    pub term: LeaderTerm,
    /// The snapshot to decide on.
    pub snapshot: Arc<Snapshot>,
    /// The binding.
    pub request: Box<Request>,
}

/// The core's result.
pub struct DecisionResult {
    /// The leadership that asked.
    pub term: LeaderTerm,
    /// The decision.
    pub decision: Box<Decision>,
    /// What the decision read, if it may be committed.
    pub inputs: Option<Inputs>,
    /// How long the core took, for metrics.
    pub took: Duration,
}

/// Sends requests to the core. The core stops when the last handle is dropped.
#[derive(Clone)]
pub struct SchedulerHandle {
    requests: mpsc::Sender<DecisionRequest>,
    profiles: Profiles,
}

/// Starts the core.
///
/// # Errors
/// When the operating system cannot start a thread.
pub fn start(
    profiles: Profiles,
    runs_on: RunsOn,
    tasks: &TaskTracker,
) -> std::io::Result<(SchedulerHandle, mpsc::Receiver<DecisionResult>)> {
    let (requests, mut queued) = mpsc::channel::<DecisionRequest>(REQUESTS);
    let (results, decided) = mpsc::channel(REQUESTS);
    let mut scheduler = Scheduler::new(profiles.clone());
    match runs_on {
        RunsOn::Thread => {
            thread::Builder::new().name("scheduler".to_owned()).spawn(move || {
                while let Some(request) = queued.blocking_recv() {
                    if results.blocking_send(decide(&mut scheduler, request)).is_err() {
                        return;
                    }
                }
            })?;
        }
        RunsOn::Task => {
            tasks.spawn(async move {
                while let Some(request) = queued.recv().await {
                    if results.send(decide(&mut scheduler, request)).await.is_err() {
                        return;
                    }
                }
            });
        }
    }
    Ok((SchedulerHandle { requests, profiles }, decided))
}

impl SchedulerHandle {
    /// What it decides with.
    #[must_use]
    pub fn profiles(&self) -> &Profiles {
        &self.profiles
    }

    /// Queues a request; never waits.
    ///
    /// # Errors
    /// When the core has ended, as after a panic, or is still busy with requests of earlier leaderships.
    pub fn request(&self, request: DecisionRequest) -> Result<(), SchedulerError> {
        self.requests.try_send(request).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SchedulerError::Busy,
            mpsc::error::TrySendError::Closed(_) => SchedulerError::Ended,
        })
    }
}

fn decide(scheduler: &mut Scheduler, request: DecisionRequest) -> DecisionResult {
    let DecisionRequest { term, snapshot, request } = request;
    let start = Instant::now();
    let decision = scheduler.decide(&snapshot, &request);
    let took = start.elapsed();
    if LINTS_DECISIONS {
        let faults = atoll_scheduler::lint::lint(&snapshot, &request, &decision);
        assert!(faults.is_empty(), "{}: {faults:#?}\n{decision:#?}", request.key);
    }
    // Most decisions change nothing and are not recorded.
    let inputs = (decision.trigger() != Trigger::Avoid)
        .then(|| Inputs::of(&snapshot, *request, scheduler.profiles()))
        .flatten();
    // The snapshot is dropped before the result is sent: while it is referenced, changes copy parts of the tables.
    DecisionResult { term, decision: Box::new(decision), inputs, took }
}

/// Why no request can be queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SchedulerError {
    /// The core has ended.
    #[error("the scheduler has ended")]
    Ended,
    /// The core has not finished with earlier requests.
    #[error("the scheduler is busy")]
    Busy,
}
