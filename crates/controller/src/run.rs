//! The whole controller: what it is given, what runs, and in which order it stops.

use std::sync::Arc;
use std::time::Duration;

use atoll_api::{Clock, ReservedNamespaces};
use atoll_history::{Keeper, Recorder, RecorderOptions, Store};
use atoll_protocol::identity::TrustDomain;
use atoll_scheduler::{Profiles, RecoverAfter};
use kube::Client;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::dispatch::outlet::Outlet;
use crate::dispatch::verdicts::Verdicts;
use crate::engine::{Engine, Parts};
use crate::events;
use crate::http::{self, Pages, Scope};
use crate::leader::{self, Candidate, Election, ElectionError, Elector, OwnPod};
use crate::lifecycle::pace::PaceLimits;
use crate::members::{
    HealthTimes, Incoming, MemberEvent, Members, MembersOptions, Metrics, TimesError,
};
use crate::metrics::Counters;
use crate::schedule::extend::{Extension, ExtensionError, Extensions};
use crate::schedule::{Desk, Place};
use crate::watch::Streams;

/// Words of streams that may wait for the engine. While the queue is full the streams wait: what they hold back, the
/// API server holds for them.
const ARRIVALS: usize = 1024;
/// Words of members that may wait for the engine. While the queue is full the members' side coalesces.
const REPORTS: usize = 4096;
/// How long the parts have to end after they were told to. `atoll up` stops within 5 s.
const STOP: Duration = Duration::from_secs(3);

/// What a controller works with, besides its members.
pub struct Hub {
    /// The hub. Its own retries must be off: every write here is guarded and has its own.
    pub client: Client,
    /// Wall time.
    pub clock: Clock,
    /// Where decisions are recorded.
    pub history: Arc<dyn Store>,
    /// How long decisions are kept there.
    pub retention: Duration,
    /// Who stands for election.
    pub candidate: Candidate,
    /// The scheduler's profiles.
    pub profiles: Profiles,
    /// Where the scheduler runs.
    pub place: Place,
    /// Seed of every jitter.
    pub seed: u64,
}

/// What a controller needs for its members.
pub struct MembersSide {
    /// Where agents come in.
    pub incoming: Incoming,
    /// Times of members' health.
    pub health: HealthTimes,
    /// Trust domain of a certificate authority that has to be made.
    pub trust_domain: TrustDomain,
    /// What is counted.
    pub metrics: Metrics,
}

/// A controller: one of several, of which one leads.
pub struct Controller {
    core: Core,
    members: Members,
    token: CancellationToken,
    /// Sessions end after the engine: it must not decide on members that vanish because we stop.
    sessions: CancellationToken,
    /// The Pod that is labelled while we lead.
    pod: Option<OwnPod>,
}

