//! A stub agent for tests and benchmarks: the real protocol, and no member behind it.
//!
//! [`Session`] is one session with a controller, [`Store`] is what the member would hold, and the functions build the
//! messages that an agent sends. What a stub answers, and when, is up to its user.
#![allow(clippy::unwrap_used, reason = "test code: bad input from the controller is a failed test")]

pub mod transcript;

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_api::marks;
use atoll_protocol::digest::{Digest, Entry};
use atoll_protocol::v1;
use atoll_protocol::v1::agent_message::Message as ToController;
use atoll_protocol::v1::agent_service_client::AgentServiceClient;
use atoll_protocol::v1::controller_message::Message as ToAgent;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// Messages of one agent on their way out. More wait in their sender.
const OUTBOX: usize = 256;

/// An object that a stub holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Hash of its manifest.
    pub hash: String,
    /// The bindings that claim it.
    pub claims: Vec<String>,
    /// Its uid on the member.
    pub uid: String,
}

/// Objects of a member: outlives sessions.
#[derive(Debug, Clone, Default)]
pub struct Store(pub BTreeMap<v1::ObjectKey, Object>);

impl Store {
    /// Stores the object of an order; returns it, and its manifest.
    ///
    /// # Panics
    /// When the order has no key, or its manifest is not JSON with claims.
    pub fn upsert(&mut self, upsert: &v1::Upsert) -> (v1::ObjectKey, Object, Value) {
        let key = upsert.key.clone().unwrap();
        let manifest: Value = serde_json::from_slice(&upsert.manifest_json).unwrap();
        let claims = manifest["metadata"]["annotations"][marks::CLAIMS].as_str().unwrap();
        let object = Object {
            hash: upsert.hash.clone(),
            claims: claims.split(',').map(str::to_owned).collect(),
            uid: format!("uid-{}", key.name),
        };
        self.0.insert(key.clone(), object.clone());
        (key, object, manifest)
    }

    /// The digest of all objects.
    #[must_use]
    pub fn digest(&self) -> Digest {
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

    /// The inventory's entries.
    #[must_use]
    pub fn entries(&self) -> Vec<v1::InventoryEntry> {
        let entry = |(key, object): (&v1::ObjectKey, &Object)| v1::InventoryEntry {
            key: Some(key.clone()),
            hash: object.hash.clone(),
            object_uid: object.uid.clone(),
            claims: object.claims.clone(),
            preserve: false,
        };
        self.0.iter().map(entry).collect()
    }

    /// The whole inventory in one page.
    #[must_use]
    pub fn inventory(&self) -> ToController {
        ToController::Inventory(v1::Inventory { entries: self.entries(), last: true })
    }

    /// The first message of a session.
    #[must_use]
    pub fn hello(&self, cluster_uid: &str, member: &str, epoch: u64) -> v1::Hello {
        v1::Hello {
            cluster_uid: cluster_uid.to_owned(),
            epoch,
            agent_version: "stub".to_owned(),
            highest_term: 0,
            inventory_digest: self.digest().to_vec(),
            member_uid: member_uid(member),
        }
    }
}

/// uid of the `kube-system` namespace of a stub member.
#[must_use]
pub fn member_uid(member: &str) -> String {
    format!("kube-system-{member}")
}

/// One session.
#[derive(Debug)]
pub struct Session {
    /// Messages to the controller.
    pub outgoing: mpsc::Sender<v1::AgentMessage>,
    /// Messages from the controller.
    pub incoming: Streaming<v1::ControllerMessage>,
    /// Without it the connection ends.
    _client: AgentServiceClient<Channel>,
}

impl Session {
    /// Opens a session and sends Hello. The first reply is not read yet.
    ///
    /// # Errors
    /// When the controller refuses the session, or the connection ends.
    pub async fn open(
        mut client: AgentServiceClient<Channel>,
        hello: v1::Hello,
    ) -> Result<Self, Status> {
        let (outgoing, messages) = mpsc::channel(OUTBOX);
        outgoing
            .try_send(v1::AgentMessage { message: Some(ToController::Hello(hello)) })
            .expect("the queue is empty, and its receiver is here");
        let incoming = client.session(ReceiverStream::new(messages)).await?.into_inner();
        Ok(Self { outgoing, incoming, _client: client })
    }

