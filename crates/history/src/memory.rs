//! A store without a database: for simulated worlds with virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use std::time::Duration;

use atoll_api::binding::Trigger;
use atoll_api::{BindingUid, ClusterName, DecisionId};
use jiff::Timestamp;
use tokio::sync::watch;

use crate::events::{Event, MemberEvent, MemberFilter, MemberPage, Milestone, Resident, Stage};
use crate::store::{MILESTONES, Maintained};
use crate::{
    BoxFuture, Filter, Frame, Newest, Page, Position, Record, Row, Store, StoreError, StoredRecord,
};

/// Holds records in memory, without a bound: for runs of limited length.
#[derive(Debug)]
pub struct MemoryStore {
    rows: Mutex<Tables>,
    written: watch::Sender<u64>,
    fault: watch::Sender<Fault>,
    reconnected: AtomicBool,
}

/// Fault of a simulated database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// It refuses connections.
    Unreachable,
    /// It accepts requests but processes them only after the fault ends.
    Silent,
    /// It reads but does not write.
    ReadOnly,
    /// Its disk is full.
    Full,
    /// Every operation takes this long.
    Slow(Duration),
    /// It writes, but the connection breaks before the reply.
    LosesAnswers,
    /// It acknowledges decisions without writing them. No real database does this; it verifies that a check would
    /// notice.
    Lies,
}

#[derive(Debug, Default)]
struct Tables {
    /// In write order; row n has number n + 1.
    records: Vec<Record>,
    by_id: BTreeMap<DecisionId, usize>,
    unconfirmed: BTreeSet<(ClusterName, BindingUid)>,
    /// By decision, cluster and stage, like the primary keys of the real databases.
    milestones: BTreeMap<(DecisionId, Option<ClusterName>, Stage), Milestone>,
    /// In write order.
    events: Vec<MemberEvent>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self {
            rows: Mutex::default(),
            written: watch::Sender::new(0),
            fault: watch::Sender::new(Fault::None),
            reconnected: AtomicBool::new(false),
        }
    }
}

