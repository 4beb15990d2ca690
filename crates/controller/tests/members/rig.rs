//! A hub with `members` on it, and functions to drive both.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll_api::cluster::{ClusterSpec, ClusterStatus};
use atoll_api::policy::ConflictResolution;
use atoll_api::{BindingUid, Clock, Cluster, ClusterName, marks};
use atoll_apiserver::{Options, Server};
use atoll_controller::leader::LeaderTerm;
use atoll_controller::members::{
    Arrival, HealthTimes, Incoming, Key, MemberEvent, Members, MembersOptions, Metrics, Oracle,
    Proof, Rendered, Verdict, Withdrawal,
};
use atoll_protocol::identity::TrustDomain;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;
use tokio::io::DuplexStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Limit of every wait in these tests, in virtual time.
pub(crate) const LIMIT: Duration = Duration::from_secs(600);

/// Verdicts by claim; a claim without one is unknown.
#[derive(Default)]
pub(crate) struct Verdicts(pub(crate) Mutex<BTreeMap<BindingUid, Verdict>>);

impl Oracle for Verdicts {
    fn verdict(&self, _: &ClusterName, claim: &BindingUid, _: &Key) -> Verdict {
        self.0.lock().unwrap().get(claim).copied().unwrap_or(Verdict::Unknown)
    }
}

/// The hub. It outlives controllers.
#[derive(Clone)]
pub(crate) struct Hub {
    pub(crate) client: kube::Client,
    pub(crate) clock: Clock,
}

impl Hub {
    pub(crate) async fn start() -> Self {
        let (origin, base) = (Instant::now(), Timestamp::from_second(1_700_000_000).unwrap());
        let now = move || base + origin.elapsed();
        let server = Server::open(Options { clock: Arc::new(now), ..Options::memory() }).unwrap();
        let client = server.client();
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        for crd in atoll_api::crds::all() {
            crds.create(&PostParams::default(), &crd).await.unwrap();
        }
        let hub = Self { client, clock: Clock::from_fn(now) };
        // A CRD is served shortly after its creation.
        eventually(async || hub.clusters().list(&Default::default()).await.is_ok()).await;
        hub
    }

    pub(crate) fn clusters(&self) -> Api<Cluster> {
        Api::all(self.client.clone())
    }

    pub(crate) async fn register(&self, name: &str) -> Cluster {
        let cluster = Cluster::new(name, ClusterSpec::default());
        self.clusters().create(&PostParams::default(), &cluster).await.unwrap()
    }

    pub(crate) async fn status(&self, name: &str) -> ClusterStatus {
        self.clusters().get(name).await.unwrap().status.unwrap_or_default()
    }

    pub(crate) async fn version(&self, name: &str) -> String {
        self.clusters().get(name).await.unwrap().metadata.resource_version.unwrap()
    }

    /// "key:effect" of our taints.
    pub(crate) async fn taints(&self, name: &str) -> Vec<String> {
        let mut taints: Vec<_> = self
            .clusters()
            .get(name)
            .await
            .unwrap()
            .spec
            .taints
            .iter()
            .map(|taint| format!("{}:{}", taint.key.rsplit('/').next().unwrap(), taint.effect))
            .collect();
        taints.sort();
        taints
    }

    pub(crate) async fn ready(&self, name: &str) -> String {
        let conditions = self.status(name).await.conditions;
        let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
        ready.map(|ready| format!("{}/{}", ready.status, ready.reason)).unwrap_or_default()
    }

