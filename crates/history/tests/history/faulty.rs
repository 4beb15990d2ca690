//! A store with configurable faults.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use atoll_api::DecisionId;
use atoll_history::{
    BoxFuture, Durability, Event, Filter, Frame, Maintained, MemberFilter, MemberPage, MemoryStore,
    Milestone, Newest, Page, Position, Record, Resident, Row, Store, StoreError,
};
use tokio::sync::watch;

/// Time limit of one operation, like real stores.
const LIMIT: Duration = Duration::from_secs(10);

/// A memory store that can be unreachable, lose its replies, reject a record, hang.
#[derive(Default)]
pub(crate) struct Faulty {
    pub(crate) inner: MemoryStore,
    pub(crate) away: AtomicBool,
    pub(crate) hanging: AtomicBool,
    pub(crate) lose_answers: AtomicUsize,
    /// Milliseconds for each record of a batch; the batch fails after [`LIMIT`].
    pub(crate) slow: AtomicU64,
    pub(crate) refuse: Mutex<Option<String>>,
    pub(crate) inserts: AtomicUsize,
    /// Writes that are lost before they are durable.
    pub(crate) lose_writes: AtomicUsize,
    rounds: AtomicUsize,
}

impl Faulty {
    pub(crate) fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::Relaxed);
    }

    /// Number of maintenance runs.
    pub(crate) fn maintained(&self) -> usize {
        self.rounds.load(Ordering::Relaxed)
    }
}

fn unavailable() -> StoreError {
    StoreError::Unavailable { doing: "write", source: "connection refused".into() }
}

impl Store for Faulty {
    fn insert<'a>(&'a self, records: &'a [Record]) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.inserts.fetch_add(1, Ordering::Relaxed);
            if self.hanging.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            if self.away.load(Ordering::Relaxed) {
                return Err(unavailable());
            }
            let needs = Duration::from_millis(
                self.slow.load(Ordering::Relaxed) * u64::try_from(records.len()).unwrap(),
            );
            tokio::time::sleep(needs.min(LIMIT)).await;
            if needs > LIMIT {
                return Err(StoreError::TimedOut { doing: "write", after: LIMIT });
            }
            let refused = self.refuse.lock().unwrap().clone();
            if records
                .iter()
                .any(|record| refused.as_ref().is_some_and(|id| record.record.id == *id))
            {
                return Err(StoreError::Refused { doing: "write", source: "too big".into() });
            }
            self.inner.insert(records).await?;
            let lost = self
                .lose_answers
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
            if lost.is_ok() { Err(unavailable()) } else { Ok(()) }
        })
    }

    fn write<'a>(&'a self, records: &'a [Record]) -> BoxFuture<'a, Result<Durability, StoreError>> {
        Box::pin(async move {
            let before = self.inner.last().await?;
            self.insert(records).await?;
            let lost = self
                .lose_writes
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
            if lost.is_ok() {
                let written = self.inner.last().await? - before;
                self.inner.fail_over(usize::try_from(written).unwrap());
            }
            let durability: Durability = Box::pin(async move {
                // Long enough for the next batch to be written meanwhile.
                tokio::time::sleep(Duration::from_millis(5)).await;
                if lost.is_ok() { Err(unavailable()) } else { Ok(()) }
            });
            Ok(durability)
        })
    }

    fn page<'a>(
        &'a self,
        filter: &'a Filter,
        limit: usize,
        after: Option<Position>,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        self.inner.page(filter, limit, after)
    }

    fn get<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Row>, StoreError>> {
        self.inner.get(id)
    }

    fn inputs<'a>(
        &'a self,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Option<Option<Frame>>, StoreError>> {
        self.inner.inputs(id)
    }

    fn tail<'a>(
        &'a self,
        filter: &'a Filter,
        seq: i64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Row>, StoreError>> {
        self.inner.tail(filter, seq, limit)
    }

    fn last(&self) -> BoxFuture<'_, Result<i64, StoreError>> {
        self.inner.last()
    }

    fn written(&self) -> watch::Receiver<u64> {
        self.inner.written()
    }

    fn unconfirmed<'a>(&'a self, c: &'a str) -> BoxFuture<'a, Result<Vec<String>, StoreError>> {
        self.inner.unconfirmed(c)
    }

    fn newest<'a>(
        &'a self,
        bindings: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Newest>, StoreError>> {
        self.inner.newest(bindings)
    }

    fn note<'a>(&'a self, events: &'a [Event]) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            if self.away.load(Ordering::Relaxed) {
                return Err(unavailable());
            }
            self.inner.note(events).await
        })
    }

    fn milestones<'a>(
        &'a self,
        decisions: &'a [DecisionId],
    ) -> BoxFuture<'a, Result<Vec<Milestone>, StoreError>> {
        self.inner.milestones(decisions)
    }

    fn member_events<'a>(
        &'a self,
        filter: &'a MemberFilter,
        limit: usize,
        after: Option<Position>,
    ) -> BoxFuture<'a, Result<MemberPage, StoreError>> {
        self.inner.member_events(filter, limit, after)
    }

    fn maintain(
        &self,
        now: jiff::Timestamp,
        retention: Duration,
    ) -> BoxFuture<'_, Result<Maintained, StoreError>> {
        Box::pin(async move {
            self.rounds.fetch_add(1, Ordering::Relaxed);
            if self.away.load(Ordering::Relaxed) {
                return Err(unavailable());
            }
            self.inner.maintain(now, retention).await
        })
    }

    fn residents<'a>(
        &'a self,
        cluster: &'a str,
        at: jiff::Timestamp,
    ) -> BoxFuture<'a, Result<Vec<Resident>, StoreError>> {
        self.inner.residents(cluster, at)
    }
}
