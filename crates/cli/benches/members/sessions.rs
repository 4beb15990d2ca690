//! Idle sessions, a restart of the controller, one object to everybody, and one member that does not read.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use atoll_api::cluster::Cluster;
use serde_json::Value;
use tokio::time::timeout;

use crate::child::Process;
use crate::hub::ApiServer;

/// How long idle sessions are looked at.
const IDLE: Duration = Duration::from_secs(30);
/// From the last write of a member's status to the first look.
const SETTLE: Duration = Duration::from_secs(15);
/// Longest time until the hub knows all members' facts.
const READY_LIMIT: Duration = Duration::from_secs(300);
/// Members of the comparison with one that does not read.
const COMPARED: usize = 100;
/// Objects of a round and member, and bytes of one: 40 MiB for all members, 400 KiB for each; 8 rounds.
const OBJECTS: usize = 100;
const OBJECT_BYTES: usize = 4_000;
const ROUNDS: usize = 8;

/// Hub, controller and agents.
struct Stage {
    hub: ApiServer,
    settings: BTreeMap<&'static str, String>,
}

impl Stage {
    async fn set_up(members: usize) -> Self {
        let (hub, _) = ApiServer::hub(members).await;
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let settings = BTreeMap::from([
            ("KUBECONFIG", hub.kubeconfig.display().to_string()),
            ("ADDRESS", format!("127.0.0.1:{port}")),
            ("MEMBERS", members.to_string()),
            ("TERM", "1".to_owned()),
            ("DESIRED", String::new()),
        ]);
        Self { hub, settings }
    }

    fn controller(&self) -> Process {
        Process::start("controller", &self.settings)
    }

    /// Waits until the hub knows every member as ready: no more first writes.
    async fn all_ready(&self, members: usize) {
        let ready = |cluster: &Cluster| {
            let status = cluster.status.as_ref();
            let conditions = status.map_or(&[][..], |status| &status.conditions);
            conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True")
        };
        let wait = async {
            loop {
                let list = self.hub.clusters().list(&Default::default()).await.unwrap();
                if list.items.iter().filter(|cluster| ready(cluster)).count() == members {
                    return;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        timeout(READY_LIMIT, wait).await.expect("all members are ready in time");
    }
}

fn number(answer: &Value, field: &str) -> u64 {
    answer[field].as_u64().unwrap()
}

fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

pub(crate) async fn measure(members: usize) {
    let mut stage = Stage::set_up(members).await;
    let mut controller = stage.controller();
    controller.ask("agreed 0").await;
    let empty = number(&controller.ask("stats").await, "resident_kib");
    let mut agents = Process::start("agents", &stage.settings);
    agents.ask("ready").await;
    controller.ask(&format!("agreed {members}")).await;
    stage.all_ready(members).await;
    tokio::time::sleep(SETTLE).await;

    let before = controller.ask("stats").await;
    let since = Instant::now();
    tokio::time::sleep(IDLE).await;
    let after = controller.ask("stats").await;
    let cpu = (number(&after, "cpu_ms") - number(&before, "cpu_ms")) as f64
        / since.elapsed().as_millis() as f64;
    let resident = number(&after, "resident_kib");
    println!("{members} members, idle:");
    println!(
        "  memory of the controller   {:.0} MiB, {:.0} MiB before the first session",
        mib(resident),
        mib(empty)
    );
    println!(
        "  memory of a session        {:.1} KiB",
        resident.saturating_sub(empty) as f64 / members as f64
    );
    println!("  CPU of the controller      {cpu:.3} cores (heartbeats of 5 s)");

    let mut reached = Vec::new();
    for round in ["warm", "one", "two", "three"] {
        let answer = controller.ask(&format!("set {round} 0 {members} 1 1000")).await;
        reached.push((number(&answer, "ms"), number(&answer, "cpu_ms")));
    }
    let best = reached[1..].iter().min().unwrap();
    println!(
        "  one object to all          {} ms and back, {} ms CPU of the controller (best of 3)",
        best.0, best.1
    );

    // The next controller knows the same as the one before.
    controller.kill().await;
    stage.settings.insert("TERM", "2".to_owned());
    stage.settings.insert("DESIRED", "warm".to_owned());
    let mut controller = stage.controller();
    let answer = controller.ask(&format!("agreed {members}")).await;
    println!(
        "  all back after a restart   {} ms from the start of the process",
        number(&answer, "ms")
    );
    let peak = number(&controller.ask("stats").await, "resident_kib");
    println!("  memory just after          {:.0} MiB", mib(peak));
    agents.kill().await;
    controller.kill().await;
}

/// Deltas to 99 members while the hundredth reads, and while it does not. The rounds alternate, because the machine does
/// other things too; the middle one of each kind counts.
pub(crate) async fn one_does_not_read() {
    let stage = Stage::set_up(COMPARED).await;
    let mut controller = stage.controller();
    let mut agents = Process::start("agents", &stage.settings);
    agents.ask("ready").await;
    controller.ask(&format!("agreed {COMPARED}")).await;
    stage.all_ready(COMPARED).await;
    let last = COMPARED - 1;
    let (mut reading, mut stuck) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS * 2 {
        let times = if round % 2 == 0 { &mut reading } else { &mut stuck };
        if round % 2 == 1 {
            agents.ask(&format!("shut {last}")).await;
        }
        let set = format!("set r{round} 0 {COMPARED} {OBJECTS} {OBJECT_BYTES} {last}");
        times.push(number(&controller.ask(&set).await, "ms"));
        if round % 2 == 1 {
            agents.ask(&format!("open {last}")).await;
        }
    }
    let rate = |times: &mut Vec<u64>| {
        times.sort_unstable();
        let middle = times[times.len() / 2];
        ((COMPARED - 1) * OBJECTS) as f64 * 1000.0 / middle as f64
    };
    let (all, without) = (rate(&mut reading), rate(&mut stuck));
    println!(
        "{COMPARED} members, {OBJECTS} objects of {OBJECT_BYTES} bytes to each, again and again:"
    );
    println!("  all read                   {all:.0} objects/s to 99 of them");
    println!("  one does not read          {without:.0} objects/s to the other 99");
    println!("  ratio                      {:.3}", without / all);
    agents.kill().await;
    controller.kill().await;
}
