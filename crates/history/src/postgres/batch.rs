//! Writes many records by COPY, which has no ON CONFLICT. If the database may already have some of them, their ids are
//! looked up first, under the writers' lock, so that no row is added between the look-up and the copy.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use atoll_api::binding::TargetCluster;
use sqlx::PgConnection;

use super::copy::{Copying, EncodedRows};
use super::sql;
use crate::record::changes;
use crate::sql::rows::limit;
use crate::sql::{ColumnWriter, write_decision};
use crate::{Frame, Record};

/// Shares before a decision; `None` is unknown.
type Before<'a> = Option<Cow<'a, [TargetCluster]>>;

/// Writes records in their order. With `look`, existing ids are skipped; without it they are an error. Returns whether
/// there were any.
pub(super) async fn insert(
    connection: &mut PgConnection,
    records: &[Record],
    look: bool,
) -> Result<bool, sqlx::Error> {
    let there = if look { there(connection, records).await? } else { Vec::new() };
    // An id that occurs twice in a batch is written once, with its first content.
    let mut known: HashSet<&str> = there.iter().map(String::as_str).collect();
    let new: Vec<&Record> =
        records.iter().filter(|record| known.insert(&record.record.id)).collect();
    let Some(earliest) = new.iter().map(|record| microseconds(record)).min() else {
        return Ok(!there.is_empty());
    };
    let claim = claim(connection, new.len()).await?;
    if claim.standing.is_some_and(|standing| earliest <= standing) {
        sqlx::query(sql::INVALIDATE).bind(earliest).execute(&mut *connection).await?;
    }
    let befores = befores(connection, &new).await?;
    let mut shares = EncodedRows::of(sql::COPY_CHANGES.1);
    let mut copying =
        Copying::begin(connection, sql::COPY_DECISIONS.0, EncodedRows::of(sql::COPY_DECISIONS.1))
            .await?;
    for ((record, before), seq) in new.iter().zip(&befores).zip(claim.first..) {
        write_decision(copying.rows.row().number(seq), record, before.as_deref())
            .optional(record.inputs.as_ref().map(Frame::as_bytes), ColumnWriter::bytes);
        shares_of(&mut shares, record, before.as_deref(), seq);
        copying.send().await?;
    }
    copying.end().await?;
    if !shares.is_empty() {
        Copying::begin(connection, sql::COPY_CHANGES.0, shares).await?.end().await?;
    }
    insert_unconfirmed(connection, &new).await?;
    Ok(!there.is_empty())
}

fn microseconds(record: &Record) -> i64 {
    record.decided_at().as_microsecond()
}

/// State of the database before a batch.
struct Claim {
    /// The first of the numbers reserved for the batch's records.
    first: i64,
    /// Time of the latest standing, in microseconds.
    standing: Option<i64>,
}

async fn claim(connection: &mut PgConnection, records: usize) -> Result<Claim, sqlx::Error> {
    let (first, standing) =
        sqlx::query_as(sql::CLAIM).bind(limit(records)).fetch_one(connection).await?;
    Ok(Claim { first, standing })
}

/// The ids that already exist.
async fn there(
    connection: &mut PgConnection,
    records: &[Record],
) -> Result<Vec<String>, sqlx::Error> {
    let ids: Vec<&str> = records.iter().map(|record| record.record.id.as_str()).collect();
    sqlx::query_scalar(sql::THERE).bind(ids).fetch_all(connection).await
}

/// The shares that a decision changed, in the order of the columns of [`sql::COPY_CHANGES`].
fn shares_of(rows: &mut EncodedRows, record: &Record, before: Option<&[TargetCluster]>, seq: i64) {
    for (cluster, (before, after)) in changes(before.unwrap_or_default(), &record.after) {
        rows.row()
            .text(cluster)
            .time(microseconds(record))
            .number(seq)
            .text(&record.binding.uid)
            .optional(before, ColumnWriter::number)
            .optional(after, ColumnWriter::number)
            .text(&record.record.id)
            .text(record.binding.namespace.as_deref().unwrap_or_default())
            .text(&record.workload.kind)
            .text(&record.workload.name);
    }
}

/// Members that have not confirmed a withdrawal, with the bindings' uids.
async fn insert_unconfirmed(
    connection: &mut PgConnection,
    records: &[&Record],
) -> Result<(), sqlx::Error> {
    let (mut clusters, mut uids) = (Vec::new(), Vec::new());
    for record in records {
        for cluster in record.withdrawal.iter().flat_map(|withdrawal| &withdrawal.unconfirmed) {
            clusters.push(cluster.as_str());
            uids.push(record.binding.uid.as_str());
        }
    }
    if !clusters.is_empty() {
        sqlx::query(sql::INSERT_UNCONFIRMED).bind(clusters).bind(uids).execute(connection).await?;
    }
    Ok(())
}

/// The shares before each record. If a record lacks them, they are its parent's `after`, from the database or from
/// earlier in the batch; if the parent cannot be read, they stay unknown.
async fn befores<'a>(
    connection: &mut PgConnection,
    records: &[&'a Record],
) -> Result<Vec<Before<'a>>, sqlx::Error> {
    let wanted: Vec<&str> = records
        .iter()
        .filter(|record| record.before.is_none())
        .filter_map(|record| record.record.parent.as_deref())
        .collect();
    if wanted.is_empty() {
        return Ok(records.iter().map(|r| r.before.as_deref().map(Cow::Borrowed)).collect());
    }
    let rows: Vec<(String, String)> =
        sqlx::query_as(sql::AFTER_OF).bind(wanted).fetch_all(connection).await?;
    let read = |json: &str| serde_json::from_str(json).ok().map(Cow::<[TargetCluster]>::Owned);
    let mut after: BTreeMap<&str, Before<'a>> =
        rows.iter().map(|(id, json)| (id.as_str(), read(json))).collect();
    let mut befores = Vec::with_capacity(records.len());
    for record in records {
        let parent = record.record.parent.as_deref();
        let inherited = || parent.and_then(|parent| after.get(parent)).cloned().flatten();
        befores.push(record.before.as_deref().map(Cow::Borrowed).or_else(inherited));
        after.entry(&record.record.id).or_insert(Some(Cow::Borrowed(record.after.as_slice())));
    }
    Ok(befores)
}
