//! Mass failover: every workload has a replica on the member that dies, and all of them have to move.
//!
//! `plan` measures the scheduler on one thread, from objects to decisions; `run` measures the whole path, from the
//! taint on the dead member to the orders of the remaining members: the real controller, an API server, and agents that
//! answer everything at once. The pace is off. `bare` then repeats the controller's patches on copies of the bindings,
//! as fast as that API server takes them: the rate that the controller's commits are compared with.
//!
//! `cargo xtask bench failover [-- [--real] BINDINGS...]`; each size runs in its own process, so that memory is measured
//! separately. The API server is the embedded one, in memory and in the same process, or with `--real` kube-apiserver
//! and etcd from the folder `KUBEBUILDER_ASSETS`. Figures are printed as they arise, so that an interrupted run shows its
//! progress.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark that fails has no result"
)]

mod agents;
mod bare;
mod board;
mod hub;
mod plan;
mod server;

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use atoll_api::{Clock, RunsOn};
use atoll_controller::leader::{Candidate, LeaseTimes};
use atoll_controller::members::{HealthTimes, Incoming, Metrics};
use atoll_controller::pace::PaceLimits;
use atoll_controller::schedule::LINTS_DECISIONS;
use atoll_controller::{Controller, Hub, MembersSide};
use atoll_history::MemoryStore;
use atoll_protocol::identity::TrustDomain;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use agents::Fleet;
use board::Board;
use server::{ApiServer, Kind};

/// Number of members. The first one dies.
pub(crate) const MEMBERS: usize = 50;
/// Sizes if none is given.
const SIZES: [usize; 3] = [1_000, 10_000, 100_000];
/// Connections queued for the controller.
const BACKLOG: usize = 64;
/// Time without progress after which the run fails.
const STUCK: Duration = Duration::from_secs(120);
/// Interval of progress checks.
const LOOK: Duration = Duration::from_millis(5);
/// Interval of progress output.
const TELL: Duration = Duration::from_secs(10);
/// Limit of patches for the API server's own figure.
const SAMPLE: u32 = 9_000;
/// Size for a real API server if none is given.
const REAL_SIZE: usize = 3_300;

/// Short, so that the benchmark does not wait for the default of five minutes.
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

// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    if LINTS_DECISIONS {
        panic!("the linter checks each decision in this build: run `cargo xtask bench failover`");
    }
    let mut arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let mut flag = |name: &str| {
        let before = arguments.len();
        arguments.retain(|argument| argument != name);
        arguments.len() < before
    };
    let (one, real) = (flag("--one"), flag("--real"));
    let kind = if real { Kind::Real } else { Kind::Embedded };
    let sizes: Vec<usize> = arguments.iter().map(|size| size.parse().unwrap()).collect();
    if one {
        return self::one(sizes[0], kind);
    }
    let sizes = match (sizes.is_empty(), kind) {
        (false, _) => sizes,
        (true, Kind::Embedded) => SIZES.to_vec(),
        (true, Kind::Real) => vec![REAL_SIZE],
    };
    for size in sizes {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--one", &size.to_string()]).args(real.then_some("--real"));
        let status = command.status().unwrap();
        assert!(status.success(), "{size} bindings: {status}");
    }
}

fn one(bindings: usize, kind: Kind) {
    println!("{bindings} bindings over {MEMBERS} members, all with a replica on the one that dies");
    if kind == Kind::Embedded {
        plan::measure(bindings);
        println!("  resident after planning: {} MiB", resident());
    }
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(run(bindings, kind));
}