    /// Deletes a Cluster like kubectl.
    pub(crate) async fn delete(&self, name: &str) {
        self.clusters().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until the Cluster is gone.
    pub(crate) async fn gone(&self, name: &str) {
        eventually(async || self.clusters().get_opt(name).await.unwrap().is_none()).await;
    }

    /// Reason and message of a condition.
    pub(crate) async fn condition(&self, name: &str, kind: &str) -> Option<(String, String)> {
        let cluster = self.clusters().get_opt(name).await.unwrap()?;
        let conditions = cluster.status?.conditions;
        let found = conditions.into_iter().find(|condition| condition.type_ == kind)?;
        Some((found.reason, found.message))
    }

    pub(crate) async fn annotation(&self, name: &str, key: &str) -> Option<String> {
        self.clusters().get(name).await.unwrap().metadata.annotations?.remove(key)
    }

    pub(crate) async fn annotate(&self, name: &str, key: &str, value: &str) {
        let patch = json!({"metadata": {"annotations": {key: value}}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.clusters().patch(name, &params, &patch).await.unwrap();
    }
}

/// One controller's `members`.
pub(crate) struct Rig {
    pub(crate) hub: Hub,
    pub(crate) members: Members,
    pub(crate) term: watch::Sender<Option<LeaderTerm>>,
    pub(crate) verdicts: Arc<Verdicts>,
    pub(crate) arrivals: mpsc::Sender<Arrival>,
    metrics: Metrics,
    events: mpsc::Receiver<MemberEvent>,
    pub(crate) seen: Vec<MemberEvent>,
    token: CancellationToken,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.token.cancel();
    }
}

impl Rig {
    pub(crate) async fn start(hub: &Hub) -> Self {
        let rig = Self::start_with(hub, HealthTimes::default(), Some(1), |_| ()).await;
        rig.complete(1);
        rig
    }

    /// All desired state of this term was set.
    pub(crate) fn complete(&self, term: u64) {
        self.members.caches_complete(LeaderTerm::new(term), self.verdicts.clone());
    }

    /// `before` runs once the Clusters are known; nothing is complete yet.
    pub(crate) async fn start_with(
        hub: &Hub,
        health: HealthTimes,
        term: Option<u64>,
        before: impl FnOnce(&Members),
    ) -> Self {
        let (arrivals, incoming) = mpsc::channel(8);
        let (sender, events) = mpsc::channel(64);
        let (term, receiver) = watch::channel(term.map(LeaderTerm::new));
        let (verdicts, token) = (Arc::<Verdicts>::default(), CancellationToken::new());
        let metrics = Metrics::default();
        let options = MembersOptions {
            client: hub.client.clone(),
            clock: hub.clock.clone(),
            incoming: Incoming::Streams(incoming),
            health,
            term: receiver,
            other_leader: watch::channel(None).1,
            trust_domain: TrustDomain::new("atoll.test").unwrap(),
            metrics: metrics.clone(),
        };
        let members = Members::start(options, sender, token.clone()).unwrap();
        for cluster in hub.clusters().list(&Default::default()).await.unwrap() {
            members.cluster_changed(&cluster);
        }
        before(&members);
        tokio::spawn(follow(hub.clusters(), members.clone(), token.clone()));
        let hub = hub.clone();
        Self { hub, members, term, verdicts, arrivals, metrics, events, seen: Vec::new(), token }
    }

    /// A metric in Prometheus' format, for example `atoll_members_lost`.
    pub(crate) fn metric(&self, name: &str) -> String {
        metric(&self.metrics, name).unwrap_or_else(|| panic!("no {name}"))
    }

    /// Stops the controller and waits for its end.
    pub(crate) async fn stop(self) {
        self.token.cancel();
        timeout(LIMIT, self.members.stopped()).await.expect("all tasks end");
    }

    /// A new connection; returns the near end. `room` = bytes in flight in each direction.
    pub(crate) async fn connect(&self, room: usize) -> DuplexStream {
        let (near, far) = tokio::io::duplex(room);
        let arrival = Arrival { io: Box::new(far), identity: None };
        self.arrivals.send(arrival).await.expect("the listener takes connections");
        near
    }

    /// Waits for an event; earlier ones are stored in `seen`.
    pub(crate) async fn event(&mut self, wanted: impl Fn(&MemberEvent) -> bool) -> MemberEvent {
        let wait = async {
            loop {
                let event = self.events.recv().await.expect("events go on");
                self.seen.push(event.clone());
                if wanted(&event) {
                    return event;
                }
            }
        };
        match timeout(LIMIT, wait).await {
            Ok(event) => event,
            Err(_) => panic!("the event did not come; seen: {:?}", self.seen),
        }
    }

    /// Sets one object of this claim.
    pub(crate) fn set(&self, cluster: &str, claim: &str, hash: &str) {
        self.set_all(cluster, claim, vec![rendered(claim, claim, hash, 0)]);
    }

    /// Sets everything that this claim wants.
    pub(crate) fn set_all(&self, cluster: &str, claim: &str, objects: Vec<Arc<Rendered>>) {
        let (cluster, claim) = (cluster.into(), claim.into());
        self.members.set_desired(&cluster, &claim, objects, ConflictResolution::Abort);
    }

    /// Removes what this claim wanted.
    pub(crate) fn withdraw(&self, cluster: &str, claim: &str, proof: Proof) {
        self.members.withdraw(&cluster.into(), &claim.into(), Withdrawal::Remove, proof);
    }
}

/// Passes the hub's Clusters on, like the controller's watch.
async fn follow(clusters: Api<Cluster>, members: Members, token: CancellationToken) {
    let events = watcher(clusters, watcher::Config::default()).default_backoff();
    let mut events = std::pin::pin!(events);
    loop {
        let event = tokio::select! {
            biased;
            () = token.cancelled() => return,
            event = events.next() => event,
        };
        match event {
            Some(Ok(watcher::Event::Apply(cluster) | watcher::Event::InitApply(cluster))) => {
                members.cluster_changed(&cluster);
            }
            Some(Ok(watcher::Event::Delete(cluster))) => {
                members.cluster_deleted(&cluster.metadata.name.unwrap().into());
            }
            Some(Ok(_)) => (),
            Some(Err(error)) => panic!("watch: {error}"),
            None => return,
        }
    }
}

/// A Deployment of this claim, padded with this many bytes.
pub(crate) fn rendered(name: &str, claim: &str, hash: &str, ballast: usize) -> Arc<Rendered> {
    let key = Key::new("apps", "Deployment", Some("shop"), name);
    let manifest = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "labels": {marks::MANAGED_BY: marks::MANAGED_BY_VALUE},
            "annotations": {
                marks::CLAIMS: claim, marks::HASH: hash, "ballast": "x".repeat(ballast),
            },
        },
    });
    Arc::new(Rendered { key, api_version: "apps/v1".into(), manifest, hash: hash.into() })
}

/// Waits until the condition holds.
pub(crate) async fn eventually(mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(LIMIT, wait).await.expect("it holds in time");
}

/// A metric in Prometheus' format, with its labels; `None` before its first value.
pub(crate) fn metric(metrics: &Metrics, name: &str) -> Option<String> {
    let mut registry = prometheus_client::registry::Registry::default();
    metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map(str::to_owned)
}
