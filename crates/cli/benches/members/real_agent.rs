//! Memory of the program `atoll-agent` on a member with nodes and pods.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use atoll_api::Clock;
use atoll_controller::members::{TOKEN_LIFE, create_token};
use atoll_simulator::{Member, MemberOptions};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use crate::child::{Process, memory_kib};
use crate::hub::{self, ApiServer};

/// Objects that the agent holds; half of them Deployments with a Pod each.
const OBJECTS: usize = 500;
/// Bytes of one, beside its spec.
const OBJECT_BYTES: usize = 1_000;
/// Time for statuses to come in and buffers to go.
const SETTLE: Duration = Duration::from_secs(20);

pub(crate) async fn measure() {
    let (hub, authority) = ApiServer::hub(1).await;
    let member = ApiServer::start("member").await;
    let stop = CancellationToken::new();
    let options = MemberOptions::standard("member", Clock::system());
    Member::start(member.client.clone(), options, stop.clone()).await.unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let settings = [
        ("KUBECONFIG", hub.kubeconfig.display().to_string()),
        ("ADDRESS", address.clone()),
        ("MEMBERS", "1".to_owned()),
        ("TERM", "1".to_owned()),
        ("DESIRED", String::new()),
    ];
    let mut controller = Process::start("controller", &settings.into());
    let cluster = hub.clusters().get(&hub::name(0)).await.unwrap();
    let clock = Clock::system();
    let token = create_token(&hub.client, &clock, &cluster, TOKEN_LIFE).await.unwrap();
    // Another package's program, as it is published: `cargo xtask bench members` builds it.
    let target = Path::new(env!("CARGO_BIN_EXE_atoll")).ancestors().nth(2).unwrap();
    let program = target.join("agent/atoll-agent");
    assert!(program.is_file(), "build it first: cargo build --profile agent -p atoll-program");
    let mut agent = Command::new(program);
    agent.args(["--address", &address, "--token", &token.reveal(), "--ca-hash"]);
    agent.arg(authority.hash().to_string()).arg("--kubeconfig").arg(&member.kubeconfig);
    agent.stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
    let mut agent = agent.spawn().unwrap();
    let process = agent.id().unwrap();
    controller.ask("agreed 1").await;
    // Everything, and the part that it allocated; the rest is its program.
    let resident = || (memory_kib(process, "VmRSS"), memory_kib(process, "RssAnon"));
    let empty = resident();
    controller.ask(&format!("set held 0 1 {OBJECTS} {OBJECT_BYTES}")).await;
    let just_after = resident();
    tokio::time::sleep(SETTLE).await;
    let settled = resident();
    let mib = |(all, own): (u64, u64)| {
        format!("{:.1} MiB, {:.1} of them allocated", all as f64 / 1024.0, own as f64 / 1024.0)
    };
    println!("atoll-agent, resident memory:");
    println!("  nothing applied            {}", mib(empty));
    println!("  {OBJECTS} objects just applied   {}", mib(just_after));
    println!("  {} s later                 {}", SETTLE.as_secs(), mib(settled));
    agent.kill().await.unwrap();
    controller.kill().await;
    stop.cancel();
}
