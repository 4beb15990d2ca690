//! Times and other inputs for holding the Lease.

use std::time::Duration;

use atoll_api::{Clock, Jitter};

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
