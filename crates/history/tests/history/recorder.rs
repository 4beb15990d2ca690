//! The recorder under a database that comes and goes. Time is simulated.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::record;
use atoll_history::{
    BoxFuture, Detail, Event, Filter, MemberFilter, MemberPage, MemoryStore, Milestone, Page,
    Position, QueueFull, Record, Recorder, RecorderOptions, Resident, Row, State, Store,
    StoreError,
};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A memory store that can be away, lose its answers, refuse a record, hang.
#[derive(Default)]
struct Faulty {
    inner: MemoryStore,
    away: AtomicBool,
    hanging: AtomicBool,
    lose_answers: AtomicUsize,
    refuse: Mutex<Option<String>>,
    inserts: AtomicUsize,
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
            let refused = self.refuse.lock().unwrap().clone();
            if records.iter().any(|record| Some(&record.record.id) == refused.as_ref()) {
                return Err(StoreError::Refused { doing: "write", source: "too big".into() });
            }
            self.inner.insert(records).await?;
            let lost = self
                .lose_answers
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
            if lost.is_ok() { Err(unavailable()) } else { Ok(()) }
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
        decisions: &'a [String],
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

    fn residents<'a>(
        &'a self,
        cluster: &'a str,
        at: jiff::Timestamp,
    ) -> BoxFuture<'a, Result<Vec<Resident>, StoreError>> {
        self.inner.residents(cluster, at)
    }
}

/// The nth decision of a binding, child of the one before.
fn decision(binding: u32, n: usize) -> Record {
    let mut record = record(&format!("{binding}-{n:05}"), binding, "web", 1000);
    record.record.parent = n.checked_sub(1).map(|n| format!("{binding}-{n:05}"));
    record.detail = Some(Detail::encode(&json!({"n": n})));
    record
}