impl Controller {
    /// Puts a controller together and starts to listen to members, which are turned away until we lead. It runs until
    /// `token` ends it.
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
            trust_domain: members.trust_domain,
            metrics: members.metrics,
        };
        options.metrics.register(&mut core.registry);
        let sessions = CancellationToken::new();
        let members =
            Members::start(options, core.verdicts.clone(), core.events.clone(), sessions.clone())?;
        Ok(Self { core, members, token, sessions, pod: None })
    }

    /// Serves `/healthz`, `/readyz` and `/metrics` there, over plain HTTP, as long as the controller runs.
    #[must_use]
    pub fn with_http(mut self, listener: TcpListener) -> Self {
        self.core.listeners.push((listener, Scope::All));
        self
    }

    /// Serves `/healthz` and `/readyz` there, so that those who may read metrics cannot keep the probes out.
    #[must_use]
    pub fn with_probes(mut self, listener: TcpListener) -> Self {
        self.core.listeners.push((listener, Scope::Probes));
        self
    }

    /// How fast work leaves clusters that failed or are drained, in place of the default limits.
    #[must_use]
    pub fn with_pace(mut self, pace: PaceLimits) -> Self {
        self.core.pace = pace;
        self
    }

    /// How long a member must have been Ready without a break before work moves back to it, in place of the default.
    #[must_use]
    pub fn with_recovery(mut self, recover_after: RecoverAfter) -> Self {
        self.core.recover_after = recover_after;
        self
    }

    /// Plugins beside the built-in ones. They run where a profile enables them.
    #[must_use]
    pub fn with_plugins(mut self, plugins: Vec<Arc<dyn Extension>>) -> Self {
        self.core.plugins = plugins;
        self
    }

    /// Namespaces whose objects are never propagated, in place of the built-in minimum.
    #[must_use]
    pub fn with_reserved(mut self, namespaces: ReservedNamespaces) -> Self {
        self.core.reserved = namespaces;
        self
    }

    /// Labels the Pod while we lead, so that a Service can select it.
    #[must_use]
    pub fn with_pod(mut self, pod: OwnPod) -> Self {
        self.pod = Some(pod);
        self
    }

    /// The members' side: its certificate authority, its orphans, its suspicion.
    #[must_use]
    pub fn members(&self) -> Members {
        self.members.clone()
    }

    /// Whether this controller leads, as it changes.
    #[must_use]
    pub fn leadership(&self) -> watch::Receiver<Option<leader::Leadership>> {
        self.core.election.state()
    }

    /// Runs until the token ends; then nothing is written any more, sessions end, the lease is given up and history has
    /// a moment to take what was handed to it.
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
            tracing::warn!("the members' side did not end in time");
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
    /// The plugins of the profiles do not go together.
    #[error("plugins")]
    Plugins(#[from] ExtensionError),
    /// The scheduler ended: a panic in it is in the log.
    #[error("the scheduler has ended")]
    Scheduler,
    /// The scheduler's thread.
    #[error("start the scheduler's thread")]
    Thread(#[source] std::io::Error),
}

/// The hub's side, ready to be joined to the members' side.
pub(crate) struct Core {
    pub(crate) election: Election,
    /// The term while we lead, for sessions.
    pub(crate) term: watch::Receiver<Option<u64>>,
    /// Proofs for what members hold.
    pub(crate) verdicts: Arc<Verdicts>,
    /// Where members' words go.
    pub(crate) events: mpsc::Sender<MemberEvent>,
    /// What the engine counts, and everything that is shown of the process.
    pub(crate) counters: Counters,
    registry: Registry,
    listeners: Vec<(TcpListener, Scope)>,
    /// How fast work leaves clusters.
    pub(crate) pace: PaceLimits,
    /// How long a cluster must be well before work moves back to it.
    pub(crate) recover_after: RecoverAfter,
    /// Plugins beside the built-in ones, for profiles that name them.
    pub(crate) plugins: Vec<Arc<dyn Extension>>,
    /// Namespaces whose objects are never propagated.
    pub(crate) reserved: ReservedNamespaces,
    hub: Hub,
    elector: Elector,
    terms: watch::Sender<Option<u64>>,
    ready: watch::Sender<Option<u64>>,
    reports: mpsc::Receiver<MemberEvent>,
}

impl Core {
    pub(crate) fn new(hub: Hub) -> Result<Self, ControllerError> {
        let (ready, known) = watch::channel(None);
        let (election, elector) =
            leader::election(hub.client.clone(), hub.candidate.clone(), hub.clock.clone(), known)?;
        let (terms, term) = watch::channel(None);
        let (events, reports) = mpsc::channel(REPORTS);
        let verdicts = Arc::new(Verdicts::default());
        let (counters, mut registry) = (Counters::default(), Registry::default());
        counters.register(&mut registry);
        Ok(Self {
            election,
            term,
            verdicts,
            events,
            counters,
            registry,
            listeners: Vec::new(),
            pace: PaceLimits::default(),
            recover_after: RecoverAfter::default(),
            plugins: Vec::new(),
            reserved: ReservedNamespaces::default(),
            hub,
            elector,
            terms,
            ready,
            reports,
        })
    }

    /// Runs until `token` ends. The order of stopping: nothing is decided or written any more, then the lease is given
    /// up, then history has a moment to take what was handed to it.
    pub(crate) async fn run(
        self,
        outlet: Arc<dyn Outlet>,
        token: CancellationToken,
        sessions: CancellationToken,
    ) -> Result<(), ControllerError> {
        let Self { election, term: _, verdicts, events, counters, registry, listeners, .. } = self;
        let Self { hub, elector, terms, ready, reports, pace, recover_after, plugins, .. } = self;
        let reserved = self.reserved;
        drop(events);
        let tasks = TaskTracker::new();
        let extensions = Arc::new(Extensions::new(&hub.profiles, &plugins)?);
        let desk = Desk::open(hub.profiles, hub.place, &tasks).map_err(ControllerError::Thread)?;
        let (news, arrivals) = mpsc::channel(ARRIVALS);
        // Streams, notes and the rest end with the engine; the election and history after it.
        let engine_token = token.child_token();
        let (election_token, history_token) = (CancellationToken::new(), CancellationToken::new());
        let streams =
            Streams::new(hub.client.clone(), news, tasks.clone(), engine_token.clone(), hub.seed);
        let (notes, writer) =
            events::notes(hub.client.clone(), counters.clone(), engine_token.clone());
        tasks.spawn(writer);
        let (recorder, writer) = Recorder::new(hub.history.clone(), RecorderOptions::default());
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
        let electing = tokio::spawn(elector.run(election_token.clone()));
        tasks.spawn(pass_terms(election.state(), terms, engine_token.clone()));
        let engine = Engine::new(Parts {
            client: hub.client,
            clock: hub.clock,
            counters,
            notes,
            recorder,
            store: hub.history,
            retention: hub.retention,
            outlet,
            verdicts,
            election,
            ready,
            streams,
            arrivals,
            reports,
            desk,
            extensions,
            pace,
            recover_after,
            reserved,
        });
        let result = engine.run(token).await;
        engine_token.cancel();
        sessions.cancel();
        tasks.close();
        if tokio::time::timeout(STOP, tasks.wait()).await.is_err() {
            tracing::warn!("a task did not end in time");
        }
        election_token.cancel();
        if tokio::time::timeout(STOP, electing).await.is_err() {
            tracing::warn!("the election did not end in time");
        }
        history_token.cancel();
        if let Err(error) = recording.await {
            tracing::error!(%error, "the recorder failed");
        }
        result
    }
}

/// The term without its deadline: the election takes it back at the deadline.
async fn pass_terms(
    mut state: watch::Receiver<Option<leader::Leadership>>,
    terms: watch::Sender<Option<u64>>,
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
