//! The hub: its content, and a client that counts the controller's writes.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use atoll_api::cluster::ClusterSpec;
use atoll_api::{Cluster, ResourceBinding};
use atoll_apiserver::{Options, Server, Service};
use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use http::{Method, Request, Response};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::{MEMBERS, placement};

/// Concurrent requests while the hub is filled.
const AT_ONCE: usize = 16;
/// Concurrent commits when the API server is measured alone: as many as the controller has.
const COMMITS_AT_ONCE: usize = 64;

pub(crate) fn name(at: usize) -> String {
    format!("m{at:02}")
}

/// An API server in memory with Atoll's kinds.
pub(crate) async fn open() -> (Server, Client) {
    let server = Server::open(Options::memory()).unwrap();
    let client = server.client();
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in atoll_api::crds::all() {
        crds.create(&PostParams::default(), &crd).await.unwrap();
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for name in ["atoll-system", "bench"] {
        let object = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        namespaces.create(&PostParams::default(), &object).await.unwrap();
    }
    (server, client)
}

/// Registers the members; names and uids.
pub(crate) async fn clusters(client: &Client) -> Vec<(String, String)> {
    let clusters: Api<Cluster> = Api::all(client.clone());
    let mut made = Vec::new();
    for at in 0..MEMBERS {
        let cluster = Cluster::new(&name(at), ClusterSpec::default());
        let cluster = clusters.create(&PostParams::default(), &cluster).await.unwrap();
        made.push((name(at), cluster.metadata.uid.unwrap()));
    }
    made
}

/// Waits until all members are Ready.
pub(crate) async fn until_ready(client: &Client) {
    let clusters: Api<Cluster> = Api::all(client.clone());
    loop {
        let all = clusters.list(&Default::default()).await.unwrap();
        let ready = |cluster: &&Cluster| {
            let status = cluster.status.as_ref();
            status.is_some_and(|s| atoll_api::conditions::is_true(&s.conditions, "Ready"))
        };
        if all.iter().filter(ready).count() == MEMBERS {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until the dead member must be evacuated.
pub(crate) async fn until_evicting(client: &Client, look: Duration) {
    let clusters: Api<Cluster> = Api::all(client.clone());
    loop {
        let cluster = clusters.get(&name(0)).await.unwrap();
        if cluster.spec.taints.iter().any(|taint| taint.effect == "NoExecute") {
            return;
        }
        tokio::time::sleep(look).await;
    }
}

/// A workload of two replicas.
pub(crate) fn deployment(name: &str) -> Value {
    let labels = json!({"app": name});
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "nginx:1.27"}]},
            },
        },
    })
}

/// One policy, and this many Deployments that it claims.
pub(crate) async fn fill(client: &Client, bindings: usize) {
    let policies: Api<atoll_api::PropagationPolicy> = Api::namespaced(client.clone(), "bench");
    let policy = serde_json::from_value(json!({
        "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "all"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
            "placement": placement(),
        },
    }))
    .unwrap();
    policies.create(&PostParams::default(), &policy).await.unwrap();
    let deployments: &Api<Deployment> = &Api::namespaced(client.clone(), "bench");
    stream::iter(0..bindings)
        .for_each_concurrent(AT_ONCE, async |at| {
            let object = serde_json::from_value(deployment(&format!("w{at:06}"))).unwrap();
            deployments.create(&PostParams::default(), &object).await.unwrap();
        })
        .await;
}

/// Measures the API server alone: the write of a decision for this many bindings, with as many concurrent writes as the
/// controller has.
pub(crate) async fn commits(client: &Client, most: usize) {
    let bindings: &Api<ResourceBinding> = &Api::namespaced(client.clone(), "bench");
    let all = bindings.list(&ListParams::default().limit(most as u32)).await.unwrap().items;
    let count = all.len();
    let cpu = crate::cpu();
    let start = Instant::now();
    stream::iter(all)
        .for_each_concurrent(COMMITS_AT_ONCE, async |mut binding| {
            let spec = &mut binding.spec;
            let mut decision = spec.decision.take().unwrap();
            decision.parent = Some(std::mem::replace(&mut decision.id, "0".repeat(32)));
            spec.clusters.pop();
            let patch = json!({
                "metadata": {"resourceVersion": binding.metadata.resource_version},
                "spec": {"clusters": spec.clusters, "decision": decision},
            });
            let name = binding.metadata.name.unwrap();
            bindings.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        })
        .await;
    let took = start.elapsed();
    let rate = count as f64 / took.as_secs_f64();
    let each = crate::each(crate::cpu() - cpu, count);
    println!(
        "  the API server alone: {count} commits in {took:.2?}, {rate:.0}/s, CPU {each:.2} ms each"
    );
}

/// Number of writes by kind, and the time of the last.
type Counts = BTreeMap<&'static str, (usize, Instant)>;

/// Writes of the controller.
#[derive(Clone, Default)]
pub(crate) struct Board(Arc<Mutex<Counts>>);

impl Board {
    /// A client whose writes are counted.
    pub(crate) fn client(&self, server: &Server) -> Client {
        Client::new(Counted { inner: server.service(), board: self.clone() }, "default")
    }

    pub(crate) fn count(&self, what: &str) -> usize {
        self.0.lock().unwrap().get(what).map_or(0, |(count, _)| *count)
    }

    pub(crate) fn last(&self, what: &str) -> Option<Instant> {
        self.0.lock().unwrap().get(what).map(|(_, last)| *last)
    }

    pub(crate) fn total(&self) -> usize {
        self.0.lock().unwrap().values().map(|(count, _)| *count).sum()
    }

    /// Returns the counts and resets them.
    pub(crate) fn take(&self) -> Counts {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    pub(crate) fn summary(&self) -> String {
        let counts = self.0.lock().unwrap();
        let parts: Vec<String> =
            counts.iter().map(|(what, (count, _))| format!("{count} {what}")).collect();
        parts.join(", ")
    }
}

#[derive(Clone)]
struct Counted {
    inner: Service,
    board: Board,
}

impl tower::Service<Request<Body>> for Counted {
    type Response = Response<atoll_apiserver::Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        tower::Service::<Request<Body>>::poll_ready(&mut self.inner, cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let what = what(request.method(), request.uri().path());
        let answer = self.inner.call(request);
        let board = self.board.clone();
        Box::pin(async move {
            let response = answer.await?;
            if let Some(what) = what.filter(|_| response.status().is_success()) {
                let mut counts = board.0.lock().unwrap();
                let count = counts.entry(what).or_insert((0, Instant::now()));
                *count = (count.0 + 1, Instant::now());
            }
            Ok(response)
        })
    }
}

fn what(method: &Method, path: &str) -> Option<&'static str> {
    if method == Method::GET {
        return None;
    }
    Some(if path.ends_with("/status") {
        if path.contains("/resourcebindings") { "binding statuses" } else { "other statuses" }
    } else if path.contains("/resourcebindings") {
        "bindings"
    } else if path.contains("/events") {
        "events"
    } else {
        "others"
    })
}
