//! Acquiring, renewing and releasing the Lease.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::options::LeaseOptions;
use super::record::{Record, key, target};
use crate::apply::object::ensure_namespace;
use crate::member::{Fence, Member, MemberError};

/// Limit of one renewal: several must fit between the renewal time and the deadline.
const RENEW_LIMIT: Duration = Duration::from_secs(2);
/// Limit of releasing the Lease at a stop: if it fails, the next agent waits for the expiry.
const RELEASE_LIMIT: Duration = Duration::from_secs(1);
/// Queued changes. At most one session requests changes, one at a time.
const REQUESTS: usize = 4;

/// A change to write to the Lease.
#[derive(Debug, Clone, Copy)]
enum LeaseChange {
    /// The highest term of a leader that the agent accepted.
    Term(u64),
    /// Raise the epoch above this one.
    EpochAbove(u64),
}

/// A change, and the receiver of the Lease's resulting epoch.
type ChangeRequest = (LeaseChange, oneshot::Sender<Result<u64, LeaseError>>);

/// Why a change could not be written to the Lease.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LeaseError {
    /// Another agent holds the Lease.
    #[error("another agent has taken the lease")]
    Lost,
    /// A failed call.
    #[error("cannot write the lease")]
    Write(#[source] MemberError),
}

/// Attempts to acquire the Lease.
#[derive(Default)]
pub(super) struct Attempt {
    /// The record as last seen, and since when it is unchanged.
    seen: Option<(String, Instant)>,
}

