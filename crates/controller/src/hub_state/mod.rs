//! What every controller keeps up to date, whether it leads or not: the hub's objects, and the scheduler's tables made
//! from them. Watch events enter here; what else they affect is the leader's work.

mod capacity;
mod delivered;
pub(crate) mod derived;

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::binding::ResourceBindingStatus;
use atoll_api::{ClusterName, Few};
use atoll_scheduler::{LiveCluster, Session, TableChange, Tables};
use kube::api::ApiResource;
use tokio::sync::watch;

use crate::authors::Authors;
use crate::env::Env;
use crate::index::key::{BindingKey, GroupKind};
use crate::index::received::Received;
use crate::index::rows::{Binding, Policy};
use crate::index::{Index, Source, Touched};
use crate::leader::LeaderTerm;
use crate::members::{AgentCustomizations, Counted};
use crate::queue::Urgency;
use crate::watch::{Arrival, News, OPTIONAL, REQUIRED, Streams};
use delivered::Delivered;

/// The hub's objects, and what is derived from them alone.
pub(crate) struct HubState {
    env: Arc<Env>,
    pub(crate) index: Index,
    /// API resources of the watched kinds.
    pub(crate) resources: BTreeMap<GroupKind, ApiResource>,
    /// The scheduler's view of clusters, policies and bindings.
    pub(crate) tables: Tables,
    /// Known sessions and capacities.
    pub(crate) live: BTreeMap<ClusterName, LiveCluster>,
    streams: Streams,
    delivered: Delivered,
    /// Customizations whose rules agents use.
    agent_customizations: Arc<AgentCustomizations>,
    /// Last authors of templates and policies.
    pub(crate) authors: Authors,
    /// Highest term in the hub, once everything is listed: the election starts then.
    ready: watch::Sender<Option<LeaderTerm>>,
    /// Why the history database does not accept writes; `None` while it does.
    pub(crate) history_error: Option<String>,
}

impl HubState {
    pub(crate) fn new(
        env: Arc<Env>,
        index: Index,
        streams: Streams,
        ready: watch::Sender<Option<LeaderTerm>>,
    ) -> Self {
        let streams = streams.keep_parsed(index.recently_parsed());
        let mut hub = Self {
            env,
            index,
            resources: BTreeMap::new(),
            tables: Tables::default(),
            live: BTreeMap::new(),
            streams,
            delivered: Delivered::default(),
            agent_customizations: Arc::default(),
            authors: Authors::default(),
            ready,
            history_error: None,
        };
        hub.tables.set_cluster_sets(hub.index.cluster_rules().clone());
        hub.watch_kinds();
        hub
    }

    /// Applies one event of a stream to the index. Returns the rows that changed, and how urgent that is.
    pub(crate) fn take_in(&mut self, arrival: Arrival) -> Option<(Touched, Urgency)> {
        if !self.streams.is_current(&arrival) {
            return None;
        }
        let source = arrival.source;
        let authored = is_authored(&source);
        let change = match arrival.news {
            News::All(mut objects) => {
                self.delivered.restart(&source);
                for object in &mut objects {
                    self.delivered.note(&source, object.resource_version());
                    if authored {
                        self.authors.learn(object.uid.as_deref(), object.changed.take());
                    }
                }
                (self.index.replace(&source, objects), Urgency::Later)
            }
            News::Applied(mut object) => {
                self.delivered.note(&source, object.resource_version());
                if authored {
                    self.authors.learn(object.uid.as_deref(), object.changed.take());
                }
                (self.index.apply(&source, object), Urgency::Now)
            }
            News::Deleted(object) => {
                self.delivered.note(&source, object.resource_version());
                let uid = object.uid.as_deref();
                if authored {
                    self.authors.forget(uid);
                }
                (self.index.delete_named(&source, &object.name, uid), Urgency::Now)
            }
            // A rejected stream retries again and again; only a different error is a change.
            News::Unreadable(why)
                if self.index.reading(&source).unreadable.as_deref() == Some(&*why) =>
            {
                tracing::debug!(?source, why, "still cannot be read");
                return None;
            }
            News::Unreadable(why) => {
                tracing::warn!(?source, why, "cannot be read");
                (self.index.unreadable(&source, why), Urgency::Later)
            }
            News::Served(resource) => {
                if let Source::Templates(kind) = source {
                    self.resources.insert(kind, resource);
                }
                return None;
            }
        };
        if source == Source::Nodes {
            self.watch_kinds();
        }
        Some(change)
    }

