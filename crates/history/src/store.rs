//! The interface of all history databases.

use std::fmt;
use std::pin::Pin;
use std::str::FromStr;
use std::time::Duration;

use atoll_api::{BindingUid, DecisionId};
use jiff::Timestamp;
use tokio::sync::watch;

use crate::{
    Event, Filter, FilterError, Frame, MemberFilter, MemberPage, Milestone, Record, Resident, Row,
};

/// A future in a box: the trait is used as `dyn Store`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Completes when the written rows are on the database's disk. An error means that they may be lost: write them again.
pub type Durability = BoxFuture<'static, Result<(), StoreError>>;

/// A database of records. Rows are written once and never changed.
pub trait Store: Send + Sync + 'static {
    /// Writes records in this order, all or none; ids that already exist are skipped. A record without `before` gets
    /// its parent's `after`. The first insert on a new connection fails with [`StoreError::Reconnected`]: repeat
    /// recently acknowledged records, then this insert.
    fn insert<'a>(&'a self, records: &'a [Record]) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Like [`Store::insert`], but may return when the rows are written and not yet durable, so that the next ones can
    /// be written meanwhile. Rows become durable in write order.
    fn write<'a>(&'a self, records: &'a [Record]) -> BoxFuture<'a, Result<Durability, StoreError>> {
        Box::pin(async move {
            self.insert(records).await?;
            let durability: Durability = Box::pin(std::future::ready(Ok(())));
            Ok(durability)
        })
    }

    /// Matching records, newest first, without details; at most `limit`, starting after the given position.
    fn page<'a>(
        &'a self,
        filter: &'a Filter,
        limit: usize,
        after: Option<Position>,
    ) -> BoxFuture<'a, Result<Page, StoreError>>;

    /// One record with its detail.
    fn get<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Row>, StoreError>>;

    /// What a decision read, as its row holds it. `None` without such a decision, `Some(None)` without inputs. See
    /// [`crate::inputs::chain`] for all that is needed.
    fn inputs<'a>(
        &'a self,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Option<Option<Frame>>, StoreError>>;

    /// Matching records in write order, without details: at most `limit` of those after row `seq`.
    fn tail<'a>(
        &'a self,
        filter: &'a Filter,
        seq: i64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Row>, StoreError>>;

    /// The number of the last row, 0 without rows.
    fn last(&self) -> BoxFuture<'_, Result<i64, StoreError>>;

    /// Changes whenever this process writes rows.
    fn written(&self) -> watch::Receiver<u64>;

    /// uids of the withdrawn bindings whose removal this member had not confirmed when they were recorded: the proof
    /// that allows removing objects of a deleted binding from a member that was disconnected.
    fn unconfirmed<'a>(
        &'a self,
        cluster: &'a str,
    ) -> BoxFuture<'a, Result<Vec<String>, StoreError>>;

    /// The newest row of each of these bindings (by uid), by write order and not by recorded time. Bindings without
    /// rows are omitted. Ask for at most [`NEWEST`] at once.
    fn newest<'a>(
        &'a self,
        bindings: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Newest>, StoreError>>;

    /// Writes events; existing ones are skipped, so that a milestone keeps its first time.
    fn note<'a>(&'a self, events: &'a [Event]) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Milestones of these decisions, by decision, then time, then stage; at most [`MILESTONES`].
    fn milestones<'a>(
        &'a self,
        decisions: &'a [DecisionId],
    ) -> BoxFuture<'a, Result<Vec<Milestone>, StoreError>>;

    /// Member events, newest first: at most `limit`, starting after the given position.
    fn member_events<'a>(
        &'a self,
        filter: &'a MemberFilter,
        limit: usize,
        after: Option<Position>,
    ) -> BoxFuture<'a, Result<MemberPage, StoreError>>;

    /// The leader's periodic maintenance: migrates the schema to this version, creates tables ahead of time, and
    /// deletes decisions older than `retention`, except those still in effect: the last decision of every binding that
    /// has not ended, and of every share. A database that drops whole weeks keeps up to one week more.
    fn maintain(
        &self,
        now: Timestamp,
        retention: Duration,
    ) -> BoxFuture<'_, Result<Maintained, StoreError>>;

    /// The shares on this cluster at this time, by namespace, kind and name.
    fn residents<'a>(
        &'a self,
        cluster: &'a str,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<Resident>, StoreError>>;
}

/// What [`Store::maintain`] deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Maintained {
    /// Weeks dropped as a whole.
    pub weeks: u64,
    /// Decisions deleted individually.
    pub decisions: u64,
}

/// The newest row of a binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Newest {
    /// uid of the binding.
    pub binding_uid: BindingUid,
    /// id of the decision.
    pub decision: DecisionId,
    /// Term of the leader that made it.
    pub term: i64,
    /// Whether it records that the binding was withdrawn.
    pub withdrawn: bool,
}

/// Limit of bindings per call of [`Store::newest`]: some milliseconds of index reads.
pub const NEWEST: usize = 1_000;

/// Limit of milestones per reply: those of a page of 100 decisions on 100 members.
pub const MILESTONES: usize = 50_000;

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page {
    /// The records.
    pub rows: Vec<Row>,
    /// Start of the next page, if there is one.
    pub next: Option<Position>,
}

/// A position in a list: newest first, rows of the same second by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Time of the row, in microseconds since 1970.
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
                "is not the continue token of an earlier page: list again from the start",
            )
        })
    }
}

/// Errors of a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database cannot be opened.
    #[error("open the history database {path}")]
    Open {
        /// Location of the database.
        path: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The schema cannot be migrated to this version.
    #[error("migrate the history database {path}")]
    Migrate {
        /// Location of the database.
        path: String,
        /// Cause; for example, a later version has migrated the database.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A failure that may pass: unreachable, locked, read-only, full.
    #[error("{doing} history")]
    Unavailable {
        /// The operation.
        doing: &'static str,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The connection is new, and nothing was written: records acknowledged on the previous one may be lost if the
    /// database failed over to a replica that lacked its last commits. Returned once for each connection.
    #[error("{doing} history: the connection is new, and nothing was written")]
    Reconnected {
        /// The operation.
        doing: &'static str,
    },
    /// No reply in time. The operation may have succeeded.
    #[error("{doing} history: no reply within {} s", after.as_secs())]
    TimedOut {
        /// The operation.
        doing: &'static str,
        /// The limit.
        after: Duration,
    },
    /// The database rejects these values permanently.
    #[error("{doing} history: the database rejected the values")]
    Refused {
        /// The operation.
        doing: &'static str,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl StoreError {
    /// Whether the database rejects these values permanently. Any other failure may pass, if only with another database
    /// or another version of this program.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    /// Whether a retry may succeed.
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
