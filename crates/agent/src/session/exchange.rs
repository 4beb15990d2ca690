//! One session: hello, welcome, then messages both ways until either side ends it.

use std::sync::Arc;
use std::time::Duration;

use atoll_protocol::transport;
use atoll_protocol::v1::controller_message::Message;
use atoll_protocol::v1::{self, ControllerMessage};
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use tonic::transport::Channel;

use super::addresses::Refusal;
use super::inputs::{End, Sessions};
use super::outbox::Outbox;
use crate::engine::Command;
use crate::facts::FactsSource;
use crate::terms::{TermError, Terms};

/// Limit of the controller's first reply.
const WELCOME_LIMIT: Duration = Duration::from_secs(10);
/// Heartbeat interval if the controller names none.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Facts interval if the controller names none.
const FACTS: Duration = Duration::from_secs(5);
/// Lower bound of both intervals, whatever the controller asks for.
const LEAST: Duration = Duration::from_millis(50);
/// Minimum time between facts because of changed kinds: the custom resources of a CRD that just arrived need not wait for the
/// facts' interval, which may be a minute.
const KINDS: Duration = Duration::from_secs(2);
/// How long the first facts wait for the count of nodes and pods, so that they carry figures.
const FIRST_FACTS: Duration = Duration::from_secs(3);
/// How long a stop waits for an orderly end of the stream.
const GOODBYE: Duration = Duration::from_millis(300);

/// Runs a session over a channel.
pub(super) async fn run(
    sessions: &mut Sessions<'_>,
    terms: &mut Terms<'_>,
    channel: Channel,
    address: &str,
    token: &CancellationToken,
) -> End {
    let outbox = Arc::new(Outbox::default());
    let end = hold(sessions, terms, channel, address, &outbox, token).await;
    // Otherwise the outgoing stream would keep the connection open.
    outbox.close();
    end
}

async fn hold(
    sessions: &mut Sessions<'_>,
    terms: &mut Terms<'_>,
    channel: Channel,
    address: &str,
    outbox: &Arc<Outbox>,
    token: &CancellationToken,
) -> End {
    let begun = tokio::select! {
        biased;
        () = token.cancelled() => return End::Stopped,
        begun = begin(sessions, terms, &channel, outbox) => begun,
    };
    let (mut inbound, welcome) = match begun {
        Ok(begun) => begun,
        Err(Unwelcome { refusal, why }) => {
            tracing::warn!(%address, %why, "no session");
            return End::Refused(refusal);
        }
    };
    sessions.addresses.worked();
    tracing::info!(%address, session = %welcome.session, cluster = %welcome.cluster_name, term = terms.highest(), "connected");
    let _connected = sessions.metrics.connected();
    outbox.open();
    let mut facts = sessions.facts.clone();
    let (proxy, term) = (sessions.proxy.as_ref(), terms.highest());
    let tunnel = sessions.credentials.tunnel(proxy, (&sessions.connector, address), term);
    let reader = read(sessions, terms, &mut inbound);
    let talker = talk(outbox, &mut facts, &welcome);
    let why = tokio::select! {
        biased;
        () = token.cancelled() => {
            outbox.close();
            // The controller closes its half in return; messages that still arrive are ignored.
            let rest = async { while let Ok(Some(_)) = inbound.message().await {} };
            if tokio::time::timeout(GOODBYE, rest).await.is_err() {
                tracing::debug!("the controller did not close the session in time");
            }
            return End::Stopped;
        }
        why = reader => why,
        () = talker => "facts ended".to_owned(),
        () = sessions.credentials.keep(channel.clone()) => {
            "connecting again with a certificate of the new authority".to_owned()
        }
        () = tunnel => "the tunnel ended".to_owned(),
    };
    tracing::warn!(%address, %why, "the session ended");
    End::Lost
}

struct Unwelcome {
    refusal: Refusal,
    why: String,
}

impl From<tonic::Status> for Unwelcome {
    fn from(status: tonic::Status) -> Self {
        Self { refusal: Refusal::of(&status), why: status.to_string() }
    }
}

fn unwelcome(why: impl Into<String>) -> Unwelcome {
    Unwelcome { refusal: Refusal::Other, why: why.into() }
}

