//! The scripted controller: a real gRPC server with real certificates; the test plays its sessions.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use atoll_agent::Connector;
use atoll_api::{Clock, marks};
use atoll_protocol::ca::{CertificateAuthority, PublicKeyHash};
use atoll_protocol::digest::{Digest, Entry};
use atoll_protocol::identity::{ClusterUid, TrustDomain};
use atoll_protocol::token::BootstrapToken;
use atoll_protocol::v1::agent_message::Message as Said;
use atoll_protocol::v1::agent_service_server::{AgentService, AgentServiceServer};
use atoll_protocol::v1::controller_message::Message;
use atoll_protocol::v1::{self, AgentMessage, ControllerMessage};
use atoll_protocol::{tls, transport};
use serde_json::Value;
use tokio::sync::{Mutex, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

/// Virtual time after which an expected message counts as missing.
const PATIENCE: Duration = Duration::from_secs(300);

/// uid of the Cluster object.
pub(crate) const CLUSTER: &str = "c1";

/// A controller with its own authority.
#[derive(Clone)]
pub(crate) struct Hub {
    shared: Arc<Shared>,
    dial: mpsc::Sender<tokio::io::DuplexStream>,
    pub(crate) ca_hash: PublicKeyHash,
}

struct Shared {
    ca: CertificateAuthority,
    clock: Clock,
    sessions: mpsc::Sender<Arrived>,
    arrived: Mutex<mpsc::Receiver<Arrived>>,
    /// Every Enroll: the token as sent and the request.
    enrolled: std::sync::Mutex<Vec<v1::EnrollRequest>>,
    renewed: std::sync::Mutex<usize>,
    /// Error to return instead of a session.
    refusal: std::sync::Mutex<Option<Status>>,
    dialled: std::sync::Mutex<usize>,
}

struct Arrived {
    inbound: Streaming<AgentMessage>,
    outbound: mpsc::Sender<Result<ControllerMessage, Status>>,
}

struct Service(Arc<Shared>);

#[tonic::async_trait]
impl AgentService for Service {
    async fn enroll(
        &self,
        request: Request<v1::EnrollRequest>,
    ) -> Result<Response<v1::CertificateResponse>, Status> {
        let request = request.into_inner();
        self.0.enrolled.lock().unwrap().push(request.clone());
        if request.token.parse::<BootstrapToken>().is_err() {
            return Err(Status::unauthenticated("no such token"));
        }
        if let Some(refusal) = self.0.refusal.lock().unwrap().take() {
            return Err(refusal);
        }
        Ok(Response::new(self.0.sign(&request.csr_der)))
    }

    async fn renew(
        &self,
        request: Request<v1::RenewRequest>,
    ) -> Result<Response<v1::CertificateResponse>, Status> {
        *self.0.renewed.lock().unwrap() += 1;
        Ok(Response::new(self.0.sign(&request.into_inner().csr_der)))
    }

    type SessionStream = ReceiverStream<Result<ControllerMessage, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        if let Some(refusal) = self.0.refusal.lock().unwrap().clone() {
            return Err(refusal);
        }
        let (outbound, stream) = mpsc::channel(16);
        let arrived = Arrived { inbound: request.into_inner(), outbound };
        self.0.sessions.send(arrived).await.map_err(|_| Status::internal("the test is over"))?;
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

impl Shared {
    fn sign(&self, csr: &[u8]) -> v1::CertificateResponse {
        let uid = ClusterUid::new(CLUSTER).unwrap();
        let issued = self.ca.sign_member(csr, &uid, self.clock.now()).unwrap();
        v1::CertificateResponse {
            chain_der: issued.chain.iter().map(|der| der.to_vec()).collect(),
            cluster_uid: CLUSTER.into(),
            cluster_name: "member1".into(),
            trust_domain: "atoll.local".into(),
            authority_change: None,
        }
    }
}

impl Hub {
    pub(crate) fn start(clock: &Clock) -> Self {
        let domain = TrustDomain::new("atoll.local").unwrap();
        let ca = CertificateAuthority::create(&domain, clock.now()).unwrap();
        let ca_hash = ca.hash();
        let (chain, key) = ca.issue_controller(clock.now()).unwrap();
        let certificate = tls::ServerCertificate::new(chain.chain, key).unwrap();
        let config = tls::server_config(&[ca.certificate()], certificate, clock.clone()).unwrap();
        let (sessions, arrived) = mpsc::channel(16);
        let shared = Arc::new(Shared {
            ca,
            clock: clock.clone(),
            sessions,
            arrived: Mutex::new(arrived),
            enrolled: Default::default(),
            renewed: Default::default(),
            refusal: Default::default(),
            dialled: Default::default(),
        });
        let (dial, mut dialled) = mpsc::channel::<tokio::io::DuplexStream>(16);
        let (incoming, accepted) = mpsc::channel(16);
        tokio::spawn(async move {
            while let Some(stream) = dialled.recv().await {
                let (acceptor, incoming) = (TlsAcceptor::from(config.clone()), incoming.clone());
                tokio::spawn(async move {
                    // Some tests make the agent abort the handshake.
                    if let Ok(stream) = acceptor.accept(stream).await {
                        let _ = incoming.send(Ok::<_, io::Error>(stream)).await;
                    }
                });
            }
        });
        let service = AgentServiceServer::new(Service(shared.clone()))
            .max_decoding_message_size(transport::MAX_MESSAGE);
        tokio::spawn(async move {
            let served = transport::server()
                .add_service(service)
                .serve_with_incoming(ReceiverStream::new(accepted));
            served.await.unwrap();
        });
        Self { shared, dial, ca_hash }
    }

    pub(crate) fn connector(&self) -> Connector {
        let hub = self.clone();
        Connector::from_fn(move |address| {
            let hub = hub.clone();
            async move {
                *hub.shared.dialled.lock().unwrap() += 1;
                if address.starts_with("dead") {
                    return Err(io::ErrorKind::ConnectionRefused.into());
                }
                let (ours, theirs) = tokio::io::duplex(256 * 1024);
                hub.dial.send(theirs).await.map_err(|_| io::ErrorKind::ConnectionRefused)?;
                Ok(ours)
            }
        })
    }

    pub(crate) fn refuse(&self, with: Option<Status>) {
        *self.shared.refusal.lock().unwrap() = with;
    }

    pub(crate) fn enrolled(&self) -> Vec<v1::EnrollRequest> {
        self.shared.enrolled.lock().unwrap().clone()
    }

    pub(crate) fn renewed(&self) -> usize {
        *self.shared.renewed.lock().unwrap()
    }

    pub(crate) fn dialled(&self) -> usize {
        *self.shared.dialled.lock().unwrap()
    }

    /// The next session, after its Hello and before any reply.
    pub(crate) async fn arrival(&self, term: u64) -> Session {
        let arrived = tokio::time::timeout(PATIENCE, async {
            self.shared.arrived.lock().await.recv().await.unwrap()
        });
        let arrived = arrived.await.expect("no session");
        let mut session = Session {
            inbound: arrived.inbound,
            outbound: Some(arrived.outbound),
            term,
            hello: v1::Hello::default(),
            picture: BTreeMap::new(),
            heard: Vec::new(),
        };
        match session.next().await {
            Said::Hello(hello) => session.hello = hello,
            other => panic!("not a Hello: {other:?}"),
        }
        session
    }

    /// The next session, welcomed.
    pub(crate) async fn session(&self, term: u64) -> Session {
        let mut session = self.arrival(term).await;
        session.welcome().await;
        session
    }

    /// The next session, welcomed, with the inventory read and agreed.
    pub(crate) async fn agreed(&self, term: u64) -> Session {
        let mut session = self.session(term).await;
        session.take_inventory().await;
        session.synced().await;
        session
    }
}

type Marks = (String, Vec<String>, bool, String);

/// One session, played by the test.
pub(crate) struct Session {
    inbound: Streaming<AgentMessage>,
    outbound: Option<mpsc::Sender<Result<ControllerMessage, Status>>>,
    pub(crate) term: u64,
    pub(crate) hello: v1::Hello,
    /// The inventory as the controller sees it: hash, claims, preserve, uid.
    pub(crate) picture: BTreeMap<v1::ObjectKey, Marks>,
    /// Received messages that the test has not waited for.
    pub(crate) heard: Vec<Said>,
}

impl Session {
    pub(crate) async fn say(&self, message: Message) {
        let message = ControllerMessage { term: self.term, message: Some(message) };
        self.outbound.as_ref().unwrap().send(Ok(message)).await.expect("the agent hung up");
    }

    /// Sends a message as it is.
    pub(crate) async fn pass(&self, message: ControllerMessage) {
        self.outbound.as_ref().unwrap().send(Ok(message)).await.expect("the agent hung up");
    }

    /// The first message that fits: of those heard before, or the next one.
    pub(crate) async fn hear(&mut self, fits: impl Fn(&Said) -> bool) -> Said {
        match self.heard.iter().position(&fits) {
            Some(at) => self.heard.remove(at),
            None => self.wait(|said| fits(said).then(|| said.clone())).await,
        }
    }

    pub(crate) async fn welcome(&mut self) {
        self.say(Message::Welcome(v1::Welcome {
            session: "s".into(),
            heartbeat_ms: 5_000,
            facts_ms: 1_000,
            cluster_name: "member1".into(),
        }))
        .await;
    }

    /// Ends the session from this side.
    pub(crate) fn end(&mut self) {
        self.outbound = None;
    }

    async fn next(&mut self) -> Said {
        self.try_next().await.expect("the agent ended the session")
    }

    async fn try_next(&mut self) -> Option<Said> {
        let message = tokio::time::timeout(PATIENCE, self.inbound.message()).await;
        message.expect("the agent says nothing").ok()??.message
    }

    /// Waits until the agent has ended the session.
    pub(crate) async fn ended(&mut self) {
        while let Some(message) = self.try_next().await {
            self.heard.push(message);
        }
    }

    /// Takes in what the agent sends, until it is silent for a moment.
    pub(crate) async fn drain(&mut self) {
        const SILENT: Duration = Duration::from_millis(500);
        while let Ok(message) = tokio::time::timeout(SILENT, self.next()).await {
            self.heard.push(message);
        }
    }

    /// The first message received from now on for which `pick` returns a value.
    pub(crate) async fn wait<T>(&mut self, mut pick: impl FnMut(&Said) -> Option<T>) -> T {
        let within = tokio::time::timeout(PATIENCE, async {
            loop {
                let message = self.next().await;
                if let Some(found) = pick(&message) {
                    return found;
                }
                self.heard.push(message);
            }
        });
        within.await.expect("never said")
    }

    pub(crate) async fn take_inventory(&mut self) {
        self.say(Message::InventoryRequest(v1::InventoryRequest {})).await;
        self.next_inventory().await;
    }

    pub(crate) async fn next_inventory(&mut self) {
        self.picture.clear();
        loop {
            let page = self
                .wait(|said| match said {
                    Said::Inventory(page) => Some(page.clone()),
                    _ => None,
                })
                .await;
            for entry in page.entries {
                let marks = (entry.hash, entry.claims, entry.preserve, entry.object_uid);
                self.picture.insert(entry.key.unwrap(), marks);
            }
            if page.last {
                return;
            }
        }
    }

    pub(crate) fn digest(&self) -> Digest {
        digest(&self.picture)
    }

    pub(crate) async fn synced(&mut self) {
        let digest = self.digest().to_vec();
        self.say(Message::Synced(v1::Synced { digest })).await;
    }

    pub(crate) async fn upsert(&mut self, manifest: &Value, overwrite: bool) -> v1::ObjectKey {
        let upsert = upsert(manifest, overwrite);
        let key = upsert.key.clone().unwrap();
        let annotations = &manifest["metadata"]["annotations"];
        let claims = annotations[marks::CLAIMS].as_str().unwrap_or_default();
        let claims: Vec<_> = claims.split(',').map(str::to_owned).collect();
        let marks = (upsert.hash.clone(), claims, false, String::new());
        self.picture.insert(key.clone(), marks);
        self.say(Message::Upsert(upsert)).await;
        key
    }

    pub(crate) async fn remove(&mut self, key: &v1::ObjectKey, uid: &str) {
        self.picture.remove(key);
        let (key, object_uid) = (Some(key.clone()), uid.to_owned());
        self.say(Message::Remove(v1::Remove { key, object_uid })).await;
    }

    pub(crate) async fn release(&mut self, key: &v1::ObjectKey, uid: &str) {
        self.picture.remove(key);
        let (key, object_uid) = (Some(key.clone()), uid.to_owned());
        self.say(Message::Release(v1::Release { key, object_uid })).await;
    }

    /// The next result for an object.
    pub(crate) async fn applied(&mut self, of: &v1::ObjectKey) -> v1::Applied {
        self.wait(|said| match said {
            Said::Applied(applied) if applied.key.as_ref() == Some(of) => Some(applied.clone()),
            _ => None,
        })
        .await
    }

    /// Upserts and waits for success.
    pub(crate) async fn apply(&mut self, manifest: &Value) -> v1::ObjectKey {
        let key = self.upsert(manifest, false).await;
        let applied = self.applied(&key).await;
        assert_eq!(applied.result(), v1::ApplyResult::Applied, "{applied:?}");
        key
    }

    /// The next status of an object that `good` accepts.
    pub(crate) async fn status(
        &mut self,
        of: &v1::ObjectKey,
        good: impl Fn(&v1::Status) -> bool,
    ) -> v1::Status {
        self.wait(|said| match said {
            Said::Status(status) if status.key.as_ref() == Some(of) && good(status) => {
                Some(status.clone())
            }
            _ => None,
        })
        .await
    }

    pub(crate) async fn facts(&mut self, good: impl Fn(&v1::Facts) -> bool) -> v1::Facts {
        self.wait(|said| match said {
            Said::Facts(facts) if good(facts) => Some(facts.clone()),
            _ => None,
        })
        .await
    }
}

pub(crate) fn digest(picture: &BTreeMap<v1::ObjectKey, Marks>) -> Digest {
    Digest::of(picture.iter().map(|(key, (hash, claims, preserve, _))| Entry {
        group: &key.group,
        kind: &key.kind,
        namespace: &key.namespace,
        name: &key.name,
        hash,
        claims: claims.iter().map(String::as_str).collect(),
        preserve: *preserve,
    }))
}

pub(crate) fn key_of(object: &Value) -> v1::ObjectKey {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let api_version = text(&object["apiVersion"]);
    v1::ObjectKey {
        group: api_version.rsplit_once('/').map_or("", |(group, _)| group).to_owned(),
        kind: text(&object["kind"]),
        namespace: text(&object["metadata"]["namespace"]),
        name: text(&object["metadata"]["name"]),
    }
}

pub(crate) fn upsert(manifest: &Value, overwrite: bool) -> v1::Upsert {
    let resolution =
        if overwrite { v1::ConflictResolution::Overwrite } else { v1::ConflictResolution::Abort };
    let hash = manifest["metadata"]["annotations"][marks::HASH].as_str().unwrap();
    v1::Upsert {
        key: Some(key_of(manifest)),
        hash: hash.to_owned(),
        manifest_json: manifest.to_string().into(),
        api_version: manifest["apiVersion"].as_str().unwrap().to_owned(),
        conflict_resolution: resolution.into(),
        if_absent: false,
        traceparent: String::new(),
    }
}
