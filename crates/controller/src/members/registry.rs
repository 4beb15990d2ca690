//! The members in the hub, by name and by uid.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use atoll_api::cluster::Revocation;
use atoll_api::{Cluster, conditions, marks};
use atoll_protocol::identity::ClusterUid;
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::bounds::Taken;
use super::departure::Departure;
use super::desired::DesiredSet;
use super::health::draft;
use super::health::vitals::Vitals;
use super::renewals::Renewals;
use super::revocation;
use super::terms::{self, Refusal};
use super::types::MemberFacts;
use crate::leader::LeaderTerm;
use crate::lifecycle::emptying::Emptying;

/// One member.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    state: Mutex<State>,
    /// Notified when there may be something to send.
    pub(super) wake: Notify,
}

/// State of a member, behind a lock that is never held across an await.
#[derive(Debug)]
pub(super) struct State {
    /// The newest version; `None` before the hub's watch delivered it.
    pub(super) cluster: Option<Arc<Cluster>>,
    /// Which certificates are refused. May be newer than the Cluster's status.
    pub(super) revocation: Option<Revocation>,
    pub(super) renewals: Renewals,
    /// uid of the member's kube-system namespace.
    pub(super) cluster_id: Option<String>,
    pub(super) epoch: u64,
    /// A new enrolment restarts the epoch, and the Cluster does not show that yet.
    pub(super) epoch_anew: bool,
    /// uid of the kube-system namespace in its last enrolment.
    pub(super) enrolled_id: Option<String>,
    /// Why its last Hello was refused.
    pub(super) refusal: Option<Refusal>,
    /// The term that a user accepted, until ours is above it.
    pub(super) accepted_term: Option<LeaderTerm>,
    pub(super) desired: DesiredSet,
    pub(super) vitals: Vitals,
    pub(super) facts: Option<Arc<MemberFacts>>,
    /// Memory reserved for the facts.
    pub(super) facts_room: Option<Taken>,
    pub(super) session: Option<Session>,
    /// Whether controller and agent agreed on an inventory in this leadership.
    pub(super) agreed: bool,
    /// Progress of emptying it.
    pub(super) emptying: Emptying,
    /// Progress of its departure from the federation.
    pub(super) departure: Option<Departure>,
    /// When its status was last written, by this controller or, as far as known, an earlier one.
    pub(super) written: Instant,
}

/// The current session.
#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) id: u64,
    pub(super) issued: Timestamp,
    /// The leader's term of the session; it ends with the term.
    pub(super) term: LeaderTerm,
    end: Arc<Mutex<Option<Status>>>,
    pub(super) token: CancellationToken,
}

impl Session {
    pub(super) fn new(
        id: u64,
        issued: Timestamp,
        term: LeaderTerm,
        parent: &CancellationToken,
    ) -> Self {
        Self { id, issued, term, end: Arc::default(), token: parent.child_token() }
    }

    /// Ends it; the agent receives the first reason given.
    pub(super) fn end(&self, reason: Status) {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.token.cancel();
    }

    pub(super) fn reason(&self) -> Status {
        let reason = self.end.lock().unwrap_or_else(PoisonError::into_inner).clone();
        reason.unwrap_or_else(|| Status::unavailable("the controller is stopping"))
    }
}

