//! ClusterTaintPolicies: adds taints to Clusters and removes them, by conditions of the Clusters.
//!
//! A task beside the event loop, active while this process leads. Clusters are watched only while there is a policy. Each
//! write is guarded by the version that it is computed from, so concurrent changes of taints are never lost.

mod effect;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use atoll_api::conditions::{self, ACCEPTED, Status};
use atoll_api::{Clock, Cluster, ClusterTaintPolicy, marks};
use futures::StreamExt;
use futures::stream::BoxStream;
use kube::api::{Api, Patch};
use kube::runtime::watcher::{self, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::leader::{LeaderTerm, while_leading};
use crate::manager;
use crate::member::hub::{HubError, in_time};
use crate::status::write;

/// Wait after a failed request or watch.
const RETRY: Duration = Duration::from_secs(5);
/// Wait for a newer version of an object that changed between its read and its write.
const SOON: Duration = Duration::from_secs(1);

/// The task.
pub(crate) struct TaintPolicies {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    /// The term while this process leads.
    pub(crate) terms: watch::Receiver<Option<LeaderTerm>>,
}

/// What has to be looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    /// The status of a policy.
    Policy(String),
    /// The taints of a Cluster.
    Cluster(String),
}

/// What is known, and when each item must be looked at.
#[derive(Default)]
struct Work {
    policies: BTreeMap<String, ClusterTaintPolicy>,
    clusters: BTreeMap<String, Cluster>,
    due: BTreeSet<(Instant, Item)>,
}

impl Work {
    fn mark(&mut self, item: Item) {
        self.due.retain(|(_, other)| *other != item);
        self.due.insert((Instant::now(), item));
    }

    /// Everything is looked at again.
    fn policies_changed(&mut self) {
        let now = Instant::now();
        let policies = self.policies.keys().cloned().map(Item::Policy);
        let clusters = self.clusters.keys().cloned().map(Item::Cluster);
        self.due = policies.chain(clusters).map(|item| (now, item)).collect();
    }

    fn put_cluster(&mut self, cluster: Cluster) {
        let name = cluster.name_any();
        let before = self.clusters.get(&name);
        if before.is_none_or(|before| !effect::same(before, &cluster)) {
            self.mark(Item::Cluster(name.clone()));
        }
        self.clusters.insert(name, cluster);
    }

    fn next(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }
}

type Events<K> = BoxStream<'static, Result<watcher::Event<K>, watcher::Error>>;

impl TaintPolicies {
    /// Runs until cancelled.
    pub(crate) async fn run(self, token: CancellationToken) {
        while_leading(self.terms.clone(), token, || self.lead()).await;
    }