    /// Takes in the object of a reply to a request of ours. Nothing changes if the watch has delivered that version or a
    /// later one: the reply is late.
    pub(crate) fn take_reply(&mut self, source: &Source, object: impl Into<Received>) -> Touched {
        let object = object.into();
        if self.delivered.has(source, object.resource_version()) {
            return Touched::default();
        }
        self.index.apply(source, object)
    }

    /// Brings the scheduler's tables up to date with everything but bindings.
    pub(crate) fn refresh_objects(&mut self, touched: &Touched) -> Vec<TableChange> {
        for (object, error) in &touched.unreadable {
            tracing::warn!(object, %error, "object cannot be read; its last readable state stays in force");
        }
        if touched.kinds {
            self.watch_kinds();
        }
        let mut changes = Vec::new();
        for name in &touched.clusters.names {
            changes.extend(self.refresh_cluster(name));
        }
        changes.extend(derived::refresh_rules(&mut self.tables, &self.index, touched));
        if !touched.interpreters.customizations.is_empty()
            || !touched.interpreters.webhooks.is_empty()
        {
            let rules = self.index.rules();
            let kinds = rules.webhooks().read_kinds();
            let now = AgentCustomizations::of(&self.agent_customizations, rules.specs(), kinds);
            self.agent_customizations = Arc::new(now);
            self.env.outlet.set_customizations(Arc::clone(&self.agent_customizations));
        }
        if !touched.bindings.is_empty() {
            self.env.outlet.watch_labels(&self.index.node_labels());
        }
        changes
    }

    /// As a follower: brings the tables up to date with bindings, whose statuses show what members run.
    pub(crate) fn follow_bindings(&mut self, touched: &Touched) {
        for key in &touched.bindings {
            match self.index.binding(key).cloned() {
                Some(binding) => {
                    self.note_term(&binding, LeaderTerm::default());
                    self.refresh_binding(key, replicas_in(&binding.status.read()));
                }
                None => {
                    self.tables.remove_binding(key);
                }
            }
        }
    }

    /// Leadership lost: decisions that may never have been committed, and reports of sessions that ended with it, must
    /// not count. The tables are made again from the hub's objects.
    pub(crate) fn rebuild_tables(&mut self) {
        self.tables = self.tables.emptied();
        self.tables.set_cluster_sets(self.index.cluster_rules().clone());
        self.live.clear();
        let clusters: Vec<_> = self.index.clusters().map(|(name, _)| name.clone()).collect();
        for name in &clusters {
            self.refresh_cluster(name);
        }
        for (_, policy) in self.index.workload_policies() {
            self.tables.upsert_workload_policy(policy);
        }
        for (_, quota) in self.index.quotas() {
            self.tables.upsert_quota(quota);
        }
        for spread in self.index.spreads().filter_map(|key| self.index.spread(key)) {
            self.tables.upsert_workload_spread(spread);
        }
        let bindings: Vec<_> = self.index.bindings().cloned().collect();
        for binding in bindings {
            self.refresh_binding(&binding.key, replicas_in(&binding.status.read()));
        }
    }

    /// Updates a binding in the scheduler's tables; `reported` is what members run of it.
    pub(crate) fn refresh_binding(
        &mut self,
        key: &BindingKey,
        reported: Few<ClusterName, i64>,
    ) -> Vec<TableChange> {
        derived::refresh_binding(&mut self.tables, &self.index, key, reported)
    }

    /// A binding may hold a higher term than `ours`, if a leader wrote it that the Lease has no trace of.
    pub(crate) fn note_term(&self, binding: &Binding, ours: LeaderTerm) {
        let term = binding.term();
        self.ready.send_if_modified(|ready| match ready {
            Some(highest) if *highest < term && !term.is_out_of_range(ours.max(*highest)) => {
                *highest = term;
                true
            }
            _ => false,
        });
    }

    /// Whether a member has a session.
    pub(crate) fn is_connected(&self, cluster: &str) -> bool {
        self.live.get(cluster).is_some_and(|live| live.session == Session::Connected)
    }

    /// A session began or ended.
    pub(crate) fn set_session(
        &mut self,
        cluster: &ClusterName,
        session: Session,
    ) -> Vec<TableChange> {
        self.change_live(cluster, |live| live.session = session)
    }

