//! Traces of decisions: one for each, from the queue to the last member that applied it.
//!
//! Spans are made when a step has ended, from the times that the step noted, so a decision that is not recorded costs one
//! comparison. The root is sent last: it contains everything.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use atoll_api::binding::{DecisionRecord, ObjectReference, TargetCluster};
use atoll_api::{Clock, ClusterName};
use atoll_history::{Milestone, Stage};
use atoll_traces::{Kind, Span, SpanId, TraceContext, TraceId, Tracer};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::index::key::BindingKey;

/// How long a trace stays open for members that do not apply the decision: those that are not connected.
const LONGEST: Duration = Duration::from_secs(600);
/// Limit of open traces.
const MOST_OPEN: usize = 10_000;

/// A committed decision, and when its steps ran.
pub(crate) struct Steps<'a> {
    pub(crate) key: &'a BindingKey,
    pub(crate) workload: &'a ObjectReference,
    pub(crate) record: &'a DecisionRecord,
    pub(crate) clusters: &'a [TargetCluster],
    /// The division strategy; `None` for the end of an eviction task, which nothing decides.
    pub(crate) strategy: Option<&'a str>,
    /// When it was taken from the queue, and how long it had waited.
    pub(crate) queued: Option<(Instant, Duration)>,
    /// When the scheduler had decided, and how long it took.
    pub(crate) decided: (Timestamp, Duration),
    /// How long the commit took.
    pub(crate) commit: Duration,
}

/// The traces that are not complete.
pub(crate) struct DecisionTraces {
    tracer: Tracer,
    clock: Clock,
    open: BTreeMap<BindingKey, OpenTrace>,
    by_age: BTreeSet<(Instant, BindingKey)>,
}

struct OpenTrace {
    trace: TraceId,
    root: Span,
    since: Instant,
    /// When orders were last being made: an agent may be done before they have all been noted.
    dispatching: Option<Timestamp>,
    /// The members that have not applied it.
    waiting: BTreeMap<ClusterName, Waiting>,
}

struct Waiting {
    replicas: i64,
    dispatched: Option<Timestamp>,
}

impl DecisionTraces {
    pub(crate) fn new(tracer: Tracer, clock: Clock) -> Self {
        Self { tracer, clock, open: BTreeMap::new(), by_age: BTreeSet::new() }
    }

