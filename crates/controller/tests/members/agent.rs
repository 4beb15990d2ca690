//! A scripted agent that otherwise carries out its orders.

use std::sync::{Arc, Mutex};

use atoll_controller::members::{TOKEN_LIFE, create_token};
use atoll_protocol::member::{KeyRequest, MemberIdentity};
use atoll_protocol::v1::agent_message::Message as ToController;
use atoll_protocol::v1::agent_service_client::AgentServiceClient;
use atoll_protocol::v1::controller_message::Message as ToAgent;
use atoll_protocol::{tls, transport, v1};
pub(crate) use atoll_stub_agent::{Object, Store};
use atoll_stub_agent::{Session, applied, facts_with, heartbeat};
use tokio::time::timeout;
use tonic::Status;
use tonic::transport::Channel;

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
        follows_authority: true,
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

/// One session.
pub(crate) struct Agent {
    pub(crate) session: Session,
}

pub(crate) fn hello(identity: &MemberIdentity, name: &str, epoch: u64, store: &Store) -> v1::Hello {
    store.hello(&identity.cluster_uid().to_string(), name, epoch)
}

impl Agent {
    /// Opens a session and sends Hello. The first reply is not read yet.
    pub(crate) async fn open(
        rig: &Rig,
        identity: &MemberIdentity,
        hello: v1::Hello,
        room: usize,
    ) -> Result<Self, Status> {
        let client = client(rig, identity, room).await;
        Ok(Self { session: Session::open(client, hello).await? })
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
        timeout(LIMIT, self.session.next()).await.expect("a message in time")
    }

    pub(crate) async fn send(&self, message: ToController) {
        assert!(self.session.send(message).await, "the session is down");
    }

    pub(crate) async fn beat(&self) {
        self.send(heartbeat()).await;
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
                if upsert.if_absent {
                    log.push(format!("ensure {}", upsert.key.unwrap().name));
                    return false;
                }
                let (key, object, _) = store.upsert(&upsert);
                log.push(format!("upsert {} {}", key.name, object.hash));
                self.applied(&key, &object.hash, &object.uid, v1::ApplyResult::Applied).await;
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
            ToAgent::RuleText(text) => log.push(format!("text {}", text.hash)),
            ToAgent::Customizations(list) => {
                let entries = list.entries.iter();
                log.push(entries.map(|entry| format!("{}={}", entry.name, entry.hash)).collect());
            }
            ToAgent::WatchLabels(labels) => log.push(format!("labels {}", labels.keys.join(","))),
            ToAgent::RenewCertificate(_) => log.push("renew".to_owned()),
            ToAgent::Welcome(_) => (),
        }
        false
    }

    pub(crate) async fn inventory(&self, store: &Store) {
        let mut entries = store.entries();
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
        self.send(applied(key.clone(), hash, uid, result)).await;
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
            let message = match agent.session.next().await {
                Ok(message) => message,
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
    Arc::new(agent.session.keep_alive(every))
}

pub(crate) fn facts(allocated: i64) -> v1::Facts {
    facts_with(2, 10_000, allocated)
}
