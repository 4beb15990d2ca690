//! Applies watch events to the tables, and passes changes on to everything that they affect.

use std::collections::BTreeMap;

use atoll_scheduler::{BindingFacts, LiveCluster, TableChange};
use tokio::time::Instant;

use super::{Engine, gates};
use crate::commit::draft::Demand;
use crate::index::key::{BindingKey, GroupKind, PolicyKey};
use crate::index::{Source, Touched};
use crate::leader::LeaderTerm;
use crate::queue::{Opening, Urgency};
use crate::status::due::{Pace, Subject};
use crate::watch::{ALWAYS, Arrival, News};

impl Engine {
    /// Handles one event of a stream.
    pub(super) fn take_in(&mut self, arrival: Arrival) {
        if !self.streams.is_current(&arrival) {
            return;
        }
        let source = arrival.source;
        self.learn_authors(&source, &arrival.news);
        let (touched, urgency) = match arrival.news {
            News::All(objects) => (self.index.replace(&source, objects), Urgency::Later),
            News::Applied(object) => (self.index.apply(&source, object), Urgency::Now),
            News::Deleted(object) => (self.index.delete(&source, &object), Urgency::Now),
            // A rejected stream retries again and again; only a different error is a change.
            News::Unreadable(why)
                if self.index.reading(&source).unreadable.as_deref() == Some(&*why) =>
            {
                tracing::debug!(?source, why, "still cannot be read");
                return;
            }
            News::Unreadable(why) => {
                tracing::warn!(?source, why, "cannot be read");
                (self.index.unreadable(&source, why), Urgency::Later)
            }
            News::Served(resource) => {
                if let Source::Templates(kind) = source {
                    self.resources.insert(kind, resource);
                }
                return;
            }
        };
        if source == Source::Nodes {
            self.watch_kinds();
        }
        self.absorb(touched, urgency, gates::opening(&source));
        self.report_ready();
    }

    /// Passes a change of the tables on; `news` is the kind of gate that it may open.
    pub(super) fn absorb(&mut self, touched: Touched, urgency: Urgency, news: Opening) {
        let now = Instant::now();
        for (who, error) in &touched.unreadable {
            tracing::warn!(who, %error, "object cannot be read; what was known of it stays in force");
        }
        if touched.kinds {
            self.watch_kinds();
        }
        let mut changes = Vec::new();
        for name in &touched.clusters {
            changes.extend(self.cluster_changed(name));
        }
        for (namespace, name) in &touched.workload_policy_rows {
            changes.extend(match self.index.workload_policy(&(namespace.clone(), name.clone())) {
                Some(policy) => self.tables.upsert_workload_policy(policy),
                None => self.tables.remove_workload_policy(namespace, name),
            });
        }
        for (namespace, name) in &touched.spread_rows {
            changes.extend(match self.index.spread(&(namespace.clone(), name.clone())) {
                Some(spread) => self.tables.upsert_workload_spread(spread),
                None => {
                    self.subsets.remove(&(namespace.clone(), name.clone()));
                    self.tables.remove_workload_spread(namespace, name)
                }
            });
        }
        for key in &touched.bindings {
            changes.extend(self.binding_changed(key));
        }
        if !touched.bindings.is_empty() {
            self.outlet.watch_labels(&self.index.node_labels());
        }
        self.wake(&changes);
        if self.led.is_none() {
            return;
        }
        for key in touched.keys {
            self.enqueue(key, urgency, Some(news));
        }
        if matches!(news, Opening::Cluster | Opening::PriorityClass | Opening::Hub) {
            self.reopen(news);
        }
        // Statuses are written without a precondition: a write of an earlier leader may have arrived after our own.
        for key in touched.statuses {
            self.due.mark(Subject::Binding(key.clone()), Pace::AtRest, now);
            self.due.mark(Subject::Template(key), Pace::AtRest, now);
        }
        for policy in touched.policies {
            self.mark_policy(policy, now);
        }
        for spread in touched.spreads {
            self.due.mark(Subject::WorkloadSpread(spread), Pace::OnItsWay, now);
        }
        for policy in touched.workload_policies {
            self.due.mark(Subject::WorkloadPolicy(policy), Pace::OnItsWay, now);
        }
    }

    /// The status of a policy may have changed.
    pub(super) fn mark_policy(&mut self, key: PolicyKey, now: Instant) {
        let answered = self.index.policy(&key).is_none_or(|policy| {
            policy.status.observed_generation == Some(policy.generation)
                && policy.selectors().iter().all(|selector| self.is_settled(&selector.kind))
        });
        let pace = if answered { Pace::OnItsWay } else { Pace::Unanswered };
        self.due.mark(Subject::Policy(key), pace, now);
    }

