//! The controller's addresses, and the backoff between attempts.

use std::time::Duration;

use atoll_protocol::transport::{EPOCH_FLOOR, answered};
use tonic::Code;

use atoll_api::{Backoff, Jitter};

/// Backoff after a refusal that needs a person to resolve it (revoked, another agent's identity).
const REFUSED: Backoff = Backoff { first: Duration::from_secs(5), most: Duration::from_secs(60) };
/// Delay before the next round after a round of non-leaders.
const NOT_LEADER: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(1000));

/// Why there is no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// This controller does not lead; another one does or will shortly.
    NotLeader,
    /// The controller refuses this agent's identity.
    Identity,
    /// The controller has seen this epoch of the member, which is higher than the agent's.
    Epoch(u64),
    /// Any transient cause: no connection, an error, an end.
    Other,
}

impl Refusal {
    /// Classifies an error of the controller.
    #[must_use]
    pub(crate) fn of(status: &tonic::Status) -> Self {
        let floor =
            status.metadata().get(EPOCH_FLOOR).and_then(|text| text.to_str().ok()?.parse().ok());
        if let Some(floor) = floor {
            return Self::Epoch(floor);
        }
        if !answered(status) {
            return Self::Other;
        }
        match status.code() {
            Code::Unavailable if status.message().starts_with("not leader") => Self::NotLeader,
            Code::Unauthenticated
            | Code::PermissionDenied
            | Code::FailedPrecondition
            | Code::AlreadyExists
            | Code::InvalidArgument => Self::Identity,
            _ => Self::Other,
        }
    }
}

/// The addresses, tried in turn.
#[derive(Debug)]
pub(crate) struct Addresses {
    list: Vec<String>,
    at: usize,
    /// Failed attempts since the last wait.
    tried: usize,
    /// Rounds without success.
    failures: u32,
    /// A controller of this round answered that another one leads.
    not_leader: bool,
    backoff: Backoff,
    jitter: Jitter,
}

impl Addresses {
    /// Starts with the first; `None` without any.
    #[must_use]
    pub(crate) fn new(list: Vec<String>, backoff: Backoff, jitter: Jitter) -> Option<Self> {
        (!list.is_empty()).then_some(Self {
            list,
            at: 0,
            tried: 0,
            failures: 0,
            not_leader: false,
            backoff,
            jitter,
        })
    }

    /// The address to try.
    #[must_use]
    pub(crate) fn current(&self) -> &str {
        &self.list[self.at]
    }

    /// Records a failure; returns how long to wait before the next attempt. All addresses are tried before a wait.
    pub(crate) fn failed(&mut self, why: &Refusal) -> Duration {
        self.at = (self.at + 1) % self.list.len();
        self.tried += 1;
        self.not_leader |= *why == Refusal::NotLeader;
        if matches!(why, Refusal::Identity | Refusal::Epoch(_)) {
            self.failures += 1;
            return REFUSED.half_jitter(self.failures, &self.jitter);
        }
        if self.tried < self.list.len() {
            return Duration::ZERO;
        }
        self.tried = 0;
        if std::mem::take(&mut self.not_leader) {
            return self.jitter.between(NOT_LEADER.0, NOT_LEADER.1);
        }
        self.failures += 1;
        self.backoff.full_jitter(self.failures, &self.jitter)
    }

    /// A session was established.
    pub(crate) fn worked(&mut self) {
        self.tried = 0;
        self.failures = 0;
        self.not_leader = false;
    }

    /// The session ended; the same address is tried first, because only the connection may have failed.
    pub(crate) fn lost(&mut self) -> Duration {
        self.failures = 1;
        self.backoff.full_jitter(1, &self.jitter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(names: &[&str]) -> Addresses {
        let backoff = Backoff { first: Duration::from_millis(500), most: Duration::from_secs(8) };
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Addresses::new(names, backoff, Jitter::new(3)).unwrap()
    }

    #[test]
    fn all_addresses_are_tried_before_there_is_a_wait() {
        let mut addresses = addresses(&["a", "b", "c"]);
        for expected in ["a", "b"] {
            assert_eq!(addresses.current(), expected);
            assert_eq!(addresses.failed(&Refusal::Other), Duration::ZERO);
        }
        assert_eq!(addresses.current(), "c");
        assert!(addresses.failed(&Refusal::Other) <= Duration::from_millis(500));
        assert_eq!(addresses.current(), "a");
    }

    #[test]
    fn a_non_leader_costs_at_most_a_second_however_often() {
        let mut addresses = addresses(&["a", "b"]);
        for _ in 0..100 {
            assert!(addresses.failed(&Refusal::NotLeader) <= Duration::from_secs(1));
        }
        // A dead address among them changes nothing.
        for _ in 0..100 {
            let waits = [addresses.failed(&Refusal::Other), addresses.failed(&Refusal::NotLeader)];
            assert!(waits.iter().sum::<Duration>() <= Duration::from_secs(1), "{waits:?}");
        }
    }

    #[test]
    fn a_revoked_agent_does_not_knock_all_day() {
        let mut addresses = addresses(&["a"]);
        let waits: Vec<_> = (0..10).map(|_| addresses.failed(&Refusal::Identity)).collect();
        assert!(waits[0] >= REFUSED.first / 2 && waits[9] >= REFUSED.most / 2, "{waits:?}");
        addresses.worked();
        assert!(addresses.lost() <= Duration::from_millis(500));
        let revoked = tonic::Status::permission_denied("revoked");
        assert_eq!(Refusal::of(&revoked), Refusal::Identity);
        assert_eq!(Refusal::of(&tonic::Status::unavailable("not leader")), Refusal::NotLeader);
        assert_eq!(Refusal::of(&tonic::Status::unavailable("tcp connect")), Refusal::Other);
    }
}
