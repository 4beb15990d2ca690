//! What a large standing federation costs: `cargo xtask bench scale -- MEMBERS BINDINGS`, `1000 100000` without arguments.
//!
//! Four processes: the hub (the embedded API server in memory, behind HTTPS), the real `atoll controller` with history in
//! SQLite, a crowd of stub agents with keys and TLS connections of their own, and this one, which measures. A federation of
//! a tenth of the size is measured first, so that each figure has a slope: 1.0 means that it grows with the size.
#![allow(clippy::print_stdout, reason = "a benchmark prints what it measures")]
#![allow(clippy::unwrap_used, reason = "a benchmark that fails says where")]

mod content;
mod figures;
mod stage;
#[allow(dead_code, reason = "each benchmark uses a part of it")]
#[path = "../support/mod.rs"]
mod support;

use atoll_controller::schedule::LINTS_DECISIONS;
use figures::Figures;
use stage::Stage;
use support::{agents, child, hub};

/// Members and bindings if none are given.
const SIZE: [usize; 2] = [1_000, 100_000];
/// How much smaller the first federation is.
const SMALLER: usize = 10;

fn main() {
    if LINTS_DECISIONS {
        panic!("the linter checks each decision in this build: run `cargo xtask bench scale`");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    match std::env::var(child::ROLE).as_deref() {
        Ok("hub") => runtime.block_on(stage::serve_hub()),
        Ok("agents") => runtime.block_on(agents::run()),
        _ => runtime.block_on(conduct()),
    }
}

async fn conduct() {
    let given: Vec<usize> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let [members, bindings] = match given[..] {
        [] => SIZE,
        [members, bindings] => [members, bindings],
        _ => panic!("give the number of members and of bindings, or nothing"),
    };
    let smaller = (members / SMALLER, bindings / SMALLER);
    assert!(
        smaller.0 >= 2 * content::NAMESPACES && smaller.1 >= content::NAMESPACES,
        "give at least {} members and {} bindings: the federation of a tenth of the size needs two members and a workload \
         for each policy",
        2 * content::NAMESPACES * SMALLER,
        content::NAMESPACES * SMALLER
    );
    let small = measure(smaller.0, smaller.1).await;
    let large = measure(members, bindings).await;
    println!(
        "slopes from {} to {members} members, {} to {bindings} bindings:",
        smaller.0, smaller.1
    );
    figures::slopes(&small, &large, SMALLER as f64);
}

/// Sets a federation up and measures it.
async fn measure(members: usize, bindings: usize) -> Figures {
    println!("{members} members, {bindings} bindings");
    let mut figures = Figures::default();
    let mut stage = Stage::set_up(members).await;
    stage.empty(&mut figures);
    stage.fill(bindings, &mut figures).await;
    stage.idle(&mut figures).await;
    stage.lists(&mut figures).await;
    stage.edit(&mut figures).await;
    stage.relabel(&mut figures).await;
    stage.restart(&mut figures).await;
    stage.end().await;
    figures
}