impl MemoryStore {
    /// Sets the fault from now on.
    pub fn set_fault(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    /// Fails over to a replica that lacks the last `count` records.
    pub fn fail_over(&self, count: usize) {
        self.rows().forget_last(count);
        self.reconnected.store(true, Ordering::Relaxed);
    }

    /// Applies the fault before an operation.
    async fn begin(&self, doing: &'static str, writes: bool) -> Result<(), StoreError> {
        let fails = |why: &str| Err(StoreError::Unavailable { doing, source: why.into() });
        let mut fault = self.fault.subscribe();
        // The sender is a field of this store.
        let fault = fault.wait_for(|fault| *fault != Fault::Silent).await.map(|fault| *fault);
        match fault.unwrap_or_default() {
            Fault::Unreachable => fails("connection refused"),
            Fault::ReadOnly if writes => fails("cannot execute INSERT in a read-only transaction"),
            Fault::Full if writes => fails("could not extend file: No space left on device"),
            Fault::Slow(pause) => {
                tokio::time::sleep(pause).await;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Applies the fault to the reply.
    fn end(&self, doing: &'static str) -> Result<(), StoreError> {
        self.written.send_modify(|writes| *writes += 1);
        match *self.fault.borrow() {
            Fault::LosesAnswers => {
                Err(StoreError::Unavailable { doing, source: "connection reset by peer".into() })
            }
            _ => Ok(()),
        }
    }

    fn rows(&self) -> MutexGuard<'_, Tables> {
        // No panic leaves the data inconsistent: an insert of a record is complete or has not begun.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    fn insert(&mut self, record: &Record) {
        if self.by_id.contains_key(&record.record.id) {
            return;
        }
        let mut record = record.clone();
        record.record.at = record.decided_at().into();
        if record.before.is_none() {
            let parent = record.record.parent.as_ref().and_then(|id| self.by_id.get(id));
            record.before = parent.map(|row| self.records[*row].after.clone());
        }
        for cluster in record.withdrawal.iter().flat_map(|withdrawal| &withdrawal.unconfirmed) {
            self.unconfirmed.insert((cluster.clone(), record.binding.uid.clone()));
        }
        self.by_id.insert(record.record.id.clone(), self.records.len());
        self.records.push(record);
    }

    fn forget_last(&mut self, count: usize) {
        self.records.truncate(self.records.len().saturating_sub(count));
        let left = self.records.len();
        self.by_id.retain(|_, row| *row < left);
    }

    fn note(&mut self, event: &Event) {
        match event {
            Event::Milestone(step) => {
                let key = (step.decision.clone(), step.cluster.clone(), step.stage.clone());
                self.milestones.entry(key).or_insert_with(|| step.clone());
            }
            Event::Member(event) => {
                let key =
                    |e: &MemberEvent| (e.cluster.clone(), e.at, e.kind.clone(), e.reason.clone());
                if !self.events.iter().any(|present| key(present) == key(event)) {
                    self.events.push(event.clone());
                }
            }
        }
    }

    fn residents(&self, cluster: &str, at: Timestamp) -> Vec<Resident> {
        let mut shares: BTreeMap<&str, ((Timestamp, usize), Option<Resident>)> = BTreeMap::new();
        for (row, record) in self.records.iter().enumerate() {
            let place = (record.decided_at(), row);
            let changes = record.changes();
            let Some((_, after)) = changes.get(cluster).filter(|_| place.0 <= at) else { continue };
            let uid = record.binding.uid.as_str();
            if shares.get(uid).is_none_or(|(known, _)| *known < place) {
                shares.insert(uid, (place, after.map(|replicas| resident(record, replicas))));
            }
        }
        let mut found: Vec<_> = shares.into_values().filter_map(|(_, share)| share).collect();
        found.sort_by(|a, b| key(a).cmp(&key(b)));
        found
    }

    fn position(&self, row: usize) -> Position {
        let decided_at = self.records[row].decided_at().as_microsecond();
        Position { decided_at, seq: seq(row) }
    }
}

fn resident(record: &Record, replicas: i64) -> Resident {
    Resident {
        binding_uid: record.binding.uid.clone(),
        namespace: record.binding.namespace.clone(),
        workload_kind: record.workload.kind.clone(),
        workload_name: record.workload.name.clone(),
        replicas,
        decision: record.record.id.clone(),
        since: record.decided_at(),
    }
}

fn key(resident: &Resident) -> (Option<&str>, &str, &str, &str) {
    let Resident { namespace, workload_kind, workload_name, binding_uid, .. } = resident;
    (namespace.as_deref(), workload_kind, workload_name, binding_uid)
}

fn seq(row: usize) -> i64 {
    i64::try_from(row + 1).unwrap_or(i64::MAX)
}

fn matches(filter: &Filter, record: &Record) -> bool {
    let (namespace, only_namespaced) = filter.scope.columns();
    let own = record.binding.namespace.as_deref().unwrap_or("");
    let is = |wanted: Option<&str>, value: &str| wanted.is_none_or(|wanted| wanted == value);
    let at = record.decided_at();
    namespace.is_none_or(|wanted| wanted == own)
        && !(only_namespaced && own.is_empty())
        && is(filter.binding_uid.as_deref(), &record.binding.uid)
        && is(filter.workload_group.as_deref(), record.workload.group())
        && is(filter.workload_kind.as_deref(), &record.workload.kind)
        && is(filter.workload_name.as_deref(), &record.workload.name)
        && filter.trigger.is_none_or(|trigger| trigger == record.record.trigger)
        && filter.outcome.is_none_or(|outcome| outcome == record.record.outcome)
        && filter.since.is_none_or(|since| at >= since)
        && filter.until.is_none_or(|until| at < until)
        && filter.cluster.as_ref().is_none_or(|c| record.changes().contains_key(c.as_str()))
}

fn bare(row: usize, record: &Record) -> Row {
    let record = Record { detail: None, inputs: None, ..record.clone() };
    Row { seq: seq(row), entry: StoredRecord::Record(Box::new(record)) }
}

impl Store for MemoryStore {
    fn insert<'a>(&'a self, records: &'a [Record]) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.begin("write", true).await?;
            if self.reconnected.swap(false, Ordering::Relaxed) {
                return Err(StoreError::Reconnected { doing: "write" });
            }
            if *self.fault.borrow() == Fault::Lies {
                return Ok(());
            }
            let mut rows = self.rows();
            records.iter().for_each(|record| rows.insert(record));
            drop(rows);
            self.end("write")
        })
    }

