//! A crowd of stub agents: real keys, certificates, TLS and HTTP/2, and nothing behind them.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use atoll_agent::Timings;
use atoll_api::cluster::Cluster;
use atoll_api::{Backoff, Clock, Jitter};
use atoll_controller::members;
use atoll_protocol::identity::ClusterUid;
use atoll_protocol::member::{KeyRequest, MemberIdentity};
use atoll_protocol::v1::agent_message::Message as Say;
use atoll_protocol::v1::controller_message::Message as Hear;
use atoll_protocol::{tls, transport, v1};
use atoll_stub_agent::{self as stub, Session, Store};
use kube::Api;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::child::{answer, setting};
use super::hub;

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
    /// Number of objects that it holds.
    objects: Arc<AtomicUsize>,
    jitter: Jitter,
}

pub(crate) async fn run() {
    let client = hub::client(Path::new(&setting("KUBECONFIG"))).await;
    let clock = Clock::system();
    let authorities = members::load(&client).await.unwrap().unwrap();
    let authority = authorities.signing();
    let clusters = Api::<Cluster>::all(client).list(&Default::default()).await.unwrap();
    let (mut gates, mut held) = (BTreeMap::new(), BTreeMap::new());
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
            authority_change: None,
        };
        let identity =
            MemberIdentity::from_response(&request, &response, &authority.hash()).unwrap();
        let gate = Arc::<Gate>::default();
        gates.insert(name.clone(), gate.clone());
        let objects = Arc::<AtomicUsize>::default();
        held.insert(name.clone(), objects.clone());
        let tls = tls::member_config(&identity, clock.clone()).unwrap();
        let jitter = Jitter::new(seed);
        let address = setting("ADDRESS");
        tokio::spawn(Stub { name, identity, tls, address, gate, objects, jitter }.live());
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
            ["held"] => {
                let held: usize = held.values().map(|held| held.load(Ordering::Acquire)).sum();
                return json!({"held": held});
            }
            ["held-by", member] => {
                let held = &held[&hub::name(member.parse().unwrap())];
                return json!({"held": held.load(Ordering::Acquire)});
            }
            ["address"] => return json!({"address": setting("ADDRESS")}),
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
        let mut store = Store::default();
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
        let hello = store.hello(&self.identity.cluster_uid().to_string(), &self.name, 1);
        let opened = Session::open(transport::client(channel), hello).await;
        let Ok(mut session) = opened else { return false };
        let Ok(Hear::Welcome(welcome)) = session.next().await else { return false };
        let every = |ms: u32| tokio::time::interval(Duration::from_millis(ms.into()));
        let (mut beat, mut facts) = (every(welcome.heartbeat_ms), every(welcome.facts_ms));
        loop {
            let messages = tokio::select! {
                biased;
                message = session.next() => match message {
                    Ok(message) => {
                        let messages = reply(message, store);
                        self.objects.store(store.0.len(), Ordering::Release);
                        messages
                    }
                    Err(_) => return true,
                },
                _ = facts.tick() => vec![Say::Facts(stub::facts_with(3, 24_000, 1_000))],
                _ = beat.tick() => vec![stub::heartbeat()],
            };
            for message in messages {
                if !session.send(message).await {
                    return true;
                }
            }
        }
    }
}

/// Carries an order out at once.
fn reply(message: Hear, store: &mut Store) -> Vec<Say> {
    match message {
        // Namespaces are there.
        Hear::Upsert(upsert) if upsert.if_absent => Vec::new(),
        Hear::Upsert(upsert) => stub::carry_out(store, &upsert).into(),
        Hear::Remove(remove) => stub::remove(store, remove).into_iter().collect(),
        Hear::InventoryRequest(_) => vec![store.inventory()],
        _ => Vec::new(),
    }
}
