//! The whole controller: its inputs, its tasks, and the order in which they stop.

use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use atoll_api::{Backoff, Clock, ReservedNamespaces, RunsOn};
use atoll_history::{Drained, Keeper, Observer, Recorder, RecorderOptions, Store};
use atoll_protocol::identity::TrustDomain;
use atoll_scheduler::{Profiles, RecoverAfter};
use atoll_traces::Tracer;
use kube::Client;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::env::{Env, Waits};
use crate::event_loop::{EventLoop, Inputs};
use crate::events;
use crate::http::{self, Pages, Scope};
use crate::hub_load::HubLoad;
use crate::hub_state::HubState;
use crate::index::Index;
use crate::interpret::Interpreter;
use crate::interpret::webhooks::{WebhookCaller, WebhookTimes};
use crate::leader::{self, Candidate, Election, ElectionError, Elector, LeaderTerm, OwnPod};
use crate::leadership::take_over::SLICE;
use crate::lifecycle::pace::PaceLimits;
use crate::members::{
    HealthTimes, Incoming, MemberEvent, Members, MembersOptions, Metrics, TimesError,
};
use crate::metrics::Counters;
use crate::placements::outlet::Outlet;
use crate::planning::{Ask, Planner};
use crate::queue::BACKOFF;
use crate::rebalance::Rebalancing;
use crate::schedule;
use crate::schedule::extend::{Extension, ExtensionError, Extensions};
use crate::static_quotas::StaticQuotas;
use crate::taint_policies::TaintPolicies;
use crate::watch::Streams;

/// Limit of stream events queued for the engine. While the queue is full the streams wait, and the API server holds
/// back their events.
const ARRIVALS: usize = 1024;
/// Limit of member events queued for the engine. While the queue is full, `members` coalesces them.
const REPORTS: usize = 4096;
/// Time limit of a stop. `atoll up` stops within 5 s.
const STOP: Duration = Duration::from_secs(3);

/// Inputs of a controller, except those for its members.
pub struct Hub {
    /// The hub. Its own retries must be off: every write here is guarded and has its own.
    pub client: Client,
    /// Wall clock.
    pub clock: Clock,
    /// Where decisions are recorded.
    pub history: Arc<dyn Store>,
    /// Retention of decisions there.
    pub retention: Duration,
    /// The candidate for the election.
    pub candidate: Candidate,
    /// The scheduler's profiles.
    pub profiles: Profiles,
    /// Where the scheduler and users' rules run.
    pub runs_on: RunsOn,
    /// Seed of every jitter.
    pub seed: u64,
}

/// Inputs of a controller for its members.
pub struct MembersSide {
    /// Source of agents' connections.
    pub incoming: Incoming,
    /// Times of members' health.
    pub health: HealthTimes,
    /// Trust domain of a newly created certificate authority.
    pub trust_domain: TrustDomain,
    /// Metrics.
    pub metrics: Metrics,
}

/// A controller: one of several, of which one leads.
pub struct Controller {
    core: Core,
    members: Members,
    token: CancellationToken,
    /// Sessions end after the engine, so that it does not react to members that disconnect because we stop.
    sessions: CancellationToken,
    /// The Pod that is labelled while we lead.
    pod: Option<OwnPod>,
}

impl Controller {
    /// Creates a controller and starts listening for members, which are refused until we lead. It runs until `token` is
    /// cancelled.
    ///
    /// # Errors
    /// When times contradict each other.
    pub fn new(
        hub: Hub,
        members: MembersSide,
        token: CancellationToken,
    ) -> Result<Self, ControllerError> {
        let mut core = Core::new(hub)?;
        let options = MembersOptions {
            client: core.hub.client.clone(),
            clock: core.hub.clock.clone(),
            incoming: members.incoming,
            health: members.health,
            term: core.term.clone(),
            other_leader: core.election.other_leader(),
            trust_domain: members.trust_domain,
            metrics: members.metrics,
        };
        options.metrics.register(&mut core.registry);
        let sessions = CancellationToken::new();
        let members = Members::start(options, core.events.clone(), sessions.clone())?;
        core.registry.register_collector(Box::new(members.gauges()));
        Ok(Self { core, members, token, sessions, pod: None })
    }

    /// Serves `/healthz`, `/readyz` and `/metrics` on this listener, over plain HTTP, while the controller runs.
    #[must_use]
    pub fn with_http(mut self, listener: TcpListener) -> Self {
        self.core.listeners.push((listener, Scope::All));
        self
    }

