//! Deletes old rows in parts, so that writers wait for milliseconds only.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::{Connection, Row as _};

use super::{SqliteStore, bounded, sql};
use crate::pooled::PooledConnection;
use crate::store::Maintained;
use crate::{Position, StoreError, rows};

/// Decisions checked in one transaction. Each costs a few look-ups.
const PART: i64 = 1_000;
/// Rows of standings deleted in one transaction: they are adjacent.
const SHARES: i64 = 10_000;

pub(super) async fn sweep(
    store: &SqliteStore,
    now: Timestamp,
    retention: Duration,
) -> Result<Maintained, StoreError> {
    let age = i64::try_from(retention.as_micros()).unwrap_or(i64::MAX);
    let before = now.as_microsecond().saturating_sub(age);
    bounded("sweep", sqlx::query(sql::SWEEP_MEMBERS).bind(before).execute(&store.writer)).await?;
    let mut done = Maintained::default();
    let mut from = Position { decided_at: i64::MIN, seq: i64::MIN };
    while let Some(to) = end_of_part(store, before, from).await? {
        done.decisions += bounded("sweep", part(store, before, from, to)).await?;
        from = to;
    }
    bounded("sweep", sqlx::query(sql::SWEEP_STANDINGS).bind(before).execute(&store.writer)).await?;
    loop {
        let shares = sqlx::query(sql::SWEEP_SHARES).bind(before).bind(SHARES);
        if bounded("sweep", shares.execute(&store.writer)).await?.rows_affected() == 0 {
            return Ok(done);
        }
    }
}

/// Position of the last decision of the next part before that time.
async fn end_of_part(
    store: &SqliteStore,
    before: i64,
    from: Position,
) -> Result<Option<Position>, StoreError> {
    let found = store
        .rows("sweep", sql::SWEEP_PART, |query| {
            query.bind(before).bind(from.decided_at).bind(from.seq).bind(PART)
        })
        .await?;
    let Some(row) = found.last() else { return Ok(None) };
    let read = || Ok(Position { decided_at: row.try_get("decided_at")?, seq: row.try_get("seq")? });
    read().map(Some).map_err(|error| super::classify("sweep", error))
}

/// Oldest first, and shares before decisions: a share is deleted only after its replacement was seen.
async fn part(
    store: &SqliteStore,
    before: i64,
    from: Position,
    to: Position,
) -> Result<u64, sqlx::Error> {
    let mut connection = PooledConnection::acquire(&store.writer).await?;
    let mut transaction = connection.get().begin_with("BEGIN IMMEDIATE").await?;
    let bind = |statement: &'static str| {
        sqlx::query(statement)
            .bind(before)
            .bind(from.decided_at)
            .bind(from.seq)
            .bind(to.decided_at)
            .bind(to.seq)
    };
    bind(sql::SWEEP_CHANGES).execute(&mut *transaction).await?;
    let gone = bind(sql::SWEEP_DECISIONS).fetch_all(&mut *transaction).await?;
    let ids: Result<Vec<String>, _> = gone.iter().map(|row| row.try_get("id")).collect();
    sqlx::query(sql::SWEEP_MILESTONES).bind(rows::json(&ids?)).execute(&mut *transaction).await?;
    transaction.commit().await?;
    connection.mark_sound();
    Ok(gone.len() as u64)
}