    fn page<'a>(
        &'a self,
        filter: &'a Filter,
        limit: usize,
        after: Option<Position>,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        Box::pin(async move {
            self.begin("read", false).await?;
            let rows = self.rows();
            let key = |position: Position| (position.decided_at, position.seq);
            let mut found: Vec<_> = (0..rows.records.len())
                .filter(|row| matches(filter, &rows.records[*row]))
                .map(|row| (key(rows.position(row)), row))
                .filter(|(place, _)| after.is_none_or(|after| *place < key(after)))
                .collect();
            found.sort_unstable_by(|a, b| b.cmp(a));
            let more = found.len() > limit;
            found.truncate(limit);
            let next = found.last().filter(|_| more).map(|(_, row)| rows.position(*row));
            let rows = found.iter().map(|(_, row)| bare(*row, &rows.records[*row])).collect();
            Ok(Page { rows, next })
        })
    }

    fn get<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Row>, StoreError>> {
        Box::pin(async move {
            self.begin("read", false).await?;
            let rows = self.rows();
            let row = rows.by_id.get(id).copied();
            Ok(row.map(|row| {
                let record = Box::new(Record { inputs: None, ..rows.records[row].clone() });
                Row { seq: seq(row), entry: StoredRecord::Record(record) }
            }))
        })
    }

    fn inputs<'a>(
        &'a self,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Option<Option<Frame>>, StoreError>> {
        Box::pin(async move {
            self.begin("read", false).await?;
            let rows = self.rows();
            Ok(rows.by_id.get(id).map(|row| rows.records[*row].inputs.clone()))
        })
    }

    fn tail<'a>(
        &'a self,
        filter: &'a Filter,
        after: i64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Row>, StoreError>> {
        Box::pin(async move {
            self.begin("read", false).await?;
            let rows = self.rows();
            let skipped = usize::try_from(after).unwrap_or(0);
            let newer = rows.records.iter().enumerate().skip(skipped);
            let found = newer.filter(|(_, record)| matches(filter, record)).take(limit);
            Ok(found.map(|(row, record)| bare(row, record)).collect())
        })
    }

    fn last(&self) -> BoxFuture<'_, Result<i64, StoreError>> {
        Box::pin(async move {
            self.begin("read", false).await?;
            Ok(i64::try_from(self.rows().records.len()).unwrap_or(i64::MAX))
        })
    }

    fn written(&self) -> watch::Receiver<u64> {
        self.written.subscribe()
    }

    fn unconfirmed<'a>(
        &'a self,
        cluster: &'a str,
    ) -> BoxFuture<'a, Result<Vec<String>, StoreError>> {
        Box::pin(async move {
            self.begin("read", false).await?;
            let rows = self.rows();
            let of = rows.unconfirmed.iter().filter(|(member, _)| *member == *cluster);
            Ok(of.map(|(_, uid)| String::from(uid)).collect())
        })
    }

    fn newest<'a>(
        &'a self,
        bindings: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Newest>, StoreError>> {
        Box::pin(async move {
            self.begin("read", false).await?;
            let wanted: BTreeSet<&str> = bindings.iter().map(String::as_str).collect();
            let rows = self.rows();
            let mut newest: BTreeMap<&BindingUid, &Record> = BTreeMap::new();
            for record in rows.records.iter().filter(|r| wanted.contains(r.binding.uid.as_str())) {
                newest.insert(&record.binding.uid, record);
            }
            let row = |record: &Record| Newest {
                binding_uid: record.binding.uid.clone(),
                decision: record.record.id.clone(),
                term: record.record.term,
                withdrawn: record.record.trigger == Trigger::Withdrawn,
            };
            Ok(newest.into_values().map(row).collect())
        })
    }

    fn note<'a>(&'a self, events: &'a [Event]) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.begin("write", true).await?;
            let mut rows = self.rows();
            events.iter().for_each(|event| rows.note(event));
            drop(rows);
            self.end("write")
        })
    }

    fn milestones<'a>(
        &'a self,
        decisions: &'a [DecisionId],
    ) -> BoxFuture<'a, Result<Vec<Milestone>, StoreError>> {
        Box::pin(async move {
            self.begin("read", false).await?;
            let rows = self.rows();
            let of = rows.milestones.values().filter(|step| decisions.contains(&step.decision));
            let mut found: Vec<Milestone> = of.cloned().collect();
            found.sort_by(Milestone::order);
            found.truncate(MILESTONES);
            Ok(found)
        })
    }

    fn member_events<'a>(
        &'a self,
        filter: &'a MemberFilter,
        limit: usize,
        after: Option<Position>,
    ) -> BoxFuture<'a, Result<MemberPage, StoreError>> {
        Box::pin(async move {
            self.begin("read", false).await?;
            let rows = self.rows();
            let mut found: Vec<(Position, &MemberEvent)> = rows
                .events
                .iter()
                .enumerate()
                .map(|(row, event)| {
                    (Position { decided_at: event.at.as_microsecond(), seq: seq(row) }, event)
                })
                .filter(|(_, event)| filter.matches(event))
                .filter(|(place, _)| after.is_none_or(|after| *place < after))
                .collect();
            found.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
            let more = found.len() > limit;
            found.truncate(limit);
            let next = found.last().filter(|_| more).map(|(place, _)| *place);
            Ok(MemberPage {
                events: found.into_iter().map(|(_, event)| event.clone()).collect(),
                next,
            })
        })
    }

    fn maintain(
        &self,
        _now: Timestamp,
        _retention: Duration,
    ) -> BoxFuture<'_, Result<Maintained, StoreError>> {
        // For runs of limited length: nothing is deleted.
        Box::pin(async {
            self.begin("write", true).await?;
            Ok(Maintained::default())
        })
    }

    fn residents<'a>(
        &'a self,
        cluster: &'a str,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<Resident>, StoreError>> {
        Box::pin(async move {
            self.begin("read", false).await?;
            Ok(self.rows().residents(cluster, at))
        })
    }
}
