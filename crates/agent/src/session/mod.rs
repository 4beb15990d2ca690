//! The agent's connection to the controller: identity, addresses, one session after another.
//!
//! [`crate::engine`] carries out the messages; the loss of a session stops nothing on the member.

mod addresses;
pub(crate) mod enrol;
mod exchange;
pub(crate) mod identity;
pub(crate) mod outbox;

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_api::Clock;
use atoll_protocol::identity::ClusterUid;
use atoll_protocol::member::MemberIdentity;
use atoll_protocol::tls::member_config;
use atoll_protocol::transport;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

pub(crate) use addresses::{Addresses, Refusal};

use crate::engine::Command;
use crate::facts::FactsSource;
use crate::options::Connector;
use crate::terms::Terms;
use enrol::Renewal;

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
    /// Label keys that define node classes.
    pub labels: watch::Sender<BTreeSet<String>>,
}

/// How the controller identifies the agent.
pub(crate) enum Credentials {
    /// A certificate, renewed.
    Certificate(Renewal),
    /// The agent's session in this process.
    InProcess(ClusterUid),
}

impl Credentials {
    fn cluster_uid(&self) -> String {
        match self {
            Self::Certificate(renewal) => renewal.identity.borrow().cluster_uid().to_string(),
            Self::InProcess(uid) => uid.to_string(),
        }
    }

    /// Renews them over this channel. Returns only by cancellation.
    async fn keep(&self, channel: Channel) {
        match self {
            Self::Certificate(renewal) => renewal.run(channel).await,
            Self::InProcess(_) => std::future::pending().await,
        }
    }
}

/// How a session ended.
enum End {
    /// The agent stops.
    Stopped,
    /// No session was established.
    Refused(Refusal),
    /// An established session ended.
    Lost,
}

/// Runs one session after another until cancelled.
pub(crate) async fn run(
    mut sessions: Sessions<'_>,
    mut terms: Terms<'_>,
    token: CancellationToken,
) {
    loop {
        let address = sessions.addresses.current().to_owned();
        let end = match connect(&sessions, &address, &token).await {
            Ok(Some(channel)) => {
                let end = exchange::run(&mut sessions, &mut terms, channel, &address, &token).await;
                // Tells the engine to stop sending to the ended session. If the engine is gone, this task ends shortly
                // too.
                let _ = sessions.commands.send(Command::End).await;
                end
            }
            Ok(None) => End::Stopped,
            Err(error) => {
                tracing::warn!(%address, %error, "cannot connect");
                End::Refused(Refusal::Other)
            }
        };
        let end = match end {
            End::Refused(Refusal::Epoch(floor)) => {
                End::Refused(raise_epoch(&mut sessions, &terms, floor).await)
            }
            other => other,
        };
        let wait = match end {
            End::Stopped => return,
            End::Refused(refusal) => sessions.addresses.failed(&refusal),
            End::Lost => sessions.addresses.lost(),
        };
        tokio::select! {
            biased;
            () = token.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// The controller has seen a higher epoch of this member. While we hold the Lease, no other agent has replaced this
/// one: the Lease was deleted or restored from a backup, and the clock was wrong when its count restarted.
async fn raise_epoch(sessions: &mut Sessions<'_>, terms: &Terms<'_>, floor: u64) -> Refusal {
    match terms.raise_epoch(floor).await {
        Ok(epoch) => {
            tracing::warn!(
                before = sessions.epoch,
                epoch,
                "the controller has seen a higher epoch of this member: the lease counts on from there"
            );
            sessions.epoch = epoch;
            Refusal::Other
        }
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the lease's epoch was not raised"
            );
            Refusal::Epoch(floor)
        }
    }
}

/// A channel with the newest identity; `None` when cancelled.
async fn connect(
    sessions: &Sessions<'_>,
    address: &str,
    token: &CancellationToken,
) -> Result<Option<Channel>, String> {
    let dial = async {
        let text = |error: &dyn std::error::Error| enrol::chain(error);
        let tls = match &sessions.credentials {
            Credentials::Certificate(renewal) => {
                let identity: Arc<MemberIdentity> = renewal.identity.borrow().clone();
                let config = member_config(&identity, sessions.clock.clone());
                Some(config.map_err(|error| text(&error))?)
            }
            Credentials::InProcess(_) => None,
        };
        let io = sessions.connector.connect(address).await.map_err(|error| text(&error))?;
        match tls {
            Some(tls) => transport::channel(io, tls).await,
            None => transport::plain_channel(io).await,
        }
        .map_err(|error| text(&error))
    };
    tokio::select! {
        biased;
        () = token.cancelled() => Ok(None),
        channel = dial => channel.map(Some),
    }
}
