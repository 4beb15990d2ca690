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

/// The task.
pub(crate) struct TaintPolicies {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    /// The term while this process leads.
    pub(crate) terms: watch::Receiver<Option<LeaderTerm>>,
}

/// What is known, and what has to be looked at.
#[derive(Default)]
struct Work {
    policies: BTreeMap<String, ClusterTaintPolicy>,
    clusters: BTreeMap<String, Cluster>,
    /// Policies whose status may have to be written.
    statuses: BTreeSet<String>,
    /// Clusters whose taints may have to be written.
    taints: BTreeSet<String>,
    /// Not before this time, after a failure.
    paused: Option<Instant>,
}

impl Work {
    fn policies_changed(&mut self) {
        self.statuses.extend(self.policies.keys().cloned());
        self.taints.extend(self.clusters.keys().cloned());
    }

    fn put_cluster(&mut self, cluster: Cluster) {
        let name = cluster.name_any();
        self.taints.insert(name.clone());
        self.clusters.insert(name, cluster);
    }

    fn is_idle(&self) -> bool {
        self.statuses.is_empty() && self.taints.is_empty()
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
            let (idle, paused) = (work.is_idle(), work.paused);
            let due = async {
                match paused {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => tokio::task::yield_now().await,
                }
            };
            tokio::select! {
                biased;
                Some(event) = policies.next() => match event {
                    Ok(event) => take_policy(&mut work, &mut listed, event),
                    Err(error) => lost(&error).await,
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
                    Err(error) => lost(&error).await,
                },
                () = due, if !idle => self.step(&mut work).await,
            }
        }
    }

    /// Writes what is due next.
    async fn step(&self, work: &mut Work) {
        work.paused = None;
        let result = if let Some(name) = work.statuses.pop_first() {
            let written = match work.policies.get(&name) {
                Some(policy) => self.write_status(policy).await,
                None => Ok(()),
            };
            written.inspect_err(|_| {
                work.statuses.insert(name);
            })
        } else if let Some(name) = work.taints.pop_first() {
            let written = match work.clusters.get(&name) {
                Some(cluster) => self.write_taints(work, cluster).await,
                None => Ok(()),
            };
            written.inspect_err(|_| {
                work.taints.insert(name);
            })
        } else {
            Ok(())
        };
        if let Err(error) = result {
            let error = &error as &dyn std::error::Error;
            tracing::debug!(
                error,
                "cannot write a ClusterTaintPolicy's status or a Cluster's taints"
            );
            work.paused = Some(Instant::now() + RETRY);
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
        // On a conflict the watch delivers the newer version, which is looked at again.
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

async fn lost(error: &watcher::Error) {
    tracing::debug!(%error, "cannot be watched");
    tokio::time::sleep(RETRY).await;
}