impl Member {
    fn new(name: &str, now: Instant) -> Self {
        Self {
            name: name.to_owned(),
            state: Mutex::new(State {
                cluster: None,
                revocation: None,
                renewals: Renewals::default(),
                cluster_id: None,
                epoch: 0,
                epoch_anew: false,
                enrolled_id: None,
                refusal: None,
                accepted_term: None,
                desired: DesiredSet::default(),
                vitals: Vitals::new(now, false),
                facts: None,
                facts_room: None,
                session: None,
                agreed: false,
                emptying: Emptying::default(),
                departure: None,
                written: now,
            }),
            wake: Notify::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    pub(super) fn uid(&self) -> Option<&str> {
        self.cluster.as_ref()?.metadata.uid.as_deref()
    }

    /// Whether the Cluster has our finalizer, or is being deleted anyway.
    pub(super) fn is_held(&self) -> bool {
        let metadata = self.cluster.as_ref().map(|cluster| &cluster.metadata);
        metadata.is_some_and(|metadata| {
            let mut finalizers = metadata.finalizers.iter().flatten();
            metadata.deletion_timestamp.is_some()
                || finalizers.any(|held| held == marks::CLUSTER_FINALIZER)
        })
    }

    /// Stores a newer version of the Cluster; returns whether it was newer.
    fn take(&mut self, cluster: &Arc<Cluster>, now: (Instant, Timestamp)) -> bool {
        if let Some(old) = &self.cluster
            && old.metadata.uid == cluster.metadata.uid
            && is_older(cluster, old)
        {
            return false;
        }
        let first = self.uid() != cluster.metadata.uid.as_deref();
        let status = cluster.status.as_ref();
        let session = status.and_then(|status| status.session.as_ref());
        if first {
            if let Some(session) = &self.session {
                session.end(Status::permission_denied("another Cluster took the name"));
            }
            self.cluster_id = status.and_then(|status| status.cluster_id.clone());
            self.epoch = 0;
            self.epoch_anew = false;
            self.enrolled_id = None;
            self.refusal = None;
            self.accepted_term = None;
            self.revocation = None;
            self.renewals = Renewals::default();
            self.facts = None;
            self.facts_room = None;
            self.agreed = false;
            self.departure = None;
            self.emptying = Emptying::default();
            self.desired.stay();
            self.vitals = Vitals::new(now.0, self.cluster_id.is_some());
            if draft::own(cluster).next().is_some() && self.cluster_id.is_some() {
                self.vitals.was_lost(now.0, lost_for(cluster, now.1));
            }
        }
        let id = status.and_then(|status| status.cluster_id.as_ref());
        if let Some(id) = id.filter(|_| self.cluster_id.is_none()) {
            // While this controller followed, its agent connected to another one.
            self.cluster_id = Some(id.clone());
            self.vitals.came(now.0);
        }
        if !self.epoch_anew {
            let epoch = session.map_or(0, |session| u64::try_from(session.epoch).unwrap_or(0));
            self.epoch = self.epoch.max(epoch);
        }
        self.revocation = revocation::seen(self.revocation.as_ref(), cluster, now.1);
        self.cluster = Some(cluster.clone());
        true
    }

    /// A new certificate was enrolled: its agent starts its own epochs, whatever earlier ones claimed.
    pub(super) fn enrolled(&mut self, cluster_id: &str) {
        self.epoch = 0;
        self.epoch_anew = true;
        self.enrolled_id = Some(cluster_id.to_owned());
        self.refusal = None;
    }

    /// Another Cluster in the hub has this member's kube-system uid: it was never this one's.
    fn give_up_cluster_id(&mut self, error: &ClusterIdError) {
        self.cluster_id = None;
        if let Some(session) = &self.session {
            session.end(Status::failed_precondition(error.to_string()));
        }
    }

    /// Whether the Cluster in the hub has this kube-system uid.
    fn is_cluster_id_stored(&self, id: &str) -> bool {
        let status = self.cluster.as_ref().and_then(|cluster| cluster.status.as_ref());
        status.and_then(|status| status.cluster_id.as_deref()) == Some(id)
    }

    /// Stores the server's reply to one of our writes.
    pub(super) fn wrote(&mut self, cluster: Arc<Cluster>, now: Instant) {
        self.written = now;
        let session = cluster.status.as_ref().and_then(|status| status.session.as_ref());
        if session.is_none_or(|session| u64::try_from(session.epoch) == Ok(self.epoch)) {
            self.epoch_anew = false;
        }
        if self
            .cluster
            .as_ref()
            .is_some_and(|old| old.metadata.uid == cluster.metadata.uid && !is_older(&cluster, old))
        {
            self.cluster = Some(cluster);
        }
    }
}

/// Whether `a` is an older version of the same object than `b`. Resource versions compare as numbers (guaranteed since
/// Kubernetes 1.35, always true for etcd's); others count as newer.
fn is_older(a: &Cluster, b: &Cluster) -> bool {
    let version =
        |cluster: &Cluster| cluster.metadata.resource_version.as_ref()?.parse::<u64>().ok();
    matches!((version(a), version(b)), (Some(a), Some(b)) if a < b)
}

/// How long a Cluster has reported its member as lost.
fn lost_for(cluster: &Cluster, now: Timestamp) -> std::time::Duration {
    let ready = cluster
        .status
        .as_ref()
        .and_then(|status| conditions::find(&status.conditions, conditions::READY))
        .filter(|ready| ready.status != "True");
    let taints = draft::own(cluster).filter_map(|taint| taint.time_added.as_ref());
    ready
        .map(|ready| &ready.last_transition_time)
        .into_iter()
        .chain(taints)
        .map(|since| now.duration_since(since.0))
        .max()
        .and_then(|span| span.try_into().ok())
        .unwrap_or_default()
}

#[derive(Debug, Default)]
struct Tables {
    by_name: BTreeMap<String, Arc<Member>>,
    by_uid: BTreeMap<String, Arc<Member>>,
    /// kube-system uid to name.
    by_cluster_id: BTreeMap<String, String>,
    /// Terms above ours that enrolled members name, by the uids of their Clusters.
    named_terms: BTreeMap<String, LeaderTerm>,
}

#[derive(Debug, Default)]
pub(super) struct Registry(Mutex<Tables>);

impl Registry {
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The member of this name. It may be named before its Cluster was seen here.
    pub(super) fn named(&self, name: &str) -> Arc<Member> {
        let mut tables = self.lock();
        if let Some(member) = tables.by_name.get(name) {
            return member.clone();
        }
        let member = Arc::new(Member::new(name, Instant::now()));
        tables.by_name.insert(name.to_owned(), member.clone());
        member
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<Member>> {
        self.lock().by_name.get(name).cloned()
    }

    /// The member whose Cluster has exactly this uid.
    pub(super) fn by_uid(&self, uid: &ClusterUid) -> Option<Arc<Member>> {
        self.lock().by_uid.get(uid.as_str()).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<Member>> {
        self.lock().by_name.values().cloned().collect()
    }

    /// Stores a version of a Cluster. Returns the member and whether it was newer; `None` without a name and a uid.
    pub(super) fn take(
        &self,
        cluster: &Cluster,
        now: (Instant, Timestamp),
    ) -> Option<(Arc<Member>, bool)> {
        let (name, uid) = (cluster.metadata.name.as_deref()?, cluster.metadata.uid.clone()?);
        let member = self.named(name);
        let mut tables = self.lock();
        let mut state = member.lock();
        let other = state.uid().filter(|old| *old != uid).map(str::to_owned);
        if let Some(old) = other {
            tables.by_uid.remove(&old);
            tables.named_terms.remove(&old);
        }
        let before = state.cluster_id.clone();
        let news = state.take(&Arc::new(cluster.clone()), now);
        let after = state.cluster_id.clone();
        drop(state);
        if before != after {
            if let Some(id) = before {
                tables.by_cluster_id.remove(&id);
            }
            if let Some(id) = after {
                // The hub's content takes precedence over an agent's claim in its first Hello. Of two Clusters with one
                // id in the hub (created by hand, or by an older controller) the first keeps it.
                let owner = tables.by_cluster_id.get(&id).filter(|owner| *owner != name);
                let rival = owner.and_then(|owner| tables.by_name.get(owner)).cloned();
                let mut rival = rival.as_ref().map(|rival| rival.lock());
                if rival.as_ref().is_none_or(|rival| !rival.is_cluster_id_stored(&id)) {
                    if let Some(rival) = &mut rival {
                        let error = ClusterIdError::Duplicate { other: name.to_owned() };
                        rival.give_up_cluster_id(&error);
                    }
                    tables.by_cluster_id.insert(id, name.to_owned());
                }
            }
        }
        tables.by_uid.insert(uid, member.clone());
        Some((member, news))
    }

    pub(super) fn remove(&self, name: &str) -> Option<Arc<Member>> {
        let mut tables = self.lock();
        let member = tables.by_name.remove(name)?;
        let (uid, id) = {
            let state = member.lock();
            (state.uid().map(str::to_owned), state.cluster_id.clone())
        };
        if let Some(uid) = uid {
            tables.by_uid.remove(&uid);
            tables.named_terms.remove(&uid);
        }
        if let Some(id) = id
            && tables.by_cluster_id.get(&id).is_some_and(|owner| owner == name)
        {
            tables.by_cluster_id.remove(&id);
        }
        Some(member)
    }

    /// An enrolled member names this term; returns the highest term above `ours` that is believed now.
    pub(super) fn name_term(
        &self,
        uid: &str,
        named: LeaderTerm,
        ours: LeaderTerm,
    ) -> Option<LeaderTerm> {
        let mut tables = self.lock();
        tables.named_terms.insert(uid.to_owned(), named);
        let enrolled = tables.by_cluster_id.len();
        terms::believed(tables.named_terms.values().copied(), enrolled, ours)
    }

    /// The member no longer names a term above ours.
    pub(super) fn forget_term(&self, uid: &str) {
        self.lock().named_terms.remove(uid);
    }

    /// Assigns `id` permanently as the kube-system uid of `member`, at its first contact.
    pub(super) fn claim_cluster_id(&self, member: &Member, id: &str) -> Result<(), ClusterIdError> {
        let mut tables = self.lock();
        let mut state = member.lock();
        match &state.cluster_id {
            Some(known) if known == id => return Ok(()),
            Some(known) => return Err(ClusterIdError::Changed { known: known.clone() }),
            None => (),
        }
        match tables.by_cluster_id.get(id) {
            Some(other) if *other != member.name => {
                Err(ClusterIdError::Duplicate { other: other.clone() })
            }
            _ => {
                // The token was for the member that enrolled with it, not for any member that the agent names later.
                if let Some(known) = state.enrolled_id.clone().filter(|enrolled| enrolled != id) {
                    return Err(ClusterIdError::Changed { known });
                }
                tables.by_cluster_id.insert(id.to_owned(), member.name.clone());
                state.cluster_id = Some(id.to_owned());
                Ok(())
            }
        }
    }

    /// Checks [`Registry::claim_cluster_id`] without assigning the id.
    pub(super) fn check_cluster_id(&self, name: &str, id: &str) -> Result<(), ClusterIdError> {
        let tables = self.lock();
        let known = tables.by_name.get(name).and_then(|member| member.lock().cluster_id.clone());
        match (known, tables.by_cluster_id.get(id)) {
            (Some(known), _) if known != id => Err(ClusterIdError::Changed { known }),
            (None, Some(other)) if other != name => {
                Err(ClusterIdError::Duplicate { other: other.clone() })
            }
            _ => Ok(()),
        }
    }
}

/// Why a member's identity is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ClusterIdError {
    /// Since its first contact the Cluster belongs to another member.
    #[error("IdentityChanged: this Cluster is the member whose kube-system uid is {known}")]
    Changed { known: String },
    /// Another Cluster already represents this member.
    #[error(
        "DuplicateCluster: this member is registered as Cluster {other:?} already; if that Cluster is another member, take it out with `atoll unjoin {other}` and connect again"
    )]
    Duplicate { other: String },
}