/// Hello and welcome.
async fn begin(
    sessions: &Sessions<'_>,
    terms: &mut Terms<'_>,
    channel: &Channel,
    outbox: &Arc<Outbox>,
) -> Result<(Streaming<ControllerMessage>, v1::Welcome), Unwelcome> {
    let (reply, digest) = oneshot::channel();
    let command = Command::Begin { outbox: Arc::clone(outbox), reply };
    sessions.commands.send(command).await.map_err(|_| unwelcome("the agent is stopping"))?;
    let digest = digest.await.map_err(|_| unwelcome("the agent is stopping"))?;
    outbox.hello(v1::Hello {
        cluster_uid: sessions.credentials.cluster_uid(),
        epoch: sessions.epoch,
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        highest_term: terms.highest(),
        inventory_digest: digest.to_vec(),
        member_uid: sessions.member_uid.clone(),
    });
    let mut client = transport::client(channel.clone());
    let first = async {
        let mut inbound = client.session(outbox.stream()).await?.into_inner();
        let first = inbound.message().await?;
        Ok::<_, tonic::Status>((inbound, first))
    };
    let (inbound, first) = tokio::time::timeout(WELCOME_LIMIT, first)
        .await
        .map_err(|_| unwelcome("the controller did not answer the hello"))??;
    let Some(ControllerMessage { term, message: Some(Message::Welcome(welcome)) }) = first else {
        return Err(unwelcome("the controller's first message is not Welcome"));
    };
    // A replaced leader counts as a non-leader: the current one is elsewhere.
    terms.admit(term).await.map_err(|error| Unwelcome {
        refusal: match &error {
            TermError::Lower { .. } => Refusal::NotLeader,
            TermError::Persist(_) => Refusal::Other,
        },
        why: super::enrol::chain(&error),
    })?;
    Ok((inbound, welcome))
}

/// Passes messages to the engine, in order; a busy engine stops the stream. Returns the reason of the end.
async fn read(
    sessions: &Sessions<'_>,
    terms: &mut Terms<'_>,
    inbound: &mut Streaming<ControllerMessage>,
) -> String {
    loop {
        let message = match inbound.message().await {
            Ok(Some(message)) => message,
            Ok(None) => return "the controller ended it".to_owned(),
            Err(status) => return status.to_string(),
        };
        if let Err(error) = terms.admit(message.term).await {
            return super::enrol::chain(&error);
        }
        match message.message {
            Some(Message::WatchLabels(labels)) => {
                let keys = labels.keys.into_iter().collect();
                sessions.labels.send_if_modified(|known| {
                    let changed = *known != keys;
                    *known = keys;
                    changed
                });
            }
            Some(Message::RenewCertificate(_)) => sessions.credentials.renew_now(),
            // A controller of a later version may send messages that this agent does not support.
            None | Some(Message::Welcome(_)) => {
                tracing::debug!("ignored a message of a type that this agent does not handle")
            }
            Some(message) => {
                if sessions.commands.send(Command::Message(message)).await.is_err() {
                    return "the agent is stopping".to_owned();
                }
            }
        }
    }
}

/// Sends heartbeats at their interval and facts when they change. Returns only by cancellation.
async fn talk(outbox: &Outbox, facts: &mut FactsSource, welcome: &v1::Welcome) {
    let interval = |named: u32, default: Duration| match named {
        0 => default,
        named => Duration::from_millis(u64::from(named)).max(LEAST),
    };
    let mut beat = tokio::time::interval(interval(welcome.heartbeat_ms, HEARTBEAT));
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let pause = interval(welcome.facts_ms, FACTS);
    let mut health = facts.clone();
    let mut first = facts.clone();
    let mut kinds = facts.apis.clone();
    let mut next_facts = Instant::now() + pause;
    let mut next_kinds = Instant::now() + KINDS;
    let mut first = std::pin::pin!(tokio::time::timeout(FIRST_FACTS, first.counted()));
    let mut sent = false;
    loop {
        tokio::select! {
            biased;
            _ = beat.tick() => outbox.heartbeat(health.heartbeat()),
            () = health.health_changed() => outbox.heartbeat(health.heartbeat()),
            _ = &mut first, if !sent => {
                sent = true;
                kinds.mark_unchanged();
                outbox.facts(facts.read());
                next_facts = Instant::now() + pause;
            }
            Ok(()) = async {
                tokio::time::sleep_until(next_kinds).await;
                kinds.changed().await
            }, if sent => {
                outbox.facts(facts.read());
                next_facts = Instant::now() + pause;
                next_kinds = Instant::now() + KINDS;
            }
            () = async {
                tokio::time::sleep_until(next_facts).await;
                facts.changed().await;
            }, if sent => {
                kinds.mark_unchanged();
                outbox.facts(facts.read());
                next_facts = Instant::now() + pause;
            }
        }
    }
}
