//! Events, and which workloads were on a cluster.

use jiff::Timestamp;
use sqlx::{Connection, SqliteConnection};

use super::{SqliteStore, bounded, classify, sql};
use crate::events::{Event, MemberFilter, MemberPage, Milestone, Resident};
use crate::pooled::PooledConnection;
use crate::store::MILESTONES;
use crate::{Position, StoreError, rows};

pub(super) async fn note(store: &SqliteStore, events: &[Event]) -> Result<(), StoreError> {
    bounded("write", async {
        let mut connection = PooledConnection::acquire(&store.writer).await?;
        let mut transaction = connection.get().begin_with("BEGIN IMMEDIATE").await?;
        for event in events {
            insert(&mut transaction, event).await?;
        }
        transaction.commit().await?;
        connection.mark_sound();
        Ok(())
    })
    .await
}

async fn insert(connection: &mut SqliteConnection, event: &Event) -> Result<(), sqlx::Error> {
    let statement = match event {
        Event::Milestone(step) => sqlx::query(sql::NOTE_MILESTONE)
            .bind(&step.decision)
            .bind(step.decided_at.as_microsecond())
            .bind(step.cluster.as_deref().unwrap_or(""))
            .bind(step.stage.as_str())
            .bind(step.at.as_microsecond()),
        Event::Member(event) => sqlx::query(sql::NOTE_MEMBER)
            .bind(&event.cluster)
            .bind(event.uid.as_deref().unwrap_or(""))
            .bind(event.at.as_microsecond())
            .bind(event.kind.as_str())
            .bind(&event.reason)
            .bind(&event.message),
    };
    statement.execute(connection).await.map(|_| ())
}

pub(super) async fn milestones(
    store: &SqliteStore,
    decisions: &[String],
) -> Result<Vec<Milestone>, StoreError> {
    let ids = rows::json(&decisions);
    let found = store
        .rows("read", sql::MILESTONES, |query| query.bind(ids).bind(rows::limit(MILESTONES)))
        .await?;
    rows::milestones(&found).map_err(|error| classify("read", error))
}

pub(super) async fn member_events(
    store: &SqliteStore,
    filter: &MemberFilter,
    limit: usize,
    after: Option<Position>,
) -> Result<MemberPage, StoreError> {
    let one = filter.cluster.is_some();
    let statement = if one { sql::MEMBER_EVENTS_OF } else { sql::MEMBER_EVENTS };
    let after = after.unwrap_or(Position { decided_at: i64::MAX, seq: i64::MAX });
    let found = store
        .rows("list", statement, |query| {
            query
                .bind(filter.cluster.clone())
                .bind(filter.since.map(Timestamp::as_microsecond))
                .bind(filter.until.map(Timestamp::as_microsecond))
                .bind(after.decided_at)
                .bind(after.seq)
                .bind(rows::limit(limit).saturating_add(1))
        })
        .await?;
    rows::members(&found, limit).map_err(|error| classify("list", error))
}

pub(super) async fn residents(
    store: &SqliteStore,
    cluster: &str,
    at: Timestamp,
) -> Result<Vec<Resident>, StoreError> {
    let (cluster, at) = (cluster.to_owned(), at.as_microsecond());
    let found = store.rows("read", sql::RESIDENTS, |query| query.bind(cluster).bind(at)).await?;
    let found: Result<Vec<_>, _> = found.iter().map(rows::resident).collect();
    found.map_err(|error| classify("read", error))
}
