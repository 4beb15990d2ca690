//! The agent's Lease on the member: at most one agent acts, and every acquisition has a number.
//!
//! The number (the epoch) goes with every session, so that the controller tells an agent that was replaced from the one
//! that replaced it. The Lease also keeps the highest term of a leader that the agent acted on.
//!
//! client-go's rules: expiry counts from when *we* last saw the record change, never by the holder's clock; writes are
//! guarded by resourceVersion. Two things differ. An agent that is named like the holder takes the Lease at once, because
//! no two run under one name; that is how a restart goes on without waiting. And a holder that cannot renew does not give
//! up its session: it stops writing (the fence) and says that the API is unhealthy, until a renewal shows whether the Lease
//! is still its own.

mod keeper;
mod record;

use std::time::Duration;

use atoll_api::Clock;
use tokio_util::sync::CancellationToken;

pub(crate) use keeper::{Held, LeaseError};

use crate::backoff::{Backoff, Jitter};
use crate::key::{GroupKind, Key};
use crate::member::{Fence, Member, MemberError, Target};

/// Name of the Lease.
const NAME: &str = "atoll-agent";
/// Waits between tries to get the Lease while the member's API fails.
const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(500), most: Duration::from_secs(5) };

/// Times of the Lease.
#[derive(Debug, Clone, Copy)]
pub struct LeaseTimes {
    /// How long an unrenewed record holds others off.
    pub duration: Duration,
    /// Time between renewals.
    pub renew: Duration,
    /// How long the holder goes on writing without a renewal; below `duration` by more than a call's time.
    pub deadline: Duration,
    /// Time between looks at a Lease that somebody else holds.
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

/// What it takes to hold the Lease.
#[derive(Clone)]
pub(crate) struct LeaseOptions {
    /// Namespace on the member.
    pub namespace: String,
    /// Name of this agent; no two run under one at a time.
    pub instance: String,
    /// Times.
    pub times: LeaseTimes,
    /// Wall clock, for the record's times that people read.
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

/// Waits until the Lease is this agent's; `None` when the token ends the wait. Failures of the member's API are logged and
/// waited out.
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

/// Whether a write failed because the record is another one by now.
fn is_race(error: &MemberError) -> bool {
    error.is_conflict() || error.is_already_exists()
}
