//! Writing many records by few statements: one array for each column.

use std::collections::BTreeMap;

use atoll_api::binding::TargetCluster;
use sqlx::postgres::PgArguments;
use sqlx::{Postgres, Transaction};

use super::sql;
use crate::rows::{json, name};
use crate::{Detail, Record};

/// Writes records in their order; those whose id is there already are left as they are.
pub(super) async fn insert(
    transaction: &mut Transaction<'static, Postgres>,
    records: &[Record],
) -> Result<(), sqlx::Error> {
    let befores = befores(transaction, records).await?;
    let inserted = statement(records, &befores).fetch_all(&mut **transaction).await?;
    let (changes, unconfirmed) = changes(records, befores, inserted.into_iter().collect());
    if !changes.clusters.is_empty() {
        sqlx::query(sql::INSERT_CHANGES)
            .bind(changes.clusters)
            .bind(changes.times)
            .bind(changes.seqs)
            .bind(changes.bindings)
            .bind(changes.before)
            .bind(changes.after)
            .execute(&mut **transaction)
            .await?;
    }
    if !unconfirmed.0.is_empty() {
        sqlx::query(sql::INSERT_UNCONFIRMED)
            .bind(unconfirmed.0)
            .bind(unconfirmed.1)
            .execute(&mut **transaction)
            .await?;
    }
    Ok(())
}

type Inserting<'a> = sqlx::query::QueryAs<'a, Postgres, (String, i64), PgArguments>;

/// The insert with its columns; it answers with the ids and numbers of the rows that are new.
fn statement<'a>(records: &'a [Record], befores: &[Option<Vec<TargetCluster>>]) -> Inserting<'a> {
    let texts = |of: fn(&Record) -> String| records.iter().map(of).collect::<Vec<_>>();
    let numbers = |of: fn(&Record) -> i64| records.iter().map(of).collect::<Vec<_>>();
    let options = |of: fn(&Record) -> Option<String>| records.iter().map(of).collect::<Vec<_>>();
    let details: Vec<Option<&[u8]>> =
        records.iter().map(|record| record.detail.as_ref().map(Detail::as_bytes)).collect();
    sqlx::query_as(sql::INSERT)
        .bind(texts(|r| r.record.id.clone()))
        .bind(options(|r| r.record.parent.clone()))
        .bind(numbers(|r| r.decided_at().as_microsecond()))
        .bind(texts(|r| name(&r.record.trigger)))
        .bind(texts(|r| name(&r.record.mode)))
        .bind(texts(|r| name(&r.record.outcome)))
        .bind(numbers(|r| r.record.desired))
        .bind(texts(|r| json(&r.record.pending)))
        .bind(options(|r| r.record.affinity_name.clone()))
        .bind(numbers(|r| r.record.term))
        .bind(texts(|r| r.binding.kind.clone()))
        .bind(texts(|r| r.binding.namespace.clone().unwrap_or_default()))
        .bind(texts(|r| r.binding.name.clone()))
        .bind(texts(|r| r.binding.uid.clone()))
        .bind(texts(|r| r.workload.group().to_owned()))
        .bind(texts(|r| r.workload.version().to_owned()))
        .bind(texts(|r| r.workload.kind.clone()))
        .bind(texts(|r| r.workload.name.clone()))
        .bind(options(|r| r.workload.uid.clone()))
        .bind(befores.iter().map(|before| before.as_ref().map(json)).collect::<Vec<_>>())
        .bind(texts(|r| json(&r.after)))
        .bind(options(|r| r.reason.clone()))
        .bind(options(|r| r.gap.as_ref().map(json)))
        .bind(options(|r| r.withdrawal.as_ref().map(json)))
        .bind(options(|r| r.provenance.as_ref().map(json)))
        .bind(options(|r| r.rejections.as_ref().map(json)))
        .bind(details)
}

/// The shares that the new rows changed, and the members that have not confirmed a withdrawal, with the bindings' uids.
fn changes(
    records: &[Record],
    befores: Vec<Option<Vec<TargetCluster>>>,
    mut inserted: BTreeMap<String, i64>,
) -> (Changes, (Vec<String>, Vec<String>)) {
    let (mut changes, mut unconfirmed) = (Changes::default(), (Vec::new(), Vec::new()));
    for (record, before) in records.iter().zip(befores) {
        // An id twice in a batch was written once, as the first of them has it.
        let Some(seq) = inserted.remove(&record.record.id) else { continue };
        let known = Record { before, detail: None, ..record.clone() };
        for (cluster, (before, after)) in known.changes() {
            changes.clusters.push(cluster.to_owned());
            changes.times.push(record.decided_at().as_microsecond());
            changes.seqs.push(seq);
            changes.bindings.push(record.binding.uid.clone());
            changes.before.push(before);
            changes.after.push(after);
        }
        for cluster in record.withdrawal.iter().flat_map(|withdrawal| &withdrawal.unconfirmed) {
            unconfirmed.0.push(cluster.clone());
            unconfirmed.1.push(record.binding.uid.clone());
        }
    }
    (changes, unconfirmed)
}

/// Columns of `changes`.
#[derive(Default)]
struct Changes {
    clusters: Vec<String>,
    times: Vec<i64>,
    seqs: Vec<i64>,
    bindings: Vec<String>,
    before: Vec<Option<i64>>,
    after: Vec<Option<i64>>,
}

/// The shares before each record. What a record does not know is its parent's `after`, from the database or from
/// earlier in the batch; a parent that cannot be read leaves it unknown, which is the truth.
async fn befores(
    transaction: &mut Transaction<'static, Postgres>,
    records: &[Record],
) -> Result<Vec<Option<Vec<TargetCluster>>>, sqlx::Error> {
    let wanted: Vec<String> = records
        .iter()
        .filter(|record| record.before.is_none())
        .filter_map(|record| record.record.parent.clone())
        .collect();
    let mut after: BTreeMap<String, Option<Vec<TargetCluster>>> = BTreeMap::new();
    if !wanted.is_empty() {
        let rows: Vec<(String, String)> =
            sqlx::query_as(sql::AFTER_OF).bind(wanted).fetch_all(&mut **transaction).await?;
        after.extend(rows.into_iter().map(|(id, json)| (id, serde_json::from_str(&json).ok())));
    }
    let mut befores = Vec::with_capacity(records.len());
    for record in records {
        let parent = record.record.parent.as_ref();
        let inherited = || parent.and_then(|parent| after.get(parent)).cloned().flatten();
        befores.push(record.before.clone().or_else(inherited));
        after.entry(record.record.id.clone()).or_insert_with(|| Some(record.after.clone()));
    }
    Ok(befores)
}
