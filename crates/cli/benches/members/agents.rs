//! A crowd of stub agents: real keys, certificates, TLS and HTTP/2, and nothing behind them.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use atoll_agent::Timings;
use atoll_api::cluster::Cluster;
use atoll_api::{Backoff, Jitter};
use atoll_api::{Clock, marks};
use atoll_controller::members;
use atoll_protocol::digest::{Digest, Entry};
use atoll_protocol::identity::ClusterUid;
use atoll_protocol::member::{KeyRequest, MemberIdentity};
use atoll_protocol::v1::agent_message::Message as Say;
use atoll_protocol::v1::controller_message::Message as Hear;
use atoll_protocol::{tls, transport, v1};
use kube::Api;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::child::{answer, setting};
use crate::hub;

/// Messages of one agent on their way out.
const OUTBOX: usize = 256;

/// What a member holds, by key: hash and claims.
type Store = BTreeMap<v1::ObjectKey, (String, Vec<String>)>;

/// Whether a connection is read from.
#[derive(Default)]
struct Gate {
    shut: AtomicBool,
    waiting: Mutex<Option<Waker>>,
}

/// A connection that is not read from while its gate is shut.
struct Gated {
    io: TcpStream,
    gate: Arc<Gate>,
}

impl AsyncRead for Gated {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.gate.shut.load(Ordering::Acquire) {
            *self.gate.waiting.lock().unwrap() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Gated {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// One agent.
struct Stub {
    name: String,
    identity: MemberIdentity,
    tls: Arc<rustls::ClientConfig>,
    address: String,
    gate: Arc<Gate>,
    jitter: Jitter,
}

pub(crate) async fn run() {
    let client = hub::client(Path::new(&setting("KUBECONFIG"))).await;
    let clock = Clock::system();
    let authority = members::load(&client).await.unwrap().unwrap();
    let clusters = Api::<Cluster>::all(client).list(&Default::default()).await.unwrap();
    let mut gates = BTreeMap::new();
    for (seed, cluster) in (1..).zip(&clusters) {
        let name = cluster.metadata.name.clone().unwrap();
        let uid = ClusterUid::new(cluster.metadata.uid.as_deref().unwrap()).unwrap();
        // The enrolment is left out: it happens once in a member's life, and not to all of them at once.
        let request = KeyRequest::generate().unwrap();
        let issued = authority.sign_member(request.csr_der(), &uid, clock.now()).unwrap();
        let response = v1::CertificateResponse {
            chain_der: issued.chain.iter().map(|der| der.to_vec()).collect(),
            cluster_uid: uid.to_string(),
            cluster_name: name.clone(),
            trust_domain: authority.trust_domain().to_string(),
        };
        let identity =
            MemberIdentity::from_response(&request, &response, &authority.hash()).unwrap();
        let gate = Arc::<Gate>::default();
        gates.insert(name.clone(), gate.clone());
        let tls = tls::member_config(&identity, clock.clone()).unwrap();
        let jitter = Jitter::new(seed);
        let address = setting("ADDRESS");
        tokio::spawn(Stub { name, identity, tls, address, gate, jitter }.live());
    }
    answer(async |words| {
        match words {
            ["ready"] => (),
            ["shut", member] => {
                gates[&hub::name(member.parse().unwrap())].shut.store(true, Ordering::Release);
            }
            ["open", member] => {
                let gate = &gates[&hub::name(member.parse().unwrap())];
                gate.shut.store(false, Ordering::Release);
                if let Some(waker) = gate.waiting.lock().unwrap().take() {
                    waker.wake();
                }
            }
            other => panic!("what is {other:?}?"),
        }
        json!({}) as Value
    })
    .await;
}

impl Stub {
    /// Session after session, with the waits of a real agent in between.
    async fn live(self) {
        let backoff: Backoff = Timings::default().reconnect;
        let mut store = Store::new();
        let mut failures = 0;
        loop {
            let welcomed = self.session(&mut store).await;
            failures = if welcomed { 1 } else { failures + 1 };
            tokio::time::sleep(backoff.full_jitter(failures, &self.jitter)).await;
        }
    }

    /// One session; whether there was one.
    async fn session(&self, store: &mut Store) -> bool {
        let Ok(io) = TcpStream::connect(&self.address).await else { return false };
        io.set_nodelay(true).unwrap();
        let io = Gated { io, gate: self.gate.clone() };
        let Ok(channel) = transport::channel(io, self.tls.clone()).await else { return false };
        let mut client = transport::client(channel);
        let (say, said) = mpsc::channel(OUTBOX);
        let hello = Say::Hello(v1::Hello {
            cluster_uid: self.identity.cluster_uid().to_string(),
            epoch: 1,
            agent_version: "bench".into(),
            highest_term: 0,
            inventory_digest: digest(store).to_vec(),
            member_uid: format!("kube-system-{}", self.name),
        });
        say.try_send(v1::AgentMessage { message: Some(hello) }).unwrap();
        let Ok(answers) = client.session(ReceiverStream::new(said)).await else { return false };
        let mut answers = answers.into_inner();
        let Ok(Some(first)) = answers.message().await else { return false };
        let Some(Hear::Welcome(welcome)) = first.message else { return false };
        let every = |ms: u32| tokio::time::interval(Duration::from_millis(ms.into()));
        let (mut beat, mut facts) = (every(welcome.heartbeat_ms), every(welcome.facts_ms));
        loop {
            let message = tokio::select! {
                biased;
                message = answers.message() => match message {
                    Ok(Some(message)) => reply(message.message, store),
                    _ => return true,
                },
                _ = facts.tick() => vec![Say::Facts(member_facts())],
                _ = beat.tick() => {
                    vec![Say::Heartbeat(v1::Heartbeat { api_healthy: true, ..Default::default() })]
                }
            };
            for message in message {
                if say.send(v1::AgentMessage { message: Some(message) }).await.is_err() {
                    return true;
                }
            }
        }
    }
}

fn reply(message: Option<Hear>, store: &mut Store) -> Vec<Say> {
    match message {
        Some(Hear::Upsert(upsert)) => {
            let key = upsert.key.unwrap();
            let manifest: Value = serde_json::from_slice(&upsert.manifest_json).unwrap();
            let claims = manifest["metadata"]["annotations"][marks::CLAIMS].as_str().unwrap();
            let claims = claims.split(',').map(str::to_owned).collect();
            store.insert(key.clone(), (upsert.hash.clone(), claims));
            vec![Say::Applied(v1::Applied {
                object_uid: format!("uid-{}", key.name),
                key: Some(key),
                hash: upsert.hash,
                result: v1::ApplyResult::Applied.into(),
                ..v1::Applied::default()
            })]
        }
        Some(Hear::InventoryRequest(_)) => {
            let entries = store.iter().map(|(key, (hash, claims))| v1::InventoryEntry {
                key: Some(key.clone()),
                hash: hash.clone(),
                object_uid: format!("uid-{}", key.name),
                claims: claims.clone(),
                preserve: false,
            });
            vec![Say::Inventory(v1::Inventory { entries: entries.collect(), last: true })]
        }
        _ => Vec::new(),
    }
}

fn digest(store: &Store) -> Digest {
    Digest::of(store.iter().map(|(key, (hash, claims))| Entry {
        group: &key.group,
        kind: &key.kind,
        namespace: &key.namespace,
        name: &key.name,
        hash,
        claims: claims.iter().map(String::as_str).collect(),
        preserve: false,
    }))
}

fn member_facts() -> v1::Facts {
    let list = |cpu: i64| [("cpu".to_owned(), cpu.to_string())].into();
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
        nodes_total: 3,
        nodes_ready: 3,
        allocatable_milli: list(24_000),
        allocated_milli: list(1_000),
        taken_at_ms: 1,
        ..v1::Facts::default()
    }
}
