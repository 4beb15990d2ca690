//! Requests of the hub's users to the member's API server, over a connection of their own.
//!
//! The agent is the member's guard: it checks path and headers again, whatever the controller passed on, and decides as
//! whom a request runs. It never sends one with its own rights only.

mod answer;
mod connection;
mod request;
mod service;

use std::sync::Arc;

use atoll_access::identity::Passed;
use tokio::sync::Semaphore;

pub(crate) use connection::keep;

/// Memory for the bodies of all requests that have not been sent to the member yet, in KiB: a compromised controller
/// must not use up the memory of the agent's container.
const BODIES_KIB: usize = 32 << 10;

/// The member's API server as the users of the hub reach it.
pub(crate) struct Proxy {
    client: kube::Client,
    passed: Passed,
    bodies: Arc<Semaphore>,
}

impl Proxy {
    /// A proxy with the agent's own client, which impersonates.
    pub(crate) fn new(client: kube::Client, passed: Passed) -> Arc<Self> {
        Arc::new(Self { client, passed, bodies: Arc::new(Semaphore::new(BODIES_KIB)) })
    }
}

#[cfg(test)]
mod tests;
