//! The task that owns the controller's state: it handles events, maintains the tables and the queue, and starts jobs.
//! It never blocks: decisions, writes and look-ups run elsewhere and return as events.
//!
//! Order of processing: `intake` (watch events into the tables) -> `work` (one key at a time: detect, ask the
//! scheduler, commit) -> `outward` (committed decisions to members) -> `reports` (reports of members) -> `publish`
//! (statuses). A follower does only the first; `leading` handles the start and end of a leadership.

mod absence;
mod alarms;
mod answers;
mod departures;
mod facts;
mod freshness;
mod gates;
mod intake;
mod jobs;
mod leading;
mod outward;
mod publish;
mod recording;
mod recovery;
mod refusals;
mod reissued;
mod reports;
mod telling;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use atoll_api::workload_policy::DomainStatus;
use atoll_api::workload_spread::SubsetStatus;
use atoll_api::{Clock, Cluster, ReservedNamespaces};
use atoll_history::{Progress, Receipt, Recorder, Store};
use atoll_scheduler::{LiveCluster, RecoverAfter, Tables, WakeCondition};
use kube::Client;
use kube::api::ApiResource;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::chronicle::{Authors, Lives};
use crate::dispatch::Sent;
use crate::dispatch::outlet::Outlet;
use crate::dispatch::verdicts::Verdicts;
use crate::events::Notes;
use crate::index::key::{BindingKey, GroupKind, NamespacedName};
use crate::index::{Index, Source};
use crate::leader::{Election, LeaderTerm, Leadership};
use crate::lifecycle::emptying::Emptying;
use crate::lifecycle::pace::{Pace, PaceLimits};
use crate::lifecycle::withdrawal::Withdrawal;
use crate::members::MemberEvent;
use crate::metrics::Counters;
use crate::queue::Queue;
use crate::run::ControllerError;
use crate::schedule::Desk;
use crate::schedule::extend::Extensions;
use crate::status::due::Due;
use crate::status::views::Views;
use crate::watch::{Arrival, Streams};
use freshness::Freshness;
use jobs::Jobs;
use reissued::Reissued;
use work::Deciding;

/// Events handled before jobs are started again, so that neither starves the other.
const BATCH: usize = 256;

/// Dependencies of the engine.
pub(crate) struct Parts {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) counters: Counters,
    pub(crate) notes: Notes,
    pub(crate) recorder: Recorder,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) retention: Duration,
    pub(crate) outlet: Arc<dyn Outlet>,
    pub(crate) verdicts: Arc<Verdicts>,
    pub(crate) election: Election,
    pub(crate) ready: watch::Sender<Option<LeaderTerm>>,
    pub(crate) streams: Streams,
    pub(crate) arrivals: mpsc::Receiver<Arrival>,
    pub(crate) reports: mpsc::Receiver<MemberEvent>,
    pub(crate) desk: Desk,
    pub(crate) extensions: Arc<Extensions>,
    pub(crate) pace: PaceLimits,
    pub(crate) recover_after: RecoverAfter,
    pub(crate) reserved: ReservedNamespaces,
}

/// The engine.
pub(crate) struct Engine {
    client: Client,
    clock: Clock,
    counters: Counters,
    notes: Notes,
    recorder: Recorder,
    store: Arc<dyn Store>,
    outlet: Arc<dyn Outlet>,
    verdicts: Arc<Verdicts>,
    election: Election,
    leadership: watch::Receiver<Option<Leadership>>,
    ready: watch::Sender<Option<LeaderTerm>>,
    streams: Streams,
    arrivals: mpsc::Receiver<Arrival>,
    reports: mpsc::Receiver<MemberEvent>,
    desk: Desk,
    extensions: Arc<Extensions>,

    index: Index,
    resources: BTreeMap<GroupKind, ApiResource>,
    tables: Tables,
    live: BTreeMap<String, LiveCluster>,
    queue: Queue<BindingKey, WakeCondition>,
    deciding: Option<Deciding>,
    /// Replies owed to a previous term; discarded.
    stale_answers: usize,
    jobs: Jobs,
    /// The term under which the following state was set up; `None` while we do not lead.
    led: Option<LeaderTerm>,
    sent: Sent,
    /// Members that were ordered to remove a binding's objects, and those that have confirmed.
    leaving: BTreeMap<BindingKey, BTreeSet<String>>,
    confirmed: BTreeMap<BindingKey, BTreeSet<String>>,
    /// Why a template could not be rendered.
    unrendered: BTreeMap<BindingKey, String>,
    withdrawals: BTreeMap<BindingKey, Withdrawal>,
    /// Which bindings may leave a cluster now.
    pace: Pace<BindingKey>,
    /// How long a cluster must be healthy before workloads move back to it.
    recover_after: RecoverAfter,
    /// Last published progress of members that must be emptied, and when to count again.
    emptying: BTreeMap<String, Emptying>,
    look_at: Option<Instant>,
    views: Views,
    due: Due,
    domains: BTreeMap<NamespacedName, Vec<DomainStatus>>,
    subsets: BTreeMap<NamespacedName, Vec<SubsetStatus>>,
    /// Receipts of the decisions that bindings hold, by id.
    receipts: BTreeMap<String, Receipt>,
    /// Bindings with decisions that did not fit history's queue.
    unoffered: BTreeSet<BindingKey>,
    offer_again: Option<Instant>,
    progress: watch::Receiver<Progress>,
    /// Whether the history database does not accept writes, which bindings then report.
    behind: bool,
    /// Last authors of templates and policies.
    authors: Authors,
    /// Progress of the decisions made in this leadership.
    lives: Lives,
    /// Clusters in the state last recorded in history.
    told: BTreeMap<String, Arc<Cluster>>,
    /// Whether the hub may be older than history, so that removals are limited.
    freshness: Freshness,
    /// Objects of already ended bindings that were sent to members.
    reissued: Reissued,
    /// Retention of history.
    retention: Duration,
}

