//! Logs of one member through its tunnel, and whether they delay what the member's session sends.
//!
//! One process has the hub, the members part of the controller, a member's API server and a real agent. Agent and
//! controller are connected over TCP and TLS, as everywhere; the agent reaches its API server within the process. Rounds
//! without and with streams take turns. A round sends orders over the session, one after the other, and waits for the
//! report of each: a heartbeat is one message on the same way, and waits no longer.
//!
//! `cargo xtask bench streams [-- --streams N --seconds N --rounds N]`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark that fails has no result"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use atoll_access::identity::User;
use atoll_access::path::MemberPath;
use atoll_agent::{AgentOptions, Connector, IdentityStore, Join, LeaseTimes, Passed, Timings};
use atoll_api::cluster::ClusterSpec;
use atoll_api::policy::ConflictResolution;
use atoll_api::{Clock, Cluster};
use atoll_apimachinery::ApiError;
use atoll_apimachinery::response::{Body, respond_frames};
use atoll_apiserver::{Kubelets, Options, PodRequest, Server};
use atoll_controller::leader::LeaderTerm;
use atoll_controller::members::{
    HealthTimes, Incoming, Key, MemberAnswer, MemberEvent, MemberRequest, Members, MembersOptions,
    Metrics, Oracle, ProxyError, TOKEN_LIFE, Verdict, create_token,
};
use atoll_protocol::identity::TrustDomain;
use atoll_render::Share;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use http::{HeaderMap, Method, Response};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Bytes of one piece of a log.
const PIECE: usize = 32 << 10;
/// Limit of every wait.
const LIMIT: Duration = Duration::from_secs(60);
/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(20);
const MEMBER: &str = "member1";

/// Kubelets whose logs never end and are as fast as they are read.
struct Endless(Bytes);

impl Kubelets for Endless {
    fn answer(&self, request: PodRequest) -> BoxFuture<'_, Result<Response<Body>, ApiError>> {
        let piece = self.0.clone();
        async move {
            let pieces =
                futures::stream::repeat(piece).take_until(request.closing.cancelled_owned());
            // A stream that is always ready must let others run.
            let pieces = pieces.then(async |piece| {
                tokio::task::yield_now().await;
                piece
            });
            Ok(respond_frames(pieces.boxed()))
        }
        .boxed()
    }
}

/// Nothing is known of objects that were not set here.
struct Unknown;

impl Oracle for Unknown {
    fn verdict(&self, _: &atoll_api::ClusterName, _: &atoll_api::BindingUid, _: &Key) -> Verdict {
        Verdict::Unknown
    }
}

/// What a benchmark measures.
struct Plan {
    streams: usize,
    round: Duration,
    rounds: usize,
}

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let mut plan = Plan { streams: 200, round: Duration::from_secs(10), rounds: 5 };
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { panic!("{pair:?}: a value is missing") };
        match name.as_str() {
            "--streams" => plan.streams = value.parse().unwrap(),
            "--seconds" => plan.round = Duration::from_secs(value.parse().unwrap()),
            "--rounds" => plan.rounds = value.parse().unwrap(),
            other => panic!("there is no {other}"),
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(run(plan));
}