async fn run(bindings: usize, kind: Kind) {
    let board = Board::default();
    let server = ApiServer::start(kind, &board).await;
    let client = server.client.clone();
    hub::prepare(&client).await;
    let clock = Clock::system();
    let (arrivals, incoming) = mpsc::channel(BACKLOG);
    let token = CancellationToken::new();
    let clusters = hub::clusters(&client).await;
    let options = Hub {
        client: server.counted.clone(),
        clock: clock.clone(),
        history: Arc::new(MemoryStore::default()),
        retention: Duration::from_secs(86_400),
        candidate: Candidate {
            namespace: "atoll-system".to_owned(),
            name: "atoll-controller".to_owned(),
            place: "bench".to_owned(),
            incarnation: "1".to_owned(),
            address: None,
            exclusive_place: true,
            times: LeaseTimes::default(),
        },
        profiles: Default::default(),
        runs_on: RunsOn::Thread,
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
    hub::fill(&client, bindings, placement_of(kind)).await;
    progress("placed", 2 * bindings, || fleet.upserts()).await;
    // Statuses follow; their writes must not count for the failover.
    quiet(&board, bindings).await;
    println!(
        "  setting up: {:.1?}, CPU of all {:.1?}, hub writes {}, {} MiB resident",
        start.elapsed(),
        cpu(),
        board.summary(),
        resident()
    );

    let before = bare::sample(&client, SAMPLE).await;
    // Counted from before the member dies: the first commits may come before this program sees the taint.
    board.reset();
    let upserts = fleet.upserts();
    fleet.kill(&hub::name(0));
    hub::until_evicting(&client, LOOK).await;
    let start = Instant::now();
    board.keep("bindings");
    let (cpu, server_cpu) = (cpu(), server.cpu());
    // There are as many copies as decisions: the slower figure is the progress.
    progress("moved", bindings, || board.count("bindings").min(fleet.upserts() - upserts)).await;
    let committed = board.last("bindings").unwrap().duration_since(start);
    let dispatched = fleet.last().unwrap().duration_since(start);
    let rate = bindings as f64 / committed.as_secs_f64();
    println!(
        "  decided and committed: {committed:.2?} ({rate:.0} bindings/s through the API server)"
    );
    println!("  dispatched and acknowledged: {dispatched:.2?}");
    let used = self::cpu() - cpu;
    println!(
        "  CPU until then: {:.2} ms a binding, and {:.2} ms of the API server's own processes",
        each(used, bindings),
        each(server.cpu() - server_cpu, bindings)
    );
    let writes = board.total() as f64 / start.elapsed().as_secs_f64();
    println!("  hub writes until then: {} ({writes:.0}/s)", board.summary());
    println!("  resident: {} MiB, peak {} MiB", resident(), peak());
    quiet(&board, bindings).await;
    let used = self::cpu() - cpu;
    println!(
        "  until statuses rest: {:.1?}, hub writes {}, CPU of all {used:.1?}, {:.2} ms a binding",
        start.elapsed(),
        board.summary(),
        each(used, bindings)
    );
    println!("  peak memory of this process: {} MiB", peak());
    token.cancel();
    controller.await.unwrap().unwrap();
    let patches = board.patches();
    let bare = bare::measure(&server, before, &patches).await;
    println!(
        "  ratio of the controller's commits to the best bare loop: {:.2}",
        bindings as f64 / committed.as_secs_f64() / bare
    );
}

fn each(cpu: Duration, bindings: usize) -> f64 {
    cpu.as_secs_f64() * 1000.0 / bindings as f64
}

/// Waits for a count to reach its goal, and prints the progress.
async fn progress(what: &str, goal: usize, count: impl Fn() -> usize) {
    let start = Instant::now();
    let (mut before, mut moved, mut told) = (0, start, start);
    loop {
        let now = count();
        if now >= goal {
            return;
        }
        if now != before {
            (before, moved) = (now, Instant::now());
        }
        assert!(moved.elapsed() < STUCK, "{what}: stuck at {now} of {goal} for {STUCK:?}");
        if told.elapsed() >= TELL {
            told = Instant::now();
            let (after, memory) = (start.elapsed().as_secs(), resident());
            println!("    {what} {now} of {goal} after {after} s, CPU {:.0?}, {memory} MiB", cpu());
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until almost nothing is written any more.
async fn quiet(board: &Board, bindings: usize) {
    let mut before = board.total();
    loop {
        tokio::time::sleep(Duration::from_secs(8)).await;
        let now = board.total();
        if now - before < bindings / 1000 + 20 {
            return;
        }
        before = now;
    }
}

/// A line of `/proc/self/status`, in MiB.
fn memory(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// CPU time of this process.
fn cpu() -> Duration {
    atoll_envtest::cpu_of(std::process::id())
}
fn peak() -> u64 {
    memory("VmHWM")
}

fn resident() -> u64 {
    memory("VmRSS")
}

/// On a real API server the placement is as short as most are; its length is part of every write.
fn placement_of(kind: Kind) -> Value {
    match kind {
        Kind::Embedded => placement(),
        Kind::Real => {
            let weight = |names: Vec<String>, weight: i64| serde_json::json!({"targetCluster": {"clusterNames": names}, "weight": weight});
            weights(&[
                weight(vec![hub::name(0)], 2),
                weight((1..MEMBERS).map(hub::name).collect(), 1),
            ])
        }
    }
}

/// The placement of all workloads: two clusters, the first being the member that dies, the other any.
pub(crate) fn placement() -> Value {
    let weight = |name: String, weight: i64| serde_json::json!({"targetCluster": {"clusterNames": [name]}, "weight": weight});
    let rules: Vec<Value> =
        (0..MEMBERS).map(|at| weight(hub::name(at), if at == 0 { 2 } else { 1 })).collect();
    weights(&rules)
}

fn weights(list: &[Value]) -> Value {
    serde_json::json!({"replicaScheduling": {
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": {"staticWeightList": list},
    }})
}
