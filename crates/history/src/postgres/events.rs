//! Writes events.

use std::collections::BTreeSet;

use super::{PostgresStore, make_partitions, sql};
use crate::StoreError;
use crate::events::Event;

/// Columns of both tables.
#[derive(Default)]
struct EventColumns {
    milestones: Milestones,
    members: Members,
    /// Times that locate the rows' partitions, in seconds since 1970.
    seconds: Vec<i64>,
}

#[derive(Default)]
struct Milestones {
    decisions: Vec<String>,
    decided: Vec<i64>,
    clusters: Vec<String>,
    stages: Vec<String>,
    times: Vec<i64>,
}

#[derive(Default)]
struct Members {
    clusters: Vec<String>,
    uids: Vec<String>,
    times: Vec<i64>,
    kinds: Vec<String>,
    reasons: Vec<String>,
    messages: Vec<String>,
}

impl EventColumns {
    fn of(events: &[Event]) -> Self {
        let mut columns = Self::default();
        for event in events {
            match event {
                Event::Milestone(step) => {
                    columns.seconds.push(step.decided_at.as_second());
                    let to = &mut columns.milestones;
                    to.decisions.push(step.decision.to_string());
                    to.decided.push(step.decided_at.as_microsecond());
                    to.clusters.push(step.cluster.as_deref().unwrap_or_default().to_owned());
                    to.stages.push(step.stage.as_str().to_owned());
                    to.times.push(step.at.as_microsecond());
                }
                Event::Member(event) => {
                    columns.seconds.push(event.at.as_second());
                    let to = &mut columns.members;
                    to.clusters.push(event.cluster.to_string());
                    to.uids.push(event.uid.clone().unwrap_or_default());
                    to.times.push(event.at.as_microsecond());
                    to.kinds.push(event.kind.as_str().to_owned());
                    to.reasons.push(event.reason.clone());
                    to.messages.push(event.message.clone());
                }
            }
        }
        columns
    }
}

pub(super) async fn insert(store: &PostgresStore, events: &[Event]) -> Result<(), StoreError> {
    store.migrate().await?;
    let columns = EventColumns::of(events);
    let weeks = store.unknown_weeks(columns.seconds.iter().copied());
    let written = store.bounded("write", write(store, columns, &weeks)).await;
    store.learn(weeks, &written);
    written
}

async fn write(
    store: &PostgresStore,
    columns: EventColumns,
    weeks: &BTreeSet<i64>,
) -> Result<(), sqlx::Error> {
    // Events have no order: their writers need no lock, unless they create tables.
    let mut transaction = if weeks.is_empty() {
        store.writer.begin().await?
    } else {
        store.writer.begin_with(sql::BEGIN).await?
    };
    make_partitions(&mut transaction, weeks).await?;
    let EventColumns { milestones, members, .. } = columns;
    if !milestones.decisions.is_empty() {
        sqlx::query(sql::NOTE_MILESTONES)
            .bind(milestones.decisions)
            .bind(milestones.decided)
            .bind(milestones.clusters)
            .bind(milestones.stages)
            .bind(milestones.times)
            .execute(&mut *transaction)
            .await?;
    }
    if !members.clusters.is_empty() {
        sqlx::query(sql::NOTE_MEMBERS)
            .bind(members.clusters)
            .bind(members.uids)
            .bind(members.times)
            .bind(members.kinds)
            .bind(members.reasons)
            .bind(members.messages)
            .execute(&mut *transaction)
            .await?;
    }
    transaction.commit().await
}