    /// Sends a message; returns whether the session still accepts any.
    pub async fn send(&self, message: ToController) -> bool {
        self.outgoing.send(v1::AgentMessage { message: Some(message) }).await.is_ok()
    }

    /// The controller's next message, or how the session ended.
    ///
    /// # Errors
    /// The status with which the session ended; `Ok` if the controller closed the stream.
    pub async fn next(&mut self) -> Result<ToAgent, Status> {
        let message =
            self.incoming.message().await?.ok_or_else(|| Status::ok("the stream ended"))?;
        message.message.ok_or_else(|| Status::internal("an empty message"))
    }

    /// Sends heartbeats at this interval in the background, until the session ends.
    pub fn keep_alive(&self, every: Duration) -> tokio::task::JoinHandle<()> {
        let outgoing = self.outgoing.clone();
        tokio::spawn(async move {
            while outgoing.send(v1::AgentMessage { message: Some(heartbeat()) }).await.is_ok() {
                tokio::time::sleep(every).await;
            }
        })
    }
}

/// The heartbeat of a healthy member.
#[must_use]
pub fn heartbeat() -> ToController {
    ToController::Heartbeat(v1::Heartbeat { api_healthy: true, ..v1::Heartbeat::default() })
}

/// The result of an order.
#[must_use]
pub fn applied(key: v1::ObjectKey, hash: &str, uid: &str, result: v1::ApplyResult) -> ToController {
    ToController::Applied(v1::Applied {
        key: Some(key),
        hash: hash.to_owned(),
        object_uid: uid.to_owned(),
        result: result.into(),
        ..v1::Applied::default()
    })
}

/// Stores the object of an order; the answers are that it is applied, and a status with all replicas ready.
///
/// # Panics
/// As [`Store::upsert`].
pub fn carry_out(store: &mut Store, upsert: &v1::Upsert) -> [ToController; 2] {
    let (key, object, manifest) = store.upsert(upsert);
    let replicas = manifest["spec"]["replicas"].as_i64();
    let status = json!({
        "observedGeneration": 1, "replicas": replicas, "readyReplicas": replicas,
        "updatedReplicas": replicas, "availableReplicas": replicas,
    });
    let status = v1::Status {
        key: Some(key.clone()),
        hash: object.hash.clone(),
        generation: 1,
        observed_generation: 1,
        replicas,
        ready: replicas,
        health: v1::Health::Healthy.into(),
        status_json: status.to_string().into_bytes().into(),
        object_uid: object.uid.clone(),
        ..v1::Status::default()
    };
    let applied = applied(key, &object.hash, &object.uid, v1::ApplyResult::Applied);
    [applied, ToController::Status(status)]
}

/// Removes the object of an order; the answer, if the order names one.
pub fn remove(store: &mut Store, order: v1::Remove) -> Option<ToController> {
    let key = order.key?;
    store.0.remove(&key);
    Some(applied(key, "", "", v1::ApplyResult::Removed))
}

/// Facts of a member that serves Deployments and reports no capacity.
#[must_use]
pub fn facts() -> v1::Facts {
    v1::Facts {
        kubernetes_version: "v1.33.0".to_owned(),
        api_healthy: true,
        apis: vec![v1::ApiGroupVersion {
            group_version: "apps/v1".to_owned(),
            kinds: vec![v1::ApiKind {
                kind: "Deployment".to_owned(),
                plural: "deployments".to_owned(),
                namespaced: true,
            }],
        }],
        apis_complete: true,
        ..v1::Facts::default()
    }
}

/// [`facts`] with the CPUs of this many nodes, in thousandths.
#[must_use]
pub fn facts_with(nodes: i64, allocatable: i64, allocated: i64) -> v1::Facts {
    // As on nodes with 4 GiB and 100 pods for each CPU.
    let cpu = |milli: i64| {
        let memory = i128::from(milli) * 4 * (1 << 30);
        [
            ("cpu".to_owned(), milli.to_string()),
            ("memory".to_owned(), memory.to_string()),
            ("pods".to_owned(), (milli * 100).to_string()),
        ]
        .into()
    };
    v1::Facts {
        nodes_total: nodes,
        nodes_ready: nodes,
        allocatable_milli: cpu(allocatable),
        allocated_milli: cpu(allocated),
        taken_at_ms: 1,
        ..facts()
    }
}
