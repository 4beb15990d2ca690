//! What members cost the controller, and what an agent costs its member: `cargo xtask bench members`.
//!
//! This process is the hub (an embedded API server behind HTTPS) and the conductor. It starts itself again as the
//! controller and as a crowd of agents, so that memory and CPU of each are its own: stub agents, but with keys,
//! certificates, TLS and HTTP/2 of their own, each on its own TCP connection. The agent whose memory is measured is the
//! real `atoll agent`. Arguments: the numbers of members, `1000 5000` without any.
#![allow(clippy::print_stdout, reason = "a benchmark prints what it measures")]
#![allow(clippy::unwrap_used, reason = "a benchmark that fails says where")]

mod controller;
mod real_agent;
mod sessions;
#[allow(dead_code, reason = "each benchmark uses a part of it")]
#[path = "../support/mod.rs"]
mod support;

use support::{agents, child, hub};

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    match std::env::var(child::ROLE).as_deref() {
        Ok("controller") => runtime.block_on(controller::run()),
        Ok("agents") => runtime.block_on(agents::run()),
        _ => runtime.block_on(conduct()),
    }
}

async fn conduct() {
    let sizes: Vec<usize> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let sizes = if sizes.is_empty() { vec![1_000, 5_000] } else { sizes };
    for members in sizes {
        sessions::measure(members).await;
    }
    sessions::one_does_not_read().await;
    real_agent::measure().await;
}