/// Every id once, and the decisions of each binding in the order of their parents.
async fn assert_complete(store: &dyn Store, expected: usize) {
    let rows = store.tail(&Filter::default(), 0, usize::MAX).await.unwrap();
    assert_eq!(rows.len(), expected);
    let mut last: BTreeMap<String, String> = BTreeMap::new();
    for row in rows {
        let record = row.entry.record().unwrap();
        let before = last.insert(record.binding.uid.clone(), record.record.id.clone());
        assert_eq!(before, record.record.parent);
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_ten_minutes_under_load_delays_rows_and_nothing_else() {
    let store = Arc::new(Faulty::default());
    let (recorder, writer) = Recorder::new(store.clone(), RecorderOptions::default());
    let token = CancellationToken::new();
    let running = tokio::spawn(writer.run(token.clone()));
    store.away.store(true, Ordering::Relaxed);
    let mut receipts = Vec::new();
    // 20 a second for 10 minutes.
    for n in 0..1200 {
        for binding in 0..10 {
            receipts.push(recorder.record(decision(binding, n)).unwrap());
        }
        tokio::time::advance(Duration::from_millis(500)).await;
    }
    let progress = recorder.progress().borrow().clone();
    assert_eq!((progress.queued, progress.recorded), (12_000, 0));
    assert!(progress.oldest.unwrap().elapsed() >= Duration::from_secs(599));
    assert!(progress.failing.unwrap().contains("connection refused"));
    assert!(receipts.iter().all(|receipt| !receipt.is_recorded()));
    let tries = store.inserts.load(Ordering::Relaxed);
    assert!((50..200).contains(&tries), "{tries} tries in 10 minutes: backoff is off");

    // It is back, loses the answers to two inserts that it did, and catches up.
    store.lose_answers.store(2, Ordering::Relaxed);
    store.away.store(false, Ordering::Relaxed);
    for receipt in &mut receipts {
        assert_eq!(receipt.settled().await, State::Recorded);
    }
    assert_complete(&*store, 12_000).await;
    let progress = recorder.progress().borrow().clone();
    assert_eq!((progress.queued, progress.recorded, progress.oldest), (0, 12_000, None));
    assert_eq!(progress.failing, None);
    token.cancel();
    assert_eq!(running.await.unwrap().left, 0);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_and_a_full_purse_drops_details() {
    let store = Arc::new(Faulty::default());
    store.away.store(true, Ordering::Relaxed);
    let bytes = decision(0, 0).detail.unwrap().as_bytes().len();
    let options = RecorderOptions {
        queue: 4,
        detail_bytes: bytes * 2,
        batch: 1,
        ..RecorderOptions::default()
    };
    let (recorder, writer) = Recorder::new(store.clone(), options);
    let mut receipts: Vec<_> = (0..4).map(|n| recorder.record(decision(0, n)).unwrap()).collect();
    assert_eq!(recorder.record(decision(0, 4)).unwrap_err(), QueueFull);
    assert_eq!(recorder.progress().borrow().details_dropped, 2);

    let token = CancellationToken::new();
    let running = tokio::spawn(writer.run(token.clone()));
    store.away.store(false, Ordering::Relaxed);
    for receipt in &mut receipts {
        assert_eq!(receipt.settled().await, State::Recorded);
    }
    // There is room again, for the record and for its detail.
    assert_eq!(recorder.record(decision(0, 4)).unwrap().settled().await, State::Recorded);
    let mut details = Vec::new();
    for n in 0..5 {
        let row = store.get(&format!("0-{n:05}")).await.unwrap().unwrap();
        details.push(row.entry.record().unwrap().detail.is_some());
    }
    assert_eq!(details, [true, true, false, false, true]);
    token.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_record_that_the_database_refuses_holds_up_no_other() {
    let store = Arc::new(Faulty::default());
    *store.refuse.lock().unwrap() = Some("0-00037".to_owned());
    let (recorder, writer) = Recorder::new(store.clone(), RecorderOptions::default());
    let mut receipts: Vec<_> = (0..100).map(|n| recorder.record(decision(0, n)).unwrap()).collect();
    let token = CancellationToken::new();
    let running = tokio::spawn(writer.run(token.clone()));
    for (n, receipt) in receipts.iter_mut().enumerate() {
        match receipt.settled().await {
            State::Recorded => assert_ne!(n, 37),
            State::Refused(reason) => {
                assert!(n == 37 && reason.contains("too big"), "{n}: {reason}")
            }
            State::Queued => panic!("{n} is queued"),
        }
    }
    let progress = recorder.progress().borrow().clone();
    assert_eq!((progress.recorded, progress.refused, progress.queued), (99, 1, 0));
    let rows = store.tail(&Filter::default(), 0, 1000).await.unwrap();
    assert!(rows.windows(2).all(|pair| pair[0].entry.id() < pair[1].entry.id()), "out of order");
    token.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stop_writes_what_waits_but_not_for_ever() {
    for hanging in [false, true] {
        let store = Arc::new(Faulty::default());
        store.away.store(true, Ordering::Relaxed);
        let options = RecorderOptions { batch: 10, ..RecorderOptions::default() };
        let drain = options.drain;
        let (recorder, writer) = Recorder::new(store.clone(), options);
        let mut receipts: Vec<_> =
            (0..35).map(|n| recorder.record(decision(0, n)).unwrap()).collect();
        let token = CancellationToken::new();
        let running = tokio::spawn(writer.run(token.clone()));
        let mut progress = recorder.progress();
        progress.wait_for(|progress| progress.failing.is_some()).await.unwrap();
        store.away.store(false, Ordering::Relaxed);
        store.hanging.store(hanging, Ordering::Relaxed);
        let stopped = tokio::time::Instant::now();
        token.cancel();
        let drained = running.await.unwrap();
        assert!(stopped.elapsed() <= drain, "{:?}", stopped.elapsed());
        assert_eq!(drained.left, if hanging { 35 } else { 0 });
        let expected = if hanging { State::Queued } else { State::Recorded };
        for receipt in &mut receipts {
            assert_eq!(receipt.settled().await, expected);
        }
        assert_complete(&*store, 35 - drained.left).await;
        assert_eq!(recorder.record(decision(0, 35)).unwrap_err(), QueueFull);
    }
}
