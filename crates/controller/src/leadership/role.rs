//! Whether this process leads, and the steps between following and leading.

use tokio::time::Instant;

use super::Leading;
use super::catch_up::{CatchUp, Newer};
use super::jobs::JobDone;
use super::take_over::TakeOver;
use crate::leader::LeaderTerm;

/// Whether this process leads.
pub(crate) enum Role {
    /// It does not: it only follows the hub.
    Follower,
    /// It will: its tables do not have yet what the hub has.
    CatchingUp(CatchUp),
    /// It will: not all committed decisions were passed on yet.
    TakingOver(Box<TakeOver>),
    /// It does.
    Leading(Box<Leading>),
}

impl Role {
    /// Earliest pending deadline.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        match self {
            Self::Follower | Self::CatchingUp(_) | Self::TakingOver(_) => None,
            Self::Leading(leading) => leading.next_timer(),
        }
    }

    /// The next result; waits forever while there is none.
    pub(crate) async fn next(&mut self) -> Done {
        match self {
            Self::Follower | Self::TakingOver(_) => std::future::pending().await,
            Self::CatchingUp(catch_up) => catch_up.next().await.map_or(Done::CaughtUp, Done::Newer),
            Self::Leading(leading) => Done::Job(leading.jobs.next().await),
        }
    }

    /// The term, of a leadership that is complete or not.
    pub(crate) fn term(&self) -> Option<LeaderTerm> {
        match self {
            Self::Follower => None,
            Self::CatchingUp(catch_up) => Some(catch_up.term),
            Self::TakingOver(take_over) => Some(take_over.term()),
            Self::Leading(leading) => Some(leading.term),
        }
    }
}

/// What a role has done.
pub(crate) enum Done {
    /// A job of the leader ended.
    Job(JobDone),
    /// Bindings that the tables lack.
    Newer(Newer),
    /// The tables lack none.
    CaughtUp,
}
