//! What all SQL databases do the same way: every read, and the text of its statement.
//!
//! A database implements [`SqlDatabase`], and so is a [`Store`]. Writing and maintenance differ too much to be shared:
//! one copies batches into partitioned tables, the other inserts rows into a file.

mod columns;
mod pooled;
pub(crate) mod rows;
#[macro_use]
mod statements;

use std::time::Duration;

use atoll_api::DecisionId;
use jiff::Timestamp;
use tokio::sync::watch;

pub(crate) use columns::{ColumnWriter, write_decision};
pub(crate) use pooled::PooledConnection;
pub(crate) use rows::Columns;
pub(crate) use statements::Statements;

use crate::events::{Event, MemberFilter, MemberPage, Milestone, Resident};
use crate::store::{MILESTONES, Maintained};
use crate::{
    BoxFuture, Durability, Filter, Frame, Newest, Page, Position, Record, Row, Scope, Store,
    StoreError,
};

/// Time limit of one operation. A batch takes milliseconds; an operation that takes this long is stuck.
pub(crate) const OPERATION: Duration = Duration::from_secs(10);

/// A value of a statement's parameter.
#[derive(Debug)]
pub enum Value<'a> {
    Text(Option<String>),
    Number(Option<i64>),
    Flag(bool),
    Texts(Vec<&'a str>),
}

/// A SQL database of history: what each does in its own way.
pub trait SqlDatabase: Send + Sync + 'static {
    /// A row of a result.
    type Row: Columns + Send + Sync;
    /// What it reads with.
    const STATEMENTS: Statements;

    /// Classifies an error: may the operation succeed later?
    fn classify(doing: &'static str, error: sqlx::Error) -> StoreError;

    /// The closest time that the tables accept, in microseconds since 1970.
    fn nearest_time(microseconds: i64) -> i64 {
        microseconds
    }

    /// Reads the rows of a statement on a connection that cannot write.
    fn fetch(
        &self,
        doing: &'static str,
        statement: &'static str,
        values: Vec<Value<'_>>,
    ) -> impl Future<Output = Result<Vec<Self::Row>, StoreError>> + Send;

    /// See [`Store::insert`].
    fn insert_records(
        &self,
        records: &[Record],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// See [`Store::write`].
    fn write_records(
        &self,
        records: &[Record],
    ) -> impl Future<Output = Result<Durability, StoreError>> + Send {
        async {
            self.insert_records(records).await?;
            let durability: Durability = Box::pin(std::future::ready(Ok(())));
            Ok(durability)
        }
    }

    /// See [`Store::note`].
    fn insert_events(
        &self,
        events: &[Event],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// See [`Store::maintain`].
    fn run_maintenance(
        &self,
        now: Timestamp,
        retention: Duration,
    ) -> impl Future<Output = Result<Maintained, StoreError>> + Send;

    /// Counts writes; see [`Store::written`].
    fn writes(&self) -> &watch::Sender<u64>;
}

impl<D: SqlDatabase> Store for D {
    fn insert<'a>(&'a self, records: &'a [Record]) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.insert_records(records).await?;
            self.writes().send_modify(|writes| *writes += 1);
            Ok(())
        })
    }

    fn write<'a>(&'a self, records: &'a [Record]) -> BoxFuture<'a, Result<Durability, StoreError>> {
        Box::pin(async move {
            let durability = self.write_records(records).await?;
            self.writes().send_modify(|writes| *writes += 1);
            Ok(durability)
        })
    }

    fn page<'a>(
        &'a self,
        filter: &'a Filter,
        limit: usize,
        after: Option<Position>,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        Box::pin(async move {
            let mut values = filter_values::<D>(filter);
            values.extend(page_values::<D>(limit, after));
            let rows = self.fetch("list", page_statement::<D>(filter), values).await?;
            rows::page(&rows, limit).map_err(|error| D::classify("list", error))
        })
    }

    fn get<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Row>, StoreError>> {
        Box::pin(async move {
            let values = vec![Value::Text(Some(id.to_owned()))];
            let rows = self.fetch("read", D::STATEMENTS.get, values).await?;
            let row = rows.first().map(rows::read_whole);
            row.transpose().map_err(|error| D::classify("read", error))
        })
    }

    fn inputs<'a>(
        &'a self,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Option<Option<Frame>>, StoreError>> {
        Box::pin(async move {
            let values = vec![Value::Text(Some(id.to_owned()))];
            let rows = self.fetch("read", D::STATEMENTS.inputs, values).await?;
            let frame = rows.first().map(|row| row.bytes("inputs"));
            let frame = frame.transpose().map_err(|error| D::classify("read", error))?;
            Ok(frame.map(|bytes| bytes.map(Frame::from_bytes)))
        })
    }

    fn tail<'a>(
        &'a self,
        filter: &'a Filter,
        seq: i64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Row>, StoreError>> {
        Box::pin(async move {
            let mut values = filter_values::<D>(filter);
            values.extend([seq, rows::limit(limit)].map(|number| Value::Number(Some(number))));
            let rows = self.fetch("follow", D::STATEMENTS.tail, values).await?;
            let rows: Result<_, _> = rows.iter().map(|row| rows::read(row, None)).collect();
            rows.map_err(|error| D::classify("follow", error))
        })
    }

    fn last(&self) -> BoxFuture<'_, Result<i64, StoreError>> {
        Box::pin(async move {
            let rows = self.fetch("read", D::STATEMENTS.last, Vec::new()).await?;
            let seq = rows.first().map_or(Ok(0), |row| row.number("seq"));
            seq.map_err(|error| D::classify("read", error))
        })
    }

    fn written(&self) -> watch::Receiver<u64> {
        self.writes().subscribe()
    }

    fn unconfirmed<'a>(
        &'a self,
        cluster: &'a str,
    ) -> BoxFuture<'a, Result<Vec<String>, StoreError>> {
        Box::pin(async move {
            let values = vec![Value::Text(Some(cluster.to_owned()))];
            let rows = self.fetch("read", D::STATEMENTS.unconfirmed, values).await?;
            let uids = rows.iter().map(|row| Ok(row.text("binding_uid")?.unwrap_or_default()));
            uids.collect::<Result<_, _>>().map_err(|error| D::classify("read", error))
        })
    }

    fn newest<'a>(
        &'a self,
        bindings: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Newest>, StoreError>> {
        Box::pin(async move {
            let values = vec![Value::Texts(bindings.iter().map(|uid| &**uid).collect())];
            let rows = self.fetch("read", D::STATEMENTS.newest, values).await?;
            rows::newest(&rows).map_err(|error| D::classify("read", error))
        })
    }

    fn note<'a>(&'a self, events: &'a [Event]) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.insert_events(events).await?;
            self.writes().send_modify(|writes| *writes += 1);
            Ok(())
        })
    }

    fn milestones<'a>(
        &'a self,
        decisions: &'a [DecisionId],
    ) -> BoxFuture<'a, Result<Vec<Milestone>, StoreError>> {
        Box::pin(async move {
            let decisions = decisions.iter().map(DecisionId::as_str).collect();
            let most = Value::Number(Some(rows::limit(MILESTONES)));
            let values = vec![Value::Texts(decisions), most];
            let rows = self.fetch("read", D::STATEMENTS.milestones, values).await?;
            rows::milestones(&rows).map_err(|error| D::classify("read", error))
        })
    }

    fn member_events<'a>(
        &'a self,
        filter: &'a MemberFilter,
        limit: usize,
        after: Option<Position>,
    ) -> BoxFuture<'a, Result<MemberPage, StoreError>> {
        Box::pin(async move {
            let statement = match filter.cluster {
                Some(_) => D::STATEMENTS.member_events_of,
                None => D::STATEMENTS.member_events,
            };
            let mut values = vec![
                Value::Text(filter.cluster.as_ref().map(String::from)),
                time_value::<D>(filter.since),
                time_value::<D>(filter.until),
            ];
            values.extend(page_values::<D>(limit, after));
            values.push(Value::Text(filter.kind.as_ref().map(ToString::to_string)));
            let rows = self.fetch("list", statement, values).await?;
            rows::members(&rows, limit).map_err(|error| D::classify("list", error))
        })
    }

    fn maintain(
        &self,
        now: Timestamp,
        retention: Duration,
    ) -> BoxFuture<'_, Result<Maintained, StoreError>> {
        Box::pin(self.run_maintenance(now, retention))
    }

    fn residents<'a>(
        &'a self,
        cluster: &'a str,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<Resident>, StoreError>> {
        Box::pin(async move {
            let values = vec![Value::Text(Some(cluster.to_owned())), time_value::<D>(Some(at))];
            let rows = self.fetch("read", D::STATEMENTS.residents, values).await?;
            let shares: Result<_, _> = rows.iter().map(rows::resident).collect();
            shares.map_err(|error| D::classify("read", error))
        })
    }
}

