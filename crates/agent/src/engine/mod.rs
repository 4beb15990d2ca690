//! The one task that holds desired and actual state of the member: messages, watch events and results of calls come in,
//! calls and reports go out.
//!
//! Decisions about a single object are in [`crate::apply`], bookkeeping in [`table`]. The task outlives sessions:
//! without one, it still reverts drift and retries what was ordered.

mod convert;
mod index_state;
mod kinds;
mod listing;
mod orders;
mod queue;
mod readings;
mod rules;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use atoll_api::{Clock, ReservedNamespaces};
use atoll_protocol::digest::Digest;
use atoll_protocol::v1::controller_message::Message;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::apply::object::{self, Applied, Live};
use crate::apply::order::is_definition;
use crate::apply::removal::{self, Withdrawn};
use crate::capacity::Pods;
use crate::inventory::agreement::Agreement;
use crate::inventory::index::Found;
use crate::key::{GroupKind, Key};
use crate::member::{Discovery, Fence, Followed, Member, MemberError};
use crate::metrics::AgentMetrics;
use crate::observe;
use crate::options::Timings;
use crate::rules::UserRules;
use crate::session::outbox::Outbox;
use atoll_api::Jitter;
use index_state::{IndexState, Trust};
use kinds::Kinds;
use queue::Place;
use readings::Readings;
use table::{Outcome, Table, Work};

/// How often unused kinds are looked for.
const HOUSEKEEPING: Duration = Duration::from_secs(30);
/// How often the fence is checked while it is closed and there is work.
const FENCED: Duration = Duration::from_millis(500);
/// How long running calls may still take at a stop. They are repeated at the next start.
const GRACE: Duration = Duration::from_millis(700);
/// Queued watch events of all kinds together. A full channel stops the watches.
const EVENTS: usize = 256;

/// Input from a session.
pub(crate) enum Command {
    /// A session begins: reports go to this outbox; the reply is the digest of the inventory.
    Begin {
        /// The session's outgoing messages.
        outbox: Arc<Outbox>,
        /// Receives the digest.
        reply: oneshot::Sender<Digest>,
    },
    /// A message of the controller.
    Message(Message),
    /// The session ended.
    End,
}

/// Dependencies of the engine.
pub(crate) struct EngineOptions {
    /// The member; written to only while the Lease is held.
    pub member: Member,
    /// Whether the Lease is held.
    pub fence: Fence,
    /// Namespace of the agent's own objects.
    pub namespace: String,
    /// Namespaces to which nothing is applied.
    pub reserved: ReservedNamespaces,
    /// Kinds of the member.
    pub discovery: Discovery,
    /// Where users' rules run.
    pub runs_on: atoll_api::RunsOn,
    /// Wall clock, for traces.
    pub clock: Clock,
    /// Jitter.
    pub jitter: Jitter,
    /// Times.
    pub timings: Timings,
    /// No agent ran on this member before.
    pub first: bool,
    /// Kinds that cannot be listed.
    pub unlisted: watch::Sender<BTreeSet<GroupKind>>,
    /// Metrics.
    pub metrics: AgentMetrics,
}

struct Session {
    outbox: Arc<Outbox>,
    agreement: Agreement,
    /// A session asked for the inventory before all kinds were listed.
    waiting: Option<oneshot::Sender<Digest>>,
    /// The controller sent a list of customizations.
    has_customizations: bool,
}

struct Engine {
    options: EngineOptions,
    table: Table,
    kinds: Kinds,
    index: IndexState,
    session: Option<Session>,
    jobs: JoinSet<(Key, Work, Outcome)>,
    /// Pod reports of workloads, Atoll's or not.
    pods: BTreeMap<Key, Pods>,
    /// Rules of users, and the objects whose state they read.
    rules: Arc<UserRules>,
    readings: Readings,
    /// Objects whose status waits for the end of the window.
    statuses: BTreeSet<Key>,
    flush: Option<Instant>,
    /// Objects were found after the inventory was sent.
    late: bool,
    /// When the inventory is used even if incomplete. `None` once it was used.
    patience: Option<Instant>,
    /// Until when kinds may take to be listed: afterwards the unlisted ones are reported, and a lost index is
    /// rewritten. `None` when that has passed.
    settling: Option<Instant>,
}

