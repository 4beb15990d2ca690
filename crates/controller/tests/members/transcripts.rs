//! Agents of every released version, played from their transcripts, to this controller. `ATOLL_RECORD_TRANSCRIPT=1` writes the
//! transcript of this version, from its two real ends.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll_agent::{AgentOptions, Connector, IdentityStore, Timings};
use atoll_apiserver::{Options, Server};
use atoll_controller::members::{ApplyResult, Arrival, MemberEvent, Proof};
use atoll_protocol::identity::ClusterUid;
use atoll_protocol::transport;
use atoll_protocol::v1::agent_message::Message as Said;
use atoll_protocol::v1::agent_service_server::{AgentService, AgentServiceServer};
use atoll_protocol::v1::controller_message::Message as Told;
use atoll_protocol::v1::{self, AgentMessage, ControllerMessage};
use atoll_stub_agent::transcript::{self, Line, RESULT, STEPS, Step};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::real::set;
use crate::rig::{Hub, LIMIT, Rig, eventually};

type Log = Arc<Mutex<Vec<Line>>>;
type Out = Pin<Box<dyn Stream<Item = Result<ControllerMessage, Status>> + Send>>;

/// Virtual time for what follows a step: statuses, facts.
const AFTERMATH: Duration = Duration::from_secs(3);

fn carry_out(rig: &Rig, step: Step) {
    match step {
        Step::Want(name, value) => set(rig, name, value),
        Step::Unwant(name) => rig.withdraw("member1", &format!("uid-{name}"), Proof::NotTargeted),
        Step::WatchLabels => rig.members.watch_labels(&BTreeSet::from(["zone".to_owned()])),
        // Happens on the member.
        Step::DeleteOnMember(_) => (),
    }
}

/// A connection of the member to the controller, which needs no certificate.
async fn connection(controller: &mpsc::Sender<Arrival>, uid: &ClusterUid) -> DuplexStream {
    let (near, far) = tokio::io::duplex(1 << 20);
    let arrival = Arrival { io: Box::new(far), identity: Some(uid.clone()) };
    controller.send(arrival).await.expect("the controller listens");
    near
}

/// Plays the agent of a transcript. Its hashes and uids are those of its time.
async fn play(name: &str, lines: &[Line]) {
    let hub = Hub::start().await;
    let mut rig = Rig::start(&hub).await;
    let cluster = hub.register("member1").await;
    let uid = ClusterUid::new(cluster.metadata.uid.unwrap()).unwrap();
    let near = connection(&rig.arrivals, &uid).await;
    let mut client = transport::client(transport::plain_channel(near).await.unwrap());
    let (out, outgoing) = mpsc::channel(256);
    // The answer to the call comes with the first message, which follows Hello.
    let mut session = None;
    let mut outgoing = Some(ReceiverStream::new(outgoing));
    let mut unread: Vec<Told> = Vec::new();
    let mut hashes: BTreeMap<String, String> = BTreeMap::new();
    for line in lines {
        match line {
            Line::Step(step) => carry_out(&rig, *step),
            Line::Agent(message) => {
                let mut message = message.clone();
                translate(message.message.as_mut().unwrap(), &uid, &hashes);
                out.send(message).await.unwrap();
                if let Some(outgoing) = outgoing.take() {
                    session = Some(client.session(outgoing).await.unwrap().into_inner());
                }
            }
            Line::Controller(message) => {
                let recorded = message.message.as_ref().unwrap();
                let session = session.as_mut().expect("the agent speaks first");
                let wanted = transcript::told(recorded);
                let answer = loop {
                    let found = unread.iter().position(|told| transcript::told(told) == wanted);
                    if let Some(at) = found {
                        break unread.remove(at);
                    }
                    let next = tokio::time::timeout(LIMIT, session.message()).await;
                    let next = next.unwrap_or_else(|_| panic!("{name}: no {wanted}: {unread:?}"));
                    unread.extend(next.unwrap().expect("the session lasts").message);
                };
                if let (Told::Upsert(recorded), Told::Upsert(now)) = (recorded, answer) {
                    hashes.insert(recorded.hash.clone(), now.hash);
                }
            }
        }
    }
    for object in ["a", "b", "c"] {
        let applied = |event: &MemberEvent| match event {
            MemberEvent::Applied { key, result, current, .. } => {
                key.name() == object && *result == ApplyResult::Applied && *current
            }
            _ => false,
        };
        if !rig.seen.iter().any(applied) {
            rig.event(applied).await;
        }
    }
    let withdrawn = |event: &MemberEvent| match event {
        MemberEvent::Withdrawn { claim, .. } => claim == "uid-b",
        _ => false,
    };
    if !rig.seen.iter().any(withdrawn) {
        rig.event(withdrawn).await;
    }
    eventually(async || hub.ready("member1").await == "True/MemberReady").await;
    let status = hub.status("member1").await;
    assert!(
        !status.api_enablements.is_empty() && status.cluster_id.is_some(),
        "{name}: {status:?}"
    );
    assert_eq!(status.orphans, Some(0), "{name}");
}

/// The recorded member is this one, and what it was sent has the hashes of this version.
fn translate(message: &mut Said, uid: &ClusterUid, hashes: &BTreeMap<String, String>) {
    let now = |hash: &mut String| {
        if let Some(known) = hashes.get(hash) {
            hash.clone_from(known);
        }
    };
    match message {
        Said::Hello(hello) => hello.cluster_uid = uid.to_string(),
        Said::Applied(applied) => now(&mut applied.hash),
        Said::Status(status) => now(&mut status.hash),
        Said::Inventory(page) => page.entries.iter_mut().for_each(|entry| now(&mut entry.hash)),
        Said::Facts(_) | Said::Heartbeat(_) | Said::RuleFailure(_) => (),
    }
}

