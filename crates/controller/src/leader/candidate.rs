//! A candidate of the election, and its times.

use std::time::Duration;

/// How often a follower reads the Lease per renewal interval of the leader. A read is one small request.
pub const LOOKS: u32 = 4;

/// Times of the election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTimes {
    /// A record unchanged for this long is free to take. Default 15 s, as in client-go.
    pub duration: Duration,
    /// A leader that could not renew for this long stops. Default 10 s; less than `duration`.
    pub renew_deadline: Duration,
    /// How often the leader renews. Followers read [`LOOKS`] times as often, so that a released lease is taken soon.
    /// Default 2 s.
    pub retry: Duration,
}

impl LeaseTimes {
    /// Times in client-go's proportions, 15 : 10 : 2, for a lease of this duration.
    #[must_use]
    pub fn of(duration: Duration) -> Self {
        Self { duration, renew_deadline: duration * 2 / 3, retry: duration * 2 / 15 }
    }
}

impl Default for LeaseTimes {
    fn default() -> Self {
        Self::of(Duration::from_secs(15))
    }
}

/// A candidate and its Lease.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Our stable identity: the name of the place we run in (the Pod).
    pub place: String,
    /// Distinguishes this start of the process from earlier ones.
    pub incarnation: String,
    /// Where other controllers reach our listener for agents, as HOST:PORT; `None` = they cannot.
    pub address: Option<String>,
    /// Nothing else can run in our place (`up` holds a lock on its folder): a record of the same place belongs to a
    /// process that has ended, and is taken over at once.
    pub exclusive_place: bool,
    /// The times.
    pub times: LeaseTimes,
}

impl Candidate {
    pub(super) fn identity(&self) -> String {
        format!("{}_{}", self.place, self.incarnation)
    }

    pub(super) fn is_dead_predecessor(&self, holder: &str) -> bool {
        self.exclusive_place
            && holder != self.identity()
            && holder.rsplit_once('_').is_some_and(|(place, _)| place == self.place)
    }
}
