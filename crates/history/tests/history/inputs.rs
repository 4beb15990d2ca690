//! What decisions read: what it costs to store, and that a recorded run still gives the same decisions.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use atoll_decision::Decision;
use atoll_history::inputs::{Chain, MissingInputs, State, chain};
use atoll_history::{
    Detail, Frame, MemoryStore, Receipt, RecordState, Recorder, RecorderOptions, SqliteStore, Store,
};
use atoll_scheduler::replay::restore;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::federation::Federation;

/// Decisions of a day, evenly spread.
const A_DAY: i64 = 10_000;
const DAY: i64 = 24 * 60 * 60 * 1000;
const MEMBERS: usize = 50;
/// The aim: bytes of the database for the inputs of one decision.
const AIM: u64 = 1024;

/// Writes decisions with inputs to one store and without to another, as they would come over the day.
async fn record_a_day(decisions: i64, with: Arc<dyn Store>, without: Arc<dyn Store>) {
    let mut federation = Federation::new(MEMBERS, 1);
    let token = CancellationToken::new();
    let (full, writer) = Recorder::new(with, RecorderOptions::default());
    let full_writer = tokio::spawn(writer.run(token.clone()));
    let (bare, writer) = Recorder::new(without, RecorderOptions::default());
    let bare_writer = tokio::spawn(writer.run(token.clone()));
    // Each member reports every minute, at a time of its own.
    let mut next = (0..MEMBERS).map(|m| m as i64 * 60_000 / MEMBERS as i64).collect::<Vec<_>>();
    let mut elapsed = 0;
    for n in 1..=decisions {
        let at = n * DAY / A_DAY;
        federation.run_what_was_decided();
        for (member, next) in next.iter_mut().enumerate() {
            while *next <= at {
                federation.report(member);
                *next += 60_000;
            }
        }
        federation.wait(at - elapsed);
        elapsed = at;
        let (record, inputs) = federation.decide();
        let mut receipts: Vec<Receipt> = vec![bare.record(record.clone()).unwrap()];
        receipts.push(full.record_with(record, Some(Box::new(inputs))).unwrap());
        // Eight seconds pass between two decisions: batches would save transactions, not bytes.
        if n % 100 == 0 || n == decisions {
            for mut receipt in receipts {
                assert_eq!(receipt.settled().await, RecordState::Recorded);
            }
        }
    }
    assert_eq!(full.progress().borrow().inputs_dropped, 0);
    drop((full, bare));
    let (full, bare) = tokio::join!(full_writer, bare_writer);
    assert_eq!((full.unwrap().left, bare.unwrap().left), (0, 0));
}

/// `ATOLL_DECISIONS=10000` takes the whole day.
#[tokio::test]
async fn inputs_take_less_than_a_kibibyte_a_decision() {
    let given = std::env::var("ATOLL_DECISIONS").ok();
    let decisions: i64 = given.map_or(600, |given| given.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let with = Arc::new(SqliteStore::open(&path("with.db")).await.unwrap());
    let without = Arc::new(SqliteStore::open(&path("without.db")).await.unwrap());
    record_a_day(decisions, with.clone(), without.clone()).await;
    with.close().await;
    without.close().await;
    let size = |name: &str| std::fs::metadata(path(name)).unwrap().len();
    let count = u64::try_from(decisions).unwrap();
    let each = (size("with.db") - size("without.db")) / count;
    println!(
        "inputs: {each} bytes of SQLite a decision (aim: at most {AIM}), {decisions} decisions at {A_DAY} a day, {MEMBERS} \
         clusters that report every minute; the rest of a row takes {} bytes",
        size("without.db") / count
    );
    assert!(each <= AIM, "{each} bytes");
}

fn is_the_same(state: &State, detail: &Detail, id: &str) -> Result<(), String> {
    let restored = restore(state.objects()).map_err(|error| format!("{id}: {error}"))?;
    let profiles = restored.profiles().map_err(|error| format!("{id}: {error}"))?;
    let again: Decision = restored.decide(&profiles);
    let (was, is) = (detail.decode().unwrap(), json!(again));
    if was == is {
        return Ok(());
    }
    let differs = |field: &&String| was[field.as_str()] != is[field.as_str()];
    let fields: Vec<&String> = is.as_object().unwrap().keys().filter(differs).collect();
    let was_shares = serde_json::from_value::<Decision>(was.clone()).map(|d| d.clusters().to_vec());
    Err(format!(
        "{id}: {fields:?} differ; shares were {was_shares:?} and are {:?}",
        again.clusters()
    ))
}

/// Where runs are kept: one file for each version that recorded one.
fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings")
}

