//! Runs the pure scheduler core: one decision at a time, on a thread of its own or, in a simulated world, on a task of
//! the single runtime.
//!
//! One at a time, because each decision must see the replicas that the previous one placed. Requests and results are
//! values; the core has no access to clock, network or shared state.

pub mod extend;
pub mod priority;

use std::sync::Arc;
use std::thread;

use atoll_scheduler::{Decision, Profiles, Request, Scheduler, Snapshot};
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

/// Queued requests: a current one, and one that was abandoned.
const QUESTIONS: usize = 2;

/// Where the core runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Place {
    /// On a thread of its own, so that a long decision delays nothing else. For production.
    #[default]
    Thread,
    /// On a task of the runtime, so that a run with paused time is reproducible.
    Task,
}

/// A request to the core.
pub struct Question {
    /// The snapshot to decide on.
    pub snapshot: Arc<Snapshot>,
    /// The binding.
    pub request: Box<Request>,
}

/// Handle of the core.
pub struct Desk {
    questions: mpsc::Sender<Question>,
    answers: mpsc::Receiver<Box<Decision>>,
}

impl Desk {
    /// Starts the core. It stops when this handle is dropped.
    ///
    /// # Errors
    /// When the operating system cannot start a thread.
    pub fn open(profiles: Profiles, place: Place, tasks: &TaskTracker) -> std::io::Result<Self> {
        let (questions, mut asked) = mpsc::channel::<Question>(QUESTIONS);
        let (answer, answers) = mpsc::channel(QUESTIONS);
        let mut scheduler = Scheduler::new(profiles);
        match place {
            Place::Thread => {
                thread::Builder::new().name("scheduler".to_owned()).spawn(move || {
                    while let Some(question) = asked.blocking_recv() {
                        let decision = decide(&mut scheduler, &question);
                        // Before the result is sent: while the snapshot is still referenced, changes copy parts of it.
                        drop(question);
                        if answer.blocking_send(Box::new(decision)).is_err() {
                            return;
                        }
                    }
                })?;
            }
            Place::Task => {
                tasks.spawn(async move {
                    while let Some(question) = asked.recv().await {
                        let decision = decide(&mut scheduler, &question);
                        drop(question);
                        if answer.send(Box::new(decision)).await.is_err() {
                            return;
                        }
                    }
                });
            }
        }
        Ok(Self { questions, answers })
    }

    /// Queues a request; never waits.
    ///
    /// # Errors
    /// When the core has ended, as after a panic, or is still busy with an abandoned request.
    pub fn ask(&self, question: Question) -> Result<(), DeskError> {
        self.questions.try_send(question).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => DeskError::Busy,
            mpsc::error::TrySendError::Closed(_) => DeskError::Closed,
        })
    }

    /// The next result; `None` when the core has ended.
    pub async fn answer(&mut self) -> Option<Box<Decision>> {
        self.answers.recv().await
    }
}

/// Decides. In debug builds, and so in all tests, the linter checks every decision made here.
fn decide(scheduler: &mut Scheduler, question: &Question) -> Decision {
    let decision = scheduler.decide(&question.snapshot, &question.request);
    if cfg!(debug_assertions) {
        let faults = atoll_scheduler::lint::lint(&question.snapshot, &question.request, &decision);
        debug_assert!(faults.is_empty(), "{}: {faults:#?}\n{decision:#?}", question.request.key);
    }
    decision
}

/// Why no request can be queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DeskError {
    /// The core has ended.
    #[error("the scheduler has ended")]
    Closed,
    /// The core has not finished with earlier questions.
    #[error("the scheduler is busy")]
    Busy,
}
