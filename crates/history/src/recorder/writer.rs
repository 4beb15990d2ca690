//! The writing task.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::notes::Notes;
use super::recent::{Recent, SPAN};
use super::{Details, Job, Observer, Progress, RecordState, RecorderOptions, Settle};
use crate::inputs::Encoder;
use crate::{Durability, Event, Record, Store, StoreError};

/// Writes what the recorder's handles queue.
pub struct Writer {
    records: Records,
    notes: Notes,
}

/// Writes decisions.
struct Records {
    store: Arc<dyn Store>,
    options: RecorderOptions,
    jobs: mpsc::Receiver<Job>,
    settler: Settler,
    /// The last written batch while it becomes durable: at most one. The next one is written meanwhile.
    flying: JoinSet<Result<(), (Batch, StoreError)>>,
    /// Current limit of records per transaction: lower than the option while the database is too slow for full batches.
    most: usize,
    /// The recent records must be written again first.
    stale: bool,
    /// Makes the frames of inputs.
    frames: Encoder,
}

/// What was left when the writer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Records that are not in the database. Their bindings hold them.
    pub left: usize,
}

/// A batch for the store, and the receipts of its records.
#[derive(Default)]
struct Batch {
    records: Vec<Record>,
    waiting: Vec<(Settle, Instant)>,
}

/// Updates receipts and counters.
#[derive(Clone)]
struct Settler {
    details: Arc<Details>,
    progress: watch::Sender<Progress>,
    recent: Arc<Mutex<Recent>>,
    recorded: Option<Observer>,
}

/// Result of a write.
enum Attempt {
    Written(Durability),
    /// The database rejects it permanently.
    Refused(String),
    /// The previous batch may be lost and must be written first.
    Lost(Batch),
    /// No reply in time: a smaller batch may succeed.
    TooMany,
    /// Stop.
    Stopped,
}

impl Batch {
    fn push(&mut self, job: Job, frames: &mut Encoder, progress: &watch::Sender<Progress>) {
        let mut record = job.record;
        if let Some((inputs, place)) = job.inputs {
            let seconds = record.decided_at().as_second();
            record.inputs = frames.encode(&record.record.id, seconds, inputs);
            drop(place);
            if record.inputs.is_none() {
                progress.send_modify(|progress| progress.inputs_dropped += 1);
            }
        }
        self.records.push(record);
        self.waiting.push((job.receipt, job.since));
    }

    fn append(&mut self, other: Self) {
        self.records.extend(other.records);
        self.waiting.extend(other.waiting);
    }

    fn split_off(&mut self, at: usize) -> Self {
        Self { records: self.records.split_off(at), waiting: self.waiting.split_off(at) }
    }

    fn len(&self) -> usize {
        self.records.len()
    }

    fn detail_bytes(&self) -> usize {
        self.records.iter().filter_map(|r| r.detail.as_ref()).map(|d| d.as_bytes().len()).sum()
    }
}

impl Writer {
    pub(super) fn new(
        store: Arc<dyn Store>,
        options: RecorderOptions,
        jobs: mpsc::Receiver<Job>,
        events: mpsc::Receiver<Event>,
        details: Arc<Details>,
        progress: watch::Sender<Progress>,
    ) -> Self {
        let notes = Notes::new(Arc::clone(&store), options.clone(), events, progress.clone());
        let recorded = options.recorded.clone();
        let settler = Settler { details, progress, recent: Arc::default(), recorded };
        let (flying, most, stale) = (JoinSet::new(), options.batch.max(1), false);
        let frames = Encoder::default();
        let records = Records { store, options, jobs, settler, flying, most, stale, frames };
        Self { records, notes }
    }

    /// Writes until cancelled, then writes the rest within the drain limit. Events are written concurrently and delay
    /// no decision.
    pub async fn run(self, token: CancellationToken) -> Drained {
        let (drained, ()) = tokio::join!(self.records.run(&token), self.notes.run(&token));
        drained
    }
}

impl Records {
    async fn run(mut self, token: &CancellationToken) -> Drained {
        let mut batch = Batch::default();
        while self.fill(&mut batch, token).await {
            let full = std::mem::take(&mut batch);
            if let Err(unwritten) = self.write(full, token).await {
                batch = unwritten;
            }
        }
        self.drain(batch).await
    }

