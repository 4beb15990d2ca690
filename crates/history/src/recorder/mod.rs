//! Writes committed decisions to the database without blocking anything.
//!
//! [`Recorder`] is the handle: it never waits. [`Writer`] is the only task that writes, in batches, and retries while
//! the database is unreachable. A full queue or a crash loses nothing, because the binding holds every decision until
//! its [`Receipt`] reports it as recorded.

mod notes;
mod receipt;
mod recent;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use atoll_api::Backoff;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::Instant;

use receipt::Settle;
pub use receipt::{Receipt, RecordState};
pub(crate) use writer::chain;
pub use writer::{Drained, Writer};

use crate::{Event, Inputs, Record, Store};

/// Settings of the recorder. The defaults fit a controller.
#[derive(Debug, Clone)]
pub struct RecorderOptions {
    /// Limit of queued records; a further one is rejected and stays in its binding. At about 1 KiB each without detail:
    /// 64 MiB.
    pub queue: usize,
    /// Limit of queued events; a further one is dropped and counted. At about 200 bytes each: 13 MiB, or the milestones
    /// of some 5,000 decisions on three members.
    pub events: usize,
    /// Limit of queued details in bytes; a further record is queued without its detail, and its row shows that.
    pub detail_bytes: usize,
    /// Limit of records that are queued with what their decisions read; further ones are queued without. While they
    /// wait, they keep the clusters' earlier figures in memory: some ten MiB in all.
    pub inputs: usize,
    /// Limit of rows per transaction: a few thousand hold the write lock for some tens of milliseconds.
    pub batch: usize,
    /// How long a batch waits for more records after the first. One disk sync then serves many rows.
    pub linger: Duration,
    /// Backoff after failed attempts.
    pub retry: Backoff,
    /// Receives how long each record waited until it was durable.
    pub recorded: Option<Observer>,
    /// Time limit for writing the rest at a stop. `atoll up` stops within 5 s.
    pub drain: Duration,
}

impl Default for RecorderOptions {
    fn default() -> Self {
        Self {
            queue: 65_536,
            events: 65_536,
            detail_bytes: 64 << 20,
            inputs: 1_024,
            batch: 2_000,
            linger: Duration::from_millis(3),
            retry: Backoff { first: Duration::from_millis(100), most: Duration::from_secs(10) },
            recorded: None,
            drain: Duration::from_secs(3),
        }
    }
}

/// A function that receives durations, for metrics.
#[derive(Clone)]
pub struct Observer(Arc<dyn Fn(Duration) + Send + Sync>);

impl Observer {
    /// An observer that calls this function.
    pub fn new(observe: impl Fn(Duration) + Send + Sync + 'static) -> Self {
        Self(Arc::new(observe))
    }

    fn observe(&self, waited: Duration) {
        (self.0)(waited);
    }
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Observer")
    }
}

/// The queue is full, or the writer has ended: the record stays in its binding. Retry when [`Recorder::progress`] shows
/// room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the history queue is full")]
pub struct QueueFull;

/// Backlog and health of history.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Progress {
    /// Queued records.
    pub queued: usize,
    /// Since when the oldest of them is queued.
    pub oldest: Option<Instant>,
    /// Records written since the start.
    pub recorded: u64,
    /// Records that the database rejects permanently.
    pub refused: u64,
    /// Details dropped because the byte limit was reached.
    pub details_dropped: u64,
    /// Inputs dropped because their limit was reached, or because they are too large.
    pub inputs_dropped: u64,
    /// Events dropped: the queue was full, or the database rejects them permanently.
    pub events_dropped: u64,
    /// Why the last attempt failed. `None` while the database works.
    pub failing: Option<String>,
}

/// A handle to queue records; clones share the queue.
#[derive(Debug, Clone)]
pub struct Recorder {
    queue: mpsc::Sender<Job>,
    events: mpsc::Sender<Event>,
    details: Arc<Details>,
    inputs: Arc<Semaphore>,
    progress: watch::Sender<Progress>,
}

/// A queued record.
#[derive(Debug)]
struct Job {
    record: Record,
    /// What its decision read, and its place among those that are queued.
    inputs: Option<(Box<dyn Inputs>, OwnedSemaphorePermit)>,
    receipt: Settle,
    since: Instant,
}

/// Counts the bytes of queued details.
#[derive(Debug)]
struct Details {
    waiting: AtomicUsize,
    limit: usize,
}

impl Details {
    /// Reserves the bytes, if there is room for them.
    fn take(&self, bytes: usize) -> bool {
        let room = |waiting: usize| waiting.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.waiting.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Recorder {
    /// A handle, and the writer for its owner to spawn.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, options: RecorderOptions) -> (Self, Writer) {
        let (queue, jobs) = mpsc::channel(options.queue);
        let (events, noted) = mpsc::channel(options.events);
        let details =
            Arc::new(Details { waiting: AtomicUsize::new(0), limit: options.detail_bytes });
        let progress = watch::Sender::new(Progress::default());
        let inputs = Arc::new(Semaphore::new(options.inputs.min(Semaphore::MAX_PERMITS)));
        let writer =
            Writer::new(store, options, jobs, noted, Arc::clone(&details), progress.clone());
        (Self { queue, events, details, inputs, progress }, writer)
    }

    /// Queues the record of a committed decision; never waits. Queue the records of one binding in parent order: they
    /// are written in that order.
    ///
    /// # Errors
    /// When the queue is full.
    pub fn record(&self, record: Record) -> Result<Receipt, QueueFull> {
        self.record_with(record, None)
    }

    /// The same, with what the decision read. If too many wait already, the row says that they are missing.
    ///
    /// # Errors
    /// When the queue is full.
    pub fn record_with(
        &self,
        mut record: Record,
        inputs: Option<Box<dyn Inputs>>,
    ) -> Result<Receipt, QueueFull> {
        let slot = self.queue.try_reserve().map_err(|_| QueueFull)?;
        if let Some(detail) = &record.detail
            && !self.details.take(detail.as_bytes().len())
        {
            record.detail = None;
            self.progress.send_modify(|progress| progress.details_dropped += 1);
        }
        let inputs = inputs.and_then(|inputs| {
            let place = Arc::clone(&self.inputs).try_acquire_owned().ok();
            if place.is_none() {
                self.progress.send_modify(|progress| progress.inputs_dropped += 1);
            }
            Some((inputs, place?))
        });
        let (receipt, receiver) = Settle::new();
        let since = Instant::now();
        self.progress.send_modify(|progress| {
            progress.queued += 1;
            progress.oldest.get_or_insert(since);
        });
        slot.send(Job { record, inputs, receipt, since });
        Ok(receiver)
    }

    /// Queues an event; never waits. An event that does not fit is dropped and counted.
    pub fn note(&self, event: Event) {
        if self.events.try_send(event).is_err() {
            self.progress.send_modify(|progress| progress.events_dropped += 1);
        }
    }

    /// Backlog and health. Changes with every batch.
    #[must_use]
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }
}
