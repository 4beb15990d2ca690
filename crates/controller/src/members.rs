//! Members: the handle through which the rest of the controller works with enrolment, sessions and health.
//!
//! The rest of the controller sets what each binding wants on which member ([`Members`]) and receives the members'
//! reports ([`MemberEvent`]). It also decides what a binding wants, and why it no longer does.
//!
//! ```text
//!  listener ─▶ service ─▶ session ─┬─▶ desired (per member) ◀── Members::set_desired, withdraw
//!  (TLS)      (who may)            ├─▶ outbox ─▶ MemberEvent
//!                                  └─▶ heartbeats ─▶ health loop ─▶ cluster writer (taints, Cluster.status)
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_api::policy::ConflictResolution;
use atoll_api::{BindingUid, Clock, Cluster, ClusterName};
use atoll_history::Recorder;
use atoll_protocol::authorities::Authorities;
use atoll_protocol::ca::CertificateAuthority;
use atoll_protocol::identity::TrustDomain;
use atoll_traces::TraceContext;
use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;

pub use atoll_render::{Key, Rendered};

pub use crate::enrolment::authority::{
    AUTHORITY_SECRET, AuthorityError, load, load_or_create, rotate,
};
pub use crate::enrolment::create_token::{
    TokenCreateError, create_rebuilt_token, create_replacing_token, create_token,
};
pub use crate::enrolment::revocation::REVOKED_BEFORE;
pub use crate::enrolment::rotation::{Standing, standing};
pub use crate::enrolment::token_secret::{MAX_TOKEN_LIFE, TOKEN_LIFE, TOKEN_SECRET_TYPE};
pub use crate::enrolment::tokens::{IssuedToken, TokenStoreError, list_tokens, revoke_token};
#[cfg(test)]
pub(crate) use crate::health::heartbeats::{HealthState, HeartbeatTracker};
pub use crate::health::times::{HealthTimes, TimesError};
pub use crate::member::hub::HubError;
pub use crate::member::metrics::Metrics;
pub use crate::member::types::{
    AgentRuleFailed, ApplyResult, Counted, HealthReport, HeldObject, LimitReason, LostReason,
    MemberEvent, MemberFacts, NodeClass, ObjectHealth, Oracle, Proof, Report, Verdict, Withdrawal,
};
use crate::proxy::leader_api::LEADER;
pub use crate::proxy::leader_api::LeaderApi;
pub use crate::proxy::message::{Chunks, MemberAnswer, MemberRequest, ProxyError};
pub use crate::sessions::customizations::AgentCustomizations;
pub use crate::sessions::listener::{Arrival, Incoming, Io};

use crate::enrolment::{revoke, tokens};
use crate::health::caution::Caution;
use crate::health::{cluster_writer, health_loop, maintenance};
use crate::leader::LeaderTerm;
use crate::lifecycle::emptying::Emptying;
use crate::member::context::Context;
use crate::member::due::Due;
use crate::member::gauges::MemberGauges;
use crate::member::leadership::LeadershipView;
use crate::member::recent_events::RecentEvents;
use crate::member::registry::Registry;
use crate::member::state::Member;
use crate::packed::Packed;
use crate::proxy::{call, forward};
use crate::sessions::handle::term_ended;
use crate::sessions::outbox::Outbox;
use crate::sessions::server;
use crate::sessions::shared::SessionsShared;

/// Inputs of `members`.
pub struct MembersOptions {
    /// The hub. Its own retries must be off: every call here has its limit.
    pub client: kube::Client,
    /// Wall clock.
    pub clock: Clock,
    /// Source of agents' connections.
    pub incoming: Incoming,
    /// Times of members' health.
    pub health: HealthTimes,
    /// The leader's term; `None` while this process does not lead. Calls are then refused and sessions closed at once.
    pub term: watch::Receiver<Option<LeaderTerm>>,
    /// Where another controller that leads is reached, as HOST:PORT: it gets the requests of users to members.
    pub other_leader: watch::Receiver<Option<String>>,
    /// Trust domain of a newly created authority. An existing one keeps its own.
    pub trust_domain: TrustDomain,
    /// Metrics.
    pub metrics: Metrics,
}

/// Handle of the running service. Clones share it; all methods except `stopped` and `authority` return at once.
#[derive(Clone)]
pub struct Members(Arc<Context>);

