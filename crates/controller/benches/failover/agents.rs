//! Agents that carry out every order at once and report that. Real gRPC over in-memory streams, without TLS.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use atoll_controller::members::Arrival;
use atoll_protocol::identity::ClusterUid;
use atoll_protocol::transport;
use atoll_protocol::v1::agent_message::Message as Say;
use atoll_protocol::v1::controller_message::Message as Hear;
use atoll_stub_agent::{self as stub, Session, Store};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Bytes in flight, like a real socket's buffer.
const ROOM: usize = 256 * 1024;

/// Totals of all agents.
#[derive(Default)]
struct Done {
    upserts: AtomicUsize,
    last: Mutex<Option<Instant>>,
}

pub(crate) struct Fleet {
    done: Arc<Done>,
    agents: BTreeMap<String, JoinHandle<()>>,
}

impl Fleet {
    /// One agent for each member.
    pub(crate) fn start(clusters: &[(String, String)], door: &mpsc::Sender<Arrival>) -> Self {
        let done = Arc::<Done>::default();
        let agents = clusters.iter().map(|(name, uid)| {
            let task = live(name.clone(), uid.clone(), door.clone(), done.clone());
            (name.clone(), tokio::spawn(task))
        });
        Self { agents: agents.collect(), done }
    }

    /// Manifests that were applied, by all agents.
    pub(crate) fn upserts(&self) -> usize {
        self.done.upserts.load(Ordering::Acquire)
    }

    /// When the last manifest was applied.
    pub(crate) fn last(&self) -> Option<Instant> {
        *self.done.last.lock().unwrap()
    }

    /// A member dies: it sends nothing more.
    pub(crate) fn kill(&self, name: &str) {
        self.agents[name].abort();
    }
}

/// Runs one session after another: until there is a leader, all are refused.
async fn live(name: String, uid: String, door: mpsc::Sender<Arrival>, done: Arc<Done>) {
    let mut store = Store::default();
    loop {
        session(&name, &uid, &door, &mut store, &done).await;
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

async fn session(
    name: &str,
    uid: &str,
    door: &mpsc::Sender<Arrival>,
    store: &mut Store,
    done: &Done,
) -> Option<()> {
    let (near, far) = tokio::io::duplex(ROOM);
    let identity = Some(ClusterUid::new(uid).unwrap());
    door.send(Arrival { io: Box::new(far), identity }).await.ok()?;
    let client = transport::client(transport::plain_channel(near).await.ok()?);
    let mut session = Session::open(client, store.hello(uid, name, 1)).await.ok()?;
    let Hear::Welcome(welcome) = session.next().await.ok()? else { return None };
    let mut beat =
        tokio::time::interval(std::time::Duration::from_millis(welcome.heartbeat_ms.into()));
    session.send(Say::Facts(stub::facts())).await.then_some(())?;
    loop {
        let message = tokio::select! {
            biased;
            _ = beat.tick() => {
                session.send(stub::heartbeat()).await.then_some(())?;
                continue;
            }
            message = session.next() => message.ok()?,
        };
        match message {
            Hear::Upsert(upsert) if !upsert.if_absent => {
                for message in stub::carry_out(store, &upsert) {
                    session.send(message).await.then_some(())?;
                }
                done.upserts.fetch_add(1, Ordering::AcqRel);
                *done.last.lock().unwrap() = Some(Instant::now());
            }
            Hear::InventoryRequest(_) => {
                session.send(store.inventory()).await.then_some(())?;
            }
            Hear::Remove(remove) => {
                session.send(stub::remove(store, remove)?).await.then_some(())?;
            }
            _ => {}
        }
    }
}
