//! The event-writing part of the writer's task.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{Progress, RecorderOptions, chain};
use crate::{Event, Store, StoreError};

/// How long a batch waits for more events after the first. Nothing waits for an event, and events are many: fewer,
/// larger batches leave the database to decisions.
const LINGER: Duration = Duration::from_millis(100);

/// Writes events. They are queued while the database is unreachable and dropped when the queue is full.
pub(super) struct Notes {
    store: Arc<dyn Store>,
    options: RecorderOptions,
    events: mpsc::Receiver<Event>,
    progress: watch::Sender<Progress>,
}

impl Notes {
    pub(super) fn new(
        store: Arc<dyn Store>,
        options: RecorderOptions,
        events: mpsc::Receiver<Event>,
        progress: watch::Sender<Progress>,
    ) -> Self {
        Self { store, options, events, progress }
    }

    /// Writes until cancelled, then tries once more with the rest.
    pub(super) async fn run(mut self, token: &CancellationToken) {
        let mut batch: Vec<Event> = Vec::new();
        loop {
            let first = tokio::select! {
                biased;
                () = token.cancelled() => break,
                first = self.events.recv() => first,
            };
            // All handles were dropped: no more events will come.
            let Some(first) = first else { break };
            batch.push(first);
            if token.run_until_cancelled(tokio::time::sleep(LINGER)).await.is_none() {
                break;
            }
            self.fill(&mut batch);
            if !self.write(&batch, token).await {
                break;
            }
            batch.clear();
        }
        self.drain(batch).await;
    }

    fn fill(&mut self, batch: &mut Vec<Event>) {
        while batch.len() < self.options.batch
            && let Ok(event) = self.events.try_recv()
        {
            batch.push(event);
        }
    }

    /// Writes a batch, with any number of attempts. False: stop.
    async fn write(&self, batch: &[Event], token: &CancellationToken) -> bool {
        let mut failures = 0_u32;
        loop {
            failures = failures.saturating_add(1);
            let pause = self.options.retry.ceiling(failures);
            match token.run_until_cancelled(self.store.note(batch)).await {
                None => return false,
                Some(Ok(())) => return true,
                Some(Err(error)) if error.is_refusal() => {
                    self.one_by_one(batch, &error).await;
                    return true;
                }
                Some(Err(error)) => {
                    tracing::debug!(
                        reason = chain(&error),
                        ?pause,
                        "events could not be written to history yet"
                    );
                }
            }
            if token.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return false;
            }
        }
    }

    /// One event of the batch is rejected: write the others. One attempt each, so that a second failure ends this.
    async fn one_by_one(&self, batch: &[Event], error: &StoreError) {
        let mut lost = 0;
        for event in batch {
            lost += u64::from(self.store.note(std::slice::from_ref(event)).await.is_err());
        }
        tracing::warn!(
            lost,
            reason = chain(error),
            "the history database rejected events: they are lost"
        );
        self.progress.send_modify(|progress| progress.events_dropped += lost);
    }

    async fn drain(mut self, mut batch: Vec<Event>) {
        self.events.close();
        while let Ok(event) = self.events.try_recv() {
            batch.push(event);
        }
        if batch.is_empty() {
            return;
        }
        let all = async {
            for part in batch.chunks(self.options.batch.max(1)) {
                self.store.note(part).await?;
            }
            Ok::<_, StoreError>(())
        };
        let reason = match tokio::time::timeout(self.options.drain, all).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => chain(&error),
            Err(_) => format!("no reply within {:?}", self.options.drain),
        };
        tracing::warn!(
            left = batch.len(),
            reason,
            "history stopped before it wrote all events: these are lost"
        );
    }
}