/// The statement whose index leaves the fewest rows to scan.
fn page_statement<D: SqlDatabase>(filter: &Filter) -> &'static str {
    let one_namespace = matches!(filter.scope, Scope::Namespace(_) | Scope::Cluster);
    if filter.binding_uid.is_some() {
        D::STATEMENTS.page_of_binding
    } else if filter.workload_name.is_some() && one_namespace {
        D::STATEMENTS.page_of_workload
    } else if filter.workload_name.is_some() {
        D::STATEMENTS.page_of_name
    } else if filter.cluster.is_some() {
        D::STATEMENTS.page_of_cluster
    } else if one_namespace {
        D::STATEMENTS.page_of_namespace
    } else {
        D::STATEMENTS.page
    }
}

/// $1 to $11 of a filter.
fn filter_values<D: SqlDatabase>(filter: &Filter) -> Vec<Value<'static>> {
    let (namespace, only_namespaced) = filter.scope.columns();
    vec![
        Value::Text(namespace.map(str::to_owned)),
        Value::Flag(only_namespaced),
        Value::Text(filter.binding_uid.as_ref().map(String::from)),
        Value::Text(filter.workload_group.clone()),
        Value::Text(filter.workload_kind.clone()),
        Value::Text(filter.workload_name.clone()),
        Value::Text(filter.cluster.as_ref().map(String::from)),
        Value::Text(filter.trigger.map(|trigger| rows::name(&trigger))),
        Value::Text(filter.outcome.map(|outcome| rows::name(&outcome))),
        time_value::<D>(filter.since),
        time_value::<D>(filter.until),
    ]
}

/// The position after which a page starts, and the number of its rows: one more than requested tells whether there is
/// a next page.
fn page_values<D: SqlDatabase>(limit: usize, after: Option<Position>) -> [Value<'static>; 3] {
    let after = after.unwrap_or(Position { decided_at: i64::MAX, seq: i64::MAX });
    let time = D::nearest_time(after.decided_at);
    [time, after.seq, rows::limit(limit).saturating_add(1)]
        .map(|number| Value::Number(Some(number)))
}

fn time_value<D: SqlDatabase>(time: Option<Timestamp>) -> Value<'static> {
    Value::Number(time.map(|time| D::nearest_time(time.as_microsecond())))
}

/// Runs an operation within a time limit.
pub(crate) async fn within<D: SqlDatabase, T>(
    limit: Duration,
    doing: &'static str,
    operation: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(limit, operation).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(D::classify(doing, error)),
        Err(_) => Err(StoreError::TimedOut { doing, after: limit }),
    }
}