    /// Serves `/healthz` and `/readyz` on this listener, so that clients of the metrics cannot block the probes.
    #[must_use]
    pub fn with_probes(mut self, listener: TcpListener) -> Self {
        self.core.listeners.push((listener, Scope::Probes));
        self
    }

    /// Replaces the default limits on how fast work leaves clusters that failed or are drained.
    #[must_use]
    pub fn with_pace(mut self, pace: PaceLimits) -> Self {
        self.core.settings.pace = pace;
        self
    }

    /// Replaces the default for how long a member must have been Ready without interruption before work moves back to
    /// it.
    #[must_use]
    pub fn with_recovery(mut self, recover_after: RecoverAfter) -> Self {
        self.core.settings.recover_after = recover_after;
        self
    }

    /// Replaces the number of bindings that a new leader passes on before it looks at events again. A small one lets
    /// simulations with few bindings have several such slices.
    #[must_use]
    pub fn with_slice(mut self, bindings: NonZero<usize>) -> Self {
        self.core.settings.slice = bindings;
        self
    }

    /// Records traces of decisions. The caller ends the exporter after the controller.
    #[must_use]
    pub fn with_traces(mut self, tracer: Tracer) -> Self {
        tracer.register(self.core.registry.sub_registry_with_prefix("atoll"));
        self.core.settings.tracer = tracer;
        self
    }

    /// Adds plugins to the built-in ones. They run where a profile enables them.
    #[must_use]
    pub fn with_plugins(mut self, plugins: Vec<Arc<dyn Extension>>) -> Self {
        self.core.settings.plugins = plugins;
        self
    }

    /// Replaces the built-in minimum of namespaces whose objects are never propagated.
    #[must_use]
    pub fn with_reserved(mut self, namespaces: ReservedNamespaces) -> Self {
        self.core.settings.reserved = namespaces;
        self
    }

    /// Sets whether namespaces that no ClusterSet selects may use no cluster, as opposed to all.
    #[must_use]
    pub fn with_required_cluster_sets(mut self, required: bool) -> Self {
        self.core.settings.require_cluster_sets = required;
        self
    }

    /// Labels the Pod while we lead, so that a Service can select it.
    #[must_use]
    pub fn with_pod(mut self, pod: OwnPod) -> Self {
        self.pod = Some(pod);
        self
    }

    /// Handle of `members`: certificate authority, orphans, suspicion.
    #[must_use]
    pub fn members(&self) -> Members {
        self.members.clone()
    }

    /// Plans changes, while this controller leads.
    #[must_use]
    pub fn planner(&self) -> Planner {
        self.core.planner.clone()
    }

    /// Receives changes of leadership.
    #[must_use]
    pub fn leadership(&self) -> watch::Receiver<Option<leader::Leadership>> {
        self.core.election.state()
    }

    /// Runs until cancelled; then writing stops, sessions end, the Lease is released and history has a moment to write
    /// queued records.
    ///
    /// # Errors
    /// When the scheduler's thread cannot be started, or has ended.
    pub async fn run(self) -> Result<(), ControllerError> {
        let outlet = Arc::new(self.members.clone());
        let (state, unlabel) = (self.core.election.state(), CancellationToken::new());
        let labelling =
            self.pod.map(|pod| tokio::spawn(leader::label::keep(pod, state, unlabel.clone())));
        let result = self.core.run(outlet, self.token, self.sessions.clone()).await;
        self.sessions.cancel();
        unlabel.cancel();
        if let Some(labelling) = labelling
            && tokio::time::timeout(STOP, labelling).await.is_err()
        {
            tracing::warn!("the Pod's label may have stayed");
        }
        if tokio::time::timeout(STOP, self.members.stopped()).await.is_err() {
            tracing::warn!("tasks of members did not end within 3 s of the stop");
        }
        result
    }
}

