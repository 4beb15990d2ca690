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
mod record;

use std::time::Duration;

use atoll_api::Clock;
use tokio_util::sync::CancellationToken;

pub(crate) use keeper::{Held, LeaseError};

use crate::key::{GroupKind, Key};
use crate::member::{Fence, Member, MemberError, Target};
use atoll_api::{Backoff, Jitter};

/// Name of the Lease.
const NAME: &str = "atoll-agent";
/// Backoff while the member's API fails.
const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(500), most: Duration::from_secs(5) };

/// Times of the Lease.
#[derive(Debug, Clone, Copy)]
pub struct LeaseTimes {
    /// How long a record that is not renewed keeps other agents from taking it.
    pub duration: Duration,
    /// Time between renewals.
    pub renew: Duration,
    /// How long the holder keeps writing without a renewal; shorter than `duration` by more than the time of a call.
    pub deadline: Duration,
    /// Interval of checks of a Lease that another agent holds.
    pub retry: Duration,
}

impl Default for LeaseTimes {
    /// 15 s, 5 s, 10 s, 2 s: client-go's, with half the renewals.
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew: Duration::from_secs(5),
            deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// Inputs for holding the Lease.
#[derive(Clone)]
pub(crate) struct LeaseOptions {
    /// Namespace on the member.
    pub namespace: String,
    /// Name of this agent; two running agents must not share one.
    pub instance: String,
    /// Times.
    pub times: LeaseTimes,
    /// Wall clock, for the human-readable times in the record.
    pub clock: Clock,
    /// Jitter.
    pub jitter: Jitter,
}

fn target() -> Target {
    Target::builtin("coordination.k8s.io", "v1", "Lease", "leases", true)
}

fn key(namespace: &str) -> Key {
    Key {
        kind: GroupKind::new("coordination.k8s.io", "Lease"),
        namespace: namespace.to_owned(),
        name: NAME.to_owned(),
    }
}

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
                tracing::info!(epoch = record.epoch, "the lease is ours");
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

/// Whether a write failed because the record was changed meanwhile.
fn is_race(error: &MemberError) -> bool {
    error.is_conflict() || error.is_already_exists()
}