    /// Waits for the first record, then for more until `linger` has passed. False: stop.
    async fn fill(&mut self, batch: &mut Batch, token: &CancellationToken) -> bool {
        if token.is_cancelled() {
            return false;
        }
        while batch.len() == 0 {
            let holds_recent = !self.settler.recent().is_empty();
            tokio::select! {
                biased;
                () = token.cancelled() => return false,
                job = self.jobs.recv() => match job {
                    Some(job) => self.take(batch, job),
                    // All handles were dropped: no more records will come.
                    None => return false,
                },
                () = tokio::time::sleep(SPAN), if holds_recent => self.settler.recent().forget_old(),
            }
        }
        let first = batch.waiting.first().map_or_else(Instant::now, |(_, since)| *since);
        let linger = tokio::time::sleep_until(first + self.options.linger);
        tokio::pin!(linger);
        while batch.len() < self.most {
            tokio::select! {
                biased;
                job = self.jobs.recv() => match job {
                    Some(job) => self.take(batch, job),
                    None => break,
                },
                () = &mut linger => break,
            }
        }
        true
    }

    fn take(&mut self, batch: &mut Batch, job: Job) {
        batch.push(job, &mut self.frames, &self.settler.progress);
    }

    /// Writes a batch, with any number of attempts. A rejected batch is halved until the bad record is found, so that
    /// it blocks no other; a batch that times out is halved until it succeeds. Returns the rest when it is time to
    /// stop.
    async fn write(&mut self, batch: Batch, token: &CancellationToken) -> Result<(), Batch> {
        let mut parts = vec![batch];
        while let Some(mut part) = parts.pop() {
            match self.attempt(&part.records, token).await {
                Attempt::Written(durability) => {
                    self.most = (self.most * 2).min(self.options.batch.max(1));
                    let landed = tokio::select! {
                        biased;
                        // The drain writes it again, which changes nothing.
                        () = token.cancelled() => {
                            while let Some(next) = parts.pop() {
                                part.append(next);
                            }
                            return Err(part);
                        }
                        landed = self.land() => landed,
                    };
                    match landed {
                        Ok(()) => self.launch(part, durability),
                        // Both may be missing, and the earlier one must be written first.
                        Err(earlier) => parts.extend([part, earlier]),
                    }
                }
                Attempt::Lost(earlier) => parts.extend([part, earlier]),
                Attempt::Refused(reason) if part.len() == 1 => {
                    // Later inputs build on those of this record.
                    self.frames.reset();
                    let id = &part.records[0].record.id;
                    tracing::error!(%id, reason, "the history database rejected a decision: its binding keeps it");
                    self.settler.settle(part, &RecordState::Refused(reason));
                }
                Attempt::Refused(_) | Attempt::TooMany => {
                    let second = part.split_off(part.len() / 2);
                    parts.extend([second, part]);
                }
                Attempt::Stopped => {
                    while let Some(next) = parts.pop() {
                        part.append(next);
                    }
                    return Err(part);
                }
            }
        }
        Ok(())
    }

