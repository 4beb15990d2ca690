//! What a session needs, and how it ends.

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_api::Clock;
use atoll_protocol::identity::ClusterUid;
use tokio::sync::{mpsc, watch};
use tonic::transport::Channel;

use super::addresses::{Addresses, Refusal};
use super::enrol::Renewal;
use super::tunnel::{self, Proxy};
use crate::engine::Command;
use crate::facts::FactsSource;
use crate::metrics::AgentMetrics;
use crate::options::Connector;

/// Inputs of sessions.
pub(crate) struct Sessions<'a> {
    /// How to reach the controller.
    pub connector: Connector,
    /// The controller's addresses.
    pub addresses: &'a mut Addresses,
    /// Clock for TLS.
    pub clock: Clock,
    /// The agent's identity.
    pub credentials: Credentials,
    /// The Lease's acquisition count.
    pub epoch: u64,
    /// uid of the member's kube-system namespace.
    pub member_uid: String,
    /// Sends to the engine.
    pub commands: mpsc::Sender<Command>,
    /// Facts and health.
    pub facts: FactsSource,
    /// The member's API server for users of the hub; `None`: they do not reach it.
    pub proxy: Option<Arc<Proxy>>,
    /// Label keys that define node classes.
    pub labels: watch::Sender<BTreeSet<String>>,
    /// Metrics.
    pub metrics: AgentMetrics,
}

/// How the controller identifies the agent.
pub(crate) enum Credentials {
    /// A certificate, renewed.
    Certificate(Renewal),
    /// The agent's session in this process.
    InProcess(ClusterUid),
}

impl Credentials {
    /// uid of the Cluster that the agent belongs to.
    pub(super) fn cluster_uid(&self) -> String {
        match self {
            Self::Certificate(renewal) => renewal.identity.borrow().cluster_uid().to_string(),
            Self::InProcess(uid) => uid.to_string(),
        }
    }

    /// Serves users' requests over further connections to this controller. Returns only by cancellation.
    pub(super) async fn tunnel(
        &self,
        proxy: Option<&Arc<Proxy>>,
        to: (&Connector, &str),
        term: u64,
    ) {
        match (self, proxy) {
            (Self::Certificate(renewal), Some(proxy)) => {
                tunnel::keep(proxy.clone(), to, renewal, term).await;
            }
            // Sessions within a process have no sockets, and no users of their own.
            (Self::InProcess(_), _) | (_, None) => std::future::pending().await,
        }
    }

    /// The controller asks for a renewal now.
    pub(super) fn renew_now(&self) {
        if let Self::Certificate(renewal) = self {
            renewal.asked.notify_one();
        }
    }

    /// Renews them over this channel. Returns when the next connection has to present others.
    pub(super) async fn keep(&self, channel: Channel) {
        match self {
            Self::Certificate(renewal) => renewal.run(channel).await,
            Self::InProcess(_) => std::future::pending().await,
        }
    }
}

/// How a session ended.
pub(super) enum End {
    /// The agent stops.
    Stopped,
    /// No session was established.
    Refused(Refusal),
    /// An established session ended.
    Lost,
}
