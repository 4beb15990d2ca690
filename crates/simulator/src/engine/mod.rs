//! The single task of a member: applies watch events, writes, and sleeps in between.

pub(crate) mod brain;
pub(crate) mod concern;
pub(crate) mod memory;
mod watch;

use std::collections::BTreeSet;
use std::time::Duration;

use atoll_api::Clock;
use futures::{FutureExt, StreamExt};
use kube::runtime::watcher::Event;
use tokio_util::sync::CancellationToken;

use crate::index::kind::Kind;
use crate::index::object::Object;
use crate::member::Settings;
use crate::writes::execute::{WriteError, execute};
use crate::writes::{Write, Writer};
use brain::{Brain, Work};
use watch::{Streams, Watched};

/// Longest wait for the first list of every kind.
const SYNC_TIMEOUT: Duration = Duration::from_secs(30);

/// The API server did not show all kinds in time.
#[derive(Debug, thiserror::Error)]
#[error("no list of {} within {} s; last error: {last}", kinds.join(", "), SYNC_TIMEOUT.as_secs())]
pub struct SyncError {
    /// Kinds that were not listed.
    kinds: Vec<&'static str>,
    /// The latest error of a watch.
    last: String,
}

/// A member's controllers with their connection.
pub(crate) struct Engine {
    client: kube::Client,
    pub(crate) brain: Brain,
    streams: Streams,
    clock: Clock,
    /// Kinds whose first list is not complete.
    missing: BTreeSet<Kind>,
    last_error: Option<String>,
}

impl Engine {
    pub(crate) fn new(client: kube::Client, settings: Settings, clock: Clock) -> Self {
        Self {
            brain: Brain::new(settings, clock.now()),
            streams: watch::all(&client),
            client,
            clock,
            missing: Kind::ALL.into(),
            last_error: None,
        }
    }

    /// Waits for the first list of every kind.
    pub(crate) async fn sync(&mut self) -> Result<(), SyncError> {
        let reading = async {
            while !self.missing.is_empty() {
                if let Some(watched) = self.streams.next().await {
                    self.take_in(watched);
                }
            }
        };
        if tokio::time::timeout(SYNC_TIMEOUT, reading).await.is_ok() {
            return Ok(());
        }
        Err(SyncError {
            kinds: self.missing.iter().map(|kind| kind.name()).collect(),
            last: self.last_error.take().unwrap_or_else(|| "none".to_owned()),
        })
    }

    /// Runs until the token is cancelled.
    pub(crate) async fn run(mut self, token: CancellationToken) {
        loop {
            while let Some(Some(watched)) = self.streams.next().now_or_never() {
                self.take_in(watched);
            }
            let Some(work) = self.brain.next_work(self.clock.now()) else {
                let wait = self.wait();
                tokio::select! {
                    biased;
                    () = token.cancelled() => return,
                    watched = self.streams.next() => {
                        if let Some(watched) = watched {
                            self.take_in(watched);
                        }
                    }
                    () = sleep(wait) => {}
                }
                continue;
            };
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                () = self.carry_out(work) => {}
            }
        }
    }

    /// Time until the next task is due.
    fn wait(&self) -> Option<Duration> {
        let wait = self.brain.wake_at()?.duration_since(self.clock.now());
        Some(if wait.is_positive() { wait.unsigned_abs() } else { Duration::ZERO })
    }

    async fn carry_out(&mut self, work: Work) {
        for write in &work.writes {
            if let Err(error) = self.write(write, work.task.0.writer()).await {
                if error.is_race() {
                    tracing::debug!(%write, %error, "somebody else was faster");
                } else {
                    tracing::warn!(%write, error = &error as &dyn std::error::Error, "write failed");
                }
                self.brain.failed(&work.task, write, &error, self.clock.now());
                return;
            }
        }
        self.brain.completed(&work);
    }

    /// Carries out one write and applies the answer.
    pub(crate) async fn write(&mut self, write: &Write, writer: Writer) -> Result<(), WriteError> {
        let answer = execute(&self.client, write, writer).await?;
        tracing::trace!(%write, "written");
        self.brain.answered(write, answer, self.clock.now());
        Ok(())
    }

    fn take_in(&mut self, (kind, event): Watched) {
        let now = self.clock.now();
        let index = &mut self.brain.index;
        let change = match event {
            Ok(Event::Init) => {
                index.list_begins(kind);
                None
            }
            Ok(Event::InitApply(object)) => index.listed(Object::new(kind, object)),
            Ok(Event::InitDone) => {
                for change in index.list_ends(kind) {
                    self.brain.observe(Some(change), now);
                }
                self.missing.remove(&kind);
                None
            }
            Ok(Event::Apply(object)) => index.observed(Object::new(kind, object)),
            Ok(Event::Delete(object)) => {
                let object = Object::new(kind, object);
                index.vanished(kind, &object.key, &object.uid)
            }
            Err(error) => {
                // The stream restarts after its backoff.
                tracing::debug!(kind = kind.name(), %error, "watch interrupted");
                self.last_error = Some(error.to_string());
                None
            }
        };
        self.brain.observe(change, now);
    }
}

/// Sleeps for a duration, or forever.
async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