async fn run(plan: Plan) {
    let token = CancellationToken::new();
    let mut federation = Federation::start(&token).await;
    println!(
        "{} streams through one member, {} rounds of {:?}",
        plan.streams, plan.rounds, plan.round
    );
    let (mut quiet, mut loaded, mut speeds) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=plan.rounds {
        let without = federation.orders(plan.round).await;
        let bytes = Arc::new(AtomicU64::new(0));
        let streams = federation.streams(plan.streams, &bytes).await;
        let (before, began) = (bytes.load(Ordering::Relaxed), Instant::now());
        let with = federation.orders(plan.round).await;
        assert!(streams.iter().all(|stream| !stream.is_finished()), "a log ended");
        let moved = bytes.load(Ordering::Relaxed) - before;
        let speed = moved as f64 / began.elapsed().as_secs_f64() / 1e6;
        drop(streams);
        println!(
            "round {round}: {speed:.0} MB/s; an order and its report take {} without and {} with streams",
            shown(&without),
            shown(&with)
        );
        quiet.extend(without);
        loaded.extend(with);
        speeds.push(speed);
    }
    speeds.sort_by(f64::total_cmp);
    println!("median {:.0} MB/s (aim: 100 on two cores)", speeds[speeds.len() / 2]);
    let (without, with) = (at(&mut quiet, 0.99), at(&mut loaded, 0.99));
    println!(
        "p99 of an order and its report: {:.1} ms without, {:.1} ms with streams: {:.1} ms more (aim: 100), ratio {:.2}",
        millis(without),
        millis(with),
        millis(with) - millis(without),
        millis(with) / millis(without)
    );
    token.cancel();
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn at(times: &mut [Duration], part: f64) -> Duration {
    times.sort_unstable();
    times[((times.len() - 1) as f64 * part) as usize]
}

fn shown(times: &[Duration]) -> String {
    let mut times = times.to_vec();
    let (half, most) = (at(&mut times, 0.5), at(&mut times, 1.0));
    format!("{:.1} ms (p50), {:.1} ms (longest)", millis(half), millis(most))
}

struct Federation {
    members: Members,
    events: mpsc::Receiver<MemberEvent>,
    orders: u64,
    _term: watch::Sender<Option<LeaderTerm>>,
    _agent: AbortOnDropHandle<()>,
    _member: Server,
}

impl Federation {
    async fn start(token: &CancellationToken) -> Self {
        let hub = Server::open(Options::memory()).unwrap().client();
        let crds: Api<CustomResourceDefinition> = Api::all(hub.clone());
        for crd in atoll_api::crds::all() {
            crds.create(&PostParams::default(), &crd).await.unwrap();
        }
        let clusters: Api<Cluster> = Api::all(hub.clone());
        // A CRD is served shortly after its creation.
        until(async || clusters.list(&Default::default()).await.is_ok()).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, events) = mpsc::channel(4_096);
        let leads = LeaderTerm::new(1);
        let (term, receiver) = watch::channel(Some(leads));
        let clock = Clock::system();
        let options = MembersOptions {
            client: hub.clone(),
            clock: clock.clone(),
            incoming: Incoming::Tcp(listener),
            health: HealthTimes::default(),
            term: receiver,
            other_leader: watch::channel(None).1,
            trust_domain: TrustDomain::new("atoll.bench").unwrap(),
            metrics: Metrics::default(),
        };
        let members = Members::start(options, sender, token.clone()).unwrap();
        let cluster = Cluster::new(MEMBER, ClusterSpec::default());
        let cluster = clusters.create(&PostParams::default(), &cluster).await.unwrap();
        members.cluster_changed(&cluster);
        members.caches_complete(leads, Arc::new(Unknown));

        let server = Server::open(Options { seed: 7, ..Options::memory() }).unwrap();
        server.set_kubelets(Arc::new(Endless(Bytes::from(vec![b'x'; PIECE]))));
        let client = server.client();
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let pod = json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "main", "image": "web"}]}});
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        let ca_hash = members.authority().await.hash();
        let join = create_token(&hub, &clock, &cluster, TOKEN_LIFE).await.unwrap();
        let seconds = Duration::from_secs;
        let lease = LeaseTimes {
            duration: seconds(15),
            renew: seconds(2),
            deadline: seconds(10),
            retry: seconds(2),
        };
        let options = AgentOptions {
            client,
            addresses: vec![address.to_string()],
            connector: Connector::tcp(),
            identity: IdentityStore::Secret("atoll-agent-identity".into()),
            join: Some(Join { token: join, ca_hash }),
            namespace: "atoll-system".into(),
            reserved: atoll_api::ReservedNamespaces::default(),
            proxy: Some(Passed::default()),
            instance: "agent-0".into(),
            runs_on: atoll_api::RunsOn::Thread,
            clock,
            seed: 7,
            timings: Timings { lease, ..Timings::default() },
        };
        let ends = token.clone();
        let agent = tokio::spawn(async move { atoll_agent::run(options, ends).await.unwrap() });
        let federation = Self {
            members,
            events,
            orders: 0,
            _term: term,
            _agent: AbortOnDropHandle::new(agent),
            _member: server,
        };
        let members = &federation.members;
        until(async || members.proxy(MEMBER, log()).await.is_ok_and(|answer| answer.status == 200))
            .await;
        federation
    }

    /// Opens streams and reads them until they are dropped.
    async fn streams(&self, count: usize, bytes: &Arc<AtomicU64>) -> Vec<AbortOnDropHandle<()>> {
        let mut readers = Vec::with_capacity(count);
        for _ in 0..count {
            let answer = tokio::time::timeout(LIMIT, self.stream()).await.expect("a log opens");
            let (mut body, bytes) = (answer.body, bytes.clone());
            readers.push(AbortOnDropHandle::new(tokio::spawn(async move {
                while let Some(piece) = body.next().await {
                    bytes.fetch_add(piece.unwrap().len() as u64, Ordering::Relaxed);
                }
            })));
        }
        readers
    }

    async fn stream(&self) -> MemberAnswer {
        loop {
            match self.members.proxy(MEMBER, log()).await {
                Ok(answer) => {
                    assert_eq!(answer.status, 200, "an answer of another status is no log");
                    return answer;
                }
                // The streams of the round before may still be ending, or were opened too fast.
                Err(ProxyError::Busy(_)) => tokio::time::sleep(PAUSE).await,
                Err(error) => panic!("a log does not open: {error}"),
            }
        }
    }

    /// Sends orders for this long, one after the other; the time from each to its report.
    async fn orders(&mut self, long: Duration) -> Vec<Duration> {
        let (began, mut times) = (Instant::now(), Vec::new());
        while began.elapsed() < long {
            self.orders += 1;
            let sent = Instant::now();
            let value = self.orders.to_string();
            let template = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "order", "namespace": "default"}, "data": {"v": value},
            });
            let claim = "uid-order".to_owned();
            let share = Share { cluster: MEMBER.into(), claim: claim.clone(), ..Share::default() };
            let objects = vec![Arc::new(atoll_render::render(&template, &share).unwrap())];
            self.members.set_desired(
                &MEMBER.into(),
                &claim.into(),
                objects,
                ConflictResolution::Abort,
            );
            let reported = async {
                loop {
                    let event = self.events.recv().await.unwrap();
                    if matches!(&event, MemberEvent::Applied { key, .. } if key.name() == "order") {
                        return;
                    }
                }
            };
            tokio::time::timeout(LIMIT, reported).await.unwrap();
            times.push(sent.elapsed());
        }
        times
    }
}

fn log() -> MemberRequest {
    let groups = vec!["system:authenticated".to_owned()];
    MemberRequest {
        user: User { name: "jane".to_owned(), groups, ..User::default() },
        method: Method::GET,
        path: MemberPath::parse("/api/v1/namespaces/default/pods/web/log?follow=true").unwrap(),
        headers: HeaderMap::new(),
        upgrade: None,
        body: futures::stream::empty().boxed(),
        base: "/base".to_owned(),
    }
}

async fn until(is: impl AsyncFn() -> bool) {
    let waiting = async {
        while !is().await {
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(LIMIT, waiting).await.unwrap();
}