impl Members {
    /// Starts listening, watching and writing on the current runtime, until `token` is cancelled.
    ///
    /// # Errors
    /// When the times contradict each other.
    pub fn start(
        options: MembersOptions,
        events: mpsc::Sender<MemberEvent>,
        token: CancellationToken,
    ) -> Result<Self, TimesError> {
        options.health.check()?;
        let cx = Arc::new(Context {
            client: options.client,
            clock: options.clock,
            times: options.health,
            leadership: LeadershipView::new(options.term),
            authority: watch::Sender::new(None),
            registry: Registry::default(),
            outbox: Outbox::default(),
            sessions: SessionsShared::new(Instant::now(), options.other_leader),
            caution: Caution::default(),
            writes: Due::default(),
            maintenance: Due::default(),
            recent_events: RecentEvents::default(),
            metrics: options.metrics,
            tasks: TaskTracker::new(),
            token: token.clone(),
        });
        let tasks = &cx.tasks;
        tasks.spawn(health_loop::run(cx.clone()));
        tasks.spawn(cluster_writer::run(cx.clone()));
        tasks.spawn(maintenance::run(cx.clone()));
        tasks.spawn(tokens::sweep_regularly(cx.clone()));
        tasks.spawn(server::run(cx.clone(), options.incoming, options.trust_domain));
        let forwarder = cx.clone();
        tasks.spawn(async move { forwarder.outbox.forward(events, token).await });
        Ok(Self(cx))
    }

    /// Gauges of each member, for a registry.
    pub(crate) fn gauges(&self) -> MemberGauges {
        MemberGauges::new(self.0.clone())
    }

