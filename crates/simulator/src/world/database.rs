//! The history database as one controller reaches it. Faults of the database itself are injected by the store
//! ([`atoll_history::Fault`]).

use std::sync::Arc;

use atoll_api::DecisionId;
use atoll_history::{
    BoxFuture, Event, Filter, Frame, Maintained, MemberFilter, MemberPage, MemoryStore, Milestone,
    Newest, Page, Position, Record, Resident, Row, Store, StoreError,
};
use jiff::Timestamp;
use tokio::sync::watch;

use super::line::Line;

/// The shared store as reached over one controller's line; the controller may crash on its writes.
pub(super) struct Reached {
    pub(super) rows: Arc<MemoryStore>,
    pub(super) line: Arc<Line>,
}

fn unreachable(doing: &'static str) -> StoreError {
    StoreError::Unavailable { doing, source: "connection refused".into() }
}

impl Reached {
    async fn gate(&self, doing: &'static str) -> Result<(), StoreError> {
        self.line.released().await.then_some(()).ok_or_else(|| unreachable(doing))
    }
}

impl Store for Reached {
    fn insert<'a>(&'a self, records: &'a [Record]) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.gate("write").await?;
            let death = self.line.burn("INSERT", "history");
            if death == Some(false) {
                self.line.die();
                return Err(unreachable("write"));
            }
            let written = self.rows.insert(records).await;
            if death == Some(true) {
                self.line.die();
                return Err(unreachable("write"));
            }
            written
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
            self.rows.page(filter, limit, after).await
        })
    }

    fn get<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Row>, StoreError>> {
        Box::pin(async move {
            self.gate("read").await?;
            self.rows.get(id).await
        })
    }

    fn inputs<'a>(
        &'a self,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Option<Option<Frame>>, StoreError>> {
        Box::pin(async move {
            self.gate("read").await?;
            self.rows.inputs(id).await
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
            self.rows.tail(filter, seq, limit).await
        })
    }

    fn last(&self) -> BoxFuture<'_, Result<i64, StoreError>> {
        Box::pin(async move {
            self.gate("read").await?;
            self.rows.last().await
        })
    }

    fn written(&self) -> watch::Receiver<u64> {
        self.rows.written()
    }

    fn unconfirmed<'a>(
        &'a self,
        cluster: &'a str,
    ) -> BoxFuture<'a, Result<Vec<String>, StoreError>> {
        Box::pin(async move {
            self.gate("read").await?;
            self.rows.unconfirmed(cluster).await
        })
    }

    fn newest<'a>(
        &'a self,
        bindings: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Newest>, StoreError>> {
        Box::pin(async move {
            self.gate("read").await?;
            self.rows.newest(bindings).await
        })
    }

    fn note<'a>(&'a self, events: &'a [Event]) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.gate("write").await?;
            self.rows.note(events).await
        })
    }

    fn milestones<'a>(
        &'a self,
        decisions: &'a [DecisionId],
    ) -> BoxFuture<'a, Result<Vec<Milestone>, StoreError>> {
        Box::pin(async move {
            self.gate("read").await?;
            self.rows.milestones(decisions).await
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
            self.rows.member_events(filter, limit, after).await
        })
    }

    fn maintain(
        &self,
        now: Timestamp,
        retention: std::time::Duration,
    ) -> BoxFuture<'_, Result<Maintained, StoreError>> {
        Box::pin(async move {
            self.gate("write").await?;
            self.rows.maintain(now, retention).await
        })
    }

    fn residents<'a>(
        &'a self,
        cluster: &'a str,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<Resident>, StoreError>> {
        Box::pin(async move {
            self.gate("read").await?;
            self.rows.residents(cluster, at).await
        })
    }
}
