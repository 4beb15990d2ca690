//! A scripted agent that otherwise carries out its orders.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use atoll_api::marks;
use atoll_controller::members::{TOKEN_LIFE, create_token};
use atoll_protocol::digest::{Digest, Entry};
use atoll_protocol::member::{KeyRequest, MemberIdentity};
use atoll_protocol::v1::agent_message::Message as ToController;
use atoll_protocol::v1::agent_service_client::AgentServiceClient;
use atoll_protocol::v1::controller_message::Message as ToAgent;
use atoll_protocol::{tls, transport, v1};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use crate::rig::{LIMIT, Rig};

/// Bytes in flight, like a real socket's buffer.
pub(crate) const ROOM: usize = 256 * 1024;

/// Enrols `name` with a fresh token.
pub(crate) async fn enrol(rig: &Rig, name: &str) -> MemberIdentity {
    let cluster = rig.hub.clusters().get(name).await.unwrap();
    let token = create_token(&rig.hub.client, &rig.hub.clock, &cluster, TOKEN_LIFE).await.unwrap();
    let request = KeyRequest::generate().unwrap();
    let response = enrol_with(rig, &token.reveal(), request.csr_der(), name).await.unwrap();
    let hash = rig.members.authority().await.hash();
    MemberIdentity::from_response(&request, &response, &hash).unwrap()
}

/// Calls Enroll; the member's uid is derived from `member`.
pub(crate) async fn enrol_with(
    rig: &Rig,
    token: &str,
    csr_der: &[u8],
    member: &str,
) -> Result<v1::CertificateResponse, Status> {
    let hash = rig.members.authority().await.hash();
    let tls = tls::enrolment_config(hash, rig.hub.clock.clone()).unwrap();
    let channel = transport::channel(rig.connect(ROOM).await, tls).await.unwrap();
    let request = v1::EnrollRequest {
        token: token.to_owned(),
        csr_der: csr_der.to_vec(),
        member_uid: format!("kube-system-{member}"),
        kubernetes_version: "v1.33.0".into(),
    };
    Ok(transport::client(channel).enroll(request).await?.into_inner())
}

