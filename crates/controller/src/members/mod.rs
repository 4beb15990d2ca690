//! Members: enrolment, sessions, what each should hold, and their health.
//!
//! The rest of the controller tells what each binding wants on which member ([`Members`]) and receives the members'
//! reports ([`MemberEvent`]). It also decides what a binding wants, and why it no longer does.
//!
//! ```text
//!  listener ─▶ service ─▶ session ─┬─▶ desired (per member) ◀── Members::set_desired, withdraw
//!  (TLS)      (who may)            ├─▶ outbox ─▶ MemberEvent
//!                                  └─▶ health ─▶ watchman ─▶ writes (taints, Cluster.status)
//! ```

mod attempts;
mod authority;
mod bounds;
mod chores;
mod context;
mod departure;
mod desired;
mod enrol;
mod events;
mod gate;
mod health;
mod listener;
mod metrics;
mod outbox;
mod registry;
mod renewals;
mod revocation;
mod server;
mod service;
mod session;
mod terms;
mod tokens;
mod types;
mod watchman;
mod wire;
#[cfg(test)]
mod wire_properties;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use atoll_api::policy::ConflictResolution;
use atoll_api::{Clock, Cluster};
use atoll_protocol::ca::CertificateAuthority;
use atoll_protocol::identity::TrustDomain;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;

pub use atoll_render::{Key, Rendered};

pub use self::authority::{AUTHORITY_SECRET, AuthorityError, load, load_or_create};
pub use self::enrol::{
    MAX_TOKEN_LIFE, TOKEN_LIFE, TOKEN_SECRET_TYPE, TokenCreateError, create_replacing_token,
    create_token,
};
#[cfg(test)]
pub(crate) use self::health::vitals::{Standing, Vitals};
pub use self::health::{HealthTimes, TimesError};
pub use self::listener::{Arrival, Incoming, Io};
pub use self::metrics::Metrics;
pub use self::revocation::REVOKED_BEFORE;
pub use self::tokens::{IssuedToken, TokenStoreError, list_tokens, revoke_token};
pub use self::types::{
    ApplyResult, Counted, HeldObject, LimitReason, LostReason, MemberEvent, MemberFacts, NodeClass,
    ObjectHealth, Oracle, Proof, Report, Verdict, Withdrawal,
};

