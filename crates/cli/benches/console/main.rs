//! How fast the pages of the console are with 5,000 members and 100,000 bindings, beside a bare server that sends the same
//! bytes: `cargo xtask bench console -- MEMBERS BINDINGS`.
//!
//! Three processes: the hub (the embedded API server in memory behind HTTPS, with history in SQLite), the real
//! `atoll console`, which `taskset` keeps on one core, and this one, which asks for pages one after the other.
#![allow(clippy::print_stdout, reason = "a benchmark prints what it measures")]
#![allow(clippy::unwrap_used, reason = "a benchmark that fails says where")]

mod content;
#[allow(dead_code, unused_imports, reason = "the program and its tests use the rest")]
#[path = "../../src/decisions.rs"]
mod decisions;
mod pages;
#[allow(dead_code, reason = "each benchmark uses a part of it")]
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use content::Content;
use pages::{Browser, Times};
use serde_json::json;
use support::child::{self, Process, answer, setting};
use support::hub::ApiServer;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// Members and bindings if none are given.
const SIZE: [usize; 2] = [5_000, 100_000];
/// Requests for each page before those that count.
const WARM: usize = 5;
/// Requests for each page.
const REQUESTS: usize = 200;
/// How often a browser reads a page that changes.
const AGAIN: Duration = Duration::from_secs(1);
/// The aim for the 99th percentile.
const AIM: Duration = Duration::from_millis(200);

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    match std::env::var(child::ROLE).as_deref() {
        Ok("hub") => runtime.block_on(serve_hub()),
        _ => runtime.block_on(conduct()),
    }
}

/// The hub in its own process.
async fn serve_hub() {
    let (hub, _) = ApiServer::hub(0).await;
    let number = |name: &str| setting(name).parse::<usize>().unwrap();
    let content = Content { members: number("MEMBERS"), bindings: number("BINDINGS") };
    let folder = tempfile::tempdir().unwrap();
    let decision = content.fill(&hub.client).await;
    let history = content.history(folder.path(), &decision).await;
    for kind in decisions::Decisions::all(&history) {
        hub.server.mount(kind);
    }
    answer(async |_| json!({"kubeconfig": hub.kubeconfig, "ids": content::ids()})).await;
}

async fn conduct() {
    let given: Vec<usize> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let [members, bindings] = match given[..] {
        [] => SIZE,
        [members, bindings] => [members, bindings],
        _ => panic!("give the number of members and of bindings, or nothing"),
    };
    let settings =
        BTreeMap::from([("MEMBERS", members.to_string()), ("BINDINGS", bindings.to_string())]);
    let start = Instant::now();
    let mut hub = Process::start("hub", &settings);
    let ready = hub.ask("ready").await;
    println!(
        "{members} members, {bindings} bindings; the hub was filled in {:.0?}",
        start.elapsed()
    );
    let kubeconfig = ready["kubeconfig"].as_str().unwrap();
    let ids: Vec<&str> =
        ready["ids"].as_array().unwrap().iter().filter_map(|id| id.as_str()).collect();
    let (_console, url) = console(Path::new(kubeconfig)).await;
    let mut browser = Browser::enter(&url).await;
    first_pages(&mut browser).await;
    println!(
        "{:<42} {:>9} {:>9} {:>9} {:>9} {:>7}",
        "page", "bytes", "p50", "p99", "bare p99", "ratio"
    );
    let mut slow = Vec::new();
    for (name, path) in addresses(members, &ids) {
        let (page, times) = measure(&mut browser, &path).await;
        let bare = pages::bare(page.clone()).await;
        let (_, reference) = measure(&mut Browser::plain(&bare).await, "/").await;
        let ratio = times.p99.as_secs_f64() / reference.p99.as_secs_f64();
        println!(
            "{name:<42} {:>9} {:>9.1?} {:>9.1?} {:>9.2?} {ratio:>7.0}",
            page.len(),
            times.p50,
            times.p99,
            reference.p99
        );
        if times.p99 > AIM {
            slow.push(name);
        }
    }
    println!(
        "above {AIM:?}: {}",
        if slow.is_empty() { "none".to_owned() } else { slow.join(", ") }
    );
    hub.end().await;
}

/// Reads the overview as a browser does, once a second, until the console has read all members and bindings.
async fn first_pages(browser: &mut Browser) {
    let start = Instant::now();
    let mut took = Vec::new();
    loop {
        let asked = Instant::now();
        let page = browser.get("/").await;
        took.push(asked.elapsed());
        if !String::from_utf8_lossy(&page).contains("still being read from the hub") {
            break;
        }
        tokio::time::sleep(AGAIN).await;
    }
    println!(
        "the first page: {:.1?}; all members and bindings were read after {:.1?}, the slowest of {} pages until then: {:.1?}",
        took[0],
        start.elapsed(),
        took.len(),
        took.iter().max().unwrap()
    );
}

/// The pages, with their addresses.
fn addresses(members: usize, ids: &[&str]) -> Vec<(&'static str, String)> {
    let workload = content::workload_path();
    vec![
        ("overview", "/".to_owned()),
        ("overview, last members and concerns", "/?members=9999&concerns=9999".to_owned()),
        ("placement", "/placement".to_owned()),
        ("placement, of a namespace", "/placement?namespace=team-7&page=3".to_owned()),
        ("placement, that fail", "/placement?state=Failing".to_owned()),
        ("placement, by name and label", "/placement?name=77&label=team%3D7".to_owned()),
        ("placement, last members", "/placement?columns=9999&page=9999".to_owned()),
        ("workload", workload),
        ("member", format!("/members/{}", support::hub::name(members / 2))),
        ("member, full", format!("/members/{}", support::hub::name(0))),
        ("decisions", "/decisions".to_owned()),
        ("decisions, of a member", format!("/decisions?member={}", support::hub::name(1))),
        ("decision", format!("/decisions/team-0/{}", ids[0])),
        ("difference of two decisions", format!("/diff?from={}&to={}", ids[0], ids[1])),
        ("policies", "/policies".to_owned()),
        ("what if", "/what-if".to_owned()),
    ]
}

async fn measure(browser: &mut Browser, path: &str) -> (Vec<u8>, Times) {
    let mut page = Vec::new();
    for _ in 0..WARM {
        page = browser.get(path).await;
    }
    let mut times = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        let start = Instant::now();
        page = browser.get(path).await;
        times.push(start.elapsed());
    }
    (page, Times::of(times))
}

/// The real console on one core, and the address that opens it.
async fn console(kubeconfig: &Path) -> (Child, String) {
    let mut command = Command::new("taskset");
    command.args(["-c", "0", env!("CARGO_BIN_EXE_atoll")]);
    command.arg("--kubeconfig").arg(kubeconfig).arg("console");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().expect("taskset of util-linux is there");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().expect("the console prints its address");
    let url = line.split_whitespace().last().unwrap().to_owned();
    (child, url)
}
