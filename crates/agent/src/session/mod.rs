//! The agent's connection to the controller: identity, addresses, one session after another.
//!
//! [`crate::engine`] carries out the messages; the loss of a session stops nothing on the member.

mod addresses;
pub(crate) mod enrol;
mod exchange;
pub(crate) mod identity;
mod inputs;
pub(crate) mod outbox;
pub(crate) mod tunnel;

use std::sync::Arc;

use atoll_protocol::member::MemberIdentity;
use atoll_protocol::tls::member_config;
use atoll_protocol::transport;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

pub(crate) use addresses::{Addresses, Refusal};
pub(crate) use inputs::{Credentials, Sessions};

use crate::engine::Command;
use crate::terms::Terms;
use inputs::End;

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
                "the controller has seen a higher epoch of this member: raised the lease's epoch above it"
            );
            sessions.epoch = epoch;
            Refusal::Other
        }
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "cannot raise the lease's epoch"
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
