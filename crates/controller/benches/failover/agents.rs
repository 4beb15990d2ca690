//! Agents that carry out every order at once and report that. Real gRPC over in-memory streams, without TLS.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use atoll_api::marks;
use atoll_controller::members::Arrival;
use atoll_protocol::digest::{Digest, Entry};
use atoll_protocol::identity::ClusterUid;
use atoll_protocol::v1::agent_message::Message as Say;
use atoll_protocol::v1::controller_message::Message as Hear;
use atoll_protocol::{transport, v1};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;

/// Bytes in flight, like a real socket's buffer.
const ROOM: usize = 256 * 1024;
/// Outgoing messages of one agent.
const OUTBOX: usize = 1024;

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

/// What a member holds, by key: hash and claims.
type Store = BTreeMap<v1::ObjectKey, (String, Vec<String>)>;

/// Runs one session after another: until there is a leader, all are refused.
async fn live(name: String, uid: String, door: mpsc::Sender<Arrival>, done: Arc<Done>) {
    let mut store = Store::new();
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
    let mut client = transport::client(transport::plain_channel(near).await.ok()?);
    let (say, said) = mpsc::channel(OUTBOX);
    let hello = Say::Hello(v1::Hello {
        cluster_uid: uid.to_owned(),
        epoch: 1,
        agent_version: "bench".into(),
        highest_term: 0,
        inventory_digest: digest(store).to_vec(),
        member_uid: format!("kube-system-{name}"),
    });
    say.send(v1::AgentMessage { message: Some(hello) }).await.ok()?;
    let mut hear = client.session(ReceiverStream::new(said)).await.ok()?.into_inner();
    let Hear::Welcome(welcome) = hear.message().await.ok()??.message? else { return None };
    let mut beat =
        tokio::time::interval(std::time::Duration::from_millis(welcome.heartbeat_ms.into()));
    let answer =
        async |message: Say| say.send(v1::AgentMessage { message: Some(message) }).await.ok();
    answer(Say::Facts(facts())).await?;
    loop {
        let message = tokio::select! {
            biased;
            _ = beat.tick() => {
                answer(Say::Heartbeat(v1::Heartbeat { api_healthy: true, ..Default::default() }))
                    .await?;
                continue;
            }
            message = hear.message() => message.ok()??.message?,
        };
        match message {
            Hear::Upsert(upsert) if !upsert.if_absent => {
                for message in apply(upsert, store) {
                    answer(message).await?;
                }
                done.upserts.fetch_add(1, Ordering::AcqRel);
                *done.last.lock().unwrap() = Some(Instant::now());
            }
            Hear::InventoryRequest(_) => {
                let entries = store.iter().map(|(key, (hash, claims))| v1::InventoryEntry {
                    key: Some(key.clone()),
                    hash: hash.clone(),
                    object_uid: "uid".to_owned(),
                    claims: claims.clone(),
                    preserve: false,
                });
                let inventory = v1::Inventory { entries: entries.collect(), last: true };
                answer(Say::Inventory(inventory)).await?;
            }
            Hear::Remove(remove) => {
                let key = remove.key?;
                store.remove(&key);
                answer(Say::Applied(v1::Applied {
                    key: Some(key),
                    result: v1::ApplyResult::Removed.into(),
                    ..v1::Applied::default()
                }))
                .await?;
            }
            _ => {}
        }
    }
}

/// Stores the object, and reports it as ready.
fn apply(upsert: v1::Upsert, store: &mut Store) -> [Say; 2] {
    let key = upsert.key.unwrap();
    let manifest: Value = serde_json::from_slice(&upsert.manifest_json).unwrap();
    let claims = manifest["metadata"]["annotations"][marks::CLAIMS].as_str().unwrap();
    let claims = claims.split(',').map(str::to_owned).collect();
    let replicas = manifest["spec"]["replicas"].as_i64();
    let hash = upsert.hash;
    store.insert(key.clone(), (hash.clone(), claims));
    let status = json!({
        "observedGeneration": 1, "replicas": replicas, "readyReplicas": replicas,
        "updatedReplicas": replicas, "availableReplicas": replicas,
    });
    let applied = v1::Applied {
        key: Some(key.clone()),
        hash: hash.clone(),
        object_uid: "uid".to_owned(),
        result: v1::ApplyResult::Applied.into(),
        ..v1::Applied::default()
    };
    let status = v1::Status {
        key: Some(key),
        hash,
        generation: 1,
        observed_generation: 1,
        replicas,
        ready: replicas,
        health: v1::Health::Healthy.into(),
        status_json: status.to_string().into_bytes().into(),
        object_uid: "uid".to_owned(),
        ..v1::Status::default()
    };
    [Say::Applied(applied), Say::Status(status)]
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

fn facts() -> v1::Facts {
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
        ..v1::Facts::default()
    }
}
