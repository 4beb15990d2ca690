//! The recorder with a database that fails and recovers. Time is simulated.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use atoll_api::DecisionId;
use atoll_history::{
    Detail, Fault, Filter, MemoryStore, QueueFull, Record, RecordState, Recorder, RecorderOptions,
    Store,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::faulty::Faulty;
use crate::support::record;

/// The nth decision of a binding, child of the one before.
fn decision(binding: u32, n: usize) -> Record {
    let mut record = record(&format!("{binding}-{n:05}"), binding, "web", 1000);
    record.record.parent = n.checked_sub(1).map(|n| format!("{binding}-{n:05}").into());
    record.detail = Some(Detail::encode(&json!({"n": n})));
    record
}

/// Every id once, and the decisions of each binding in the order of their parents.
async fn assert_complete(store: &dyn Store, expected: usize) {
    let rows = store.tail(&Filter::default(), 0, usize::MAX).await.unwrap();
    assert_eq!(rows.len(), expected);
    let mut last: BTreeMap<String, DecisionId> = BTreeMap::new();
    for row in rows {
        let record = row.entry.record().unwrap();
        let before = last.insert(record.binding.uid.to_string(), record.record.id.clone());
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

    // It recovers, loses the replies of two successful inserts, and catches up.
    store.lose_answers.store(2, Ordering::Relaxed);
    store.away.store(false, Ordering::Relaxed);
    for receipt in &mut receipts {
        assert_eq!(receipt.settled().await, RecordState::Recorded);
    }
    assert_complete(&*store, 12_000).await;
    let progress = recorder.progress().borrow().clone();
    assert_eq!((progress.queued, progress.recorded, progress.oldest), (0, 12_000, None));
    assert_eq!(progress.failing, None);
    token.cancel();
    assert_eq!(running.await.unwrap().left, 0);
}

/// A database that acknowledges rows before they are durable may lose them.
#[tokio::test(start_paused = true)]
async fn what_is_lost_before_it_is_safe_is_written_again_in_order() {
    let store = Arc::new(Faulty::default());
    let options = RecorderOptions { batch: 10, ..RecorderOptions::default() };
    let (recorder, writer) = Recorder::new(store.clone(), options);
    let token = CancellationToken::new();
    let running = tokio::spawn(writer.run(token.clone()));
    let mut receipts = Vec::new();
    for n in 0..30 {
        for binding in 0..10 {
            receipts.push(recorder.record(decision(binding, n)).unwrap());
        }
        if n % 4 == 0 {
            store.lose_writes.fetch_add(1, Ordering::Relaxed);
        }
        tokio::time::sleep(Duration::from_millis(7)).await;
    }
    for receipt in &mut receipts {
        assert_eq!(receipt.settled().await, RecordState::Recorded);
    }
    assert_eq!(store.lose_writes.load(Ordering::Relaxed), 0);
    assert_complete(&*store, 300).await;
    // A batch is not durable yet when the writer must stop: the drain waits for it, and writes it again.
    store.lose_writes.store(1, Ordering::Relaxed);
    let mut last = recorder.record(decision(0, 30)).unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(last.state(), RecordState::Queued);
    token.cancel();
    assert_eq!(running.await.unwrap().left, 0);
    assert_eq!(last.settled().await, RecordState::Recorded);
    assert_complete(&*store, 301).await;
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
        assert_eq!(receipt.settled().await, RecordState::Recorded);
    }
    // There is room again for the record and for its detail.
    assert_eq!(recorder.record(decision(0, 4)).unwrap().settled().await, RecordState::Recorded);
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
            RecordState::Recorded => assert_ne!(n, 37),
            RecordState::Refused(reason) => {
                assert!(n == 37 && reason.contains("too big"), "{n}: {reason}")
            }
            RecordState::Queued => panic!("{n} is queued"),
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
        let expected = if hanging { RecordState::Queued } else { RecordState::Recorded };
        for receipt in &mut receipts {
            assert_eq!(receipt.settled().await, expected);
        }
        assert_complete(&*store, 35 - drained.left).await;
        assert_eq!(recorder.record(decision(0, 35)).unwrap_err(), QueueFull);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_failover_lost_is_written_again_before_its_children() {
    let store = Arc::new(MemoryStore::default());
    let (recorder, writer) = Recorder::new(store.clone(), RecorderOptions::default());
    let token = CancellationToken::new();
    let running = tokio::spawn(writer.run(token.clone()));
    for n in 0..50 {
        assert_eq!(recorder.record(decision(0, n)).unwrap().settled().await, RecordState::Recorded);
    }
    store.fail_over(20);
    assert_eq!(recorder.record(decision(0, 50)).unwrap().settled().await, RecordState::Recorded);
    assert_complete(&*store, 51).await;
    // The replica fails during that.
    store.fail_over(20);
    store.set_fault(Fault::LosesAnswers);
    let mut receipt = recorder.record(decision(0, 51)).unwrap();
    let mut progress = recorder.progress();
    progress.wait_for(|progress| progress.failing.is_some()).await.unwrap();
    store.fail_over(7);
    store.set_fault(Fault::None);
    assert_eq!(receipt.settled().await, RecordState::Recorded);
    assert_complete(&*store, 52).await;
    // Also during the final drain of a stopping writer.
    store.fail_over(5);
    store.set_fault(Fault::Unreachable);
    let mut receipt = recorder.record(decision(0, 52)).unwrap();
    progress.wait_for(|progress| progress.failing.is_some()).await.unwrap();
    store.set_fault(Fault::None);
    token.cancel();
    assert_eq!(running.await.unwrap().left, 0);
    assert_eq!(receipt.settled().await, RecordState::Recorded);
    assert_complete(&*store, 53).await;
}

/// A full batch of 2,000 would take 100 s, with a limit of 10 s per operation.
#[tokio::test(start_paused = true)]
async fn a_database_that_is_too_slow_for_a_batch_gets_smaller_ones() {
    let store = Arc::new(Faulty::default());
    store.slow.store(50, Ordering::Relaxed);
    let (recorder, writer) = Recorder::new(store.clone(), RecorderOptions::default());
    let mut receipts: Vec<_> =
        (0..5_000).map(|n| recorder.record(decision(0, n)).unwrap()).collect();
    let token = CancellationToken::new();
    let running = tokio::spawn(writer.run(token.clone()));
    let began = tokio::time::Instant::now();
    let last = receipts.last_mut().unwrap();
    let settled = tokio::time::timeout(Duration::from_secs(3600), last.settled()).await;
    assert_eq!(settled.unwrap(), RecordState::Recorded);
    // Time for the rows, and for some attempts with too large batches.
    assert!(began.elapsed() < Duration::from_secs(2 * 250 + 100), "{:?}", began.elapsed());
    assert_complete(&*store, 5_000).await;
    // When the database is fast again, batches are full again.
    store.slow.store(0, Ordering::Relaxed);
    let before = store.inserts.load(Ordering::Relaxed);
    let mut receipts: Vec<_> =
        (5_000..35_000).map(|n| recorder.record(decision(0, n)).unwrap()).collect();
    assert_eq!(receipts.last_mut().unwrap().settled().await, RecordState::Recorded);
    let batches = store.inserts.load(Ordering::Relaxed) - before;
    assert!(batches <= 30, "{batches} batches for 30,000 records");
    token.cancel();
    assert_eq!(running.await.unwrap().left, 0);
}