#[tokio::test(start_paused = true)]
async fn agents_of_every_released_version_are_served() {
    for (name, lines) in transcript::all() {
        play(&name, &lines).await;
    }
}

/// Stands between agent and controller, and writes down what passes.
struct Between {
    log: Log,
    controller: mpsc::Sender<Arrival>,
    uid: ClusterUid,
}

#[tonic::async_trait]
impl AgentService for Between {
    type SessionStream = Out;

    async fn enroll(
        &self,
        _: Request<v1::EnrollRequest>,
    ) -> Result<Response<v1::CertificateResponse>, Status> {
        Err(Status::unimplemented("the recorded agent needs no certificate"))
    }

    async fn renew(
        &self,
        _: Request<v1::RenewRequest>,
    ) -> Result<Response<v1::CertificateResponse>, Status> {
        Err(Status::unimplemented("the recorded agent needs no certificate"))
    }

    async fn session(
        &self,
        request: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Out>, Status> {
        let channel = transport::plain_channel(connection(&self.controller, &self.uid).await).await;
        let channel = channel.map_err(|error| Status::internal(error.to_string()))?;
        let log = self.log.clone();
        let said = request.into_inner().map_while(Result::ok).map(move |message| {
            log.lock().unwrap().push(Line::Agent(message.clone()));
            message
        });
        let log = self.log.clone();
        let told = transport::client(channel).session(said).await?.into_inner();
        let told = told.map(move |message| {
            message.inspect(|message| log.lock().unwrap().push(Line::Controller(message.clone())))
        });
        Ok(Response::new(Box::pin(told)))
    }
}

/// An agent of this version, whose connections pass [`Between`]; the client of its member.
fn recorded_agent(rig: &Rig, between: Between, token: &CancellationToken) -> kube::Client {
    let uid = between.uid.clone();
    let (dial, dialled) = mpsc::channel::<std::io::Result<DuplexStream>>(8);
    let service = AgentServiceServer::new(between);
    let served =
        transport::server().add_service(service).serve_with_incoming(ReceiverStream::new(dialled));
    tokio::spawn(async move { served.await.unwrap() });
    let connector = Connector::from_fn(move |_| {
        let dial = dial.clone();
        async move {
            let (near, far) = tokio::io::duplex(1 << 20);
            dial.send(Ok(far)).await.map_err(|_| std::io::Error::other("no controller"))?;
            Ok(near)
        }
    });
    let clock = rig.hub.clock.clone();
    let now = clock.clone();
    let options = Options { clock: Arc::new(move || now.now()), seed: 9, ..Options::memory() };
    let client = Server::open(options).unwrap().client();
    let options = AgentOptions {
        client: client.clone(),
        addresses: vec!["controller:1".into()],
        connector,
        identity: IdentityStore::InProcess(uid),
        join: None,
        namespace: "atoll-system".into(),
        reserved: atoll_api::ReservedNamespaces::default(),
        proxy: None,
        instance: "agent-0".into(),
        runs_on: atoll_api::RunsOn::Thread,
        clock,
        seed: 9,
        timings: Timings::default(),
    };
    tokio::spawn(atoll_agent::run(options, token.clone()));
    client
}

#[tokio::test(start_paused = true)]
async fn the_scenario_of_the_transcripts_has_the_result_that_they_promise() {
    let hub = Hub::start().await;
    let mut rig = Rig::start(&hub).await;
    let cluster = hub.register("member1").await;
    let uid = ClusterUid::new(cluster.metadata.uid.unwrap()).unwrap();
    let (log, token) = (Log::default(), CancellationToken::new());
    let between = Between { log: log.clone(), controller: rig.arrivals.clone(), uid };
    let member = recorded_agent(&rig, between, &token);
    let configs: Api<ConfigMap> = Api::namespaced(member, "shop");
    let value = async |name: &str| configs.get_opt(name).await.unwrap()?.data?.remove("v");
    eventually(async || hub.ready("member1").await == "True/MemberReady").await;
    for step in STEPS {
        log.lock().unwrap().push(Line::Step(step));
        carry_out(&rig, step);
        match step {
            Step::Want(name, wanted) => {
                eventually(async || value(name).await.as_deref() == Some(wanted)).await;
            }
            Step::Unwant(name) => {
                let claim = format!("uid-{name}");
                rig.event(|event| {
                    matches!(event, MemberEvent::Withdrawn { claim: of, .. } if *of == *claim)
                })
                .await;
            }
            Step::WatchLabels => {}
            Step::DeleteOnMember(name) => {
                configs.delete(name, &Default::default()).await.unwrap();
                eventually(async || value(name).await.is_some()).await;
            }
        }
        tokio::time::sleep(AFTERMATH).await;
    }
    for (name, wanted) in RESULT {
        assert_eq!(value(name).await.as_deref(), Some(wanted));
    }
    let lines = log.lock().unwrap().clone();
    token.cancel();
    let kinds: BTreeSet<_> = lines
        .iter()
        .filter_map(|line| match line {
            Line::Controller(message) => message.message.as_ref().map(transcript::told),
            _ => None,
        })
        .collect();
    assert!(kinds.contains("labels") && kinds.contains("remove ConfigMap b"), "{kinds:?}");
    if std::env::var_os("ATOLL_RECORD_TRANSCRIPT").is_some() {
        let file = transcript::folder().join(concat!("v", env!("CARGO_PKG_VERSION"), ".jsonl"));
        std::fs::write(file, transcript::text(&lines)).unwrap();
    }
}
