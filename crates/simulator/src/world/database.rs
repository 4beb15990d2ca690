//! The history database as one controller reaches it, and what can go wrong with that.

use std::sync::Arc;

use atoll_history::{
    BoxFuture, Event, Filter, Maintained, MemberFilter, MemberPage, MemoryStore, Milestone, Page,
    Position, Record, Resident, Row, Store, StoreError,
};
use jiff::Timestamp;
use tokio::sync::watch;

use super::line::Line;

/// How the database is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    /// It answers.
    Up,
    /// Connections are refused.
    Away,
    /// It takes requests and does not answer while it is so.
    Silent,
    /// It does what it is told, and the answers to writes are lost.
    Deaf,
}

/// What all controllers share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) rows: Arc<MemoryStore>,
    how: Arc<watch::Sender<Database>>,
}

impl Default for Shared {
    fn default() -> Self {
        Self { rows: Arc::default(), how: Arc::new(watch::Sender::new(Database::Up)) }
    }
}

impl Shared {
    pub(super) fn set(&self, how: Database) {
        self.how.send_replace(how);
    }

    /// The store of a controller, which may die on its writes.
    pub(super) fn reached_by(&self, line: Arc<Line>) -> Reached {
        Reached { shared: self.clone(), line }
    }
}

/// See the module.
pub(super) struct Reached {
    shared: Shared,
    line: Arc<Line>,
}

fn unavailable(doing: &'static str) -> StoreError {
    StoreError::Unavailable { doing, source: "connection refused".into() }
}

impl Reached {
    async fn gate(&self, doing: &'static str) -> Result<(), StoreError> {
        let mut how = self.shared.how.subscribe();
        // The sender is the World's and this holds it.
        let now = how.wait_for(|how| *how != Database::Silent).await.map(|how| *how);
        match now {
            Ok(Database::Up | Database::Deaf) if self.line.released().await => Ok(()),
            _ => Err(unavailable(doing)),
        }
    }
}

impl Store for Reached {
    fn insert<'a>(&'a self, records: &'a [Record]) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.gate("write").await?;
            let death = self.line.burn("INSERT", "history");
            if death == Some(false) {
                self.line.die();
                return Err(unavailable("write"));
            }
            self.shared.rows.insert(records).await?;
            if death == Some(true) {
                self.line.die();
            }
            match death.is_some() || *self.shared.how.borrow() == Database::Deaf {
                true => Err(unavailable("write")),
                false => Ok(()),
            }
        })
    }

    fn page<'a>(
        &'a self,
        filter: &'a Filter,
        limit: usize,
        after: Option<Position>,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        Box::pin(async move {
            self.gate("read").await?;
            self.shared.rows.page(filter, limit, after).await
        })
    }

    fn get<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Row>, StoreError>> {
        Box::pin(async move {
            self.gate("read").await?;
            self.shared.rows.get(id).await
        })
    }

    fn tail<'a>(
        &'a self,
        filter: &'a Filter,
        seq: i64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Row>, StoreError>> {
        Box::pin(async move {
            self.gate("read").await?;
            self.shared.rows.tail(filter, seq, limit).await
        })
    }

    fn last(&self) -> BoxFuture<'_, Result<i64, StoreError>> {
        Box::pin(async move {
            self.gate("read").await?;
            self.shared.rows.last().await
        })
    }

    fn written(&self) -> watch::Receiver<u64> {
        self.shared.rows.written()
    }

    fn unconfirmed<'a>(
        &'a self,
        cluster: &'a str,
    ) -> BoxFuture<'a, Result<Vec<String>, StoreError>> {
        Box::pin(async move {
            self.gate("read").await?;
            self.shared.rows.unconfirmed(cluster).await
        })
    }

    fn note<'a>(&'a self, events: &'a [Event]) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.gate("write").await?;
            self.shared.rows.note(events).await
        })
    }

    fn milestones<'a>(
        &'a self,
        decisions: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Milestone>, StoreError>> {
        Box::pin(async move {
            self.gate("read").await?;
            self.shared.rows.milestones(decisions).await
        })
    }

    fn member_events<'a>(
        &'a self,
        filter: &'a MemberFilter,
        limit: usize,
        after: Option<Position>,
    ) -> BoxFuture<'a, Result<MemberPage, StoreError>> {
        Box::pin(async move {
            self.gate("read").await?;
            self.shared.rows.member_events(filter, limit, after).await
        })
    }

    fn maintain(
        &self,
        now: Timestamp,
        retention: std::time::Duration,
    ) -> BoxFuture<'_, Result<Maintained, StoreError>> {
        Box::pin(async move {
            self.gate("write").await?;
            self.shared.rows.maintain(now, retention).await
        })
    }

    fn residents<'a>(
        &'a self,
        cluster: &'a str,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<Resident>, StoreError>> {
        Box::pin(async move {
            self.gate("read").await?;
            self.shared.rows.residents(cluster, at).await
        })
    }
}