/// Why a controller could not start.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The election's times contradict each other.
    #[error("leader election")]
    Election(#[from] ElectionError),
    /// The times of members' health contradict each other.
    #[error("times of members' health")]
    Health(#[from] TimesError),
    /// The plugins of the profiles cannot run together.
    #[error("plugins")]
    Plugins(#[from] ExtensionError),
    /// The scheduler ended: a panic in it is in the log.
    #[error("the scheduler has ended")]
    Scheduler,
    /// The scheduler's thread could not be started.
    #[error("start the scheduler's thread")]
    Thread(#[source] std::io::Error),
}

/// What the caller of a controller may replace.
pub(crate) struct Settings {
    /// How fast work leaves clusters.
    pub(crate) pace: PaceLimits,
    /// How long a cluster must be healthy before work moves back to it.
    pub(crate) recover_after: RecoverAfter,
    /// Plugins in addition to the built-in ones, for profiles that name them.
    pub(crate) plugins: Vec<Arc<dyn Extension>>,
    /// Namespaces whose objects are never propagated.
    pub(crate) reserved: ReservedNamespaces,
    /// Whether namespaces that no ClusterSet selects may use no cluster.
    pub(crate) require_cluster_sets: bool,
    /// Waits of a binding after failures.
    pub(crate) retry: Backoff,
    /// Times of webhooks that do not answer.
    pub(crate) webhooks: WebhookTimes,
    /// Records traces of decisions.
    pub(crate) tracer: Tracer,
    /// Bindings that a new leader passes on before it looks at events again.
    pub(crate) slice: NonZero<usize>,
}

impl Settings {
    fn waits(&self) -> Waits {
        Waits { pace: self.pace, recover_after: self.recover_after, retry: self.retry }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            pace: PaceLimits::default(),
            recover_after: RecoverAfter::default(),
            plugins: Vec::new(),
            reserved: ReservedNamespaces::default(),
            require_cluster_sets: false,
            retry: BACKOFF,
            webhooks: WebhookTimes::default(),
            tracer: Tracer::default(),
            slice: SLICE,
        }
    }
}

/// The controller without `members`, ready to be connected to it.
pub(crate) struct Core {
    pub(crate) election: Election,
    /// The term while we lead, for sessions.
    pub(crate) term: watch::Receiver<Option<LeaderTerm>>,
    /// Receives events of members.
    pub(crate) events: mpsc::Sender<MemberEvent>,
    /// The engine's metrics, and all others that the process shows.
    pub(crate) counters: Counters,
    registry: Registry,
    listeners: Vec<(TcpListener, Scope)>,
    pub(crate) settings: Settings,
    hub: Hub,
    elector: Elector,
    terms: watch::Sender<Option<LeaderTerm>>,
    ready: watch::Sender<Option<LeaderTerm>>,
    reports: mpsc::Receiver<MemberEvent>,
    pub(crate) planner: Planner,
    plans: mpsc::Receiver<Ask>,
}

impl Core {
    pub(crate) fn new(hub: Hub) -> Result<Self, ControllerError> {
        let (ready, known) = watch::channel(None);
        let (election, elector) =
            leader::election(hub.client.clone(), hub.candidate.clone(), hub.clock.clone(), known)?;
        let (terms, term) = watch::channel(None);
        let (events, reports) = mpsc::channel(REPORTS);
        let (counters, mut registry) = (Counters::default(), Registry::default());
        counters.register(&mut registry);
        let (planner, plans) = Planner::new();
        Ok(Self {
            election,
            term,
            events,
            counters,
            registry,
            listeners: Vec::new(),
            settings: Settings::default(),
            hub,
            elector,
            terms,
            ready,
            reports,
            planner,
            plans,
        })
    }

    /// Runs until cancelled. Order of stopping: deciding and writing stop, then the Lease is released, then history has
    /// a moment to write queued records.
    pub(crate) async fn run(
        self,
        outlet: Arc<dyn Outlet>,
        token: CancellationToken,
        sessions: CancellationToken,
    ) -> Result<(), ControllerError> {
        let Self { election, term: _, events, counters, registry, listeners, .. } = self;
        let Self { hub, elector, terms, ready, reports, settings, plans, .. } = self;
        drop(events);
        let tasks = TaskTracker::new();
        let extensions = Arc::new(Extensions::new(&hub.profiles, &settings.plugins)?);
        let (scheduler, decisions) =
            schedule::start(hub.profiles, hub.runs_on, &tasks).map_err(ControllerError::Thread)?;
        let (news, arrivals) = mpsc::channel(ARRIVALS);
        // Streams, Events and the rest end with the engine; the election and history after it.
        let engine_token = token.child_token();
        let (election_token, history_token) = (CancellationToken::new(), CancellationToken::new());
        let streams =
            Streams::new(hub.client.clone(), news, tasks.clone(), engine_token.clone(), hub.seed);
        let load = HubLoad::default();
        let (notes, writer) =
            events::notes(hub.client.clone(), load.clone(), counters.clone(), engine_token.clone());
        tasks.spawn(writer);
        let (recorder, writer) = Recorder::new(hub.history.clone(), recorder_options(&counters));
        outlet.record_sessions(&recorder);
        let recording = tokio::spawn(writer.run(history_token.clone()));
        let keeper = Keeper::new(Arc::clone(&hub.history), hub.clock.clone(), hub.retention);
        tasks.spawn(keeper.run(terms.subscribe(), engine_token.clone()));
        let pages = Arc::new(Pages::new(
            registry,
            ready.subscribe(),
            election.state(),
            recorder.progress(),
        ));
        for (listener, scope) in listeners {
            tasks.spawn(http::serve(listener, pages.clone(), scope, engine_token.clone()));
        }
        start_beside((&hub.client, &hub.clock), &terms, &tasks, &engine_token);
        let electing = tokio::spawn(elector.run(election_token.clone()));
        tasks.spawn(pass_terms(election.state(), terms, engine_token.clone()));
        let inputs = Inputs {
            leadership: election.state(),
            arrivals,
            reports,
            decisions,
            plans,
            progress: recorder.progress(),
        };
        let caller = WebhookCaller::new(settings.webhooks, counters.webhooks.clone());
        let interpreter = Arc::new(Interpreter::new(hub.clock.clone(), hub.runs_on, caller));
        let env = Arc::new(Env {
            interpreter,
            client: load.measured(&hub.client, &counters.latency),
            load,
            clock: hub.clock,
            counters,
            notes,
            recorder,
            store: hub.history,
            retention: hub.retention,
            outlet,
            election,
            scheduler,
            extensions,
            waits: settings.waits(),
            tracer: settings.tracer,
        });
        let mut index = Index::default();
        index.reserve(settings.reserved);
        index.require_cluster_sets(settings.require_cluster_sets);
        let hub_state = HubState::new(env.clone(), index, streams, ready);
        let result = EventLoop::new(env, hub_state, inputs, settings.slice).run(token).await;
        sessions.cancel();
        let stages =
            Stages { tasks, engine_token, electing, election_token, recording, history_token };
        stages.stop().await;
        result.map_err(|_| ControllerError::Scheduler)
    }
}

/// The recorder's settings, with a metric for what it writes.
fn recorder_options(counters: &Counters) -> RecorderOptions {
    let latency = counters.latency.clone();
    let observer = Observer::new(move |waited| latency.recorded(waited));
    RecorderOptions { recorded: Some(observer), ..RecorderOptions::default() }
}

/// Starts the tasks of the leader that need only the hub.
fn start_beside(
    (client, clock): (&Client, &Clock),
    terms: &watch::Sender<Option<LeaderTerm>>,
    tasks: &TaskTracker,
    token: &CancellationToken,
) {
    let rebalancing =
        Rebalancing { client: client.clone(), clock: clock.clone(), terms: terms.subscribe() };
    tasks.spawn(rebalancing.run(token.clone()));
    let tainting =
        TaintPolicies { client: client.clone(), clock: clock.clone(), terms: terms.subscribe() };
    tasks.spawn(tainting.run(token.clone()));
    let assigning = StaticQuotas { client: client.clone(), terms: terms.subscribe() };
    tasks.spawn(assigning.run(token.clone()));
}

/// What runs beside the event loop, and ends after it in this order.
struct Stages {
    tasks: TaskTracker,
    engine_token: CancellationToken,
    electing: JoinHandle<()>,
    election_token: CancellationToken,
    recording: JoinHandle<Drained>,
    history_token: CancellationToken,
}

impl Stages {
    async fn stop(self) {
        self.engine_token.cancel();
        self.tasks.close();
        if tokio::time::timeout(STOP, self.tasks.wait()).await.is_err() {
            tracing::warn!("a task did not end in time");
        }
        self.election_token.cancel();
        if tokio::time::timeout(STOP, self.electing).await.is_err() {
            tracing::warn!("the election did not end in time");
        }
        self.history_token.cancel();
        if let Err(error) = self.recording.await {
            tracing::error!(%error, "the recorder failed");
        }
    }
}

/// Passes on the term without its deadline: the election withdraws it at the deadline.
async fn pass_terms(
    mut state: watch::Receiver<Option<leader::Leadership>>,
    terms: watch::Sender<Option<LeaderTerm>>,
    token: CancellationToken,
) {
    loop {
        let term = state.borrow_and_update().map(|leadership| leadership.term);
        terms.send_if_modified(|held| std::mem::replace(held, term) != term);
        match token.run_until_cancelled(state.changed()).await {
            Some(Ok(())) => {}
            Some(Err(_)) | None => break,
        }
    }
    terms.send_replace(None);
}
