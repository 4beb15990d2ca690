//! Takes committed decisions to the database without holding anything up.
//!
//! [`Recorder`] is the handle: it never waits. [`Writer`] is the one task that writes, in batches, and tries again for
//! as long as the database is away. Nothing is lost when the queue is full or the process dies, because the binding
//! holds every decision until its [`Receipt`] says that it is recorded.

mod notes;
mod recent;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

pub(crate) use writer::chain;
pub use writer::{Drained, Writer};

use crate::{Event, Record, Store};

/// How the recorder works. The defaults fit a controller.
#[derive(Debug, Clone)]
pub struct RecorderOptions {
    /// Records that wait at most; a further one is refused and stays in its binding. At about 1 KiB each without
    /// detail: 64 MiB.
    pub queue: usize,
    /// Events that wait at most; a further one is dropped and counted. At about 200 bytes each: 13 MiB, or the
    /// milestones of some 5,000 decisions on three members.
    pub events: usize,
    /// Bytes of details that wait at most; a further record is queued without its detail, and its row says so.
    pub detail_bytes: usize,
    /// Rows of one transaction at most: a few thousand hold the write lock for some tens of milliseconds.
    pub batch: usize,
    /// How long the first record of a batch waits for company. One disk sync then serves many rows.
    pub linger: Duration,
    /// Pause after the first failed try; it doubles up to `retry_max`.
    pub retry_min: Duration,
    /// Longest pause between two tries.
    pub retry_max: Duration,
    /// How long the rest may take when the writer is told to stop. `atoll up` stops within 5 s.
    pub drain: Duration,
}

impl Default for RecorderOptions {
    fn default() -> Self {
        Self {
            queue: 65_536,
            events: 65_536,
            detail_bytes: 64 << 20,
            batch: 2_000,
            linger: Duration::from_millis(3),
            retry_min: Duration::from_millis(100),
            retry_max: Duration::from_secs(10),
            drain: Duration::from_secs(3),
        }
    }
}

/// Where a record is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Not in the database yet.
    Queued,
    /// In the database, on its disk.
    Recorded,
    /// The database will never take it, for this reason.
    Refused(String),
}

/// Tells what became of a record. Cheap to keep beside the binding in an index.
#[derive(Debug, Clone)]
pub struct Receipt(watch::Receiver<State>);

impl Receipt {
    /// Where the record is now.
    #[must_use]
    pub fn state(&self) -> State {
        self.0.borrow().clone()
    }

    /// Whether the binding may forget the decision.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        *self.0.borrow() == State::Recorded
    }

    /// Waits until the record is in the database or refused. `Queued` comes back only when the writer has ended
    /// before.
    pub async fn settled(&mut self) -> State {
        // An error means that the sender is gone: the last state is all there will be.
        let _ = self.0.wait_for(|state| *state != State::Queued).await;
        self.state()
    }
}

/// The queue is full, or the writer has ended: the record stays in its binding. Offer it again when
/// [`Recorder::progress`] shows room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the queue of history is full")]
pub struct QueueFull;

/// How far history is behind.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Progress {
    /// Records that wait.
    pub queued: usize,
    /// Since when the oldest of them waits.
    pub oldest: Option<Instant>,
    /// Records written since the start.
    pub recorded: u64,
    /// Records that the database will never take.
    pub refused: u64,
    /// Details given up because too many bytes waited.
    pub details_dropped: u64,
    /// Events given up: too many waited, or the database will never take them.
    pub events_dropped: u64,
    /// Why the last try failed. `None` while the database works.
    pub failing: Option<String>,
}

/// A handle to hand over records; clones share the queue.
#[derive(Debug, Clone)]
pub struct Recorder {
    queue: mpsc::Sender<Job>,
    events: mpsc::Sender<Event>,
    details: Arc<Details>,
    progress: watch::Sender<Progress>,
}

/// A record on its way.
#[derive(Debug)]
struct Job {
    record: Record,
    receipt: watch::Sender<State>,
    since: Instant,
}

/// Bytes of details that wait.
#[derive(Debug)]
struct Details {
    waiting: AtomicUsize,
    limit: usize,
}

impl Details {
    /// Counts the bytes in, if there is room for them.
    fn take(&self, bytes: usize) -> bool {
        let room = |waiting: usize| waiting.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.waiting.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Recorder {
    /// A handle, and the writer that its owner spawns.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, options: RecorderOptions) -> (Self, Writer) {
        let (queue, jobs) = mpsc::channel(options.queue);
        let (events, noted) = mpsc::channel(options.events);
        let details =
            Arc::new(Details { waiting: AtomicUsize::new(0), limit: options.detail_bytes });
        let progress = watch::Sender::new(Progress::default());
        let writer =
            Writer::new(store, options, jobs, noted, Arc::clone(&details), progress.clone());
        (Self { queue, events, details, progress }, writer)
    }

    /// Queues the record of a committed decision; never waits. Hand over the records of one binding in the order of
    /// their parents: they are written in that order.
    ///
    /// # Errors
    /// When the queue is full.
    pub fn record(&self, mut record: Record) -> Result<Receipt, QueueFull> {
        let slot = self.queue.try_reserve().map_err(|_| QueueFull)?;
        if let Some(detail) = &record.detail
            && !self.details.take(detail.as_bytes().len())
        {
            record.detail = None;
            self.progress.send_modify(|progress| progress.details_dropped += 1);
        }
        let (sender, receiver) = watch::channel(State::Queued);
        let since = Instant::now();
        self.progress.send_modify(|progress| {
            progress.queued += 1;
            progress.oldest.get_or_insert(since);
        });
        slot.send(Job { record, receipt: sender, since });
        Ok(Receipt(receiver))
    }

    /// Queues an event; never waits. What does not fit is dropped and counted: events are told, not kept.
    pub fn note(&self, event: Event) {
        if self.events.try_send(event).is_err() {
            self.progress.send_modify(|progress| progress.events_dropped += 1);
        }
    }

    /// How far behind history is, and whether the database works. Changes with every batch.
    #[must_use]
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }
}