pub(crate) async fn client(
    rig: &Rig,
    identity: &MemberIdentity,
    room: usize,
) -> AgentServiceClient<Channel> {
    let tls = tls::member_config(identity, rig.hub.clock.clone()).unwrap();
    let io = rig.connect(room).await;
    transport::client(transport::channel(io, tls).await.unwrap())
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Object {
    pub(crate) hash: String,
    pub(crate) claims: Vec<String>,
    pub(crate) uid: String,
}

/// Objects of a member: outlives sessions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Store(pub(crate) BTreeMap<v1::ObjectKey, Object>);

impl Store {
    pub(crate) fn digest(&self) -> Digest {
        Digest::of(self.0.iter().map(|(key, object)| Entry {
            group: &key.group,
            kind: &key.kind,
            namespace: &key.namespace,
            name: &key.name,
            hash: &object.hash,
            claims: object.claims.iter().map(String::as_str).collect(),
            preserve: false,
        }))
    }
}

/// One session.
pub(crate) struct Agent {
    pub(crate) outgoing: mpsc::Sender<v1::AgentMessage>,
    pub(crate) incoming: Streaming<v1::ControllerMessage>,
    _channel: AgentServiceClient<Channel>,
}

pub(crate) fn hello(identity: &MemberIdentity, name: &str, epoch: u64, store: &Store) -> v1::Hello {
    v1::Hello {
        cluster_uid: identity.cluster_uid().to_string(),
        epoch,
        agent_version: "test".into(),
        highest_term: 0,
        inventory_digest: store.digest().to_vec(),
        member_uid: format!("kube-system-{name}"),
    }
}

impl Agent {
    /// Opens a session and sends Hello. The first reply is not read yet.
    pub(crate) async fn open(
        rig: &Rig,
        identity: &MemberIdentity,
        hello: v1::Hello,
        room: usize,
    ) -> Result<Self, Status> {
        let mut client = client(rig, identity, room).await;
        let (outgoing, messages) = mpsc::channel(64);
        outgoing
            .send(v1::AgentMessage { message: Some(ToController::Hello(hello)) })
            .await
            .unwrap();
        let incoming = client.session(ReceiverStream::new(messages)).await?.into_inner();
        Ok(Self { outgoing, incoming, _channel: client })
    }

    /// A session that received its Welcome.
    pub(crate) async fn welcomed(
        rig: &Rig,
        identity: &MemberIdentity,
        name: &str,
        epoch: u64,
        store: &Store,
    ) -> Self {
        let hello = hello(identity, name, epoch, store);
        let mut agent = Self::open(rig, identity, hello, ROOM).await.unwrap();
        match agent.next().await {
            Ok(ToAgent::Welcome(welcome)) => assert_eq!(welcome.cluster_name, name),
            other => panic!("no Welcome: {other:?}"),
        }
        agent
    }

    /// The next message, or how the session ended.
    pub(crate) async fn next(&mut self) -> Result<ToAgent, Status> {
        match timeout(LIMIT, self.incoming.message()).await.expect("a message in time") {
            Ok(Some(message)) => Ok(message.message.unwrap()),
            Ok(None) => Err(Status::new(Code::Ok, "the stream ended")),
            Err(status) => Err(status),
        }
    }

    pub(crate) async fn send(&self, message: ToController) {
        self.outgoing
            .send(v1::AgentMessage { message: Some(message) })
            .await
            .expect("the session is up");
    }

    pub(crate) async fn beat(&self) {
        self.send(ToController::Heartbeat(v1::Heartbeat {
            api_healthy: true,
            ..v1::Heartbeat::default()
        }))
        .await;
    }

    /// Sends facts.
    pub(crate) async fn facts(&self, allocated: i64) {
        self.send(ToController::Facts(facts(allocated))).await;
    }

    /// Carries out orders until `Synced`, whose digest must match. Returns the orders in short form.
    pub(crate) async fn sync(&mut self, store: &mut Store) -> Vec<String> {
        let mut log = Vec::new();
        loop {
            let message = self.next().await.unwrap();
            if self.follow(message, store, &mut log).await {
                return log;
            }
        }
    }

    /// Carries out one order. Returns whether it was `Synced`.
    pub(crate) async fn follow(
        &mut self,
        message: ToAgent,
        store: &mut Store,
        log: &mut Vec<String>,
    ) -> bool {
        match message {
            ToAgent::InventoryRequest(_) => {
                log.push("inventory".to_owned());
                self.inventory(store).await;
            }
            ToAgent::Upsert(upsert) => {
                let key = upsert.key.unwrap();
                if upsert.if_absent {
                    log.push(format!("ensure {}", key.name));
                    return false;
                }
                log.push(format!("upsert {} {}", key.name, upsert.hash));
                let manifest: Value = serde_json::from_slice(&upsert.manifest_json).unwrap();
                let claims = manifest["metadata"]["annotations"][marks::CLAIMS].as_str().unwrap();
                let object = Object {
                    hash: upsert.hash.clone(),
                    claims: claims.split(',').map(str::to_owned).collect(),
                    uid: format!("uid-{}", key.name),
                };
                self.applied(&key, &upsert.hash, &object.uid, v1::ApplyResult::Applied).await;
                store.0.insert(key, object);
            }
            ToAgent::Remove(remove) => {
                let key = remove.key.unwrap();
                log.push(format!("remove {} {}", key.name, remove.object_uid));
                store.0.remove(&key);
                self.applied(&key, "", &remove.object_uid, v1::ApplyResult::Removed).await;
            }
            ToAgent::Release(release) => {
                let key = release.key.unwrap();
                log.push(format!("release {} {}", key.name, release.object_uid));
                store.0.remove(&key);
                self.applied(&key, "", &release.object_uid, v1::ApplyResult::Released).await;
            }
            ToAgent::Synced(synced) => {
                assert!(store.digest().matches(&synced.digest), "the digests differ: {store:?}");
                return true;
            }
            ToAgent::Welcome(_) | ToAgent::WatchLabels(_) => (),
        }
        false
    }

    pub(crate) async fn inventory(&self, store: &Store) {
        let mut entries: Vec<_> = store
            .0
            .iter()
            .map(|(key, object)| v1::InventoryEntry {
                key: Some(key.clone()),
                hash: object.hash.clone(),
                object_uid: object.uid.clone(),
                claims: object.claims.clone(),
                preserve: false,
            })
            .collect();
        // Always two pages, the second possibly empty.
        let rest = entries.split_off(entries.len() / 2);
        self.send(ToController::Inventory(v1::Inventory { entries, last: false })).await;
        self.send(ToController::Inventory(v1::Inventory { entries: rest, last: true })).await;
    }

    pub(crate) async fn applied(
        &self,
        key: &v1::ObjectKey,
        hash: &str,
        uid: &str,
        result: v1::ApplyResult,
    ) {
        self.send(ToController::Applied(v1::Applied {
            key: Some(key.clone()),
            hash: hash.to_owned(),
            object_uid: uid.to_owned(),
            result: result.into(),
            ..v1::Applied::default()
        }))
        .await;
    }

    /// The status with which the session ends; skips earlier messages.
    pub(crate) async fn end(&mut self) -> Status {
        loop {
            if let Err(status) = self.next().await {
                return status;
            }
        }
    }
}

/// Carries out orders in the background until the session ends; returns the final status and the orders.
pub(crate) fn obey(
    mut agent: Agent,
    store: &Arc<Mutex<Store>>,
) -> tokio::task::JoinHandle<(Status, Vec<String>)> {
    let store = store.clone();
    tokio::spawn(async move {
        let mut log = Vec::new();
        loop {
            let message = match agent.incoming.message().await {
                Ok(Some(message)) => message.message.unwrap(),
                Ok(None) => return (Status::new(Code::Ok, "the stream ended"), log),
                Err(status) => return (status, log),
            };
            let mut held = store.lock().unwrap().clone();
            agent.follow(message, &mut held, &mut log).await;
            *store.lock().unwrap() = held;
        }
    })
}

/// Sends heartbeats for this session in the background, until the receiver is gone.
pub(crate) fn keep_alive(
    agent: &Agent,
    every: std::time::Duration,
) -> Arc<tokio::task::JoinHandle<()>> {
    let outgoing = agent.outgoing.clone();
    Arc::new(tokio::spawn(async move {
        loop {
            let beat = v1::Heartbeat { api_healthy: true, ..v1::Heartbeat::default() };
            if outgoing
                .send(v1::AgentMessage { message: Some(ToController::Heartbeat(beat)) })
                .await
                .is_err()
            {
                return;
            }
            tokio::time::sleep(every).await;
        }
    }))
}

pub(crate) fn facts(allocated: i64) -> v1::Facts {
    let list = |milli: i64| [("cpu".to_owned(), milli.to_string())].into();
    v1::Facts {
        kubernetes_version: "v1.33.0".into(),
        api_healthy: true,
        apis: vec![v1::ApiGroupVersion {
            group_version: "apps/v1".into(),
            kinds: vec![v1::ApiKind {
                kind: "Deployment".into(),
                plural: "deployments".into(),
                namespaced: true,
            }],
        }],
        apis_complete: true,
        nodes_total: 2,
        nodes_ready: 2,
        allocatable_milli: list(10_000),
        allocated_milli: list(allocated),
        taken_at_ms: 1,
        ..v1::Facts::default()
    }
}
