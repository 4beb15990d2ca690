//! The agent's Lease on the member: at most one agent acts, and every acquisition is counted.
//!
//! The count (the epoch) is sent with every session, so that the controller can tell a replaced agent from its
//! successor. The Lease also stores the highest term of a leader that the agent accepted.
//!
//! client-go's rules apply: expiry counts from when *we* last saw the record change, never by the holder's clock;
//! writes are guarded by resourceVersion. There are two differences. An agent with the holder's name takes the Lease at
//! once, because no two agents run under one name; so a restart does not wait. And a holder that cannot renew keeps its
//! session: it stops writing (the fence) and reports the API as unhealthy, until a renewal shows whether it still holds
//! the Lease.

mod keeper;
mod options;
mod record;

use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub(crate) use keeper::{Held, LeaseError};
pub(crate) use options::LeaseOptions;
pub use options::LeaseTimes;

use crate::member::{Fence, Member};
use atoll_api::Backoff;

/// Backoff while the member's API fails.
const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(500), most: Duration::from_secs(5) };

/// Waits until this agent holds the Lease; `None` when cancelled. Failures of the member's API are logged and retried.
pub(crate) async fn acquire(
    member: &Member,
    options: &LeaseOptions,
    fence: Fence,
    token: &CancellationToken,
) -> Option<Held> {
    let mut attempt = keeper::Attempt::default();
    let mut failures = 0;
    loop {
        let step = tokio::select! {
            biased;
            () = token.cancelled() => return None,
            step = attempt.step(member, options) => step,
        };
        let wait = match step {
            Ok(Some(record)) => {
                tracing::info!(epoch = record.epoch, "acquired the lease");
                return Some(keeper::keep(member.clone(), options.clone(), record, fence));
            }
            Ok(None) => {
                failures = 0;
                options.times.retry
            }
            Err(error) => {
                failures += 1;
                tracing::warn!(error = %error.message(), "cannot get the lease");
                BACKOFF.half_jitter(failures, &options.jitter)
            }
        };
        tokio::select! {
            biased;
            () = token.cancelled() => return None,
            () = tokio::time::sleep(wait) => {}
        }
    }
}