    /// A decision was committed, and these members have to apply something.
    pub(crate) fn begin<'a>(
        &mut self,
        steps: &Steps<'_>,
        members: impl Iterator<Item = &'a ClusterName>,
    ) {
        if !self.tracer.is_on() {
            return;
        }
        let Steps { key, record, clusters, .. } = steps;
        let replicas = |name: &ClusterName| {
            clusters.iter().find(|target| target.name == **name).map_or(0, |share| share.replicas)
        };
        let waiting: BTreeMap<_, _> = members
            .map(|name| (name.clone(), Waiting { replicas: replicas(name), dispatched: None }))
            .collect();
        // A decision that no member has to apply leaves the previous one in progress, as the audit does.
        if !waiting.is_empty() || clusters.is_empty() {
            self.end(key, &format!("superseded by decision {}", record.id));
        }
        let trace = TraceId::of_decision(&record.id).filter(|trace| self.tracer.records(*trace));
        let Some(trace) = trace else { return };
        tracing::info!(
            %key, decision = %trace, trigger = %record.trigger, outcome = %record.outcome, "decision committed and traced"
        );
        let root = self.committed(trace, steps);
        let open = OpenTrace { trace, root, since: Instant::now(), dispatching: None, waiting };
        if open.waiting.is_empty() {
            self.tracer.record(open.root);
        } else if self.open.len() >= MOST_OPEN {
            let why = format!("its members are not followed: {MOST_OPEN} traces are open");
            self.tracer.record(open.root.failed(why));
        } else {
            self.by_age.insert((open.since, (*key).clone()));
            self.open.insert((*key).clone(), open);
        }
    }

    /// Records the steps up to the commit, and returns the root.
    fn committed(&self, trace: TraceId, steps: &Steps<'_>) -> Span {
        let (now, instant) = (self.clock.now(), Instant::now());
        let before = |at: Timestamp, by: Duration| at.checked_sub(by).unwrap_or(at);
        let root = root(trace);
        let child = |name, start, end| {
            Span::new((trace, trace.span(&[name])), Some(root), name, (start, end))
        };
        let Steps { key, workload, record, clusters, strategy, queued, decided, commit } = steps;
        let (at, took) = *decided;
        let mut start = before(at, took);
        if let Some((taken, waited)) = queued {
            let taken = before(now, instant.saturating_duration_since(*taken));
            start = start.min(before(taken, *waited));
            self.tracer.record(child("queue", before(taken, *waited), taken));
        }
        if let Some(strategy) = strategy {
            let span = child("decide", before(at, took), at);
            self.tracer.record(span.with("atoll.strategy", *strategy));
        }
        self.tracer.record(child("commit", before(now, *commit), now).kind(Kind::Client));
        let members = i64::try_from(clusters.len()).unwrap_or(i64::MAX);
        let mut span = Span::new((trace, root), None, "decision", (start, now))
            .with("atoll.kind", workload.kind.as_str())
            .with("atoll.name", workload.name.as_str())
            .with("atoll.binding", key.name().to_string())
            .with("atoll.trigger", record.trigger.to_string())
            .with("atoll.outcome", record.outcome.to_string())
            .with("atoll.desired", record.desired)
            .with("atoll.members", members)
            .with("atoll.term", record.term);
        if let Some(namespace) = &workload.namespace {
            span = span.with("atoll.namespace", namespace.as_str());
        }
        if let Some(parent) = &record.parent {
            span = span.with("atoll.parent", parent.as_str());
        }
        span
    }

    /// The members' orders are being made.
    pub(crate) fn dispatching(&mut self, key: &BindingKey) {
        if let Some(open) = self.open.get_mut(key) {
            open.dispatching = Some(self.clock.now());
        }
    }

    /// What an agent needs to continue the trace, if the member has to apply the decision.
    pub(crate) fn context(&self, key: &BindingKey, cluster: &ClusterName) -> Option<TraceContext> {
        let open = self.open.get(key).filter(|open| open.waiting.contains_key(cluster))?;
        Some(TraceContext { trace: open.trace, parent: of_member(open.trace, cluster) })
    }

    /// A member reached a stage of a decision.
    pub(crate) fn reached(&mut self, key: &BindingKey, milestone: &Milestone) {
        let Some(open) = self.open.get_mut(key) else { return };
        let of_it = TraceId::of_decision(&milestone.decision) == Some(open.trace);
        let Some(cluster) = milestone.cluster.as_deref().filter(|_| of_it) else { return };
        match milestone.stage {
            Stage::Dispatched => {
                if let Some(waiting) = open.waiting.get_mut(cluster) {
                    waiting.dispatched.get_or_insert(open.dispatching.unwrap_or(milestone.at));
                }
            }
            Stage::Applied | Stage::Healthy => {
                let Some((cluster, waiting)) = open.waiting.remove_entry(cluster) else { return };
                let (trace, is_last) = (open.trace, open.waiting.is_empty());
                let start = waiting.dispatched.unwrap_or(milestone.at);
                self.tracer.record(dispatch(trace, &cluster, &waiting, (start, milestone.at)));
                if is_last {
                    self.close(key, milestone.at, None);
                }
            }
            _ => {}
        }
    }

    /// The binding was deleted.
    pub(crate) fn forget(&mut self, key: &BindingKey) {
        self.end(key, "the binding was deleted");
    }

    /// Ends traces that have been open for too long.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some((since, key)) = self.by_age.first().cloned()
            && since + LONGEST <= now
        {
            self.end(&key, &format!("not applied within {} s", LONGEST.as_secs()));
        }
    }

    fn end(&mut self, key: &BindingKey, why: &str) {
        self.close(key, self.clock.now(), Some(why));
    }

    /// Records the root. Members that have not applied the decision get a span that says so.
    fn close(&mut self, key: &BindingKey, at: Timestamp, why: Option<&str>) {
        let Some(open) = self.open.remove(key) else { return };
        let OpenTrace { trace, root, since, waiting, .. } = open;
        self.by_age.remove(&(since, key.clone()));
        for (cluster, waiting) in waiting {
            let span = dispatch(trace, &cluster, &waiting, (waiting.dispatched.unwrap_or(at), at));
            self.tracer.record(span.failed(why.unwrap_or_default()));
        }
        let root = root.until(at);
        self.tracer.record(match why {
            Some(why) => root.failed(why),
            None => root,
        });
    }
}

impl Drop for DecisionTraces {
    fn drop(&mut self) {
        for key in self.open.keys().cloned().collect::<Vec<_>>() {
            self.end(&key, "this controller does not lead any more");
        }
    }
}

fn root(trace: TraceId) -> SpanId {
    trace.span(&["decision"])
}

/// The span of the way to a member: its agent's span is below.
fn of_member(trace: TraceId, cluster: &ClusterName) -> SpanId {
    trace.span(&["dispatch", cluster.as_str()])
}

fn dispatch(
    trace: TraceId,
    cluster: &ClusterName,
    waiting: &Waiting,
    times: (Timestamp, Timestamp),
) -> Span {
    let span = Span::new((trace, of_member(trace, cluster)), Some(root(trace)), "dispatch", times);
    let span = span.kind(Kind::Client).with("atoll.cluster", cluster.as_str());
    span.with("atoll.replicas", waiting.replicas)
}