    /// A member counted its free capacity.
    pub(crate) fn set_capacity(
        &mut self,
        cluster: &ClusterName,
        counted: &Counted,
    ) -> Vec<TableChange> {
        let capacity = capacity::capacity(counted);
        let mut changes = self.change_live(cluster, |live| live.capacity = Some(capacity));
        if self.index.cluster(cluster).is_some() {
            changes.extend(self.tables.set_member_quotas(cluster, &capacity::quotas(counted)));
        }
        changes
    }

    fn change_live(
        &mut self,
        name: &ClusterName,
        change: impl FnOnce(&mut LiveCluster),
    ) -> Vec<TableChange> {
        let Some(cluster) = self.index.cluster(name).cloned() else { return Vec::new() };
        let live = self.live.entry(name.clone());
        let live = live.or_insert_with(|| LiveCluster::from_status(&cluster));
        change(live);
        self.tables.upsert_cluster(&cluster, live.clone())
    }

    fn refresh_cluster(&mut self, name: &ClusterName) -> Vec<TableChange> {
        match self.index.cluster(name) {
            Some(cluster) => {
                let live = self.live.entry(name.clone());
                let live = live.or_insert_with(|| LiveCluster::from_status(cluster)).clone();
                self.env.outlet.cluster_changed(cluster);
                self.tables.upsert_cluster(cluster, live)
            }
            None => {
                self.live.remove(name);
                self.env.outlet.cluster_deleted(name);
                self.tables.remove_cluster(name)
            }
        }
    }

    /// Whether the objects of a kind were listed once, or cannot be.
    pub(crate) fn is_settled(&self, kind: &GroupKind) -> bool {
        self.index.settled(&[Source::Templates(kind.clone())])
    }

    /// Whether the objects of all kinds that a policy selects were listed once, or cannot be.
    pub(crate) fn is_settled_for(&self, policy: &Policy) -> bool {
        let kinds_known = !policy.selects_every_kind() || self.index.settled(&[Source::Kinds]);
        kinds_known && self.index.kinds_of(policy).iter().all(|kind| self.is_settled(kind))
    }

    /// Whether all streams required for leading have listed everything.
    fn is_complete(&self) -> bool {
        let mut kinds: Vec<Source> =
            self.index.wanted_kinds().into_keys().map(Source::Templates).collect();
        if self.index.selects_every_kind() {
            kinds.push(Source::Kinds);
        }
        REQUIRED.iter().all(|source| self.index.reading(source).complete)
            && self.index.settled(&OPTIONAL)
            && self.index.settled(&kinds)
    }

    /// Tells the election that the caches are complete.
    pub(crate) fn report_ready(&self) {
        if self.ready.borrow().is_none() && self.is_complete() {
            tracing::info!("everything is listed");
            self.ready.send_replace(Some(self.index.highest_term()));
        }
    }

    /// Starts and stops streams so that exactly the relevant kinds are watched.
    fn watch_kinds(&mut self) {
        let mut wanted: BTreeMap<Source, String> =
            REQUIRED.into_iter().chain(OPTIONAL).map(|source| (source, String::new())).collect();
        // A Node alone proves that the hub runs workloads; without one, look for Pods and ReplicaSets of templates.
        let nodes = self.index.reading(&Source::Nodes);
        if (nodes.complete || nodes.unreadable.is_some()) && !self.index.has_nodes() {
            wanted.insert(Source::ReplicaSets, String::new());
            wanted.insert(Source::Pods, String::new());
        }
        if self.index.selects_every_kind() {
            wanted.insert(Source::Kinds, String::new());
        }
        for (kind, version) in self.index.wanted_kinds() {
            wanted.insert(Source::Templates(kind), version);
        }
        for stopped in self.streams.set(&wanted) {
            match stopped {
                Source::Templates(kind) => {
                    self.index.forget_kind(&kind);
                    self.resources.remove(&kind);
                }
                Source::Kinds => self.index.forget_served(),
                _ => {}
            }
        }
    }
}

/// Whether decisions depend on such objects, so that history shows who last changed them.
fn is_authored(source: &Source) -> bool {
    matches!(
        source,
        Source::PropagationPolicies
            | Source::ClusterPropagationPolicies
            | Source::WorkloadPolicies
            | Source::WorkloadSpreads
            | Source::Templates(_)
    )
}

/// Replicas on members according to a binding's status.
fn replicas_in(status: &ResourceBindingStatus) -> Few<ClusterName, i64> {
    let items = status.aggregated_status.iter();
    items.filter_map(|item| Some((ClusterName::from(&item.cluster_name), item.replicas?))).collect()
}