    /// Whether the objects of a kind were listed once, or cannot be.
    pub(super) fn is_settled(&self, kind: &GroupKind) -> bool {
        self.index.settled(&[Source::Templates(kind.clone())])
    }

    /// Wakes bindings that wait for one of these changes.
    pub(super) fn wake(&mut self, changes: &[TableChange]) {
        let now = Instant::now();
        for change in changes {
            self.queue.wake(change, now);
        }
    }

    /// Tracks the authors of objects that decisions may depend on.
    fn learn_authors(&mut self, source: &Source, news: &News) {
        let counts = matches!(
            source,
            Source::PropagationPolicies
                | Source::ClusterPropagationPolicies
                | Source::WorkloadPolicies
                | Source::WorkloadSpreads
                | Source::Templates(_)
        );
        match news {
            _ if !counts => {}
            News::All(objects) => objects.iter().for_each(|object| self.authors.learn(object)),
            News::Applied(object) => self.authors.learn(object),
            News::Deleted(object) => self.authors.forget(object),
            News::Unreadable(_) | News::Served(_) => {}
        }
    }

    fn cluster_changed(&mut self, name: &str) -> Vec<TableChange> {
        self.look_soon();
        if self.led.is_some() {
            self.chronicle_member(name);
        }
        match self.index.cluster(name) {
            Some(cluster) => {
                let live = self.live.entry(name.to_owned());
                let live = live.or_insert_with(|| LiveCluster::from_status(cluster)).clone();
                self.outlet.cluster_changed(cluster);
                self.tables.upsert_cluster(cluster, live)
            }
            None => {
                self.live.remove(name);
                self.emptying.remove(name);
                self.outlet.cluster_deleted(name);
                self.tables.remove_cluster(name)
            }
        }
    }

    /// A binding was created, changed or deleted.
    fn binding_changed(&mut self, key: &BindingKey) -> Vec<TableChange> {
        let Some(binding) = self.index.binding(key).cloned() else {
            self.forget_binding(key);
            return self.tables.remove_binding(key);
        };
        let term = binding
            .spec
            .decision
            .as_ref()
            .map(|d| LeaderTerm::from_record(d.term))
            .unwrap_or_default();
        let ours = self.led.unwrap_or_default();
        self.ready.send_if_modified(|ready| match ready {
            Some(highest) if *highest < term && !term.is_out_of_range(ours.max(*highest)) => {
                *highest = term;
                true
            }
            _ => false,
        });
        if self.led.is_some_and(|ours| ours < term) {
            // The hub is trusted: only administrators may write bindings.
            self.election.heard_term(term);
        }
        self.views.seed(key, &binding.status);
        if self.index.refusal(&binding).is_some() {
            return self.tables.remove_binding(key);
        }
        self.refresh_facts(key)
    }

    /// Facts about a binding that other decisions depend on.
    pub(super) fn facts_of(&self, key: &BindingKey) -> Option<BindingFacts> {
        let binding = self.index.binding(key)?;
        if self.index.refusal(binding).is_some() {
            return None; // a refused binding takes no capacity
        }
        let template = self.index.template(&binding.template());
        let (pod_labels, requirements) = match template {
            Some(template) => {
                (atoll_interpreter::pod_labels(&template.object), Demand::of(template).requirements)
            }
            None => (BTreeMap::new(), binding.spec.replica_requirements.clone()),
        };
        Some(BindingFacts {
            key: key.clone(),
            pod_labels: pod_labels.into(),
            requirements,
            shares: binding.spec.clusters.clone(),
            reported: self.views.replicas(key),
        })
    }

    /// Starts and stops streams so that exactly the relevant kinds are watched.
    pub(super) fn watch_kinds(&mut self) {
        let mut wanted: BTreeMap<Source, String> =
            ALWAYS.into_iter().map(|source| (source, String::new())).collect();
        // A Node alone proves that the hub runs workloads; without one, look for Pods and ReplicaSets of templates.
        let nodes = self.index.reading(&Source::Nodes);
        if (nodes.complete || nodes.unreadable.is_some()) && !self.index.has_nodes() {
            wanted.insert(Source::ReplicaSets, String::new());
            wanted.insert(Source::Pods, String::new());
        }
        for (kind, version) in self.index.wanted_kinds() {
            wanted.insert(Source::Templates(kind), version);
        }
        for stopped in self.streams.set(&wanted) {
            if let Source::Templates(kind) = stopped {
                self.index.forget_kind(&kind);
                self.resources.remove(&kind);
            }
        }
    }

    /// Tells the election that the caches are complete.
    fn report_ready(&self) {
        if self.ready.borrow().is_none() && self.is_complete() {
            tracing::info!("everything is listed");
            self.ready.send_replace(Some(self.index.highest_term()));
        }
    }
}