use self::context::{ADMISSIONS, Bucket, Context};
use crate::leader::LeaderTerm;
use crate::lifecycle::emptying::Emptying;

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
        oracle: Arc<dyn Oracle>,
        events: mpsc::Sender<MemberEvent>,
        token: CancellationToken,
    ) -> Result<Self, TimesError> {
        options.health.check()?;
        let cx = Arc::new(Context {
            client: options.client,
            clock: options.clock,
            times: options.health,
            term: options.term,
            complete: watch::Sender::new(None),
            labels: watch::Sender::new(Vec::new()),
            authority: watch::Sender::new(None),
            oracle,
            registry: registry::Registry::default(),
            outbox: outbox::Outbox::default(),
            room: bounds::Rooms::default(),
            due: writes::Due::default(),
            chores: writes::Due::default(),
            metrics: options.metrics,
            suspicion: Mutex::default(),
            grace: Mutex::default(),
            admission: Mutex::new(Bucket::new(ADMISSIONS, Instant::now())),
            sessions: AtomicU64::new(1),
            published: Mutex::default(),
            tasks: TaskTracker::new(),
            token: token.clone(),
        });
        let tasks = &cx.tasks;
        tasks.spawn(watchman::run(cx.clone()));
        tasks.spawn(writes::run(cx.clone()));
        tasks.spawn(chores::run(cx.clone()));
        tasks.spawn(tokens::sweep_regularly(cx.clone()));
        tasks.spawn(server::run(cx.clone(), options.incoming, options.trust_domain));
        let forwarder = cx.clone();
        tasks.spawn(async move { forwarder.outbox.forward(events, token).await });
        Ok(Self(cx))
    }

    /// Waits until all tasks of [`Members::start`] have ended, after its token was cancelled.
    pub async fn stopped(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    /// Waits for the certificate authority.
    pub async fn authority(&self) -> Arc<CertificateAuthority> {
        let mut authority = self.0.authority.subscribe();
        loop {
            if let Some(authority) = authority.borrow_and_update().clone() {
                return authority;
            }
            // The sender is in the context, which this handle keeps alive.
            if authority.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Replaces what `claim` (a binding's uid) wants on `cluster`, and sends the difference. An object that it no
    /// longer wants is kept as an orphan: only [`Members::withdraw`] removes.
    pub fn set_desired(
        &self,
        cluster: &str,
        claim: &str,
        objects: Vec<Arc<Rendered>>,
        conflict: ConflictResolution,
    ) {
        let member = self.0.registry.named(cluster);
        let mut state = member.lock();
        state.desired.set(claim, objects, conflict);
        let confirmed = state.desired.take_confirmed();
        drop(state);
        session::withdrawn(&self.0, &member, confirmed);
        member.wake.notify_one();
    }

    /// `claim` wants nothing on `cluster` any more. Objects without another claim are removed or released; kinds that
    /// are never removed (Namespace, CustomResourceDefinition) are released. Answered by [`MemberEvent::Withdrawn`]
    /// once the member confirms; a disconnected member gets the order when it reconnects.
    pub fn withdraw(&self, cluster: &str, claim: &str, how: Withdrawal, proof: Proof) {
        let Some(member) = self.0.registry.get(cluster) else { return };
        let mut state = member.lock();
        state.desired.withdraw(claim, how, proof);
        let confirmed = state.desired.take_confirmed();
        drop(state);
        session::withdrawn(&self.0, &member, confirmed);
        member.wake.notify_one();
    }

    /// Leadership, or a term of it, ended. All desired state is dropped, and nothing is judged, until the next term has
    /// set everything anew. Sessions of the term end too: their agents reconnect and get the state of the next term.
    pub fn stepped_down(&self) {
        let ended = self.0.complete.send_replace(None);
        for member in self.0.registry.all() {
            let mut state = member.lock();
            state.desired = Default::default();
            state.agreed = false;
            if let Some(session) = state.session.clone().filter(|held| ended == Some(held.term)) {
                session.end(session::term_ended(self.0.term()));
            }
        }
    }

    /// In this term all desired state was set, and the [`Oracle`] can answer. Before that, no inventory is judged and
    /// no member gets `Synced`.
    pub fn caches_complete(&self, term: LeaderTerm) {
        self.0.complete.send_replace(Some(term));
    }

    /// [`Oracle::limit`] may have changed: held back removals are tried again.
    pub fn limits_changed(&self) {
        for member in self.0.registry.all() {
            let mut state = member.lock();
            if state.desired.held_back().is_empty() {
                continue;
            }
            state.desired.let_held_back_go();
            drop(state);
            self.0.due.mark(&member.name);
            member.wake.notify_one();
        }
    }

    /// A Cluster changed in the hub's watch.
    pub fn cluster_changed(&self, cluster: &Cluster) {
        let now = (Instant::now(), self.0.clock.now());
        let Some((member, news)) = self.0.registry.take(cluster, now) else { return };
        if !news {
            return;
        }
        let grace = *self.0.grace.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = member.lock();
        if let Some(until) = grace {
            // First seen during a new leader's grace period.
            let baseline = until.checked_sub(self.0.times.silent_after).unwrap_or(now.0);
            state.vitals.forgive(baseline);
        }
        drop(state);
        member.wake.notify_one();
        revocation::enforce(&self.0, &member);
        self.0.due.mark(&member.name);
        if chores::has_any(cluster) {
            self.0.chores.mark(&member.name);
        }
    }

    /// Progress of emptying a member, for its condition `Emptied`.
    pub fn emptying(&self, cluster: &str, emptying: Emptying) {
        let Some(member) = self.0.registry.get(cluster) else { return };
        member.lock().emptying = emptying;
        self.0.due.mark(&member.name);
    }

    /// The Cluster was deleted. Its session ends, and its desired state is dropped.
    pub fn cluster_deleted(&self, name: &str) {
        let Some(member) = self.0.registry.remove(name) else { return };
        if let Some(session) = &member.lock().session {
            session.end(Status::permission_denied("the Cluster is gone"));
        }
        let (cluster, reason) = (name.to_owned(), LostReason::Deleted);
        self.0.outbox.push(MemberEvent::Lost { cluster, reason });
    }

    /// Node label keys that templates use; they define the agents' node classes.
    pub fn watch_labels(&self, keys: &BTreeSet<String>) {
        self.0.labels.send_if_modified(|labels| {
            let changed = !labels.iter().eq(keys);
            if changed {
                *labels = keys.iter().cloned().collect();
            }
            changed
        });
    }

    /// Objects on members without a known binding, by member. Members without any are omitted.
    #[must_use]
    pub fn orphans(&self) -> BTreeMap<String, Vec<Key>> {
        let members = self.0.registry.all();
        let orphans = members.iter().map(|member| {
            let keys = member.lock().desired.orphans().into_iter().cloned().collect::<Vec<_>>();
            (member.name.clone(), keys)
        });
        orphans.filter(|(_, keys)| !keys.is_empty()).collect()
    }

    /// Whether the controller suspects itself: then no taint is written and nothing may be evicted.
    #[must_use]
    pub fn is_suspicious(&self) -> bool {
        self.0.suspicion().is_active()
    }
}

impl std::fmt::Debug for Members {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Members").field("term", &self.0.term()).finish_non_exhaustive()
    }
}