/// Runs until cancelled, starting from the index as found.
pub(crate) async fn run(
    options: EngineOptions,
    found: Found,
    mut commands: mpsc::Receiver<Command>,
    mut workloads: mpsc::Receiver<(Key, Pods)>,
    token: CancellationToken,
) {
    let (events, mut received) = mpsc::channel(EVENTS);
    let kinds = Kinds::new(options.member.clone(), options.jitter.clone(), events, token.clone());
    let mut apis = options.discovery.subscribe();
    let patience = Some(Instant::now() + options.timings.inventory_wait);
    let mut engine = Engine {
        table: Table::new(options.jitter.clone()),
        kinds,
        index: IndexState::open(found, options.first),
        session: None,
        jobs: JoinSet::new(),
        pods: BTreeMap::new(),
        rules: Arc::new(UserRules::new(options.runs_on)),
        readings: Readings::default(),
        statuses: BTreeSet::new(),
        flush: None,
        late: false,
        patience,
        settling: patience,
        options,
    };
    let mut housekeeping = tokio::time::interval(HOUSEKEEPING);
    engine.follow_index();
    loop {
        let now = Instant::now();
        engine.answer_if_ready(now);
        engine.flush_statuses(now);
        engine.settle(now);
        engine.restore_index(now);
        engine.start_work(now);
        engine.count();
        engine.start_readings();
        engine.send_rule_failures(now);
        let wake = engine.next_wake(Instant::now());
        tokio::select! {
            biased;
            () = token.cancelled() => break,
            Some(done) = engine.jobs.join_next() => engine.job_done(done),
            Some(done) = engine.readings.jobs.join_next() => engine.read_done(done),
            Some(done) = engine.index.writes.join_next() => engine.index_written(done),
            command = commands.recv() => match command {
                Some(command) => engine.command(command),
                None => break,
            },
            Some((kind, event)) = received.recv() => engine.event(&kind, event),
            Some((key, pods)) = workloads.recv() => engine.workload(key, pods),
            Ok(()) = apis.changed() => engine.apis_changed(),
            _ = housekeeping.tick() => engine.drop_unused(),
            () = tokio::time::sleep_until(wake.unwrap_or(now)), if wake.is_some() => {}
        }
    }
    let rest = async { while engine.jobs.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, rest).await.is_err() {
        tracing::info!("cancelled the running calls to the member");
    }
    engine.jobs.shutdown().await;
    engine.readings.jobs.shutdown().await;
    engine.index.writes.shutdown().await;
    engine.kinds.stop().await;
}

impl Engine {
    fn next_wake(&self, now: Instant) -> Option<Instant> {
        let patience = self.patience.filter(|_| self.waits_for_inventory());
        // Work that is due but blocked by the fence must not wake the loop again and again.
        let open = self.options.fence.is_open();
        let fenced = |at: Instant| if open { at } else { at.max(now + FENCED) };
        let work = self.table.queue.next(now).map(fenced);
        let index = self.index.retry.map(fenced);
        let failures = self.next_rule_failure(now);
        [work, self.flush, patience, self.settling, index, failures].into_iter().flatten().min()
    }

    // Work.

    fn start_work(&mut self, now: Instant) {
        if !self.options.fence.is_open() {
            return;
        }
        let state = &self.index;
        let covered = |key: &Key, place: Place| match place {
            Place::Apply(_) => state.trust == Trust::Lost || state.index.covers(key),
            Place::Withdraw(_) => true,
        };
        for key in self.table.queue.take(now, covered) {
            match self.table.work(&key) {
                Some(work) => self.spawn(key, work),
                None => self.table.queue.finish(&key),
            }
        }
        self.extend_index(now);
    }

    fn spawn(&mut self, key: Key, work: Work) {
        let member = self.options.member.clone();
        let apis = self.options.discovery.current();
        let rules = Arc::clone(&self.rules);
        let metrics = self.options.metrics.clone();
        let trace = self.table.trace(&key);
        let clock = self.options.clock.clone();
        self.jobs.spawn(async move {
            let start = Instant::now();
            let traced = trace.map(|context| (context, clock.now()));
            let outcome = match &work {
                Work::Apply(desired, known) => Outcome::Applied(
                    object::apply(&member, apis, &rules, &key, desired, known).await,
                ),
                Work::Withdraw(withdrawal, uid) => Outcome::Withdrawn(
                    removal::withdraw(&member, apis, &key, withdrawal, uid.as_deref()).await,
                ),
            };
            match outcome.label() {
                (true, result) => {
                    metrics.applied(&key.kind, result, start.elapsed());
                    if let Some((context, began)) = traced {
                        metrics.trace(context, &key, result, (began, clock.now()));
                    }
                }
                (false, result) => metrics.withdrawn(result),
            }
            (key, work, outcome)
        });
    }

    fn count(&self) {
        let (queued, running) = self.table.queue.lengths();
        self.options.metrics.objects(self.table.len(), queued, running);
    }

