//! Deletes old rows in parts, so that writers wait for milliseconds only.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::Row as _;

use super::transaction::WriteTransaction;
use super::{SqliteStore, bounded, sql};
use crate::sql::{SqlDatabase, Value, rows};
use crate::store::Maintained;
use crate::{Position, StoreError};

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
    let values =
        [before, from.decided_at, from.seq, PART].map(|number| Value::Number(Some(number)));
    let found = store.fetch("sweep", sql::SWEEP_PART, values.into()).await?;
    let Some(row) = found.last() else { return Ok(None) };
    let read = || Ok(Position { decided_at: row.try_get("decided_at")?, seq: row.try_get("seq")? });
    read().map(Some).map_err(|error| SqliteStore::classify("sweep", error))
}

/// Oldest first, and shares before decisions: a share is deleted only after its replacement was seen.
async fn part(
    store: &SqliteStore,
    before: i64,
    from: Position,
    to: Position,
) -> Result<u64, sqlx::Error> {
    let mut transaction = WriteTransaction::begin(&store.writer).await?;
    let bind = |statement: &'static str| {
        sqlx::query(statement)
            .bind(before)
            .bind(from.decided_at)
            .bind(from.seq)
            .bind(to.decided_at)
            .bind(to.seq)
    };
    bind(sql::SWEEP_INPUTS).execute(transaction.connection()).await?;
    bind(sql::SWEEP_CHANGES).execute(transaction.connection()).await?;
    let gone = bind(sql::SWEEP_DECISIONS).fetch_all(transaction.connection()).await?;
    let ids: Result<Vec<String>, _> = gone.iter().map(|row| row.try_get("id")).collect();
    sqlx::query(sql::SWEEP_MILESTONES)
        .bind(rows::json(&ids?))
        .execute(transaction.connection())
        .await?;
    transaction.commit().await?;
    Ok(gone.len() as u64)
}