/// Decisions of a run in the repository.
const RUN: usize = 150;
/// Largest file of a run, in bytes.
const MOST: usize = 300 << 10;

/// A run with taints, and members that leave nothing to report.
async fn run() -> String {
    let mut federation = Federation::new(12, 7);
    let store = Arc::new(MemoryStore::default());
    let (recorder, writer) = Recorder::new(store.clone(), RecorderOptions::default());
    let mut ids = Vec::new();
    for n in 0..RUN {
        federation.wait(7_000);
        if n % 3 == 0 {
            federation.run_what_was_decided();
        }
        federation.report(n % 12);
        match n % 30 {
            10 => federation.taint(3, Some("NoSchedule")),
            15 => federation.taint(5, Some("NoExecute")),
            25 => [3, 5].into_iter().for_each(|member| federation.taint(member, None)),
            _ => {}
        }
        let (record, inputs) = federation.decide();
        ids.push(record.record.id.clone());
        recorder.record_with(record, Some(Box::new(inputs))).unwrap();
    }
    drop(recorder);
    writer.run(CancellationToken::new()).await;
    let mut lines = String::new();
    for id in ids {
        let row = store.get(&id).await.unwrap().unwrap();
        let detail = row.entry.record().unwrap().detail.clone().unwrap();
        let frame = store.inputs(&id).await.unwrap().unwrap().unwrap();
        let line = json!({
            "decision": id,
            "detail": STANDARD.encode(detail.as_bytes()),
            "inputs": STANDARD.encode(frame.as_bytes()),
        });
        lines.push_str(&format!("{line}\n"));
    }
    lines
}

/// `ATOLL_RECORD_DECISIONS=1` writes the run of this version first.
#[tokio::test]
async fn recorded_runs_give_the_same_decisions() {
    let folder = recordings();
    if std::env::var_os("ATOLL_RECORD_DECISIONS").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join(format!("v{}.jsonl", env!("CARGO_PKG_VERSION")));
        std::fs::write(file, run().await).unwrap();
    }
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "there is no run in {}", folder.display());
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.len() <= MOST, "{}: {} bytes", file.display(), text.len());
        let (mut state, mut differences) = (State::default(), Vec::new());
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let bytes = |field: &str| STANDARD.decode(line[field].as_str().unwrap()).unwrap();
            state.apply(&Frame::from_bytes(bytes("inputs"))).unwrap();
            let detail = Detail::from_bytes(bytes("detail"));
            let id = line["decision"].as_str().unwrap();
            differences.extend(is_the_same(&state, &detail, id).err());
        }
        assert!(
            differences.is_empty(),
            "{} of {} decisions of {} are different now. If that is meant, CHANGELOG.md needs a line that says what is decided \
             differently and why; then record the run again:\nATOLL_RECORD_DECISIONS=1 cargo xtask test -p atoll-history \
             recorded_runs_give_the_same_decisions\n{}",
            differences.len(),
            text.lines().count(),
            file.display(),
            differences.iter().take(10).cloned().collect::<Vec<_>>().join("\n")
        );
    }
}

#[tokio::test]
async fn inputs_lost_in_an_outage_are_missing_and_later_ones_are_there() {
    let store = Arc::new(MemoryStore::default());
    let options = RecorderOptions { inputs: 2, ..RecorderOptions::default() };
    let (recorder, writer) = Recorder::new(store.clone(), options);
    let mut federation = Federation::new(3, 3);
    let mut decide = || {
        let (record, inputs) = federation.decide();
        let id = record.record.id.clone();
        recorder.record_with(record, Some(Box::new(inputs))).unwrap();
        id
    };
    // The writer does not run yet, as if the database did not answer.
    let ids: Vec<_> = (0..4).map(|_| decide()).collect();
    assert_eq!(recorder.progress().borrow().inputs_dropped, 2);
    let token = CancellationToken::new();
    let writing = tokio::spawn(writer.run(token.clone()));
    let mut written = store.written();
    while store.last().await.unwrap() < 4 {
        written.changed().await.unwrap();
    }
    let last = decide();
    token.cancel();
    writing.await.unwrap();
    for (id, there) in ids.iter().zip([true, true, false, false]).chain([(&last, true)]) {
        match chain(&*store, id, None).await.unwrap() {
            Chain::Frames(links) if there => {
                let mut state = State::default();
                links.iter().for_each(|link| state.apply(&link.frame).unwrap());
                let row = store.get(id).await.unwrap().unwrap();
                let detail = row.entry.record().unwrap().detail.clone().unwrap();
                is_the_same(&state, &detail, id).unwrap();
            }
            Chain::Missing(MissingInputs::NotStored) if !there => {}
            other => panic!("{id}: {other:?}"),
        }
    }
}