impl Attempt {
    /// One attempt; returns the record when the Lease is ours.
    pub(super) async fn step(
        &mut self,
        member: &Member,
        options: &LeaseOptions,
    ) -> Result<Option<Record>, MemberError> {
        let (target, key) = (target(), key(&options.namespace));
        let now = options.clock.now();
        let seconds = options.times.duration.as_secs().max(1);
        let Some(object) = member.get(&target, &key).await? else {
            let record =
                Record::new(&options.namespace, now).taken(&options.instance, now, seconds);
            let created = match member.create(&target, &key, &record.object).await {
                Err(error) if error.lacks_namespace() => {
                    ensure_namespace(member, &options.namespace).await?;
                    member.create(&target, &key, &record.object).await
                }
                other => other,
            };
            return match created {
                Ok(object) => Ok(Some(Record { made: true, ..Record::read(object) })),
                Err(error) if is_race(&error) => Ok(None),
                Err(error) => Err(error),
            };
        };
        let record = Record::read(object);
        if !self.may_take(&record, options) {
            return Ok(None);
        }
        let taken = record.taken(&options.instance, now, seconds);
        match member.replace(&target, &key, &taken.object, RENEW_LIMIT).await {
            Ok(object) => Ok(Some(Record::read(object))),
            Err(error) if is_race(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn may_take(&mut self, record: &Record, options: &LeaseOptions) -> bool {
        if record.holder().is_empty() || record.holder() == options.instance {
            return true;
        }
        let since = match &self.seen {
            Some((version, since)) if version == record.version() => *since,
            _ => {
                let now = Instant::now();
                self.seen = Some((record.version().to_owned(), now));
                now
            }
        };
        since.elapsed() > record.duration().unwrap_or(options.times.duration)
    }
}

/// The Lease, held. Dropping it without [`Held::release`] leaves it to expire.
pub(crate) struct Held {
    /// The acquisition count at this acquisition.
    pub epoch: u64,
    /// Highest term that an earlier agent of this member accepted.
    pub term: u64,
    /// The Lease did not exist before: the member is new to Atoll.
    pub first: bool,
    /// Cancelled when another agent holds the Lease.
    pub lost: CancellationToken,
    changes: mpsc::Sender<ChangeRequest>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Held {
    /// Writes the highest term.
    ///
    /// # Errors
    /// When the Lease is lost, or the write fails.
    pub(crate) async fn persist_term(&self, term: u64) -> Result<(), LeaseError> {
        self.change(LeaseChange::Term(term)).await.map(drop)
    }

    /// Raises the epoch above one that the controller has seen of this member, and returns it. A replaced agent cannot
    /// do this: the guarded write finds that another agent holds the Lease.
    ///
    /// # Errors
    /// When the Lease is lost, or the write fails.
    pub(crate) async fn raise_epoch(&self, floor: u64) -> Result<u64, LeaseError> {
        self.change(LeaseChange::EpochAbove(floor)).await
    }

    async fn change(&self, change: LeaseChange) -> Result<u64, LeaseError> {
        let (done, wait) = oneshot::channel();
        self.changes.send((change, done)).await.map_err(|_| LeaseError::Lost)?;
        wait.await.map_err(|_| LeaseError::Lost)?
    }

    /// Releases the Lease, so that the next agent can take it at once.
    pub(crate) async fn release(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::warn!(%error, "the lease's task panicked");
        }
    }
}

/// Starts renewing the Lease.
pub(super) fn keep(member: Member, options: LeaseOptions, record: Record, fence: Fence) -> Held {
    let (changes, requests) = mpsc::channel(REQUESTS);
    let (lost, stop) = (CancellationToken::new(), CancellationToken::new());
    let (epoch, term, first) = (record.epoch, record.term, record.made);
    fence.set(true);
    let keeper = Keeper { member, options, record, fence, renewed: Instant::now() };
    let task = tokio::spawn(keeper.run(requests, lost.clone(), stop.clone()));
    Held { epoch, term, first, lost, changes, stop, task }
}

struct Keeper {
    member: Member,
    options: LeaseOptions,
    record: Record,
    fence: Fence,
    renewed: Instant,
}

impl Keeper {
    async fn run(
        mut self,
        mut requests: mpsc::Receiver<ChangeRequest>,
        lost: CancellationToken,
        stop: CancellationToken,
    ) {
        let times = self.options.times;
        let mut next = self.renewed + times.renew;
        loop {
            // Close the fence on time even while a renewal hangs: each one is shorter than the time left.
            let overdue = self.renewed + times.deadline;
            tokio::select! {
                biased;
                () = stop.cancelled() => {
                    self.fence.set(false);
                    let released = self.record.released();
                    let (target, key) = (target(), key(&self.options.namespace));
                    if let Err(error) =
                        self.member.replace(&target, &key, &released.object, RELEASE_LIMIT).await
                    {
                        tracing::info!(error = %error.message(), "cannot release the lease: it expires by itself");
                    }
                    return;
                }
                request = requests.recv() => {
                    let Some((change, done)) = request else { return };
                    let result = self.carry_out(change).await;
                    let over = matches!(result, Err(LeaseError::Lost));
                    // A session that ended meanwhile no longer waits for the result.
                    let _ = done.send(result);
                    if over {
                        break;
                    }
                }
                () = tokio::time::sleep_until(next) => {
                    match self.write(self.record.renewed(self.options.clock.now())).await {
                        Ok(()) => next = Instant::now() + times.renew,
                        Err(LeaseError::Lost) => break,
                        Err(LeaseError::Write(error)) => {
                            tracing::warn!(error = %error.message(), "cannot renew the lease");
                            next = Instant::now() + Duration::from_secs(1);
                        }
                    }
                }
            }
            self.fence
                .set(Instant::now() < overdue || Instant::now() < self.renewed + times.deadline);
        }
        self.fence.set(false);
        tracing::warn!("another agent has taken the lease");
        lost.cancel();
    }

    async fn carry_out(&mut self, change: LeaseChange) -> Result<u64, LeaseError> {
        let next = match change {
            LeaseChange::Term(term) => self.record.with_term(term),
            LeaseChange::EpochAbove(floor) => self.record.above(floor),
        };
        self.write(next.renewed(self.options.clock.now())).await?;
        Ok(self.record.epoch)
    }

    /// Writes the record. If another writer changed it (an annotation, say) and we still hold it, retries once on top
    /// of that change.
    async fn write(&mut self, next: Record) -> Result<(), LeaseError> {
        let (target, key) = (target(), key(&self.options.namespace));
        let started = Instant::now();
        let result = match self.member.replace(&target, &key, &next.object, RENEW_LIMIT).await {
            Err(error) if is_race(&error) || error.is_not_found() => {
                let current = self.member.get(&target, &key).await.map_err(LeaseError::Write)?;
                let current = current.map(Record::read).ok_or(LeaseError::Lost)?;
                if current.holder() != self.options.instance || current.epoch != self.record.epoch {
                    return Err(LeaseError::Lost);
                }
                let next = current
                    .above(next.epoch.saturating_sub(1))
                    .with_term(next.term)
                    .renewed(self.options.clock.now());
                self.member.replace(&target, &key, &next.object, RENEW_LIMIT).await
            }
            other => other,
        };
        self.record = Record::read(result.map_err(LeaseError::Write)?);
        self.renewed = started;
        Ok(())
    }
}

/// Whether a write failed because the record was changed meanwhile.
fn is_race(error: &MemberError) -> bool {
    error.is_conflict() || error.is_already_exists()
}
