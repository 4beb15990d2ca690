//! What every database does for history.

use std::fmt;
use std::pin::Pin;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;

use crate::{
    Event, Filter, FilterError, MemberFilter, MemberPage, Milestone, Record, Resident, Row,
};

/// A future in a box: the trait is used as `dyn Store`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Tells when what was written is on the database's disk. An error says that it may be lost: write it again.
pub type Safe = BoxFuture<'static, Result<(), StoreError>>;

/// A database of records. Rows are written once and never changed.
pub trait Store: Send + Sync + 'static {
    /// Writes records in this order, all or none; those whose id is there already are left as they are. A record that
    /// does not know its `before` gets its parent's `after`. On a new connection it is refused once with
    /// [`StoreError::Reconnected`]: write what was acknowledged lately again, then this.
    fn insert<'a>(&'a self, records: &'a [Record]) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Like [`Store::insert`], but may come back as soon as the rows are there, before they are safe: meanwhile the next ones
    /// can be written. Rows that were written later are safe later.
    fn write<'a>(&'a self, records: &'a [Record]) -> BoxFuture<'a, Result<Safe, StoreError>> {
        Box::pin(async move {
            self.insert(records).await?;
            let safe: Safe = Box::pin(std::future::ready(Ok(())));
            Ok(safe)
        })
    }

    /// Records that match, newest first, without details; at most `limit`, from after the given position on.
    fn page<'a>(
        &'a self,
        filter: &'a Filter,
        limit: usize,
        after: Option<Position>,
    ) -> BoxFuture<'a, Result<Page, StoreError>>;

    /// One record with its detail.
    fn get<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Row>, StoreError>>;

    /// Records that match in the order in which they were written, without details: at most `limit` of those after
    /// row `seq`.
    fn tail<'a>(
        &'a self,
        filter: &'a Filter,
        seq: i64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Row>, StoreError>>;

    /// The number of the last row, 0 without rows.
    fn last(&self) -> BoxFuture<'_, Result<i64, StoreError>>;

    /// Changes whenever this process has written rows.
    fn written(&self) -> watch::Receiver<u64>;

    /// uids of the withdrawn bindings whose removal this member had not confirmed when they were recorded: the proof
    /// by which objects of a binding that is no more are removed from a member that was away.
    fn unconfirmed<'a>(
        &'a self,
        cluster: &'a str,
    ) -> BoxFuture<'a, Result<Vec<String>, StoreError>>;

    /// The newest row of each of these bindings (by uid), in the order of writing, whatever its clock said. Bindings
    /// without rows are left out. Ask for at most [`NEWEST`] at once.
    fn newest<'a>(
        &'a self,
        bindings: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Newest>, StoreError>>;

    /// Writes events; those that are there already are left as they are, so that a milestone keeps its first time.
    fn note<'a>(&'a self, events: &'a [Event]) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Milestones of these decisions, by decision, then time, then stage; at most [`MILESTONES`].
    fn milestones<'a>(
        &'a self,
        decisions: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Milestone>, StoreError>>;

    /// What happened to members, newest first: at most `limit`, from after the given position on.
    fn member_events<'a>(
        &'a self,
        filter: &'a MemberFilter,
        limit: usize,
        after: Option<Position>,
    ) -> BoxFuture<'a, Result<MemberPage, StoreError>>;

    /// What the leader does now and then: brings the schema to this version's, makes tables ahead of time, and gives up
    /// what was decided longer than `retention` ago. What stands stays: the last decision of every binding that has not
    /// ended, and of every share. A database that drops whole weeks keeps up to one week more.
    fn maintain(
        &self,
        now: Timestamp,
        retention: Duration,
    ) -> BoxFuture<'_, Result<Maintained, StoreError>>;

    /// Who had a share on this cluster at this time, by namespace, kind and name.
    fn residents<'a>(
        &'a self,
        cluster: &'a str,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<Resident>, StoreError>>;
}

/// What [`Store::maintain`] gave up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Maintained {
    /// Weeks that were dropped as a whole.
    pub weeks: u64,
    /// Decisions that were deleted one by one.
    pub decisions: u64,
}

/// The newest row of a binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Newest {
    /// uid of the binding.
    pub binding_uid: String,
    /// Id of the decision.
    pub decision: String,
    /// Term of the leader that made it.
    pub term: i64,
    /// Whether it records that the binding was withdrawn.
    pub withdrawn: bool,
}

/// Bindings that one call of [`Store::newest`] asks for at most: some milliseconds of an index.
pub const NEWEST: usize = 1_000;

/// Milestones of one answer at most: those of a page of 100 decisions on 100 members.
pub const MILESTONES: usize = 50_000;

/// Part of a list.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page {
    /// The records.
    pub rows: Vec<Row>,
    /// Where the next page starts, when there is more.
    pub next: Option<Position>,
}

/// A place in the order of a list: newest first, rows of the same second by their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Of the row, in microseconds since 1970.
    pub(crate) decided_at: i64,
    pub(crate) seq: i64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{:x}", self.decided_at, self.seq)
    }
}

impl FromStr for Position {
    type Err = FilterError;

    fn from_str(token: &str) -> Result<Self, FilterError> {
        let parse = || {
            let (decided_at, seq) = token.split_once('.')?;
            let number = |hex| i64::from_str_radix(hex, 16).ok().filter(|number| *number >= 0);
            Some(Self { decided_at: number(decided_at)?, seq: number(seq)? })
        };
        parse().ok_or_else(|| {
            FilterError::new(
                "continue",
                token,
                "is no token of an earlier page: list from the start",
            )
        })
    }
}

/// Why a store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database cannot be opened.
    #[error("open the history database {path}")]
    Open {
        /// Where it is.
        path: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The schema cannot be brought to this version's.
    #[error("migrate the history database {path}")]
    Migrate {
        /// Where it is.
        path: String,
        /// Why; a later version's database says so.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It does not work now and may later: away, locked, read-only, full.
    #[error("{doing} history")]
    Unavailable {
        /// The operation.
        doing: &'static str,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The connection is a new one, and nothing was written: what was acknowledged on the one before may be gone, when the
    /// database failed over to a copy that lacked its last commits. Told once for each connection.
    #[error("{doing} history: connected anew")]
    Reconnected {
        /// The operation.
        doing: &'static str,
    },
    /// No answer in time. It may have been done all the same.
    #[error("{doing} history: no answer in {} s", after.as_secs())]
    TimedOut {
        /// The operation.
        doing: &'static str,
        /// The limit.
        after: Duration,
    },
    /// It will never work with these values.
    #[error("{doing} history: refused by the database")]
    Refused {
        /// The operation.
        doing: &'static str,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl StoreError {
    /// Whether it is these values that the database will never take. Everything else may work later, if only with
    /// another database or another version of this program.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    /// Whether the same may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::TimedOut { .. } | Self::Reconnected { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_and_foreign_ones_are_refused() {
        let position = Position { decided_at: 1_790_000_000_000_000, seq: 42 };
        assert_eq!(position.to_string().parse(), Ok(position));
        for bad in
            ["", ".", "1", "-1.1", "1.-1", "x.y", "1.1.1", "1 OR 1=1", "ffffffffffffffffff.1"]
        {
            let error = bad.parse::<Position>().unwrap_err().to_string();
            assert!(error.starts_with("continue"), "{error}");
        }
    }
}