    /// Follows policies and Clusters; ends only when it is dropped.
    async fn lead(&self) {
        let api: Api<ClusterTaintPolicy> = Api::all(self.client.clone());
        let mut policies: Events<ClusterTaintPolicy> =
            watcher(api, watcher::Config::default()).boxed();
        let mut clusters: Option<Events<Cluster>> = None;
        let mut work = Work::default();
        let mut listed = BTreeMap::new();
        loop {
            if clusters.is_some() == work.policies.is_empty() {
                work.clusters.clear();
                let api: Api<Cluster> = Api::all(self.client.clone());
                let start = || watcher(api, watcher::Config::default()).boxed();
                clusters = (!work.policies.is_empty()).then(start);
            }
            let cluster = async {
                match &mut clusters {
                    Some(events) => events.next().await,
                    None => std::future::pending().await,
                }
            };
            let next = work.next();
            let due = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(event) = policies.next() => match event {
                    Ok(event) => take_policy(&mut work, &mut listed, event),
                    Err(error) => lost("ClusterTaintPolicy", &error).await,
                },
                Some(event) = cluster => match event {
                    Ok(watcher::Event::Init) => work.clusters.clear(),
                    Ok(watcher::Event::InitDone) => {}
                    Ok(watcher::Event::Apply(cluster) | watcher::Event::InitApply(cluster)) => {
                        work.put_cluster(cluster);
                    }
                    Ok(watcher::Event::Delete(cluster)) => {
                        work.clusters.remove(&cluster.name_any());
                    }
                    Err(error) => lost("Cluster", &error).await,
                },
                () = due => self.step(&mut work).await,
            }
        }
    }

    /// Writes what is due next. An item that cannot be written does not delay the others.
    async fn step(&self, work: &mut Work) {
        let Some((_, item)) = work.due.pop_first() else { return };
        let (written, what) = match &item {
            Item::Policy(name) => match work.policies.get(name) {
                Some(policy) => (self.write_status(policy).await, "status of ClusterTaintPolicy"),
                None => return,
            },
            Item::Cluster(name) => match work.clusters.get(name) {
                Some(cluster) => (self.write_taints(work, cluster).await, "taints of Cluster"),
                None => return,
            },
        };
        match written {
            Ok(()) => {}
            // The watch delivers the version that was written in between.
            Err(error) if error.is_conflict() => {
                work.due.insert((Instant::now() + SOON, item));
            }
            Err(error) => {
                let (Item::Policy(name) | Item::Cluster(name)) = &item;
                let error = &error as &dyn std::error::Error;
                tracing::warn!(what, name, error, "cannot write; the next attempt follows soon");
                work.due.insert((Instant::now() + RETRY, item));
            }
        }
    }

    async fn write_taints(&self, work: &Work, cluster: &Cluster) -> Result<(), HubError> {
        let policies: Vec<_> = work.policies.values().collect();
        let now = self.clock.now_seconds();
        let Some(taints) = effect::taints(cluster, &policies, now) else { return Ok(()) };
        let patch = Patch::Merge(json!({
            "metadata": {"uid": cluster.uid(), "resourceVersion": cluster.resource_version()},
            "spec": {"taints": taints},
        }));
        let api: Api<Cluster> = Api::all(self.client.clone());
        let (name, params) = (cluster.name_any(), manager::patch(marks::MANAGER));
        in_time(api.patch(&name, &params, &patch)).await.map(|_| ())
    }

    async fn write_status(&self, policy: &ClusterTaintPolicy) -> Result<(), HubError> {
        let before = policy.status.clone().unwrap_or_default();
        let (mut status, generation) = (before.clone(), policy.metadata.generation);
        status.observed_generation = generation;
        let (holds, reason, message) = match effect::mistake(&policy.spec) {
            None => (Status::True, "Accepted", String::new()),
            Some(mistake) => (Status::False, "Invalid", mistake),
        };
        let (held, now) = (&mut status.conditions, self.clock.now_seconds());
        conditions::set(held, ACCEPTED, holds, reason, &message, generation, now);
        let Some(patch) = write::patch(&json!(before), &json!(status)) else { return Ok(()) };
        let api: Api<ClusterTaintPolicy> = Api::all(self.client.clone());
        let params = manager::patch(marks::MANAGER_STATUS);
        in_time(api.patch_status(&policy.name_any(), &params, &Patch::Merge(&patch)))
            .await
            .map(|_| ())
    }
}

fn take_policy(
    work: &mut Work,
    listed: &mut BTreeMap<String, ClusterTaintPolicy>,
    event: watcher::Event<ClusterTaintPolicy>,
) {
    match event {
        watcher::Event::Init => listed.clear(),
        watcher::Event::InitApply(policy) => {
            listed.insert(policy.name_any(), policy);
        }
        watcher::Event::InitDone => {
            work.policies = std::mem::take(listed);
            work.policies_changed();
        }
        watcher::Event::Apply(policy) => {
            let before = work.policies.insert(policy.name_any(), policy.clone());
            if before.is_none_or(|before| before.spec != policy.spec) {
                work.policies_changed();
            }
        }
        watcher::Event::Delete(policy) => {
            work.policies.remove(&policy.name_any());
        }
    }
}

async fn lost(kind: &str, error: &watcher::Error) {
    tracing::warn!(kind, %error, "cannot watch");
    tokio::time::sleep(RETRY).await;
}