    /// Waits until the previous batch is durable. Returns it when it may be lost.
    async fn land(&mut self) -> Result<(), Batch> {
        match self.flying.join_next().await {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err((batch, error)))) => {
                self.failed(&error, Duration::ZERO);
                Err(batch)
            }
            // The task is never aborted, so this is a panic.
            Some(Err(ended)) => std::panic::resume_unwind(ended.into_panic()),
        }
    }

    /// Waits in the background for a written batch to become durable.
    fn launch(&mut self, batch: Batch, durability: Durability) {
        let settler = self.settler.clone();
        self.flying.spawn(async move {
            match durability.await {
                Ok(()) => {
                    settler.settle(batch, &RecordState::Recorded);
                    Ok(())
                }
                Err(error) => Err((batch, error)),
            }
        });
    }

    /// Writes until the database accepts or rejects.
    async fn attempt(&mut self, records: &[Record], token: &CancellationToken) -> Attempt {
        let mut failures = 0_u32;
        loop {
            // A write interrupted by a stop may have succeeded: the drain repeats it, which changes nothing.
            let written = tokio::select! {
                biased;
                () = token.cancelled() => return Attempt::Stopped,
                written = self.write_behind_recent(records) => written,
            };
            let error = match written {
                Ok(durability) => return Attempt::Written(durability),
                Err(error) => error,
            };
            // Before a retry, the result of the previous batch must be known.
            if !self.flying.is_empty() {
                let landed = tokio::select! {
                    biased;
                    () = token.cancelled() => return Attempt::Stopped,
                    landed = self.land() => landed,
                };
                if let Err(earlier) = landed {
                    return Attempt::Lost(earlier);
                }
                if matches!(error, StoreError::Reconnected { .. }) {
                    continue;
                }
            }
            if error.is_refusal() {
                return Attempt::Refused(chain(&error));
            }
            failures = failures.saturating_add(1);
            let pause = self.options.retry.ceiling(failures);
            self.failed(&error, pause);
            if matches!(error, StoreError::TimedOut { .. }) {
                self.most = (self.most.min(records.len()) / 2).max(1);
                if records.len() > 1 {
                    return Attempt::TooMany;
                }
            }
            tokio::select! {
                biased;
                () = token.cancelled() => return Attempt::Stopped,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Writes once. On a new connection recently acknowledged records are written first: the database may have lost
    /// them, and they are the parents of these.
    async fn write_behind_recent(&mut self, records: &[Record]) -> Result<Durability, StoreError> {
        if !self.stale {
            match self.store.write(records).await {
                Err(error @ StoreError::Reconnected { .. }) => {
                    self.stale = true;
                    if !self.flying.is_empty() {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
        // Older rows may be lost for good.
        self.frames.reset();
        let recent = self.settler.recent().all();
        for part in recent.chunks(self.most) {
            self.store.insert(part).await?;
        }
        self.stale = false;
        let written = self.store.write(records).await;
        self.stale = matches!(written, Err(StoreError::Reconnected { .. }));
        written
    }

    /// Writes the queued records, within the drain limit. No retry: the bindings hold the rest.
    async fn drain(mut self, mut batch: Batch) -> Drained {
        let deadline = Instant::now() + self.options.drain;
        self.jobs.close();
        // The previous batch first.
        match tokio::time::timeout_at(deadline, self.land()).await {
            Ok(Ok(())) => {}
            Ok(Err(mut earlier)) => {
                earlier.append(batch);
                batch = earlier;
            }
            Err(_) => {
                let left = self.settler.progress.borrow().queued;
                let reason = format!("no reply within {:?}", self.options.drain);
                tracing::warn!(
                    left,
                    reason,
                    "history stopped before it wrote all decisions: their bindings keep them"
                );
                return Drained { left };
            }
        }
        while let Ok(job) = self.jobs.try_recv() {
            self.take(&mut batch, job);
        }
        while batch.len() > 0 {
            let rest = batch.split_off(self.options.batch.min(batch.len()));
            let written = async { self.write_behind_recent(&batch.records).await?.await };
            let written = tokio::time::timeout_at(deadline, written).await;
            let reason = match written {
                Ok(Ok(())) => {
                    self.settler.settle(batch, &RecordState::Recorded);
                    batch = rest;
                    continue;
                }
                Ok(Err(error)) => chain(&error),
                Err(_) => format!("no reply within {:?}", self.options.drain),
            };
            let left = batch.len() + rest.len();
            tracing::warn!(
                left,
                reason,
                "history stopped before it wrote all decisions: their bindings keep them"
            );
            return Drained { left };
        }
        Drained { left: 0 }
    }

    fn failed(&self, error: &StoreError, pause: Duration) {
        let reason = chain(error);
        let first = self.settler.progress.send_if_modified(|progress| {
            let first = progress.failing.is_none();
            progress.failing = Some(reason.clone());
            first
        });
        // Once at the start of an outage, not at every attempt: `progress` shows the state.
        if first {
            tracing::warn!(
                reason,
                ?pause,
                "history database unreachable: decisions wait in their bindings, scheduling continues"
            );
        } else {
            tracing::debug!(reason, ?pause, "history database still unreachable");
        }
    }
}

impl Settler {
    fn recent(&self) -> MutexGuard<'_, Recent> {
        // No panic occurs while the lock is held; the data only helps after a failover.
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self, batch: Batch, state: &RecordState) {
        self.details.give_back(batch.detail_bytes());
        let count = batch.len();
        let newest = batch.waiting.last().map(|(_, since)| *since);
        for (receipt, since) in batch.waiting {
            receipt.settle(state.clone());
            if let (RecordState::Recorded, Some(observer)) = (state, &self.recorded) {
                observer.observe(since.elapsed());
            }
        }
        if *state == RecordState::Recorded {
            self.recent().push(batch.records);
        }
        self.progress.send_modify(|progress| {
            progress.queued -= count;
            match state {
                RecordState::Refused(_) => progress.refused += count as u64,
                RecordState::Recorded | RecordState::Queued => progress.recorded += count as u64,
            }
            progress.failing = None;
            // Records queued now arrived after the newest of these.
            progress.oldest = newest.filter(|_| progress.queued > 0);
        });
    }
}

/// An error and its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