impl Engine {
    pub(crate) fn new(parts: Parts) -> Self {
        let leadership = parts.election.state();
        let progress = parts.recorder.progress();
        let mut index = Index::default();
        index.reserve(parts.reserved);
        Self {
            client: parts.client,
            clock: parts.clock,
            counters: parts.counters,
            notes: parts.notes,
            recorder: parts.recorder,
            store: parts.store,
            outlet: parts.outlet,
            verdicts: parts.verdicts,
            election: parts.election,
            leadership,
            ready: parts.ready,
            streams: parts.streams,
            arrivals: parts.arrivals,
            reports: parts.reports,
            desk: parts.desk,
            queue: Queue::new(parts.extensions.order()),
            extensions: parts.extensions,
            index,
            resources: BTreeMap::new(),
            tables: Tables::default(),
            live: BTreeMap::new(),
            deciding: None,
            stale_answers: 0,
            jobs: Jobs::default(),
            led: None,
            sent: Sent::default(),
            leaving: BTreeMap::new(),
            confirmed: BTreeMap::new(),
            unrendered: BTreeMap::new(),
            withdrawals: BTreeMap::new(),
            pace: Pace::new(parts.pace, Instant::now()),
            recover_after: parts.recover_after,
            emptying: BTreeMap::new(),
            look_at: None,
            views: Views::default(),
            due: Due::default(),
            domains: BTreeMap::new(),
            subsets: BTreeMap::new(),
            receipts: BTreeMap::new(),
            unoffered: BTreeSet::new(),
            offer_again: None,
            progress,
            behind: false,
            authors: Authors::default(),
            lives: Lives::default(),
            told: BTreeMap::new(),
            freshness: Freshness::default(),
            reissued: Reissued::default(),
            retention: parts.retention,
        }
    }

    /// Runs until cancelled. Running jobs are then aborted: every write is guarded, and the next leader finds the
    /// result of an abandoned write in the hub.
    pub(crate) async fn run(mut self, token: CancellationToken) -> Result<(), ControllerError> {
        self.watch_kinds();
        loop {
            self.hand_out_work();
            self.counters.queued(self.queue.lengths());
            self.counters.paced(self.pace.waiting());
            let wake = self.next_timer();
            let sleep = async {
                match wake {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = token.cancelled() => return Ok(()),
                Ok(()) = self.leadership.changed() => self.follow_leadership(),
                Some(done) = self.jobs.next() => self.job_done(done),
                answer = self.desk.answer() => match answer {
                    Some(decision) => self.decided(*decision),
                    None => return Err(ControllerError::Scheduler),
                },
                Some(event) = self.reports.recv() => {
                    self.take_report(event);
                    for _ in 1..BATCH {
                        let Ok(event) = self.reports.try_recv() else { break };
                        self.take_report(event);
                    }
                }
                Some(arrival) = self.arrivals.recv() => {
                    self.take_in(arrival);
                    for _ in 1..BATCH {
                        let Ok(arrival) = self.arrivals.try_recv() else { break };
                        self.take_in(arrival);
                    }
                }
                () = recording::turned(&mut self.progress, self.behind) => self.follow_history(),
                () = sleep => {}
            }
        }
    }

    /// Earliest pending deadline.
    fn next_timer(&self) -> Option<Instant> {
        self.term()?;
        // At the job limit, the next completion re-checks this.
        let due = self.due.next().filter(|_| self.may_publish());
        let others = [self.offer_again, self.pace.next(), self.look_at];
        [self.queue.next_timer(), due].into_iter().chain(others).flatten().min()
    }

    /// The term, while we lead for certain. Checked before every write.
    fn term(&self) -> Option<LeaderTerm> {
        let in_force = self.leadership.borrow().and_then(|leadership| leadership.in_force());
        in_force.filter(|term| self.led == Some(*term))
    }

    /// Whether all streams required for leading have listed everything.
    fn is_complete(&self) -> bool {
        let own = [
            Source::Clusters,
            Source::PropagationPolicies,
            Source::ClusterPropagationPolicies,
            Source::WorkloadPolicies,
            Source::WorkloadSpreads,
            Source::ResourceBindings,
            Source::ClusterResourceBindings,
        ];
        let kinds: Vec<Source> =
            self.index.wanted_kinds().into_keys().map(Source::Templates).collect();
        own.iter().all(|source| self.index.reading(source).complete)
            && self.index.settled(&[Source::Namespaces, Source::Nodes, Source::PriorityClasses])
            && self.index.settled(&kinds)
    }
}

#[cfg(test)]
mod tests;
