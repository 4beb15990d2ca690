//! Takes standings: snapshots of all shares, so that the shares on a member at a given time are the last standing plus
//! the changes since.

use jiff::Timestamp;

use super::transaction::WriteTransaction;
use super::{SqliteStore, bounded, sql};
use crate::StoreError;
use crate::sql::rows::limit;
use crate::weeks::{MOST_STANDINGS, STANDING_LAG, decisions_between, next_standing};

/// Takes every standing that is due: invalid ones again, then one at the start of each week, and one whenever as many
/// decisions were made as shares stand.
pub(super) async fn take(store: &SqliteStore, now: Timestamp) -> Result<(), StoreError> {
    let latest = now.as_microsecond().saturating_sub(STANDING_LAG);
    for _ in 0..MOST_STANDINGS {
        let due = bounded("maintain", due(store)).await?;
        let Some(moment) = due.filter(|moment| *moment <= latest) else { break };
        if !at(store, moment).await? {
            // Decisions of that time arrived meanwhile: the next run takes the standing.
            break;
        }
    }
    Ok(())
}

/// When the next standing is due.
async fn due(store: &SqliteStore) -> Result<Option<i64>, sqlx::Error> {
    let invalid: Option<i64> =
        sqlx::query_scalar(sql::STANDING_INVALID).fetch_one(&store.readers).await?;
    if invalid.is_some() {
        return Ok(invalid);
    }
    let last: Option<(i64, i64, i64)> =
        sqlx::query_as(sql::STANDING_LAST).fetch_optional(&store.readers).await?;
    let Some((last, seq, shares)) = last else { return Ok(None) };
    let busy: Option<i64> = sqlx::query_scalar(sql::DECIDED_BEHIND)
        .bind(seq.saturating_add(decisions_between(shares)))
        .fetch_optional(&store.readers)
        .await?;
    Ok(Some(next_standing(last, busy)))
}

/// One cluster at a time, so that writers wait for milliseconds. False: decisions of that time arrived meanwhile.
async fn at(store: &SqliteStore, moment: i64) -> Result<bool, StoreError> {
    let doing = "maintain";
    let begun = sqlx::query(sql::STANDING_BEGIN).bind(moment);
    bounded(doing, begun.execute(&store.writer)).await?;
    let seen: i64 =
        bounded(doing, sqlx::query_scalar(sql::STATEMENTS.last).fetch_one(&store.writer)).await?;
    let clusters = sqlx::query_scalar(sql::CLUSTERS).fetch_all(&store.readers);
    let clusters: Vec<String> = bounded(doing, clusters).await?;
    let mut stood = 0;
    for cluster in &clusters {
        stood += bounded(doing, of_cluster(store, cluster, moment)).await?;
    }
    let stood = limit(usize::try_from(stood).unwrap_or(usize::MAX));
    let ended = sqlx::query(sql::STANDING_END).bind(moment).bind(seen).bind(stood);
    Ok(bounded(doing, ended.execute(&store.writer)).await?.rows_affected() > 0)
}

async fn of_cluster(store: &SqliteStore, cluster: &str, moment: i64) -> Result<u64, sqlx::Error> {
    let mut transaction = WriteTransaction::begin(&store.writer).await?;
    sqlx::query(sql::FORGET_SHARES)
        .bind(cluster)
        .bind(moment)
        .execute(transaction.connection())
        .await?;
    let taken = sqlx::query(sql::TAKE_SHARES)
        .bind(cluster)
        .bind(moment)
        .execute(transaction.connection())
        .await?;
    transaction.commit().await?;
    Ok(taken.rows_affected())
}
