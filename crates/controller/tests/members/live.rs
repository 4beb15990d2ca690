//! Controllers and real agents over TCP and TLS in real time, with a fault-injecting proxy between them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll_agent::{AgentOptions, Connector, IdentityStore, Join, LeaseTimes, Timings};
use atoll_api::Clock;
use atoll_api::cluster::Cluster;
use atoll_api::policy::ConflictResolution;
use atoll_apiserver::{Options, Server};
use atoll_controller::leader::LeaderTerm;
use atoll_controller::members::{
    HealthTimes, Incoming, MemberEvent, Members, MembersOptions, Metrics, TOKEN_LIFE, create_token,
};
use atoll_protocol::identity::TrustDomain;
use atoll_render::Share;
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::{WatchStreamExt, wait::await_condition, watcher};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::rig::{Hub, Verdicts};

/// Limit of every wait, in real time: PINGs find a dead connection after 30 s.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Times of a fast federation.
pub(crate) fn brisk() -> HealthTimes {
    let millis = Duration::from_millis;
    HealthTimes {
        heartbeat: millis(500),
        silent_after: millis(3_000),
        settle: millis(500),
        leader_grace: millis(3_000),
        ..HealthTimes::default()
    }
}

/// One controller's `members` on a socket.
pub(crate) struct Controller {
    pub(crate) members: Members,
    pub(crate) address: SocketAddr,
    pub(crate) term: watch::Sender<Option<LeaderTerm>>,
    /// Where another controller that leads is reached.
    pub(crate) other_leader: watch::Sender<Option<String>>,
    pub(crate) metrics: Metrics,
    events: mpsc::Receiver<MemberEvent>,
    token: CancellationToken,
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.token.cancel();
    }
}

impl Controller {
    /// Starts one that has all Clusters and the state that `before` sets, and leads in `term`.
    pub(crate) async fn start(hub: &Hub, term: Option<u64>, before: impl FnOnce(&Members)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, events) = mpsc::channel(4_096);
        let (term, receiver) = watch::channel(term.map(LeaderTerm::new));
        let (other_leader, of_other) = watch::channel(None);
        let token = CancellationToken::new();
        let metrics = Metrics::default();
        let options = MembersOptions {
            client: hub.client.clone(),
            clock: hub.clock.clone(),
            incoming: Incoming::Tcp(listener),
            health: brisk(),
            term: receiver,
            other_leader: of_other,
            trust_domain: TrustDomain::new("atoll.test").unwrap(),
            metrics: metrics.clone(),
        };
        let members = Members::start(options, sender, token.clone()).unwrap();
        for cluster in hub.clusters().list(&Default::default()).await.unwrap() {
            members.cluster_changed(&cluster);
        }
        before(&members);
        if let Some(term) = *term.borrow() {
            members.caches_complete(term, Arc::<Verdicts>::default());
        }
        let (clusters, follower, ends) = (hub.clusters(), members.clone(), token.clone());
        tokio::spawn(ends.run_until_cancelled_owned(follow(clusters, follower)));
        Self { members, address, term, other_leader, metrics, events, token }
    }

    /// All desired state of this term was set.
    pub(crate) fn complete(&self, term: u64) {
        self.members.caches_complete(LeaderTerm::new(term), Arc::<Verdicts>::default());
    }

    pub(crate) async fn stop(mut self) {
        self.token.cancel();
        self.events.close();
        timeout(LIMIT, self.members.stopped()).await.expect("all tasks end");
    }

    /// The next event that matches.
    pub(crate) async fn event(&mut self, wanted: impl Fn(&MemberEvent) -> bool) -> MemberEvent {
        let wait = async {
            loop {
                let event = self.events.recv().await.expect("events go on");
                if wanted(&event) {
                    return event;
                }
            }
        };
        timeout(LIMIT, wait).await.expect("the event comes in time")
    }

    /// The next agreement with this member; the number of its up-to-date objects, and of its orphans.
    pub(crate) async fn agreed(&mut self, name: &str) -> (usize, usize) {
        let event = self
            .event(
                |event| matches!(event, MemberEvent::Inventory { cluster, .. } if cluster == name),
            )
            .await;
        let MemberEvent::Inventory { held, orphans, .. } = event else { unreachable!() };
        (held.iter().filter(|object| object.current).count(), orphans)
    }
}

async fn follow(clusters: Api<Cluster>, members: Members) {
    let events = watcher(clusters, watcher::Config::default()).default_backoff();
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        if let Ok(watcher::Event::InitApply(cluster) | watcher::Event::Apply(cluster)) = event {
            members.cluster_changed(&cluster);
        }
    }
}

/// Wants a ConfigMap on a member.
pub(crate) fn set(members: &Members, cluster: &str, name: &str, value: &str) {
    let template = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"}, "data": {"v": value},
    });
    let claim = format!("uid-{name}");
    let share = Share { cluster: cluster.into(), claim: claim.clone(), ..Share::default() };
    let objects = vec![Arc::new(atoll_render::render(&template, &share).unwrap())];
    members.set_desired(&cluster.into(), &claim.into(), objects, ConflictResolution::Abort);
}

/// A member: its API, and its agent's start options.
pub(crate) struct Member {
    pub(crate) client: kube::Client,
    pub(crate) options: AgentOptions,
}

/// A running agent.
pub(crate) struct Agent {
    task: JoinHandle<()>,
    token: CancellationToken,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.token.cancel();
    }
}

impl Agent {
    /// Like kill -9: without any message.
    pub(crate) async fn kill(self) {
        self.task.abort();
        let ended = timeout(LIMIT, async {
            while !self.task.is_finished() {
                tokio::task::yield_now().await
            }
        });
        ended.await.expect("it ends");
    }
}

