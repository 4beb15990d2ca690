//! The member's API server as the users of the hub reach it.

use std::sync::Arc;

use atoll_access::identity::Passed;
use tokio::sync::Semaphore;

/// Memory for the bodies of all requests that have not been sent to the member yet, in KiB: a compromised controller
/// must not use up the memory of the agent's container.
const BODIES_KIB: usize = 32 << 10;

/// The member's API server as the users of the hub reach it.
pub(crate) struct Proxy {
    pub(super) client: kube::Client,
    pub(super) passed: Passed,
    pub(super) bodies: Arc<Semaphore>,
}

impl Proxy {
    /// A proxy with the agent's own client, which impersonates.
    pub(crate) fn new(client: kube::Client, passed: Passed) -> Arc<Self> {
        Arc::new(Self { client, passed, bodies: Arc::new(Semaphore::new(BODIES_KIB)) })
    }
}