    /// Waits until all tasks of [`Members::start`] have ended, after its token was cancelled.
    pub async fn stopped(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    /// Waits for the certificate authority; the one that signs.
    pub async fn authority(&self) -> Arc<CertificateAuthority> {
        let mut authorities = self.authorities();
        loop {
            if let Some(authorities) = &*authorities.borrow_and_update() {
                return authorities.signing().clone();
            }
            // The sender is in the context, which this handle keeps alive.
            if authorities.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The certificate authorities; `None` before they were read from the hub.
    #[must_use]
    pub fn authorities(&self) -> watch::Receiver<Option<Arc<Authorities>>> {
        self.0.authority.subscribe()
    }

    /// Records users' sessions in pods of members from now on: who, where, when, result and how long.
    pub fn record_sessions(&self, recorder: Recorder) {
        self.0.sessions.tunnels.rows.record_in(recorder);
    }

    /// Replaces what `claim` wants on `cluster`, and sends the difference. An object that it no
    /// longer wants is kept as an orphan: only [`Members::withdraw`] removes.
    pub fn set_desired(
        &self,
        cluster: &ClusterName,
        claim: &BindingUid,
        objects: Vec<Arc<Rendered>>,
        conflict: ConflictResolution,
    ) {
        let packed = |object: &Arc<Rendered>| Arc::new(Packed::of(object, None, Some(claim)));
        self.set(cluster, claim, objects.iter().map(packed).collect(), conflict);
    }

    /// As [`Members::set_desired`].
    pub(crate) fn set(
        &self,
        cluster: &ClusterName,
        claim: &BindingUid,
        objects: Vec<Arc<Packed>>,
        conflict: ConflictResolution,
    ) {
        let member = self.0.registry.named(cluster);
        member.mailbox.set(claim, objects, conflict);
        self.apply_orders(&member);
    }

    /// The agent of `cluster` continues this trace when it gets the next order to apply an object.
    pub fn trace(&self, cluster: &ClusterName, object: &Key, context: TraceContext) {
        self.0.registry.named(cluster).traced.put(object, context);
    }

    /// The manifest of an object that `claim` wants on `cluster`, as JSON.
    #[must_use]
    pub fn manifest(&self, cluster: &ClusterName, claim: &BindingUid, key: &Key) -> Option<Bytes> {
        self.0.registry.get(cluster)?.lock().desired.manifest(claim, key)
    }

    /// `claim` wants nothing on `cluster` any more. Objects without another claim are removed or released; kinds that
    /// are never removed (Namespace, CustomResourceDefinition) are released. Answered by [`MemberEvent::Withdrawn`]
    /// once the member confirms; a disconnected member gets the order when it reconnects.
    pub fn withdraw(
        &self,
        cluster: &ClusterName,
        claim: &BindingUid,
        how: Withdrawal,
        proof: Proof,
    ) {
        let Some(member) = self.0.registry.get(cluster) else { return };
        member.mailbox.withdraw(claim, how, proof);
        self.apply_orders(&member);
    }

    /// Applies new orders if the member's state is free. Otherwise the next task that locks it does, at the latest the
    /// session's writer, which is woken.
    fn apply_orders(&self, member: &Member) {
        if let Some(mut state) = member.try_lock() {
            let confirmed = state.desired.take_confirmed();
            drop(state);
            self.0.outbox.push_withdrawn(&member.name, confirmed);
        }
        member.wake.notify_one();
    }

    /// Leadership, or a term of it, ended. All desired state is dropped, and nothing is judged, until the next term has
    /// set everything again. Sessions of the term end too: their agents reconnect and get the state of the next term.
    pub fn stepped_down(&self) {
        let ended = self.0.leadership.ended();
        for member in self.0.registry.all() {
            let mut state = member.lock();
            state.desired = Default::default();
            state.agreed = false;
            if let Some(session) = state.session.clone().filter(|held| ended == Some(held.term)) {
                session.end(term_ended(session.term, self.0.term()));
            }
        }
    }

    /// In this term all desired state was set; other objects on members are judged by `oracle` until the term ends.
    /// Before that, no inventory is judged and no member gets `Synced`.
    pub fn caches_complete(&self, term: LeaderTerm, oracle: Arc<dyn Oracle>) {
        self.0.leadership.set_complete(term, oracle);
    }

    /// [`Oracle::limit`] may have changed: held back removals are tried again.
    pub fn limits_changed(&self) {
        for member in self.0.registry.all() {
            if member.try_lock().is_some_and(|state| state.desired.held_back().is_empty()) {
                continue;
            }
            member.mailbox.retry_held_back();
            self.apply_orders(&member);
            self.0.writes.mark(&member.name);
        }
    }

    /// A Cluster changed in the hub's watch.
    pub fn cluster_changed(&self, cluster: &Cluster) {
        let now = (Instant::now(), self.0.clock.now());
        let Some((member, newer)) = self.0.registry.take(cluster, now) else { return };
        if !newer {
            return;
        }
        let grace = self.0.caution.grace();
        let mut state = member.lock();
        if let Some(until) = grace {
            // First seen during a new leader's grace period.
            let baseline = until.checked_sub(self.0.times.silent_after).unwrap_or(now.0);
            state.heartbeats.count_silence_from(baseline);
        }
        drop(state);
        member.wake.notify_one();
        revoke::enforce(&self.0, &member);
        self.0.writes.mark(&member.name);
        if maintenance::has_any(cluster) {
            self.0.maintenance.mark(&member.name);
        }
    }

    /// Progress of emptying a member, for its condition `Emptied`.
    pub fn emptying(&self, cluster: &ClusterName, emptying: Emptying) {
        let Some(member) = self.0.registry.get(cluster) else { return };
        member.mailbox.set_emptying(emptying);
        self.apply_orders(&member);
        self.0.writes.mark(&member.name);
    }

    /// The Cluster was deleted. Its session ends, and its desired state is dropped.
    pub fn cluster_deleted(&self, name: &ClusterName) {
        let Some(member) = self.0.registry.remove(name) else { return };
        if let Some(session) = &member.lock().session {
            session.end(Status::permission_denied("the Cluster was deleted"));
        }
        let (cluster, reason) = (name.clone(), LostReason::Deleted);
        self.0.outbox.push(MemberEvent::Lost { cluster, reason });
    }

    /// Node label keys that templates use; they define the agents' node classes.
    pub fn watch_labels(&self, keys: &BTreeSet<String>) {
        self.0.sessions.labels.send_if_modified(|labels| {
            let changed = !labels.iter().eq(keys);
            if changed {
                *labels = keys.iter().cloned().collect();
            }
            changed
        });
    }

    /// Customizations whose rules agents use.
    pub fn set_customizations(&self, customizations: Arc<AgentCustomizations>) {
        self.0.sessions.customizations.send_if_modified(|current| {
            let changed = *current != customizations;
            *current = customizations;
            changed
        });
    }

    /// Objects on members without a known binding, by member. Members without any are omitted.
    #[must_use]
    pub fn orphans(&self) -> BTreeMap<ClusterName, Vec<Key>> {
        let members = self.0.registry.all();
        let orphans = members.iter().map(|member| {
            let keys: Vec<_> = member.lock().desired.orphans().iter().cloned().collect();
            (member.name.clone(), keys)
        });
        orphans.filter(|(_, keys)| !keys.is_empty()).collect()
    }

    /// Sends a request of a user to a member through its tunnel, or through the controller that leads, and waits for the
    /// head of the answer.
    ///
    /// # Errors
    /// When no leader can be reached, the member cannot be reached, or a rule refuses request or answer.
    pub async fn proxy(
        &self,
        member: &str,
        request: MemberRequest,
    ) -> Result<MemberAnswer, ProxyError> {
        if self.0.term().is_none() {
            return forward::pass_on(&self.0, member, request).await;
        }
        call::call(&self.0, member, request).await
    }

    /// Whether this controller leads.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.0.term().is_some()
    }

    /// Sets what answers requests that other controllers pass on for the leader itself. The first call counts.
    pub fn serve_leader_api(&self, api: Arc<dyn LeaderApi>) {
        // A second one would be a mistake of the program: the first stays.
        let _: Result<(), _> = self.0.sessions.leader_api.set(api);
    }

    /// Passes a request of a user on to the controller that leads, for itself.
    ///
    /// # Errors
    /// When it cannot be reached, or refuses the request.
    pub async fn ask_leader(&self, request: MemberRequest) -> Result<MemberAnswer, ProxyError> {
        forward::pass_on(&self.0, LEADER, request).await
    }

    /// Whether the controller suspects itself: then no taint is written and nothing may be evicted.
    #[must_use]
    pub fn is_suspicious(&self) -> bool {
        self.0.caution.suspicion().is_active()
    }
}

impl std::fmt::Debug for Members {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Members").field("term", &self.0.term()).finish_non_exhaustive()
    }
}