impl Member {
    /// Registers a member; its agents connect to `address`.
    pub(crate) async fn register(
        hub: &Hub,
        controller: &Controller,
        name: &str,
        address: SocketAddr,
    ) -> Self {
        let cluster = hub.register(name).await;
        controller.members.cluster_changed(&cluster);
        let now = hub.clock.clone();
        let seed = name.bytes().map(u64::from).sum();
        let server = Options { clock: Arc::new(move || now.now()), seed, ..Options::memory() };
        let client = Server::open(server).unwrap().client();
        let token = create_token(&hub.client, &hub.clock, &cluster, TOKEN_LIFE).await.unwrap();
        let ca_hash = timeout(LIMIT, controller.members.authority()).await.unwrap().hash();
        let seconds = Duration::from_secs;
        let lease = LeaseTimes {
            duration: seconds(4),
            renew: seconds(1),
            deadline: seconds(3),
            retry: Duration::from_millis(200),
        };
        let options = AgentOptions {
            client: client.clone(),
            addresses: vec![address.to_string()],
            connector: Connector::tcp(),
            identity: IdentityStore::Secret("atoll-agent-identity".into()),
            join: Some(Join { token, ca_hash }),
            namespace: "atoll-system".into(),
            reserved: atoll_api::ReservedNamespaces::default(),
            proxy: None,
            instance: "agent-0".into(),
            runs_on: atoll_api::RunsOn::Thread,
            clock: hub.clock.clone(),
            seed,
            timings: Timings { lease, ..Timings::default() },
        };
        Self { client, options }
    }

    /// Starts an agent.
    pub(crate) fn agent(&self) -> Agent {
        self.agent_with(|_| ())
    }

    /// Starts one with different options.
    pub(crate) fn agent_with(&self, differ: impl FnOnce(&mut AgentOptions)) -> Agent {
        let mut options = self.options.clone();
        differ(&mut options);
        let token = CancellationToken::new();
        let ends = token.clone();
        let task = tokio::spawn(async move { atoll_agent::run(options, ends).await.unwrap() });
        Agent { task, token }
    }

    pub(crate) fn configs(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Waits until the member has a ConfigMap with this value; returns its resourceVersion.
    pub(crate) async fn has(&self, name: &str, value: &str) -> String {
        let has = |config: Option<&ConfigMap>| {
            let data = config.and_then(|config| config.data.as_ref());
            data.and_then(|data| data.get("v")).is_some_and(|found| found == value)
        };
        let waited = timeout(LIMIT, await_condition(self.configs(), name, has)).await;
        let config = waited.unwrap_or_else(|_| panic!("{name} is not {value}"));
        config.unwrap().unwrap().resource_version().unwrap()
    }
}

/// Faults of the open connections.
#[derive(Clone, Default)]
struct Mood {
    /// No data passes in either direction, and neither end is notified.
    frozen: CancellationToken,
    /// One byte per second passes towards the end that connected.
    trickle: CancellationToken,
}

/// A byte-level proxy.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    target: Arc<Mutex<SocketAddr>>,
    mood: Arc<Mutex<Mood>>,
    task: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    pub(crate) async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (target, mood) = (Arc::new(Mutex::new(target)), Arc::<Mutex<Mood>>::default());
        let (to, feels) = (target.clone(), mood.clone());
        let task = tokio::spawn(async move {
            let mut pumps = tokio::task::JoinSet::new();
            loop {
                let (near, _) = listener.accept().await.unwrap();
                let (address, mood) = (*to.lock().unwrap(), feels.lock().unwrap().clone());
                // The controller is down: close the near end.
                let Ok(far) = TcpStream::connect(address).await else { continue };
                let (near_in, near_out) = near.into_split();
                let (far_in, far_out) = far.into_split();
                let never = CancellationToken::new();
                pumps.spawn(pump(near_in, far_out, mood.frozen.clone(), never));
                pumps.spawn(pump(far_in, near_out, mood.frozen, mood.trickle));
            }
        });
        Self { address, target, mood, task }
    }

    /// Routes new connections to this address.
    pub(crate) fn turn(&self, target: SocketAddr) {
        *self.target.lock().unwrap() = target;
    }

    /// Open connections pass nothing: no byte, no FIN, no RST. New ones work.
    pub(crate) fn freeze(&self) {
        std::mem::take(&mut *self.mood.lock().unwrap()).frozen.cancel();
    }

    /// From now on open connections pass one byte per second to the end that connected. New ones work.
    pub(crate) fn trickle(&self) {
        std::mem::take(&mut *self.mood.lock().unwrap()).trickle.cancel();
    }
}

async fn pump(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    frozen: CancellationToken,
    trickle: CancellationToken,
) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let size = if trickle.is_cancelled() {
            // The speed of this line, not a wait for a condition.
            tokio::time::sleep(Duration::from_secs(1)).await;
            1
        } else {
            buffer.len()
        };
        let read = tokio::select! {
            biased;
            // The ends stay open and are never read again.
            () = frozen.cancelled() => std::future::pending().await,
            read = from.read(&mut buffer[..size]) => read,
        };
        match read {
            Ok(read) if read > 0 && to.write_all(&buffer[..read]).await.is_ok() => (),
            _ => {
                // Pass on the end of the stream; if the other side is gone it does not matter.
                let _ = to.shutdown().await;
                return;
            }
        }
    }
}

/// A clock that is behind.
pub(crate) fn behind(clock: &Clock, by: Duration) -> Clock {
    let clock = clock.clone();
    Clock::from_fn(move || clock.now() - by)
}
