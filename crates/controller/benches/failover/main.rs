//! Mass failover: every workload has a replica on the member that dies, and all of them have to move.
//!
//! Two figures: `plan` is the scheduler alone on one thread; `run` is the whole way, from the taint on the dead member to
//! the survivors' orders: the real controller, an embedded API server in memory, and agents that answer everything at
//! once, in one process. The pace is off.
//!
//! `cargo xtask bench failover [-- BINDINGS...]`; each size runs in a process of its own, so that its memory is its own.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark that fails has no result"
)]

mod agents;
mod hub;
mod plan;

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use atoll_api::Clock;
use atoll_controller::leader::{Candidate, LeaseTimes};
use atoll_controller::members::{HealthTimes, Incoming, Metrics};
use atoll_controller::pace::PaceLimits;
use atoll_controller::schedule::Place;
use atoll_controller::{Controller, Hub, MembersSide};
use atoll_history::MemoryStore;
use atoll_protocol::identity::TrustDomain;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use agents::Fleet;
use hub::Board;

/// Members. The first one dies.
pub(crate) const MEMBERS: usize = 50;
/// Sizes that are measured when none is given.
const SIZES: [usize; 3] = [1_000, 10_000, 100_000];
/// Connections that may wait for the controller.
const BACKLOG: usize = 64;
/// Without progress for so long something is broken.
const STUCK: Duration = Duration::from_secs(120);
/// How often progress is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// Short, so that the benchmark does not wait for production's five minutes.
const HEALTH: HealthTimes = HealthTimes {
    heartbeat: Duration::from_secs(2),
    silent_after: Duration::from_secs(20),
    settle: Duration::from_secs(2),
    failover_after: Duration::from_secs(25),
    leader_grace: Duration::from_secs(1),
    suspicion_window: Duration::from_secs(60),
    status_interval: Duration::from_secs(300),
    facts: Duration::from_secs(60),
};

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [flag, size] = &arguments[..]
        && flag == "--one"
    {
        return one(size.parse().unwrap());
    }
    let sizes: Vec<usize> = arguments.iter().map(|size| size.parse().unwrap()).collect();
    for size in if sizes.is_empty() { SIZES.to_vec() } else { sizes } {
        let this = std::env::current_exe().unwrap();
        let status = Command::new(this).args(["--one", &size.to_string()]).status().unwrap();
        assert!(status.success(), "{size} bindings: {status}");
    }
}

fn one(bindings: usize) {
    let (cold, warm) = plan::measure(bindings);
    println!("{bindings} bindings over {MEMBERS} members, all with a replica on the one that dies");
    println!("  planned, one thread: {cold:.2?}; each decision seeing the one before: {warm:.2?}");
    println!("  resident after planning: {} MiB", resident());
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(run(bindings));
    println!("  peak memory (API server, controller and agents in one process): {} MiB", peak());
}

async fn run(bindings: usize) {
    let (server, client) = hub::open().await;
    let board = Board::default();
    let clock = Clock::system();
    let (arrivals, incoming) = mpsc::channel(BACKLOG);
    let token = CancellationToken::new();
    let clusters = hub::clusters(&client).await;
    let options = Hub {
        client: board.client(&server),
        clock: clock.clone(),
        history: Arc::new(MemoryStore::default()),
        retention: Duration::from_secs(86_400),
        candidate: Candidate {
            namespace: "atoll-system".to_owned(),
            name: "atoll-controller".to_owned(),
            place: "bench".to_owned(),
            incarnation: "1".to_owned(),
            exclusive_place: true,
            times: LeaseTimes::default(),
        },
        profiles: Default::default(),
        place: Place::Thread,
        seed: 0,
    };
    let members = MembersSide {
        incoming: Incoming::Streams(incoming),
        health: HEALTH,
        trust_domain: TrustDomain::new("atoll.bench").unwrap(),
        metrics: Metrics::default(),
    };
    let controller = Controller::new(options, members, token.clone()).unwrap();
    let controller = tokio::spawn(controller.with_pace(PaceLimits::NONE).run());
    let fleet = Fleet::start(&clusters, &arrivals);
    hub::until_ready(&client).await;

    let start = Instant::now();
    hub::fill(&client, bindings).await;
    progress("placed", || fleet.upserts() >= 2 * bindings).await;
    // Statuses follow; what is written for them must not count into the failover.
    let mut before = board.total();
    loop {
        tokio::time::sleep(Duration::from_secs(8)).await;
        let now = board.total();
        if now - before < bindings / 1000 + 20 {
            break;
        }
        before = now;
    }
    println!("  setting up took {:.1?}, {} MiB resident", start.elapsed(), resident());

    fleet.kill(&hub::name(0));
    hub::until_evicting(&client, LOOK).await;
    let start = Instant::now();
    let (_, upserts, cpu) = (board.take(), fleet.upserts(), cpu());
    progress("moved", || {
        board.count("bindings") >= bindings && fleet.upserts() - upserts >= bindings
    })
    .await;
    let committed = board.last("bindings").unwrap().duration_since(start);
    let dispatched = fleet.last().unwrap().duration_since(start);
    let rate = bindings as f64 / committed.as_secs_f64();
    println!(
        "  decided and committed: {committed:.2?} ({rate:.0} bindings/s through the API server)"
    );
    println!("  dispatched and acknowledged: {dispatched:.2?}");
    let cpu = self::cpu() - cpu;
    let each = cpu.as_secs_f64() * 1000.0 / bindings as f64;
    println!("  CPU of all until then: {cpu:.1?}, {each:.2} ms for each binding");
    let writes = board.total() as f64 / start.elapsed().as_secs_f64();
    println!("  hub writes until then: {} ({writes:.0}/s)", board.summary());
    println!("  resident: {} MiB", resident());
    token.cancel();
    controller.await.unwrap().unwrap();
}

/// Waits for something that goes on.
async fn progress(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < STUCK * 10, "{what}: not within {:?}", STUCK * 10);
        tokio::time::sleep(LOOK).await;
    }
}

/// A line of `/proc/self/status`, in MiB.
fn memory(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// CPU time that this process has used, by the ticks of the kernel (100 a second).
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks = fields.split_whitespace().skip(11).take(2);
    Duration::from_millis(10) * ticks.map(|field| field.parse::<u32>().unwrap()).sum()
}

fn peak() -> u64 {
    memory("VmHWM")
}

fn resident() -> u64 {
    memory("VmRSS")
}

/// The placement of all workloads: two seats, the first on the member that dies, the other one anywhere.
pub(crate) fn placement() -> Value {
    let weight = |name: String, weight: i64| serde_json::json!({"targetCluster": {"clusterNames": [name]}, "weight": weight});
    let weights: Vec<Value> =
        (0..MEMBERS).map(|at| weight(hub::name(at), if at == 0 { 2 } else { 1 })).collect();
    serde_json::json!({"replicaScheduling": {
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": {"staticWeightList": weights},
    }})
}