    fn job_done(&mut self, done: Result<(Key, Work, Outcome), tokio::task::JoinError>) {
        let (key, work, outcome) = match done {
            Ok(done) => done,
            Err(error) => {
                // A job panics only by a defect; its key stays taken, other keys continue.
                tracing::error!(%error, "a call to the member panicked");
                return;
            }
        };
        match &outcome {
            // The controller has to judge this object again, under its uid.
            Outcome::Withdrawn(Ok(Withdrawn::NotOurs { marked: true, .. })) => self.late = true,
            Outcome::Applied(Err(MemberError::NotServed { .. }))
            | Outcome::Withdrawn(Err(MemberError::NotServed { .. })) => {
                self.options.discovery.refresh();
            }
            Outcome::Applied(Ok(Applied::Done { written: true, .. }))
                if is_definition(&key.kind) =>
            {
                self.options.discovery.refresh();
            }
            _ => {}
        }
        let decision = self.table.trace(&key).map(|context| context.trace);
        if let Some(report) = self.table.done(&key, &work, outcome, Instant::now()) {
            if !report.reason.is_empty() {
                tracing::info!(%key, decision = ?decision, reason = %report.reason, message = %report.message, "not as desired");
            }
            self.report(key, report);
        }
    }

    fn apis_changed(&mut self) {
        self.table.wake("KindNotServed", Instant::now());
        self.follow_index();
    }

    // What is on the member.

    fn event(&mut self, kind: &GroupKind, event: Followed) {
        // Last events of a watch that was ended.
        if !self.kinds.follows(kind) {
            return;
        }
        let now = Instant::now();
        match event {
            Followed::ListBegins => self.kinds.list_begins(kind),
            Followed::Page(objects) => {
                for object in &objects {
                    if !self.is_ours(kind, object) {
                        continue;
                    }
                    let key = key_of(kind, object);
                    self.kinds.seen(kind, key.clone());
                    if self.kinds.is_listed(kind) {
                        self.table.observed(&key, Live::of(object), now);
                    } else {
                        self.table.found(&key, object, now);
                    }
                    self.observe(&key, object);
                }
            }
            Followed::ListEnds => {
                let first = !self.kinds.is_listed(kind);
                let seen = self.kinds.list_ends(kind);
                self.report_unlisted();
                for (key, uid) in self.table.missing(kind, &seen) {
                    self.gone(&key, &uid, now);
                }
                let late = self.session.as_ref().is_some_and(|session| session.waiting.is_none());
                // The controller's inventory lacks these objects. Late objects are sent together: each inventory costs
                // a full comparison.
                self.late |= first && late && !seen.is_empty();
                if self.late && self.kinds.all_listed() {
                    self.send_inventory();
                }
            }
            Followed::Changed(object) if !self.is_ours(kind, &object) => {}
            Followed::Changed(object) => {
                if is_definition(kind) {
                    // Its kind is served once it is established.
                    self.options.discovery.refresh();
                }
                let key = key_of(kind, &object);
                self.table.observed(&key, Live::of(&object), now);
                self.observe(&key, &object);
            }
            Followed::Deleted(object) => {
                let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
                self.gone(&key_of(kind, &object), uid, now);
            }
            Followed::Failed(error) if error.is_expired() => {}
            Followed::Failed(error) => {
                if error.is_not_found() {
                    // The kind may have been removed; a complete discovery will tell.
                    self.options.discovery.refresh();
                    let apis = self.options.discovery.current();
                    self.kinds.follow(kind, &apis, None);
                }
                tracing::warn!(%kind, error = %error.message(), "cannot follow a kind");
                self.kinds.failed(kind, error.is_forbidden());
                self.report_unlisted();
            }
        }
    }

    fn gone(&mut self, key: &Key, uid: &str, now: Instant) {
        self.readings.forget(key);
        if self.table.gone(key, uid, now) {
            self.statuses.remove(key);
            if let Some(session) = &self.session {
                session.outbox.status(key.clone(), observe::gone(key));
            }
        }
    }

    fn workload(&mut self, key: Key, pods: Pods) {
        let before = self.pods.get(&key);
        let changed = self.table.status(&key).is_some_and(|status| {
            observe::with_pods(status, before) != observe::with_pods(status, Some(&pods))
        });
        if changed {
            self.status_changed(&key);
        }
        if pods.is_empty() {
            self.pods.remove(&key);
        } else {
            self.pods.insert(key, pods);
        }
    }

    fn status_changed(&mut self, key: &Key) {
        self.statuses.insert(key.clone());
        let window = self.options.timings.status_window;
        self.flush.get_or_insert_with(|| Instant::now() + window);
    }

    fn flush_statuses(&mut self, now: Instant) {
        if self.flush.is_none_or(|at| now < at) {
            return;
        }
        self.flush = None;
        for key in std::mem::take(&mut self.statuses) {
            if let (Some(session), Some(status)) = (&self.session, self.table.status(&key)) {
                let status = observe::with_pods(status, self.pods.get(&key));
                session.outbox.status(key, status);
            }
        }
    }
}

fn key_of(kind: &GroupKind, object: &serde_json::Value) -> Key {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    Key { kind: kind.clone(), namespace: text("namespace"), name: text("name") }
}
